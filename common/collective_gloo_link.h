/* The inside of the gloo backend, for collective_gloo.cpp and collective_gloo_link.cpp: what a link
 * is made of, and how it waits. C++, behind the C header of the seam. */
#ifndef GRADWEIR_COMMON_COLLECTIVE_GLOO_LINK_H
#define GRADWEIR_COMMON_COLLECTIVE_GLOO_LINK_H

#define _Noreturn [[noreturn]] // C's word, in common/status.h
extern "C" {
#include "common/clock.h"
#include "common/collective.h"
}

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <gloo/common/error.h>
#include <gloo/context.h>
#include <gloo/transport/context.h>
#include <gloo/transport/device.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>

namespace gloo_link
{

constexpr size_t chunk_floats = 64 * 1024; // of a part on its way into the scratch

// What a rank says before it moves anything.
struct Head {
    uint64_t magic, sequence, step, kind, root, n, counts;
};

struct Address {
    uint32_t bytes;
    char data[gloo::transport::Address::kMaxByteSize];
};

// What failed, once it has been said with fail().
struct Failed {
    gradweir_status status;
};

// Keeps a broken connection's SIGPIPE from ending the process while gloo writes in this thread, and
// for threads that are made meanwhile for good. One that was pending before stays pending.
class NoPipeSignal
{
  public:
    NoPipeSignal()
    {
        sigset_t pending;
        sigpending(&pending);
        had_ = sigismember(&pending, SIGPIPE) == 1;
        sigemptyset(&pipe_);
        sigaddset(&pipe_, SIGPIPE);
        pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
    }
    ~NoPipeSignal()
    {
        const struct timespec none = {0, 0};
        if (!had_)
            while (sigtimedwait(&pipe_, nullptr, &none) == SIGPIPE)
                ;
        pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    }
    NoPipeSignal(const NoPipeSignal &) = delete;
    NoPipeSignal &operator=(const NoPipeSignal &) = delete;

  private:
    sigset_t pipe_, before_;
    bool had_;
};

inline std::chrono::milliseconds left(uint64_t deadline_ns)
{
    const uint64_t now_ns = clock_now_ns();
    const uint64_t ms = now_ns < deadline_ns ? (deadline_ns - now_ns) / CLOCK_MS : 0;
    return std::chrono::milliseconds(std::min<uint64_t>(std::max<uint64_t>(ms, 1), 86400000));
}

using Buffer = std::unique_ptr<gloo::transport::UnboundBuffer>;

// Memory that is on its way, in so many sends.
struct Sent {
    Buffer buffer;
    int peer;
    size_t times;
};

gradweir_status name_group(collective_name *name);
gradweir_status join(const collective_members *members, collective_link **made);
void leave(collective_link *link);
void abort(collective_link *link);
gradweir_status shrink(collective_link *old, const bool *kept, const collective_members *members,
                       collective_link **link);

} // namespace gloo_link

struct collective_link {
    int rank, ranks;
    struct collective_seen *seen;
    uint64_t calls = 0, deadline_ns = 0;
    std::shared_ptr<gloo::Context> mesh; // none when there is one rank
    std::vector<float> scratch;          // two chunks for each rank
    std::vector<gloo_link::Head> heads;  // by rank; one's own is what is sent
    std::vector<uint64_t> noted;         // by rank: the call whose head is in `seen`
    // By rank; destroyed before the mesh. In and out: of heads; two chunks in.
    std::vector<gloo_link::Buffer> heads_in, heads_out, chunks_in[2];
    std::vector<gloo_link::Sent> sent; // by the present call

    gloo_link::Buffer buffer(const void *memory, size_t bytes)
    {
        return mesh->createUnboundBuffer(const_cast<void *>(memory), bytes);
    }

    [[noreturn]] void lost(int peer, const std::exception &error)
    {
        const bool late = clock_now_ns() + CLOCK_MS >= deadline_ns;
        const auto status = late ? GRADWEIR_ERR_TIMEOUT : GRADWEIR_ERR_LOST;
        throw gloo_link::Failed{
            fail(status, "gloo: waiting for rank %d of %d: %s", peer, ranks, error.what())};
    }

    /* Who leaves right after a call says its last word and hangs up. When both are here before this
     * thread has looked, gloo tells of the hang-up alone; asked again, it has the word. */
    template <typename Wait> void wait_twice(int peer, Wait wait)
    {
        try {
            try {
                wait();
            } catch (const gloo::Exception &) {
                wait();
            }
        } catch (const gloo::Exception &error) {
            lost(peer, error);
        }
    }

    void wait_in(const gloo_link::Buffer &waited, int peer)
    {
        wait_twice(peer, [&] { waited->waitRecv(nullptr, gloo_link::left(deadline_ns)); });
    }

    void wait_out(const gloo_link::Buffer &waited, int peer)
    {
        wait_twice(peer, [&] { waited->waitSend(nullptr, gloo_link::left(deadline_ns)); });
    }

    /* Of this call: its heads (0), body and tail of its two phases, and the last word (3). */
    uint64_t slot(unsigned phase, unsigned what = 0) const
    {
        return calls * 16 + phase * 4 + what;
    }
};

#endif
