/* The processes of a run: its own server and its workers. They are ended with the run, whatever
 * ends it, and every one of them is waited for. */
#ifndef GRADWEIR_TRAINER_TRAIN_CHILDREN_H
#define GRADWEIR_TRAINER_TRAIN_CHILDREN_H

#include "client/trainer/train_settings.h"

#include <stdbool.h>
#include <sys/types.h>

enum { CHILDREN_MAX = 256 };

struct child {
    pid_t pid; /* 0: none, or waited for */
    int channel;
    bool killed; /* on purpose */
    bool stuck;  /* it did not end when it was told to, and was killed */
    int status;  /* once it has been waited for: as wait(2) gives it */
};

struct children {
    struct child server;
    bool server_started;
    struct child workers[CHILDREN_MAX];
    size_t n_workers;
    double cpu_s; /* of those that have been waited for */
    char address[128];
    char folder[64]; /* for the port file; "" none */
};

/* Starts gradweir-server, which lies beside this program, and waits until it listens (10 s).
 * False with the reason on stderr. */
bool children_start_server(struct children *children, const struct train_settings *settings);

/* Starts worker `index` as this program again, with the run's own arguments. */
bool children_start_worker(struct children *children, const struct train_settings *settings,
                           char **argv, size_t index);

/* Takes note of those that have ended; calls nobody. Returns how many workers are left. */
size_t children_look(struct children *children);

/* How a child that has been waited for ended: "was killed by signal 9 (Killed)". */
struct child_end {
    char text[80];
};
struct child_end child_end(const struct child *child);

/* Whether there was a server of one's own, and it has ended. */
bool children_server_gone(const struct children *children);

/* Waits up to `seconds` for the workers, then kills the rest: they are `stuck`. */
void children_end_workers(struct children *children, double seconds);
void children_end_server(struct children *children, double seconds);

#endif
