#include "tests/vectors/vector_manifest.h"

#include <criterion/criterion.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Where the scan is. A case is an object at depth 3: { "cases": [ { ... } ] }. */
struct scan {
    const char *at;
    size_t depth;
    char key[96];     /* the last key, "" when the next string is one */
    char top_key[96]; /* the last key at depth 1 */
    size_t n_cases;   /* what the manifest itself says */
    struct vector_entry entry;
    struct vector_manifest *manifest;
};

const char *vector_folder(void)
{
    const char *folder = getenv("GRADWEIR_VECTORS");
    return folder != NULL && folder[0] != '\0' ? folder : GRADWEIR_VECTORS;
}

/* Copies the string that starts at the quote under the scan; an escaped character is copied as it
 * is. */
static void scan_string(struct scan *scan, char *out, size_t size)
{
    size_t n = 0;
    const char *p = scan->at + 1;
    while (*p != '\0' && *p != '"') {
        if (*p == '\\' && p[1] != '\0')
            p++;
        if (n + 1 < size)
            out[n++] = *p;
        p++;
    }
    cr_assert(*p == '"', "manifest.json: a string does not end");
    out[n] = '\0';
    scan->at = p + 1;
}

static void keep_value(struct scan *scan, const char *value)
{
    if (scan->depth != 3 || strcmp(scan->top_key, "cases") != 0)
        return;
    if (strcmp(scan->key, "family") == 0)
        snprintf(scan->entry.family, sizeof(scan->entry.family), "%.95s", value);
    else if (strcmp(scan->key, "name") == 0)
        snprintf(scan->entry.name, sizeof(scan->entry.name), "%.95s", value);
    else if (strcmp(scan->key, "dir") == 0)
        snprintf(scan->entry.directory, sizeof(scan->entry.directory), "%.255s", value);
}

/* A string followed by a colon is a key, any other is a value. */
static void take_string(struct scan *scan)
{
    char text[256];
    scan_string(scan, text, sizeof(text));
    const char *p = scan->at;
    while (isspace((unsigned char)*p))
        p++;
    if (*p != ':') {
        keep_value(scan, text);
        return;
    }
    scan->at = p + 1;
    snprintf(scan->key, sizeof(scan->key), "%.95s", text);
    if (scan->depth == 1) {
        snprintf(scan->top_key, sizeof(scan->top_key), "%.95s", text);
        if (strcmp(text, "n_cases") == 0)
            scan->n_cases = strtoul(scan->at, NULL, 10);
    }
}

static void finish_case(struct scan *scan)
{
    const struct vector_entry *entry = &scan->entry;
    cr_assert(entry->family[0] != '\0' && entry->name[0] != '\0' && entry->directory[0] != '\0',
              "manifest.json: case %zu lacks family, name or dir", scan->manifest->n_entries);
    cr_assert(scan->manifest->n_entries < VECTOR_CASES_MAX, "manifest.json: more than %d cases",
              VECTOR_CASES_MAX);
    scan->manifest->entries[scan->manifest->n_entries++] = *entry;
}

static void take_bracket(struct scan *scan)
{
    const char bracket = *scan->at++;
    const int is_case_level = strcmp(scan->top_key, "cases") == 0;
    if (bracket == '{' || bracket == '[') {
        scan->depth++;
        if (bracket == '{' && scan->depth == 3)
            scan->entry = (struct vector_entry){.family = ""};
        return;
    }
    if (bracket == '}' && scan->depth == 3 && is_case_level)
        finish_case(scan);
    cr_assert(scan->depth > 0, "manifest.json: brackets do not match");
    scan->depth--;
}

static char *read_text(void)
{
    char path[1024];
    snprintf(path, sizeof(path), "%s/manifest.json", vector_folder());
    FILE *file = fopen(path, "rb");
    cr_assert(file != NULL, "%s: cannot be opened", path);
    cr_assert(fseek(file, 0, SEEK_END) == 0);
    const long size = ftell(file);
    cr_assert(size > 0, "%s: empty", path);
    rewind(file);
    char *text = calloc((size_t)size + 1, 1);
    cr_assert(text != NULL && fread(text, 1, (size_t)size, file) == (size_t)size,
              "%s: cannot be read", path);
    fclose(file);
    return text;
}

struct vector_manifest *vector_manifest_open(void)
{
    char *text = read_text();
    struct vector_manifest *manifest = calloc(1, sizeof(*manifest));
    cr_assert(manifest != NULL);
    struct scan scan = {.at = text, .manifest = manifest};
    while (*scan.at != '\0') {
        if (*scan.at == '"')
            take_string(&scan);
        else if (strchr("{}[]", *scan.at) != NULL)
            take_bracket(&scan);
        else
            scan.at++;
    }
    cr_assert(scan.depth == 0, "manifest.json: brackets do not match");
    cr_assert(scan.n_cases == manifest->n_entries, "manifest.json says %zu cases and lists %zu",
              scan.n_cases, manifest->n_entries);
    free(text);
    return manifest;
}

void vector_manifest_close(struct vector_manifest *manifest)
{
    free(manifest);
}
