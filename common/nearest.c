/* Levenshtein's distance, one row at a time. */
#include "common/nearest.h"

#include <stdbool.h>
#include <string.h>

enum { NAME_BYTES_MAX = 63 };

unsigned nearest_distance(const char *a, const char *b)
{
    unsigned row[NAME_BYTES_MAX + 1];
    const size_t length = strnlen(b, NAME_BYTES_MAX);
    for (unsigned j = 0; j <= length; j++)
        row[j] = j;
    for (size_t i = 0; i < NAME_BYTES_MAX && a[i]; i++) {
        unsigned corner = row[0];
        row[0] = (unsigned)i + 1;
        for (size_t j = 0; j < length; j++) {
            const bool equal = a[i] == b[j] || (a[i] == '-' && b[j] == '_');
            const unsigned replaced = corner + (equal ? 0 : 1);
            unsigned best = row[j] + 1 < row[j + 1] + 1 ? row[j] + 1 : row[j + 1] + 1;
            best = replaced < best ? replaced : best;
            corner = row[j + 1];
            row[j + 1] = best;
        }
    }
    return row[length];
}
