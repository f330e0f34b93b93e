/* A push on its way to the session, chunk by chunk: what is made so far leaves before more is made.
 */
#include "client/client_encode.h"

#include "common/clock.h"
#include "common/codec.h"

static void tell(struct gradweir_client *client, enum session_event_kind kind,
                 const struct session_push_request *what)
{
    client_event(client, &(struct session_event){
                             .kind = kind, .now_ns = (int64_t)clock_now_ns(), .push = *what});
    client_turn(client);
}

gradweir_status client_encode_push(struct gradweir_client *client, enum client_source source,
                                   struct session_push_request *what, bool *told)
{
    struct client_encoding encoding;
    enum session_event_kind kind = SESSION_PUSH;
    *told = false;
    TRY(client_encode_begin(&encoding, client, source, what->buffer));
    client->lent[what->buffer] = client_encode_lies(&encoding);
    const uint64_t chunk = codec_chunk(encoding.codec, client->session.chunk_bytes);
    if (client->parts) {
        TRY(client_encode_share(&encoding, what));
        *told = true;
        client_event(client, &(struct session_event){.kind = SESSION_PUSH,
                                                     .now_ns = (int64_t)clock_now_ns(),
                                                     .push = *what});
        return GRADWEIR_OK;
    }
    while (client_encode_more(&encoding, client_room_take(&encoding, chunk))) {
        what->filling = true;
        what->filled = encoding.filled;
        tell(client, kind, what);
        *told = true;
        kind = SESSION_FILLED;
        client_room_back(client);
    }
    if (encoding.status != GRADWEIR_OK)
        client_room_back(client);
    TRY(encoding.status);
    *told = true;
    what->filling = false;
    what->filled = encoding.filled;
    what->norm = encoding.norm;
    what->digest = encoding.digest;
    client_event(client, &(struct session_event){
                             .kind = kind, .now_ns = (int64_t)clock_now_ns(), .push = *what});
    client_room_back(client);
    return GRADWEIR_OK;
}
