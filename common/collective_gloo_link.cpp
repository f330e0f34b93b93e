/* Making, cutting and ending a link of the gloo backend. Of gloo it takes the connections and not
 * its rendezvous, which wants a store: addresses travel by the swap of the members. */
#include "common/collective_gloo_link.h"

#include <sys/random.h>

namespace gloo_link
{

// A connection between every two ranks, made from addresses that the members swap.
class Mesh : public gloo::Context
{
  public:
    Mesh(int number, int ranks) : gloo::Context(number, ranks)
    {
    }

    std::vector<Address> listen(const std::string &address, std::chrono::milliseconds timeout)
    {
        device_ = gloo::transport::tcp::CreateDevice(gloo::transport::tcp::attr(address.c_str()));
        transportContext_ = device_->createContext(rank, size);
        transportContext_->setTimeout(timeout);
        setTimeout(timeout);
        std::vector<Address> addresses(static_cast<size_t>(size), Address());
        for (int i = 0; i < size; i++) {
            if (i == rank)
                continue;
            const auto bytes = transportContext_->createPair(i)->address().bytes();
            addresses[size_t(i)].bytes = uint32_t(bytes.size());
            std::memcpy(addresses[size_t(i)].data, bytes.data(), bytes.size());
        }
        return addresses;
    }

    void connect(int peer, const Address &address)
    {
        const size_t bytes = std::min<size_t>(address.bytes, sizeof address.data);
        getPair(peer)->connect(std::vector<char>(address.data, address.data + bytes));
    }
};

namespace
{

// A receive that never ends: gloo tells of a broken connection only those buffers that still wait
// for their turn, not the one whose bytes it is reading or writing. So each waits for a second
// thing.
void watch(const Buffer &buffer, int peer, unsigned which)
{
    buffer->recv(peer, UINT64_MAX - which, 0, 0);
}

// The places where heads and chunks arrive, once for all calls.
void prepare(collective_link *link)
{
    const size_t ranks = size_t(link->ranks);
    link->heads.resize(ranks);
    link->noted.resize(ranks);
    link->scratch.resize(2 * ranks * chunk_floats);
    for (size_t r = 0; r < ranks; r++) {
        link->heads_in.push_back(link->buffer(&link->heads[r], sizeof(Head)));
        link->heads_out.push_back(link->buffer(&link->heads[size_t(link->rank)], sizeof(Head)));
        for (size_t i = 0; i < 2; i++)
            link->chunks_in[i].push_back(link->buffer(&link->scratch[(2 * r + i) * chunk_floats],
                                                      chunk_floats * sizeof(float)));
        if (int(r) == link->rank)
            continue;
        watch(link->heads_in[r], int(r), 0);
        watch(link->heads_out[r], int(r), 1);
        watch(link->chunks_in[0][r], int(r), 2);
        watch(link->chunks_in[1][r], int(r), 3);
    }
}

// Everybody listens, everybody learns all addresses, every two connect. Who cannot listen says so
// with empty addresses, so that nobody waits for it.
void connect(collective_link *link, const collective_members *members)
{
    const size_t ranks = size_t(link->ranks);
    std::vector<Address> mine(ranks, Address()), all(ranks * ranks, Address());
    std::string trouble;
    const auto mesh = std::make_shared<Mesh>(link->rank, link->ranks);
    link->mesh = mesh;
    try {
        mine = mesh->listen(members->address, left(members->deadline_ns));
    } catch (const std::exception &error) {
        trouble = error.what();
    }
    const auto status = members->swap(members->swap_context, mine.data(), ranks * sizeof(Address),
                                      all.data(), members->deadline_ns);
    if (!trouble.empty())
        throw Failed{fail(GRADWEIR_ERR_IO, "gloo: cannot listen on %s: %s", members->address,
                          trouble.c_str())};
    if (status != GRADWEIR_OK)
        throw Failed{status};
    for (int p = 0; p < link->ranks; p++)
        if (p != link->rank && all[size_t(p) * ranks + size_t(link->rank)].bytes == 0)
            throw Failed{fail(GRADWEIR_ERR_LOST, "gloo: rank %d could not listen", p)};
    for (int p = 0; p < link->ranks; p++) {
        if (p == link->rank)
            continue;
        try {
            mesh->connect(p, all[size_t(p) * ranks + size_t(link->rank)]);
        } catch (const gloo::Exception &error) {
            link->lost(p, error);
        }
    }
    prepare(link);
}

} // namespace

gradweir_status name_group(collective_name *name)
{
    if (getrandom(name->bytes, sizeof name->bytes, 0) != ssize_t(sizeof name->bytes))
        return fail(GRADWEIR_ERR_IO, "gloo: no random bytes for a name");
    return GRADWEIR_OK;
}

void leave(collective_link *link)
{
    NoPipeSignal no_pipe_signal;
    delete link;
}

gradweir_status join(const collective_members *members, collective_link **made)
{
    NoPipeSignal no_pipe_signal;
    std::unique_ptr<collective_link> link;
    try {
        link = std::make_unique<collective_link>();
        link->rank = int(members->rank);
        link->ranks = int(members->ranks);
        link->seen = members->seen;
        link->deadline_ns = members->deadline_ns;
        if (link->ranks > 1)
            connect(link.get(), members);
    } catch (const Failed &failed) {
        return failed.status;
    } catch (const std::bad_alloc &) {
        return fail(GRADWEIR_ERR_NO_MEMORY, "gloo: no memory");
    } catch (const std::exception &error) {
        return fail(GRADWEIR_ERR_IO, "gloo: %s", error.what());
    }
    *made = link.release();
    return GRADWEIR_OK;
}

void abort(collective_link *link)
{
    NoPipeSignal no_pipe_signal;
    try {
        if (link->ranks > 1)
            link->mesh->closeConnections();
    } catch (...) { // what cannot be closed is broken already
    }
}

// gloo cannot shrink: those who are left connect anew.
gradweir_status shrink(collective_link *, const bool *, const collective_members *members,
                       collective_link **link)
{
    return join(members, link);
}

} // namespace gloo_link
