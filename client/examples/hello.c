/* The smallest whole worker: fits w to a target by pushing the gradient of (w - target)^2 / 2.
 *
 *     cc hello.c $(pkg-config --cflags --libs gradweir) -o hello
 *     gradweir-server --shards 2 --optimizer sgd --learning_rate 0.1 &
 *     ./hello 127.0.0.1:7070 */
#include <gradweir/gradweir.h>

#include <stdio.h>

enum { N = 1000, STEPS = 100 };

static float w[N], gradient[N];

static int failed(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, gradweir_last_error());
    return 1;
}

static int train(gradweir_client *client)
{
    for (int step = 0; step <= STEPS; step++) {
        gradweir_ticket ticket;
        gradweir_receipt receipt;
        if (gradweir_pull(client, &ticket) != GRADWEIR_OK ||
            gradweir_wait(client, ticket, 5000, NULL) != GRADWEIR_OK)
            return failed("pull");
        double loss = 0;
        for (int i = 0; i < N; i++) {
            gradient[i] = w[i] - (float)i / N;
            loss += 0.5 * gradient[i] * gradient[i];
        }
        if (step % 20 == 0)
            printf("version %llu loss %.6f\n", (unsigned long long)gradweir_version(client), loss);
        if (step < STEPS && (gradweir_push(client, 1, &ticket) != GRADWEIR_OK ||
                             gradweir_wait(client, ticket, 5000, &receipt) != GRADWEIR_OK))
            return failed("push");
        if (step < STEPS && receipt.verdict != GRADWEIR_ADMITTED)
            printf("refused: %s\n", gradweir_verdict_text(receipt.verdict));
    }
    return 0;
}

int main(int argc, char **argv)
{
    const gradweir_tensor tensor = {
        .name = "w", .dimensions = 1, .shape = {N}, .parameters = w, .gradient = gradient};
    gradweir_options options;
    gradweir_client *client;
    gradweir_options_default(&options);
    options.identity = "hello";
    if (argc > 1)
        options.address = argv[1];
    if (gradweir_open(&options, &client) != GRADWEIR_OK)
        return failed("open");
    if (gradweir_bind(client, &tensor, 1) != GRADWEIR_OK)
        return failed("bind");
    const int result =
        gradweir_offer(client, 5000) == GRADWEIR_OK ? train(client) : failed("offer");
    gradweir_close(client);
    return result;
}
