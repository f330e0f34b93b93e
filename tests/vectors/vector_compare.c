/* Compares results with expected values under the tolerances of README.md. */
#include "tests/vectors/vector_case.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* How far an element is outside its tolerance: <= 1 is inside. */
static double excess(double actual, double expected, double tolerance)
{
    if (isnan(expected))
        return isnan(actual) ? 0 : INFINITY;
    if (actual == expected)
        return 0;
    if (!isfinite(actual) || !isfinite(expected))
        return INFINITY;
    const double error = fabs(actual - expected);
    return error <= tolerance ? 0.5 : error / tolerance;
}

void vector_near(const struct vector_case *c, const char *what, const double *actual,
                 const double *expected, size_t n, struct vector_tolerance tolerance)
{
    double worst = 0;
    size_t at = 0;
    for (size_t i = 0; i < n; i++) {
        const double e =
            excess(actual[i], expected[i], tolerance.atol + tolerance.rtol * fabs(expected[i]));
        if (e > worst) {
            worst = e;
            at = i;
        }
    }
    cr_expect(worst <= 1, "%s/%s: %s[%zu] is %.17g, expected %.17g (%.3g times the tolerance)",
              c->family, c->name, what, at, n > 0 ? actual[at] : 0, n > 0 ? expected[at] : 0,
              worst);
}

void vector_compare_f64(const struct vector_case *c, const char *name, const double *actual,
                        size_t n)
{
    const struct vector_array *array = vector_array(c, name);
    cr_assert(array->count == n, "%s/%s: %s has %zu elements, not %zu", c->family, c->name, name,
              array->count, n);
    const struct vector_tolerance tolerance = {.rtol = vector_number(c, "tol.f64_rtol"),
                                               .atol = vector_number(c, "tol.f64_atol")};
    vector_near(c, name, actual, vector_f64(c, name), n, tolerance);
}

/* f32_rel_max is relative to the largest element of the array; a case without it has the usual
 * pair. */
static struct vector_tolerance float_tolerance(const struct vector_case *c, const double *expected,
                                               size_t n)
{
    struct vector_tolerance tolerance = {0, 0};
    if (vector_has(c, "tol.f32_rel_max")) {
        for (size_t i = 0; i < n; i++)
            tolerance.atol = fmax(tolerance.atol, fabs(expected[i]));
        tolerance.atol *= vector_number(c, "tol.f32_rel_max");
        return tolerance;
    }
    if (vector_has(c, "tol.f32_rtol"))
        tolerance.rtol = vector_number(c, "tol.f32_rtol");
    tolerance.atol = vector_number(c, "tol.f32_atol");
    return tolerance;
}

void vector_compare_f32(const struct vector_case *c, const char *name, const float *actual,
                        size_t n)
{
    const struct vector_array *array = vector_array(c, name);
    cr_assert(array->count == n, "%s/%s: %s has %zu elements, not %zu", c->family, c->name, name,
              array->count, n);
    double *wide = malloc((n + 1) * sizeof(*wide));
    cr_assert(wide != NULL);
    for (size_t i = 0; i < n; i++)
        wide[i] = actual[i];
    const double *expected = vector_f64(c, name);
    vector_near(c, name, wide, expected, n, float_tolerance(c, expected, n));
    free(wide);
}

void vector_compare_scalar_f32(const struct vector_case *c, const char *name, double actual)
{
    char key[VECTOR_NAME_MAX];
    snprintf(key, sizeof(key), "expect.%s", name);
    const double expected = vector_number(c, key);
    const struct vector_tolerance tolerance = {.rtol = 0,
                                               .atol = vector_number(c, "tol.f32_scalar_atol")};
    vector_near(c, key, &actual, &expected, 1, tolerance);
}

void vector_equal_u8(const struct vector_case *c, const char *name, const uint8_t *actual, size_t n)
{
    const struct vector_array *array = vector_array(c, name);
    cr_assert(array->count == n, "%s/%s: %s has %zu elements, not %zu", c->family, c->name, name,
              array->count, n);
    const uint8_t *expected = vector_u8(c, name);
    for (size_t i = 0; i < n; i++)
        if (actual[i] != expected[i]) {
            cr_expect(false, "%s/%s: %s[%zu] is %d, expected %d", c->family, c->name, name, i,
                      actual[i], expected[i]);
            return;
        }
}
