/* Rounds in which the ranks of a group swap bytes: this rank's are said until there is an answer.
 */
#include "client/client_internal.h"

#include "common/clock.h"
#include "common/random.h"

#include <string.h>

static const uint64_t again_ns = 500 * CLOCK_MS; /* a word may be lost with its connection */

void client_swapped(struct gradweir_client *client, const struct message_swapped *swapped)
{
    struct swap_round *round = client->swap;
    if (!round || round->done || swapped->instance != round->say->instance)
        return;
    if (swapped->status != GRADWEIR_OK) {
        round->status = (gradweir_status)swapped->status;
        round->done = true;
        return;
    }
    if (swapped->rank >= round->say->ranks || swapped->bytes != round->say->bytes ||
        !(swapped->here >> swapped->rank & 1) || swapped->here >> round->say->ranks) {
        round->status = GRADWEIR_ERR_PROTOCOL;
        round->done = true;
        return;
    }
    if (swapped->bytes)
        memcpy(round->all + (size_t)swapped->rank * swapped->bytes, swapped->data, swapped->bytes);
    round->meeting = swapped->meeting;
    round->asked = swapped->asked;
    round->here = swapped->here;
    round->got |= UINT32_C(1) << swapped->rank;
    round->done = round->got == round->here;
}

static bool is_swapped(const struct gradweir_client *client, uint64_t what)
{
    (void)what;
    return client->swap->done;
}

static gradweir_status why(const struct gradweir_client *client, const struct swap_round *round)
{
    const struct message_swap *say = round->say;
    switch (round->status) {
    case GRADWEIR_OK: return GRADWEIR_OK;
    case GRADWEIR_ERR_LOST:
        return fail(GRADWEIR_ERR_LOST, "rank %u of %u came late: the others have gone on",
                    say->rank, say->ranks);
    case GRADWEIR_ERR_INVALID:
        return fail(GRADWEIR_ERR_INVALID, "rank %u of %u of %s is here already: another process",
                    say->rank, say->ranks, say->identity);
    case GRADWEIR_ERR_MISMATCH:
        return fail(GRADWEIR_ERR_MISMATCH,
                    "the ranks of %s do not agree on how many they are: here it is %u",
                    say->identity, say->ranks);
    case GRADWEIR_ERR_FULL:
        return fail(GRADWEIR_ERR_FULL, "%s: too many groups meet at once", client->address);
    default:
        return fail(round->status, "%s: an answer to the ranks of %s that makes no sense",
                    client->address, say->identity);
    }
}

static gradweir_status say_until(struct gradweir_client *client, const struct message *message,
                                 uint64_t deadline_ns)
{
    for (;;) {
        const uint64_t soon_ns = deadline_after(clock_now_ns(), again_ns);
        control_send(client->control, CONTROL_SERVER, message);
        const gradweir_status status =
            client_wait_until(client, is_swapped, 0, soon_ns < deadline_ns ? soon_ns : deadline_ns);
        const bool over = deadline_passed(clock_now_ns(), deadline_ns);
        if (status == GRADWEIR_OK || client->failed != GRADWEIR_OK || over)
            return status;
    }
}

gradweir_status client_swap(struct gradweir_client *client, struct message_swap *say,
                            uint64_t deadline_ns, struct swap_round *round)
{
    struct message message = {.kind = MESSAGE_SWAP, .epoch = 1, .timeline = 1};
    memcpy(say->identity, client->identity, sizeof say->identity);
    TRY(random_entropy(&say->instance, sizeof say->instance));
    round->say = say;
    round->got = round->here = 0;
    round->done = false;
    round->status = GRADWEIR_OK;
    message.swap = *say;
    client_lock(client);
    client->swap = round;
    const gradweir_status status = say_until(client, &message, deadline_ns);
    client->swap = NULL;
    client_unlock(client);
    return status == GRADWEIR_OK ? why(client, round) : status;
}
