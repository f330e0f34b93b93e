/* Pushes and pulls as tickets, and the wait for them. */
#include "client/client_ahead.h"
#include "client/client_feedback.h"
#include "client/client_memory.h"

#include "common/clock.h"

#include <stdio.h>
#include <string.h>

static const uint64_t push_patience_ns = 60 * CLOCK_SECOND;

static struct result *new_result(struct gradweir_client *client, bool pull)
{
    struct result *result = &client->results[++client->last_ticket % RESULTS];
    memset(result, 0, sizeof *result);
    result->ticket = client->last_ticket;
    result->pull = pull;
    return result;
}

static const struct result *find_result(const struct gradweir_client *client,
                                        gradweir_ticket ticket)
{
    const struct result *result = &client->results[ticket % RESULTS];
    return ticket != 0 && result->ticket == ticket ? result : NULL;
}

/* Elements of MOMENTS are numbered behind the parameters. None is named when an element was finite
 * but too large. */
static void name_tensor(const struct gradweir_client *client, uint64_t element,
                        gradweir_receipt *receipt)
{
    const struct model *model = client->model;
    receipt->element = element;
    for (uint32_t i = 0; i < model->tensors_count; i++) {
        const struct model_tensor *tensor = &model->tensors[i];
        const uint64_t first =
            tensor->offset + (tensor->kind == MODEL_MOMENTS ? model->elements : 0);
        if (element >= first && element - first < tensor->elements)
            snprintf(receipt->tensor, sizeof receipt->tensor, "%s", tensor->name);
    }
}

static void tell_refusal(struct gradweir_client *client, const struct session_action *action)
{
    const struct message_receipt *from = &action->message.receipt;
    gradweir_receipt named = {.status = GRADWEIR_OK};
    if (from->verdict == VERDICT_NOT_FINITE)
        name_tensor(client, from->detail, &named);
    const bool large = from->verdict == VERDICT_NOT_FINITE && !named.tensor[0];
    client_tell(client, GRADWEIR_EVENT_PUSH_REFUSED, action->status, "push %llu: %s %s",
                (unsigned long long)from->name.sequence,
                from->verdict ? verdict_name(from->verdict) : "its fate is not known here",
                large ? "(an element is above magnitude_max)" : named.tensor);
}

void client_verdict(struct gradweir_client *client, const struct session_action *action)
{
    const struct message_receipt *from = &action->message.receipt;
    const gradweir_ticket ticket = client->buffer_tickets[action->buffer];
    struct result *result = &client->results[ticket % RESULTS];
    client_feedback_verdict(client, action->buffer, from->verdict);
    client->busy[action->buffer] = false;
    if (from->verdict != VERDICT_ADMITTED)
        tell_refusal(client, action);
    if (result->ticket != ticket)
        return; /* nobody waited while 64 others came */
    result->done = true;
    result->receipt = (gradweir_receipt){.status = action->status,
                                         .verdict = from->verdict,
                                         .version = from->version,
                                         .sequence = from->name.sequence,
                                         .index = from->index,
                                         .staleness = from->staleness,
                                         .weight = from->weight,
                                         .durable = from->durable};
    if (from->verdict == VERDICT_NOT_FINITE)
        name_tensor(client, from->detail, &result->receipt);
}

/* All pulls that are under way get this version: a later one stands for an earlier one that nobody
 * has waited for. Only one is with memory of its own, the one that was asked for. */
void client_pulled(struct gradweir_client *client, const struct session_action *action)
{
    const bool apart = client->pull_boxes.apart;
    const bool untouched = action->status == GRADWEIR_OK && !action->moved;
    if (!apart && untouched) {
        client->pulled = client->pulled_before;
    } else if (!apart) {
        client->pulled = action->moved; /* refused: what came of it may lie in the buffer */
        client->loaded = false;
        client->received_version = action->version;
    } else if (action->moved) {
        client->seen = action->version > client->seen ? action->version : client->seen;
        client->seen_any = true;
    }
    if (apart)
        client_memory_landed(client, action->status == GRADWEIR_OK && action->moved);
    for (uint32_t i = 0; i < RESULTS; i++) {
        struct result *result = &client->results[i];
        if (!result->pull || result->done || result->apart != apart)
            continue;
        result->done = true;
        if (untouched && result->ticket != client->pull_ticket)
            continue; /* what it was told before still holds */
        result->receipt = (gradweir_receipt){
            .status = action->status, .version = action->version, .moved = action->moved};
    }
}

