/* Which gradients are behind a range of versions, read from a recording's log. */
#ifndef GRADWEIR_SERVER_BLAME_H
#define GRADWEIR_SERVER_BLAME_H

#include "common/status.h"

#include <stdint.h>
#include <stdio.h>

struct blame_options {
    const char *folder;
    uint64_t from, to; /* the steps that made these versions, both included */
    FILE *out;         /* for people */
    FILE *csv;         /* a line for each gradient that a step read; NULL: none */
};

/* ERR_STATE when the recording ends before `from`; ERR_CORRUPT when the log is damaged. */
gradweir_status blame_run(const struct blame_options *options);

/* gradweir-server blame V1..V2 DIR [--csv FILE] */
int blame_main(int argc, char **argv);

#endif
