#include "common/random.h"
#include "common/wire.h"

#include <criterion/criterion.h>
#include <string.h>

static const uint32_t kinds[] = {
#define MESSAGE_ENTRY(name, number) number,
    MESSAGE_MAP(MESSAGE_ENTRY)
#undef MESSAGE_ENTRY
};

/* A small but not empty message of that kind. */
static struct message example(uint32_t kind, uint64_t seed)
{
    struct message message = {.kind = kind, .epoch = 1, .timeline = 1};
    static const uint8_t data[] = "layout";
    switch (kind) {
    case MESSAGE_JOIN: strcpy(message.join.identity, "worker-3"); break;
    case MESSAGE_JOINED:
        message.joined.members_count = 2;
        strcpy(message.joined.members[1].address, "127.0.0.1:7071");
        message.joined.members[1].count = seed;
        break;
    case MESSAGE_DENIED: message.denied.status = -5; break;
    case MESSAGE_PAGE:
        message.page = (struct message_page){
            .content = CONTENT_LAYOUT, .pages = 1, .total = 6, .bytes = 6, .data = data};
        break;
    case MESSAGE_RECEIPT: message.receipt.index = seed; break;
    case MESSAGE_SUMS: message.sums.nodes_count = 3; break;
    case MESSAGE_RECORD:
        message.record =
            (struct record){.kind = RECORD_STEP, .epoch = 1, .timeline = 1, .index = 7};
        message.record.step.entries_count = 4;
        message.record.step.entries[3].weight = (uint32_t)seed;
        message.record.step.groups_count = 1;
        break;
    default: break;
    }
    return message;
}

static size_t encode(const struct message *message, uint8_t *bytes)
{
    size_t written = 0;
    cr_assert_eq(wire_encode(message, bytes, MESSAGE_BYTES_MAX, &written), GRADWEIR_OK);
    return written;
}

Test(wire, every_kind_comes_back_as_it_went)
{
    struct wire_decoder *decoder;
    cr_assert_eq(wire_decoder_new(&decoder), GRADWEIR_OK);
    static uint8_t bytes[MESSAGE_BYTES_MAX], again[MESSAGE_BYTES_MAX];
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const struct message message = example(kinds[i], 0x123456789abcULL + i);
        struct message back;
        const size_t count = encode(&message, bytes);
        size_t used = 0;
        cr_assert_eq(wire_decode(decoder, bytes, count, &used, &back), GRADWEIR_OK, "%s: %s",
                     message_name(kinds[i]), fail_reason());
        cr_assert_eq(used, count);
        cr_assert_eq(encode(&back, again), count);
        cr_assert_arr_eq(bytes, again, count);
    }
    wire_decoder_free(decoder);
}

Test(wire, no_truncated_message_is_accepted)
{
    struct wire_decoder *decoder;
    cr_assert_eq(wire_decoder_new(&decoder), GRADWEIR_OK);
    static uint8_t bytes[MESSAGE_BYTES_MAX];
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const struct message message = example(kinds[i], i);
        const size_t count = encode(&message, bytes);
        for (size_t cut = 0; cut < count; cut++) {
            struct message back;
            size_t used;
            cr_assert_eq(wire_decode(decoder, bytes, cut, &used, &back), GRADWEIR_ERR_PROTOCOL);
        }
    }
    wire_decoder_free(decoder);
}

/* Integers may be written in several widths, so a mutant may mean the same in other bytes; but
 * whatever is accepted must be a message that can be encoded again. */
Test(wire, mutated_messages_never_crash_and_mean_what_they_say)
{
    struct wire_decoder *decoder;
    cr_assert_eq(wire_decoder_new(&decoder), GRADWEIR_OK);
    static uint8_t bytes[MESSAGE_BYTES_MAX], again[MESSAGE_BYTES_MAX];
    struct random random;
    random_init(&random, 7);
    size_t refused = 0;
    for (size_t round = 0; round < 100000; round++) {
        const struct message message =
            example(kinds[random_below(&random, sizeof kinds / sizeof *kinds)], round);
        const size_t count = encode(&message, bytes);
        for (uint64_t n = 1 + random_below(&random, 3); n; n--)
            bytes[random_below(&random, count)] = (uint8_t)random_next(&random);
        struct message back, third;
        size_t used;
        if (wire_decode(decoder, bytes, count, &used, &back) != GRADWEIR_OK) {
            refused++;
            continue;
        }
        const size_t length = encode(&back, again);
        cr_assert_eq(wire_decode(decoder, again, length, &used, &third), GRADWEIR_OK);
    }
    cr_assert_gt(refused, 10000);
    wire_decoder_free(decoder);
}

static void refuse(const char *bytes, size_t count, const char *part)
{
    struct wire_decoder *decoder;
    cr_assert_eq(wire_decoder_new(&decoder), GRADWEIR_OK);
    struct message message;
    size_t used;
    cr_assert_eq(wire_decode(decoder, (const uint8_t *)bytes, count, &used, &message),
                 GRADWEIR_ERR_PROTOCOL);
    cr_assert(strstr(fail_reason(), part), "%s", fail_reason());
    wire_decoder_free(decoder);
}

Test(wire, hostile_bytes_are_refused_with_their_own_reason)
{
    refuse("\xdd\xff\xff\xff\xff", 5, "must be an array");
    refuse("\xdf\xff\xff\xff\xff", 5, "must be an array");
    refuse("\xdc\xff\xff\xc0\xc0", 5, "at most 64");
    refuse("\x93\x93\x93\x93\x01", 5, "no place");
    refuse("\x93\x01\x01\xc1", 4, "no place");
    refuse("\x93\x01\x01\xdb\xff\xff\xff\xff", 8, "the frame has 0");
    refuse("\x93\xc7\x01\x01", 4, "no place");
    refuse("\x93\xff\x01\x01", 4, "unsigned");
    refuse("\x93\xca\x00\x00\x00\x00\x01\x01", 8, "unsigned");
    refuse("\x93\x63\x01\x01", 4, "no kind");
    refuse("\x94\x0b\x01\x01\x01", 5, "elements");
}

Test(wire, a_content_survives_its_pages_and_refuses_a_gap)
{
    static uint8_t bytes[3 * PAGE_BYTES_MAX / 2];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(i * 7);
    struct content_assembler *assembler;
    cr_assert_eq(content_assembler_new(sizeof bytes, &assembler), GRADWEIR_OK);
    struct message_page page;
    content_page(CONTENT_LAYOUT, bytes, sizeof bytes, 1, &page);
    cr_assert_eq(content_add(assembler, &page), GRADWEIR_ERR_PROTOCOL);
    for (uint32_t i = 0; i < 2; i++) {
        content_page(CONTENT_LAYOUT, bytes, sizeof bytes, i, &page);
        cr_assert_eq(content_add(assembler, &page), GRADWEIR_OK, "%s", fail_reason());
        cr_assert_eq(content_whole(assembler), i == 1);
    }
    cr_assert_eq(content_count(assembler), sizeof bytes);
    cr_assert_arr_eq(content_bytes(assembler), bytes, sizeof bytes);
    content_page(CONTENT_LAYOUT, bytes, sizeof bytes, 0, &page);
    page.total = sizeof bytes + 1;
    cr_assert_eq(content_add(assembler, &page), GRADWEIR_ERR_PROTOCOL);
    content_assembler_free(assembler);
}
