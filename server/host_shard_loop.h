/* What host_shard.c (setting up, the loop), host_shard_actions.c (carrying out) and
 * host_shard_jobs.c (the device) share. */
#ifndef GRADWEIR_SERVER_HOST_SHARD_LOOP_H
#define GRADWEIR_SERVER_HOST_SHARD_LOOP_H

#include "common/transport_outbox.h"
#include "common/wire.h"
#include "server/host_listen.h"
#include "server/host_shard.h"
#include "server/recording.h"

enum { SHARD_EVENTS_MAX = 64, SHARD_WAYS_MAX = 4, REPLY_SUMS = 4096 };

/* A body that is on its way into the arena. */
struct shard_take {
    uint64_t token, offset, length;
    uint32_t next_free;
};

/* A device job that was given, or waits to be. Jobs come back in the order given. */
struct shard_loop_job {
    enum shard_action_kind kind;
    uint64_t token, offset, begin, end;
    enum arithmetic_codec codec;
};

/* The checksum of a body that left a parameter slot: workers that pull one version get it without
 * another look at the floats. */
struct shard_reply_sum {
    uint64_t offset, length, version; /* length 0: none */
    uint32_t timeline, crc;
};

/* A data-plane connection, so that log and status can say what it really uses. */
struct shard_peer {
    uint64_t peer; /* 0: free */
    bool told;
};

/* A way by which peers' floats travel, as the transport describes it, and how many came by it. */
struct shard_way {
    char text[TRANSPORT_TEXT_SIZE];
    uint64_t peers;
};

/* The floats of the arena in the device's own memory: host_shard_mirror.h. */
struct shard_mirror {
    unsigned char *memory; /* of the device; NULL: there is none, jobs work in the arena */
    uint64_t begin, bytes; /* what of the arena */
    bool states;           /* they are echoed: the arena outlives the process */
    uint64_t from, made;   /* the parameter slots whose floats are here; 0: none */
    uint32_t copies;       /* in flight */
    uint32_t news_count;   /* slots with news */
    struct shard_news {
        uint64_t begin, end; /* bytes of the arena that have landed since the last copy */
    } news[SLOTS_MAX];
};

struct shard_loop {
    struct host_shard *host;
    struct control *control;
    struct transport *transport;
    bool handed;   /* the transport told something at once, in this turn */
    bool complete; /* a gradient has landed, in this turn: what comes next is better taken when its
                      step is made */
    uint32_t told; /* turns in a row in which the coordinator said something, and nothing landed */
    struct host_listener listener;
    const struct device *device;
    struct device_state *device_state;
    gradweir_status device_failed; /* OK, or why it computes no more; the reason with it */
    char device_reason[256];
    bool pinned; /* the arena is, for the device */
    struct shard_mirror mirror;
    bool device_sums; /* the device makes a job's sums itself: its memory is not the processor's */
    const struct arithmetic *arithmetic;
    struct content_assembler *assembler;
    struct shard *shard; /* the arena; NULL until the coordinator has told the layout */
    uint64_t arena_bytes;
    char arena_path[1000];           /* with arena_dir */
    int arena_fd;                    /* its lock; -1: none */
    uint32_t arena_memory;           /* the transport's number of it */
    struct recording *recording;     /* of bodies; NULL: none */
    struct recording *log_recording; /* shard 0's alone */
    uint64_t recorded;               /* last record in it */
    struct message_member member;
    uint32_t epoch;                /* in which the coordinator said so */
    uint8_t instance[NONCE_BYTES]; /* of this process, for ENLIST */
    bool stopped;                  /* the coordinator said STOP */
    bool linked;                   /* connected to the coordinator */

    struct shard_actions actions;
    struct shard_event *deferred; /* events that arose while actions were carried out */
    uint32_t deferred_count, deferred_max;
    bool stepping;
    struct shard_take *takes;
    struct shard_reply_sum *reply_sums; /* REPLY_SUMS of them, by place */
    uint32_t takes_free, takes_max;
    struct outbox outbox; /* replies of this turn, and those that found no room */
    struct shard_peer *peers;
    uint32_t peers_max;
    bool posix, tcp, other; /* what any peer uses now or used */
    struct shard_way ways[SHARD_WAYS_MAX];
    struct shard_loop_job *jobs; /* ring: given ones first, then waiting ones */
    uint32_t jobs_first, jobs_given, jobs_count, jobs_max;
    double *scan_sums;
    struct arithmetic_work work;
};

/* Steps the core and carries out what it says. */
void shard_loop_event(struct shard_loop *loop, const struct shard_event *event);

/* Tables for takes, replies, jobs and actions: once the arena is there. */
gradweir_status shard_loop_tables(struct shard_loop *loop);
void shard_loop_tables_free(struct shard_loop *loop);

/* CRC32C of a body that answers a pull (host_shard_sums.c). */
uint32_t shard_loop_reply_sum(struct shard_loop *loop, const struct head_parameters *head,
                              uint64_t offset, uint64_t length);

/* The recording (host_shard_record.c). goes_on: the arena is that of a killed process. Records that
 * are logged and not yet written, before anybody hears of them; a body beside its record. */
gradweir_status shard_loop_record_start(struct shard_loop *loop, const struct model *model,
                                        bool goes_on);
void shard_loop_record(struct shard_loop *loop);
void shard_loop_record_body(struct shard_loop *loop, uint64_t index, uint64_t offset,
                            uint64_t length);
void shard_loop_record_end(struct shard_loop *loop);

/* Looks what each new connection uses, logs every way once and then with 10, 100, ... peers, and
 * puts the sum of it into a PULSE. */
void shard_loop_describe(struct shard_loop *loop, struct message_pulse *pulse);
void shard_loop_peer(struct shard_loop *loop, uint64_t peer, bool there);

/* A SCAN, AVERAGE or STEP waits for its turn. */
void shard_loop_queue(struct shard_loop *loop, const struct shard_action *action);

/* Transport and device events for the core; true when there was anything. at_once: of the
 * transport's settings. */
bool shard_loop_at_once(void *loop, const struct transport_event *event);
bool shard_loop_transport(struct shard_loop *loop);
bool shard_loop_device(struct shard_loop *loop);

/* Where steps are made ahead of being decided: one that is due and was not is made at once, up to a
 * limit, because of gradients that land meanwhile nothing can be made ahead. */
bool shard_loop_ahead(struct shard_loop *loop);

#endif
