/* Takes back the signal handlers that libucs installs by merely being loaded: for HUP (its debug
 * signal) and for SEGV, BUS, FPE and ILL. A program that uses us has chosen none of them: a closed
 * terminal would not end it, and a crash would not be its own.
 *
 * UCX reads its settings in a constructor of its own, before anything of ours runs, so they cannot
 * be given to it in time; ours runs right after (a library's constructors run after those of what
 * it needs) and asks UCX for the handlers that were there before. Whoever sets UCX_ERROR_SIGNALS,
 * UCX_HANDLE_ERRORS or UCX_DEBUG_SIGNO wants UCX's, and keeps them. */
#include "common/transport_ucx.h"

#include <dlfcn.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <ucs/debug/debug.h>

/* A handler that somebody else has installed since is not UCX's to take back. */
static bool is_of_ucs(int number)
{
    struct sigaction now;
    const void *place;
    Dl_info found;
    if (sigaction(number, NULL, &now) != 0 || now.sa_handler == SIG_DFL ||
        now.sa_handler == SIG_IGN)
        return false;
    static_assert(sizeof place == sizeof now.sa_handler, "a function has an address");
    memcpy(&place, &now.sa_handler, sizeof place); /* ISO C does not convert one to the other */
    return dladdr(place, &found) != 0 && strstr(found.dli_fname, "libucs");
}

__attribute__((constructor)) void ucx_leave_signals(void)
{
    static const int numbers[] = {SIGHUP, SIGILL, SIGSEGV, SIGBUS, SIGFPE};
    if (getenv("UCX_ERROR_SIGNALS") || getenv("UCX_HANDLE_ERRORS") || getenv("UCX_DEBUG_SIGNO"))
        return;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (is_of_ucs(numbers[i]))
            ucs_debug_disable_signal(numbers[i]);
}
