/* Gradweir: push gradients, pull parameters.
 *
 *     gradweir_options options;
 *     gradweir_client *client;
 *     gradweir_options_default(&options);
 *     options.address = "127.0.0.1:7070";
 *     options.identity = "worker-3";
 *     gradweir_open(&options, &client);
 *     gradweir_bind(client, tensors, tensors_count); // what the model is, and where it lies
 *     gradweir_offer(client, 10000);                 // first parameters: the first offer wins
 *     for (;;) {
 *         gradweir_ticket ticket;
 *         gradweir_receipt receipt;
 *         gradweir_pull(client, &ticket);
 *         gradweir_wait(client, ticket, 10000, &receipt); // you have receipt.version now
 *         compute(); // gradients from these parameters, into the bound memory
 *         gradweir_push(client, samples, &ticket);        // and the memory is yours again
 *         gradweir_wait(client, ticket, 10000, &receipt); // receipt.verdict: ADMITTED, STALE, ...
 *     }
 *     gradweir_close(client);
 *
 * What holds:
 *
 *   - A gradient is applied on all servers or on none, exactly once, in one order. Its receipt says
 *     what became of it; it is resent by itself until there is one, over any reconnect.
 *   - A pull gives one version of the whole model, never a mixture.
 *   - Every wait has a deadline. A function that fails returns a negative status, changes nothing
 *     that it does not say, and gradweir_last_error tells who, which tensor, what was expected.
 *   - NULL where something is wanted is ERR_INVALID and names the argument; what returns no status
 *     then returns 0, or does nothing.
 *   - Nothing here ends the process, forks, or installs a signal handler. UCX's, which come with
 * its library, are taken back unless the environment has UCX_ERROR_SIGNALS or the like.
 *
 * Threads: a client belongs to one thread at a time. With GRADWEIR_PROGRESS_CALLER bodies move only
 * inside calls of this library; with GRADWEIR_PROGRESS_THREAD a helper thread moves them meanwhile.
 * A client does not survive fork(): open it in the child.
 *
 * Memory: bound memory stays the caller's, and may be a GPU's (options.memory). `gradient` is read
 * during push and accumulate only, `parameters` is written during wait (of a pull) and read during
 * offer only, and is never left with parts of two versions (gradweir_wait). The library has its own
 * buffers: outstanding x 4 bytes x elements, taken at bind; as much for the first pull of all
 * parameters into bound memory, for the first accumulate, for error feedback, and for a rank whose
 * gradients are not float32. A pull of boxes, or into other memory, needs none: it lands where the
 * caller says (gradweir_pull_with).
 *
 * What happened meanwhile (connections, refusals) is kept as events: gradweir_events.
 *
 * Groups of ranks that act as one worker: gradweir_part. Slices, bfloat16, only what is newer:
 * gradweir/pull.h, which comes with this header. */
#ifndef GRADWEIR_H
#define GRADWEIR_H

#include <gradweir/status.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define GRADWEIR_API __attribute__((visibility("default")))
#else
#define GRADWEIR_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gradweir_client gradweir_client;

/* A claim on a push or pull. Just a number: nothing leaks when it is forgotten. 0 is none. A ticket
 * is traded once by gradweir_wait; the results of the last 64 are kept. */
typedef uint64_t gradweir_ticket;

enum gradweir_progress { GRADWEIR_PROGRESS_CALLER = 0, GRADWEIR_PROGRESS_THREAD = 1 };
enum gradweir_role { GRADWEIR_WORKER = 1, GRADWEIR_READER = 2 };
enum gradweir_kind { GRADWEIR_PARAMETER = 0, GRADWEIR_MOMENTS = 1 };

/* Verdicts on a push. */
enum gradweir_verdict {
    GRADWEIR_NONE = 0,       /* not a push */
    GRADWEIR_ADMITTED = 1,   /* in the log of all servers, once */
    GRADWEIR_STALE = 2,      /* its basis is too old */
    GRADWEIR_FUTURE = 3,     /* its basis does not exist yet */
    GRADWEIR_NOT_FINITE = 4, /* NaN, infinity, or too large; the receipt names the tensor */
    GRADWEIR_MISMATCH = 5,   /* another layout, the bytes were not those that were described, or a
                                description that makes no sense */
    GRADWEIR_CANCELLED = 6,  /* it did not arrive in time, or the worker was replaced */
    GRADWEIR_QUEUE_FULL = 7  /* no room, and the servers are set to refuse rather than wait */
};

