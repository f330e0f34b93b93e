/* Groups: several processes (ranks) that are one worker, each with its share of the work.
 *
 *     gradweir_options client;                  // as of any worker; the same at all ranks but rank
 *     gradweir_options_default(&client);
 *     client.address = "10.0.0.1:7070";
 *     client.identity = "group-0";              // one name for all ranks: they are one worker
 *     client.rank = 2;
 *     client.ranks = 4;
 *     gradweir_group_options options;
 *     gradweir_group_options_default(&options);
 *     options.client = &client;
 *     gradweir_ranks *group;
 *     gradweir_group_join(&options, &group);        // all four meet at the coordinator
 *     gradweir_group_bind(group, tensors, count);   // whole tensors, as for gradweir_bind
 *     gradweir_group_offer(group, 10000);
 *     for (;;) {
 *         gradweir_receipt receipt;
 *         gradweir_status status = gradweir_group_pull(group, &receipt);
 *         if (status == GRADWEIR_OK) {
 *             compute(); // a gradient of this rank's own samples
 *             status = gradweir_group_push(group, samples, &receipt);
 *         }
 *         if (status == GRADWEIR_ERR_TIMEOUT || status == GRADWEIR_ERR_LOST)
 *             status = gradweir_group_renew(group); // last_error has named who is missing
 *         if (status != GRADWEIR_OK)
 *             break;
 *     }
 *     gradweir_group_leave(group);
 *
 * Nothing but the coordinator's address (and keys) is needed: ranks find one another through it.
 *
 * What holds:
 *
 *   - push: the gradient of the group is the mean over the samples of all ranks, Σ samples x
 *     gradient / Σ samples, added in the order of ranks. Each rank sends its part of it to the
 *     servers; it is admitted once, as a whole, or not at all, and all ranks get the same receipt.
 *     On gloo it has the bits of one worker that accumulates (gradweir_accumulate) what each rank
 *     had, in the order of ranks; within rounding it is that of one worker with all samples.
 *   - pull: each rank fetches its part of one version, and gets the others' parts from the others:
 *     all have the same bits of the same version.
 *   - All ranks call the same functions in the same order. Who calls another one, or with other
 *     lengths, gets ERR_MISMATCH like everybody else, in the same call, and nothing is moved. The
 *     group stays whole, and all call again what was meant. After a pull that failed bound memory
 *     may have parts of two versions: pull before the next push.
 *   - Every call returns within timeout_ms. When a rank is late or gone all others get ERR_TIMEOUT
 *     or ERR_LOST, gradweir_last_error says e.g. "rank 3 of 8: step 1,204, 61.0 s behind", and the
 *     group is broken: gradweir_group_renew goes on with those who are there. A rank that was left
 *     out (it was stopped, or started anew under its old rank) comes back by renew or join: the
 *     others take it in at their next pull.
 *   - "rank 3 of 8" is always the number of options.client; after the group has shrunk
 *     gradweir_group_tell says which place that is now.
 *
 * One group belongs to one thread, and does not survive fork(). Build: this header is part of the
 * library where it was built with gloo or nccl; without, join says ERR_UNSUPPORTED. */
#ifndef GRADWEIR_GROUP_H
#define GRADWEIR_GROUP_H

#include <gradweir/gradweir.h>

