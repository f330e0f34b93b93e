/* What is said of a push: its description, and the receipt that comes back the same way. */
#include "client/session.h"

#include <string.h>

struct name session_name(const struct session *session, uint64_t sequence)
{
    return (struct name){
        .worker = session->worker, .incarnation = session->incarnation, .sequence = sequence};
}

/* Over the control connection: once more, or for want of the other way. */
void session_describe_again(struct session *session, const struct session_push *push)
{
    if (push->what.filling)
        return;
    session_tell(session, MESSAGE_DESCRIBE)->describe =
        (struct message_describe){.name = session_name(session, push->sequence),
                                  .slot = push->slot,
                                  .generation = push->generation,
                                  .purpose = push->what.purpose,
                                  .basis = push->what.basis,
                                  .samples = push->what.samples,
                                  .norm = push->what.norm,
                                  .layout_hash = session->options.layout_hash,
                                  .digest = push->what.digest};
}

/* The first time a gradient's words go with its floats, by way of one member, and the receipt comes
 * back that way: the control connection then has nothing to carry. */
void session_describe(struct session *session, struct session_push *push)
{
    if (push->what.filling)
        return; /* its digest is not known yet */
    const uint32_t by = session->worker % session->members_count;
    const struct session_member *member = &session->members[by];
    if (push->tries > 1 || push->what.purpose != PURPOSE_GRADIENT || session->options.parts ||
        member->state != MEMBER_OPEN) {
        session_describe_again(session, push);
        return;
    }
    const struct head_describe head = {.kind = HEAD_DESCRIBE,
                                       .session = member->number,
                                       .epoch = session->epoch,
                                       .slot = push->slot,
                                       .generation = push->generation,
                                       .sequence = push->sequence,
                                       .basis = push->what.basis,
                                       .digest = push->what.digest,
                                       .samples = push->what.samples,
                                       .norm = push->what.norm};
    struct session_action *action = session_act(session, SESSION_HEAD);
    action->member = by;
    memcpy(&action->head, &head, sizeof head);
    push->by = by + 1;
}

/* From the member that the description went by. One that comes from before, of another session
 * there or another coordinator, says nothing. */
void session_push_admitted(struct session *session, const struct session_event *event)
{
    const struct session_member *member = &session->members[event->member];
    struct head_receipt head;
    memcpy(&head, event->head, sizeof head);
    if (member->state != MEMBER_OPEN || head.session != member->number ||
        head.epoch != session->epoch || head.weight != head.weight || head.next_slot >= SLOTS_MAX) {
        session->strange++;
        return;
    }
    const struct message_receipt receipt = {.name = session_name(session, head.sequence),
                                            .verdict = VERDICT_ADMITTED,
                                            .index = head.index,
                                            .version = head.version,
                                            .staleness = head.staleness,
                                            .weight = head.weight,
                                            .whole = head.whole,
                                            .next_sequence =
                                                head.next ? head.sequence + head.next : 0,
                                            .next_slot = head.next_slot,
                                            .next_generation = head.next_generation};
    session_push_receipt(session, &receipt);
}
