/* See unpace.h. */
#include "common/unpace.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

enum { DEPTH_MAX = 3 };

static bool within_host(int fd)
{
    struct sockaddr_storage here = {0}, there = {0};
    socklen_t here_bytes = sizeof here, there_bytes = sizeof there;
    if (getsockname(fd, (struct sockaddr *)&here, &here_bytes) != 0 ||
        getpeername(fd, (struct sockaddr *)&there, &there_bytes) != 0 ||
        here.ss_family != there.ss_family)
        return false;
    if (here.ss_family == AF_INET)
        return ((struct sockaddr_in *)&here)->sin_addr.s_addr ==
               ((struct sockaddr_in *)&there)->sin_addr.s_addr;
    return here.ss_family == AF_INET6 &&
           memcmp(&((struct sockaddr_in6 *)&here)->sin6_addr,
                  &((struct sockaddr_in6 *)&there)->sin6_addr, sizeof(struct in6_addr)) == 0;
}

static void unpace_one(int fd)
{
    char name[16] = "";
    socklen_t bytes = sizeof name - 1;
    if (getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &bytes) != 0 ||
        strcmp(name, "bbr") != 0 || !within_host(fd))
        return;
    if (setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "cubic", strlen("cubic")) != 0)
        (void)setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "reno", strlen("reno"));
}

/* What is neither a socket nor an epoll has no such list. */
static void unpace_all(int epoll_fd, int depth)
{
    char path[64], line[128];
    int fd, type;
    snprintf(path, sizeof path, "/proc/self/fdinfo/%d", epoll_fd);
    FILE *list = fopen(path, "re");
    while (list && fgets(line, sizeof line, list)) {
        socklen_t bytes = sizeof type;
        if (sscanf(line, "tfd: %d", &fd) != 1)
            continue;
        if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &bytes) == 0)
            unpace_one(fd);
        else if (errno == ENOTSOCK && depth < DEPTH_MAX)
            unpace_all(fd, depth + 1);
    }
    if (list)
        fclose(list);
}

void unpace(int epoll_fd)
{
    unpace_all(epoll_fd, 1);
}
