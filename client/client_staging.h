/* Floats out of a device's memory and into it, by way of a ring of pinned memory of the host.
 *
 *     device memory --copy of slot k+2--> ring --slot k+1 is there--> slot k is encoded and sent
 *
 * Reading: a stream of bytes is described by its stretches and taken in order, a piece at a time;
 * while a piece is looked at, copies into all other slots are under way. Writing: pieces are put
 * into slots, and leave while the next are filled. The ring is all the memory it takes. Device
 * memory is touched by the device's copy jobs alone. One thread at a time; a stream at a time. */
#ifndef GRADWEIR_CLIENT_CLIENT_STAGING_H
#define GRADWEIR_CLIENT_CLIENT_STAGING_H

#include "common/device.h"

/* Three of the arithmetic's blocks as float32: neither such a block nor an element of MOMENTS (24
 * bytes) crosses two slots. */
#define STAGING_SLOT      ((size_t)3 * ARITHMETIC_BLOCK * sizeof(float))
#define STAGING_SLOTS_MAX 2048
#define STAGING_BYTES     ((uint64_t)16 << 20)

/* A piece of a stream that lies in one place. */
struct staging_stretch {
    const void *from; /* NULL: zeros */
    uint64_t bytes;   /* from where it was asked for to its end; more than 0 */
    bool far;         /* in the device's memory; else in the host's */
};

struct staging_source {
    /* What is at byte `at` of the stream. Asked for in order. */
    void (*find)(void *context, uint64_t at, struct staging_stretch *stretch);
    void *context;
};

struct staging {
    const struct device *device; /* borrowed, and its state */
    struct device_state *state;
    uint8_t *ring;
    uint32_t slots;
    uint64_t given, done;              /* jobs, since the start */
    uint64_t needs[STAGING_SLOTS_MAX]; /* copies that are done once the slot may be touched */
    struct staging_source source;      /* of the stream that is read */
    uint8_t *target;                   /* where it goes, pinned; NULL: into the ring */
    uint64_t asked, read, end;         /* bytes of it: copies begun, handed out, all */
    uint64_t put;                      /* bytes put into the ring by staging_write */
    uint32_t largest_bits;  /* of the encodings that are done, since somebody set it to 0 */
    gradweir_status broken; /* OK, or why it works no more */
    char reason[256];
};

/* Takes the ring: `bytes` rounded down to slots, at least two, and pinned. ERR_NO_MEMORY,
 * ERR_UNSUPPORTED. deinit waits (within bounds) for copies that are under way. */
gradweir_status staging_init(struct staging *staging, const struct device *device,
                             struct device_state *state, uint64_t bytes);
void staging_deinit(struct staging *staging);

/* Begins a stream of `bytes` bytes, and its first copies. What was under way is waited for. target:
 * pinned memory of so many bytes where the stream is to be, or NULL: in the ring, piece by piece.
 */
gradweir_status staging_read_begin(struct staging *staging, const struct staging_source *source,
                                   uint64_t bytes, uint8_t *target);

/* The next `length` bytes, in one row: at most to the end of the stream and of the slot (whose
 * length is STAGING_SLOT); *data is valid until the next call. */
gradweir_status staging_read(struct staging *staging, uint64_t length, const void **data);

/* How many bytes staging_read can give in one row; 0: the stream has ended. */
uint64_t staging_room(const struct staging *staging);

/* Copies host memory to the device's; the host's may change when it returns, the device's is whole
 * once staging_flush has said OK. */
gradweir_status staging_write(struct staging *staging, const void *from, void *to, uint64_t bytes);
gradweir_status staging_flush(struct staging *staging);

/* Other jobs of the same device, in the order given with all copies: an encoding (*ticket: of its
 * end), its way back, a copy within the device's memory. ERR_FULL: the device has as many jobs as
 * it takes, and it is nobody's fault. wait: until that ticket's job is done; wait_one: until one
 * more is. */
gradweir_status staging_encode(struct staging *staging, const struct device_encode *job,
                               uint64_t *ticket);
gradweir_status staging_give_back(struct staging *staging, const struct device_give_back *job);
gradweir_status staging_copy(struct staging *staging, const void *from, void *to, uint64_t bytes);
gradweir_status staging_wait(struct staging *staging, uint64_t ticket);
gradweir_status staging_wait_one(struct staging *staging);

/* ERR_LOST and the like, with the reason, when an earlier copy failed: nothing works any more. */
gradweir_status staging_whole(const struct staging *staging);

#endif