static uint32_t free_buffer(const struct gradweir_client *client)
{
    for (uint32_t i = 0; i < client->options.outstanding; i++)
        if (!client->busy[i])
            return i;
    return UINT32_MAX;
}

static bool has_buffer(const struct gradweir_client *client, uint64_t what)
{
    (void)what;
    return free_buffer(client) != UINT32_MAX;
}

static gradweir_status may_push(const struct gradweir_client *client,
                                const struct session_push_request *wanted)
{
    const uint64_t samples = wanted->samples;
    if (!client->bound || client->options.role != GRADWEIR_WORKER)
        return fail(GRADWEIR_ERR_STATE, "push comes after bind, by a worker (this one is %s)",
                    client->bound ? "a reader" : "not bound");
    if (wanted->purpose == PURPOSE_FIRST)
        return GRADWEIR_OK;
    if (!client->based && (wanted->basis == PULLED_LAST || !client->seen_any))
        return fail(GRADWEIR_ERR_STATE,
                    "push before pull: a gradient needs the version it was "
                    "computed from, so pull and wait first%s",
                    client->seen_any ? "; of a pull into other memory than the bound one, name it: "
                                       "gradweir_push_from"
                                     : "");
    const uint64_t pulled = client->version > client->seen ? client->version : client->seen;
    if (wanted->basis != PULLED_LAST && wanted->basis > pulled)
        return fail(GRADWEIR_ERR_INVALID,
                    "basis is %llu: this client has pulled version %llu and none newer",
                    (unsigned long long)wanted->basis, (unsigned long long)pulled);
    if (client->gathered_samples && samples)
        return fail(GRADWEIR_ERR_STATE,
                    "%llu samples are accumulated: push them with samples = 0, "
                    "or accumulate these too",
                    (unsigned long long)client->gathered_samples);
    if (!client->gathered_samples && (samples == 0 || samples > SAMPLES_MAX))
        return fail(GRADWEIR_ERR_INVALID, "samples is %llu: 1 to 2^53 are allowed",
                    (unsigned long long)samples);
    return GRADWEIR_OK;
}

gradweir_status client_push(struct gradweir_client *client,
                            const struct session_push_request *wanted, gradweir_ticket *ticket)
{
    TRY(may_push(client, wanted));
    const enum client_source source = wanted->purpose == PURPOSE_FIRST ? CLIENT_PARAMETERS
                                      : client->gathered_samples       ? CLIENT_ACCUMULATED
                                                                       : CLIENT_GRADIENT;
    if (source == CLIENT_PARAMETERS)
        TRY(client_body_has_parameters(client));
    if (source == CLIENT_GRADIENT)
        TRY(client_body_has_gradients(client));
    TRY(client_memory_whole(client));
    TRY(client_wait_until(client, has_buffer, 0, deadline_after(clock_now_ns(), push_patience_ns)));
    const uint32_t buffer = free_buffer(client);
    struct session_push_request what = *wanted;
    what.buffer = buffer;
    if (wanted->basis == PULLED_LAST)
        what.basis = client->gathered_samples ? client->gathered_basis : client->version;
    if (source == CLIENT_ACCUMULATED)
        what.samples = client->gathered_samples;
    struct result *result = new_result(client, false);
    client->busy[buffer] = true;
    client->buffer_tickets[buffer] = result->ticket;
    bool told;
    const gradweir_status status = client_encode_push(client, source, &what, &told);
    if (status != GRADWEIR_OK) { /* the GPU is lost: what has left is never whole */
        client->busy[buffer] = told;
        result->ticket = 0;
        return status;
    }
    if (source == CLIENT_ACCUMULATED)
        client->gathered_samples = 0;
    *ticket = result->ticket;
    return GRADWEIR_OK;
}

