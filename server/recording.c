/* Writes a recording. The page cache is the queue: nobody waits for a disk unless it is slower than
 * the run. */
#include "server/recording.h"

#include "common/checksum.h"
#include "common/codec.h"
#include "server/recording_scan.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

struct recording {
    int fd;
    uint64_t bytes, bytes_max;
    uint64_t mark_bytes;             /* what the mark at the end takes; 0: this file has none */
    struct recording_lengths bodies; /* of a file of bodies; else 0 */
    uint64_t last;
    char path[1100];
    char reason[1300]; /* "" while all is well */
    bool told;
};

/* What was found at the beginning of a file that is to be gone on with. */
struct found {
    const uint8_t *bytes;
    size_t count;
};

static gradweir_status make_folder(const char *folder)
{
    return mkdir(folder, 0777) == 0 || errno == EEXIST
               ? GRADWEIR_OK
               : fail(GRADWEIR_ERR_IO, "record %s: %s", folder, strerror(errno));
}

static gradweir_status is_absent(const char *folder, const char *name)
{
    char path[1100];
    snprintf(path, sizeof path, "%.1000s/%s", folder, name);
    return access(path, F_OK) != 0
               ? GRADWEIR_OK
               : fail(GRADWEIR_ERR_STATE, "%s is there already: record into a new folder", path);
}

gradweir_status recording_try(const char *folder, uint32_t shard)
{
    char name[32];
    snprintf(name, sizeof name, "shard-%u.bodies", shard);
    TRY(make_folder(folder));
    if (access(folder, W_OK | X_OK) != 0)
        return fail(GRADWEIR_ERR_IO, "record %s: %s", folder, strerror(errno));
    if (shard == 0)
        TRY(is_absent(folder, "log.records"));
    return is_absent(folder, name);
}

static gradweir_status open_file(const char *folder, const char *name, enum recording_start start,
                                 struct recording **recording)
{
    TRY(make_folder(folder));
    struct recording *made = calloc(1, sizeof *made);
    if (!made)
        return fail(GRADWEIR_ERR_NO_MEMORY, "no memory for a recording");
    snprintf(made->path, sizeof made->path, "%.1000s/%s", folder, name);
    made->bytes_max = UINT64_MAX;
    made->fd = open(made->path,
                    O_RDWR | O_CREAT | O_CLOEXEC | (start == RECORDING_NEW ? O_EXCL : 0), 0666);
    if (made->fd < 0) {
        const int error = errno;
        const gradweir_status status =
            error == EEXIST ? fail(GRADWEIR_ERR_STATE,
                                   "%s is there already: record into a new folder", made->path)
                            : fail(GRADWEIR_ERR_IO, "%s: %s", made->path, strerror(error));
        free(made);
        return status;
    }
    *recording = made;
    return GRADWEIR_OK;
}

/* All of it, in as many calls as the kernel wants; false when the disk says no. */
static bool write_all(int fd, struct iovec *pieces, int count)
{
    while (count > 0) {
        const ssize_t written = writev(fd, pieces, count);
        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0)
            return false;
        size_t rest = (size_t)written;
        while (count > 0 && rest >= pieces->iov_len) {
            rest -= pieces->iov_len;
            pieces++;
            count--;
        }
        if (count > 0) {
            pieces->iov_base = (char *)pieces->iov_base + rest;
            pieces->iov_len -= rest;
        }
    }
    return true;
}

static struct iovec piece(const void *bytes, uint64_t count)
{
    struct iovec piece = {.iov_len = (size_t)count};
    memcpy(&piece.iov_base, &bytes, sizeof bytes); /* writev reads, but is declared without const */
    return piece;
}

static bool put_mark(struct recording *recording, enum recording_end end)
{
    const struct recording_mark body = {.index = UINT64_MAX, .end = end};
    const uint32_t record[2] = {0, end};
    struct iovec mark =
        recording->bodies.first ? piece(&body, sizeof body) : piece(record, sizeof record);
    return recording->mark_bytes == 0 || write_all(recording->fd, &mark, 1);
}

/* What was written of an entry that did not fit goes, so that the mark fits in its place. */
static void put_broken_mark(struct recording *recording)
{
    if (ftruncate(recording->fd, (off_t)recording->bytes) == 0 &&
        lseek(recording->fd, 0, SEEK_END) >= 0)
        (void)put_mark(recording, RECORDING_BROKEN);
}

