#include "common/wire.h"

#include "common/checksum.h"
#include "tests/unit/wire_random.h"

#include <criterion/criterion.h>
#include <string.h>

static size_t encode(const struct message *message, uint8_t *bytes)
{
    size_t written = 0;
    cr_assert_eq(wire_encode(message, bytes, MESSAGE_BYTES_MAX, &written), GRADWEIR_OK);
    return written;
}

Test(wire, every_kind_comes_back_as_it_went)
{
    static struct message message, back;
    static uint8_t bytes[MESSAGE_BYTES_MAX];
    uint32_t kinds[WIRE_KINDS_MAX];
    struct wire_decoder *decoder;
    cr_assert_eq(wire_decoder_new(&decoder), GRADWEIR_OK);
    for (uint64_t seed = 0; seed < 200; seed++) {
        struct random random;
        random_init(&random, seed);
        for (size_t i = wire_message_kinds(kinds); i-- > 0;) {
            wire_random_message(&random, kinds[i], seed % 2, &message);
            const size_t count = encode(&message, bytes);
            size_t used = 0;
            cr_assert_eq(wire_decode(decoder, bytes, count, &used, &back), GRADWEIR_OK, "%s: %s",
                         message_name(kinds[i]), fail_reason());
            cr_assert_eq(used, count);
            cr_assert(wire_message_same(&message, &back), "%s, seed %llu", message_name(kinds[i]),
                      (unsigned long long)seed);
        }
    }
    wire_decoder_free(decoder);
}

Test(wire, every_kind_of_record_comes_back_with_its_hash)
{
    static struct record record, back;
    static uint8_t bytes[RECORD_BYTES_MAX];
    uint32_t kinds[WIRE_KINDS_MAX];
    for (uint64_t seed = 0; seed < 200; seed++) {
        struct random random;
        random_init(&random, seed);
        for (size_t i = wire_record_kinds(kinds); i-- > 0;) {
            wire_random_record(&random, kinds[i], seed % 2, &record);
            const size_t count = record_encode(&record, bytes);
            cr_assert_eq(record_decode(bytes, count, &back), GRADWEIR_OK, "%s: %s",
                         record_name(kinds[i]), fail_reason());
            cr_assert(wire_record_same(&record, &back));
            cr_assert_eq(record_hash(&record), checksum_hash64(0, bytes, count));
            cr_assert_eq(record_hash(&back), record_hash(&record));
        }
    }
}

Test(wire, a_frame_holds_several_messages_one_behind_the_other)
{
    static struct message messages[20], back;
    static uint8_t frame[FRAME_BYTES_MAX];
    uint32_t kinds[WIRE_KINDS_MAX];
    const size_t kinds_count = wire_message_kinds(kinds);
    struct random random;
    struct wire_decoder *decoder;
    size_t count = 0, at = 0;
    cr_assert_eq(wire_decoder_new(&decoder), GRADWEIR_OK);
    random_init(&random, 11);
    for (size_t i = 0; i < 20; i++) {
        uint32_t kind;
        do
            kind = kinds[random_below(&random, kinds_count)];
        while (kind == MESSAGE_PAGE); /* whose data lies in one place */
        wire_random_message(&random, kind, true, &messages[i]);
        size_t written;
        cr_assert_eq(wire_encode(&messages[i], frame + count, sizeof frame - count, &written),
                     GRADWEIR_OK);
        count += written;
    }
    for (size_t i = 0; i < 20; i++) {
        size_t used;
        cr_assert_eq(wire_decode(decoder, frame + at, count - at, &used, &back), GRADWEIR_OK);
        cr_assert(wire_message_same(&messages[i], &back));
        at += used;
    }
    cr_assert_eq(at, count);
    wire_decoder_free(decoder);
}

Test(wire, a_message_that_does_not_fit_is_not_written)
{
    static struct message message;
    static uint8_t bytes[MESSAGE_BYTES_MAX], short_of[MESSAGE_BYTES_MAX];
    uint32_t kinds[WIRE_KINDS_MAX];
    struct random random;
    random_init(&random, 5);
    for (size_t i = wire_message_kinds(kinds); i-- > 0;) {
        wire_random_message(&random, kinds[i], true, &message);
        const size_t count = encode(&message, bytes);
        for (size_t room = 0; room < count; room++) {
            size_t written = 77;
            short_of[room] = 0xee;
            cr_assert_eq(wire_encode(&message, short_of, room, &written), GRADWEIR_ERR_FULL);
            cr_assert_eq(written, 77);
            cr_assert_eq(short_of[room], 0xee, "a byte behind the room was written");
        }
    }
}

