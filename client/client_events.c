/* What happened to a client, as a bounded ring of events; and what it reports about itself. */
#include "client/client_internal.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

static_assert((int)GRADWEIR_NUMBERS_MAX == REPORT_MAX, "the wire holds what the header allows");

static int64_t wall_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static gradweir_event *new_event(struct gradweir_client *client)
{
    gradweir_event *event = &client->events[client->events_next % EVENTS];
    if (client->events_count == EVENTS)
        client->events_dropped++;
    else
        client->events_count++;
    *event = (gradweir_event){.number = ++client->events_next, .time_ns = wall_ns()};
    return event;
}

static void wake(const struct gradweir_client *client)
{
    const uint64_t one = 1;
    if (client->events_fd >= 0) {
        const ssize_t written = write(client->events_fd, &one, sizeof one);
        (void)written; /* full is readable too */
    }
}

static enum log_level level_of(uint32_t kind)
{
    const bool warns = kind == GRADWEIR_EVENT_LOST || kind == GRADWEIR_EVENT_SHARD_LOST ||
                       kind == GRADWEIR_EVENT_REFUSED || kind == GRADWEIR_EVENT_FENCED;
    return warns ? LOG_WARN : LOG_INFO;
}

void client_tell(struct gradweir_client *client, uint32_t kind, gradweir_status status,
                 const char *format, ...)
{
    gradweir_event *event = new_event(client);
    va_list arguments;
    event->kind = kind;
    event->status = status;
    va_start(arguments, format);
    vsnprintf(event->text, sizeof event->text, format, arguments);
    va_end(arguments);
    log_line(&client->log, level_of(kind), "client", "%s", event->text);
    wake(client);
}

void client_failed(struct gradweir_client *client, const struct session_action *action)
{
    const uint32_t kind = action->status == GRADWEIR_ERR_FENCED    ? GRADWEIR_EVENT_FENCED
                          : action->status == GRADWEIR_ERR_STOPPED ? GRADWEIR_EVENT_STOPPED
                                                                   : GRADWEIR_EVENT_REFUSED;
    client->failed = action->status;
    memcpy(client->failed_text, action->message.denied.text, sizeof client->failed_text);
    client_tell(client, kind, action->status, "%s: %s", client->address, client->failed_text);
}

static size_t take_events(struct gradweir_client *client, gradweir_event *events, size_t max)
{
    size_t count = 0;
    while (count < max && client->events_count) {
        const uint64_t oldest = client->events_next - client->events_count--;
        events[count++] = client->events[oldest % EVENTS];
    }
    if (client->events_fd >= 0 && client->events_count == 0) {
        uint64_t waiting;
        const ssize_t got = read(client->events_fd, &waiting, sizeof waiting);
        (void)got;
    }
    return count;
}

size_t gradweir_events(gradweir_client *client, gradweir_event *events, size_t max,
                       uint64_t *dropped)
{
    if (!client || (max && !events))
        return 0;
    client_lock(client);
    client_turn(client);
    const size_t count = take_events(client, events, max);
    if (dropped)
        *dropped = client->events_dropped;
    client_unlock(client);
    return count;
}

int gradweir_events_fd(gradweir_client *client)
{
    if (!client)
        return -1;
    client_lock(client);
    if (client->events_fd < 0) {
        client->events_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
        if (client->events_count)
            wake(client);
    }
    const int fd = client->events_fd;
    client_unlock(client);
    return fd;
}

const char *gradweir_event_text(uint32_t kind)
{
    static const char *const texts[] = {[GRADWEIR_EVENT_CONNECTED] = "CONNECTED",
                                        [GRADWEIR_EVENT_LOST] = "LOST",
                                        [GRADWEIR_EVENT_JOINED] = "JOINED",
                                        [GRADWEIR_EVENT_SHARD_CONNECTED] = "SHARD_CONNECTED",
                                        [GRADWEIR_EVENT_SHARD_LOST] = "SHARD_LOST",
                                        [GRADWEIR_EVENT_PUSH_REFUSED] = "PUSH_REFUSED",
                                        [GRADWEIR_EVENT_REFUSED] = "REFUSED",
                                        [GRADWEIR_EVENT_FENCED] = "FENCED",
                                        [GRADWEIR_EVENT_STOPPED] = "STOPPED"};
    return kind < sizeof texts / sizeof *texts && texts[kind] ? texts[kind] : "?";
}

/* Reports. */

static gradweir_status check_number(const gradweir_number *number)
{
    const size_t length = number->name ? strlen(number->name) : 0;
    bool good = length > 0 && length < REPORT_NAME_MAX;
    for (size_t i = 0; good && i < length; i++)
        good = isprint((unsigned char)number->name[i]) && !strchr("\"\\", number->name[i]);
    if (!good)
        return fail(GRADWEIR_ERR_INVALID,
                    "\"%.40s\" is no name for a number: 1 to %d printable characters, no quotes",
                    number->name ? number->name : "", REPORT_NAME_MAX - 1);
    return GRADWEIR_OK;
}

/* Into a copy of what was reported before, so that a bad one changes nothing. */
static gradweir_status merge(struct report_number numbers[REPORT_MAX], uint32_t *count,
                             const gradweir_number *number)
{
    uint32_t i = 0;
    TRY(check_number(number));
    while (i < *count && strcmp(numbers[i].name, number->name) != 0)
        i++;
    if (i == REPORT_MAX)
        return fail(GRADWEIR_ERR_FULL, "%s: %d other numbers are reported already, and no more fit",
                    number->name, REPORT_MAX);
    if (i == *count) {
        numbers[i] = (struct report_number){.value = 0};
        strcpy(numbers[i].name, number->name);
        ++*count;
    }
    numbers[i].value = number->value;
    return GRADWEIR_OK;
}

void client_send_report(struct gradweir_client *client)
{
    struct message message = {.kind = MESSAGE_REPORT,
                              .epoch = client->session.epoch,
                              .timeline = client->session.timeline};
    if (!client->numbers_count)
        return;
    message.report.name =
        (struct name){.worker = client->session.worker, .incarnation = client->session.incarnation};
    message.report.numbers_count = client->numbers_count;
    memcpy(message.report.numbers, client->numbers, sizeof client->numbers);
    control_send(client->control, CONTROL_SERVER, &message);
}

static gradweir_status report(struct gradweir_client *client, const gradweir_number *numbers,
                              size_t count)
{
    struct report_number merged[REPORT_MAX];
    uint32_t merged_count = client->numbers_count;
    if (!client->joined)
        return fail(GRADWEIR_ERR_STATE, "report comes after bind");
    memcpy(merged, client->numbers, sizeof merged);
    for (size_t i = 0; i < count; i++)
        TRY(merge(merged, &merged_count, &numbers[i]));
    memcpy(client->numbers, merged, sizeof merged);
    client->numbers_count = merged_count;
    client_send_report(client);
    client_turn(client);
    return GRADWEIR_OK;
}

gradweir_status gradweir_report(gradweir_client *client, const gradweir_number *numbers,
                                size_t count)
{
    TRY(client_given(client, "client"));
    if (count)
        TRY(client_given(numbers, "numbers"));
    client_lock(client);
    const gradweir_status status = report(client, numbers, count);
    client_unlock(client);
    return status;
}