/* Gradients travel in the numbers that the servers' gradient_dtype names, and bound memory is float
 * whatever it is. With error feedback what the encoding left out of a gradient is added to the next
 * one, and so is the whole of a gradient that was refused (STALE, QUEUE_FULL, ...): do not push it
 * again yourself. Nothing of a gradient that is not finite is kept, nor of one whose fate is not
 * known. It takes 4 bytes x elements, and does nothing where gradients are float32. */
enum gradweir_feedback {
    GRADWEIR_FEEDBACK_AUTO = 0, /* with int8 */
    GRADWEIR_FEEDBACK_ON = 1,
    GRADWEIR_FEEDBACK_OFF = 2
};

/* Where the caller's arrays lie: bound parameters and gradients, and `to` of pulls. HOST: in this
 * process's memory; CUDA itself is then never touched. CUDA: in the memory of GPU `gpu` (managed
 * memory too), all of them; bind names the first that does not. AUTO: each pointer is asked, and
 * where there is no GPU all are host memory. First and last byte of each array are looked at in
 * bind: what the processor cannot read and is not the GPU's is ERR_INVALID, whatever is said here.
 *
 * What the GPU does to these arrays is the caller's to end first: no work of its may still write
 * gradients at push or accumulate, or parameters at offer, or touch parameters during the wait for
 * a pull. When push and wait return, so has our work on the GPU. */
enum gradweir_memory {
    GRADWEIR_MEMORY_HOST = 0,
    GRADWEIR_MEMORY_CUDA = 1,
    GRADWEIR_MEMORY_AUTO = 2
};

/* How floats get from GPU memory to the network and back. STAGING: through a ring of pinned memory
 * of the host, `staging_bytes` in all, copied in pieces while the piece before is encoded and sent.
 * DIRECT: a push is encoded, measured and summed on the GPU into a send buffer in its memory
 * (`outstanding` of them, 8 MiB, and 4 bytes x elements with error feedback), which the network
 * takes as it is; the processor touches none of it. That wants a UCX that knows CUDA memory,
 * gradients of all parameters in GPU memory, and no ranks: else bind fails with ERR_UNSUPPORTED (or
 * ERR_NO_MEMORY, of the GPU's) and says what is missing. First parameters, accumulated gradients
 * and pulls go by the ring all the same. AUTO: direct where it can be had, else staging, and why.
 * Which of them it is: gradweir_describe, gradweir_status_json ("this_client"), the operator's page
 * (workers[].report), a line of the log. */
enum gradweir_memory_path {
    GRADWEIR_MEMORY_PATH_AUTO = 0,
    GRADWEIR_MEMORY_PATH_STAGING = 1,
    GRADWEIR_MEMORY_PATH_DIRECT = 2
};

typedef struct gradweir_options {
    size_t size;         /* sizeof this struct: set by gradweir_options_default */
    const char *address; /* the coordinator's "host:port" */
    const char
        *identity; /* this worker's name, up to 63 bytes; two with one name fence each other */
    uint32_t role; /* enum gradweir_role: a reader only pulls */
    const char *public_key; /* CURVE keys, 40 characters, for who has them in memory; NULL: none */
    const char *secret_key;
    const char *server_key;
    uint32_t insecure; /* 1: no keys although the address is not loopback */
    uint32_t
        connect_timeout_ms; /* how long open and bind wait for a server that is not there: 10000 */
    uint32_t outstanding;   /* pushes at a time that have no verdict yet, 1..8: 1 */
    const char *transport;  /* how floats travel: "auto", "posix", "tcp", "rc" */
    const char *devices;    /* network devices for them, "" = by address */
    uint32_t progress;      /* enum gradweir_progress */
    const char *keys;       /* folder or file with IDENTITY's secret key and the server's public one
                               (gradweir-server keygen); "": none. Without identity: the only secret
                               that is there, and its name. Identity NAME/anything goes by the key of
                               NAME: several processes of one owner, who do not fence each other;
                               /anything: of the only secret's */
    const char *group;      /* ranks > 1: text that all ranks of this start share and no other start
                               does, e.g. job id and attempt; with it they are one worker */
    uint32_t rank, ranks;   /* this process is rank 0 .. ranks - 1 of so many (at most 16): 0, 1 */
    uint32_t feedback;      /* enum gradweir_feedback */
    uint32_t memory;        /* enum gradweir_memory: host */
    uint32_t memory_path;   /* enum gradweir_memory_path: auto */
    uint32_t gpu;           /* which GPU, as CUDA counts them: 0 */
    uint64_t staging_bytes; /* 0: 16 MiB; else 1.5 MiB to 1 GiB, in steps of 768 KiB */
} gradweir_options;

