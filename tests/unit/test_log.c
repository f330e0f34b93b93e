#include "common/log.h"

#include "common/clock.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct heard {
    unsigned lines;
    enum log_level level;
    char last[LOG_LINE_MAX];
};

static void hear(void *context, enum log_level level, const char *line)
{
    struct heard *heard = context;
    heard->lines++;
    heard->level = level;
    snprintf(heard->last, sizeof heard->last, "%s", line);
}

Test(log, a_line_carries_level_module_and_text)
{
    struct heard heard = {0};
    struct log log;
    log_init_sink(&log, LOG_INFO, hear, &heard);
    log_line(&log, LOG_WARN, "shard", "%d bodies are late", 3);
    cr_assert_eq(heard.lines, 1);
    cr_assert_eq(heard.level, LOG_WARN);
    cr_assert_not_null(strstr(heard.last, " warn  shard: 3 bodies are late"));
    log.process = "shard 1";
    log_line(&log, LOG_WARN, "transport", "late");
    cr_assert_not_null(strstr(heard.last, " warn  shard 1/transport: late"));
}

Test(log, a_line_begins_with_the_time_of_day_so_that_processes_can_be_laid_side_by_side)
{
    struct heard heard = {0};
    struct log log;
    char before[17], after[17];
    log_init_sink(&log, LOG_INFO, hear, &heard);
    do { /* not around midnight */
        clock_wall_time(before, sizeof before);
        log_line(&log, LOG_INFO, "x", "y");
        clock_wall_time(after, sizeof after);
    } while (strcmp(before, after) > 0);
    cr_assert(strncmp(before, heard.last, 16) <= 0 && strncmp(heard.last, after, 16) <= 0, "%s",
              heard.last);
    cr_assert_eq(heard.last[15], 'Z');
}

Test(log, lines_above_the_level_and_a_null_logger_are_silent)
{
    struct heard heard = {0};
    struct log log;
    log_init_sink(&log, LOG_WARN, hear, &heard);
    log_line(&log, LOG_INFO, "x", "not this");
    log_line(NULL, LOG_ERROR, "x", "nor this");
    cr_assert_eq(heard.lines, 0);
}

Test(log, a_long_or_broken_text_stays_one_line)
{
    struct heard heard = {0};
    struct log log;
    char text[4 * LOG_LINE_MAX];
    memset(text, 'a', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    text[10] = '\n';
    log_init_sink(&log, LOG_INFO, hear, &heard);
    log_line(&log, LOG_INFO, "x", "%s", text);
    cr_assert_lt(strlen(heard.last), LOG_LINE_MAX);
    cr_assert_null(strchr(heard.last, '\n'));
}

Test(log, a_repeating_line_passes_once_a_second_and_counts_the_rest)
{
    struct heard heard = {0};
    struct log log;
    struct log_limit limit = {0};
    log_init_sink(&log, LOG_INFO, hear, &heard);
    const uint64_t before_ns = clock_now_ns();
    log_repeating(&log, &limit, LOG_INFO, "x", "again");
    cr_assert(limit.next_ns >= before_ns + CLOCK_SECOND &&
              limit.next_ns <= clock_now_ns() + CLOCK_SECOND);
    limit.next_ns = UINT64_MAX; /* however long the rest takes */
    for (unsigned i = 1; i < 50; i++)
        log_repeating(&log, &limit, LOG_INFO, "x", "again");
    cr_assert_eq(heard.lines, 1);
    cr_assert_eq(limit.skipped, 49);
    limit.next_ns = 0; /* as if the second were over */
    log_repeating(&log, &limit, LOG_INFO, "x", "again");
    cr_assert_not_null(strstr(heard.last, "(49 like it skipped)"));
    cr_assert_eq(limit.skipped, 0);
}

Test(log, a_file_descriptor_gets_whole_lines)
{
    int ends[2];
    char got[LOG_LINE_MAX];
    struct log log;
    cr_assert_eq(pipe(ends), 0);
    log_init(&log, LOG_INFO, ends[1]);
    log_line(&log, LOG_ERROR, "host", "port %d is in use", 80);
    const ssize_t length = read(ends[0], got, sizeof got);
    cr_assert_gt(length, 0);
    cr_assert_eq(got[length - 1], '\n');
    close(ends[0]);
    close(ends[1]);
}
