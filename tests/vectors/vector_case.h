/* Reads the reference vectors of this folder and compares results with them: what every vector test
 * shares.
 *
 * The folder is $GRADWEIR_VECTORS, or tests/vectors of the source tree. What is run is what its
 * manifest.json lists: no case, shape or count is built in, and a family that no program claims is
 * a failure. The form of params.txt and .npy files, the tolerances and the families are described
 * in README.md.
 *
 * All functions report through Criterion with the case's name: a file that cannot be read, a key or
 * array that is missing and a wrong type end the test; a value outside its tolerance is reported
 * and the next one is looked at. */
#ifndef GRADWEIR_TESTS_VECTORS_VECTOR_CASE_H
#define GRADWEIR_TESTS_VECTORS_VECTOR_CASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { VECTOR_NAME_MAX = 96, VECTOR_DIMS_MAX = 4, VECTOR_ARRAYS_MAX = 64, VECTOR_PARAMS_MAX = 512 };

struct vector_param {
    char key[VECTOR_NAME_MAX];
    char value[VECTOR_NAME_MAX];
};

struct vector_array {
    char name[VECTOR_NAME_MAX];
    char role[8];  /* in, out or aux */
    char dtype[8]; /* <f8 <f4 <i4 <u4 <u2 |u1 */
    size_t dims[VECTOR_DIMS_MAX];
    size_t n_dims;
    size_t count; /* elements in all */
    void *data;   /* owned by the case */
};

struct vector_case {
    char family[VECTOR_NAME_MAX];
    char name[VECTOR_NAME_MAX];
    char directory[1024];
    struct vector_param params[VECTOR_PARAMS_MAX];
    size_t n_params;
    struct vector_array arrays[VECTOR_ARRAYS_MAX];
    size_t n_arrays;
};

/* One family and the function that checks one case of it. */
struct vector_family {
    const char *name;
    void (*check)(const struct vector_case *c);
};

/* Runs every case that the manifest lists for these families and prints "N cases run". Fails when
 * the manifest's own count (n_cases) differs from its list, when a family of the manifest is
 * claimed by no program (vector_programs in vector_case.c), and when the families given here are
 * not exactly those that `program` claims there. Hence the sum over all programs is the number of
 * cases in the manifest. */
void vector_run(const char *program, const struct vector_family *families, size_t n_families);

/* Parameters. vector_number and vector_word end the test when the key is missing. "nan" and "inf"
 * are numbers. */
bool vector_has(const struct vector_case *c, const char *key);
double vector_number(const struct vector_case *c, const char *key);
size_t vector_size(const struct vector_case *c, const char *key);
bool vector_is(const struct vector_case *c, const char *key, const char *word);
const char *vector_word(const struct vector_case *c, const char *key);

/* Arrays, borrowed until the check returns. The typed ones also check the element type. */
bool vector_has_array(const struct vector_case *c, const char *name);
const struct vector_array *vector_array(const struct vector_case *c, const char *name);
const double *vector_f64(const struct vector_case *c, const char *name);
const float *vector_f32(const struct vector_case *c, const char *name);
const int32_t *vector_i32(const struct vector_case *c, const char *name);
const uint32_t *vector_u32(const struct vector_case *c, const char *name);
const uint16_t *vector_u16(const struct vector_case *c, const char *name);
const uint8_t *vector_u8(const struct vector_case *c, const char *name);

/* |actual - expected| <= atol + rtol |expected|, element by element; a NaN is matched by any NaN,
 * an infinity by itself. Reports the worst element. `what` names the values in the report. */
struct vector_tolerance {
    double rtol;
    double atol;
};
void vector_near(const struct vector_case *c, const char *what, const double *actual,
                 const double *expected, size_t n, struct vector_tolerance tolerance);

/* Compares with the <f8 array `name` under the case's own tolerances: f64_rtol and f64_atol for
 * results computed in double; f32_rel_max, or f32_rtol and f32_atol, for results computed in float.
 * n must be the array's count. */
void vector_compare_f64(const struct vector_case *c, const char *name, const double *actual,
                        size_t n);
void vector_compare_f32(const struct vector_case *c, const char *name, const float *actual,
                        size_t n);

/* One scalar against expect.NAME under f32_scalar_atol. */
void vector_compare_scalar_f32(const struct vector_case *c, const char *name, double actual);

/* Flags and integers must be equal. */
void vector_equal_u8(const struct vector_case *c, const char *name, const uint8_t *actual,
                     size_t n);

#endif
