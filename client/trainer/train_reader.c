/* See train_reader.h. */
#include "client/trainer/train_reader.h"

#include "client/trainer/pace.h"

#include <stdio.h>

enum { OPEN_MS = 1000, TURN_MS = 100 };

static bool goes_on(const struct train_reader *reader, double end, gradweir_status status)
{
    const bool away = status == GRADWEIR_ERR_TIMEOUT || status == GRADWEIR_ERR_UNREACHABLE;
    children_look(reader->children);
    return away && !*reader->interrupted && !children_server_gone(reader->children) &&
           pace_wall_seconds() < end;
}

static gradweir_status join(struct train_reader *reader)
{
    gradweir_options options;
    char identity[128]; /* the first worker's key, and yet not the first worker */
    snprintf(identity, sizeof(identity), "%s-0/run", reader->settings->identity);
    gradweir_options_default(&options);
    options.address = reader->children->address;
    options.identity = identity;
    options.keys = reader->settings->keys;
    options.insecure = reader->settings->insecure;
    options.role = GRADWEIR_READER;
    options.connect_timeout_ms = OPEN_MS;
    gradweir_status status = gradweir_open(&options, &reader->client);
    if (status == GRADWEIR_OK)
        status = gradweir_bind(reader->client, NULL, 0);
    if (status != GRADWEIR_OK) {
        gradweir_close(reader->client); /* a client binds once */
        reader->client = NULL;
    }
    return status;
}

bool train_reader_pull(struct train_reader *reader, double seconds, float *parameters, size_t n)
{
    const double end = pace_wall_seconds() + seconds;
    gradweir_status status = reader->client != NULL ? GRADWEIR_OK : GRADWEIR_ERR_TIMEOUT;
    gradweir_ticket ticket = 0;
    while (reader->client == NULL && goes_on(reader, end, status))
        status = join(reader);
    if (status == GRADWEIR_OK)
        status = gradweir_pull(reader->client, &ticket);
    if (status == GRADWEIR_OK)
        do
            status = gradweir_wait(reader->client, ticket, TURN_MS, NULL);
        while (goes_on(reader, end, status));
    return status == GRADWEIR_OK &&
           gradweir_parameters(reader->client, parameters, n) == GRADWEIR_OK;
}
