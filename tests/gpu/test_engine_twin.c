/* The engine of a GPU on the runtime that is this CPU (runtime_host.h): beside what every engine
 * promises, that graphs are made and replayed, that all is given back, and that failures are told.
 */
#include "client/trainer/overseer.h"
#include "client/trainer/rollout.h"
#include "client/trainer/train_loop.h"
#include "tests/gpu/runtime_host.h"
#include "tests/unit/engine_rig.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

static const struct engine *twin(void)
{
    cr_assert_eq(engine_at(1), &engine_cuda, "or nothing here is about the engine of a GPU");
    return &engine_cuda;
}

static void expect_all_given_back(void)
{
    const struct runtime_counts counts = runtime_counts();
    cr_expect_eq(counts.allocated, 0u);
    cr_expect_eq(counts.pinned, 0u);
    cr_expect_eq(counts.streams, 0u);
}

static void act_often(struct engine_rig *rig)
{
    static float observations[RIG_ENVIRONMENTS * RIG_SEEN];
    static float actions[RIG_ENVIRONMENTS], logs[RIG_ENVIRONMENTS], values[RIG_ENVIRONMENTS];
    const struct engine_act act = {.observations = observations,
                                   .actions = actions,
                                   .log_probabilities = logs,
                                   .values = values};
    const struct runtime_counts before = runtime_counts();
    for (int i = 0; rig->engine != &engine_cpu && i < 10; i++) {
        cr_assert_eq(rig->engine->act(rig->state, &act), GRADWEIR_OK);
        cr_assert_eq(rig->engine->wait(rig->state, 0), GRADWEIR_OK);
    }
    const struct runtime_counts after = runtime_counts();
    const unsigned is_gpu = rig->engine != &engine_cpu;
    cr_expect_eq(after.captured - before.captured, 1 * is_gpu);
    cr_expect_eq(after.launched - before.launched, 9 * is_gpu);
}

Test(engine_twin, what_comes_again_is_captured_once_and_replayed)
{
    twin();
    engine_on_each(act_often);
    expect_all_given_back();
}

/* As whoever knows CUDA does it. */
static void copy_bytes(cudaStream_t stream, const void *from, void *to, size_t bytes)
{
    cr_assert_eq(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream), cudaSuccess);
    cr_assert_eq(cudaStreamSynchronize(stream), cudaSuccess);
}

/* A gradient by the host, and one that stays; whichever comes first. */
static void compare_gradients(struct engine_rig *rig, const struct engine_arrays *arrays,
                              cudaStream_t stream)
{
    static uint32_t order[RIG_MINIBATCH];
    const size_t bytes = rig->network.n_parameters * sizeof(float);
    float *host = engine_floats(rig->network.n_parameters);
    float *far = engine_floats(rig->network.n_parameters);
    const struct loss_settings loss = {.gaussian = rig->network.shape.gaussian,
                                       .action_dim = rig->network.shape.action_dim,
                                       .clip = 0.2f,
                                       .value_coefficient = 0.5f,
                                       .decoupled = rig->options.decoupled};
    const struct engine_minibatch minibatch = {order, RIG_MINIBATCH, &loss};
    struct engine_losses losses[2];
    for (uint32_t i = 0; i < 8; i++) { /* as it is, captured, replayed */
        for (size_t k = 0; k < RIG_MINIBATCH; k++)
            order[k] = (uint32_t)((k * 7919 + i * 131) % RIG_SAMPLES);
        for (uint32_t turn = 0; turn < 2; turn++) {
            const bool stays = (i + turn) % 2;
            cr_assert_eq(
                rig->engine->gradient(rig->state, &minibatch, stays ? NULL : host, &losses[stays]),
                GRADWEIR_OK, "%s", rig->engine->reason(rig->state));
            if (stays)
                copy_bytes(stream, arrays->gradient, far, bytes);
        }
        cr_expect_eq(memcmp(far, host, bytes), 0, "%s, gradient %u", rig->what, i);
        cr_expect_eq(memcmp(&losses[0], &losses[1], sizeof losses[0]), 0);
    }
    free(host);
    free(far);
}

