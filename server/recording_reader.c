/* Reads a recording; every length and checksum is tried. */
#include "server/recording.h"

#include "common/checksum.h"
#include "common/codec.h"
#include "common/law.h"
#include "server/recording_scan.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct mapped {
    const uint8_t *bytes;
    size_t count;
};

/* One shard's bodies, found by log index: bodies stand in log order, so a cursor goes with them. */
struct bodies {
    struct mapped file;
    uint64_t first, elements, moments;
    enum arithmetic_codec codec;
    size_t at; /* of the next entry */
};

struct recording_reader {
    struct model *model;
    struct mapped log;
    size_t *places;          /* of records 1, 2, 3, ... in the log */
    uint64_t count, max, at; /* records; room for them; the next one */
    size_t end_place;        /* where the log ends, or makes no sense any more */
    uint32_t members;
    struct bodies shards[MEMBERS_MAX];
    enum recording_end ended;
    char ended_file[32];
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
    if (bodies->file.count < RECORDING_BODIES_HEAD ||
        (memcmp(bytes, RECORDING_BODY_MAGIC, 8) != 0 &&
         memcmp(bytes, RECORDING_BODY_CODED, 8) != 0))
        return fail(GRADWEIR_ERR_CORRUPT, "%s/%s is no file of bodies", folder, name);
    memcpy(who, bytes + 8, sizeof who);
    if (memcmp(bytes, RECORDING_BODY_CODED, 8) == 0) {
        if (codec_name(who[1] >> 16) == NULL)
            return fail(GRADWEIR_ERR_CORRUPT, "%s/%s: gradient dtype %u is none", folder, name,
                        who[1] >> 16);
        bodies->codec = (enum arithmetic_codec)(who[1] >> 16);
        who[1] &= 0xffff;
    }
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
    bodies->at = RECORDING_BODIES_HEAD;
    *members = who[1];
    return GRADWEIR_OK;
}

static gradweir_status note_place(struct recording_reader *reader, uint64_t index, size_t place)
{
    if (index == 0 || index > reader->count + 1)
        return fail(GRADWEIR_ERR_CORRUPT,
                    "log.records: at byte %zu record %llu follows record %llu", place,
                    (unsigned long long)index, (unsigned long long)reader->count);
    if (index > reader->max) {
        const uint64_t max = reader->max ? 2 * reader->max : 1024;
        size_t *places = realloc(reader->places, (size_t)max * sizeof *places);
        if (!places)
            return fail(GRADWEIR_ERR_NO_MEMORY, "no memory for the places of %llu records",
                        (unsigned long long)max);
        reader->places = places;
        reader->max = max;
    }
    reader->places[index - 1] = place;
    reader->count = index; /* what stood behind it has been written anew */
    return GRADWEIR_OK;
}

/* Where each record lies, the last one of each index: see recording_record. What makes no sense
 * ends the list, and is told by who reads up to there. */
static gradweir_status find_places(struct recording_reader *reader)
{
    struct record *record = malloc(sizeof *record);
    if (!record)
        return fail(GRADWEIR_ERR_NO_MEMORY, "no memory for a record");
    gradweir_status status = GRADWEIR_OK;
    size_t at = RECORDING_LOG_HEAD, next = at;
    for (; status == GRADWEIR_OK; at = next) {
        enum recording_end end;
        reader->end_place = at;
        status =
            recording_scan_record(reader->log.bytes, reader->log.count, at, &next, record, &end);
        if (status == GRADWEIR_OK)
            status = note_place(reader, record->index, at);
    }
    free(record);
    return status == GRADWEIR_ERR_NO_MEMORY ? status : GRADWEIR_OK;
}

static bool begins_with(const struct mapped *log, const char *magic)
{
    return log->count >= RECORDING_LOG_HEAD && memcmp(log->bytes, magic, RECORDING_LOG_HEAD) == 0;
}

static gradweir_status read_all(const char *folder, struct recording_reader *reader)
{
    struct mapped layout = {0};
    TRY(map_file(folder, "layout.model", &layout));
    const gradweir_status status = model_decode(layout.bytes, layout.count, &reader->model);
    unmap(&layout);
    if (status != GRADWEIR_OK)
        return fail(GRADWEIR_ERR_CORRUPT, "%s/layout.model: %s", folder, fail_reason());
    TRY(map_file(folder, "log.records", &reader->log));
    if (!begins_with(&reader->log, RECORDING_LOG_MAGIC) &&
        !begins_with(&reader->log, RECORDING_LOG_BEFORE))
        return fail(GRADWEIR_ERR_CORRUPT, "%s/log.records is no log", folder);
    TRY(find_places(reader));
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
    free(reader->places);
    free(reader);
}