Test(wire, no_truncated_message_is_accepted)
{
    static struct message message, back;
    static uint8_t bytes[MESSAGE_BYTES_MAX];
    uint32_t kinds[WIRE_KINDS_MAX];
    struct wire_decoder *decoder;
    struct random random;
    cr_assert_eq(wire_decoder_new(&decoder), GRADWEIR_OK);
    random_init(&random, 3);
    for (size_t i = wire_message_kinds(kinds); i-- > 0;) {
        wire_random_message(&random, kinds[i], true, &message);
        const size_t count = encode(&message, bytes);
        for (size_t cut = 0; cut < count; cut++) {
            size_t used;
            cr_assert_eq(wire_decode(decoder, bytes, cut, &used, &back), GRADWEIR_ERR_PROTOCOL);
        }
    }
    wire_decoder_free(decoder);
}

Test(wire, mutated_messages_never_crash_and_mean_what_they_say)
{
    static struct message message, back;
    static uint8_t bytes[MESSAGE_BYTES_MAX], again[MESSAGE_BYTES_MAX];
    uint32_t kinds[WIRE_KINDS_MAX];
    const size_t kinds_count = wire_message_kinds(kinds);
    size_t refused = 0;
    struct wire_decoder *decoder;
    struct random random;
    cr_assert_eq(wire_decoder_new(&decoder), GRADWEIR_OK);
    random_init(&random, 7);
    for (size_t round = 0; round < 100000; round++) {
        wire_random_message(&random, kinds[random_below(&random, kinds_count)], true, &message);
        const size_t count = encode(&message, bytes);
        for (uint64_t n = 1 + random_below(&random, 3); n; n--)
            bytes[random_below(&random, count)] = (uint8_t)random_next(&random);
        size_t used;
        if (wire_decode(decoder, bytes, count, &used, &back) != GRADWEIR_OK) {
            refused++;
            continue;
        }
        cr_assert_eq(encode(&back, again), used, "%s", message_name(back.kind));
        cr_assert_eq(memcmp(bytes, again, used), 0, "%s", message_name(back.kind));
    }
    cr_assert_gt(refused, 10000);
    cr_assert_lt(refused, 90000);
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

/* F1 to F4 of the fault catalogue: lengths that would make a parser ask for gigabytes, floods,
 * nesting, and everything that is not exactly what the table says. */
Test(wire, hostile_bytes_are_refused_with_their_own_reason)
{
    refuse("", 0, "empty");
    refuse("\xdd\xff\xff\xff\xff", 5, "must be an array, not type 0xdd");
    refuse("\xdf\xff\xff\xff\xff", 5, "must be an array, not type 0xdf");
    refuse("\xdc\xff\xff\xc0\xc0", 5, "at most 64");
    refuse("\x93\x93\x93\x93\x01", 5, "0x93 has no place");
    refuse("\x93\x01\x01\x81", 4, "0x81 has no place");
    refuse("\x93\x01\x01\xc1", 4, "0xc1 has no place");
    refuse("\x93\x01\x01\xc0", 4, "0xc0 has no place");
    refuse("\x93\x01\x01\xc3", 4, "0xc3 has no place");
    refuse("\x93\xc7\x01\x01", 4, "0xc7 has no place");
    refuse("\x93\xd4\x01\x01", 4, "0xd4 has no place");
    refuse("\x93\x01\x01\xdb\xff\xff\xff\xff", 8, "says 4294967295 bytes, the frame has 0");
    refuse("\x93\x01\x01\xc6\xff\xff\xff\xff", 8, "says 4294967295 bytes, the frame has 0");
    refuse("\x93\x01\x01\xa5"
           "ab",
           6, "says 5 bytes, the frame has 2");
    refuse("\x93\x01\x01\xda\x01", 5, "ends within a length");
    refuse("\x93\x01\x01", 3, "ends before element 2 of 3");
    refuse("\x92\x01\x01", 3, "ends before timeline");
    refuse("\x93\xff\x01\x01", 4, "kind is not an unsigned integer");
    refuse("\x93\xca\x00\x00\x00\x00\x01\x01", 8, "kind is not an unsigned integer");
    refuse("\x93\xa1\x0b\x01\x01", 5, "kind is not an unsigned integer");
    refuse("\x93\x63\x01\x01", 4, "99 is no kind of message");
    refuse("\x93\x0b\xcf\x00\x00\x00\x01\x00\x00\x00\x00\x01", 12, "epoch is 4294967296, above");
    refuse("\x94\x0b\x01\x01\x01", 5, "a REJOIN has 4 elements, not 3");
    refuse("\x93\x0b\xcc\x7f\x01", 5, "(0xcc) is not in its shortest form");
    refuse("\x93\x0b\x01\xd3\xff\xff\xff\xff\x80\x00\x00\x00", 12, "(0xd3) is not in its shortest");
    refuse("\xdc\x00\x03\x0b\x01\x01", 6, "an array of 3 is not in its shortest form");
}

Test(wire, fields_that_break_their_bounds_are_refused_by_name)
{
    refuse("\x94\x04\x01\x01\x00", 5, "want.content is 0, below 1");
    refuse("\x94\x04\x01\x01\x06", 5, "want.content is 6, above 5");
    refuse("\x95\x03\x01\x01\xfb\xc4\x00", 7, "denied.text is not a string");
    refuse("\x95\x03\x01\x01\xfb\xa2\x61\x00", 8, "denied.text has a zero byte");
    refuse("\x95\x03\x01\x01\xca\x00\x00\x00\x00\xa0", 10, "denied.status is not an integer");
    refuse("\x95\x03\x01\x01\xce\x80\x00\x00\x00\xa0", 10, "denied.status does not fit");
    refuse("\x96\x17\x01\x01\x01\x01\xc4\x01\x00", 9, "entry.pass has 1 bytes, not 16");
    refuse("\x96\x17\x01\x01\x01\x01\xa1\x00", 8, "entry.pass is not binary");
    refuse("\x96\x17\x01\x01\xcd\x04\x00\x01\xa1\x00", 10, "entry.worker is 1024, above 1023");
    refuse("\x99\x1e\x01\x01\x01\x00\x00\x00\x00\xc4\x07"
           "1234567",
           18, "sums.nodes has 7 bytes");
    refuse("\x94\x18\x01\x01\x01", 5, "a record is binary");
    refuse("\x94\x18\x01\x01\xc4\x01\x90", 7, "ends before record kind");
    refuse("\x94\x18\x01\x01\xc4\x08\x96\x08\x01\x01\x01\x00\x01\x01", 14, "1 bytes are left over");
    refuse("\x94\x18\x01\x01\xc4\x06\x95\x08\x01\x01\x01\x00", 12,
           "SAVE record has 5 elements, not 6");
}

/* 16 million nils, and nesting of 10,000: refused at the first byte that is too much. */
Test(wire, floods_and_deep_nests_cost_nothing)
{
    static char bytes[FRAME_BYTES_MAX];
    memset(bytes, 0xc0, sizeof bytes);
    memcpy(bytes, "\xdd\x00\xff\xff\xff", 5);
    refuse(bytes, sizeof bytes, "must be an array");
    memset(bytes, 0x91, sizeof bytes);
    refuse(bytes, sizeof bytes, "0x91 has no place");
    memset(bytes, 0x01, sizeof bytes);
    memcpy(bytes, "\xdc\x00\x41", 3);
    refuse(bytes, sizeof bytes, "an array of 65 elements");
}

static void refuse_changed(const struct message *good, size_t offset_from_end, uint8_t byte,
                           const char *part)
{
    static uint8_t bytes[MESSAGE_BYTES_MAX];
    const size_t count = encode(good, bytes);
    bytes[count - offset_from_end] = byte;
    refuse((const char *)bytes, count, part);
}

Test(wire, a_magnitude_that_is_no_number_and_an_address_without_an_end_are_refused)
{
    struct message landed = {.kind = MESSAGE_LANDED, .landed.magnitude = 1.5f};
    /* 0x3fc00000 becomes 0x7fc00000; behind it stand nine bytes of a float64. */
    refuse_changed(&landed, 9 + 4, 0x7f, "landed.magnitude is not a number");
    struct message joined = {.kind = MESSAGE_JOINED, .joined.members_count = 1};
    memset(joined.joined.members[0].address, 'a', ADDRESS_MAX - 1);
    refuse_changed(&joined, 17, 'a', "member 0 has an address without an end");
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