static gradweir_status push_from(struct gradweir_client *client, uint64_t samples, uint64_t basis,
                                 gradweir_ticket *ticket)
{
    TRY(client_given(client, "client"));
    const struct session_push_request wanted = {
        .purpose = PURPOSE_GRADIENT, .samples = samples, .basis = basis};
    gradweir_ticket given;
    client_lock(client);
    const gradweir_status status = client_push(client, &wanted, &given);
    if (status == GRADWEIR_OK)
        client_turn(client);
    client_unlock(client);
    if (status == GRADWEIR_OK && ticket)
        *ticket = given;
    return status;
}

gradweir_status gradweir_push(gradweir_client *client, uint64_t samples, gradweir_ticket *ticket)
{
    return push_from(client, samples, PULLED_LAST, ticket);
}

gradweir_status gradweir_push_from(gradweir_client *client, uint64_t samples, uint64_t basis,
                                   gradweir_ticket *ticket)
{
    if (basis == PULLED_LAST)
        return fail(GRADWEIR_ERR_INVALID, "basis is no version");
    return push_from(client, samples, basis, ticket);
}

/* A pull into bound memory that nobody has waited for is the same as the one that is asked for now;
 * any other has its own end. */
static gradweir_status join_pull(const struct gradweir_client *client,
                                 const struct session_pull_request *request)
{
    const struct session_pull_request *now = &client->session.pull;
    if (!client->pull_boxes.apart && !request->boxes_count && !request->exact && !request->newer &&
        !now->exact && !now->newer)
        return GRADWEIR_OK;
    return fail(GRADWEIR_ERR_STATE,
                "a pull of another kind is under way: wait for ticket %llu first",
                (unsigned long long)client->pull_ticket);
}

gradweir_status client_pull(struct gradweir_client *client,
                            const struct session_pull_request *request, bool after,
                            gradweir_ticket *ticket)
{
    const bool apart = request->boxes_count > 0;
    if (client->session.pulling) {
        TRY(join_pull(client, request));
        *ticket = client->pull_ticket;
        return GRADWEIR_OK;
    }
    if (!apart)
        TRY(client_body_receive(client));
    struct result *before = &client->results[client->bound_ticket % RESULTS];
    if (!apart && client->pulled && !client->loaded && before->ticket == client->bound_ticket)
        before->done = false; /* nobody has waited for it: it gets the newer version */
    struct result *result = new_result(client, true);
    result->apart = client->pull_boxes.apart = apart;
    client->pull_ticket = result->ticket;
    client->ahead.fresh = client->ahead.fresh || !apart;
    client->bound_ticket = apart ? client->bound_ticket : result->ticket;
    client->pulled_before = client->pulled;
    client->pulled = client->pulled && apart;
    client_event(client, &(struct session_event){.kind = SESSION_PULL,
                                                 .now_ns = (int64_t)clock_now_ns(),
                                                 .after = after,
                                                 .pull = *request});
    client_turn(client);
    *ticket = client->pull_ticket;
    return GRADWEIR_OK;
}

/* after: the pull rides with the newest push. */
static gradweir_status pull(struct gradweir_client *client, bool after, gradweir_ticket *ticket)
{
    if (!client->bound)
        return fail(GRADWEIR_ERR_STATE, "pull comes after bind");
    if (client->failed != GRADWEIR_OK)
        return fail(client->failed, "%s: %s", client->address, client->failed_text);
    return client_pull(client, &(struct session_pull_request){.boxes_count = 0}, after, ticket);
}

gradweir_status gradweir_pull(gradweir_client *client, gradweir_ticket *ticket)
{
    TRY(client_given(client, "client"));
    TRY(client_given(ticket, "ticket (where it goes)"));
    client_lock(client);
    const gradweir_status status = pull(client, false, ticket);
    client_unlock(client);
    return status;
}

static bool is_done(const struct gradweir_client *client, uint64_t ticket)
{
    const struct result *result = find_result(client, ticket);
    return !result || result->done;
}

