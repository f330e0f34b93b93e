/* Formats a line on the stack and hands it over in one piece. */
#include "common/log.h"

#include "common/clock.h"
#include "common/status.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void log_init(struct log *log, enum log_level level, int fd)
{
    *log = (struct log){.level = level, .fd = fd};
}

void log_init_sink(struct log *log, enum log_level level, log_sink sink, void *context)
{
    ASSERT(sink != NULL);
    *log = (struct log){.level = level, .fd = -1, .sink = sink, .context = context};
}

const char *log_level_name(enum log_level level)
{
    static const char *const names[] = {"error", "warn", "info", "debug"};
    ASSERT((size_t)level < sizeof names / sizeof *names);
    return names[level];
}

static size_t bounded(int written, size_t room)
{
    if (written < 0)
        return 0;
    return (size_t)written < room ? (size_t)written : room - 1;
}

/* A newline inside a line would let a peer's text pass for a line of ours. */
static void flatten(char *line)
{
    for (; *line; line++)
        if ((unsigned char)*line < 0x20)
            *line = ' ';
}

static void emit(const struct log *log, enum log_level level, char *line, size_t length)
{
    flatten(line);
    if (log->sink) {
        log->sink(log->context, level, line);
        return;
    }
    line[length++] = '\n';
    /* A diagnostic that cannot be written has nobody to complain to. */
    ssize_t ignored = write(log->fd, line, length);
    (void)ignored;
}

static void format_line(const struct log *log, enum log_level level, const char *module,
                        uint64_t skipped, const char *format, va_list arguments)
{
    char line[LOG_LINE_MAX];
    const size_t room = sizeof line - 48; /* for the skipped count and the newline */
    char time[17];
    clock_wall_time(time, sizeof time);
    size_t used =
        bounded(snprintf(line, room, "%s %-5s %s%s%s: ", time, log_level_name(level),
                         log->process ? log->process : "", log->process ? "/" : "", module),
                room);
    used += bounded(vsnprintf(line + used, room - used, format, arguments), room - used);
    if (skipped)
        used += bounded(snprintf(line + used, sizeof line - 1 - used, " (%llu like it skipped)",
                                 (unsigned long long)skipped),
                        sizeof line - 1 - used);
    emit(log, level, line, used);
}

void log_line(const struct log *log, enum log_level level, const char *module, const char *format,
              ...)
{
    if (!log || level > log->level)
        return;
    va_list arguments;
    va_start(arguments, format);
    format_line(log, level, module, 0, format, arguments);
    va_end(arguments);
}

void log_repeating(const struct log *log, struct log_limit *limit, enum log_level level,
                   const char *module, const char *format, ...)
{
    if (!log || level > log->level)
        return;
    const uint64_t now_ns = clock_now_ns();
    if (now_ns < limit->next_ns) {
        limit->skipped++;
        return;
    }
    va_list arguments;
    va_start(arguments, format);
    format_line(log, level, module, limit->skipped, format, arguments);
    va_end(arguments);
    *limit = (struct log_limit){.next_ns = deadline_after(now_ns, CLOCK_SECOND)};
}