/* Two pieces that belong together: both, or neither and the end. */
static bool put(struct recording *recording, const void *head, size_t head_bytes, const void *body,
                uint64_t body_bytes)
{
    struct iovec pieces[2] = {piece(head, head_bytes), piece(body, body_bytes)};
    if (recording->reason[0])
        return false;
    if (recording->bytes + head_bytes + body_bytes + recording->mark_bytes > recording->bytes_max) {
        snprintf(recording->reason, sizeof recording->reason,
                 "%s has used up its part of record_bytes_max, %llu bytes: the run goes on, but "
                 "what comes from here on cannot be replayed",
                 recording->path, (unsigned long long)recording->bytes_max);
        (void)put_mark(recording, RECORDING_FULL);
        return false;
    }
    if (!write_all(recording->fd, pieces, 2)) {
        snprintf(recording->reason, sizeof recording->reason,
                 "%s: %s: the run goes on, but what comes from here on cannot be replayed",
                 recording->path, strerror(errno));
        put_broken_mark(recording);
        return false;
    }
    recording->bytes += head_bytes + body_bytes;
    return true;
}

static gradweir_status map_found(const struct recording *recording, struct found *found)
{
    struct stat info;
    *found = (struct found){0};
    if (fstat(recording->fd, &info) != 0)
        return fail(GRADWEIR_ERR_IO, "%s: %s", recording->path, strerror(errno));
    if (info.st_size == 0)
        return GRADWEIR_OK;
    void *bytes = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, recording->fd, 0);
    if (bytes == MAP_FAILED)
        return fail(GRADWEIR_ERR_IO, "%s: %s", recording->path, strerror(errno));
    *found = (struct found){.bytes = bytes, .count = (size_t)info.st_size};
    return GRADWEIR_OK;
}

/* The end of the last whole entry, from the file's head on. */
static size_t whole_end(struct recording *recording, const struct found *found, size_t at,
                        enum recording_end *end)
{
    struct record *record = malloc(sizeof *record);
    gradweir_status status = record ? GRADWEIR_OK : GRADWEIR_ERR_NO_MEMORY;
    while (status == GRADWEIR_OK) {
        uint64_t index = 0;
        size_t next = at;
        status = recording->bodies.first
                     ? recording_scan_body(found->bytes, found->count, at, &next, &index,
                                           &recording->bodies, end)
                     : recording_scan_record(found->bytes, found->count, at, &next, record, end);
        if (status == GRADWEIR_OK)
            recording->last = recording->bodies.first ? index : record->index;
        at = next;
    }
    free(record);
    return at;
}

/* Starts the file with `head`, or goes on behind what is there when it starts so. */
static gradweir_status begin(struct recording *recording, const void *head, size_t head_bytes)
{
    struct found found;
    enum recording_end end = RECORDING_CUT;
    TRY(map_found(recording, &found));
    gradweir_status status = GRADWEIR_OK;
    if (found.count == 0) {
        put(recording, head, head_bytes, "", 0);
    } else if (found.count < head_bytes || memcmp(found.bytes, head, head_bytes) != 0) {
        status = fail(GRADWEIR_ERR_STATE, "%s belongs to another run: record into a new folder",
                      recording->path);
    } else {
        recording->bytes = whole_end(recording, &found, head_bytes, &end);
        if (end == RECORDING_FULL)
            snprintf(recording->reason, sizeof recording->reason,
                     "%s had used up its part of record_bytes_max before", recording->path);
        else if (end == RECORDING_BROKEN)
            snprintf(recording->reason, sizeof recording->reason,
                     "%s could not be written before: it is not gone on with", recording->path);
        else if (ftruncate(recording->fd, (off_t)recording->bytes) != 0 ||
                 lseek(recording->fd, 0, SEEK_END) < 0)
            status = fail(GRADWEIR_ERR_IO, "%s: %s", recording->path, strerror(errno));
    }
    if (found.count) {
        void *bytes;
        memcpy(&bytes, &found.bytes, sizeof bytes);
        munmap(bytes, found.count);
    }
    return status;
}

static gradweir_status begin_or_close(struct recording **recording, const void *head,
                                      size_t head_bytes)
{
    const gradweir_status status = begin(*recording, head, head_bytes);
    if (status != GRADWEIR_OK) {
        close((*recording)->fd);
        free(*recording);
        *recording = NULL;
    }
    return status;
}

