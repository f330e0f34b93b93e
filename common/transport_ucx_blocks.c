/* Blocks of memory that both sides of a connection on one host see, and bodies that lie in them.
 *
 * Who connected lends: a memfd that cannot shrink, so that reading it never faults. A body that
 * fits is copied into a free block, and its message says which; the receiver copies it out, or
 * looks at it there (transport_body), and says COPIED. UCX's own shared memory would do the same
 * with two more passes over small pieces.
 *
 * The memory is offered by numbers alone: process, descriptor, and the nonce that is its name. Who
 * is offered one looks at what these lead to before opening it: only a memfd of that very name will
 * do. So a peer on another machine, or one that lies, cannot make us open anything else, nor lend
 * what belongs to somebody else. Who does not say SEEN gets bodies the ordinary way.
 *
 * The owner may write to a block while it is read, if it is broken or hostile: what was copied out
 * is what counts. */
#include "common/random.h"
#include "common/transport_ucx.h"

#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#define NAME  "gradweir-%016" PRIx64
#define BYTES (UCX_BLOCKS * UCX_BLOCK_BYTES)
#define VIEWS_MAX                                                                                  \
    4 /* of all peers: their pages count as ours, and a server may have 64 MiB beyond its plan */

static bool lends(const struct ucx *ucx)
{
    const char *lanes = ucx->settings.lanes;
    return strcmp(lanes, "auto") == 0 || strcmp(lanes, "posix") == 0;
}

/* Ours. */

static void blocks_free(struct ucx_blocks *blocks)
{
    if (!blocks->memory)
        return;
    munmap(blocks->memory, BYTES);
    close(blocks->fd);
    blocks->memory = NULL;
}

static void blocks_make(struct ucx_blocks *blocks)
{
    char name[64];
    if (random_entropy(&blocks->nonce, sizeof blocks->nonce) != GRADWEIR_OK)
        return;
    snprintf(name, sizeof name, NAME, blocks->nonce);
    blocks->fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (blocks->fd < 0)
        return;
    void *memory = MAP_FAILED;
    if (ftruncate(blocks->fd, (off_t)BYTES) == 0 &&
        fcntl(blocks->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0)
        memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, blocks->fd, 0);
    if (memory == MAP_FAILED)
        close(blocks->fd);
    else
        blocks->memory = memory;
}

static void blocks_offer(struct ucx_peer *peer)
{
    struct ucx_blocks *blocks = &peer->blocks;
    blocks->offered = true;
    if (!lends(peer->ucx))
        return;
    blocks_make(blocks);
    if (blocks->memory)
        ucx_control_say(peer, UCX_AM_BLOCKS,
                        &(struct ucx_blocks_offer){.pid = (uint32_t)getpid(),
                                                   .fd = (uint32_t)blocks->fd,
                                                   .nonce = blocks->nonce},
                        sizeof(struct ucx_blocks_offer));
}

const char *ucx_seen_heard(struct ucx_peer *peer, size_t bytes)
{
    if (bytes != 0 || !peer->blocks.memory)
        return "it sees what was not offered";
    peer->blocks.seen = true;
    return NULL;
}

static bool fits(const struct ucx_peer *peer, uint64_t length)
{
    return peer->blocks.seen && length > 0 && length <= UCX_BLOCK_BYTES &&
           length >= peer->ucx->settings.rendezvous_bytes;
}

/* The lowest free one: what was used last is still in the cache. */
static uint32_t block_free(const struct ucx_blocks *blocks)
{
    uint32_t block = 0;
    while (block < UCX_BLOCKS && (blocks->busy | blocks->kept) & 1u << block)
        block++;
    return block;
}

/* The block that begins there and is kept, or UCX_BLOCKS. */
static uint32_t block_kept(const struct ucx_blocks *blocks, const void *room)
{
    uint32_t block = 0;
    while (block < UCX_BLOCKS &&
           (!(blocks->kept & 1u << block) || room != blocks->memory + block * UCX_BLOCK_BYTES))
        block++;
    return block;
}

gradweir_status ucx_room(struct transport *transport, uint64_t number, uint64_t length, void **room)
{
    struct ucx_peer *peer = ucx_peer_find((struct ucx *)transport, number);
    if (!peer || peer->state != UCX_OPEN || !fits(peer, length))
        return GRADWEIR_ERR_UNSUPPORTED;
    const uint32_t block = block_free(&peer->blocks);
    if (block == UCX_BLOCKS)
        return GRADWEIR_ERR_AGAIN;
    peer->blocks.kept |= 1u << block;
    *room = peer->blocks.memory + block * UCX_BLOCK_BYTES;
    return GRADWEIR_OK;
}

void ucx_room_back(struct transport *transport, uint64_t number, const void *room)
{
    struct ucx_peer *peer = ucx_peer_find((struct ucx *)transport, number);
    const uint32_t block = peer ? block_kept(&peer->blocks, room) : UCX_BLOCKS;
    if (block < UCX_BLOCKS)
        peer->blocks.kept &= ~(1u << block);
}

bool ucx_loan_make(struct ucx_send *send, const struct transport_message *message,
                   struct ucx_loan *loan)
{
    struct ucx_blocks *blocks = &send->peer->blocks;
    if (!fits(send->peer, message->length) || ucx_memory_is_far(send->peer->ucx, message->memory))
        return false;
    uint32_t block = block_kept(blocks, message->body);
    if (block == UCX_BLOCKS) {
        block = block_free(blocks);
        if (block == UCX_BLOCKS)
            return false;
        memcpy(blocks->memory + block * UCX_BLOCK_BYTES, message->body, message->length);
    }
    atomic_thread_fence(memory_order_seq_cst); /* it may have been stored past the cache */
    blocks->kept &= ~(1u << block);
    blocks->busy |= 1u << block;
    send->block = block;
    *loan = (struct ucx_loan){.block = block, .length = message->length};
    return true;
}

