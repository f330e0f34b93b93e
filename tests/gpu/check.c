#include "tests/gpu/check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GUARD = 512, POISON = 0xa7, SAID_MAX = 40 };

static uint64_t failures;
static double deviation;

static void *host_room(size_t bytes)
{
    void *room = malloc(bytes ? bytes : 1);
    if (room == NULL) {
        printf("device_check: no memory\n");
        exit(1);
    }
    return room;
}

struct array array_new(size_t bytes, size_t shift)
{
    struct array array = {.bytes = bytes, .whole_bytes = bytes + 2 * GUARD + shift};
    unsigned char *poison = host_room(array.whole_bytes);
    memset(poison, POISON, array.whole_bytes);
    array.host = host_room(bytes);
    memset(array.host, POISON, bytes);
    array.whole = memory_get(array.whole_bytes);
    memory_put(array.whole, poison, array.whole_bytes);
    array.device = array.whole + GUARD + shift;
    free(poison);
    return array;
}

void array_end(struct array *array)
{
    free(array->host);
    memory_free(array->whole);
}

void array_send(struct array *array)
{
    memory_put(array->device, array->host, array->bytes);
}

struct array array_of(const void *data, size_t bytes, size_t shift)
{
    struct array array = array_new(bytes, shift);
    memcpy(array.host, data, bytes);
    array_send(&array);
    return array;
}

float *here(const struct array *array)
{
    return (float *)(void *)array->host;
}

float *there(const struct array *array)
{
    return (float *)(void *)array->device;
}

/* Half of the time fit for loads of four, for which kernels have loops of their own. */
struct array floats_new(struct random *random, size_t n)
{
    static const size_t shifts[] = {0, 0, 4, 1, 2, 3};
    return array_new(n * sizeof(float), shifts[random_below(random, 6)] * sizeof(float));
}

struct array floats_uniform(struct random *random, size_t n, float least, float most)
{
    struct array array = floats_new(random, n);
    fill_uniform(random, here(&array), n, least, most);
    array_send(&array);
    return array;
}

struct array floats_drawn(struct random *random, size_t n, bool positive)
{
    struct array array = floats_new(random, n);
    (positive ? fill_positive : fill_floats)(random, here(&array), n);
    array_send(&array);
    return array;
}

struct array flags_new(struct random *random, size_t n, uint64_t rare)
{
    struct array array = array_new(n, random_below(random, 4));
    for (size_t i = 0; i < n; i++)
        array.host[i] = random_below(random, rare) == 0;
    array_send(&array);
    return array;
}

void fill_floats(struct random *random, float *to, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const uint32_t bits = (uint32_t)(random_next(random) >> 32);
        to[i] = element_float((bits & 0x807fffffu) | ((118u + ((bits >> 23) & 15u)) << 23));
    }
}

void fill_positive(struct random *random, float *to, size_t n)
{
    fill_floats(random, to, n);
    for (size_t i = 0; i < n; i++)
        to[i] = fabsf(to[i]);
}

void fill_uniform(struct random *random, float *to, size_t n, float least, float most)
{
    for (size_t i = 0; i < n; i++)
        to[i] = least + (most - least) * (float)random_uniform(random);
}

float *timed_floats(size_t n)
{
    enum { BLOCK = 1 << 16 };
    static float block[BLOCK];
    struct random random;
    random_init(&random, 1);
    fill_uniform(&random, block, BLOCK, 0, 1);
    float *floats = memory_get(n * sizeof *floats);
    memory_put(floats, block, (n < BLOCK ? n : BLOCK) * sizeof *block);
    for (size_t at = BLOCK; at < n; at *= 2)
        memory_copy(floats + at, floats, (n - at < at ? n - at : at) * sizeof *floats);
    return floats;
}

/* The first few are told, all are counted. */
static bool tell(void)
{
    return failures++ < SAID_MAX;
}

void expect(bool holds, const char *what, uint64_t number)
{
    if (!holds && tell())
        printf("  WRONG %s (case %llu)\n", what, (unsigned long long)number);
}

void expect_ran(int error, const char *what, uint64_t number)
{
    if ((error != 0 || !memory_wait()) && tell())
        printf("  WRONG %s (case %llu): did not run: error %d, %s\n", what,
               (unsigned long long)number, error, error == 0 ? fail_reason() : "at start");
}

/* What the GPU has: guards and all. The caller frees it. */
static unsigned char *fetch(const struct array *array, const char *what, uint64_t number)
{
    unsigned char *whole = host_room(array->whole_bytes);
    memory_fetch(whole, array->whole, array->whole_bytes);
    const size_t begin = (size_t)(array->device - array->whole), end = begin + array->bytes;
    for (size_t i = 0; i < array->whole_bytes; i++) {
        if ((i >= begin && i < end) || whole[i] == POISON)
            continue;
        if (tell())
            printf("  WRONG %s (case %llu): byte %lld of an array of %zu was written\n", what,
                   (unsigned long long)number, (long long)i - (long long)begin, array->bytes);
        break;
    }
    return whole;
}

void expect_same(const struct array *array, const char *what, uint64_t number)
{
    unsigned char *whole = fetch(array, what, number);
    const unsigned char *got = whole + (array->device - array->whole);
    size_t i = 0;
    while (i < array->bytes && got[i] == array->host[i])
        i++;
    if (i < array->bytes && tell()) {
        size_t others = 0;
        for (size_t k = i; k < array->bytes; k++)
            others += got[k] != array->host[k];
        printf(
            "  WRONG %s (case %llu): byte %zu of %zu is %02x, should be %02x; %zu bytes differ\n",
            what, (unsigned long long)number, i, array->bytes, got[i], array->host[i], others);
    }
    free(whole);
}

void expect_near(const struct array *array, double relative, const char *what, uint64_t number)
{
    unsigned char *whole = fetch(array, what, number);
    const unsigned char *bytes = whole + (array->device - array->whole);
    for (size_t i = 0; i < array->bytes / sizeof(float); i++) {
        float got, expected;
        memcpy(&got, bytes + i * sizeof got, sizeof got);
        memcpy(&expected, array->host + i * sizeof expected, sizeof expected);
        const double size = fmax(1.0, fabs((double)expected));
        const double off = fabs((double)got - (double)expected) / size;
        deviation = off > deviation ? off : deviation;
        if (off <= relative) /* false for NaN */
            continue;
        if (tell())
            printf("  WRONG %s (case %llu): element %zu is %.9g, should be %.9g\n", what,
                   (unsigned long long)number, i, (double)got, (double)expected);
        break;
    }
    free(whole);
}

uint64_t check_failures(void)
{
    return failures;
}

double check_deviation(void)
{
    const double seen = deviation;
    deviation = 0.0;
    return seen;
}
