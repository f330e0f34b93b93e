#include "tests/unit/session_bench.h"

#include <criterion/criterion.h>
#include <string.h>

/* The bench's 1,000 floats as a matrix of 50 rows: member 0 has the first 512 of them. */
static struct model *model;

static void start(void)
{
    const struct model_tensor tensor = {.name = "w", .dimensions = 2, .shape = {50, 20}};
    bench_start();
    cr_assert_eq(model_new(1, &model), GRADWEIR_OK);
    cr_assert_eq(model_add(model, &tensor), GRADWEIR_OK);
    cr_assert_eq(model_seal(model), GRADWEIR_OK);
    bench_come_in(1);
    session.options.model = model;
}

static void end(void)
{
    model_free(model);
    bench_end();
}

TestSuite(session_boxes, .init = start, .fini = end);

static void pull(struct session_pull_request request)
{
    bench_step((struct session_event){.kind = SESSION_PULL, .pull = request});
}

static struct head_pull asked(uint32_t n)
{
    struct head_pull head;
    memcpy(&head, &bench_nth(SESSION_LIST, n)->head, sizeof head);
    return head;
}

static void hear(uint32_t member, uint8_t kind, uint64_t version, uint64_t offset, uint64_t length)
{
    const struct head_parameters parameters = {.kind = kind,
                                               .timeline = 1,
                                               .crc = 55,
                                               .ticket = session.parts[member].ticket,
                                               .version = version,
                                               .offset = offset,
                                               .length = length,
                                               .total = session.parts[member].total};
    struct head_any head;
    memcpy(&head, &parameters, sizeof head);
    bench_step((struct session_event){
        .kind = SESSION_OFFERED, .member = member, .head = &head, .offer = 8, .length = length});
}

static void land(const struct session_action *take)
{
    const struct session_action copy = *take;
    bench_step((struct session_event){
        .kind = SESSION_LANDED, .token = copy.token, .length = copy.length, .crc = 55});
}

Test(session_boxes, asks_only_members_that_hold_some_and_puts_each_piece_where_it_belongs)
{
    const struct part boxes[] = {{.axis = 0, .first = 24, .count = 4}, /* 480..559: both */
                                 {.axis = 0, .first = 0, .count = 1}}; /* member 0 alone */
    pull((struct session_pull_request){.boxes = boxes, .boxes_count = 2});
    cr_assert_eq(bench_count(SESSION_LIST), 2);
    cr_assert(asked(0).length == (32 + 20) * 4 && asked(0).flags == PULL_PIECES);
    cr_assert_eq(asked(1).length, 48 * 4);
    struct piece list[2];
    cr_assert(session_pull_pieces(&session, 1, list) == 1 && list[0].offset == 0);
    hear(1, HEAD_PARAMETERS, 6, 0, 48 * 4);
    cr_assert(bench_nth(SESSION_TAKE, 0)->box == 1 && bench_nth(SESSION_TAKE, 0)->offset == 32 * 4);
    land(bench_nth(SESSION_TAKE, 0));
    hear(0, HEAD_PARAMETERS, 6, 0, 100);
    land(bench_nth(SESSION_TAKE, 0));
    hear(0, HEAD_PARAMETERS, 6, 100, 60); /* beyond the first piece */
    cr_assert_eq(bench_count(SESSION_TAKE), 0);
    hear(0, HEAD_PARAMETERS, 6, 100, 28);
    cr_assert_eq(bench_nth(SESSION_TAKE, 0)->offset, 100);
    land(bench_nth(SESSION_TAKE, 0));
    hear(0, HEAD_PARAMETERS, 6, 128, 80);
    cr_assert(bench_nth(SESSION_TAKE, 0)->box == 2 && bench_nth(SESSION_TAKE, 0)->offset == 0);
    land(bench_nth(SESSION_TAKE, 0));
    cr_assert(bench_nth(SESSION_PULLED, 0)->version == 6 && bench_nth(SESSION_PULLED, 0)->moved);

    const struct part low = {.axis = 0, .first = 3, .count = 2};
    pull((struct session_pull_request){.boxes = &low, .boxes_count = 1, .half = true});
    cr_assert(bench_count(SESSION_LIST) == 1 && bench_nth(SESSION_LIST, 0)->member == 0);
    cr_assert(asked(0).dtype == HEAD_BFLOAT16 && session.parts[0].total == 80);
    hear(0, HEAD_PARAMETERS, 7, 0, 80);
    land(bench_nth(SESSION_TAKE, 0));
    cr_assert_eq(bench_nth(SESSION_PULLED, 0)->version, 7);
}

