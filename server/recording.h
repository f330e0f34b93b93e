/* A recorded run: the log, and the bodies of every admitted gradient, in a folder.
 *
 *   layout.model      the model, as model_encode writes it
 *   log.records       "GWLOG02\n", then per record: u32 length, u32 CRC32C, record_encode's bytes
 *   shard-K.bodies    "GWBODY1\n", u32 shard, u32 members, u64 first, u64 elements, u64 moments,
 * then per body: u64 log index, u64 length, u32 CRC32C, u32 0, the bytes as they landed. Where
 * gradients are not float32 it is "GWBODY2\n", and members is a u16 with enum arithmetic_codec as
 * another behind it; first parameters are float32 even then
 *
 * "GWLOG01\n" begins a log from before stripes (common/README.md) were up to 8,192 elements: they
 * were up to 1,024, which changes which sums a window is made of. It is read and replayed with
 * those, so that it gives the bits of its run, and not gone on with.
 * Steps of windows of 2 by stacks, which there were then, are refused by name.
 *
 * All little-endian. Each file ends with a mark that says why: length 0 (log), index 2^64 - 1
 * (bodies), and beside it enum recording_end. A file without its mark belongs to a process that was
 * killed, and is read up to its last whole entry.
 *
 * Entries go to the kernel one by one, so a killed process loses at most the one that it was
 * writing; a killed machine may lose what was not on its disk yet.
 *
 * bytes_max bounds the folder: an eighth is the log's, the shards share the rest by what their
 * bodies weigh. Where a file's part is used up its writing ends, in whole entries, for good: the
 * run goes on, and replay goes as far as both log and bodies do. */
#ifndef GRADWEIR_SERVER_RECORDING_H
#define GRADWEIR_SERVER_RECORDING_H

#include "common/arithmetic.h"
#include "common/model.h"
#include "common/record.h"

#include <stdbool.h>

struct recording;

enum recording_end {
    RECORDING_CUT = 0,    /* no mark: the process was killed, or still writes */
    RECORDING_FULL = 1,   /* bytes_max was reached */
    RECORDING_CLOSED = 2, /* the run ended in order */
    RECORDING_BROKEN = 3  /* the disk said no, and the run went on */
};

enum recording_start {
    RECORDING_NEW,  /* ERR_STATE when the file is there already */
    RECORDING_GO_ON /* a restarted process: behind the last whole entry of its file, if it is there
                     */
};

/* Whether a shard could begin its files there, asked before there is a layout: makes the folder
 * when it is not there; ERR_STATE when it holds a recording, ERR_IO when it cannot be written. */
gradweir_status recording_try(const char *folder, uint32_t shard);

/* Makes the folder when it is not there. */
gradweir_status recording_open_log(const char *folder, uint64_t bytes_max,
                                   enum recording_start start, struct recording **recording);
/* Whose bodies, and in which numbers its gradients are. */
struct recording_part {
    uint32_t shard, members;
    enum arithmetic_codec codec;
};
gradweir_status recording_open_shard(const char *folder, const struct model *model,
                                     const struct recording_part *part, uint64_t bytes_max,
                                     enum recording_start start, struct recording **recording);

/* False when what was given is not all there: the bound, or the disk, at the latest now. NULL is
 * accepted, and whole. */
bool recording_close(struct recording *recording);

/* False once the bound is reached or the disk said no. A record may be written again, and one whose
 * index was written before takes the place of that one and of all behind it. Bodies come in rising
 * order of their index; one that is there already is not written again. */
bool recording_record(struct recording *recording, const struct record *record);
bool recording_body(struct recording *recording, uint64_t index, const void *body, uint64_t length);

/* Why writing has ended, for the log: once, and NULL before and after. */
const char *recording_news(struct recording *recording);

/* The index of the last record or body; 0: none. */
uint64_t recording_last(const struct recording *recording);

/* Reading. */
struct recording_reader;
gradweir_status recording_read(const char *folder, struct recording_reader **reader);
void recording_reader_free(struct recording_reader *reader);
const struct model *recording_model(const struct recording_reader *reader);

/* The next record: ERR_AGAIN at the end, ERR_CORRUPT with the place, ERR_UNSUPPORTED for a step
 * that only servers of before can repeat. recording_rewind starts again with the first, bodies too.
 */
gradweir_status recording_next(struct recording_reader *reader, struct record *record);
void recording_rewind(struct recording_reader *reader);

/* Which elements of which body; codec: recording_codec, or float32 for first parameters. Elements
 * begin and end at block borders of the model, or at its end. */
struct recording_piece {
    uint64_t index; /* in the log */
    enum arithmetic_codec codec;
    uint64_t first, elements;
};
enum arithmetic_codec recording_codec(const struct recording_reader *reader);

/* The longest stripes of a window by stacks in this run: shard_options.stripe_max. */
uint32_t recording_stripe_max(const struct recording_reader *reader);

/* Copies a piece's elements as they travelled, and the whole MOMENTS tail when moments is not NULL.
 * Indexes are asked for in rising order. ERR_AGAIN when a shard's file ends before it, ERR_CORRUPT
 * when the file lacks it or its checksum is wrong. */
gradweir_status recording_fetch(struct recording_reader *reader,
                                const struct recording_piece *piece, void *to,
                                struct moments *moments);

/* Why the file ends at whose end the last ERR_AGAIN came, and its name. */
enum recording_end recording_ended(const struct recording_reader *reader, const char **file);

#endif
