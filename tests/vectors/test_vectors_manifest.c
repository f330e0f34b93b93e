/* The folder and its manifest say the same: every listed case has a directory, every directory is
 * listed. */
#include "tests/vectors/vector_manifest.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static bool is_folder(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

/* Counts the case folders (those that hold a params.txt) of one family. */
static size_t count_cases(const char *family_path)
{
    DIR *family = opendir(family_path);
    cr_assert(family != NULL, "%s: cannot be opened", family_path);
    size_t n = 0;
    for (struct dirent *entry = readdir(family); entry != NULL; entry = readdir(family)) {
        char path[2048];
        struct stat info;
        snprintf(path, sizeof(path), "%s/%s/params.txt", family_path, entry->d_name);
        n += entry->d_name[0] != '.' && stat(path, &info) == 0;
    }
    closedir(family);
    return n;
}

Test(vectors, the_folder_holds_exactly_the_cases_of_the_manifest)
{
    struct vector_manifest *manifest = vector_manifest_open();
    size_t on_disk = 0;
    DIR *top = opendir(vector_folder());
    cr_assert(top != NULL, "%s: cannot be opened", vector_folder());
    for (struct dirent *entry = readdir(top); entry != NULL; entry = readdir(top)) {
        char path[1536];
        snprintf(path, sizeof(path), "%s/%s", vector_folder(), entry->d_name);
        if (entry->d_name[0] != '.' && is_folder(path))
            on_disk += count_cases(path);
    }
    closedir(top);
    for (size_t i = 0; i < manifest->n_entries; i++) {
        char path[1536];
        snprintf(path, sizeof(path), "%s/%s", vector_folder(), manifest->entries[i].directory);
        cr_expect(is_folder(path), "%s is listed and missing", path);
    }
    cr_expect_eq(on_disk, manifest->n_entries, "%zu cases on disk, %zu in the manifest", on_disk,
                 manifest->n_entries);
    vector_manifest_close(manifest);
}
