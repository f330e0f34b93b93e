/* The seam that ties the ranks of a group together: sums, parts and wholes of float32 arrays, with
 * a deadline on everything.
 *
 * A group is a few processes (ranks 0 to ranks - 1) that call the same things in the same order.
 * There is no store beside it: how ranks find one another is a callback, exchange, by which each
 * gives some bytes and gets everybody's; the control plane carries it in a client, shared memory in
 * the tests.
 *
 *      join -> reduce, reduce_scatter, all_gather, broadcast ... -> leave
 *                 | ERR_TIMEOUT, ERR_LOST: the connections are cut, so that every rank returns;
 *                 | a roll-call says who is still there, and the reason names who is not
 *                 v
 *              broken -> shrink: the group of those who are there, renumbered -> on it goes
 *
 * Names stay: "rank 3" in every sentence is the number that a rank joined with. Who was left out
 * (it was late at a roll-call, or stopped) is told so with ERR_LOST; it leaves, and joins again
 * when the others leave their group and join the next generation with it.
 *
 * What has been half done by a call that failed is not undone: outputs are undefined then, inputs
 * are as they were. Ranks may differ in whether the last call was done: collective_tell says by how
 * much.
 *
 * Bits: reduce and reduce_scatter add rank by rank, ((x0 + x1) + x2) + ..., whatever arrives first
 * and however the array is cut: on gloo the result is that of the plain loop, on all ranks. Other
 * backends (nccl) give all ranks the same bits, and the same again for the same ranks, in an order
 * of their own.
 *
 * One group belongs to one thread (gloo has one more of its own for each). Backends: "gloo"
 * (collective_gloo.cpp; CPU ranks, TCP), "nccl" (gpu/). Neither authenticates anybody: what listens
 * is bound to one address, loopback by default. */
#ifndef GRADWEIR_COMMON_COLLECTIVE_H
#define GRADWEIR_COMMON_COLLECTIVE_H

#include "common/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define COLLECTIVE_RANKS_MAX 64
#define COLLECTIVE_NAME_SIZE 128

/* One round of exchange. Whoever keeps the round closes it: when all that are asked have come, or
 * at the deadline of the first who came, whichever is earlier; it may close as soon as it knows
 * that the missing ones are dead. All who came get the same answer. Who comes after is refused. */
struct collective_round {
    uint64_t number;  /* the same at all ranks; each number is used once */
    const void *mine; /* what this rank gives: the same length at all */
    size_t bytes;
    void *all;  /* place for ranks x bytes; written in the order of ranks, for those who came */
    bool *here; /* one for each rank of the join: in, who is asked; out, who came */
    uint64_t deadline_ns; /* monotonic */
};

/* OK: the round is closed, here says who came, also when not all did. ERR_LOST: it was closed
 * without this rank. ERR_INVALID: this rank's place is taken (a duplicate), or there is none. Any
 * other: the word did not get through, and the same round may be asked for again. */
typedef gradweir_status (*collective_exchange)(void *context, struct collective_round *round);

struct collective_options {
    const char *backend; /* "gloo" or "nccl" */
    uint32_t rank, ranks;
    const char *address;  /* what the backend listens on: an address or host name of this machine */
    uint64_t timeout_ns;  /* of each call, roll-call included; and of join and shrink */
    uint64_t patience_ns; /* of a roll-call: from 1 ms to half of timeout_ns */
    uint32_t generation;  /* the same at all ranks, another for each join of the same exchange */
    collective_exchange exchange;
    void *exchange_context; /* borrowed until leave */
    /* How sentences call the ranks: by rank of the join, of so many. 0: as they join. */
    uint32_t called[COLLECTIVE_RANKS_MAX], called_of;
};

struct collective_info {
    uint32_t rank, ranks;                 /* now */
    uint32_t names[COLLECTIVE_RANKS_MAX]; /* by rank: what it joined with */
    uint64_t step_least, step_most;       /* the last steps done, as of the last roll-call */
    bool broken;                          /* only shrink and leave are left */
    bool left_out;                        /* and shrink neither: the others have gone on */
};

struct collective;

/* gloo, 1 rank, loopback, 60 s and 5 s. Rank, ranks and exchange are the caller's. */
struct collective_options collective_defaults(void);

/* ERR_UNSUPPORTED: this build has no such backend. ERR_INVALID: options. ERR_MISMATCH: ranks do not
 * agree on how many they are, or two say the same rank. ERR_TIMEOUT: some never came; the reason
 * names them. */
gradweir_status collective_join(const struct collective_options *options,
                                struct collective **group);

/* Never waits for others. NULL is accepted. */
void collective_leave(struct collective *group);

void collective_tell(const struct collective *group, struct collective_info *info);

