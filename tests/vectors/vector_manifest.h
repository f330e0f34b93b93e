/* The list of cases in manifest.json, without a JSON library: strings and brackets are followed,
 * and of each object in the array "cases" the members family, name and dir are kept. */
#ifndef GRADWEIR_TESTS_VECTORS_VECTOR_MANIFEST_H
#define GRADWEIR_TESTS_VECTORS_VECTOR_MANIFEST_H

#include <stddef.h>

enum { VECTOR_CASES_MAX = 4096 };

struct vector_entry {
    char family[96];
    char name[96];
    char directory[256]; /* below the folder */
};

struct vector_manifest {
    struct vector_entry entries[VECTOR_CASES_MAX];
    size_t n_entries;
};

/* The folder in use: $GRADWEIR_VECTORS or the source tree's. */
const char *vector_folder(void);

/* Reads the manifest and ends the test when it cannot be read or its n_cases differs from the
 * number of its cases. */
struct vector_manifest *vector_manifest_open(void);
void vector_manifest_close(struct vector_manifest *manifest);

#endif
