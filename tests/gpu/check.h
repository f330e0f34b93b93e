/* What the checks of kernels share: arrays on both sides with guards around them, comparison, and
 * the table that comes of it. A kernel is given outputs full of poison, odd lengths and addresses
 * off alignment, and must give what its twin on the CPU gives, and touch nothing else. */
#ifndef GRADWEIR_TESTS_GPU_CHECK_H
#define GRADWEIR_TESTS_GPU_CHECK_H

#include "common/random.h"
#include "tests/gpu/device_memory.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* bytes on the GPU, between two guards. host: what is there, as far as the check knows. */
struct array {
    unsigned char *host;
    unsigned char *device;
    size_t bytes;
    unsigned char *whole; /* on the GPU: guard, array, guard */
    size_t whole_bytes;
};

/* Full of poison on both sides. shift: bytes off an alignment of 256. */
struct array array_new(size_t bytes, size_t shift);
void array_end(struct array *array);
void array_send(struct array *array);                                /* host to device */
struct array array_of(const void *data, size_t bytes, size_t shift); /* new, with these bytes */

/* The array as floats, on either side; and any side's as whatever a call wants. */
float *here(const struct array *array);
float *there(const struct array *array);

/* n floats, on both sides, off alignment by chance. */
struct array floats_new(struct random *random, size_t n); /* poison */
struct array floats_uniform(struct random *random, size_t n, float least, float most);
struct array floats_drawn(struct random *random, size_t n, bool positive); /* by fill_* below */

/* n bytes on both sides: one in `rare` is 1, the others 0. */
struct array flags_new(struct random *random, size_t n, uint64_t rare);

/* Numbers for arrays. */
void fill_floats(struct random *random, float *to,
                 size_t n); /* both signs, 16 powers of two around 1 */
void fill_positive(struct random *random, float *to, size_t n);
void fill_uniform(struct random *random, float *to, size_t n, float least, float most);

/* For what is timed: n floats on the GPU, drawn from (0, 1): no NaN comes of a root and no kernel
 * takes another way than it usually does. To be given to memory_free. */
float *timed_floats(size_t n);

/* What a kernel that reads and writes everything once should reach of a copy's rate. */
#define CHECK_GOAL 0.85

/* One line of the table. */
struct check {
    const char *name;
    const char *promise;                /* "bits", or the tolerance as text */
    void (*run)(struct random *random); /* one round of cases, chosen anew each time */
    double (*time)(double *bytes); /* seconds of a call, and what it must move; NULL: not timed */
    double goal;                   /* of a copy's rate; 0: none */
};

/* To be called by run: device has what was expected, bit for bit; guards are whole. what: of which
 * case. array->host is what is expected. */
void expect_same(const struct array *array, const char *what, uint64_t number);

/* |got - expected| <= relative × max(1, |expected|), element by element; guards are whole. */
void expect_near(const struct array *array, double relative, const char *what, uint64_t number);

void expect(bool holds, const char *what, uint64_t number);

/* The call's error number is 0 and the stream ends well. */
void expect_ran(int error, const char *what, uint64_t number);

/* Tables of the files. Each ends with a NULL name. */
extern const struct check checks_codec[], checks_checksum[], checks_feedback[], checks_step[],
    checks_stacks[], checks_sums[], checks_learn[], checks_layers[], checks_environment[],
    checks_engine[];
extern const struct check *const check_tables[]; /* all of them; ends with NULL */

/* Failures so far, and the largest deviation expect_near has seen since the last call. */
uint64_t check_failures(void);
double check_deviation(void);

#endif
