/* A recorded run: the log, and the bodies of every admitted gradient, in a folder.
 *
 *   layout.model      the model, as model_encode writes it
 *   log.records       "GWLOG01\n", then per record: u32 length, u32 CRC32C, record_encode's bytes
 *   shard-K.bodies    "GWBODY1\n", u32 shard, u32 members, u64 first, u64 elements, u64 moments,
 * then per body: u64 log index, u64 length, u32 CRC32C, u32 0, the bytes as they landed
 *
 * All little-endian. Writing stops at the bound, in whole entries, and says so once. A file that
 * was cut short (a killed process) is read up to its last whole entry. */
#ifndef GRADWEIR_SERVER_RECORDING_H
#define GRADWEIR_SERVER_RECORDING_H

#include "common/model.h"
#include "common/record.h"

#include <stdbool.h>

struct recording;

/* Makes the folder when it is not there; ERR_STATE when it holds a recording already. */
gradweir_status recording_open_log(const char *folder, uint64_t bytes_max,
                                   struct recording **recording);
gradweir_status recording_open_shard(const char *folder, const struct model *model, uint32_t shard,
                                     uint32_t members, uint64_t bytes_max,
                                     struct recording **recording);
void recording_close(struct recording *recording); /* NULL is accepted */

/* False once the bound is reached or the disk said no; recording_reason then tells why. */
bool recording_record(struct recording *recording, const struct record *record);
bool recording_body(struct recording *recording, uint64_t index, const void *body, uint64_t length);
const char *recording_reason(const struct recording *recording);

/* Reading. */
struct recording_reader;
gradweir_status recording_read(const char *folder, struct recording_reader **reader);
void recording_reader_free(struct recording_reader *reader);
const struct model *recording_model(const struct recording_reader *reader);

/* The next record: ERR_AGAIN at the end, ERR_CORRUPT with the place. */
gradweir_status recording_next(struct recording_reader *reader, struct record *record);

/* Copies `elements` floats from `first` on of the body of this log index, and the whole MOMENTS
 * tail when moments is not NULL. Indexes are asked for in rising order. ERR_AGAIN when a shard's
 * file ends before it (it was cut short), ERR_CORRUPT when the file lacks it or its checksum is
 * wrong. */
gradweir_status recording_fetch(struct recording_reader *reader, uint64_t index, uint64_t first,
                                uint64_t elements, float *floats, struct moments *moments);

#endif
