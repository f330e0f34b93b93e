/* Runs a shard's core within the caller's thread: computes at once what the core wants computed,
 * and leaves what goes out (messages, replies, takes) for the caller. For replay, tests, the
 * simulator. */
#ifndef GRADWEIR_SERVER_SHARD_SHARD_LOCAL_H
#define GRADWEIR_SERVER_SHARD_SHARD_LOCAL_H

#include "common/device.h"
#include "server/shard/shard.h"

/* What the core wants computed: an action's part of it. */
struct shard_job {
    enum shard_action_kind kind; /* SCAN, AVERAGE, STEP */
    enum arithmetic_codec codec;
    uint64_t token, offset, begin, end;
};

enum { SHARD_LOCAL_JOBS_MAX = SLOTS_MAX + 8 };

struct shard_local {
    struct shard *shard;
    bool owned; /* the arena was made here */
    const struct arithmetic *arithmetic;
    struct device_state *device;  /* of several threads; NULL: the caller computes alone */
    struct shard_actions actions; /* of one step */
    struct shard_action *outbox;  /* what the last event left to do, in order */
    uint32_t outbox_count, outbox_max;
    struct shard_job jobs[SHARD_LOCAL_JOBS_MAX]; /* a ring: jobs_count from jobs_first on */
    uint32_t jobs_first, jobs_count;
};

/* member etc. as in options; simd NULL: the best there is. */
gradweir_status shard_local_open(const struct model *model, const struct law_settings *law,
                                 const struct shard_options *options, const char *simd,
                                 struct shard_local **local);

/* The same around a shard that lies in the caller's arena (shard_init, shard_resume) and stays
 * there. */
gradweir_status shard_local_around(struct shard *shard, const char *simd,
                                   struct shard_local **local);

/* From now on `threads` compute: for tiles of whole ARITHMETIC_BLOCKs only (tile_elements). Called
 * once. crowded: device.h. */
gradweir_status shard_local_threads(struct shard_local *local, uint32_t threads, bool crowded);

void shard_local_close(struct shard_local *local);

/* Steps the core, and again for every computation, until none is wanted. The outbox then holds the
 * other actions of all these steps. */
void shard_local_event(struct shard_local *local, const struct shard_event *event);

#endif