/* How the optimizer treats the tensors of a group; negative numbers mean: as the servers' settings.
 */
typedef struct gradweir_group {
    double learning_rate_scale; /* >= 0 */
    double weight_decay, beta1, beta2;
    uint32_t frozen; /* 1: never stepped */
} gradweir_group;

/* A tensor of the model. All workers bind the same tensors in the same order. */
typedef struct gradweir_tensor {
    const char *name;     /* 1..63 bytes, unique */
    uint32_t dimensions;  /* 0..8; 0 is a scalar */
    uint64_t shape[8];    /* elements per dimension, row-major, no gaps */
    uint32_t kind;        /* enum gradweir_kind */
    uint32_t group;       /* 0, or as gradweir_group_add told */
    void *parameters;     /* written by pull, read by offer. PARAMETER: float[elements];
                             MOMENTS: struct { double count, mean, m2; }[elements], all workers' */
    const void *gradient; /* read by push and accumulate, which refuse NULL unless the group is
                             frozen. PARAMETER: float[elements];
                             MOMENTS: what came since the last push, in the same form */
} gradweir_tensor;

typedef struct gradweir_receipt {
    gradweir_status status; /* OK, or why there is no verdict and no parameters */
    uint32_t verdict;       /* enum gradweir_verdict */
    uint64_t version;       /* push: newest at its admission; pull: what you have now */
    uint64_t sequence;      /* push: its number, 1, 2, 3, ... */
    uint64_t index;         /* of its record in the log */
    uint64_t staleness;     /* versions between its basis and its admission */
    float weight;           /* samples^alpha x decay x clip, before the average divides */
    uint32_t moved;         /* pull: 1; 0: nothing is newer than what was named, nothing moved */
    uint64_t element;       /* NOT_FINITE: first such element of the model */
    char tensor[64];        /* NOT_FINITE: the tensor's name, "" when merely too large; else "" */
    uint64_t durable; /* push: newest index of the log that a whole checkpoint covers; 0: none */
} gradweir_receipt;

/* A number for the operator's page: a return, a KL divergence, a loss. */
typedef struct gradweir_number {
    const char *name; /* 1..31 printable characters */
    double value;
} gradweir_number;

enum { GRADWEIR_NUMBERS_MAX = 8 };

/* What happened to a client. */
enum gradweir_event_kind {
    GRADWEIR_EVENT_CONNECTED = 1,       /* the coordinator is there */
    GRADWEIR_EVENT_LOST = 2,            /* and gone; attempts go on by themselves */
    GRADWEIR_EVENT_JOINED = 3,          /* the job has taken us in, or again */
    GRADWEIR_EVENT_SHARD_CONNECTED = 4, /* text: by which transport and device */
    GRADWEIR_EVENT_SHARD_LOST = 5,      /* attempts go on by themselves */
    GRADWEIR_EVENT_PUSH_REFUSED = 6,    /* a verdict other than ADMITTED */
    GRADWEIR_EVENT_REFUSED = 7,         /* the coordinator does not let us in; status: why */
    GRADWEIR_EVENT_FENCED = 8,          /* another process has our identity: for good */
    GRADWEIR_EVENT_STOPPED = 9          /* the job has ended in order */
};

typedef struct gradweir_event {
    uint64_t number;        /* 1, 2, 3, ... of this client: a gap is what was dropped */
    int64_t time_ns;        /* since 1970 */
    uint32_t kind;          /* enum gradweir_event_kind; newer libraries may have others */
    gradweir_status status; /* OK, or why */
    char text[160];         /* one sentence, for people */
} gradweir_event;

/* Defaults: 127.0.0.1:7070, identity "" (the servers choose one), a worker, auto, caller, no keys.
 * Whoever was compiled against an older, shorter struct gets that much of it, and its size: the
 * function itself fills the first release's. */
GRADWEIR_API void gradweir_options_default(gradweir_options *options);
GRADWEIR_API void gradweir_options_default_sized(gradweir_options *options, size_t size);
#define gradweir_options_default(options)                                                          \
    gradweir_options_default_sized((options), sizeof(gradweir_options))

/* Connects to the coordinator; ERR_UNREACHABLE, naming the address, when nobody answers within
 * connect_timeout_ms, and ERR_REFUSED at once, saying why, when it does not take our key. A worker
 * may be started before its server. Strings are copied. */
GRADWEIR_API gradweir_status gradweir_open(const gradweir_options *options,
                                           gradweir_client **client);

/* Leaves in order (at most 2 s) and frees everything. NULL is accepted. */
GRADWEIR_API void gradweir_close(gradweir_client *client);

