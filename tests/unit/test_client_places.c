/* Arrays that lie where they should not, devices that are not there or fail: each a status with a
 * sentence, and nobody dies of it. */
#include "client/client_feedback.h"
#include "tests/unit/client_rig.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static void expect_reason(const char *part)
{
    cr_expect(strstr(fail_reason(), part), "\"%s\" says nothing of \"%s\"", fail_reason(), part);
}

/* Bind of far arrays when options.memory is this. */
static gradweir_status bind_as(struct client_rig *rig, enum client_rig_place place, uint32_t memory)
{
    const struct client_rig_wish wish = {.place = place, .seed = 1};
    client_rig_new(rig, &wish);
    rig->client->options.memory = memory;
    return client_rig_bind(rig, &wish);
}

Test(client_places, far_memory_bound_as_the_hosts_is_refused_by_name)
{
    struct client_rig rig;
    device_far_reset();
    cr_expect_eq(bind_as(&rig, CLIENT_RIG_FAR, GRADWEIR_MEMORY_HOST), GRADWEIR_ERR_INVALID);
    expect_reason("tensor scalar: its parameters");
    expect_reason("options.memory");
    client_rig_free(&rig);
    device_far_faults.absent = true;
    cr_expect_eq(bind_as(&rig, CLIENT_RIG_FAR, GRADWEIR_MEMORY_AUTO), GRADWEIR_ERR_INVALID);
    expect_reason("no memory that this process can read");
    client_rig_free(&rig);
}

Test(client_places, host_memory_bound_as_the_devices_is_refused_by_name)
{
    struct client_rig rig;
    device_far_reset();
    cr_expect_eq(bind_as(&rig, CLIENT_RIG_HOST, GRADWEIR_MEMORY_CUDA), GRADWEIR_ERR_INVALID);
    expect_reason("tensor scalar: its parameters lie in host memory");
    client_rig_free(&rig);
    cr_expect_eq(bind_as(&rig, CLIENT_RIG_FAR, GRADWEIR_MEMORY_CUDA), GRADWEIR_OK);
    client_rig_free(&rig);
}

Test(client_places, memory_of_another_device_is_refused_with_both_numbers)
{
    struct client_rig rig;
    const struct client_rig_wish wish = {.place = CLIENT_RIG_FAR, .seed = 1};
    device_far_reset();
    client_rig_new(&rig, &wish);
    rig.client->options.gpu = 3;
    cr_expect_eq(client_rig_bind(&rig, &wish), GRADWEIR_ERR_INVALID);
    expect_reason("GPU 0");
    expect_reason("far 3");
    client_rig_free(&rig);
}

Test(client_places, an_array_that_is_too_short_is_refused_before_anything_is_read)
{
    struct client_rig rig;
    const struct client_rig_wish wish = {.place = CLIENT_RIG_FAR, .seed = 1};
    device_far_reset();
    client_rig_new(&rig, &wish);
    void *whole = rig.tensors[5].parameters, *shorter = device_far_new(100, 0);
    rig.tensors[5].parameters = shorter;
    cr_expect_eq(client_rig_bind(&rig, &wish), GRADWEIR_ERR_INVALID);
    expect_reason("tensor middle: its parameters begin in one memory and end in another");
    rig.tensors[5].parameters = whole;
    device_far_delete(shorter);
    client_rig_free(&rig);
}

Test(client_places, memory_that_is_none_at_all_is_refused_by_name)
{
    struct client_rig rig;
    const struct client_rig_wish wish = {.place = CLIENT_RIG_HOST, .seed = 1};
    device_far_reset();
    client_rig_new(&rig, &wish);
    const void *whole = rig.tensors[7].gradient;
    void *hole = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    rig.tensors[7].gradient = hole;
    cr_expect_eq(client_rig_bind(&rig, &wish), GRADWEIR_ERR_INVALID);
    expect_reason("tensor last: its gradients");
    rig.tensors[7].gradient = whole;
    munmap(hole, 4096);
    client_rig_free(&rig);
}

