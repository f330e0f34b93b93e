/* Recordings of before give the bits that their runs had then. */
#include "server/recording.h"
#include "server/replay.h"
#include "tests/unit/recorded_run.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void write_log_head(const struct recorded_run *of, const char *head)
{
    char path[128];
    snprintf(path, sizeof path, "%s/log.records", of->folder);
    FILE *file = fopen(path, "r+b");
    cr_assert_not_null(file);
    cr_assert_eq(fwrite(head, 1, 8, file), 8);
    fclose(file);
}

static bool gives_the_bits(const struct recorded_run *of, uint32_t shards)
{
    struct replay_result result;
    const struct replay_options options = {
        .folder = of->folder, .shards = shards, .until = UINT64_MAX};
    return replay_run(&options, &result) == GRADWEIR_OK && result.version == RUN_VERSIONS &&
           result.digest == of->digests[RUN_VERSIONS];
}

/* The log up to its first step, which then is one of a window of 2 by stacks. */
static void keep_one_step_of_two(const struct recorded_run *of)
{
    static struct record records[RUN_GRADIENTS + 8];
    struct recording_reader *reader;
    struct recording *log;
    static struct ledger ledger;
    char path[128];
    size_t n = 0;
    cr_assert_eq(recording_read(of->folder, &reader), GRADWEIR_OK);
    do
        cr_assert_eq(recording_next(reader, &records[n]), GRADWEIR_OK);
    while (records[n++].kind != RECORD_STEP);
    recording_reader_free(reader);
    struct record_step *step = &records[n - 1].step;
    step->algorithm = STEP_STACKS;
    step->stacks = (struct step_stacks){
        .position = 2, .window = 2, .fresh = 2, .known = 2, .ratio = 1, .anchor = 1};
    ledger_init(&ledger);
    for (size_t i = 0; i < n; i++)
        ledger_seal(&ledger, &records[i]), ledger_apply(&ledger, &records[i]);
    snprintf(path, sizeof path, "%s/log.records", of->folder);
    cr_assert_eq(unlink(path), 0);
    cr_assert_eq(recording_open_log(of->folder, UINT64_MAX, RECORDING_NEW, &log), GRADWEIR_OK);
    for (size_t i = 0; i < n; i++)
        recording_record(log, &records[i]);
    recording_close(log);
}

Test(replay_before, a_window_of_2_by_stacks_is_refused_with_what_would_do_it)
{
    static struct recorded_run run;
    struct replay_result result;
    recorded_run_make(&run, UINT64_MAX);
    const struct replay_options options = {.folder = run.folder, .shards = 2, .until = UINT64_MAX};
    keep_one_step_of_two(&run);
    write_log_head(&run, "GWLOG01\n");
    cr_assert_eq(replay_run(&options, &result), GRADWEIR_ERR_UNSUPPORTED, "%s", fail_reason());
    cr_assert(strstr(fail_reason(), "the step to version 1 averages a window of 2 by stacks"));
    cr_assert(strstr(fail_reason(), "with the gradweir-server that recorded it"));
    write_log_head(&run, "GWLOG02\n");
    cr_assert_eq(replay_run(&options, &result), GRADWEIR_ERR_CORRUPT, "no such step is made now");
    recorded_run_end(&run);
}

Test(replay_before, a_log_from_before_stripes_were_long_gives_the_bits_of_its_run)
{
    enum { MORE = 140000 }; /* with W = 4, stripes are as long as they can be */
    static struct recorded_run before = {.more = MORE, .stripe_max = LAW_STRIPE_MAX_BEFORE},
                               today = {.more = MORE};
    recorded_run_make(&before, UINT64_MAX);
    recorded_run_make(&today, UINT64_MAX);
    cr_assert_neq(before.digests[RUN_VERSIONS], today.digests[RUN_VERSIONS]);
    for (uint32_t shards = 1; shards <= 5; shards++) {
        write_log_head(&before, "GWLOG01\n");
        cr_assert(gives_the_bits(&before, shards), "%s", fail_reason());
        write_log_head(&before, "GWLOG02\n");
        cr_assert_not(gives_the_bits(&before, shards), "the head alone tells");
        cr_assert(gives_the_bits(&today, shards), "%s", fail_reason());
    }
    recorded_run_end(&before);
    recorded_run_end(&today);
}