/* Adds a parameter group before bind; *number is what tensors name. ERR_INVALID for numbers that
 * are none, or out of range. */
GRADWEIR_API gradweir_status gradweir_group_add(gradweir_client *client,
                                                const gradweir_group *group, uint32_t *number);

/* Groups: options.ranks processes act as one worker, each pushes its part of every gradient. Before
 * bind: of tensors[tensor] of bind's array this rank holds `count` indexes of `axis` from `first`
 * on, and everything of the other axes; its `gradient` is then an array of that part alone, row
 * by row. count 0: it holds nothing of this tensor. A tensor about which nothing is said: all of
 * it. MOMENTS are rank 0's, whole. Parameters stay whole: every rank pulls the whole model.
 *
 * The parts of all ranks must tile the model exactly once: bind fails on all ranks with
 * ERR_MISMATCH and names tensors, indexes and ranks of each gap and overlap. All ranks call push
 * (and offer) the same number of times, in any order and at any time, with equal samples and basis;
 * all hear one receipt. Another basis: MISMATCH. A rank that is gone ends the group: its unfinished
 * gradient is CANCELLED, bind or wait of the others fail with ERR_LOST. */
GRADWEIR_API gradweir_status gradweir_part(gradweir_client *client, size_t tensor, uint32_t axis,
                                           uint64_t first, uint64_t count);

/* Says what the model is and joins the job. The tensors' memory stays the caller's and must live
 * until close; the array itself is copied. ERR_MISMATCH names the first tensor that differs from
 * the servers', with both shapes; ERR_NO_MEMORY at once for more than this machine has. A reader
 * may bind nothing (count 0) and take the servers' model: gradweir_elements then tells its size.
 * Once per client. */
GRADWEIR_API gradweir_status gradweir_bind(gradweir_client *client, const gradweir_tensor *tensors,
                                           size_t count);

/* Offers the bound parameters as the first ones, and waits until the job has first parameters,
 * whoever's they are (at most timeout_ms). Tensors that lie end to end in memory, in their order
 * and without MOMENTS, are sent from there, not copied: after ERR_TIMEOUT the offer is still under
 * way and reads them, so they must not change before another one is answered, or close. */
GRADWEIR_API gradweir_status gradweir_offer(gradweir_client *client, uint32_t timeout_ms);

/* Sends the bound gradient, the mean over `samples` samples, computed from the parameters of the
 * last pull. Reads bound memory only during the call. Waits for a place (back-pressure) up to
 * push's own patience of 60 s. ERR_STATE before the first pull. After accumulate calls it sends
 * what they gathered, and `samples` must be 0. */
GRADWEIR_API gradweir_status gradweir_push(gradweir_client *client, uint64_t samples,
                                           gradweir_ticket *ticket);

/* As push, when the gradient was computed from an older version than the last pull's: `basis`,
 * which this client has pulled once. Saying it makes staleness true; ERR_INVALID for a newer one.
 */
GRADWEIR_API gradweir_status gradweir_push_from(gradweir_client *client, uint64_t samples,
                                                uint64_t basis, gradweir_ticket *ticket);

/* Adds the bound gradient, the mean over `samples` samples, to a local sum (no_sync): four
 * accumulates and a push are one push of the whole batch, within rounding. The basis of the sum is
 * the oldest version that went into it. ERR_STATE before the first pull. */
GRADWEIR_API gradweir_status gradweir_accumulate(gradweir_client *client, uint64_t samples);

/* Asks for the newest version. The bound parameter memory is written inside gradweir_wait, so
 * gradients may be computed and pushed meanwhile. While one is under way, the same ticket is given
 * again; a pull that nobody has waited for gives way to the next one. */
GRADWEIR_API gradweir_status gradweir_pull(gradweir_client *client, gradweir_ticket *ticket);

/* Waits for a ticket. OK: *receipt is filled, also when the verdict is a refusal. ERR_TIMEOUT: it
 * is still under way (last_error names what it waits for) and may be waited for again. receipt may
 * be NULL.
 *
 * Of a pull into bound memory: that is written while parameters arrive, and undefined until wait
 * returns. OK: it holds the version of the receipt, whole. Anything else: it holds the version of
 * the pull before, whole; what the caller has written there since that one may be gone. Before the
 * first pull, and of a wait of less than 1000 ms, it is as it was to the bit. */
GRADWEIR_API gradweir_status gradweir_wait(gradweir_client *client, gradweir_ticket ticket,
                                           uint32_t timeout_ms, gradweir_receipt *receipt);

