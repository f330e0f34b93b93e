/* UCX's configuration, addresses as text, and which lanes a connection really uses.
 *
 * What UCX would choose by itself is wrong for us (two processes of one machine would talk over
 * TCP; a stopped peer's late bytes could land in memory that has a new owner, with cma). A user's
 * own UCX_* variables still win, except that cma and the like never come in: those are said in
 * describe(transport, 0). */
#include "common/transport_ucx.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

gradweir_status ucx_address_parse(const char *text, struct sockaddr_storage *address,
                                  socklen_t *length)
{
    char host[256];
    const char *colon = strrchr(text, ':');
    size_t n = colon ? (size_t)(colon - text) : 0;
    if (n == 0 || n >= sizeof host || strspn(colon + 1, "0123456789") != strlen(colon + 1) ||
        !colon[1] || strtoul(colon + 1, NULL, 10) > 65535 || strlen(colon + 1) > 5)
        return fail(GRADWEIR_ERR_INVALID, "'%s' is not an address: expected host:port", text);
    bool bracketed = text[0] == '[' && text[n - 1] == ']';
    snprintf(host, sizeof host, "%.*s", (int)(bracketed ? n - 2 : n), bracketed ? text + 1 : text);
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    struct addrinfo *found = NULL;
    int error = getaddrinfo(host, colon + 1, &hints, &found);
    if (error != 0)
        return fail(GRADWEIR_ERR_INVALID, "'%s' is not an address: %s", text, gai_strerror(error));
    memcpy(address, found->ai_addr, found->ai_addrlen);
    *length = found->ai_addrlen;
    freeaddrinfo(found);
    return GRADWEIR_OK;
}

void ucx_address_print(const struct sockaddr_storage *address, char *text, size_t size)
{
    char host[INET6_ADDRSTRLEN] = "?";
    if (address->ss_family == AF_INET6) {
        const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)address;
        inet_ntop(AF_INET6, &six->sin6_addr, host, sizeof host);
        snprintf(text, size, "[%s]:%u", host, ntohs(six->sin6_port));
    } else {
        const struct sockaddr_in *four = (const struct sockaddr_in *)address;
        inet_ntop(AF_INET, &four->sin_addr, host, sizeof host);
        snprintf(text, size, "%s:%u", host, ntohs(four->sin_port));
    }
}

static bool same_host(const struct sockaddr *a, const struct sockaddr_storage *b)
{
    if (!a || a->sa_family != b->ss_family)
        return false;
    if (a->sa_family == AF_INET)
        return ((const struct sockaddr_in *)(const void *)a)->sin_addr.s_addr ==
               ((const struct sockaddr_in *)b)->sin_addr.s_addr;
    if (a->sa_family == AF_INET6)
        return memcmp(&((const struct sockaddr_in6 *)(const void *)a)->sin6_addr,
                      &((const struct sockaddr_in6 *)b)->sin6_addr, sizeof(struct in6_addr)) == 0;
    return false;
}

/* The network device that bears bind_address; "all" when none does (a wildcard, or a client without
 * an address). */
static void device_of_address(const char *bind_address, char *device, size_t size)
{
    struct sockaddr_storage address;
    socklen_t length;
    struct ifaddrs *interfaces = NULL;
    snprintf(device, size, "all");
    if (ucx_address_parse(bind_address, &address, &length) != GRADWEIR_OK ||
        getifaddrs(&interfaces) != 0)
        return;
    for (const struct ifaddrs *i = interfaces; i; i = i->ifa_next) {
        if (same_host(i->ifa_addr, &address))
            snprintf(device, size, "%s", i->ifa_name);
    }
    freeifaddrs(interfaces);
}

static bool rdma_there(void)
{
    DIR *folder = opendir("/sys/class/infiniband");
    bool found = false;
    for (const struct dirent *entry = folder ? readdir(folder) : NULL; entry;
         entry = readdir(folder))
        found |= entry->d_name[0] != '.';
    if (folder)
        closedir(folder);
    return found;
}

