#include "server/replay.h"

#include "server/recording.h"
#include "tests/unit/recorded_run.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
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
            cr_assert(result.version == RUN_VERSIONS && result.ended == RECORDING_CLOSED);
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

static uint64_t told[RUN_VERSIONS + 1];

static void tell(void *context, uint64_t version, uint64_t digest)
{
    cr_assert(context == told && version <= RUN_VERSIONS && told[version] == 0);
    told[version] = digest;
}

Test(replay, every_tells_the_digests_on_the_way)
{
    struct replay_result result;
    const struct replay_options options = {.folder = run.folder,
                                           .shards = 2,
                                           .until = UINT64_MAX,
                                           .every = 5,
                                           .tell = tell,
                                           .context = told};
    cr_assert_eq(replay_run(&options, &result), GRADWEIR_OK);
    for (uint64_t version = 1; version <= RUN_VERSIONS; version++)
        cr_assert_eq(told[version], version % 5 == 0 ? run.digests[version] : 0);
}

Test(replay, without_a_worker_it_is_the_run_in_which_its_gradients_did_not_count)
{
    static struct recorded_run other;
    struct replay_result result;
    other.without_b = true;
    recorded_run_make(&other, UINT64_MAX);
    for (uint32_t shards = 1; shards <= 3; shards++)
        for (uint64_t until = 0; until <= RUN_VERSIONS; until++) {
            const struct replay_options options = {
                .folder = run.folder, .shards = shards, .until = until, .without = "b"};
            cr_assert_eq(replay_run(&options, &result), GRADWEIR_OK, "%s", fail_reason());
            cr_assert_eq(result.digest, other.digests[until], "version %llu",
                         (unsigned long long)until);
            cr_assert_eq(result.digest == run.digests[until], until == 0);
        }
    cr_assert_gt(run.by_stacks, 10, "the run is averaged from partial sums too");
    cr_assert(result.left_out == run.of_b && run.of_b > 5);
    cr_assert(result.steps_changed == run.changed && run.changed > 5);
    cr_assert(result.steps_emptied == run.emptied && run.emptied == 1);
    cr_assert_eq(other.digests[1], other.digests[0], "a step with nothing to read changes nothing");
    cr_assert_not(result.first_kept);
    recorded_run_end(&other);
}

Test(replay, without_a_worker_its_bodies_are_not_even_read)
{
    struct replay_result result;
    const struct model_range range = model_shard(run.model, RUN_MEMBERS, 0);
    const struct replay_options options = {
        .folder = run.folder, .shards = 2, .until = UINT64_MAX, .without = "b"};
    /* The file's head, the first parameters, then b's first gradient. */
    flip("shard-0.bodies", 40 + (24 + range.elements * sizeof(float)) + 24 + 100);
    cr_assert_eq(replay(2, NULL, UINT64_MAX, &result), GRADWEIR_ERR_CORRUPT);
    cr_assert_eq(replay_run(&options, &result), GRADWEIR_OK, "%s", fail_reason());
}

Test(replay, without_a_worker_that_was_not_there_names_those_that_were)
{
    struct replay_result result;
    struct replay_options options = {
        .folder = run.folder, .shards = 1, .until = UINT64_MAX, .without = "c"};
    cr_assert_eq(replay_run(&options, &result), GRADWEIR_ERR_INVALID);
    cr_assert(strstr(fail_reason(), "\"c\"") && strstr(fail_reason(), "a, b"));
    options.without = "a";
    cr_assert_eq(replay_run(&options, &result), GRADWEIR_OK);
    cr_assert(result.first_kept && result.digest != run.digests[RUN_VERSIONS]);
}