#ifdef __cplusplus
extern "C" {
#endif

/* One rank's hold on its group. */
typedef struct gradweir_ranks gradweir_ranks;

enum { GRADWEIR_RANKS_MAX = 16 };

/* Whose samples a rank's gradient is of. */
enum gradweir_samples {
    GRADWEIR_SAMPLES_OWN = 0,   /* each rank has its own: gradients are averaged (data parallel) */
    GRADWEIR_SAMPLES_SHARED = 1 /* all ranks work on the same ones (tensor or pipeline parallel):
                                   gradients of whole tensors are the same at all ranks already,
                                   nothing is summed, and `samples` is equal at all */
};

typedef struct gradweir_group_options {
    size_t size;                    /* sizeof this struct: set by gradweir_group_options_default */
    const gradweir_options *client; /* identity, rank and ranks must be said. `group` may name this
                                       start of the job, where two might meet; copied */
    const char *backend;            /* "gloo": CPU memory, TCP. "nccl": GPUs. Default gloo */
    const char *listen;   /* address or host name of this machine that the other ranks can reach:
                             127.0.0.1. Nothing that listens there authenticates anybody */
    uint32_t timeout_ms;  /* of each call, join and renew: 60000 */
    uint32_t patience_ms; /* of that, to find out who is still there after a failure, 1 ms to half
                             of timeout_ms: 5000. Longer than a rank computes between two calls, or
                             it is left out, and comes back by renew */
    uint32_t samples;     /* enum gradweir_samples */
    uint32_t fixed;       /* 1: nobody is taken in by a pull; who is left out stays so. Implied by
                             gradweir_group_part */
} gradweir_group_options;

typedef struct gradweir_group_info {
    size_t size;                        /* sizeof this struct: set by the caller */
    uint32_t rank, ranks;               /* place in the group as it is now */
    uint32_t names[GRADWEIR_RANKS_MAX]; /* by place: the rank of options.client there */
    uint64_t meeting;  /* which meeting of the group this is, by chance: another one after renew */
    uint32_t shrunk;   /* how often it has shrunk since */
    uint32_t broken;   /* 1: only renew and leave are left */
    uint32_t left_out; /* 1: the others have gone on without this rank */
    uint32_t waiting;  /* a bit for each rank that wants to come in at the next pull */
    uint64_t step;     /* pushes of the group so far, at this rank */
    uint64_t step_least, step_most; /* last steps done by the ranks, as of the last failure */
    uint64_t version;               /* of the last pull */
} gradweir_group_info;

GRADWEIR_API void gradweir_group_options_default_sized(gradweir_group_options *options,
                                                       size_t size);
#define gradweir_group_options_default(options)                                                    \
    gradweir_group_options_default_sized((options), sizeof(gradweir_group_options))

/* Meets the other ranks. ERR_TIMEOUT names those that never came; ERR_MISMATCH: they do not agree
 * how many they are, on the backend, or two are the same rank; ERR_INVALID: this rank's place is
 * taken by another process; ERR_UNSUPPORTED: no such backend here; and what gradweir_open says.
 * Where the group is running already and lacks this rank, it comes in at the next pull of the
 * others. */
GRADWEIR_API gradweir_status gradweir_group_join(const gradweir_group_options *options,
                                                 gradweir_ranks **group);

/* Waits for nobody: those that still call something hear ERR_LOST. NULL is accepted. */
GRADWEIR_API void gradweir_group_leave(gradweir_ranks *group);

/* ---- One worker. ---- */

/* Before bind: of tensors[tensor] this rank holds `count` indexes of `axis` from `first` on, and
 * nothing else: `parameters` and `gradient` are arrays of that part alone, row by row. What it
 * computes is pushed as it is, without a sum. The parts of all ranks must tile the tensor. Such a
 * group cannot shrink (renew: ERR_UNSUPPORTED), for nobody else has that part: leave, and join
 * anew. count 0: nothing of it. Tensors about which nothing is said are whole at all ranks. */
GRADWEIR_API gradweir_status gradweir_group_part(gradweir_ranks *group, size_t tensor,
                                                 uint32_t axis, uint64_t first, uint64_t count);

/* As gradweir_group_add: how the optimizer treats some of the tensors. Before bind. */
GRADWEIR_API gradweir_status gradweir_group_parameters(gradweir_ranks *group,
                                                       const gradweir_group *parameters,
                                                       uint32_t *number);

/* As gradweir_bind, once. Tensors and their memory stay the caller's and must live until leave.
 * Takes 8 bytes an element, 4 when the parameters of the whole tensors lie end to end in memory,
 * in their order (they are then pulled to their place). MOMENTS are merged over ranks at push.
 * What is wrong with the arguments themselves is told at once, and bind may be tried again; a bind
 * that fails later ends this rank's part in the group: leave, and join anew. */
GRADWEIR_API gradweir_status gradweir_group_bind(gradweir_ranks *group,
                                                 const gradweir_tensor *tensors, size_t count);

/* As gradweir_offer: each rank sends its part of the first parameters. All must offer the same. */
GRADWEIR_API gradweir_status gradweir_group_offer(gradweir_ranks *group, uint32_t timeout_ms);

/* The newest parameters, in bound memory of all ranks. The group may have other ranks afterwards:
 * some have come in (gradweir_group_tell). */
GRADWEIR_API gradweir_status gradweir_group_pull(gradweir_ranks *group, gradweir_receipt *receipt);

/* Adds the bound gradient, the mean over this rank's `samples` samples, to a sum of this rank
 * (no_sync): nothing is said to anybody. */
GRADWEIR_API gradweir_status gradweir_group_accumulate(gradweir_ranks *group, uint64_t samples);

/* The group's gradient to the servers, and what became of it. `samples` is this rank's; 0 after
 * accumulate, or when it has none this time and its gradient does not count. OK with a receipt,
 * also when the verdict is a refusal. */
GRADWEIR_API gradweir_status gradweir_group_push(gradweir_ranks *group, uint64_t samples,
                                                 gradweir_receipt *receipt);

/* After ERR_TIMEOUT, ERR_LOST or ERR_FENCED: the group goes on with those who are there, under new
 * places, with parts cut anew; what was accumulated here is kept. A rank that was left out waits
 * until the others take it in; so do all of a group that lacks some rank and was fenced off by
 * another of its name (slow ranks may have gone on by themselves): when they do not come within
 * timeout_ms, ERR_TIMEOUT names them, each time renew is called again. Who knows that they are gone
 * for good leaves, and joins anew with as many ranks as there are. A group that lacks nobody and
 * was fenced off is out for good: ERR_FENCED. Pull before the next push. What was under way is
 * applied on all servers or on none: only the receipt of a push that failed by ERR_LOST may be
 * unknown. */
GRADWEIR_API gradweir_status gradweir_group_renew(gradweir_ranks *group);

/* What is known here, without a word to anybody. ERR_INVALID for a size that is none. */
GRADWEIR_API gradweir_status gradweir_group_tell(const gradweir_ranks *group,
                                                 gradweir_group_info *info);

/* The connection to the job: numbers for the operator (gradweir_report), events, status. NULL
 * before bind; another one after renew, and after a pull that took somebody in. Not for push,
 * pull, wait. */
GRADWEIR_API gradweir_client *gradweir_group_client(gradweir_ranks *group);

/* ---- Arrays of the caller, between ranks only: activations of a model that is cut, returns,
 * anything. Arrays lie in host memory; with nccl also in the memory of the rank's GPU. NULL where
 * floats are wanted is ERR_INVALID, at this rank alone: the others wait for it. ---- */

/* to = the sum over ranks, n floats, at every rank; the same bits. to may be from. */
GRADWEIR_API gradweir_status gradweir_group_reduce(gradweir_ranks *group, const float *from,
                                                   float *to, size_t n);

/* from: all parts one after another, counts[place] floats for each rank (the same counts at all).
 * to: the sum of this rank's part; apart from `from`, or its own part of it. */
GRADWEIR_API gradweir_status gradweir_group_reduce_scatter(gradweir_ranks *group, const float *from,
                                                           float *to, const size_t *counts);

/* from: this rank's counts[place] floats; to: all parts one after another. from may be its own part
 * of to. */
GRADWEIR_API gradweir_status gradweir_group_all_gather(gradweir_ranks *group, const float *from,
                                                       float *to, const size_t *counts);

/* data of place `root` to all. */
GRADWEIR_API gradweir_status gradweir_group_broadcast(gradweir_ranks *group, float *data, size_t n,
                                                      uint32_t root);

/* Returns when all have called it. */
GRADWEIR_API gradweir_status gradweir_group_barrier(gradweir_ranks *group);

#ifdef __cplusplus
}
#endif

#endif