/* tcp is in every list: the connection manager and what comes before the wire-up need it. */
static gradweir_status lanes_as_tls(const char *lanes, const char **tls)
{
    if (strcmp(lanes, "auto") == 0)
        *tls = rdma_there() ? "posix,rc,tcp,self" : "posix,tcp,self";
    else if (strcmp(lanes, "posix") == 0)
        *tls = "posix,tcp,self";
    else if (strcmp(lanes, "tcp") == 0)
        *tls = "tcp,self";
    else if (strcmp(lanes, "rc") == 0 && !rdma_there())
        return fail(GRADWEIR_ERR_UNSUPPORTED, "transport rc: this machine has no RDMA device "
                                              "(nothing in /sys/class/infiniband); posix and tcp "
                                              "need none, and auto finds out");
    else if (strcmp(lanes, "rc") == 0)
        *tls = "rc,tcp,self";
    else
        return fail(GRADWEIR_ERR_INVALID,
                    "transport: no lanes '%s' (there are auto, posix, tcp, rc)", lanes);
    return GRADWEIR_OK;
}

/* Sets one thing unless the user's environment has it, and notes what is in force. `name` is what
 * the environment calls it; before 1.17 ucp_config_modify() knows the settings of a transport by
 * another name, `old`. */
static void set(struct ucx *ucx, ucp_config_t *config, const char *name, const char *old,
                const char *value)
{
    char variable[64];
    snprintf(variable, sizeof variable, "UCX_%s", name);
    const char *theirs = getenv(variable);
    size_t used = strlen(ucx->in_force);
    snprintf(ucx->in_force + used, sizeof ucx->in_force - used, "%s%s=%s%s", used ? " " : "", name,
             theirs ? theirs : value, theirs ? " (environment)" : "");
    if (theirs)
        return;
    unsigned major, minor, release;
    ucp_get_version(&major, &minor, &release);
    bool prefixed = major > 1 || minor >= 17;
    ucs_status_t status = ucp_config_modify(config, prefixed ? name : old, value);
    used = strlen(ucx->in_force);
    if (status != UCS_OK)
        snprintf(ucx->in_force + used, sizeof ucx->in_force - used, " (not known to this UCX)");
}

/* How much may be on its way between two processes that do not run at the same time. With UCX's
 * own 64 pieces of 8 KiB both must take turns every 512 KiB, and where threads outnumber cores each
 * turn is a wait for the processor: 0.3 GB/s on two busy cores, with these 5 GB/s; larger pieces
 * also cost fewer system calls over TCP (tests/bench). What TCP receives at a time is little more
 * than a body that came along (UCX_PORTION, with its heads), so that it is still in the cache when
 * its owner looks at it. */
static void configure_room(struct ucx *ucx, ucp_config_t *config, const char *tls)
{
    if (strstr(tls, "posix")) {
        set(ucx, config, "POSIX_FIFO_SIZE", "MM_FIFO_SIZE", "64");
        set(ucx, config, "POSIX_SEG_SIZE", "MM_SEG_SIZE", "32768");
        set(ucx, config, "POSIX_FIFO_MAX_POLL", "MM_FIFO_MAX_POLL", "64");
        set(ucx, config, "POSIX_RX_BUFS_GROW", "MM_RX_BUFS_GROW", "128");
    }
    set(ucx, config, "TCP_TX_SEG_SIZE", "TX_SEG_SIZE", "256K");
    set(ucx, config, "TCP_RX_SEG_SIZE", "RX_SEG_SIZE", "260K");
}