static void block_back(struct ucx_peer *peer, uint32_t block, gradweir_status status)
{
    for (uint32_t i = 0; i < peer->ucx->settings.in_flight_max; i++) {
        struct ucx_send *send = &peer->sends[i];
        if (!send->lent || send->block != block)
            continue;
        send->lent = false;
        if (status != GRADWEIR_OK)
            send->status = status;
        ucx_send_settle(send);
        break;
    }
    peer->blocks.busy &= ~(1u << block);
}

const char *ucx_copied_heard(struct ucx_peer *peer, const void *what, size_t bytes)
{
    uint32_t copied;
    if (bytes != sizeof copied)
        return "loans given back in an impossible length";
    memcpy(&copied, what, sizeof copied);
    if (copied & ~peer->blocks.busy)
        return "it gives back what was not lent";
    for (uint32_t i = 0; i < UCX_BLOCKS; i++)
        if (copied & 1u << i)
            block_back(peer, i, GRADWEIR_OK);
    return NULL;
}

/* Theirs. */

/* Looked at by name before it is opened: opening may do something, where it is not a memfd. */
static int view_open(const struct ucx_blocks_offer *offer)
{
    char path[64], target[64], expected[64];
    snprintf(path, sizeof path, "/proc/%" PRIu32 "/fd/%" PRIu32, offer->pid, offer->fd);
    const int length =
        snprintf(expected, sizeof expected, "/memfd:" NAME " (deleted)", offer->nonce);
    if (readlink(path, target, sizeof target) != length ||
        memcmp(target, expected, (size_t)length) != 0)
        return -1;
    return open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
}

/* It stays as long as it is now, and is memory and not a file on a disk. */
static bool lasts(int fd)
{
    struct stat stat;
    struct statfs system;
    const int seals = fcntl(fd, F_GET_SEALS);
    return seals >= 0 && (seals & F_SEAL_SHRINK) && fstat(fd, &stat) == 0 &&
           S_ISREG(stat.st_mode) && fstatfs(fd, &system) == 0 && system.f_type == TMPFS_MAGIC &&
           (uint64_t)stat.st_size == BYTES;
}

static void view_make(struct ucx_peer *peer, const struct ucx_blocks_offer *offer)
{
    const int fd = view_open(offer);
    if (fd < 0)
        return;
    void *memory = lasts(fd) ? mmap(NULL, BYTES, PROT_READ, MAP_SHARED, fd, 0) : MAP_FAILED;
    close(fd);
    if (memory == MAP_FAILED)
        return;
    peer->view.memory = memory;
    peer->view.answer_owed = true;
    peer->ucx->views++;
    peer->ucx->tend = true;
}

const char *ucx_blocks_heard(struct ucx_peer *peer, const void *what, size_t bytes)
{
    struct ucx_blocks_offer offer;
    if (bytes != sizeof offer)
        return "an offer of memory of impossible length";
    if (peer->view.asked)
        return "a second offer of memory";
    memcpy(&offer, what, sizeof offer);
    peer->view.asked = true;
    if (lends(peer->ucx) && peer->ucx->views < VIEWS_MAX)
        view_make(peer, &offer);
    return NULL;
}

const char *ucx_loan_heard(const struct ucx_peer *peer, const void *what, struct ucx_loan *loan)
{
    memcpy(loan, what, sizeof *loan);
    if (!peer->view.memory)
        return "a body in memory that it has not lent";
    if (loan->block >= UCX_BLOCKS || loan->length == 0 || loan->length > UCX_BLOCK_BYTES)
        return "a body beyond the memory that it has lent";
    return NULL;
}

void ucx_loan_over(struct ucx_peer *peer, uint32_t block)
{
    peer->view.copied_owed |= 1u << block;
    peer->ucx->tend = true;
    if (peer->state == UCX_OPEN)
        ucx_blocks_pay(peer);
}

/* Both. */

void ucx_blocks_pay(struct ucx_peer *peer)
{
    struct ucx_view *view = &peer->view;
    if (peer->control_busy)
        return;
    if (view->copied_owed) {
        const uint32_t copied = view->copied_owed;
        view->copied_owed = 0;
        ucx_control_say(peer, UCX_AM_COPIED, &copied, sizeof copied);
    } else if (view->answer_owed) {
        view->answer_owed = false;
        ucx_control_say(peer, UCX_AM_SEEN, NULL, 0);
    } else if (peer->connecter && !peer->blocks.offered) {
        blocks_offer(peer);
    }
}

void ucx_blocks_end(struct ucx_peer *peer)
{
    for (uint32_t i = 0; i < UCX_BLOCKS; i++)
        if (peer->blocks.busy & 1u << i)
            block_back(peer, i, GRADWEIR_ERR_LOST);
    blocks_free(&peer->blocks);
    if (peer->view.memory) {
        munmap((void *)(uintptr_t)peer->view.memory, BYTES);
        peer->ucx->views--;
    }
    peer->blocks = (struct ucx_blocks){.offered = true};
    peer->view = (struct ucx_view){.asked = true};
}
