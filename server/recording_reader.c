/* Reads a recording; every length and checksum is tried. */
#include "server/recording.h"

#include "common/checksum.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILE_HEAD = 40, BODY_HEAD = 24 };

struct mapped {
    const uint8_t *bytes;
    size_t count;
};

/* One shard's bodies, found by log index: bodies stand in log order, so a cursor goes with them. */
struct bodies {
    struct mapped file;
    uint64_t first, elements, moments;
    size_t at; /* of the next entry */
};

struct recording_reader {
    struct model *model;
    struct mapped log;
    size_t at;
    uint32_t members;
    struct bodies shards[MEMBERS_MAX];
};

static gradweir_status map_file(const char *folder, const char *name, struct mapped *file)
{
    char path[1100];
    struct stat info;
    snprintf(path, sizeof path, "%.1000s/%s", folder, name);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &info) != 0) {
        const int error = errno;
        if (fd >= 0)
            close(fd);
        return fail(GRADWEIR_ERR_IO, "%s: %s", path, strerror(error));
    }
    void *bytes = info.st_size == 0
                      ? MAP_FAILED
                      : mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    close(fd);
    if (bytes == MAP_FAILED)
        return fail(GRADWEIR_ERR_IO, "%s is empty or cannot be mapped", path);
    *file = (struct mapped){.bytes = bytes, .count = (size_t)info.st_size};
    return GRADWEIR_OK;
}

static void unmap(struct mapped *file)
{
    if (!file->bytes)
        return;
    const void *bytes = file->bytes;
    void *address;
    memcpy(&address, &bytes, sizeof address);
    munmap(address, file->count);
}

static gradweir_status read_shard(const char *folder, const struct model *model, uint32_t shard,
                                  struct bodies *bodies, uint32_t *members)
{
    char name[32];
    snprintf(name, sizeof name, "shard-%u.bodies", shard);
    TRY(map_file(folder, name, &bodies->file));
    const uint8_t *bytes = bodies->file.bytes;
    uint32_t who[2];
    uint64_t what[3];
    if (bodies->file.count < FILE_HEAD || memcmp(bytes, "GWBODY1\n", 8) != 0)
        return fail(GRADWEIR_ERR_CORRUPT, "%s/%s is no file of bodies", folder, name);
    memcpy(who, bytes + 8, sizeof who);
    memcpy(what, bytes + 16, sizeof what);
    if (who[0] != shard || who[1] == 0 || who[1] > MEMBERS_MAX || shard >= who[1])
        return fail(GRADWEIR_ERR_CORRUPT, "%s/%s says it is shard %u of %u", folder, name, who[0],
                    who[1]);
    const struct model_range range = model_shard(model, who[1], shard);
    if (what[0] != range.first || what[1] != range.elements || what[2] != range.moments)
        return fail(GRADWEIR_ERR_CORRUPT, "%s/%s has another range than the layout gives", folder,
                    name);
    bodies->first = what[0];
    bodies->elements = what[1];
    bodies->moments = what[2];
    bodies->at = FILE_HEAD;
    *members = who[1];
    return GRADWEIR_OK;
}

static gradweir_status read_all(const char *folder, struct recording_reader *reader)
{
    struct mapped layout = {0};
    TRY(map_file(folder, "layout.model", &layout));
    const gradweir_status status = model_decode(layout.bytes, layout.count, &reader->model);
    unmap(&layout);
    TRY(status);
    TRY(map_file(folder, "log.records", &reader->log));
    if (reader->log.count < 8 || memcmp(reader->log.bytes, "GWLOG01\n", 8) != 0)
        return fail(GRADWEIR_ERR_CORRUPT, "%s/log.records is no log", folder);
    reader->at = 8;
    uint32_t members = 1;
    for (uint32_t i = 0; i < members; i++) {
        TRY(read_shard(folder, reader->model, i, &reader->shards[i], &members));
        reader->members = members;
    }
    return GRADWEIR_OK;
}