static void configure(struct ucx *ucx, ucp_config_t *config, const char *tls)
{
    char text[128], device[64];
    set(ucx, config, "TLS", "TLS", tls);
    bool chosen = ucx->settings.devices[0] != 0;
    device_of_address(ucx->settings.bind_address, device, sizeof device);
    set(ucx, config, "NET_DEVICES", "NET_DEVICES", chosen ? ucx->settings.devices : device);
    if (strstr(tls, "posix"))
        set(ucx, config, "POSIX_ERROR_HANDLING", "MM_ERROR_HANDLING", "y");
    set(ucx, config, "TCP_PUT_ENABLE", "PUT_ENABLE", "n");
    /* Else a server that was killed cannot have its port back for a minute. */
    set(ucx, config, "TCP_CM_REUSEADDR", "CM_REUSEADDR", "y");
    set(ucx, config, "MAX_RNDV_RAILS", "MAX_RNDV_RAILS", "1");
    snprintf(text, sizeof text, "%us", ucx->settings.keepalive_s);
    set(ucx, config, "KEEPALIVE_INTERVAL", "KEEPALIVE_INTERVAL", text);
    set(ucx, config, "TCP_KEEPIDLE", "KEEPIDLE", text);
    set(ucx, config, "TCP_KEEPINTVL", "KEEPINTVL", "2s");
    set(ucx, config, "TCP_KEEPCNT", "KEEPCNT", "3");
    configure_room(ucx, config, tls);
}

static bool forbidden(const char *tls)
{
    return tls &&
           (strstr(tls, "cma") || strstr(tls, "xpmem") || strstr(tls, "knem") ||
            strstr(tls, "all") || strstr(tls, "shm") || strstr(tls, "sm") || strchr(tls, '^'));
}

static const char *const device_folders[] = {"/sys/class/net", "/sys/class/infiniband"};

static bool device_there(const char *name)
{
    char path[128];
    bool there = strcmp(name, "all") == 0;
    for (size_t i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%.80s", device_folders[i], name);
        there |= access(path, F_OK) == 0;
    }
    return there && !strchr(name, '/');
}

static void list_devices(char *text, size_t size)
{
    text[0] = 0;
    for (size_t i = 0; i < 2; i++) {
        DIR *folder = opendir(device_folders[i]);
        for (const struct dirent *entry = folder ? readdir(folder) : NULL; entry;
             entry = readdir(folder)) {
            const size_t used = strlen(text);
            if (entry->d_name[0] != '.')
                snprintf(text + used, size - used, "%s%s", used ? ", " : "", entry->d_name);
        }
        if (folder)
            closedir(folder);
    }
}

/* UCX would only warn, and find nobody later: "eth0,mlx5_0:1", each of them of this machine. */
static gradweir_status check_devices(const char *devices)
{
    char name[64], there[400];
    for (const char *at = devices; *at; at += strspn(at, ",")) {
        const size_t length = strcspn(at, ",");
        const char *from = *at == '^' ? at + 1 : at; /* all but these */
        snprintf(name, sizeof name, "%.*s", (int)(length - (size_t)(from - at)), from);
        name[strcspn(name, ":")] = 0;
        if (!device_there(name)) {
            list_devices(there, sizeof there);
            return fail(GRADWEIR_ERR_INVALID,
                        "net_devices: this machine has no network device '%s' (it has: %s)", name,
                        there);
        }
        at += length;
    }
    return GRADWEIR_OK;
}

