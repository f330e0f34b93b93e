/* Writes a recording. Entries go through stdio's buffer: the page cache is the queue, and nobody
 * waits for a disk unless it is slower than the run. */
#include "server/recording.h"

#include "common/checksum.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct recording {
    FILE *file;
    uint64_t bytes, bytes_max;
    char path[1100];
    char reason[1300]; /* "" while all is well */
};

static gradweir_status make_folder(const char *folder)
{
    if (mkdir(folder, 0777) != 0 && errno != EEXIST)
        return fail(GRADWEIR_ERR_IO, "record %s: %s", folder, strerror(errno));
    return GRADWEIR_OK;
}

static gradweir_status open_file(const char *folder, const char *name, uint64_t bytes_max,
                                 struct recording **recording)
{
    TRY(make_folder(folder));
    struct recording *made = calloc(1, sizeof *made);
    if (!made)
        return fail(GRADWEIR_ERR_NO_MEMORY, "no memory for a recording");
    made->bytes_max = bytes_max;
    snprintf(made->path, sizeof made->path, "%.1000s/%s", folder, name);
    made->file = fopen(made->path, "wx");
    if (!made->file) {
        const int error = errno;
        const gradweir_status status =
            error == EEXIST ? fail(GRADWEIR_ERR_STATE,
                                   "%s is there already: record into a new folder", made->path)
                            : fail(GRADWEIR_ERR_IO, "%s: %s", made->path, strerror(error));
        free(made);
        return status;
    }
    setvbuf(made->file, NULL, _IOFBF, 1 << 20);
    *recording = made;
    return GRADWEIR_OK;
}

/* Two pieces that belong together: both, or neither and the end. */
static bool put(struct recording *recording, const void *head, size_t head_bytes, const void *body,
                uint64_t body_bytes)
{
    if (recording->reason[0])
        return false;
    if (recording->bytes + head_bytes + body_bytes > recording->bytes_max) {
        snprintf(recording->reason, sizeof recording->reason,
                 "%s has reached record_bytes_max (%llu): what comes after cannot be replayed",
                 recording->path, (unsigned long long)recording->bytes_max);
        return false;
    }
    if (fwrite(head, 1, head_bytes, recording->file) != head_bytes ||
        fwrite(body, 1, body_bytes, recording->file) != body_bytes) {
        snprintf(recording->reason, sizeof recording->reason, "%s: %s", recording->path,
                 strerror(errno));
        return false;
    }
    recording->bytes += head_bytes + body_bytes;
    return true;
}

gradweir_status recording_open_log(const char *folder, uint64_t bytes_max,
                                   struct recording **recording)
{
    TRY(open_file(folder, "log.records", bytes_max, recording));
    put(*recording, "GWLOG01\n", 8, "", 0);
    return GRADWEIR_OK;
}

static gradweir_status write_layout(const char *folder, const struct model *model)
{
    struct recording *file;
    const size_t size = model_encoded_bytes(model);
    void *bytes = malloc(size);
    if (!bytes)
        return fail(GRADWEIR_ERR_NO_MEMORY, "no memory to write the layout");
    gradweir_status status = model_encode(model, bytes, size);
    if (status == GRADWEIR_OK)
        status = open_file(folder, "layout.model", UINT64_MAX, &file);
    if (status == GRADWEIR_OK) {
        put(file, bytes, size, "", 0);
        recording_close(file);
    }
    free(bytes);
    return status;
}

gradweir_status recording_open_shard(const char *folder, const struct model *model, uint32_t shard,
                                     uint32_t members, uint64_t bytes_max,
                                     struct recording **recording)
{
    char name[32];
    if (shard == 0)
        TRY(write_layout(folder, model));
    snprintf(name, sizeof name, "shard-%u.bodies", shard);
    TRY(open_file(folder, name, bytes_max, recording));
    const struct model_range range = model_shard(model, members, shard);
    const uint32_t who[2] = {shard, members};
    const uint64_t what[3] = {range.first, range.elements, range.moments};
    put(*recording, "GWBODY1\n", 8, who, sizeof who);
    put(*recording, what, sizeof what, "", 0);
    return GRADWEIR_OK;
}

void recording_close(struct recording *recording)
{
    if (recording)
        fclose(recording->file);
    free(recording);
}

bool recording_record(struct recording *recording, const struct record *record)
{
    uint8_t bytes[RECORD_BYTES_MAX];
    const size_t count = record_encode(record, bytes);
    const uint32_t head[2] = {(uint32_t)count, checksum_crc32c(0, bytes, count)};
    return put(recording, head, sizeof head, bytes, count);
}

bool recording_body(struct recording *recording, uint64_t index, const void *body, uint64_t length)
{
    const struct {
        uint64_t index, length;
        uint32_t crc, zero;
    } head = {index, length, checksum_crc32c(0, body, length), 0};
    return put(recording, &head, sizeof head, body, length);
}

const char *recording_reason(const struct recording *recording)
{
    return recording->reason;
}
