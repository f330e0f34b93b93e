#include "tests/gpu/cuda_on_cpu.h"
#include "tests/gpu/cuda_launches.h"

#include <csetjmp>
#include <cstdio>
#include <ucontext.h>
#include <vector>

dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace
{

constexpr unsigned WARP = 32, THREADS_MAX = 1024;
constexpr size_t STACK = 128 << 10;

enum phase { RUNS, WAITS_FOR_BLOCK, WAITS_FOR_WARP, ENDED };
enum joining { MAX, ADD };

struct fiber {
    phase state;
    joining join;
    unsigned value; /* given to the warp, then what came of it */
    jmp_buf at;
    ucontext_t begin;
    std::vector<char> stack;
};

std::vector<fiber> fibers(THREADS_MAX);
const std::function<void()> *body;
jmp_buf scheduler;
ucontext_t unused;
unsigned running;
uint32_t order_seed = 2463534242u;
const char *left_out;
bool launched[CUDA_LAUNCHES_MAX];

[[noreturn]] void give_up(const char *why)
{
    fprintf(stderr, "cuda_on_cpu: %s (block %u, thread %u)\n", why, blockIdx.x, running);
    abort();
}

void start()
{
    (*body)();
    fibers[running].state = ENDED;
    _longjmp(scheduler, 1);
}

void wait(phase state)
{
    fibers[running].state = state;
    if (_setjmp(fibers[running].at) == 0)
        _longjmp(scheduler, 1);
}

/* Until the thread waits or ends. */
void resume(unsigned thread, bool first)
{
    fiber &fiber = fibers[thread];
    running = thread;
    threadIdx = dim3(thread % blockDim.x, thread / blockDim.x, 0);
    if (_setjmp(scheduler) != 0)
        return;
    if (!first)
        _longjmp(fiber.at, 1);
    fiber.stack.resize(STACK);
    getcontext(&fiber.begin);
    fiber.begin.uc_stack.ss_sp = fiber.stack.data();
    fiber.begin.uc_stack.ss_size = STACK;
    fiber.begin.uc_link = nullptr;
    makecontext(&fiber.begin, start, 0);
    swapcontext(&unused, &fiber.begin);
}

unsigned count(phase state, unsigned first, unsigned n)
{
    unsigned found = 0;
    for (unsigned i = first; i < first + n; i++)
        found += fibers[i].state == state;
    return found;
}

/* Joins the numbers of a warp that waits as a whole. */
void join_warp(unsigned first)
{
    unsigned joined = fibers[first].value;
    for (unsigned i = first + 1; i < first + WARP; i++) {
        if (fibers[i].join != fibers[first].join)
            give_up("a warp waits for two things at once");
        const unsigned other = fibers[i].value;
        joined = fibers[first].join == ADD ? joined + other : max(joined, other);
    }
    for (unsigned i = first; i < first + WARP; i++) {
        fibers[i].value = joined;
        fibers[i].state = RUNS;
    }
}

/* Those whose wait is over run again. False when nobody does: the block has ended. */
bool release(unsigned threads)
{
    bool any = false;
    for (unsigned first = 0; first + WARP <= threads; first += WARP)
        if (count(WAITS_FOR_WARP, first, WARP) == WARP) {
            join_warp(first);
            any = true;
        }
    if (any)
        return true;
    const unsigned waiting = count(WAITS_FOR_BLOCK, 0, threads);
    if (waiting == 0 && count(ENDED, 0, threads) == threads)
        return false;
    if (waiting != threads)
        give_up("some threads wait for others that will not come");
    for (unsigned i = 0; i < threads; i++)
        fibers[i].state = RUNS;
    return true;
}

unsigned draw_order()
{
    order_seed ^= order_seed << 13;
    order_seed ^= order_seed >> 17;
    order_seed ^= order_seed << 5;
    return order_seed;
}

/* In another order of threads each time, or what a barrier is missing for would not show. */
void run_block(unsigned threads)
{
    bool first = true;
    for (unsigned i = 0; i < threads; i++)
        fibers[i].state = RUNS;
    do {
        const unsigned from = draw_order() % threads, backwards = draw_order() & 1;
        for (unsigned k = 0; k < threads; k++) {
            const unsigned turn = (from + k) % threads;
            const unsigned thread = backwards ? threads - 1 - turn : turn;
            if (fibers[thread].state == RUNS)
                resume(thread, first);
        }
        first = false;
    } while (release(threads));
}

void note(const char *name)
{
    size_t i = 0;
    while (cuda_launches[i] != nullptr && strcmp(cuda_launches[i], name) != 0)
        i++;
    if (cuda_launches[i] == nullptr || i == CUDA_LAUNCHES_MAX)
        give_up("a launch that is not in the table");
    launched[i] = true;
}

} // namespace

void cuda_launches_forget()
{
    memset(launched, 0, sizeof launched);
}

bool cuda_launches_seen(size_t i)
{
    return launched[i];
}

void cuda_launches_leave_out(const char *name)
{
    left_out = name;
}

extern "C" const char *const memory_host_text;
const char *const memory_host_text = "the kernels themselves, each thread a fiber of the CPU";

/* With GRADWEIR_PLANT=barrier nobody waits: the control that a missing barrier is found. */
void __syncthreads()
{
    static const char *const plant = getenv("GRADWEIR_PLANT");
    static const bool planted = plant != nullptr && strcmp(plant, "barrier") == 0;
    if (planted)
        return;
    wait(WAITS_FOR_BLOCK);
}

unsigned __reduce_max_sync(unsigned, unsigned value)
{
    fibers[running].value = value;
    fibers[running].join = MAX;
    wait(WAITS_FOR_WARP);
    return fibers[running].value;
}

int __reduce_add_sync(unsigned, int value)
{
    fibers[running].value = static_cast<unsigned>(value);
    fibers[running].join = ADD;
    wait(WAITS_FOR_WARP);
    return static_cast<int>(fibers[running].value);
}

void cuda_run(const char *name, dim3 grid, dim3 block, const std::function<void()> &thread)
{
    note(name);
    if (left_out != nullptr && strcmp(name, left_out) == 0)
        return;
    const unsigned threads = block.x * block.y * block.z;
    body = &thread;
    gridDim = grid;
    blockDim = block;
    if (threads == 0 || threads > THREADS_MAX || block.z != 1 || grid.x == 0 || grid.y == 0 ||
        grid.y > 65535)
        give_up("a launch that CUDA refuses");
    for (unsigned y = 0; y < grid.y; y++)
        for (unsigned x = 0; x < grid.x; x++) {
            blockIdx = dim3(x, y, 0);
            run_block(threads);
        }
}
