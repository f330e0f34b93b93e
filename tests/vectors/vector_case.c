/* Runs the cases of a manifest and reads each of them from its params.txt and .npy files. */
#include "tests/vectors/vector_case.h"

#include "tests/vectors/vector_manifest.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Which program runs which family. A family of the manifest that is not here has nobody to check
 * it. */
static const struct {
    const char *family;
    const char *program;
} vector_programs[] = {
    {"clip_norm", "common"},    {"halfprec", "common"},     {"optim", "common"},
    {"window", "common"},       {"env_step", "trainer"},    {"env_trace", "trainer"},
    {"gae", "trainer"},         {"ppo", "trainer"},         {"ppo_loss", "trainer"},
    {"ppo_train", "trainer"},   {"reward_norm", "trainer"}, {"stats", "trainer"},
    {"stats_merge", "trainer"}, {"vtrace", "trainer"},
};
enum { N_PROGRAMS = sizeof(vector_programs) / sizeof(vector_programs[0]) };

static size_t element_size(const char *dtype)
{
    static const char *const types[] = {"<f8", "<f4", "<i4", "<u4", "<u2", "|u1"};
    static const size_t sizes[] = {8, 4, 4, 4, 2, 1};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        if (strcmp(dtype, types[i]) == 0)
            return sizes[i];
    return 0;
}

/* Reads one version 1.0 .npy file: 8 bytes of magic, a 16 bit header length, the header, the raw
 * elements. */
static void read_array(const struct vector_case *c, struct vector_array *array)
{
    char path[1280];
    snprintf(path, sizeof(path), "%s/%s.npy", c->directory, array->name);
    const size_t size = element_size(array->dtype);
    cr_assert(size > 0, "%s: unknown element type %s", path, array->dtype);
    FILE *file = fopen(path, "rb");
    cr_assert(file != NULL, "%s: cannot be opened", path);
    uint8_t start[10];
    cr_assert(fread(start, 1, 10, file) == 10, "%s: too short", path);
    cr_assert(memcmp(start, "\x93NUMPY\x01\x00", 8) == 0, "%s: not an .npy file of version 1.0",
              path);
    cr_assert(fseek(file, 10 + start[8] + 256 * start[9], SEEK_SET) == 0, "%s: too short", path);
    array->data = malloc(array->count * size + 1);
    cr_assert(array->data != NULL, "%s: no memory for %zu elements", path, array->count);
    cr_assert(fread(array->data, size, array->count, file) == array->count, "%s: too short", path);
    cr_assert(fgetc(file) == EOF, "%s: longer than its shape says", path);
    fclose(file);
}

static void parse_array(struct vector_case *c, const char *line)
{
    cr_assert(c->n_arrays < VECTOR_ARRAYS_MAX, "%s: too many arrays", c->directory);
    struct vector_array *array = &c->arrays[c->n_arrays++];
    int used = 0;
    const int fields = sscanf(line, "array %95s %7s %7s %zu%n", array->name, array->role,
                              array->dtype, &array->n_dims, &used);
    cr_assert(fields == 4 && array->n_dims <= VECTOR_DIMS_MAX, "%s: bad line: %s", c->directory,
              line);
    array->count = 1;
    for (size_t i = 0; i < array->n_dims; i++) {
        line += used;
        cr_assert(sscanf(line, " %zu%n", &array->dims[i], &used) == 1, "%s: bad shape: %s",
                  c->directory, line);
        array->count *= array->dims[i];
    }
    read_array(c, array);
}

static void parse_param(struct vector_case *c, const char *line)
{
    cr_assert(c->n_params < VECTOR_PARAMS_MAX, "%s: too many parameters", c->directory);
    struct vector_param *param = &c->params[c->n_params++];
    cr_assert(sscanf(line, "param %95s %95s", param->key, param->value) == 2, "%s: bad line: %s",
              c->directory, line);
}

static void case_open(struct vector_case *c, const struct vector_entry *entry)
{
    snprintf(c->family, sizeof(c->family), "%s", entry->family);
    snprintf(c->name, sizeof(c->name), "%s", entry->name);
    snprintf(c->directory, sizeof(c->directory), "%s/%s", vector_folder(), entry->directory);
    char path[1280];
    snprintf(path, sizeof(path), "%s/params.txt", c->directory);
    FILE *file = fopen(path, "r");
    cr_assert(file != NULL, "%s: cannot be opened", path);
    char line[512];
    while (fgets(line, sizeof(line), file) != NULL) {
        if (strncmp(line, "array ", 6) == 0)
            parse_array(c, line);
        else if (strncmp(line, "param ", 6) == 0)
            parse_param(c, line);
        else
            cr_assert(line[0] == '\n', "%s: unknown line: %s", path, line);
    }
    fclose(file);
}

