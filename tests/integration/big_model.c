/* A worker of one large model, whose parameters and gradients lie in little memory: one file of 64
 * MiB of chance, mapped again and again behind itself. Its length in pages is a prime, so what lies
 * 2^31 or 2^32 bytes further is something else.
 *
 * Offers the parameters, compares slices of all kinds around 2^31 and 2^32 bytes and at the end,
 * pushes a gradient, compares again, and at last compares all of it, some rows at a time.
 *
 *     big_model ADDRESS ELEMENTS
 *
 * Prints what was compared; ends with 1 and a sentence when something is not what it should be. */
#include <gradweir/gradweir.h>

#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGES = 16411, PAGE = 4096, COLUMNS = 100003, TIMEOUT_MS = 300000 };

static const uint64_t period = (uint64_t)PAGES * PAGE / sizeof(float);
static const double rate = 0.25; /* of the server, --learning-rate */

struct big {
    gradweir_client *client;
    float *floats;                      /* all of the model, mapped */
    uint64_t elements, low, rows, tail; /* of the tensors low, wide [rows, COLUMNS], tail */
    uint64_t compared;
    double tolerance; /* of a pushed gradient: its codec is coarse */
    bool stepped;
};

_Noreturn static void give_up(const char *format, ...) __attribute__((format(printf, 1, 2)));

_Noreturn static void give_up(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fprintf(stderr, "\n");
    exit(1);
}

static void must(gradweir_status status, const char *what)
{
    if (status != GRADWEIR_OK)
        give_up("%s: %s", what, gradweir_last_error());
}

/* Element i, whatever the mapping says: splitmix64 of its place within the period. */
static float value_at(uint64_t i)
{
    uint64_t x = (i % period + 1) * UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (float)((int64_t)((x ^ (x >> 31)) >> 40) - (1 << 23)) * 0x1p-23f;
}

