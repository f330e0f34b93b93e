/* See train_status.h. */
#include "client/trainer/train_status.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STATUS_BYTES = 65536 };

static uint64_t number_after(const char *text, const char *name)
{
    const char *place = strstr(text, name);
    return place != NULL ? strtoull(place + strlen(name), NULL, 10) : 0;
}

void train_status_ask(gradweir_client *client, struct train_status *status)
{
    static const char *const refusals[] = {"\"STALE\":",    "\"FUTURE\":",    "\"NOT_FINITE\":",
                                           "\"MISMATCH\":", "\"CANCELLED\":", "\"QUEUE_FULL\":"};
    char *text = malloc(STATUS_BYTES);
    if (text == NULL || client == NULL ||
        gradweir_status_json(client, 1000, text, STATUS_BYTES) != GRADWEIR_OK) {
        free(text);
        return;
    }
    status->known = true;
    status->queue = number_after(text, "\"queue\":");
    status->queue_peak = number_after(text, "\"queue_peak\":");
    status->pushes = number_after(text, "\"pushes\":");
    status->duplicates = number_after(text, "\"duplicates\":");
    status->admitted = number_after(text, "\"ADMITTED\":");
    status->refused = 0;
    for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++)
        status->refused += number_after(text, refusals[i]);
    free(text);
}

/* A push that was admitted twice, or whose verdict nobody heard, shows here. */
static bool agree(const struct train_status *status, const struct learner_counts *counts,
                  uint64_t offers_max)
{
    const uint64_t offers = status->pushes - counts->pushes;
    return status->pushes > counts->pushes && offers <= offers_max &&
           status->admitted == counts->admitted + 1 &&
           status->refused == counts->refused + offers - 1;
}

/* Both sides, so that the sums can be checked by eye. */
static void say_workers(const struct train_status *status, const struct learner_counts *counts,
                        bool agreed)
{
    if (agreed)
        printf("workers heard %llu verdicts on gradients = %llu admitted + %llu refused, and made "
               "%llu offers of first parameters = 1 admitted + %llu refused",
               (unsigned long long)counts->pushes, (unsigned long long)counts->admitted,
               (unsigned long long)counts->refused,
               (unsigned long long)(status->pushes - counts->pushes),
               (unsigned long long)(status->pushes - counts->pushes - 1));
    else
        printf("workers heard %llu verdicts on gradients, %llu of them ADMITTED",
               (unsigned long long)counts->pushes, (unsigned long long)counts->admitted);
}

bool train_status_audit(const struct train_status *status, const struct learner_counts *counts,
                        uint64_t offers_max)
{
    if (!status->known)
        return true;
    const bool agreed = offers_max > 0 && agree(status, counts, offers_max);
    const bool whole =
        status->pushes == status->admitted + status->refused && (offers_max == 0 || agreed);
    printf("audit: %llu pushes at the servers, offers of first parameters among them, = %llu "
           "admitted + %llu refused: %s; ",
           (unsigned long long)status->pushes, (unsigned long long)status->admitted,
           (unsigned long long)status->refused, whole ? "whole" : "NOT WHOLE");
    say_workers(status, counts, agreed);
    printf("%s; queue at most %llu\n",
           offers_max == 0 ? " (those of a lost or foreign worker are not in it)" : "",
           (unsigned long long)status->queue_peak);
    return whole || offers_max == 0;
}
