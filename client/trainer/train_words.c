/* See train_words.h. */
#include "client/trainer/train_words.h"

#include <stdint.h>
#include <string.h>

size_t train_word_distance(const char *a, const char *b)
{
    size_t row[64];
    const size_t n = strlen(b);
    if (n >= 64)
        return SIZE_MAX;
    for (size_t j = 0; j <= n; j++)
        row[j] = j;
    for (size_t i = 0; a[i] != '\0'; i++) {
        size_t diagonal = row[0];
        row[0] = i + 1;
        for (size_t j = 0; j < n; j++) {
            const size_t above = row[j + 1];
            size_t best = diagonal + (a[i] != b[j]);
            best = above + 1 < best ? above + 1 : best;
            best = row[j] + 1 < best ? row[j] + 1 : best;
            row[j + 1] = best;
            diagonal = above;
        }
    }
    return row[n];
}

void train_word_json(FILE *file, const char *text)
{
    if (text == NULL) {
        fputs("null", file);
        return;
    }
    fputc('"', file);
    for (; *text != '\0'; text++)
        if (*text == '"' || *text == '\\')
            fprintf(file, "\\%c", *text);
        else if ((unsigned char)*text < ' ')
            fprintf(file, "\\u%04x", (unsigned)(unsigned char)*text);
        else
            fputc(*text, file);
    fputc('"', file);
}