static void map_floats(struct big *big)
{
    const size_t file_bytes = (size_t)PAGES * PAGE;
    const size_t bytes = (size_t)((big->elements * sizeof(float) + PAGE - 1) / PAGE * PAGE);
    const int file = memfd_create("chance", 0);
    if (file < 0 || ftruncate(file, (off_t)file_bytes) != 0)
        give_up("no file in memory");
    float *first = mmap(NULL, file_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    char *all = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (first == MAP_FAILED || all == MAP_FAILED)
        give_up("no address space");
    for (uint64_t i = 0; i < period; i++)
        first[i] = value_at(i);
    munmap(first, file_bytes);
    for (size_t at = 0; at < bytes; at += file_bytes) {
        const size_t some = bytes - at < file_bytes ? bytes - at : file_bytes;
        if (mmap(all + at, some, PROT_READ, MAP_SHARED | MAP_FIXED, file, 0) == MAP_FAILED)
            give_up("no mapping");
    }
    close(file);
    big->floats = (float *)(void *)all;
}

static void join(struct big *big, const char *address)
{
    gradweir_options options;
    gradweir_options_default(&options);
    options.address = address;
    options.identity = "big";
    options.connect_timeout_ms = TIMEOUT_MS;
    options.feedback = GRADWEIR_FEEDBACK_OFF; /* its rest would be one more body */
    must(gradweir_open(&options, &big->client), "open");
    float *wide = big->floats + big->low, *tail = wide + big->rows * COLUMNS;
    const gradweir_tensor tensors[] = {
        {.name = "low",
         .dimensions = 1,
         .shape = {big->low},
         .parameters = big->floats,
         .gradient = big->floats},
        {.name = "wide",
         .dimensions = 2,
         .shape = {big->rows, COLUMNS},
         .parameters = wide,
         .gradient = wide},
        {.name = "tail",
         .dimensions = 1,
         .shape = {big->tail},
         .parameters = tail,
         .gradient = tail},
    };
    must(gradweir_bind(big->client, tensors, 3), "bind");
    must(gradweir_offer(big->client, TIMEOUT_MS), "offer");
}

static float rounded(uint16_t half)
{
    const uint32_t bits = (uint32_t)half << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Of float32 before the step: exactly. After it as far as the gradient's codec is exact, and as far
 * as bfloat16 is. */
static void compare(struct big *big, uint64_t element, const void *at, uint32_t dtype)
{
    const double source = (double)value_at(element);
    const double wanted = big->stepped ? source - rate * source : source;
    double slack = big->stepped ? big->tolerance : 0;
    float got;
    if (dtype == GRADWEIR_BFLOAT16) {
        uint16_t half;
        memcpy(&half, at, sizeof half);
        got = rounded(half);
        slack += fabs(wanted) * 0x1p-8 + 1e-30;
    } else {
        memcpy(&got, at, sizeof got);
    }
    if (!(fabs((double)got - wanted) <= slack))
        give_up("element %llu is %.9g, wanted is %.9g", (unsigned long long)element, (double)got,
                wanted);
    big->compared++;
}

/* One box; the elements of the model that it must hold, run by run. */
static void slice(struct big *big, gradweir_box box, uint64_t first, uint64_t width, uint64_t every,
                  uint32_t dtype)
{
    const uint64_t unit = dtype == GRADWEIR_BFLOAT16 ? 2 : 4;
    const uint64_t runs = box.axis == 1 ? big->rows : 1;
    gradweir_pull_options options;
    gradweir_ticket ticket;
    gradweir_receipt receipt;
    box.to_bytes = runs * width * unit;
    box.to = malloc(box.to_bytes);
    if (!box.to)
        give_up("no memory for a slice");
    gradweir_pull_options_default(&options);
    options.dtype = dtype;
    options.boxes = &box;
    options.boxes_count = 1;
    must(gradweir_pull_with(big->client, &options, &ticket), "pull");
    must(gradweir_wait(big->client, ticket, TIMEOUT_MS, &receipt), "wait of a pull");
    if (!receipt.moved || receipt.version != (big->stepped ? 1 : 0))
        give_up("a slice of version %llu came", (unsigned long long)receipt.version);
    const char *at = box.to;
    for (uint64_t r = 0; r < runs; r++)
        for (uint64_t i = 0; i < width; i++, at += unit)
            compare(big, first + r * every + i, at, dtype);
    free(box.to);
}

static void slice_rows(struct big *big, uint64_t row, uint64_t count, uint32_t dtype)
{
    slice(big, (gradweir_box){.tensor = "wide", .axis = 0, .first = row, .count = count},
          big->low + row * COLUMNS, count * COLUMNS, 0, dtype);
}

/* The rows on both sides of this byte of the model, if it has them. */
static void slice_around(struct big *big, uint64_t byte)
{
    const uint64_t element = byte / sizeof(float);
    if (element < big->low + COLUMNS || element > big->low + (big->rows - 2) * COLUMNS)
        return;
    const uint64_t row = (element - big->low) / COLUMNS;
    slice_rows(big, row - 1, 3, GRADWEIR_FLOAT32);
    slice_rows(big, row - 1, 3, GRADWEIR_BFLOAT16);
    printf("byte %llu is where it belongs\n", (unsigned long long)byte);
}

static void slices(struct big *big)
{
    const uint64_t tail = big->low + big->rows * COLUMNS;
    slice_around(big, UINT64_C(1) << 31);
    slice_around(big, UINT64_C(1) << 32);
    slice_around(big, (big->elements - big->tail) * sizeof(float) - 8 * COLUMNS * sizeof(float));
    for (uint32_t dtype = GRADWEIR_FLOAT32; dtype <= GRADWEIR_BFLOAT16; dtype++) {
        slice(big, (gradweir_box){.tensor = "low", .count = big->low}, 0, big->low, 0, dtype);
        slice(big, (gradweir_box){.tensor = "tail", .count = big->tail}, tail, big->tail, 0, dtype);
        slice(big, (gradweir_box){.tensor = "wide", .axis = 1, .first = 99990, .count = 5},
              big->low + 99990, 5, COLUMNS, dtype);
    }
    printf("%llu elements of slices are what they should be%s\n", (unsigned long long)big->compared,
           big->stepped ? ", after a step" : "");
    fflush(stdout);
}

static void push(struct big *big)
{
    gradweir_ticket ticket;
    gradweir_receipt receipt;
    must(gradweir_push_from(big->client, 1, 0, &ticket), "push");
    must(gradweir_wait(big->client, ticket, TIMEOUT_MS, &receipt), "wait of a push");
    if (receipt.verdict != GRADWEIR_ADMITTED)
        give_up("the gradient is %s", gradweir_verdict_text(receipt.verdict));
    big->stepped = true;
}

/* The step may come a little after the receipt. */
static void wait_for_step(struct big *big)
{
    uint32_t first[4];
    gradweir_box box = {.tensor = "low", .count = 4, .to = first, .to_bytes = sizeof first};
    gradweir_pull_options options;
    gradweir_ticket ticket;
    gradweir_receipt receipt = {.moved = 0};
    gradweir_pull_options_default(&options);
    options.conditional = 1;
    options.boxes = &box;
    options.boxes_count = 1;
    for (int tries = 0; tries < 3000 && !receipt.moved; tries++) {
        must(gradweir_pull_with(big->client, &options, &ticket), "pull of what is newer");
        must(gradweir_wait(big->client, ticket, TIMEOUT_MS, &receipt), "wait for what is newer");
        usleep(10000);
    }
    if (receipt.version != 1)
        give_up("no step has come");
}

static void all_rows(struct big *big)
{
    enum { ROWS = 160 };
    const uint64_t before = big->compared;
    for (uint64_t row = 0; row < big->rows; row += ROWS)
        slice_rows(big, row, big->rows - row < ROWS ? big->rows - row : ROWS, GRADWEIR_FLOAT32);
    printf("all %llu elements are what they should be\n",
           (unsigned long long)(big->compared - before + big->low + big->tail));
}

int main(int count, char **arguments)
{
    struct big big = {.low = 12345, .tail = 54321, .tolerance = rate / 127 + 1e-6};
    if (count != 3)
        give_up("big_model ADDRESS ELEMENTS");
    big.rows = (strtoull(arguments[2], NULL, 10) - big.low - big.tail) / COLUMNS;
    big.elements = big.low + big.rows * COLUMNS + big.tail;
    printf("%llu elements, %.2f GiB\n", (unsigned long long)big.elements,
           (double)big.elements * sizeof(float) / (1 << 30));
    map_floats(&big);
    join(&big, arguments[1]);
    slices(&big);
    push(&big);
    wait_for_step(&big);
    slices(&big);
    all_rows(&big);
    gradweir_close(big.client);
    return 0;
}
