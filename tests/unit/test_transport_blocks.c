/* What a peer says of blocks of shared memory is believed only as far as it can be seen. */
#include "common/transport_ucx.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { NONCE = 0x1234 };

static const uint64_t all_bytes = UCX_BLOCKS * UCX_BLOCK_BYTES;
static const int all_seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
static struct ucx ucx;
static struct ucx_peer peer;

/* Failed already, so that nothing is sent to it. */
static void start(void)
{
    memset(&ucx, 0, sizeof ucx);
    ucx.settings.lanes = "posix";
    peer = (struct ucx_peer){.ucx = &ucx, .state = UCX_FAILED, .control_busy = true};
}

static int memory_of(uint64_t nonce, uint64_t bytes, int seals)
{
    char name[64];
    snprintf(name, sizeof name, "gradweir-%016" PRIx64, nonce);
    const int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    cr_assert(fd >= 0 && ftruncate(fd, (off_t)bytes) == 0 && fcntl(fd, F_ADD_SEALS, seals) == 0);
    return fd;
}

static const char *offer(int fd, uint64_t nonce)
{
    const struct ucx_blocks_offer said = {
        .pid = (uint32_t)getpid(), .fd = (uint32_t)fd, .nonce = nonce};
    return ucx_blocks_heard(&peer, &said, sizeof said);
}

TestSuite(transport_blocks, .init = start);

Test(transport_blocks, memory_that_is_as_it_should_be_is_seen_and_read)
{
    const int fd = memory_of(NONCE, all_bytes, all_seals);
    struct ucx_loan loan = {.block = 3, .length = UCX_BLOCK_BYTES};
    cr_assert_eq(pwrite(fd, "here", 4, 3 * (off_t)UCX_BLOCK_BYTES), 4);
    cr_assert_null(offer(fd, NONCE));
    cr_assert_not_null(peer.view.memory);
    cr_assert(peer.view.answer_owed && ucx.views == 1);
    cr_assert_null(ucx_loan_heard(&peer, &loan, &loan));
    cr_assert_eq(memcmp(peer.view.memory + 3 * UCX_BLOCK_BYTES, "here", 4), 0);
    cr_assert_not_null(offer(fd, NONCE), "a second offer");
    ucx_blocks_end(&peer);
    cr_assert_eq(ucx.views, 0u);
    close(fd);
}

Test(transport_blocks, what_can_shrink_or_has_another_name_or_size_is_not_opened)
{
    const int other = open("/proc/self/exe", O_RDONLY);
    const int fds[] = {memory_of(NONCE, all_bytes, F_SEAL_GROW),
                       memory_of(NONCE + 1, all_bytes, all_seals),
                       memory_of(NONCE, all_bytes - 4096, all_seals), other, 9999};
    for (size_t i = 0; i < sizeof fds / sizeof *fds; i++) {
        start();
        cr_expect_null(offer(fds[i], NONCE));
        cr_expect_null(peer.view.memory, "offer %zu", i);
        cr_expect(!peer.view.answer_owed && ucx.views == 0);
        if (fds[i] != 9999)
            close(fds[i]);
    }
}

Test(transport_blocks, over_other_lanes_nobody_sees_any)
{
    const int fd = memory_of(NONCE, all_bytes, all_seals);
    ucx.settings.lanes = "tcp";
    cr_expect_null(offer(fd, NONCE));
    cr_expect_null(peer.view.memory);
    close(fd);
}

Test(transport_blocks, bodies_beyond_what_is_lent_end_the_connection)
{
    static const struct ucx_loan wrong[] = {{.block = UCX_BLOCKS, .length = 1},
                                            {.block = UINT32_MAX, .length = 1},
                                            {.block = 0, .length = 0},
                                            {.block = 0, .length = UCX_BLOCK_BYTES + 1},
                                            {.block = 3, .length = UINT64_MAX}};
    const int fd = memory_of(NONCE, all_bytes, all_seals);
    struct ucx_loan loan = {.length = 1};
    cr_expect_not_null(ucx_loan_heard(&peer, &loan, &loan), "nothing is lent");
    cr_assert_null(offer(fd, NONCE));
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        cr_expect_not_null(ucx_loan_heard(&peer, &wrong[i], &loan), "loan %zu", i);
    ucx_blocks_end(&peer);
    close(fd);
}

Test(transport_blocks, answers_that_nobody_asked_for_end_the_connection)
{
    const uint32_t one = 1, none = 0;
    cr_expect_not_null(ucx_seen_heard(&peer, 0));
    cr_expect_not_null(ucx_copied_heard(&peer, &one, sizeof one));
    cr_expect_not_null(ucx_copied_heard(&peer, &one, 2));
    cr_expect_null(ucx_copied_heard(&peer, &none, sizeof none));
    cr_expect_not_null(ucx_blocks_heard(&peer, &one, sizeof one));
}
