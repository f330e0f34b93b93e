/* Hosts and ports of the data plane. */
#include "server/host_listen.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void host_advertise(const struct host_options *options, const char *bound, char *text, size_t size)
{
    if (options->advertise[0])
        snprintf(text, size, "%s%s", options->advertise, strrchr(bound, ':'));
    else
        snprintf(text, size, "%s", bound);
}

/* Of two servers that try at the same moment one gets ERR_IO, and tries the next. */
static gradweir_status try_ports(const struct host_options *options, struct host_listener *listener,
                                 struct transport *transport)
{
    gradweir_status status = GRADWEIR_ERR_IO;
    for (uint32_t port = options->data_first; port <= options->data_last; port++) {
        snprintf(listener->bind, sizeof listener->bind, "%.*s:%u", HOST_ADDRESS_MAX - 8,
                 options->data_host, port);
        status = transport_listen(transport);
        if (status != GRADWEIR_ERR_IO)
            return status;
    }
    char reason[400];
    if (options->data_last == options->data_first)
        return status;
    snprintf(reason, sizeof reason, "%s", fail_reason());
    return fail(status, "data_ports %u-%u: none is free: %s", options->data_first,
                options->data_last, reason);
}

gradweir_status host_listen(const struct host_options *options,
                            const struct transport_settings *given, struct host_listener *listener,
                            struct transport **transport)
{
    struct transport_settings settings = *given;
    snprintf(listener->bind, sizeof listener->bind, "%.*s:%u", HOST_ADDRESS_MAX - 8,
             options->data_host, options->data_first);
    settings.bind_address = listener->bind;
    TRY(transport_open(&settings, transport));
    TRY(try_ports(options, listener, *transport));
    host_advertise(options, transport_address(*transport), listener->address,
                   sizeof listener->address);
    return GRADWEIR_OK;
}

gradweir_status host_write_port_file(const char *path, const char *address)
{
    if (path[0] == 0)
        return GRADWEIR_OK;
    char temporary[1100];
    snprintf(temporary, sizeof temporary, "%s.new", path);
    FILE *file = fopen(temporary, "w");
    if (!file)
        return fail(GRADWEIR_ERR_IO, "port_file %s: %s", path, strerror(errno));
    fprintf(file, "%s\n", address);
    if (fclose(file) != 0 || rename(temporary, path) != 0) {
        const int error = errno;
        unlink(temporary);
        return fail(GRADWEIR_ERR_IO, "port_file %s: %s", path, strerror(error));
    }
    return GRADWEIR_OK;
}
