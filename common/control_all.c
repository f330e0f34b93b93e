/* One message to many peers: encoded once. A record goes to every shard, and with 64 of them
 * encoding it for each would cost the coordinator more than deciding it. */
#include "common/control_internal.h"
#include "common/wire.h"

#include <string.h>

void control_send_all(struct control *control, const uint32_t *numbers, uint32_t count,
                      const struct message *message)
{
    uint8_t bytes[MESSAGE_BYTES_MAX];
    size_t written = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct control_peer *peer = control_peer_find(control, numbers[i]);
        if (!peer || peer->broken)
            continue;
        if (!peer->link && written == 0 &&
            wire_encode(message, bytes, sizeof bytes, &written) != GRADWEIR_OK)
            written = 0;
        if (peer->link || written == 0 || written > FRAME_BYTES_MAX - peer->frame_count) {
            control_send(control, numbers[i], message);
            continue;
        }
        memcpy(peer->frame + peer->frame_count, bytes, written);
        control->unflushed += peer->frame_count == 0;
        peer->frame_count += written;
    }
}
