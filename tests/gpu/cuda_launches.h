/* Which kernels have been launched, of all that are in the folder, where they run on the CPU
 * (cuda_on_cpu.h). A launch is named by file, kernel and template arguments as written. */
#ifndef GRADWEIR_TESTS_GPU_CUDA_LAUNCHES_H
#define GRADWEIR_TESTS_GPU_CUDA_LAUNCHES_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { CUDA_LAUNCHES_MAX = 256 };

/* All there are, made by emulate.py. Ends with NULL. */
extern const char *const cuda_launches[];

/* Whether launch i has happened since the last forget. */
void cuda_launches_forget(void);
bool cuda_launches_seen(size_t i);

/* From now on this launch does nothing. name: of the table, borrowed; NULL: all run again. */
void cuda_launches_leave_out(const char *name);

#ifdef __cplusplus
}
#endif

#endif
