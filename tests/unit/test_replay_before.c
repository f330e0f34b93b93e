/* Recordings of before give the bits that their runs had then. */
#include "server/replay.h"
#include "tests/unit/recorded_run.h"

#include <criterion/criterion.h>
#include <stdio.h>

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
