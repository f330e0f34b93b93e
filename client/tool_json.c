/* A small reader of JSON: one pass of checks, then walks. */
#include "client/tool_json.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEPTH_MAX = 16 };

static const char *blanks(const char *at)
{
    while (*at == ' ' || *at == '\t' || *at == '\n' || *at == '\r')
        at++;
    return at;
}

/* Behind the string that begins at `at`; NULL when it has no end. */
static const char *skip_string(const char *at)
{
    for (at++; *at != 0 && *at != '"'; at++)
        if (*at == '\\' && *++at == 0)
            return NULL;
    return *at == '"' ? at + 1 : NULL;
}

static const char *skip_scalar(const char *at)
{
    static const char *const words[] = {"true", "false", "null"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strncmp(at, words[i], strlen(words[i])) == 0)
            return at + strlen(words[i]);
    char *end;
    if (*at != '-' && !isdigit((unsigned char)*at))
        return NULL;
    (void)strtod(at, &end);
    return end > at ? end : NULL;
}

static const char *skip(const char *at, int depth);

static const char *skip_collection(const char *at, int depth)
{
    const char close = *at == '{' ? '}' : ']';
    const bool object = *at == '{';
    at = blanks(at + 1);
    if (*at == close)
        return at + 1;
    while (depth > 0) {
        if (object) {
            at = *at == '"' ? skip_string(at) : NULL;
            if (!at || *(at = blanks(at)) != ':')
                return NULL;
            at = blanks(at + 1);
        }
        at = skip(at, depth - 1);
        if (!at)
            return NULL;
        at = blanks(at);
        if (*at == close)
            return at + 1;
        if (*at != ',')
            return NULL;
        at = blanks(at + 1);
    }
    return NULL;
}

static const char *skip(const char *at, int depth)
{
    at = blanks(at);
    if (*at == '{' || *at == '[')
        return skip_collection(at, depth);
    return *at == '"' ? skip_string(at) : skip_scalar(at);
}

bool json_sound(const char *text)
{
    const char *end = skip(text, DEPTH_MAX);
    return end && *blanks(end) == 0;
}

/* From a member's name to its value. */
static const char *value_of(const char *name)
{
    return blanks(blanks(skip_string(name)) + 1);
}

const char *json_first(const char *collection)
{
    if (!collection || (*collection != '{' && *collection != '['))
        return NULL;
    const char *at = blanks(collection + 1);
    if (*at == '}' || *at == ']')
        return NULL;
    return *collection == '{' ? value_of(at) : at;
}

/* Whether a name follows tells object from array: an array's strings have no colon behind them. */
const char *json_next(const char *element)
{
    if (!element)
        return NULL;
    const char *at = blanks(skip(element, DEPTH_MAX));
    if (*at != ',')
        return NULL;
    at = blanks(at + 1);
    if (*at == '"' && *blanks(skip_string(at)) == ':')
        return value_of(at);
    return at;
}

static const char *name_of(const char *collection, const char *element)
{
    if (!collection || *collection != '{')
        return NULL;
    const char *name = blanks(collection + 1);
    for (const char *at = json_first(collection); at && at != element; at = json_next(at))
        name = blanks(blanks(skip(at, DEPTH_MAX)) + 1);
    return name;
}

void json_name(const char *collection, const char *element, char *name, size_t size)
{
    json_text(name_of(collection, element), name, size);
}

static const char *member(const char *object, const char *name, size_t length)
{
    if (!object || *object != '{')
        return NULL;
    const char *at = blanks(object + 1);
    while (*at == '"') {
        const char *value = value_of(at);
        if (strncmp(at + 1, name, length) == 0 && at[1 + length] == '"')
            return value;
        at = blanks(skip(value, DEPTH_MAX));
        at = *at == ',' ? blanks(at + 1) : at;
    }
    return NULL;
}

const char *json_member(const char *object, const char *path)
{
    for (;;) {
        const size_t length = strcspn(path, ".");
        object = member(object, path, length);
        if (path[length] == 0)
            return object;
        path += length + 1;
    }
}

double json_number(const char *value)
{
    return value && (*value == '-' || isdigit((unsigned char)*value)) ? strtod(value, NULL) : 0;
}

uint64_t json_count(const char *value)
{
    return value && isdigit((unsigned char)*value) ? strtoull(value, NULL, 10) : 0;
}

bool json_true(const char *value)
{
    return value && strncmp(value, "true", 4) == 0;
}

void json_text(const char *value, char *text, size_t size)
{
    size_t used = 0;
    if (value && *value == '"')
        for (const char *at = value + 1; *at != '"' && used + 1 < size; at++) {
            char c = *at;
            if (c == '\\') {
                c = *++at;
                c = c == 'n' || c == 't' || c == 'r' ? ' ' : c == 'u' ? '?' : c;
            }
            text[used++] = c;
        }
    if (size)
        text[used] = 0;
}
