/* Keeps the reason of each thread's last failure; ends the process on a failed ASSERT. */
#include "common/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static _Thread_local char reason[1024];

gradweir_status fail(gradweir_status status, const char *format, ...)
{
    char text[sizeof reason];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    snprintf(reason, sizeof reason, "%s", text);
    return status;
}

const char *fail_reason(void)
{
    return reason;
}

_Noreturn void assert_failed(const char *condition, const char *file, int line)
{
    fprintf(stderr, "gradweir: %s:%d: ASSERT(%s) failed\n", file, line, condition);
    abort();
}
