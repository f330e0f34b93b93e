/* From the settings table to what the cores and the transport want to know. The only place where a
 * setting's name meets a field. */
#ifndef GRADWEIR_SERVER_HOST_SETTINGS_H
#define GRADWEIR_SERVER_HOST_SETTINGS_H

#include "common/keys.h"
#include "common/settings.h"
#include "common/transport.h"
#include "server/coordinator/order.h"
#include "server/shard/shard.h"

enum { HOST_ADDRESS_MAX = 300 };

/* Where a GPU works: in the order of the setting's words. */
enum host_device_memory { HOST_DEVICE_AUTO, HOST_DEVICE_RESIDENT, HOST_DEVICE_MAPPED };

/* Everything a host needs, checked. Texts are borrowed from the settings. */
struct host_options {
    const struct settings *settings;
    uint64_t job;
    uint32_t shards;
    int64_t only_shard;               /* -1: all of them here */
    const char *coordinator;          /* "": here */
    char data_host[HOST_ADDRESS_MAX]; /* where the data plane listens, as transports write it */
    uint32_t data_first, data_last;   /* its ports; 0: any */
    const char *advertise;            /* the host that others are given; "": the bound one */
    const char *simd;                 /* NULL: the best */
    const char *device;               /* "cpu", "cuda" */
    uint32_t gpu;                     /* cuda: which */
    enum host_device_memory device_memory; /* cuda: where it works */
    uint32_t shard_threads;                /* host_threads.h decides; 0 counts as 1 */
    uint64_t look_ns;                      /* as idle_init takes it */
    bool step_ahead;    /* asked for; shard.ahead has it where device and threads allow it */
    bool crowded;       /* threads of this machine's shards outnumber its cores */
    const char *record; /* "": nowhere */
    uint64_t record_bytes_max;
    const char *arena_dir; /* "": private memory */
    int64_t linger_ns;
    struct key_table *keys; /* NULL: none */
    struct control_options control;
    struct order_options order;
    struct shard_options shard; /* member is filled in when the coordinator says it */
    struct transport_settings transport;
};

/* ERR_INVALID names what does not fit together. Freed by host_options_free, also after a failure.
 */
gradweir_status host_options_read(const struct settings *settings, struct host_options *options);
void host_options_free(struct host_options *options);

#endif
