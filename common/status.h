/* The one list of what can go wrong, and the reason of the last failure.
 *
 * GRADWEIR_OK is 0, failures are negative. Whoever decides which failure it is says why, once, with
 * fail(); everyone above passes it on with TRY(). A failed ASSERT is our own mistake and ends the
 * process, in release builds too. The list itself is public: gradweir/status.h gives users the same
 * names and numbers. */
#ifndef GRADWEIR_COMMON_STATUS_H
#define GRADWEIR_COMMON_STATUS_H

#include "client/include/gradweir/status.h"

/* Keeps the formatted reason for this thread and returns status, so that it reads `return
 * fail(GRADWEIR_ERR_LOST,
 * "%s: ...", address)`. A reason longer than 1023 bytes is cut. */
gradweir_status fail(gradweir_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The reason of this thread's last failure; "" when nothing failed yet. Valid until the thread's
 * next fail(). */
const char *fail_reason(void);

#define TRY(call)                                                                                  \
    do {                                                                                           \
        gradweir_status try_status_ = (call);                                                      \
        if (try_status_ != GRADWEIR_OK)                                                            \
            return try_status_;                                                                    \
    } while (0)

#define ASSERT(condition)                                                                          \
    do {                                                                                           \
        if (!(condition))                                                                          \
            assert_failed(#condition, __FILE__, __LINE__);                                         \
    } while (0)

_Noreturn void assert_failed(const char *condition, const char *file, int line);

#endif
