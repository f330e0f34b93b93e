/* A worker's core on the bench: one session, two members, driven by hand.
 *
 * Member 0 holds FIRST_HALF of ELEMENTS floats, member 1 the rest; each gets 2 chunks of a body.
 * Worker 3; its sessions are number 10 and 11. */
#ifndef GRADWEIR_TESTS_UNIT_SESSION_BENCH_H
#define GRADWEIR_TESTS_UNIT_SESSION_BENCH_H

#include "client/session.h"

enum { ELEMENTS = 1000, FIRST_HALF = 512, CHUNK = 1024, RESEND = 2000, RETRY = 5 };

extern struct session session;
extern struct session_actions actions; /* of the last step */

void bench_start(void);
void bench_end(void);

void bench_step(struct session_event event);

/* How many actions of this kind the last step gave; the n-th of them, which must be there. */
uint32_t bench_count(enum session_action_kind kind);
const struct session_action *bench_nth(enum session_action_kind kind, uint32_t n);

/* What the last step said of this kind to the coordinator, or NULL. */
const struct message *bench_said(uint32_t kind);
void bench_hear(int64_t now_ns, const struct message *message);

/* The last step's description by way of member 1, which is this worker's; it must be there. */
struct head_describe bench_described(void);

/* A worker whose control connection is up. */
void bench_init(uint32_t outstanding);
struct message bench_joined_message(uint64_t incarnation);

/* WELCOME or DENY. */
void bench_answer(uint32_t member, uint8_t kind, int32_t status, int64_t now_ns);
void bench_open_member(uint32_t member, int64_t now_ns);

/* Joined, with sessions at both members. */
void bench_come_in(uint32_t outstanding);
void bench_push(uint32_t buffer, uint32_t purpose, int64_t now_ns);

/* Slot 4 for this sequence. */
void bench_give_place(uint64_t sequence, uint64_t generation, int64_t now_ns);
struct message bench_receipt_message(uint64_t sequence, uint32_t verdict);

/* A receipt for this sequence. */
void bench_judge(uint64_t sequence, uint32_t verdict, int64_t now_ns);

/* The chunk has left, or failed to; all that are in flight have left. */
void bench_sent(uint32_t buffer, uint32_t member, gradweir_status status, int64_t now_ns);
void bench_send_rest(uint32_t buffer, int64_t now_ns);

#endif