static void case_close(struct vector_case *c)
{
    for (size_t i = 0; i < c->n_arrays; i++)
        free(c->arrays[i].data);
    free(c);
}

static const char *program_of(const char *family)
{
    for (size_t i = 0; i < N_PROGRAMS; i++)
        if (strcmp(vector_programs[i].family, family) == 0)
            return vector_programs[i].program;
    return NULL;
}

static const struct vector_family *find_family(const struct vector_family *families, size_t n,
                                               const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(families[i].name, name) == 0)
            return &families[i];
    return NULL;
}

static void check_claims(const char *program, size_t n_families)
{
    size_t claimed = 0;
    for (size_t i = 0; i < N_PROGRAMS; i++)
        claimed += strcmp(vector_programs[i].program, program) == 0;
    cr_assert(claimed == n_families, "%s claims %zu families and checks %zu", program, claimed,
              n_families);
}

static void run_case(const struct vector_family *family, const struct vector_entry *entry)
{
    struct vector_case *c = calloc(1, sizeof(*c));
    cr_assert(c != NULL);
    case_open(c, entry);
    family->check(c);
    case_close(c);
}

void vector_run(const char *program, const struct vector_family *families, size_t n_families)
{
    check_claims(program, n_families);
    struct vector_manifest *manifest = vector_manifest_open();
    size_t ran = 0;
    for (size_t i = 0; i < manifest->n_entries; i++) {
        const struct vector_entry *entry = &manifest->entries[i];
        const char *owner = program_of(entry->family);
        cr_expect(owner != NULL, "%s: no program checks this family", entry->directory);
        if (owner == NULL || strcmp(owner, program) != 0)
            continue;
        const struct vector_family *family = find_family(families, n_families, entry->family);
        cr_assert(family != NULL, "%s claims family %s and has no check for it", program,
                  entry->family);
        run_case(family, entry);
        ran++;
    }
    printf("%zu cases run\n", ran);
    fflush(stdout);
    vector_manifest_close(manifest);
}

static const char *find_param(const struct vector_case *c, const char *key)
{
    for (size_t i = 0; i < c->n_params; i++)
        if (strcmp(c->params[i].key, key) == 0)
            return c->params[i].value;
    return NULL;
}

bool vector_has(const struct vector_case *c, const char *key)
{
    return find_param(c, key) != NULL;
}

const char *vector_word(const struct vector_case *c, const char *key)
{
    const char *value = find_param(c, key);
    cr_assert(value != NULL, "%s: no parameter %s", c->directory, key);
    return value;
}

double vector_number(const struct vector_case *c, const char *key)
{
    const char *word = vector_word(c, key);
    char *end = NULL;
    const double value = strtod(word, &end);
    cr_assert(end != word && *end == '\0', "%s: %s is not a number: %s", c->directory, key, word);
    return value;
}

size_t vector_size(const struct vector_case *c, const char *key)
{
    const double value = vector_number(c, key);
    cr_assert(value >= 0 && value < 1e15 && value == floor(value), "%s: %s is not a size",
              c->directory, key);
    return (size_t)value;
}

bool vector_is(const struct vector_case *c, const char *key, const char *word)
{
    return strcmp(vector_word(c, key), word) == 0;
}

static const struct vector_array *find_array(const struct vector_case *c, const char *name)
{
    for (size_t i = 0; i < c->n_arrays; i++)
        if (strcmp(c->arrays[i].name, name) == 0)
            return &c->arrays[i];
    return NULL;
}

bool vector_has_array(const struct vector_case *c, const char *name)
{
    return find_array(c, name) != NULL;
}

const struct vector_array *vector_array(const struct vector_case *c, const char *name)
{
    const struct vector_array *array = find_array(c, name);
    cr_assert(array != NULL, "%s: no array %s", c->directory, name);
    return array;
}

static const void *typed(const struct vector_case *c, const char *name, const char *dtype)
{
    const struct vector_array *array = vector_array(c, name);
    cr_assert(strcmp(array->dtype, dtype) == 0, "%s: %s is %s, not %s", c->directory, name,
              array->dtype, dtype);
    return array->data;
}

const double *vector_f64(const struct vector_case *c, const char *name)
{
    return typed(c, name, "<f8");
}

const float *vector_f32(const struct vector_case *c, const char *name)
{
    return typed(c, name, "<f4");
}

const int32_t *vector_i32(const struct vector_case *c, const char *name)
{
    return typed(c, name, "<i4");
}

const uint32_t *vector_u32(const struct vector_case *c, const char *name)
{
    return typed(c, name, "<u4");
}

const uint16_t *vector_u16(const struct vector_case *c, const char *name)
{
    return typed(c, name, "<u2");
}

const uint8_t *vector_u8(const struct vector_case *c, const char *name)
{
    return typed(c, name, "|u1");
}
