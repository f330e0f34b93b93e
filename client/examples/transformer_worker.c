/* See transformer_worker.h. */
#include "client/examples/transformer_worker.h"

#include <stdio.h>
#include <stdlib.h>

enum { PATIENCE_MS = 30000 };

static bool well(gradweir_status status, const char *what)
{
    if (status == GRADWEIR_OK)
        return true;
    fprintf(stderr, "%s: %s: %s\n", what, gradweir_status_text(status), gradweir_last_error());
    return false;
}

static bool join(struct transformer_worker *worker, const struct transformer_seat *seat)
{
    gradweir_options client;
    gradweir_options_default(&client);
    client.address = seat->address;
    client.identity = seat->group;
    client.keys = seat->keys;
    client.rank = seat->rank;
    client.ranks = seat->ranks;
    gradweir_group_options options;
    gradweir_group_options_default(&options);
    options.client = &client;
    options.samples = GRADWEIR_SAMPLES_SHARED; /* all ranks see the same words */
    options.timeout_ms = PATIENCE_MS;
    return well(gradweir_group_join(&options, &worker->group), "join");
}

/* What is cut is told before bind: a box of each such tensor. */
static bool tell_parts(struct transformer_worker *worker)
{
    for (size_t i = 0; i < worker->model->tensors_count; i++) {
        const struct transformer_tensor *tensor = &worker->model->tensors[i];
        if (tensor->cut && worker->model->ranks > 1 &&
            !well(gradweir_group_part(worker->group, i, tensor->axis, tensor->first, tensor->count),
                  tensor->name))
            return false;
    }
    return true;
}

static bool bind(struct transformer_worker *worker)
{
    const size_t count = worker->model->tensors_count;
    gradweir_tensor *tensors = calloc(count, sizeof *tensors);
    if (tensors == NULL)
        return false;
    for (size_t i = 0; i < count; i++) {
        const struct transformer_tensor *tensor = &worker->model->tensors[i];
        tensors[i] = (gradweir_tensor){.name = tensor->name,
                                       .dimensions = tensor->dimensions,
                                       .shape = {tensor->shape[0], tensor->shape[1]},
                                       .parameters = tensor->weights,
                                       .gradient = tensor->gradient};
    }
    const bool bound = well(gradweir_group_bind(worker->group, tensors, count), "bind");
    free(tensors);
    return bound;
}

bool transformer_worker_open(struct transformer_worker *worker, struct transformer_model *model,
                             const struct transformer_seat *seat)
{
    *worker = (struct transformer_worker){.model = model};
    if (join(worker, seat) && tell_parts(worker) && bind(worker) &&
        well(gradweir_group_offer(worker->group, PATIENCE_MS), "offer"))
        return true;
    transformer_worker_close(worker);
    return false;
}

void transformer_worker_close(struct transformer_worker *worker)
{
    gradweir_group_leave(worker->group);
    worker->group = NULL;
}

bool transformer_worker_pull(struct transformer_worker *worker)
{
    gradweir_receipt receipt;
    if (!well(gradweir_group_pull(worker->group, &receipt), "pull"))
        return false;
    worker->version = receipt.version;
    return true;
}

bool transformer_worker_push(struct transformer_worker *worker, uint64_t samples,
                             gradweir_receipt *receipt)
{
    return well(gradweir_group_push(worker->group, samples, receipt), "push");
}

bool transformer_worker_sum(void *context, real *x, size_t n)
{
    struct transformer_worker *worker = context;
    return worker->model->ranks == 1 || well(gradweir_group_reduce(worker->group, x, x, n), "sum");
}

void transformer_worker_report(struct transformer_worker *worker, double reward)
{
    const gradweir_number number = {.name = "reward", .value = reward};
    (void)gradweir_report(gradweir_group_client(worker->group), &number, 1);
}