Test(session_boxes, of_two_versions_the_higher_is_asked_for_again_and_none_is_mixed)
{
    const struct part box = {.axis = 1, .first = 3, .count = 2};
    pull((struct session_pull_request){.boxes = &box, .boxes_count = 1});
    for (uint32_t member = 0; member < 2; member++) {
        hear(member, HEAD_PARAMETERS, 6 + member, 0, session.parts[member].total);
        land(bench_nth(SESSION_TAKE, 0));
    }
    cr_assert_eq(bench_count(SESSION_PULLED), 0);
    cr_assert(asked(0).version == 7 && asked(0).flags == (PULL_PIECES | PULL_EXACT));
    hear(0, HEAD_GONE, 8, 0, 0); /* overwritten meanwhile: all of it anew */
    cr_assert(bench_count(SESSION_LIST) == 2 && asked(1).version == 8);
}

Test(session_boxes, nothing_newer_moves_nothing_and_one_who_knows_of_something_makes_all_send_it)
{
    const struct part box = {.axis = 1, .first = 3, .count = 2};
    const struct session_pull_request newer = {
        .boxes = &box, .boxes_count = 1, .newer = true, .version = 6};
    pull(newer);
    cr_assert_eq(asked(0).flags, PULL_PIECES | PULL_NEWER);
    hear(0, HEAD_GONE, 6, 0, 0);
    cr_assert_eq(bench_count(SESSION_PULLED), 0);
    hear(1, HEAD_GONE, 5, 0, 0);
    cr_assert(!bench_nth(SESSION_PULLED, 0)->moved && bench_nth(SESSION_PULLED, 0)->version == 6);

    pull(newer);
    hear(0, HEAD_GONE, 6, 0, 0);
    hear(1, HEAD_PARAMETERS, 7, 0, session.parts[1].total);
    land(bench_nth(SESSION_TAKE, 0));
    cr_assert(bench_nth(SESSION_LIST, 0)->member == 0 && asked(0).version == 7);
    cr_assert_eq(asked(0).flags, PULL_PIECES | PULL_EXACT);
    hear(0, HEAD_PARAMETERS, 7, 0, session.parts[0].total);
    land(bench_nth(SESSION_TAKE, 0));
    cr_assert(bench_nth(SESSION_PULLED, 0)->moved && bench_nth(SESSION_PULLED, 0)->version == 7);

    pull(newer); /* 7 is known: nobody is asked whether there is anything */
    cr_assert(asked(0).flags == PULL_PIECES && asked(0).version == 7);
}

Test(session_boxes, a_version_that_is_not_held_is_refused_once_nothing_of_it_lands_any_more)
{
    const struct part box = {.axis = 1, .first = 3, .count = 2};
    pull((struct session_pull_request){
        .boxes = &box, .boxes_count = 1, .exact = true, .version = 4});
    cr_assert(asked(0).version == 4 && asked(0).flags == (PULL_PIECES | PULL_EXACT));
    hear(0, HEAD_PARAMETERS, 4, 0, session.parts[0].total);
    const struct session_action take = *bench_nth(SESSION_TAKE, 0);
    hear(1, HEAD_GONE, 9, 0, 0);
    cr_assert_eq(bench_count(SESSION_PULLED), 0);
    land(&take);
    cr_assert_eq(bench_nth(SESSION_PULLED, 0)->status, GRADWEIR_ERR_REFUSED);
    cr_assert_eq(bench_nth(SESSION_PULLED, 0)->version, 9);
}
