/* Which sockets are paced by BBR and which are not any more. */
#include "common/unpace.h"

#include <criterion/criterion.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

/* Both ends of a connection from 127.0.0.N to 127.0.0.1, paced by BBR. */
static void connection(uint32_t n, int ends[2])
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)},
                       from = {.sin_family = AF_INET,
                               .sin_addr.s_addr = htonl(INADDR_LOOPBACK - 1 + n)};
    socklen_t length = sizeof address;
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    cr_assert_eq(bind(listener, (struct sockaddr *)&address, sizeof address), 0);
    cr_assert_eq(listen(listener, 1), 0);
    cr_assert_eq(getsockname(listener, (struct sockaddr *)&address, &length), 0);
    ends[0] = socket(AF_INET, SOCK_STREAM, 0);
    cr_assert_eq(bind(ends[0], (struct sockaddr *)&from, sizeof from), 0);
    cr_assert_eq(connect(ends[0], (struct sockaddr *)&address, sizeof address), 0);
    ends[1] = accept(listener, NULL, NULL);
    close(listener);
    if (setsockopt(ends[0], IPPROTO_TCP, TCP_CONGESTION, "bbr", 3) != 0 ||
        setsockopt(ends[1], IPPROTO_TCP, TCP_CONGESTION, "bbr", 3) != 0)
        cr_skip_test("this system has no BBR");
}

static bool is_paced(int fd)
{
    char name[16] = "";
    socklen_t bytes = sizeof name - 1;
    cr_assert_eq(getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &bytes), 0);
    return strcmp(name, "bbr") == 0;
}

static void watch(int epoll_fd, int fd)
{
    struct epoll_event event = {.events = EPOLLIN};
    cr_assert_eq(epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event), 0);
}

Test(unpace, what_an_epoll_of_an_epoll_waits_for_is_not_paced_within_this_host)
{
    int ends[2], pipe_fds[2];
    const int outer = epoll_create1(0), inner = epoll_create1(0);
    cr_assert_eq(pipe(pipe_fds), 0);
    connection(1, ends);
    watch(outer, inner);
    watch(outer, pipe_fds[0]);
    watch(inner, ends[0]);
    unpace(outer);
    cr_assert_not(is_paced(ends[0]));
    cr_assert(is_paced(ends[1]), "nobody here waits for it: it may be somebody else's");
}

Test(unpace, between_two_addresses_the_systems_choice_stays)
{
    int ends[2];
    const int outer = epoll_create1(0);
    connection(2, ends);
    watch(outer, ends[0]);
    watch(outer, ends[1]);
    unpace(outer);
    cr_assert(is_paced(ends[0]) && is_paced(ends[1]));
}

Test(unpace, a_socket_without_a_peer_and_no_epoll_at_all_are_left_alone)
{
    const int outer = epoll_create1(0), alone = socket(AF_INET, SOCK_STREAM, 0);
    if (setsockopt(alone, IPPROTO_TCP, TCP_CONGESTION, "bbr", 3) != 0)
        cr_skip_test("this system has no BBR");
    watch(outer, alone);
    unpace(outer);
    cr_assert(is_paced(alone));
    unpace(-1);
    unpace(alone);
    cr_assert(is_paced(alone));
}