uint32_t recording_stripe_max(const struct recording_reader *reader)
{
    return begins_with(&reader->log, RECORDING_LOG_BEFORE) ? LAW_STRIPE_MAX_BEFORE : LAW_STRIPE_MAX;
}

const struct model *recording_model(const struct recording_reader *reader)
{
    return reader->model;
}

static gradweir_status ended(struct recording_reader *reader, const char *file,
                             enum recording_end end)
{
    snprintf(reader->ended_file, sizeof reader->ended_file, "%s", file);
    reader->ended = end;
    return GRADWEIR_ERR_AGAIN;
}

static gradweir_status behind_the_mark(const char *file, size_t bytes)
{
    return fail(GRADWEIR_ERR_CORRUPT,
                "%s: %zu bytes stand behind the mark at its end: somebody else wrote into it", file,
                bytes);
}

static struct recording_lengths lengths_of(const struct bodies *bodies)
{
    const uint64_t tail = bodies->moments * sizeof(struct moments);
    return (struct recording_lengths){
        .gradient = codec_bytes(bodies->codec, bodies->elements) + tail,
        .first = codec_bytes(ARITHMETIC_F32, bodies->elements) + tail};
}

/* What stands between the last body that was asked for and the end of its file. */
static gradweir_status check_bodies_end(struct recording_reader *reader, uint32_t shard)
{
    const struct bodies *bodies = &reader->shards[shard];
    const struct recording_lengths lengths = lengths_of(bodies);
    const bool due = lengths.first > 0; /* else the file is a head and nothing more */
    size_t at = bodies->at, next = at;
    enum recording_end end = RECORDING_CLOSED;
    gradweir_status status = due ? GRADWEIR_OK : GRADWEIR_ERR_AGAIN;
    uint64_t index;
    char name[32];
    snprintf(name, sizeof name, "shard-%u.bodies", shard);
    for (; status == GRADWEIR_OK; at = status == GRADWEIR_OK ? next : at)
        status = recording_scan_body(bodies->file.bytes, bodies->file.count, at, &next, &index,
                                     &lengths, &end);
    if (status != GRADWEIR_ERR_AGAIN)
        return fail(GRADWEIR_ERR_CORRUPT, "%s: behind the last body: %s", name, fail_reason());
    if (end == RECORDING_CUT) { /* of the files, this one has no end */
        snprintf(reader->ended_file, sizeof reader->ended_file, "%s", name);
        reader->ended = end;
    } else if (due && bodies->file.count > at + RECORDING_BODY_HEAD) {
        return behind_the_mark(name, bodies->file.count - at - RECORDING_BODY_HEAD);
    }
    return GRADWEIR_OK;
}

/* The log has ended at `place`: so have the files, and nothing stands behind their ends. */
static gradweir_status check_ends(struct recording_reader *reader, size_t place)
{
    const enum recording_end end = reader->ended;
    if (end == RECORDING_CUT)
        return GRADWEIR_ERR_AGAIN;
    if (reader->log.count > place + RECORDING_RECORD_HEAD)
        return behind_the_mark("log.records", reader->log.count - place - RECORDING_RECORD_HEAD);
    for (uint32_t i = 0; i < reader->members && end == RECORDING_CLOSED; i++)
        TRY(check_bodies_end(reader, i));
    return GRADWEIR_ERR_AGAIN;
}

/* Such a step's sums were made by a schedule that is no more. */
static gradweir_status check_stacks(const struct recording_reader *reader,
                                    const struct record *record)
{
    if (record->kind != RECORD_STEP || record->step.algorithm != STEP_STACKS ||
        record->step.stacks.window > 2 || !begins_with(&reader->log, RECORDING_LOG_BEFORE))
        return GRADWEIR_OK;
    return fail(
        GRADWEIR_ERR_UNSUPPORTED,
        "record %llu: the step to version %llu averages a window of 2 by stacks, as servers "
        "did whose logs begin with GWLOG01; this one cannot give its bits: replay it with "
        "the gradweir-server that recorded it",
        (unsigned long long)record->index, (unsigned long long)record->step.version);
}

