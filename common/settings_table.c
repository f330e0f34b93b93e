/* The settings of gradweir-server, one row each: name, type, live, default, bounds, word, choices,
 * help. Choices stand in the order of the enums that read them (law.h, arithmetic.h). */
#include "common/codec.h"
#include "common/settings.h"

#include <float.h>

#define SECOND 1e9
#define GIB    0x1p30

#define FLAG(name, live, by_default, help)                                                         \
    {                                                                                              \
        name, SETTING_BOOL, live, by_default, 0, 1, NULL, NULL, help                               \
    }
#define WHOLE(name, live, by_default, low, high, word, help)                                       \
    {                                                                                              \
        name, SETTING_INT, live, by_default, low, high, word, NULL, help                           \
    }
#define REAL(name, live, by_default, low, high, help)                                              \
    {                                                                                              \
        name, SETTING_FLOAT, live, by_default, low, high, NULL, NULL, help                         \
    }
#define WAIT(name, live, by_default, low, high, word, help)                                        \
    {                                                                                              \
        name, SETTING_DURATION, live, by_default, low, high, word, NULL, help                      \
    }
#define BYTES(name, by_default, low, high, word, help)                                             \
    {                                                                                              \
        name, SETTING_SIZE, false, by_default, low, high, word, NULL, help                         \
    }
#define ONE_OF(name, live, by_default, choices, help)                                              \
    {                                                                                              \
        name, SETTING_CHOICE, live, by_default, 0, 0, NULL, choices, help                          \
    }
#define WORDS(name, by_default, help)                                                              \
    {                                                                                              \
        name, SETTING_TEXT, false, by_default, 0, 0, NULL, NULL, help                              \
    }

