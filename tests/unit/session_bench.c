/* See session_bench.h. */
#include "tests/unit/session_bench.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

struct session session;
struct session_actions actions;

void bench_start(void)
{
    actions.items = calloc(SESSION_ACTIONS_MAX, sizeof *actions.items);
    cr_assert(actions.items);
}

void bench_end(void)
{
    free(actions.items);
}

void bench_step(struct session_event event)
{
    session_step(&session, &event, &actions);
}

uint32_t bench_count(enum session_action_kind kind)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < actions.count; i++)
        n += actions.items[i].kind == kind;
    return n;
}

const struct session_action *bench_nth(enum session_action_kind kind, uint32_t n)
{
    for (uint32_t i = 0; i < actions.count; i++)
        if (actions.items[i].kind == kind && n-- == 0)
            return &actions.items[i];
    cr_assert_fail("action %d has not come %u times", (int)kind, n + 1);
    return &actions.items[0];
}

const struct message *bench_said(uint32_t kind)
{
    for (uint32_t i = 0; i < actions.count; i++)
        if (actions.items[i].kind == SESSION_SEND && actions.items[i].message.kind == kind)
            return &actions.items[i].message;
    return NULL;
}

void bench_hear(int64_t now_ns, const struct message *message)
{
    struct message copy = *message;
    if (copy.epoch == 0)
        copy.epoch = session.epoch;
    bench_step((struct session_event){.kind = SESSION_MESSAGE, .now_ns = now_ns, .message = &copy});
}

void bench_init(uint32_t outstanding)
{
    const struct session_options options = {.role = ROLE_WORKER,
                                            .outstanding = outstanding,
                                            .layout_hash = 77,
                                            .elements = ELEMENTS,
                                            .resend_ns = RESEND,
                                            .retry_ns = RETRY};
    session_init(&session, &options);
    bench_step((struct session_event){.kind = SESSION_UP});
}

struct message bench_joined_message(uint64_t incarnation)
{
    struct message message = {.kind = MESSAGE_JOINED, .epoch = 1, .timeline = 1};
    message.joined.worker = 3;
    message.joined.incarnation = incarnation;
    message.joined.chunk_bytes = CHUNK;
    message.joined.members_count = 2;
    message.joined.members[0] = (struct member){.address = "a:1", .count = FIRST_HALF};
    message.joined.members[1] =
        (struct member){.address = "b:2", .first = FIRST_HALF, .count = ELEMENTS - FIRST_HALF};
    return message;
}

void bench_answer(uint32_t member, uint8_t kind, int32_t status, int64_t now_ns)
{
    const struct head_welcome welcome = {
        .kind = kind, .level = 1, .session = 10 + member, .status = status};
    struct head_any head;
    memcpy(&head, &welcome, sizeof head);
    bench_step((struct session_event){
        .kind = SESSION_OFFERED, .member = member, .head = &head, .now_ns = now_ns});
}

void bench_open_member(uint32_t member, int64_t now_ns)
{
    bench_step(
        (struct session_event){.kind = SESSION_CONNECTED, .member = member, .now_ns = now_ns});
    cr_assert_eq(bench_nth(SESSION_HEAD, 0)->head.kind, HEAD_HELLO);
    bench_answer(member, HEAD_WELCOME, 0, now_ns);
}

void bench_come_in(uint32_t outstanding)
{
    bench_init(outstanding);
    const struct message message = bench_joined_message(1);
    bench_hear(0, &message);
    bench_open_member(0, 0);
    bench_open_member(1, 0);
}

void bench_push(uint32_t buffer, uint32_t purpose, int64_t now_ns)
{
    bench_step((struct session_event){
        .kind = SESSION_PUSH,
        .now_ns = now_ns,
        .push = {.buffer = buffer, .purpose = purpose, .samples = 1, .basis = 5, .digest = 99}});
}

void bench_give_place(uint64_t sequence, uint64_t generation, int64_t now_ns)
{
    struct message message = {.kind = MESSAGE_PLACE, .epoch = 1, .timeline = 1};
    message.place = (struct message_place){
        .name = {.worker = 3, .incarnation = session.incarnation, .sequence = sequence},
        .slot = 4,
        .generation = generation};
    bench_hear(now_ns, &message);
}

struct message bench_receipt_message(uint64_t sequence, uint32_t verdict)
{
    struct message message = {.kind = MESSAGE_RECEIPT, .epoch = 1, .timeline = 1};
    message.receipt.name =
        (struct name){.worker = 3, .incarnation = session.incarnation, .sequence = sequence};
    message.receipt.verdict = verdict;
    return message;
}

void bench_judge(uint64_t sequence, uint32_t verdict, int64_t now_ns)
{
    const struct message message = bench_receipt_message(sequence, verdict);
    bench_hear(now_ns, &message);
}

void bench_sent(uint32_t buffer, uint32_t member, gradweir_status status, int64_t now_ns)
{
    bench_step((struct session_event){.kind = SESSION_SENT,
                                      .now_ns = now_ns,
                                      .token = (uint64_t)buffer << 32 | member,
                                      .status = status});
}

void bench_send_rest(uint32_t buffer, int64_t now_ns)
{
    for (uint32_t member = 0; member < 2; member++)
        while (session.pushes[buffer].in_flight[member])
            bench_sent(buffer, member, GRADWEIR_OK, now_ns);
}

struct head_describe bench_described(void)
{
    struct head_describe head = {.kind = 0};
    for (uint32_t i = 0; i < actions.count && head.kind != HEAD_DESCRIBE; i++)
        if (actions.items[i].kind == SESSION_HEAD && actions.items[i].head.kind == HEAD_DESCRIBE) {
            cr_assert_eq(actions.items[i].member, 1);
            memcpy(&head, &actions.items[i].head, sizeof head);
        }
    cr_assert_eq(head.kind, HEAD_DESCRIBE);
    return head;
}
