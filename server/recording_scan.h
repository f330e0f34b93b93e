/* The entries of a recording's files, as writer and reader see them. */
#ifndef GRADWEIR_SERVER_RECORDING_SCAN_H
#define GRADWEIR_SERVER_RECORDING_SCAN_H

#include "common/record.h"
#include "server/recording.h"

/* BEFORE: windows by stacks had stripes of up to LAW_STRIPE_MAX_BEFORE elements. */
#define RECORDING_LOG_MAGIC  "GWLOG02\n"
#define RECORDING_LOG_BEFORE "GWLOG01\n"
#define RECORDING_BODY_MAGIC "GWBODY1\n"
#define RECORDING_BODY_CODED "GWBODY2\n" /* gradients are not float32 */

enum {
    RECORDING_LOG_HEAD = 8, /* of the file */
    RECORDING_BODIES_HEAD = 40,
    RECORDING_RECORD_HEAD = 8, /* of an entry; a mark is a head alone */
    RECORDING_BODY_HEAD = 24
};

struct recording_mark {
    uint64_t index; /* UINT64_MAX */
    uint64_t end;
    uint64_t zero;
};

/* Bytes of a body: a gradient, or first parameters, which are float32. */
struct recording_lengths {
    uint64_t gradient, first;
};

/* Looks at the entry at `at` of a file's bytes. OK: it is whole, *next is behind it. ERR_AGAIN: the
 * bytes end, in order or within it, or it is a mark, *end then tells which. ERR_CORRUPT: it is no
 * entry. Checksums of bodies are not tried here. */
gradweir_status recording_scan_record(const uint8_t *bytes, size_t count, size_t at, size_t *next,
                                      struct record *record, enum recording_end *end);
gradweir_status recording_scan_body(const uint8_t *bytes, size_t count, size_t at, size_t *next,
                                    uint64_t *index, const struct recording_lengths *lengths,
                                    enum recording_end *end);

#endif
