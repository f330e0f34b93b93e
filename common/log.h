/* Diagnostic lines: one line, one write.
 *
 * A logger is an explicit object that its owner passes down; there is no process-wide one. A line
 * reads "12:34:56.789012Z warn  shard: 3 bodies are late\n", that is: the time of day in UTC,
 * level, module, text. So lines of several processes and machines can be laid side by side; where
 * they go into one file, "shard 1/transport" says whose line it is. It leaves by one write(2) to a
 * file descriptor, or by one call of a sink (the client library hands lines to its user that way).
 * A logger does not change after log_init, so any number of threads may use one; lines never mix. A
 * NULL logger is allowed and silent. Cores do not log: what is worth saying there is an action or a
 * counter. */
#ifndef GRADWEIR_COMMON_LOG_H
#define GRADWEIR_COMMON_LOG_H

#include <stddef.h>
#include <stdint.h>

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };

#define LOG_LINE_MAX 1024 /* longer lines are cut; the newline stays */

/* Gets a line without its newline; `line` is valid during the call only. It may be called by any
 * thread that logs. */
typedef void (*log_sink)(void *context, enum log_level level, const char *line);

struct log {
    enum log_level level; /* lines above it are dropped */
    int fd;               /* used when sink is NULL */
    log_sink sink;
    void *context;
    const char *process; /* NULL, or what stands before the module: "shard 1". Borrowed; set once,
                            before anybody logs */
};

/* Lives in the owner of a repeating line, zeroed at first. One thread at a time. */
struct log_limit {
    uint64_t next_ns;
    uint64_t skipped;
};

/* Lines go to fd (which stays the caller's), or to sink when that is not NULL. */
void log_init(struct log *log, enum log_level level, int fd);
void log_init_sink(struct log *log, enum log_level level, log_sink sink, void *context);

void log_line(const struct log *log, enum log_level level, const char *module, const char *format,
              ...) __attribute__((format(printf, 4, 5)));

/* As log_line, but at most once a second for this limit; the next line that passes ends with how
 * many were skipped. */
void log_repeating(const struct log *log, struct log_limit *limit, enum log_level level,
                   const char *module, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

const char *log_level_name(enum log_level level);

#endif
