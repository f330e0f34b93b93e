/* Whether all that was printed has got out. */
#include "common/printed.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

int printed(const char *program, int code)
{
    errno = 0;
    if (fflush(stdout) == 0 && !ferror(stdout))
        return code;
    fprintf(stderr, "%s: some of the output is lost: %s\n", program,
            errno ? strerror(errno) : "it could not be written");
    return code ? code : 1;
}
