#include "client/trainer/environment_batch.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

enum { N = 3 };

/* Room for one step of N environments. */
struct step_room {
    float observations[N * ENVIRONMENT_OBSERVATION_MAX];
    float final_observations[N * ENVIRONMENT_OBSERVATION_MAX];
    float rewards[N];
    uint8_t terminated[N];
    uint8_t truncated[N];
    double finished[N];
};

static struct environment_outcome outcome_of(struct step_room *room)
{
    return (struct environment_outcome){
        .observations = room->observations,
        .final_observations = room->final_observations,
        .rewards = room->rewards,
        .terminated = room->terminated,
        .truncated = room->truncated,
        .finished_returns = room->finished,
    };
}

static void open_batch(struct environment_batch *batch, const struct environment *environment,
                       uint64_t seed, struct step_room *room)
{
    struct chance chance;
    chance_init(&chance, seed, 0);
    cr_assert(environment_batch_init(batch, environment, N, &chance));
    environment_batch_reset(batch, room->observations);
}

Test(environment_batch, an_episode_starts_anew_in_the_step_that_ends_it)
{
    struct environment_batch batch;
    struct step_room room = {.rewards = {0}};
    const float left[N] = {0, 0, 0};
    const struct environment_outcome outcome = outcome_of(&room);
    open_batch(&batch, &environment_cartpole, 1, &room);
    int steps = 0, ended = 0;
    for (; steps < 50 && !ended; steps++) {
        environment_batch_step(&batch, left, &outcome);
        for (int i = 0; i < N; i++)
            if (room.terminated[i]) {
                ended++;
                cr_expect_eq(room.finished[i], steps + 1.0);
                cr_expect_gt(room.final_observations[i * 4 + 2], 0.2f, "the pole has fallen");
                cr_expect_lt(room.observations[i * 4 + 2], 0.051f, "the new one stands");
                cr_expect_eq(batch.steps[i], 0);
            } else {
                cr_expect_arr_eq(room.observations + i * 4, room.final_observations + i * 4,
                                 4 * sizeof(float));
            }
    }
    cr_expect_gt(ended, 0);
    environment_batch_deinit(&batch);
}

Test(environment_batch, an_episode_is_truncated_at_its_time_limit)
{
    struct environment_batch batch;
    struct step_room room = {.rewards = {0}};
    const float nothing[N] = {0, 0, 0};
    const struct environment_outcome outcome = outcome_of(&room);
    open_batch(&batch, &environment_pendulum, 1, &room);
    for (int t = 1; t <= 400; t++) {
        environment_batch_step(&batch, nothing, &outcome);
        for (int i = 0; i < N; i++) {
            cr_assert_eq(room.truncated[i], t % 200 == 0);
            cr_assert_not(room.terminated[i]);
        }
    }
    environment_batch_deinit(&batch);
}

Test(environment_batch, continuous_actions_are_clamped_to_their_bounds)
{
    struct environment_batch batch;
    struct step_room room = {.rewards = {0}};
    const float wild[N] = {50, 1, -50};
    const struct environment_outcome outcome = outcome_of(&room);
    open_batch(&batch, &environment_mountain_car, 1, &room);
    environment_batch_step(&batch, wild, &outcome);
    for (int i = 0; i < N; i++)
        cr_expect_float_eq(room.rewards[i], -0.1f, 1e-7f);
    environment_batch_deinit(&batch);
}

Test(environment_batch, the_same_seed_gives_the_same_episodes)
{
    for (size_t e = 0; environment_at(e) != NULL; e++) {
        struct environment_batch a, b;
        struct step_room room_a = {.rewards = {0}}, room_b = {.rewards = {0}};
        const struct environment_outcome to_a = outcome_of(&room_a), to_b = outcome_of(&room_b);
        const float actions[N] = {0, 1, 1};
        open_batch(&a, environment_at(e), 9, &room_a);
        open_batch(&b, environment_at(e), 9, &room_b);
        for (int t = 0; t < 300; t++) {
            environment_batch_step(&a, actions, &to_a);
            environment_batch_step(&b, actions, &to_b);
            cr_assert_arr_eq(room_a.observations, room_b.observations, sizeof(room_a.observations));
        }
        environment_batch_deinit(&a);
        environment_batch_deinit(&b);
    }
}
