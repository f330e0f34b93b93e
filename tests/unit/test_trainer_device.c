#include "client/trainer/train_device.h"
#include "client/trainer/train_loop.h"

#include <criterion/criterion.h>
#include <string.h>

/* The engine of what people write; the reason in *why. */
static const struct engine *parse(const char *device, struct engine_options *options,
                                  struct engine_reason *why)
{
    *why = (struct engine_reason){.text = ""};
    return engine_parse(device, options, why);
}

Test(engine_parse, a_device_is_cpu_or_cuda_with_the_number_of_a_gpu)
{
    struct engine_options options;
    struct engine_reason why;
    cr_expect_eq(parse("cpu", &options, &why), &engine_cpu);
    cr_expect_eq(options.gpu, ENGINE_GPU_ANY);
    const struct engine *cuda = parse("cuda:7", &options, &why);
    cr_expect_eq(options.gpu, 7);
    if (cuda == NULL)
        cr_expect_not_null(strstr(why.text, "build with -DGRADWEIR_CUDA=ON"), "%s", why.text);
    else
        cr_expect_str_eq(cuda->name, "cuda");
    cr_expect_eq(parse("cuda", &options, &why), cuda);
    cr_expect_eq(options.gpu, ENGINE_GPU_ANY);
}

Test(engine_parse, what_is_no_device_is_named_with_what_would_be_one)
{
    static const char *const bad[] = {"gpu",      "cuda:",    "cuda:x", "cuda:-1", "cuda:1x",
                                      "cuda:256", "cuda: 1",  "cpu:0",  "",        "CUDA",
                                      "cuda:0:1", "cudacuda", "cuda:+1"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct engine_options options;
        struct engine_reason why;
        cr_expect_null(parse(bad[i], &options, &why), "%s", bad[i]);
        cr_expect_not_null(strstr(why.text, bad[i]), "%s", why.text);
        cr_expect(strstr(why.text, "cpu") != NULL || strstr(why.text, "0 to 255") != NULL, "%s",
                  why.text);
    }
}

Test(train_device, environments_are_where_the_computing_is_or_on_the_cpu)
{
    static const char *const pairs[][2] = {{"cpu", "cuda"}, {"cpu", "gpu"}, {"cuda", "gpu"}};
    struct train_settings s;
    struct train_reason reason;
    char *argv[] = {NULL};
    cr_assert_eq(train_settings_parse(&s, 1, argv, &reason), GRADWEIR_OK);
    cr_expect_eq(train_check_device(&s, &reason), GRADWEIR_OK);
    for (size_t i = 0; i < 3; i++) {
        s.device = pairs[i][0];
        s.env_device = pairs[i][1];
        cr_expect_eq(train_check_device(&s, &reason), GRADWEIR_ERR_INVALID);
        cr_expect_eq(strncmp(reason.text, "--device ", 9), 0, "%s", reason.text);
    }
    s.device = "cpu";
    s.env_device = "cuda";
    cr_expect_not_null((train_check_device(&s, &reason), strstr(reason.text, "--device cuda")),
                       "%s", reason.text);
}

/* A loop whose engine does not open says why, and asks nothing of the learner. */
Test(train_device, a_loop_without_its_engine_ends_with_the_reason)
{
    struct train_settings s;
    struct train_reason reason;
    struct train_outcome outcome;
    char *argv[] = {NULL};
    cr_assert_eq(train_settings_parse(&s, 1, argv, &reason), GRADWEIR_OK);
    s.device = "tpu";
    cr_expect_eq(train_loop(&s, 0, NULL, NULL, &outcome), GRADWEIR_ERR_UNSUPPORTED);
    cr_expect_not_null(strstr(outcome.reason.text, "tpu: unknown device"), "%s",
                       outcome.reason.text);
}