gradweir_status recording_read(const char *folder, struct recording_reader **reader)
{
    struct recording_reader *made = calloc(1, sizeof *made);
    if (!made)
        return fail(GRADWEIR_ERR_NO_MEMORY, "no memory to read a recording");
    const gradweir_status status = read_all(folder, made);
    if (status != GRADWEIR_OK) {
        recording_reader_free(made);
        return status;
    }
    *reader = made;
    return GRADWEIR_OK;
}

void recording_reader_free(struct recording_reader *reader)
{
    if (!reader)
        return;
    for (uint32_t i = 0; i < MEMBERS_MAX; i++)
        unmap(&reader->shards[i].file);
    unmap(&reader->log);
    model_free(reader->model);
    free(reader);
}

const struct model *recording_model(const struct recording_reader *reader)
{
    return reader->model;
}

gradweir_status recording_next(struct recording_reader *reader, struct record *record)
{
    uint32_t head[2];
    const size_t rest = reader->log.count - reader->at;
    if (rest < sizeof head)
        return GRADWEIR_ERR_AGAIN;
    const uint8_t *place = reader->log.bytes + reader->at;
    memcpy(head, place, sizeof head);
    if (head[0] > rest - sizeof head)
        return GRADWEIR_ERR_AGAIN;
    if (checksum_crc32c(0, place + sizeof head, head[0]) != head[1])
        return fail(GRADWEIR_ERR_CORRUPT,
                    "log.records: the record at byte %zu has a wrong checksum", reader->at);
    TRY(record_decode(place + sizeof head, head[0], record));
    reader->at += sizeof head + head[0];
    return GRADWEIR_OK;
}

/* The body of this index, or an error: bodies are asked for in log order. */
static gradweir_status find_body(struct bodies *bodies, uint64_t index, const uint8_t **body)
{
    while (bodies->file.count - bodies->at >= BODY_HEAD) {
        uint64_t head[3];
        const uint8_t *place = bodies->file.bytes + bodies->at;
        memcpy(head, place, sizeof head);
        const uint64_t due =
            bodies->elements * sizeof(float) + bodies->moments * sizeof(struct moments);
        if (head[0] > index || head[1] != due)
            return fail(GRADWEIR_ERR_CORRUPT, "the recording has no body for log index %llu",
                        (unsigned long long)index);
        if (due > bodies->file.count - bodies->at - BODY_HEAD)
            break;
        if (head[0] < index) {
            bodies->at += BODY_HEAD + head[1];
            continue;
        }
        *body = place + BODY_HEAD;
        if (checksum_crc32c(0, *body, head[1]) != (uint32_t)head[2])
            return fail(GRADWEIR_ERR_CORRUPT, "the body of log index %llu has a wrong checksum",
                        (unsigned long long)index);
        return GRADWEIR_OK;
    }
    return GRADWEIR_ERR_AGAIN;
}

gradweir_status recording_fetch(struct recording_reader *reader, uint64_t index, uint64_t first,
                                uint64_t elements, float *floats, struct moments *moments)
{
    for (uint32_t i = 0; i < reader->members; i++) {
        struct bodies *bodies = &reader->shards[i];
        const uint64_t begin = first > bodies->first ? first : bodies->first;
        const uint64_t last = bodies->first + bodies->elements;
        const uint64_t end = first + elements < last ? first + elements : last;
        const bool tail = moments && bodies->moments;
        if (begin >= end && !tail)
            continue;
        const uint8_t *body = NULL;
        TRY(find_body(bodies, index, &body));
        if (begin < end)
            memcpy(floats + (begin - first), body + (begin - bodies->first) * sizeof(float),
                   (end - begin) * sizeof(float));
        if (tail)
            memcpy(moments, body + bodies->elements * sizeof(float),
                   bodies->moments * sizeof(struct moments));
    }
    return GRADWEIR_OK;
}