gradweir_status client_wait_ticket(struct gradweir_client *client, gradweir_ticket ticket,
                                   uint32_t timeout_ms, gradweir_receipt *receipt)
{
    if (!find_result(client, ticket))
        return fail(GRADWEIR_ERR_INVALID,
                    "no ticket %llu: it was never given, or 64 others came since",
                    (unsigned long long)ticket);
    client_ahead_allow(client, find_result(client, ticket), timeout_ms);
    const gradweir_status waited = client_wait_until(
        client, is_done, ticket, deadline_after(clock_now_ns(), timeout_ms * CLOCK_MS));
    const bool ahead = client_ahead_end(client, waited == GRADWEIR_OK);
    TRY(waited);
    const struct result *result = find_result(client, ticket);
    ASSERT(result);
    if (result->pull && !result->apart && client->pulled && !client->loaded) {
        if (!ahead)
            TRY(client_body_load(client));
        client->loaded = client->based = true;
        client->version = client->received_version;
    }
    if (result->pull && result->apart)
        TRY(client_memory_unload(client));
    if (receipt)
        *receipt = result->receipt;
    if (result->receipt.status != GRADWEIR_OK && result->pull)
        return fail(result->receipt.status,
                    "the servers do not hold the version that was asked for: the newest is %llu",
                    (unsigned long long)result->receipt.version);
    if (result->receipt.status != GRADWEIR_OK)
        return fail(result->receipt.status,
                    "push %llu: this worker's lease had ended, so its fate is not known here",
                    (unsigned long long)result->receipt.sequence);
    return GRADWEIR_OK;
}

gradweir_status gradweir_wait(gradweir_client *client, gradweir_ticket ticket, uint32_t timeout_ms,
                              gradweir_receipt *receipt)
{
    TRY(client_given(client, "client"));
    client_lock(client);
    const gradweir_status status = client_wait_ticket(client, ticket, timeout_ms, receipt);
    client_unlock(client);
    return status;
}

gradweir_status gradweir_push_pull(gradweir_client *client, uint64_t samples,
                                   gradweir_ticket *pushed, gradweir_ticket *pulled)
{
    TRY(client_given(client, "client"));
    TRY(client_given(pulled, "pulled (where the pull's ticket goes)"));
    const struct session_push_request wanted = {
        .purpose = PURPOSE_GRADIENT, .samples = samples, .basis = PULLED_LAST};
    gradweir_ticket first = 0, second = 0;
    client_lock(client);
    gradweir_status status = client->session.pulling
                                 ? fail(GRADWEIR_ERR_STATE, "a pull is under way already: wait for "
                                                            "it before one rides with a push")
                                 : client_push(client, &wanted, &first);
    if (status == GRADWEIR_OK)
        status = pull(client, true, &second);
    client_unlock(client);
    if (status == GRADWEIR_OK && pushed)
        *pushed = first;
    if (status == GRADWEIR_OK)
        *pulled = second;
    return status;
}

gradweir_status gradweir_exchange(gradweir_client *client, uint64_t samples, uint32_t timeout_ms,
                                  gradweir_receipt *receipt)
{
    gradweir_ticket pushed, pulled;
    TRY(client_given(client, "client"));
    client_lock(client);
    const bool pulling = client->session.pulling; /* the user's own, from before */
    client_unlock(client);
    if (pulling) {
        TRY(gradweir_push(client, samples, &pushed));
        TRY(gradweir_wait(client, pushed, timeout_ms, receipt));
        TRY(gradweir_pull(client, &pulled));
    } else {
        TRY(gradweir_push_pull(client, samples, &pushed, &pulled));
        TRY(gradweir_wait(client, pushed, timeout_ms, receipt));
    }
    return gradweir_wait(client, pulled, timeout_ms, NULL);
}

gradweir_status gradweir_progress(gradweir_client *client)
{
    TRY(client_given(client, "client"));
    client_lock(client);
    client_turn(client);
    const gradweir_status status =
        client->failed == GRADWEIR_OK
            ? GRADWEIR_OK
            : fail(client->failed, "%s: %s", client->address, client->failed_text);
    client_unlock(client);
    return status;
}
