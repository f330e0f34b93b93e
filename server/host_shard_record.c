/* What a shard puts on disk: the bodies of its range and, if it is the first, the log. The log lies
 * with a shard and not with the coordinator because shards outlive coordinators: a new coordinator
 * has nothing to look up on a disk, and what is in the file was logged and so is true.
 *
 * Both are written before anybody hears that a record was logged here. So whatever a killed process
 * had no time to write, nobody has built on: its slots are still full when it comes back. */
#include "server/host_shard_loop.h"

static void tell_news(struct shard_loop *loop, struct recording *recording)
{
    const char *news = recording_news(recording);
    if (news)
        log_line(loop->host->log, LOG_WARN, "record", "%s", news);
}

/* The body of a record that has one, out of its slot. */
static bool body_of(struct shard_loop *loop, const struct record *record)
{
    uint64_t bytes;
    const void *body;
    if (record->kind == RECORD_ADMIT)
        body = shard_slot(loop->shard, record->admit.slot, &bytes);
    else if (record->kind == RECORD_FIRST)
        body = shard_first(loop->shard, record->first.slot, &bytes);
    else
        return true;
    return recording_body(loop->recording, record->index, body, bytes);
}

/* The records that are kept in the arena reach further back than what a death can have left out. */
static void catch_up(struct shard_loop *loop)
{
    const uint64_t last = shard_ledger(loop->shard)->index;
    const struct record *record;
    for (uint64_t i = recording_last(loop->recording) + 1; i <= last; i++)
        if ((record = shard_record(loop->shard, i)) && !body_of(loop, record))
            tell_news(loop, loop->recording);
    if (!loop->log_recording)
        return;
    loop->recorded = recording_last(loop->log_recording);
    shard_loop_record(loop);
    if (loop->recorded != last)
        log_line(loop->host->log, LOG_WARN, "record",
                 "the recording ends at log index %llu, the log at %llu: what comes from here on "
                 "cannot be replayed",
                 (unsigned long long)loop->recorded, (unsigned long long)last);
}

gradweir_status shard_loop_record_start(struct shard_loop *loop, const struct model *model,
                                        bool goes_on)
{
    const struct host_options *options = loop->host->options;
    const enum recording_start start = goes_on ? RECORDING_GO_ON : RECORDING_NEW;
    if (options->record[0] == 0)
        return GRADWEIR_OK;
    const struct recording_part part = {.shard = loop->member.shard,
                                        .members = loop->member.members,
                                        .codec =
                                            (enum arithmetic_codec)loop->member.gradient_dtype};
    TRY(recording_open_shard(options->record, model, &part, options->record_bytes_max, start,
                             &loop->recording));
    if (loop->member.shard == 0)
        TRY(recording_open_log(options->record, options->record_bytes_max, start,
                               &loop->log_recording));
    loop->recorded = 0;
    if (goes_on)
        catch_up(loop);
    return GRADWEIR_OK;
}

void shard_loop_record(struct shard_loop *loop)
{
    const struct record *record;
    while (loop->log_recording && (record = shard_record(loop->shard, loop->recorded + 1))) {
        loop->recorded++;
        if (!recording_record(loop->log_recording, record))
            tell_news(loop, loop->log_recording);
    }
}

void shard_loop_record_body(struct shard_loop *loop, uint64_t index, uint64_t offset,
                            uint64_t length)
{
    if (loop->recording &&
        !recording_body(loop->recording, index, shard_address(loop->shard, offset), length))
        tell_news(loop, loop->recording);
}

void shard_loop_record_end(struct shard_loop *loop)
{
    const bool bodies = recording_close(loop->recording);
    const bool log = recording_close(loop->log_recording);
    loop->host->unrecorded = !bodies || !log;
    if (loop->host->unrecorded)
        log_line(loop->host->log, LOG_WARN, "record",
                 "shard %u: the recording in %s is not whole: replay ends before the run did",
                 loop->host->index, loop->host->options->record);
}
