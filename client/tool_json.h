/* Looks things up in a JSON text without copying it. A value is where it begins in the text; NULL
 * is a value that is not there, and every call accepts it. Check the whole text once with
 * json_sound: the other calls take it to be. */
#ifndef GRADWEIR_CLIENT_TOOL_JSON_H
#define GRADWEIR_CLIENT_TOOL_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One JSON value, at most 16 deep, and nothing behind it but blanks. */
bool json_sound(const char *text);

/* The value of an object's member; with a path, "settings.window", that of a member's member. */
const char *json_member(const char *object, const char *path);

/* The first element of an array, or the first value of an object; the one behind it; its name. */
const char *json_first(const char *collection);
const char *json_next(const char *element);
void json_name(const char *collection, const char *element, char *name, size_t size);

double json_number(const char *value);  /* 0 when it is none */
uint64_t json_count(const char *value); /* 0 when it is none, or negative */
bool json_true(const char *value);

/* A string's characters, escapes undone (\u becomes ?), cut at size, terminated. "" for others. */
void json_text(const char *value, char *text, size_t size);

#endif
