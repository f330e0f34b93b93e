/* Runs a fuzz target over each file of a corpus and over each of its truncations, then over so many
 * mutations of these files: the same ones on every machine. What libFuzzer would find in a second
 * is found here by every build and every compiler. */
#include "common/random.h"

#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

enum { INPUT_MAX = 1 << 16, FILES_MAX = 256 };

static struct file {
    char name[256];
    uint8_t *bytes;
    size_t count;
} files[FILES_MAX];
static size_t files_count;

/* The copy has exactly its size, so that a sanitizer sees reads behind it. */
static void run(const uint8_t *bytes, size_t count)
{
    uint8_t *copy = malloc(count + !count);
    if (!copy)
        abort();
    memcpy(copy, bytes, count);
    LLVMFuzzerTestOneInput(copy, count);
    free(copy);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct file *)a)->name, ((const struct file *)b)->name);
}

static int read_file(const char *folder, const char *name)
{
    static uint8_t bytes[INPUT_MAX];
    char path[4096];
    struct file *file = &files[files_count];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *stream = files_count < FILES_MAX ? fopen(path, "rb") : NULL;
    if (!stream)
        return -1;
    file->count = fread(bytes, 1, sizeof bytes, stream);
    fclose(stream);
    file->bytes = malloc(file->count + !file->count);
    if (!file->bytes)
        abort();
    memcpy(file->bytes, bytes, file->count);
    snprintf(file->name, sizeof file->name, "%s", name);
    files_count++;
    return 0;
}

static int read_folder(const char *path)
{
    DIR *folder = opendir(path);
    if (!folder)
        return -1;
    for (struct dirent *entry; (entry = readdir(folder));)
        if (entry->d_name[0] != '.' && read_file(path, entry->d_name) != 0) {
            fprintf(stderr, "cannot read %s/%s\n", path, entry->d_name);
            closedir(folder);
            return -1;
        }
    closedir(folder);
    qsort(files, files_count, sizeof *files, by_name);
    return files_count ? 0 : -1;
}

/* One of the changes that parsers stumble over; the new count. */
static size_t mutate(struct random *random, uint8_t *bytes, size_t count)
{
    static const uint8_t odd[] = {0, 1, 0x7f, 0x80, 0xfe, 0xff};
    const size_t at = (size_t)random_below(random, count + 1);
    const size_t rest = count - at;
    const size_t piece = rest ? 1 + (size_t)random_below(random, rest < 32 ? rest : 32) : 0;
    const struct file *other = &files[random_below(random, files_count)];
    switch (random_below(random, 6)) {
    case 0: /* a bit */
        if (rest)
            bytes[at] ^= (uint8_t)(1u << random_below(random, 8));
        return count;
    case 1:
        if (rest)
            bytes[at] = odd[random_below(random, sizeof odd)];
        return count;
    case 2:
        if (rest)
            bytes[at] = (uint8_t)random_below(random, 256);
        return count;
    case 3: /* a piece less */
        memmove(bytes + at, bytes + at + piece, rest - piece);
        return count - piece;
    case 4: /* a piece twice */
        if (count + piece > INPUT_MAX)
            return count;
        memmove(bytes + at + piece, bytes + at, rest);
        return count + piece;
    default: /* the end of another file */
        if (at > other->count)
            return count;
        memcpy(bytes + at, other->bytes + at, other->count - at);
        return other->count;
    }
}

static void run_mutations(uint64_t mutations)
{
    static uint8_t bytes[INPUT_MAX];
    struct random random;
    random_init(&random, 1);
    for (uint64_t i = 0; i < mutations; i++) {
        const struct file *file = &files[random_below(&random, files_count)];
        size_t count = file->count;
        memcpy(bytes, file->bytes, count);
        for (uint64_t n = 1 + random_below(&random, 8); n > 0; n--)
            count = mutate(&random, bytes, count);
        run(bytes, count);
    }
}

int main(int count, char **arguments)
{
    if (count < 2 || count > 3 || read_folder(arguments[1]) != 0) {
        fprintf(stderr, "usage: %s CORPUS_FOLDER [MUTATIONS]\n", arguments[0]);
        return 2;
    }
    for (size_t i = 0; i < files_count; i++)
        for (size_t cut = 0; cut <= files[i].count; cut++)
            run(files[i].bytes, cut);
    const uint64_t mutations = count == 3 ? strtoull(arguments[2], NULL, 10) : 0;
    run_mutations(mutations);
    printf("%zu inputs, %llu mutations\n", files_count, (unsigned long long)mutations);
    for (size_t i = 0; i < files_count; i++)
        free(files[i].bytes);
    return 0;
}