/* push, and a pull that rides with it: the servers answer it when the verdict is known and, where
 * that makes a step due, when the step is whole. So a loop waits once for both: for `pulled`, then
 * for `pushed` (or NULL), which is there by then or very soon. ERR_STATE while a pull is under
 * way. */
GRADWEIR_API gradweir_status gradweir_push_pull(gradweir_client *client, uint64_t samples,
                                                gradweir_ticket *pushed, gradweir_ticket *pulled);

/* push, its verdict, and the newest parameters, in one call. */
GRADWEIR_API gradweir_status gradweir_exchange(gradweir_client *client, uint64_t samples,
                                               uint32_t timeout_ms, gradweir_receipt *receipt);

/* Moves what can be moved without waiting: for loops that call nothing else for long. */
GRADWEIR_API gradweir_status gradweir_progress(gradweir_client *client);

/* The version of the bound parameters (the last pull into them); the newest that is known. */
GRADWEIR_API uint64_t gradweir_version(const gradweir_client *client);
GRADWEIR_API uint64_t gradweir_newest(const gradweir_client *client);

/* Elements of the model's parameters; after bind. */
GRADWEIR_API uint64_t gradweir_elements(const gradweir_client *client);

/* Copies the last pulled parameters, all tensors in order, into `parameters` (elements floats). */
GRADWEIR_API gradweir_status gradweir_parameters(const gradweir_client *client, float *parameters,
                                                 uint64_t elements);

/* Digest of the last pulled parameters; equal for equal bits, whatever the number of shards. */
GRADWEIR_API uint64_t gradweir_digest(const gradweir_client *client);

/* Changes a live setting of the job, for everybody, at one place of the order. Nothing is asked
 * for without a connection, or by a client that has failed; after ERR_TIMEOUT with one it may yet
 * come. */
GRADWEIR_API gradweir_status gradweir_tune(gradweir_client *client, const char *setting,
                                           const char *value, uint32_t timeout_ms);

/* Asks the servers for a checkpoint. This version has none: ERR_UNSUPPORTED. */
GRADWEIR_API gradweir_status gradweir_save(gradweir_client *client);

/* The job's status as one JSON object, terminated, cut at size. */
GRADWEIR_API gradweir_status gradweir_status_json(gradweir_client *client, uint32_t timeout_ms,
                                                  char *text, size_t size);

/* Puts numbers on the operator's page (status: workers[].report), beside this worker's name; each
 * replaces the last of its name. ERR_FULL beyond GRADWEIR_NUMBERS_MAX names, ERR_INVALID for a bad
 * one; then nothing is changed. Sent at once, and again after a reconnect; nobody answers. Where
 * arrays may lie in a GPU's memory one of them is the library's own: memory_staging or
 * memory_direct. */
GRADWEIR_API gradweir_status gradweir_report(gradweir_client *client,
                                             const gradweir_number *numbers, size_t count);

/* Takes the oldest events, up to `max`, without waiting; their number. The newest 64 are kept;
 * *dropped (or NULL) is how many were lost to that since open. Moves what can be moved first, as
 * gradweir_progress. */
GRADWEIR_API size_t gradweir_events(gradweir_client *client, gradweir_event *events, size_t max,
                                    uint64_t *dropped);

/* A descriptor that is readable while events wait, for select, poll or an event loop; the client's
 * own, until close. With GRADWEIR_PROGRESS_CALLER events arise within calls only. -1: none to be
 * had. */
GRADWEIR_API int gradweir_events_fd(gradweir_client *client);

GRADWEIR_API const char *gradweir_event_text(uint32_t kind);

/* Diagnostic lines go to sink, NULL: nowhere; level 0 error, 1 warning, 2 information. Until then
 * warnings go to stderr. Called from whichever thread is inside the library; it must not call back
 * into the client. */
typedef void (*gradweir_log_sink)(void *context, int level, const char *line);
GRADWEIR_API void gradweir_log_to(gradweir_client *client, gradweir_log_sink sink, void *context);

GRADWEIR_API const char *gradweir_status_text(gradweir_status status);
GRADWEIR_API const char *gradweir_verdict_text(uint32_t verdict);

/* Why this thread's last failing call failed; valid until its next one. */
GRADWEIR_API const char *gradweir_last_error(void);

/* Which transport and device each server's floats travel by, for people. */
GRADWEIR_API void gradweir_describe(gradweir_client *client, char *text, size_t size);

GRADWEIR_API const char *gradweir_library_version(void);

#ifdef __cplusplus
}
#endif

#include <gradweir/pull.h>

#endif
