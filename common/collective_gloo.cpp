/* The collective seam on gloo: CPU ranks, TCP. Of gloo it takes the connections (pairs) and their
 * unbound buffers; what travels when, and in which order it is added, is decided here, because
 * gloo's own algorithms add in an order that depends on how an array is cut. Three things of gloo
 * (2022) are answered here: a length that does not fit ends the process (ranks first swap heads
 * that say what they are about to do); it writes to broken sockets without MSG_NOSIGNAL (SIGPIPE is
 * held off); whoever is in the middle of a body is not told that its connection broke (see
 * `watch`). */
#include "common/collective_gloo_link.h"

namespace
{

using namespace gloo_link;

constexpr size_t strip_floats = 512; // added in one go, in registers and the first cache
constexpr uint64_t head_magic = UINT64_C(0x6461656872777267);

enum Kind { kind_reduce = 1, kind_reduce_scatter, kind_all_gather, kind_broadcast };

const char *name_of(uint64_t kind)
{
    static const char *const names[] = {"nothing", "reduce", "reduce_scatter", "all_gather",
                                        "broadcast"};
    return kind < sizeof names / sizeof *names ? names[kind] : "something unknown";
}

uint64_t digest_of(const size_t *counts, int ranks)
{
    uint64_t digest = UINT64_C(14695981039346656037);
    for (int r = 0; counts != nullptr && r < ranks; r++)
        digest = (digest ^ counts[r]) * UINT64_C(1099511628211);
    return digest;
}

// Remembers whom we have heard of in this call, and when, once: of who falls silent later, that is
// since when. Only while nobody writes to the heads.
void note(collective_link *link, int r)
{
    const Head &head = link->heads[size_t(r)];
    if (head.magic != head_magic || head.sequence != link->calls ||
        link->noted[size_t(r)] == link->calls)
        return;
    link->seen[r] = {head.step, clock_now_ns()};
    link->noted[size_t(r)] = link->calls;
}

void check(const Head &mine, const Head &theirs, int peer)
{
    if (theirs.magic != head_magic || theirs.sequence != mine.sequence)
        throw Failed{fail(GRADWEIR_ERR_PROTOCOL, "gloo: rank %d is in another call", peer)};
    if (theirs.kind != mine.kind || theirs.root != mine.root || theirs.n != mine.n ||
        theirs.counts != mine.counts || theirs.step != mine.step)
        throw Failed{fail(
            GRADWEIR_ERR_MISMATCH,
            "gloo: rank %d calls %s for %llu elements at step %llu, this rank %s for %llu at step "
            "%llu, or other parts",
            peer, name_of(theirs.kind), (unsigned long long)theirs.n,
            (unsigned long long)theirs.step, name_of(mine.kind), (unsigned long long)mine.n,
            (unsigned long long)mine.step)};
}

// All ranks say what they are about to do; nothing moves unless all say the same. Every two ranks
// compare, so that all know when there is a difference.
void swap_heads(collective_link *link, const collective_call *call, Kind kind)
{
    std::fill(link->heads.begin(), link->heads.end(), Head());
    Head &mine = link->heads[size_t(link->rank)];
    mine = {head_magic,
            link->calls,
            call->step,
            uint64_t(kind),
            call->root,
            call->n,
            digest_of(call->counts, link->ranks)};
    for (int p = 0; p < link->ranks; p++) {
        if (p == link->rank)
            continue;
        link->heads_in[size_t(p)]->recv(p, link->slot(0));
        link->heads_out[size_t(p)]->send(p, link->slot(0));
    }
    for (int p = 0; p < link->ranks; p++) {
        if (p == link->rank)
            continue;
        link->wait_in(link->heads_in[size_t(p)], p);
        note(link, p);
    }
    for (int p = 0; p < link->ranks; p++)
        if (p != link->rank)
            link->wait_out(link->heads_out[size_t(p)], p);
    for (int p = 0; p < link->ranks; p++)
        if (p != link->rank)
            check(mine, link->heads[size_t(p)], p);
}

std::vector<size_t> offsets_of(const size_t *counts, int ranks)
{
    std::vector<size_t> offsets(size_t(ranks) + 1, 0);
    for (int r = 0; r < ranks; r++)
        offsets[size_t(r) + 1] = offsets[size_t(r)] + counts[r];
    return offsets;
}

size_t chunks_of(size_t n)
{
    return (n + chunk_floats - 1) / chunk_floats;
}

size_t chunk_size(size_t n, size_t k)
{
    return std::min(chunk_floats, n - k * chunk_floats);
}

// to = x0 + x1 + ..., rank by rank. to may be the own x.
void add(const std::vector<const float *> &x, float *to, size_t n)
{
    float sum[strip_floats];
    for (size_t at = 0; at < n; at += strip_floats) {
        const size_t strip = std::min(strip_floats, n - at);
        std::copy_n(x[0] + at, strip, sum);
        for (size_t r = 1; r < x.size(); r++)
            for (size_t i = 0; i < strip; i++)
                sum[i] += x[r][at + i];
        std::copy_n(sum, strip, to + at);
    }
}

// Chunk k of the own part has come from everybody, or is waited for.
void finish_chunk(collective_link *link, const float *own, float *to, size_t n, size_t k)
{
    std::vector<const float *> x;
    for (int r = 0; r < link->ranks; r++) {
        if (r == link->rank) {
            x.push_back(own + k * chunk_floats);
            continue;
        }
        link->wait_in(link->chunks_in[k & 1][size_t(r)], r);
        x.push_back(static_cast<const float *>(link->chunks_in[k & 1][size_t(r)]->ptr));
    }
    add(x, to + k * chunk_floats, chunk_size(n, k));
}

// A body into the caller's memory: it is followed by a tail of nothing, which is waited for too.
void expect(const collective_link *link, const Buffer &in, int peer, unsigned phase)
{
    in->recv(peer, link->slot(phase));
    in->recv(peer, link->slot(phase, 1), 0, 0);
}

void arrived(collective_link *link, const Buffer &in, int peer)
{
    link->wait_in(in, peer);
    link->wait_in(in, peer);
}

// What is sent is waited for in finish(): by then its receiver has said that it has everything.
void deliver(collective_link *link, Buffer out, int peer, unsigned phase)
{
    out->send(peer, link->slot(phase));
    out->send(peer, link->slot(phase, 1), 0, 0);
    link->sent.push_back({std::move(out), peer, 2});
}

// A call is done when all ranks have said that they have everything: so either all are done, or
// (but for the moment in which these words travel) none.
void finish(collective_link *link)
{
    for (int p = 0; p < link->ranks; p++) {
        if (p == link->rank)
            continue;
        link->heads_in[size_t(p)]->recv(p, link->slot(3), 0, 0);
        link->heads_out[size_t(p)]->send(p, link->slot(3), 0, 0);
    }
    for (int p = 0; p < link->ranks; p++)
        if (p != link->rank)
            link->wait_in(link->heads_in[size_t(p)], p);
    for (int p = 0; p < link->ranks; p++)
        if (p != link->rank)
            link->wait_out(link->heads_out[size_t(p)], p);
    for (const auto &sent : link->sent)
        for (size_t i = 0; i < sent.times; i++)
            link->wait_out(sent.buffer, sent.peer);
}

// Everybody sends everybody its part, chunk by chunk; two chunks are on their way at a time.
void scatter(collective_link *link, const float *from, float *to, const size_t *counts)
{
    const auto offsets = offsets_of(counts, link->ranks);
    const size_t n = counts[link->rank];
    const float *own = from + offsets[size_t(link->rank)];
    size_t most = 0;
    std::vector<Buffer> out(size_t(link->ranks));
    for (int p = 0; p < link->ranks; p++) {
        most = std::max(most, chunks_of(counts[p]));
        if (p == link->rank)
            continue;
        out[size_t(p)] = link->buffer(from + offsets[size_t(p)], counts[p] * sizeof(float));
    }
    for (size_t k = 0; k < most; k++) {
        for (int p = 0; p < link->ranks; p++) {
            if (p == link->rank)
                continue;
            if (k < chunks_of(n))
                link->chunks_in[k & 1][size_t(p)]->recv(p, link->slot(1), 0,
                                                        chunk_size(n, k) * sizeof(float));
            if (k < chunks_of(counts[p]))
                out[size_t(p)]->send(p, link->slot(1), k * chunk_floats * sizeof(float),
                                     chunk_size(counts[p], k) * sizeof(float));
        }
        if (k >= 1 && k - 1 < chunks_of(n))
            finish_chunk(link, own, to, n, k - 1);
    }
    if (most > 0 && most == chunks_of(n))
        finish_chunk(link, own, to, n, most - 1);
    for (int p = 0; p < link->ranks; p++)
        if (p != link->rank)
            link->sent.push_back({std::move(out[size_t(p)]), p, chunks_of(counts[p])});
}

void gather(collective_link *link, const float *from, float *to, const size_t *counts)
{
    const auto offsets = offsets_of(counts, link->ranks);
    const size_t n = counts[link->rank];
    float *own = to + offsets[size_t(link->rank)];
    if (n > 0 && own != from)
        std::memmove(own, from, n * sizeof(float));
    std::vector<Buffer> in(size_t(link->ranks));
    for (int p = 0; p < link->ranks; p++) {
        if (p == link->rank)
            continue;
        in[size_t(p)] = link->buffer(to + offsets[size_t(p)], counts[p] * sizeof(float));
        if (counts[p] > 0)
            expect(link, in[size_t(p)], p, 2);
        if (n > 0)
            deliver(link, link->buffer(own, n * sizeof(float)), p, 2);
    }
    for (int p = 0; p < link->ranks; p++)
        if (p != link->rank && counts[p] > 0)
            arrived(link, in[size_t(p)], p);
}

void spread(collective_link *link, float *data, size_t n, int root)
{
    if (n == 0)
        return;
    if (link->rank != root) {
        const Buffer in = link->buffer(data, n * sizeof(float));
        expect(link, in, root, 1);
        arrived(link, in, root);
        return;
    }
    for (int p = 0; p < link->ranks; p++)
        if (p != root)
            deliver(link, link->buffer(data, n * sizeof(float)), p, 1);
}

// The same for every call: swap heads, do it, and let no exception out. When something fails the
// connections are closed before the buffers go, so that nobody writes to the caller's memory after.
template <typename Work>
gradweir_status run(collective_link *link, const collective_call *call, Kind kind, Work work)
{
    NoPipeSignal no_pipe_signal;
    link->calls++;
    link->deadline_ns = call->deadline_ns;
    gradweir_status status = GRADWEIR_OK;
    try {
        if (link->ranks > 1)
            swap_heads(link, call, kind);
        try {
            work();
            finish(link);
        } catch (...) {
            gloo_link::abort(link);
            throw;
        }
    } catch (const Failed &failed) {
        status = failed.status;
    } catch (const std::bad_alloc &) {
        status = fail(GRADWEIR_ERR_NO_MEMORY, "gloo: no memory");
    } catch (const std::exception &error) {
        status = fail(GRADWEIR_ERR_LOST, "gloo: %s", error.what());
    } catch (...) {
        status = fail(GRADWEIR_ERR_LOST, "gloo: something that is no exception was thrown");
    }
    link->sent.clear();
    if (status == GRADWEIR_OK || status == GRADWEIR_ERR_MISMATCH)
        return status;
    gloo_link::abort(link);
    for (size_t r = 0; r < link->heads.size(); r++)
        note(link, int(r));
    return status;
}

// All that there is to do when one is alone.
void keep(const collective_call *call, size_t n)
{
    if (n > 0)
        std::memmove(call->to, call->from, n * sizeof(float));
}

gradweir_status gloo_reduce(collective_link *link, const collective_call *call)
{
    return run(link, call, kind_reduce, [&] {
        if (link->ranks == 1)
            return keep(call, call->n);
        const size_t ranks = size_t(link->ranks);
        std::vector<size_t> counts(ranks, call->n / ranks);
        for (size_t r = 0; r < call->n % ranks; r++)
            counts[r]++;
        float *own = call->to + offsets_of(counts.data(), link->ranks)[size_t(link->rank)];
        scatter(link, call->from, own, counts.data());
        gather(link, own, call->to, counts.data());
    });
}

gradweir_status gloo_reduce_scatter(collective_link *link, const collective_call *call)
{
    return run(link, call, kind_reduce_scatter, [&] {
        if (link->ranks == 1)
            keep(call, call->counts[0]);
        else
            scatter(link, call->from, call->to, call->counts);
    });
}

gradweir_status gloo_all_gather(collective_link *link, const collective_call *call)
{
    return run(link, call, kind_all_gather, [&] {
        if (link->ranks == 1)
            keep(call, call->counts[0]);
        else
            gather(link, call->from, call->to, call->counts);
    });
}

gradweir_status gloo_broadcast(collective_link *link, const collective_call *call)
{
    return run(link, call, kind_broadcast, [&] {
        if (link->ranks > 1)
            spread(link, call->to, call->n, int(call->root));
    });
}

} // namespace

const struct collective_functions collective_gloo = {
    "gloo",           gloo_link::name_group, gloo_link::join, gloo_link::leave,
    gloo_reduce,      gloo_reduce_scatter,   gloo_all_gather, gloo_broadcast,
    gloo_link::abort, gloo_link::shrink,
};