Test(client_places, where_there_is_no_device_cuda_says_why_and_auto_goes_on)
{
    struct client_rig rig;
    device_far_reset();
    device_far_faults.absent = true;
    cr_expect_eq(bind_as(&rig, CLIENT_RIG_HOST, GRADWEIR_MEMORY_CUDA), GRADWEIR_ERR_UNSUPPORTED);
    expect_reason("there is no such device");
    client_rig_free(&rig);
    cr_expect_eq(bind_as(&rig, CLIENT_RIG_HOST, GRADWEIR_MEMORY_AUTO), GRADWEIR_OK);
    cr_expect_null(rig.client->memory);
    cr_expect_str_eq(client_memory_path_name(rig.client), "host");
    client_rig_free(&rig);
}

Test(client_places, a_build_without_cuda_says_so)
{
    static struct gradweir_client client;
    client.options.memory = GRADWEIR_MEMORY_CUDA;
    cr_expect_eq(client_memory_open_with(&client, NULL), GRADWEIR_ERR_UNSUPPORTED);
    expect_reason("built without CUDA");
    client.options.memory = GRADWEIR_MEMORY_AUTO;
    cr_expect_eq(client_memory_open_with(&client, NULL), GRADWEIR_OK);
    cr_expect_null(client.memory);
}

Test(client_places, a_path_that_cannot_be_had_is_refused_and_not_replaced)
{
    struct client_rig rig;
    const struct client_rig_wish wish = {.place = CLIENT_RIG_FAR, .seed = 1};
    char text[320];
    device_far_reset();
    client_rig_new(&rig, &wish);
    rig.client->options.memory_path = GRADWEIR_MEMORY_PATH_DIRECT;
    cr_expect_eq(client_rig_bind(&rig, &wish), GRADWEIR_ERR_UNSUPPORTED);
    expect_reason("knows host memory only");
    client_rig_free(&rig);
    client_rig_make(&rig, &wish);
    client_memory_text(rig.client, text, sizeof text);
    cr_expect(strstr(text, "far 0 by staging, a pinned ring of 1536 KiB"), "%s", text);
    cr_expect_str_eq(client_memory_path_name(rig.client), "staging");
    client_rig_free(&rig);
}

Test(client_places, without_memory_to_pin_bind_says_so)
{
    struct client_rig rig;
    device_far_reset();
    device_far_faults.no_pinning = true;
    cr_expect_eq(bind_as(&rig, CLIENT_RIG_FAR, GRADWEIR_MEMORY_AUTO), GRADWEIR_ERR_NO_MEMORY);
    expect_reason("cannot be pinned");
    client_rig_free(&rig);
}

static gradweir_status push(struct gradweir_client *client)
{
    struct client_encoding encoding;
    TRY(client_encode_begin(&encoding, client, CLIENT_GRADIENT, 0));
    while (client_encode_more(&encoding, 200000))
        ;
    return encoding.status;
}

static gradweir_status pull(struct gradweir_client *client)
{
    TRY(client_body_receive(client));
    return client_body_load(client);
}

static gradweir_status gather(struct gradweir_client *client)
{
    return gradweir_accumulate(client, 5);
}

/* Whatever copy is the last good one, the call that needs the next says so, and so do all calls
 * after it. */
static void lose(gradweir_status (*call)(struct gradweir_client *), enum arithmetic_codec codec)
{
    uint64_t needed = 1;
    for (uint64_t good = 1; good <= needed; good++) {
        struct client_rig rig;
        device_far_reset();
        device_far_faults.copies_good = good;
        client_rig_make(
            &rig, &(struct client_rig_wish){.place = CLIENT_RIG_FAR, .codec = codec, .seed = 4});
        const gradweir_status status = call(rig.client);
        if (status != GRADWEIR_OK) {
            needed = good + 1;
            cr_expect_eq(status, GRADWEIR_ERR_LOST);
            expect_reason("the device is lost");
            cr_expect_eq(push(rig.client), GRADWEIR_ERR_LOST);
            cr_expect_eq(pull(rig.client), GRADWEIR_ERR_LOST);
            cr_expect_eq(gather(rig.client), GRADWEIR_ERR_LOST);
            cr_expect_eq(client_memory_whole(rig.client), GRADWEIR_ERR_LOST);
        }
        client_rig_free(&rig);
    }
    cr_expect(needed > 4, "it was never lost in the middle");
}

Test(client_places, a_device_that_is_lost_during_a_push_a_pull_or_an_accumulate_is_told)
{
    lose(push, ARITHMETIC_F32);
    lose(push, ARITHMETIC_INT8);
    lose(pull, ARITHMETIC_F32);
    lose(gather, ARITHMETIC_F32);
}