Test(replay, a_recording_of_a_killed_run_goes_to_its_last_whole_body)
{
    struct replay_result result;
    cut("shard-1.bodies", size_of("shard-1.bodies") / 2);
    cr_assert_eq(replay(3, NULL, UINT64_MAX, &result), GRADWEIR_OK, "%s", fail_reason());
    cr_assert(result.ended == RECORDING_CUT && result.version > 2 && result.version < RUN_VERSIONS);
    cr_assert_str_eq(result.ended_file, "shard-1.bodies");
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
            /* A length that leads out of the file looks as if its process had been killed there. */
            cr_assert(replay(2, NULL, UINT64_MAX, &result) != GRADWEIR_OK ||
                          (result.ended == RECORDING_CUT && result.version < RUN_VERSIONS),
                      "%s at %llu", names[i], (unsigned long long)at);
            flip(names[i], at);
        }
    /* Lengths too: what seems longer than the file must not pass for its end. Behind the last
     * record is the mark. */
    const uint64_t end = size_of("log.records") - 8;
    for (uint64_t at = 8; at < end - 300; at += 13) {
        flip("log.records", at);
        cr_assert_neq(replay(1, NULL, UINT64_MAX, &result), GRADWEIR_OK, "log.records at %llu",
                      (unsigned long long)at);
        flip("log.records", at);
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

static uint64_t folder_bytes(void)
{
    return size_of("log.records") + size_of("shard-0.bodies") + size_of("shard-1.bodies");
}

Test(replay, writing_stops_at_the_bound_and_what_is_there_replays)
{
    const uint64_t whole = folder_bytes();
    uint32_t ended_by_log = 0, ended_by_bodies = 0;
    for (uint64_t bound = whole; bound > 20000; bound -= whole / 9) {
        struct replay_result result;
        recorded_run_end(&run);
        memset(&run, 0, sizeof run);
        recorded_run_make(&run, bound);
        cr_assert_leq(folder_bytes(), bound + RUN_MEMBERS * 64);
        cr_assert_eq(replay(1, NULL, UINT64_MAX, &result), GRADWEIR_OK, "%s", fail_reason());
        cr_assert_eq(result.ended, RECORDING_FULL);
        cr_assert(result.version > 0 && result.version < RUN_VERSIONS);
        cr_assert_eq(result.digest, run.digests[result.version]);
        ended_by_log += strcmp(result.ended_file, "log.records") == 0;
        ended_by_bodies += strcmp(result.ended_file, "log.records") != 0;
    }
    cr_assert(ended_by_log + ended_by_bodies > 4);
}

/* A limit on files says no as a full disk does. */
Test(replay, a_disk_that_says_no_is_marked_and_what_is_there_replays)
{
    struct rlimit before;
    cr_assert_eq(getrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, SIG_IGN);
    const rlim_t whole = (rlim_t)size_of("shard-0.bodies");
    for (rlim_t limit = whole / 3; limit < whole; limit += whole / 4) {
        struct rlimit now = {.rlim_cur = limit, .rlim_max = before.rlim_max};
        struct replay_result result;
        recorded_run_end(&run);
        memset(&run, 0, sizeof run);
        cr_assert_eq(setrlimit(RLIMIT_FSIZE, &now), 0);
        recorded_run_make(&run, UINT64_MAX);
        cr_assert_eq(setrlimit(RLIMIT_FSIZE, &before), 0);
        cr_assert_eq(replay(1, NULL, UINT64_MAX, &result), GRADWEIR_OK, "%s", fail_reason());
        cr_assert_eq(result.ended, RECORDING_BROKEN, "%s", result.ended_file);
        cr_assert(result.version > 0 && result.version < RUN_VERSIONS);
        cr_assert_eq(result.digest, run.digests[result.version]);
    }
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
    cr_assert_eq(recording_open_log(run.folder, 1 << 20, RECORDING_NEW, &recording),
                 GRADWEIR_ERR_STATE);
}

Test(replay, a_restarted_process_goes_on_behind_the_last_whole_entry)
{
    struct recording *log, *bodies;
    struct replay_result result;
    const uint64_t whole = size_of("shard-1.bodies"), elements = 700;
    static float body[4096];
    cut("shard-1.bodies", whole - 1000);
    cut("log.records", size_of("log.records") - 40);
    cr_assert_eq(recording_open_shard(run.folder, run.model,
                                      &(struct recording_part){.shard = 1, .members = RUN_MEMBERS},
                                      UINT64_MAX, RECORDING_GO_ON, &bodies),
                 GRADWEIR_OK, "%s", fail_reason());
    const uint64_t last = recording_last(bodies);
    cr_assert(last > 10 && last < run.ledger.index);
    cr_assert(recording_body(bodies, last, body, elements), "it is there already");
    recording_close(bodies);
    cr_assert_lt(size_of("shard-1.bodies"), whole - 1000);
    cr_assert_eq(recording_open_log(run.folder, UINT64_MAX, RECORDING_GO_ON, &log), GRADWEIR_OK);
    recording_close(log);
    cr_assert_eq(replay(1, NULL, UINT64_MAX, &result), GRADWEIR_OK, "%s", fail_reason());
    cr_assert_eq(result.ended, RECORDING_CLOSED);
    cr_assert_eq(result.digest, run.digests[result.version]);
    cr_assert(result.version > RUN_VERSIONS - 4 && result.version < RUN_VERSIONS);
}

static void append(const char *name, const char *bytes, size_t count)
{
    char path[1200];
    snprintf(path, sizeof path, "%s/%s", run.folder, name);
    FILE *file = fopen(path, "ab");
    cr_assert(file && fwrite(bytes, 1, count, file) == count && fclose(file) == 0);
}

Test(replay, what_was_appended_to_a_file_or_cut_from_its_end_is_noticed)
{
    static const char *const names[] = {"log.records", "shard-0.bodies", "shard-1.bodies"};
    struct replay_result result;
    for (int i = 0; i < 3; i++) {
        const uint64_t whole = size_of(names[i]);
        append(names[i], "and more", 8);
        cr_assert_eq(replay(1, NULL, UINT64_MAX, &result), GRADWEIR_ERR_CORRUPT, "%s", names[i]);
        cr_assert(strstr(fail_reason(), names[i]) &&
                      strstr(fail_reason(), "8 bytes stand behind the mark at its end"),
                  "%s", fail_reason());
        cut(names[i], whole);
        cr_assert_eq(replay(1, NULL, UINT64_MAX, &result), GRADWEIR_OK, "%s", fail_reason());
        cr_assert_eq(result.ended, RECORDING_CLOSED);
    }
    for (int i = 2; i >= 0; i--) { /* a process that was killed as it wrote leaves such an end */
        cut(names[i], size_of(names[i]) - 7);
        cr_assert_eq(replay(1, NULL, UINT64_MAX, &result), GRADWEIR_OK, "%s", fail_reason());
        cr_assert_eq(result.ended, RECORDING_CUT, "%s", names[i]);
        cr_assert_str_eq(result.ended_file, i == 1 ? names[2] : names[i]);
    }
}

/* A coordinator writes records, dies before any shard has them; the next one writes others. */
Test(replay, records_that_are_written_again_take_the_place_of_the_first)
{
    struct recording_reader *reader;
    struct recording *log;
    struct replay_result result;
    static struct record records[4];
    cr_assert_eq(recording_read(run.folder, &reader), GRADWEIR_OK);
    for (uint64_t i = 1; i <= run.ledger.index; i++)
        cr_assert_eq(recording_next(reader, &records[i % 4]), GRADWEIR_OK);
    recording_reader_free(reader);
    cr_assert_eq(recording_open_log(run.folder, UINT64_MAX, RECORDING_GO_ON, &log), GRADWEIR_OK);
    recording_record(log, &records[(run.ledger.index - 2) % 4]);
    recording_close(log);
    cr_assert_eq(replay(1, NULL, UINT64_MAX, &result), GRADWEIR_OK, "%s", fail_reason());
    cr_assert_eq(result.records, run.ledger.index - 2, "what stood behind it is gone");
    cr_assert_eq(recording_open_log(run.folder, UINT64_MAX, RECORDING_GO_ON, &log), GRADWEIR_OK);
    struct record other = {.kind = RECORD_TUNE, .tune = {"learning_rate", "0.5"}};
    other.index = run.ledger.index - 2;
    recording_record(log, &other);
    for (uint64_t i = run.ledger.index - 2; i <= run.ledger.index; i++)
        recording_record(log, &records[i % 4]);
    recording_close(log);
    cr_assert_eq(replay(2, NULL, UINT64_MAX, &result), GRADWEIR_OK, "%s", fail_reason());
    cr_assert_eq(result.digest, run.digests[RUN_VERSIONS]);
    cr_assert_eq(result.records, run.ledger.index);
}

Test(replay, what_cannot_be_run_is_refused)
{
    struct replay_result result;
    cr_assert_eq(replay(0, NULL, UINT64_MAX, &result), GRADWEIR_ERR_INVALID);
    cr_assert_eq(replay(65, NULL, UINT64_MAX, &result), GRADWEIR_ERR_INVALID);
    cr_assert_eq(replay(1, "abacus", UINT64_MAX, &result), GRADWEIR_ERR_UNSUPPORTED);
}