gradweir_status recording_open_log(const char *folder, uint64_t bytes_max,
                                   enum recording_start start, struct recording **recording)
{
    TRY(open_file(folder, "log.records", start, recording));
    (*recording)->bytes_max = bytes_max / 8;
    (*recording)->mark_bytes = RECORDING_RECORD_HEAD;
    return begin_or_close(recording, RECORDING_LOG_MAGIC, RECORDING_LOG_HEAD);
}

static gradweir_status write_layout(const char *folder, const struct model *model,
                                    enum recording_start start)
{
    struct recording *file;
    const size_t size = model_encoded_bytes(model);
    void *bytes = malloc(size);
    if (!bytes)
        return fail(GRADWEIR_ERR_NO_MEMORY, "no memory to write the layout");
    gradweir_status status = model_encode(model, bytes, size);
    if (status == GRADWEIR_OK)
        status = open_file(folder, "layout.model", start, &file);
    if (status == GRADWEIR_OK) {
        status = begin_or_close(&file, bytes, size);
        if (status == GRADWEIR_OK && !recording_close(file))
            status = fail(GRADWEIR_ERR_IO, "%s/layout.model: %s", folder, strerror(errno));
    }
    free(bytes);
    return status;
}

static uint64_t body_bytes_of(uint64_t elements, uint64_t moments)
{
    return elements * sizeof(float) + moments * sizeof(struct moments);
}

/* Only what is not float32 needs to be said: such files are as they always were. */
static void head_of(const struct recording_part *part, const struct model_range *range,
                    uint8_t head[RECORDING_BODIES_HEAD])
{
    const bool coded = part->codec != ARITHMETIC_F32;
    const uint32_t who[2] = {part->shard, part->members | (uint32_t)part->codec << 16};
    const uint64_t what[3] = {range->first, range->elements, range->moments};
    memcpy(head, coded ? RECORDING_BODY_CODED : RECORDING_BODY_MAGIC, 8);
    memcpy(head + 8, who, sizeof who);
    memcpy(head + 16, what, sizeof what);
}

gradweir_status recording_open_shard(const char *folder, const struct model *model,
                                     const struct recording_part *part, uint64_t bytes_max,
                                     enum recording_start start, struct recording **recording)
{
    char name[32];
    if (part->shard == 0)
        TRY(write_layout(folder, model, start));
    snprintf(name, sizeof name, "shard-%u.bodies", part->shard);
    TRY(open_file(folder, name, start, recording));
    const struct model_range range = model_shard(model, part->members, part->shard);
    uint8_t head[RECORDING_BODIES_HEAD];
    head_of(part, &range, head);
    const uint64_t body = body_bytes_of(range.elements, range.moments);
    const double share = (double)body / (double)body_bytes_of(model->elements, model->moments);
    (*recording)->bytes_max = bytes_max == UINT64_MAX
                                  ? bytes_max
                                  : (uint64_t)((double)(bytes_max - bytes_max / 8) * share) +
                                        RECORDING_BODIES_HEAD + RECORDING_BODY_HEAD;
    (*recording)->bodies =
        (struct recording_lengths){.gradient = codec_bytes(part->codec, range.elements) +
                                               range.moments * sizeof(struct moments),
                                   .first = body};
    (*recording)->mark_bytes = body ? RECORDING_BODY_HEAD : 0;
    return begin_or_close(recording, head, sizeof head);
}

bool recording_close(struct recording *recording)
{
    if (!recording)
        return true;
    bool whole = recording->reason[0] == 0 && put_mark(recording, RECORDING_CLOSED);
    whole = close(recording->fd) == 0 && whole;
    free(recording);
    return whole;
}

bool recording_record(struct recording *recording, const struct record *record)
{
    uint8_t bytes[RECORD_BYTES_MAX];
    const size_t count = record_encode(record, bytes);
    const uint32_t head[2] = {(uint32_t)count, checksum_crc32c(0, bytes, count)};
    recording->last = record->index;
    return put(recording, head, sizeof head, bytes, count);
}

bool recording_body(struct recording *recording, uint64_t index, const void *body, uint64_t length)
{
    const struct {
        uint64_t index, length;
        uint32_t crc, zero;
    } head = {index, length, checksum_crc32c(0, body, length), 0};
    if (recording->reason[0])
        return false;
    if (index <= recording->last)
        return true;
    recording->last = index;
    return put(recording, &head, sizeof head, body, length);
}

const char *recording_news(struct recording *recording)
{
    if (!recording->reason[0] || recording->told)
        return NULL;
    recording->told = true;
    return recording->reason;
}

uint64_t recording_last(const struct recording *recording)
{
    return recording->last;
}