gradweir_status ucx_context_open(struct ucx *ucx)
{
    const char *tls = NULL;
    ucx_leave_signals();
    TRY(lanes_as_tls(ucx->settings.lanes, &tls));
    TRY(check_devices(ucx->settings.devices));
    if (forbidden(getenv("UCX_TLS")))
        return fail(
            GRADWEIR_ERR_INVALID,
            "UCX_TLS=%s may bring in cma, whose late bytes can land in memory that has a new owner",
            getenv("UCX_TLS"));
    ucp_config_t *config = NULL;
    ucs_status_t status = ucp_config_read(NULL, NULL, &config);
    if (status != UCS_OK)
        return fail(GRADWEIR_ERR_UNSUPPORTED, "ucx: its configuration: %s",
                    ucs_status_string(status));
    configure(ucx, config, tls);
    ucp_params_t params = {
        .field_mask =
            UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_ESTIMATED_NUM_EPS | UCP_PARAM_FIELD_NAME,
        .features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP,
        .estimated_num_eps = ucx->settings.peers_max,
        .name = "gradweir",
    };
    status = ucp_init(&params, config, &ucx->context);
    ucp_config_release(config);
    if (status != UCS_OK)
        return fail(GRADWEIR_ERR_UNSUPPORTED, "ucx: lanes '%s' (%s): %s", ucx->settings.lanes,
                    ucx->in_force, ucs_status_string(status));
    return GRADWEIR_OK;
}

/* One line of ucp_ep_print_info() reads "#  lane[0]:  2:posix/memory.0 md[0] ->
 * md[0]/posix/sysdev[255] am am_bw#0". Lanes that carry messages have a word that begins with am,
 * rma or rndv; the connection manager's has cm. */
static void lane_append(const char *line, char *text, size_t size)
{
    const char *lane = strstr(line, "lane[");
    const char *name = lane ? strchr(lane, ':') : NULL;
    name = name ? strchr(name + 1, ':') : NULL;
    if (!name || (!strstr(name, " am") && !strstr(name, "rma") && !strstr(name, "rndv")))
        return;
    size_t length = strcspn(name + 1, " ");
    size_t used = strlen(text);
    snprintf(text + used, size - used, "%s%.*s", used ? ", " : "", (int)length, name + 1);
}

gradweir_status ucx_describe(struct transport *transport, uint64_t number, char *text, size_t size)
{
    struct ucx *ucx = (struct ucx *)transport;
    if (number == 0) {
        unsigned major, minor, release;
        ucp_get_version(&major, &minor, &release);
        snprintf(text, size, "UCX %u.%u.%u %s", major, minor, release, ucx->in_force);
        return GRADWEIR_OK;
    }
    struct ucx_peer *peer = ucx_peer_find(ucx, number);
    if (!peer || !peer->endpoint)
        return fail(GRADWEIR_ERR_LOST, "this peer is gone");
    char *print = NULL;
    size_t length = 0;
    FILE *stream = open_memstream(&print, &length);
    if (!stream)
        return fail(GRADWEIR_ERR_NO_MEMORY, "ucx: describe: %s", strerror(errno));
    ucp_ep_print_info(peer->endpoint, stream);
    fclose(stream);
    if (size > 0)
        text[0] = 0;
    char *rest = print;
    for (char *line = strtok_r(print, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
        lane_append(line, text, size);
    free(print);
    if ((peer->blocks.seen || peer->view.memory) && size > 0)
        snprintf(text + strlen(text), size - strlen(text), ", bodies in shared blocks");
    return GRADWEIR_OK;
}

/* Whether each of "tcp/eth0, posix/memory" is over TCP. */
static bool all_tcp(const char *lanes)
{
    bool any = false;
    for (const char *at = lanes; *at; at += strspn(at, ", "), any = true) {
        if (strncmp(at, "tcp/", 4) != 0)
            return false;
        at += strcspn(at, ",");
    }
    return any;
}

uint64_t ucx_portion(struct transport *transport, uint64_t number)
{
    struct ucx *ucx = (struct ucx *)transport;
    struct ucx_peer *peer = ucx_peer_find(ucx, number);
    char lanes[TRANSPORT_TEXT_SIZE];
    if (!peer || peer->state != UCX_OPEN)
        return UINT64_MAX;
    if (peer->portion == 0)
        peer->portion =
            ucx_describe(transport, number, lanes, sizeof lanes) == GRADWEIR_OK && all_tcp(lanes)
                ? UCX_PORTION
                : UINT64_MAX;
    return peer->portion;
}
