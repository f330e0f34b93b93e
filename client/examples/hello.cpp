/* The C++ twin of hello.c: fits w to a target by pushing the gradient of (w - target)^2 / 2.
 *
 *     c++ -std=c++17 hello.cpp $(pkg-config --cflags --libs gradweir) -o hello
 *     gradweir-server --shards 2 --optimizer sgd --learning_rate 0.1 &
 *     ./hello 127.0.0.1:7070 */
#include <gradweir/gradweir.h>

#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace
{

constexpr int steps = 100;

void check(gradweir_status status, const char *what)
{
    if (status != GRADWEIR_OK)
        throw std::runtime_error(std::string(what) + ": " + gradweir_last_error());
}

gradweir_receipt wait(gradweir_client *client, gradweir_ticket ticket)
{
    gradweir_receipt receipt;
    check(gradweir_wait(client, ticket, 5000, &receipt), "wait");
    return receipt;
}

void train(const char *address)
{
    std::vector<float> w(1000), gradient(w.size());
    gradweir_options options;
    gradweir_options_default(&options);
    options.identity = "hello";
    options.address = address;
    gradweir_client *opened;
    check(gradweir_open(&options, &opened), "open");
    const std::unique_ptr<gradweir_client, void (*)(gradweir_client *)> client(opened,
                                                                               gradweir_close);
    gradweir_tensor tensor{};
    tensor.name = "w";
    tensor.dimensions = 1;
    tensor.shape[0] = w.size();
    tensor.parameters = w.data();
    tensor.gradient = gradient.data();
    check(gradweir_bind(client.get(), &tensor, 1), "bind");
    check(gradweir_offer(client.get(), 5000), "offer");

    for (int step = 0; step <= steps; step++) {
        gradweir_ticket ticket;
        check(gradweir_pull(client.get(), &ticket), "pull");
        const auto version = wait(client.get(), ticket).version;
        double loss = 0;
        for (std::size_t i = 0; i < w.size(); i++) {
            gradient[i] = w[i] - static_cast<float>(i) / static_cast<float>(w.size());
            loss += 0.5 * gradient[i] * gradient[i];
        }
        if (step % 20 == 0)
            std::printf("version %llu loss %.6f\n", static_cast<unsigned long long>(version), loss);
        if (step == steps)
            break;
        check(gradweir_push(client.get(), 1, &ticket), "push");
        const auto receipt = wait(client.get(), ticket);
        if (receipt.verdict != GRADWEIR_ADMITTED)
            std::printf("refused: %s\n", gradweir_verdict_text(receipt.verdict));
    }
}

} // namespace

int main(int argc, char **argv)
{
    try {
        train(argc > 1 ? argv[1] : "127.0.0.1:7070");
    } catch (const std::exception &error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
}
