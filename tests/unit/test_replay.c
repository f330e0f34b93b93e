#include "server/replay.h"

#include "server/recording.h"
#include "tests/unit/recorded_run.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct recorded_run run;

static void start(void)
{
    recorded_run_make(&run, UINT64_MAX);
}

static void end(void)
{
    recorded_run_end(&run);
}

TestSuite(replay, .init = start, .fini = end);

static gradweir_status replay(uint32_t shards, const char *simd, uint64_t until,
                              struct replay_result *result)
{
    const struct replay_options options = {
        .folder = run.folder, .shards = shards, .simd = simd, .until = until};
    return replay_run(&options, result);
}

static const char *path_of(const char *name)
{
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", run.folder, name);
    return path;
}

static uint64_t size_of(const char *name)
{
    struct stat info;
    cr_assert_eq(stat(path_of(name), &info), 0);
    return (uint64_t)info.st_size;
}

static void cut(const char *name, uint64_t bytes)
{
    cr_assert_eq(truncate(path_of(name), (off_t)bytes), 0);
}

static void flip(const char *name, uint64_t at)
{
    FILE *file = fopen(path_of(name), "r+b");
    cr_assert_not_null(file);
    cr_assert_eq(fseek(file, (long)at, SEEK_SET), 0);
    const int byte = fgetc(file);
    cr_assert_eq(fseek(file, (long)at, SEEK_SET), 0);
    fputc(byte ^ 1, file);
    fclose(file);
}

Test(replay, any_number_of_shards_and_any_instructions_give_the_bits_of_the_run)
{
    struct replay_result result;
    cr_assert_eq(run.ledger.law.version, RUN_VERSIONS);
    cr_assert(run.clipped > 0 && run.clipped < RUN_VERSIONS);
    cr_assert(run.ledger.steps_by_cause[STEP_FLUSH] && run.ledger.steps_by_cause[STEP_DUE]);
    const struct arithmetic *set;
    for (size_t i = 0; (set = arithmetic_at(i)) != NULL; i++)
        for (uint32_t shards = 1; shards <= 9; shards++) { /* 6 blocks: some have nothing */
            cr_assert_eq(replay(shards, set->name, UINT64_MAX, &result), GRADWEIR_OK, "%s",
                         fail_reason());
            cr_assert(result.version == RUN_VERSIONS && !result.cut_short);
            cr_assert_eq(result.digest, run.digests[RUN_VERSIONS], "%s on %u", set->name, shards);
            cr_assert_eq(result.admitted + result.refused, RUN_GRADIENTS);
            cr_assert_eq(result.records, run.ledger.index);
        }
}

Test(replay, until_stops_at_each_version_of_the_run)
{
    struct replay_result result;
    for (uint64_t version = 0; version <= RUN_VERSIONS; version++) {
        cr_assert_eq(replay(3, NULL, version, &result), GRADWEIR_OK, "%s", fail_reason());
        cr_assert_eq(result.version, version);
        cr_assert_eq(result.digest, run.digests[version]);
        cr_assert(version == 0 || run.digests[version] != run.digests[version - 1]);
    }
}

Test(replay, every_prints_the_digests_on_the_way)
{
    char *text, line[64];
    size_t size;
    struct replay_result result;
    FILE *out = open_memstream(&text, &size);
    const struct replay_options options = {
        .folder = run.folder, .shards = 2, .until = UINT64_MAX, .every = 5, .out = out};
    cr_assert_eq(replay_run(&options, &result), GRADWEIR_OK);
    fclose(out);
    for (uint64_t version = 1; version <= RUN_VERSIONS; version++) {
        snprintf(line, sizeof line, "version %llu digest %016llx\n", (unsigned long long)version,
                 (unsigned long long)run.digests[version]);
        cr_assert_eq(strstr(text, line) != NULL, version % 5 == 0);
    }
    free(text);
}

Test(replay, a_recording_of_a_killed_run_goes_to_its_last_whole_body)
{
    struct replay_result result;
    cut("shard-1.bodies", size_of("shard-1.bodies") / 2);
    cr_assert_eq(replay(3, NULL, UINT64_MAX, &result), GRADWEIR_OK, "%s", fail_reason());
    cr_assert(result.cut_short && result.version > 2 && result.version < RUN_VERSIONS);
    cr_assert_eq(result.digest, run.digests[result.version]);
    cut("log.records", size_of("log.records") / 4);
    cr_assert_eq(replay(1, NULL, UINT64_MAX, &result), GRADWEIR_OK, "%s", fail_reason());
    cr_assert_eq(result.digest, run.digests[result.version]);
}

Test(replay, a_flipped_bit_is_found_wherever_it_lies)
{
    struct replay_result result;
    static const char *const names[] = {"log.records", "shard-0.bodies", "shard-1.bodies",
                                        "layout.model"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        for (uint64_t k = 1; k < 12; k++) {
            const uint64_t at = size_of(names[i]) * k / 12;
            flip(names[i], at);
            cr_assert_neq(replay(2, NULL, UINT64_MAX, &result), GRADWEIR_OK, "%s at %llu", names[i],
                          (unsigned long long)at);
            flip(names[i], at);
        }
    cr_assert_eq(replay(2, NULL, UINT64_MAX, &result), GRADWEIR_OK);
}

Test(replay, a_recording_cut_anywhere_is_read_or_refused)
{
    struct replay_result result;
    static const char *const names[] = {"log.records", "shard-1.bodies", "layout.model"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        for (uint64_t bytes = size_of(names[i]); bytes > 0; bytes -= bytes / 24 + 1) {
            cut(names[i], bytes - 1);
            if (replay(2, "scalar", UINT64_MAX, &result) == GRADWEIR_OK)
                cr_assert_eq(result.digest, run.digests[result.version]);
        }
}

Test(replay, writing_stops_at_the_bound_and_what_is_there_replays)
{
    struct replay_result result;
    recorded_run_end(&run);
    memset(&run, 0, sizeof run);
    recorded_run_make(&run, 30000);
    cr_assert_leq(size_of("shard-0.bodies"), 30000);
    cr_assert_eq(replay(1, NULL, UINT64_MAX, &result), GRADWEIR_OK, "%s", fail_reason());
    cr_assert(result.cut_short && result.version > 0 && result.version < RUN_VERSIONS);
    cr_assert_eq(result.digest, run.digests[result.version]);
}

Test(replay, a_factor_that_the_sums_do_not_give_is_refused)
{
    struct replay_result result;
    recorded_run_end(&run);
    memset(&run, 0, sizeof run);
    run.wrong_factor = true;
    recorded_run_make(&run, UINT64_MAX);
    cr_assert_eq(replay(1, NULL, RUN_VERSIONS - 1, &result), GRADWEIR_OK);
    cr_assert_eq(replay(1, NULL, UINT64_MAX, &result), GRADWEIR_ERR_CORRUPT);
}

Test(replay, a_folder_is_recorded_into_once)
{
    struct recording *recording;
    cr_assert_eq(recording_open_log(run.folder, 1 << 20, &recording), GRADWEIR_ERR_STATE);
}

Test(replay, what_cannot_be_run_is_refused)
{
    struct replay_result result;
    cr_assert_eq(replay(0, NULL, UINT64_MAX, &result), GRADWEIR_ERR_INVALID);
    cr_assert_eq(replay(65, NULL, UINT64_MAX, &result), GRADWEIR_ERR_INVALID);
    cr_assert_eq(replay(1, "abacus", UINT64_MAX, &result), GRADWEIR_ERR_UNSUPPORTED);
}