/* The calls. Arrays lie in host memory on gloo, in the memory of the rank's GPU on nccl. step is
 * the caller's own count, for the sentences. ERR_MISMATCH: ranks have called different things or
 * lengths; nothing was moved and the group is whole. ERR_TIMEOUT, ERR_LOST: the group is broken.
 * ERR_STATE: it was broken before. Any other: it is broken, and the roll-call did not get through.
 * A call with 0 elements is a barrier, and a call is done when all ranks have everything that it
 * gives them. */

/* to = the sum over ranks, n floats at every rank. to may be from. */
gradweir_status collective_reduce(struct collective *group, uint64_t step, const float *from,
                                  float *to, size_t n);

/* from: all parts one after another, counts[r] floats for rank r (the same counts at all). to: the
 * sum of this rank's part; apart from `from`, or this rank's part of it. */
gradweir_status collective_reduce_scatter(struct collective *group, uint64_t step,
                                          const float *from, float *to, const size_t *counts);

/* from: counts[rank] floats; to: all parts one after another. from may be its own part of to. */
gradweir_status collective_all_gather(struct collective *group, uint64_t step, const float *from,
                                      float *to, const size_t *counts);

gradweir_status collective_broadcast(struct collective *group, uint64_t step, float *data, size_t n,
                                     uint32_t root);

/* Cuts the connections: whoever waits for this rank returns. The group is broken afterwards, and
 * without a roll-call there is nobody to shrink to but whom a next call finds. */
void collective_abort(struct collective *group);

/* What ranks do between two calls has failed here with why, and fail_reason says what: as if a call
 * had failed. The group is broken, whoever calls returns, and a roll-call names who is missing.
 * Gives why, or what is worse. */
gradweir_status collective_failed(struct collective *group, const char *what, uint64_t step,
                                  gradweir_status why);

/* A broken group goes on with those whom the last roll-call found, in the order of their ranks.
 * When it fails the group stays broken; shrink may be tried again after another roll-call, which it
 * holds itself. */
gradweir_status collective_shrink(struct collective *group);

/* ---- What a backend is. Everything above is built on this, once for all of them. ---- */

struct collective_name {
    unsigned char bytes[COLLECTIVE_NAME_SIZE];
};

/* Of each member, by rank: when it was last heard of and in which step. */
struct collective_seen {
    uint64_t step, at_ns;
};

/* What a link is made of; all of it borrowed for the call only, but `seen`. */
struct collective_members {
    struct collective_name name; /* made by name_group of one rank, the same at all */
    uint32_t rank, ranks;
    const char *address;
    uint64_t deadline_ns;
    struct collective_seen *seen; /* written by the backend during calls; outlives the link */
    /* A round among exactly these members: each gives `bytes`, all gets ranks x bytes. Fails when
     * one does not come. */
    gradweir_status (*swap)(void *context, const void *mine, size_t bytes, void *all,
                            uint64_t deadline_ns);
    void *swap_context;
};

struct collective_call {
    uint64_t step;
    uint64_t deadline_ns;
    const size_t *counts; /* reduce_scatter, all_gather: by rank. Else NULL */
    size_t n;             /* reduce, broadcast */
    uint32_t root;        /* broadcast */
    const float *from;
    float *to;
};

struct collective_link; /* the backend's own */

/* All members are there in every backend. A call returns at its deadline at the latest: OK;
 * ERR_MISMATCH with nothing moved; ERR_TIMEOUT or ERR_LOST, the reason names the rank that was
 * waited for, and the link is only good for leave; memory of the call is not touched after it has
 * returned, whatever it returned. */
struct collective_functions {
    const char *name;

    /* A name that no other group has. */
    gradweir_status (*name_group)(struct collective_name *name);

    gradweir_status (*join)(const struct collective_members *members,
                            struct collective_link **link);

    /* Peers that still work on the last call get what they need for it. NULL is accepted. */
    void (*leave)(struct collective_link *link);

    gradweir_status (*reduce)(struct collective_link *link, const struct collective_call *call);
    gradweir_status (*reduce_scatter)(struct collective_link *link,
                                      const struct collective_call *call);
    gradweir_status (*all_gather)(struct collective_link *link, const struct collective_call *call);
    gradweir_status (*broadcast)(struct collective_link *link, const struct collective_call *call);

    /* Peers that wait for this rank return at once, with ERR_LOST. */
    void (*abort)(struct collective_link *link);

    /* A new link of those members of `old` that are left (kept[r]: member r of old is); members
     * tells the new numbers. old is borrowed, aborted, and left by the caller afterwards. */
    gradweir_status (*shrink)(struct collective_link *old, const bool *kept,
                              const struct collective_members *members,
                              struct collective_link **link);
};

/* The backends, for the table in collective.c. */
extern const struct collective_functions collective_gloo, collective_nccl;

/* The backend called name, or NULL when this build has none of that name. */
const struct collective_functions *collective_find(const char *name);

/* The i-th backend of this build, NULL past the last. */
const struct collective_functions *collective_at(size_t i);

#endif