static void use_arrays(struct engine_rig *rig)
{
    struct engine_arrays arrays;
    cudaStream_t stream;
    cr_assert_eq(rig->engine->arrays(rig->state, &arrays), GRADWEIR_OK);
    cr_assert_eq(arrays.parameters != NULL, rig->engine != &engine_cpu);
    if (arrays.parameters == NULL)
        return;
    const size_t n = rig->network.n_parameters, bytes = n * sizeof(float);
    float *back = engine_floats(n);
    cr_assert_eq(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    copy_bytes(stream, arrays.parameters, back, bytes);
    cr_expect_eq(memcmp(back, rig->parameters, bytes), 0, "what was loaded is there");
    struct rollout rollout = engine_start_rollout(rig);
    float *advantages = engine_floats(RIG_SAMPLES);
    cr_assert_eq(rig->engine->collect(rig->state, &rollout), GRADWEIR_OK);
    for (size_t i = 0; i < n; i++)
        back[i] += 0.01f * (float)((i * 31) % 7);
    copy_bytes(stream, back, arrays.parameters, bytes);
    cr_assert_eq(rig->engine->load(rig->state, NULL), GRADWEIR_OK);
    cr_assert_eq(rig->engine->estimate(rig->state, &rollout, advantages), GRADWEIR_OK);
    compare_gradients(rig, &arrays, stream);
    free(advantages);
    free(back);
    rollout_deinit(&rollout);
    (void)cudaStreamDestroy(stream);
}

Test(engine_twin, parameters_may_be_written_into_its_own_array_and_gradients_stay_there)
{
    twin();
    engine_on_each(use_arrays);
    expect_all_given_back();
}

/* Opening with less and less memory: it opens or says that it is full, and leaves nothing behind.
 */
Test(engine_twin, a_gpu_whose_memory_is_full_is_told_with_how_much_there_is)
{
    struct engine_rig rig;
    int full = 0;
    for (size_t megabytes = 0; megabytes < 100; megabytes += 3) {
        struct engine_reason reason = {.text = ""};
        engine_build(&rig, twin(), 2 + megabytes % 2);
        rig.options.own_environments = megabytes % 5 == 0;
        runtime_limit((megabytes << 20) + 1);
        const gradweir_status status = rig.engine->open(&rig.options, &rig.state, &reason);
        if (status != GRADWEIR_OK) {
            cr_assert_eq(status, GRADWEIR_ERR_NO_MEMORY, "%s", reason.text);
            cr_assert_not_null(strstr(reason.text, "fewer of them"), "%s", reason.text);
            full++;
        }
        engine_take_down(&rig);
        expect_all_given_back();
    }
    cr_expect(full > 10 && full < 33, "%d", full);
}

Test(engine_twin, a_gpu_that_fails_amid_work_ends_the_call_with_a_sentence_and_can_be_closed)
{
    for (unsigned at = 1; at < 400; at += 37) {
        struct engine_rig rig;
        struct engine_reason reason;
        engine_build(&rig, twin(), 1);
        runtime_limit(0);
        cr_assert_eq(rig.engine->open(&rig.options, &rig.state, &reason), GRADWEIR_OK, "%s",
                     reason.text);
        cr_assert_eq(rig.engine->load(rig.state, rig.parameters), GRADWEIR_OK);
        struct rollout rollout = engine_start_rollout(&rig);
        runtime_fail_launch(at);
        cr_expect_eq(rig.engine->collect(rig.state, &rollout), GRADWEIR_ERR_LOST);
        cr_expect_not_null(strstr(rig.engine->reason(rig.state), "cuda:1 this CPU sm_90: starting"),
                           "%s", rig.engine->reason(rig.state));
        cr_expect_eq(rig.engine->load(rig.state, rig.parameters), GRADWEIR_ERR_LOST, "for good");
        rollout_deinit(&rollout);
        engine_take_down(&rig);
        expect_all_given_back();
    }
}

Test(engine_twin, a_gpu_that_is_not_there_and_an_environment_it_has_not_are_named)
{
    struct engine_rig rig;
    struct engine_reason reason;
    struct environment other;
    engine_build(&rig, twin(), 0);
    rig.options.gpu = 7;
    cr_expect_eq(rig.engine->probe(&rig.options, &reason), GRADWEIR_ERR_INVALID);
    cr_expect_str_eq(reason.text, "cuda: there is no GPU 7; this machine has 2, from 0 on");
    rig.options.gpu = ENGINE_GPU_ANY;
    other = *rig.options.environment;
    other.name = "Pong-v5";
    rig.options.environment = &other;
    rig.options.own_environments = true;
    cr_expect_eq(rig.engine->open(&rig.options, &rig.state, &reason), GRADWEIR_ERR_INVALID);
    cr_expect_not_null(strstr(reason.text, "has no environment Pong-v5"), "%s", reason.text);
    cr_expect_null(rig.state);
    engine_take_down(&rig);
    expect_all_given_back();
}

/* A whole worker, with all that comes between: about 20 is what chance gives. */
Test(engine_twin, a_worker_learns_with_environments_on_either_side)
{
    static const char *const sides[] = {"cpu", "cuda"};
    for (size_t i = 0; i < 2; i++) {
        struct train_settings s;
        struct train_outcome outcome;
        struct network network;
        struct overseer_local overseer;
        train_settings_init(&s);
        s.environment = environment_find(s.env);
        s.device = "cuda";
        s.env_device = sides[i];
        s.stable = true;
        s.reward_norm = true;
        train_network(&s, &network);
        float *parameters = engine_floats(network.n_parameters);
        train_first_parameters(&s, &network, parameters);
        struct learner *learner = learner_local_open(&s, &network, parameters);
        overseer_local_init(&overseer, 1e9, 40000);
        twin();
        cr_assert_eq(train_loop(&s, 0, learner, &overseer.overseer, &outcome), GRADWEIR_OK, "%s",
                     outcome.reason.text);
        cr_expect_gt(return_window_mean(&overseer.window), 80, "environments on %s: %g", sides[i],
                     return_window_mean(&overseer.window));
        learner->close(learner);
        free(parameters);
        expect_all_given_back();
    }
}