const struct setting settings_server[] = {
    WORDS("config", "", "file of settings, read before the command line"),

    /* Who this process is and where it listens. */
    WORDS("job", "gradweir", "name of the run; all its processes must agree"),
    WHOLE("shards", false, "1", 1, 64, NULL, "servers the model is spread over"),
    WHOLE("shard", false, "all", 0, 63, "all", "host only this shard; needs coordinator"),
    FLAG("shards_elsewhere", false, "off", "host the coordinator only; shards are other processes"),
    ONE_OF("threads", false, "auto", "auto|one|each",
           "coordinator and shards of a process: one thread, or one each; auto: by cores"),
    WHOLE("workers_max", false, "64", 1, 1024, NULL, "workers that may take part at once"),
    WORDS("listen", "127.0.0.1:7070", "control address, ip:port; port 0 picks one"),
    WORDS("coordinator", "",
          "address of the coordinator when it is another process; empty: host it here"),
    WORDS("advertise", "", "host that others are given to reach this process; empty: as listen"),
    WORDS("data_ports", "0",
          "port or range a-b of the data plane, one for each shard; 0 picks any"),
    FLAG("supervise", false, "off",
         "start a dead process again at once; coordinator and shards are then processes of their "
         "own"),
    WORDS("arena_dir", "",
          "folder in memory (tmpfs) for what must outlive a killed shard process; empty: private "
          "memory, or /dev/shm with supervise"),
    ONE_OF("arena_verify", false, "resume", "off|resume",
           "with arena_dir: keep digests of parameters, optimizer state and gradients, and look at "
           "them when a killed shard's memory is gone on with"),
    WORDS("port_file", "", "file that gets the control address once it is bound"),
    WORDS(
        "keys", "",
        "folder or file of keys (gradweir-server keygen): this process's own, and of who may come "
        "in; empty: none"),
    WORDS("identity", "", "whose secret key is this process's own; empty: server, or shard-N"),
    FLAG("insecure", false, "off",
         "listen and connect without keys beyond loopback: whoever reaches the port may come in"),

    /* The window law. */
    ONE_OF("preset", false, "classic", "classic|llm",
           "where window, stride, staleness_max start from"),
    WHOLE("window", true, "1", 1, 256, NULL, "W: admitted gradients that a step averages"),
    WHOLE("window_max", false, "auto", 1, 256, "auto",
          "the largest window that tune may set; auto: the window"),
    WHOLE("stride", true, "1", 1, 256, NULL, "S: new gradients that make a step due"),
    WHOLE("queue", false, "16", 1, 4096, NULL, "room for gradients not yet in the window"),
    ONE_OF("overflow", false, "block", "block|reject",
           "when there is no room: wait, or refuse with QUEUE_FULL"),
    WHOLE("staleness_max", true, "off", 0, 1e9, "off", "versions after which a gradient is STALE"),
    ONE_OF("decay", true, "uniform", "uniform|exp|poly",
           "weight by staleness: 1, beta^t, (1 + t)^-exponent"),
    REAL("decay_beta", true, "0.9", 1e-6, 1, "base of decay exp"),
    REAL("decay_exponent", true, "0.5", 0, 16, "exponent of decay poly"),
    REAL("samples_exponent", true, "1", 0, 1, "weight by samples^exponent"),
    ONE_OF("staleness_at", false, "step", "step|arrival",
           "staleness anew at every step, or as at admission"),
    FLAG("recheck", false, "off",
         "leave out what grew too stale in the window; not with staleness_at arrival"),
    ONE_OF("normalise", false, "mean", "mean|count",
           "divide by the sum of weights, or by their number"),
    REAL("clip", true, "0", 0, 1e30, "largest norm of one gradient; 0: off"),
    REAL("clip_average", true, "0", 0, 1e30, "largest norm of the average; 0: off"),
    ONE_OF("damp", true, "off", "off|mean_weight",
           "learning rate by the mean weight of what is averaged"),
    ONE_OF("window_algorithm", false, "auto", "auto|direct|stacks",
           "one pass over the window, or partial sums kept beside it (not where W is 2 or at most "
           "S); auto: what is faster"),
    WAIT("flush_after", true, "auto", 1e6, 3600 * SECOND, "auto",
         "step with what is there after so long; auto: 3 x the median step"),
    WHOLE("flush_min", true, "1", 1, 256, NULL, "gradients a flush needs"),
    ONE_OF("mode", false, "async", "async|sync", "gradients as they come, or one of each worker"),
    REAL("magnitude_max", false, "1e18", 1, FLT_MAX / 4, "larger elements are NOT_FINITE"),

    /* The optimizer. */
    ONE_OF("optimizer", false, "adam", "sgd|momentum|nesterov|rmsprop|adam|amsgrad|adamw|lamb",
           "as PyTorch and timm define them"),
    REAL("learning_rate", true, "3e-4", 0, 1e6, "at the start, after warm-up"),
    REAL("learning_rate_end", true, "0", 0, 1e6, "what linear and cosine schedules end with"),
    ONE_OF("schedule", false, "constant", "constant|linear|cosine",
           "how the learning rate goes from start to end"),
    WHOLE("schedule_steps", false, "0", 0, 1e12, NULL, "steps until the end of the schedule"),
    WHOLE("warmup_steps", false, "0", 0, 1e12, NULL,
          "first steps, in which the learning rate rises from 0"),
    REAL("beta1", false, "0.9", 0, 0.999999999, "decay of the first moment"),
    REAL("beta2", false, "0.999", 0, 0.999999999, "decay of the second moment"),
    REAL("eps", false, "1e-8", 0, 1, "added to the denominator"),
    REAL("momentum", false, "0.9", 0, 0.999999999, "of momentum, nesterov and rmsprop"),
    REAL("dampening", false, "0", 0, 1, "of momentum"),
    FLAG("nesterov", false, "off",
         "look ahead with optimizer momentum; the same as optimizer nesterov"),
    REAL("alpha", false, "0.99", 0, 0.999999999, "smoothing of rmsprop"),
    FLAG("centered", false, "off", "rmsprop subtracts the squared mean"),
    FLAG("always_adapt", false, "off", "lamb adapts tensors without weight decay too"),
    REAL("weight_decay", false, "0", 0, 1e3, "as the optimizer defines it"),

    /* Slots, patience, liveness. */
    ONE_OF("gradient_dtype", false, "float32", CODEC_NAMES,
           "in which numbers gradients travel and wait; parameters stay float32"),
    WHOLE("parameter_slots", false, "4", 2, 64, NULL,
          "versions of the parameters a shard can hold at once; with 2 a step waits for WHOLE"),
    WAIT("pull_patience", false, "10s", 1e7, 3600 * SECOND, NULL,
         "a reader that pins parameters longer is hung up"),
    WAIT("place_patience", true, "10s", 1e7, 3600 * SECOND, NULL, "an unused place expires"),
    WAIT("push_patience", true, "30s", 1e7, 3600 * SECOND, NULL,
         "a body that does not arrive is CANCELLED"),
    WAIT("round_patience", true, "60s", 1e7, 24 * 3600 * SECOND, NULL,
         "mode sync: a worker that the others wait for so long is taken out of the round"),
    WAIT("lease", true, "2s", 5e7, 3600 * SECOND, NULL,
         "how long a silent member is believed alive"),
    WAIT("heartbeat", false, "200ms", 1e7, 60 * SECOND, NULL,
         "how often a member says that it lives; far below lease"),
    WAIT("linger", false, "0s", 0, 24 * 3600 * SECOND, NULL,
         "end this long after the last worker has gone; 0: never"),

    /* The data plane. */
    ONE_OF("transport", false, "auto", "auto|posix|tcp|rc",
           "how floats travel; auto: the best that UCX finds"),
    WORDS("net_devices", "", "network devices UCX may use, with commas; empty: all"),
    BYTES("chunk_bytes", "auto", 4096, GIB, "auto",
          "a body travels in pieces of this size, a multiple of 4; auto: 256KiB where transport is "
          "tcp, else 1MiB"),
    WHOLE("in_flight", false, "4", 1, 256, NULL, "pieces under way per peer"),
    WAIT("spin", false, "auto", 0, SECOND, "auto",
         "look for messages so long before sleeping; auto: 50us, while nobody else wants the core"),
    WHOLE(
        "shard_threads", false, "auto", 1, 64, "auto",
        "threads that compute for one shard; auto: its part of the cores, at most 8; 1 where they "
        "are fewer than 4"),
    FLAG("step_ahead", false, "on",
         "with window = stride = 1 and sgd, a processor's one thread a shard makes the next step "
         "while "
         "its gradient lands, by a guess; the bits are the same"),
    ONE_OF("simd", false, "auto", "auto|scalar|avx2|avx512",
           "instructions of the arithmetic; the bits are the same"),
    ONE_OF("device", false, "cpu", "cpu|cuda", "what computes for a shard; cuda: a GPU"),
    WHOLE("gpu", false, "0", 0, 63, NULL, "which GPU, where device is cuda"),
    ONE_OF(
        "device_memory", false, "auto", "auto|resident|mapped",
        "where a GPU works; resident: in its own memory, the host's follows each step; mapped: in "
        "the host's, across the bus; auto: resident where it fits"),
    BYTES("queue_bytes_max", "auto", 4096, 1024 * 1024 * GIB, "auto",
          "bound of all gradient slots of a shard, for which the queue is lowered; auto: none"),

    /* What it leaves behind. */
    WORDS("record", "", "folder that gets the log and the gradients, for replay; empty: none"),
    BYTES("record_bytes_max", "1GiB", 4096, 1024 * 1024 * GIB, NULL,
          "recording stops there, and says so"),
    ONE_OF("log_level", false, "info", "error|warn|info|debug", "lines above it are dropped"),
};

const size_t settings_server_count = sizeof settings_server / sizeof *settings_server;