gradweir_status recording_next(struct recording_reader *reader, struct record *record)
{
    size_t next = 0;
    enum recording_end end;
    const bool last = reader->at == reader->count;
    const size_t place = last ? reader->end_place : reader->places[reader->at];
    const gradweir_status status =
        recording_scan_record(reader->log.bytes, reader->log.count, place, &next, record, &end);
    if (status == GRADWEIR_ERR_AGAIN) {
        ended(reader, "log.records", end);
        return check_ends(reader, place);
    }
    TRY(status);
    if (last) /* it is whole, and yet was not listed */
        return note_place(reader, record->index, place);
    reader->at++;
    return check_stacks(reader, record);
}

void recording_rewind(struct recording_reader *reader)
{
    reader->at = 0;
    for (uint32_t i = 0; i < reader->members; i++)
        reader->shards[i].at = RECORDING_BODIES_HEAD;
}

enum recording_end recording_ended(const struct recording_reader *reader, const char **file)
{
    *file = reader->ended_file;
    return reader->ended;
}

/* The body of this index, or an error: bodies are asked for in log order. */
static gradweir_status find_body(struct bodies *bodies, const struct recording_piece *piece,
                                 const uint8_t **body, enum recording_end *end)
{
    const uint64_t tail = bodies->moments * sizeof(struct moments), index = piece->index;
    const struct recording_lengths lengths = lengths_of(bodies);
    const uint64_t due = codec_bytes(piece->codec, bodies->elements) + tail;
    for (;;) {
        size_t next = 0;
        uint64_t found = 0, head[3];
        TRY(recording_scan_body(bodies->file.bytes, bodies->file.count, bodies->at, &next, &found,
                                &lengths, end));
        if (found > index)
            return fail(GRADWEIR_ERR_CORRUPT, "the recording has no body for log index %llu",
                        (unsigned long long)index);
        const uint8_t *place = bodies->file.bytes + bodies->at;
        memcpy(head, place, sizeof head);
        *body = place + RECORDING_BODY_HEAD;
        if (found < index) {
            bodies->at = next;
            continue;
        }
        if (head[1] != due)
            return fail(GRADWEIR_ERR_CORRUPT, "the body of log index %llu is not %s",
                        (unsigned long long)index, codec_name(piece->codec));
        if (checksum_crc32c(0, *body, due) != (uint32_t)head[2])
            return fail(GRADWEIR_ERR_CORRUPT, "the body of log index %llu has a wrong checksum",
                        (unsigned long long)index);
        return GRADWEIR_OK;
    }
}

enum arithmetic_codec recording_codec(const struct recording_reader *reader)
{
    return reader->shards[0].codec;
}

static void copy_out(const struct bodies *bodies, const struct recording_piece *piece,
                     const uint8_t *body, uint8_t *to)
{
    const uint64_t last = bodies->first + bodies->elements, wanted = piece->first + piece->elements;
    const uint64_t begin = piece->first > bodies->first ? piece->first : bodies->first;
    const uint64_t end = wanted < last ? wanted : last;
    if (begin < end)
        memcpy(to + codec_bytes(piece->codec, begin - piece->first),
               body + codec_bytes(piece->codec, begin - bodies->first),
               codec_bytes(piece->codec, end - begin));
}

gradweir_status recording_fetch(struct recording_reader *reader,
                                const struct recording_piece *piece, void *to,
                                struct moments *moments)
{
    for (uint32_t i = 0; i < reader->members; i++) {
        struct bodies *bodies = &reader->shards[i];
        const bool tail = moments && bodies->moments;
        if ((piece->first >= bodies->first + bodies->elements ||
             bodies->first >= piece->first + piece->elements) &&
            !tail)
            continue;
        const uint8_t *body = NULL;
        enum recording_end why;
        const gradweir_status status = find_body(bodies, piece, &body, &why);
        if (status == GRADWEIR_ERR_AGAIN) {
            char name[32];
            snprintf(name, sizeof name, "shard-%u.bodies", i);
            return ended(reader, name, why);
        }
        TRY(status);
        copy_out(bodies, piece, body, to);
        if (tail)
            memcpy(moments, body + codec_bytes(piece->codec, bodies->elements),
                   bodies->moments * sizeof(struct moments));
    }
    return GRADWEIR_OK;
}
