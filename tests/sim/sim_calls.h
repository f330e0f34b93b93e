/* What the simulator's files do for each other; the structs stand in sim.h. */
#ifndef GRADWEIR_SIM_SIM_CALLS_H
#define GRADWEIR_SIM_SIM_CALLS_H

#include "tests/sim/sim.h"

/* In which numbers a push travels, and where its MOMENTS begin. */
static inline enum arithmetic_codec sim_codec(const struct sim *sim, uint32_t purpose)
{
    return purpose == PURPOSE_FIRST ? ARITHMETIC_F32 : sim->settings.order.law.gradient_dtype;
}
static inline uint64_t sim_tail(const struct sim *sim, uint32_t purpose)
{
    return codec_bytes(sim_codec(sim, purpose), sim->model->elements);
}

/* sim_run.c */
_Noreturn void sim_fail_at(struct sim *sim, const char *check, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
#define sim_fail(sim, ...) sim_fail_at(sim, __func__, __VA_ARGS__)
void sim_tell_line(struct sim *sim, const char *format, ...) __attribute__((format(printf, 2, 3)));
#define sim_tell(sim, ...) ((sim)->story ? sim_tell_line(sim, __VA_ARGS__) : (void)0)
uint8_t *sim_remember(struct sim *sim, const void *bytes, size_t count);
gradweir_status sim_open(struct sim **sim);
void sim_close(struct sim *sim);
bool sim_run(struct sim *sim, uint64_t seed); /* false: sentence says what was wrong */

/* sim_settings.c */
void settings_choose(struct sim *sim);
void settings_tell(struct sim *sim);

/* sim_events.c */
void event_add(struct sim *sim, struct sim_event event);
bool event_next(struct sim *sim, struct sim_event *event);
int64_t event_delay(struct sim *sim, double factor);
bool chance(struct random *random, double p);
double between(struct random *random, double low, double high);

/* Actors: coordinators, shards, workers. */
enum sim_role { COORDINATOR, SHARD, WORKER };
static inline enum sim_role actor_role(uint32_t actor)
{
    return actor < SIM_COORDINATORS                ? COORDINATOR
           : actor < SIM_COORDINATORS + SIM_SHARDS ? SHARD
                                                   : WORKER;
}
static inline uint32_t actor_shard(uint32_t shard)
{
    return SIM_COORDINATORS + shard;
}
static inline uint32_t actor_worker(uint32_t worker)
{
    return SIM_COORDINATORS + SIM_SHARDS + worker;
}
static inline uint32_t shard_of(uint32_t actor)
{
    return actor - SIM_COORDINATORS;
}
static inline uint32_t worker_of(uint32_t actor)
{
    return actor - SIM_COORDINATORS - SIM_SHARDS;
}

/* sim_control.c */
bool control_up(struct sim *sim, uint32_t actor); /* false: no coordinator listens */
void control_up_at(struct sim *sim, uint32_t actor, int64_t at_ns);
void control_lost_at(struct sim *sim, uint32_t actor, uint32_t coordinator, int64_t at_ns);
void control_break(struct sim *sim, uint32_t actor, int64_t tell_ns); /* INT64_MAX: never */
void control_to_coordinator(struct sim *sim, uint32_t actor, const struct message *message);
void control_to_peer(struct sim *sim, uint32_t peer, const struct message *message);
void control_arrives(struct sim *sim, const struct sim_event *event);
void control_release(struct sim *sim, uint32_t message);
uint32_t control_copy(struct sim *sim, const struct message *message);

/* sim_data.c */
void data_connect(struct sim *sim, uint32_t worker, uint32_t shard);
void data_break(struct sim *sim, uint32_t connection);
void data_break_all(struct sim *sim, uint32_t worker);
void data_shard_dies(struct sim *sim, uint32_t shard);
void data_send(struct sim *sim, const struct sim_body *body);
void data_take(struct sim *sim, uint64_t offer, uint64_t target, uint64_t token);
void data_refuse(struct sim *sim, uint64_t offer);
void data_event(struct sim *sim, const struct sim_event *event);
struct sim_connection *data_connection(struct sim *sim, uint32_t number);

uint8_t *data_address(struct sim *sim, const struct sim_body *body, bool source);

/* sim_ghosts.c */
void ghosts_rise(struct sim *sim, const struct sim_connection *connection);
void ghosts_land(struct sim *sim, struct sim_body *body);
void ghosts_end(struct sim *sim, uint32_t shard);

/* sim_server.c, sim_coordinator.c, sim_shard.c */
void server_start(struct sim *sim);
void server_stop(struct sim *sim);
void server_coordinator(struct sim *sim); /* a new one starts */
void server_coordinator_dies(struct sim *sim, uint32_t coordinator);
void server_shard_dies(struct sim *sim, uint32_t shard);
void server_shard_returns(struct sim *sim, uint32_t shard);

void server_enlist(struct sim *sim, uint32_t shard);
void server_order(struct sim *sim, uint32_t coordinator, const struct order_event *event);
void server_shard(struct sim *sim, uint32_t shard, const struct shard_event *event);
void server_shard_message(struct sim *sim, uint32_t shard, const struct message *message);
void server_job(struct sim *sim, const struct sim_event *event);
void server_wake(struct sim *sim, uint32_t actor, int64_t at_ns);

/* sim_worker.c */
void worker_start(struct sim *sim, uint32_t worker);
void worker_step(struct sim *sim, uint32_t worker, struct session_event event);
void worker_message(struct sim *sim, uint32_t worker, const struct message *message);
void worker_think(struct sim *sim, uint32_t worker, double factor);
bool worker_lives(const struct sim *sim, uint32_t worker);

/* sim_swaps.c */
bool swaps_room(struct sim *sim); /* false: no memory */
void swaps_reset(struct sim *sim);
void swaps_start(struct sim *sim, uint32_t worker); /* its process has */
void swaps_turn(struct sim *sim, uint32_t worker);
void swaps_heard(struct sim *sim, uint32_t worker, const struct message_swapped *swapped);
bool swaps_get_on(struct sim *sim, char *text, size_t size);

/* sim_boxes.c */
void boxes_choose(struct sim *sim, uint32_t worker, bool after); /* what it pulls next */
void boxes_check(struct sim *sim, uint32_t worker, uint64_t version);
void boxes_unmoved(struct sim *sim, uint32_t worker, uint64_t version);

/* sim_user.c */
/* sim_group.c */
bool group_has(const struct sim *sim, uint32_t worker);
void group_choose(struct sim *sim);
void group_free(struct sim *sim);
void group_options(struct sim *sim, uint32_t worker, struct session_options *options);
void group_push(struct sim *sim, struct session_push_request request); /* what rank 0 has pushed */
uint64_t group_share(const struct sim *sim, uint32_t rank, const uint8_t *body);
uint64_t group_digest(const struct sim *sim, const uint8_t *body);
void group_ends(struct sim *sim);
void worker_restart_later(struct sim *sim, uint32_t worker);
void worker_exit(struct sim *sim, uint32_t worker);
void worker_user(struct sim *sim, uint32_t worker);
void worker_fill(struct sim *sim, uint32_t index, uint32_t buffer);

/* sim_faults.c, sim_faults_network.c, sim_faults_server.c */
void faults_next(struct sim *sim);
void fault_kill(struct sim *sim, uint32_t worker, int64_t back_ns);
void fault_stop(struct sim *sim, uint32_t actor, int64_t ns);
void fault_break_control(struct sim *sim, uint32_t worker);
void fault_break_data(struct sim *sim, uint32_t worker);
void fault_partition(struct sim *sim, uint32_t worker);
void fault_partition_data(struct sim *sim, uint32_t worker);
void fault_partition_shard(struct sim *sim, uint32_t worker);
void fault_storm(struct sim *sim, uint32_t worker);
void fault_come_back(struct sim *sim, uint32_t actor, double factor);
void fault_cut(struct sim *sim, const struct sim_event *event);
void fault_stop_shard(struct sim *sim, uint32_t worker);
void fault_break_shard(struct sim *sim, uint32_t worker);
void fault_slow(struct sim *sim, uint32_t worker);
void fault_clock(struct sim *sim, uint32_t worker);
void fault_old_epoch(struct sim *sim, uint32_t worker);
void fault_kill_coordinator(struct sim *sim, uint32_t worker);
void fault_second_coordinator(struct sim *sim, uint32_t worker);
void fault_kill_shard(struct sim *sim, uint32_t worker);
void fault_massacre(struct sim *sim, uint32_t worker);
void fault_tune(struct sim *sim, uint32_t worker);
void faults_end(struct sim *sim);

/* sim_story.c */
const char *story_actor(const struct sim *sim, uint32_t actor);
void story_sent(struct sim *sim, uint32_t from, uint32_t to, const struct message *message);
void story_heard(struct sim *sim, uint32_t by, uint32_t from, const struct message *message);
void story_head(struct sim *sim, const struct sim_connection *connection,
                const struct sim_body *body, bool heard);

/* sim_table.c */
void table_print(const struct sim_counts *counts, uint64_t seeds, double seconds);

/* check_log.c */
void check_logged(struct sim *sim, uint32_t shard, const struct record *record);
void check_shard(struct sim *sim, uint32_t shard);

/* check_order.c */
void check_append(struct sim *sim, uint32_t coordinator, const struct record *record);
void check_told(struct sim *sim, uint32_t coordinator, const struct message *message);
void check_described(struct sim *sim, uint32_t worker, const struct message_describe *describe);
void check_heard(struct sim *sim, uint32_t worker, const struct message_receipt *receipt,
                 uint64_t digest);
bool check_same_name(const struct name *a, const struct name *b);
struct sim_name *check_name(struct sim *sim, const struct name *name);
bool check_is_old(const struct ledger *ledger, const struct message *message);

/* check_slots.c */
bool check_fenced(const struct sim *sim, uint32_t coordinator); /* some shard follows a later one */
void check_placed(struct sim *sim, uint32_t coordinator, const struct message_place *place);
void check_taken(struct sim *sim, uint32_t coordinator, uint32_t slot, uint64_t generation);
void check_close_told(struct sim *sim, uint32_t coordinator, const struct message_close *close);
void check_close_heard(struct sim *sim, uint32_t shard, const struct message *message);
void check_take(struct sim *sim, uint32_t shard, const struct sim_body *body);
void check_promise(struct sim *sim, uint32_t shard);
void check_freed_told(struct sim *sim, uint32_t shard, const struct message_freed *freed);
void check_freed_heard(struct sim *sim, uint32_t coordinator, uint32_t shard,
                       const struct message_freed *freed);

/* check_data.c */
void check_whole_body(struct sim *sim, const struct sim_name *known, uint32_t slot);
void check_landing(struct sim *sim, uint32_t shard, const struct sim_body *body);
void check_reply(struct sim *sim, uint32_t shard, const struct head_parameters *head);
void check_left(struct sim *sim, uint32_t shard, const struct sim_body *body);
void check_rode(struct sim *sim, uint32_t worker, uint64_t version);
void check_pulled(struct sim *sim, uint32_t worker, uint64_t version);
void check_stepped(struct sim *sim, uint32_t shard);

/* check_end.c */
bool check_progress(struct sim *sim, char *text, size_t size);
bool check_quiet(struct sim *sim, char *text, size_t size);
void check_end(struct sim *sim);

/* reference.c */
void reference_init(struct sim *sim);
void reference_apply(struct sim *sim, const struct record *record, const struct sim_name *known);
/* reference_stacks.c: a step by stacks, element by element. Its numbers are checked, and the
 * average beside that of one pass; entries have their weights, and the record is reference->step.
 */
void reference_stacks(struct sim *sim);
void reference_stacks_tuned(struct sim *sim, const struct law_settings *law);
void reference_plan(const struct sim *sim, const struct record_step *step,
                    struct arithmetic_plan *plan);

#endif
