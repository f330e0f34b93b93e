/* What a worker process tells the run that started it, over a socket that keeps message borders:
 * one message per rollout (more when many episodes ended). The run answers with one byte: stop. */
#ifndef GRADWEIR_TRAINER_TRAIN_CHANNEL_H
#define GRADWEIR_TRAINER_TRAIN_CHANNEL_H

#include "client/trainer/learner.h"
#include "client/trainer/overseer.h"

enum { CHANNEL_RETURNS_MAX = 256, CHANNEL_TEXT = 240 };

struct channel_news {
    uint32_t worker;
    uint32_t n_returns;
    uint64_t environment_steps;
    uint64_t version;
    double kl;
    struct learner_counts counts; /* all since the worker's start */
    char failed[CHANNEL_TEXT];    /* with the last news: why it ends; "" as it was told to */
    double returns[CHANNEL_RETURNS_MAX];
};

/* The worker's side: an overseer that passes everything on and stops when told, or when the run is
 * gone. */
struct channel_overseer {
    struct overseer overseer;
    int fd;
    uint32_t worker;
    const struct learner *learner;
};
void channel_overseer_init(struct channel_overseer *channel, int fd, uint32_t worker,
                           const struct learner *learner);

/* A last message after training: the final counts, and why it failed ("": it did not). */
void channel_finish(const struct channel_overseer *channel, const char *failed);

/* The only message of a worker that could not begin. */
void channel_give_up(int fd, uint32_t worker, const char *failed);

/* Whether the run has said stop, or is gone, by now or within `seconds`; it is not heard by that.
 */
bool channel_is_over(int fd, double seconds);

/* The run's side: 1 news were read; 0 nothing there; -1 the worker is gone. */
int channel_read(int fd, struct channel_news *news);
void channel_stop(int fd);

#endif
