/* Where a shard's data plane listens, and what address others are given. */
#ifndef GRADWEIR_SERVER_HOST_LISTEN_H
#define GRADWEIR_SERVER_HOST_LISTEN_H

#include "server/host_settings.h"

struct host_listener {
    char bind[HOST_ADDRESS_MAX]; /* the transport borrows it until close */
    char address[ADDRESS_MAX];   /* for others */
};

/* Opens a transport of these settings and listens on the host of `listen`, on the first port of
 * data_ports that is free. ERR_IO names the range and the last reason when none is. */
gradweir_status host_listen(const struct host_options *options,
                            const struct transport_settings *settings,
                            struct host_listener *listener, struct transport **transport);

/* "host:port" as others reach what is bound there: the advertised host instead of the bound one. */
void host_advertise(const struct host_options *options, const char *bound, char *text, size_t size);

/* Tells others where the coordinator listens: the file appears whole. "" is no file. */
gradweir_status host_write_port_file(const char *path, const char *address);

#endif
