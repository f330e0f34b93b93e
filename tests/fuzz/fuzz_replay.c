/* Runs a fuzz target over each file of a corpus, and over each of its truncations. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

enum { INPUT_MAX = 1 << 16 };

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

static int run_file(const char *folder, const char *name)
{
    static uint8_t bytes[INPUT_MAX];
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "rb");
    if (!file)
        return -1;
    const size_t count = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    for (size_t cut = 0; cut <= count; cut++)
        run(bytes, cut);
    return 0;
}

int main(int count, char **arguments)
{
    DIR *folder = count == 2 ? opendir(arguments[1]) : NULL;
    size_t files = 0;
    if (!folder) {
        fprintf(stderr, "usage: %s CORPUS_FOLDER\n", arguments[0]);
        return 2;
    }
    for (struct dirent *entry; (entry = readdir(folder));) {
        if (entry->d_name[0] == '.')
            continue;
        if (run_file(arguments[1], entry->d_name) != 0) {
            fprintf(stderr, "cannot read %s/%s\n", arguments[1], entry->d_name);
            return 1;
        }
        files++;
    }
    closedir(folder);
    printf("%zu inputs\n", files);
    return files == 0;
}
