/* See train_channel.h. */
#include "client/trainer/train_channel.h"

#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

static bool told_to_stop(int fd)
{
    char byte;
    const ssize_t count = recv(fd, &byte, 1, MSG_DONTWAIT);
    return count >= 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
}

bool channel_is_over(int fd, double seconds)
{
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    return poll(&wait, 1, (int)(seconds * 1000)) > 0;
}

static bool send_news(const struct channel_overseer *channel, struct channel_news *news)
{
    const size_t bytes = offsetof(struct channel_news, returns) + news->n_returns * sizeof(double);
    news->worker = channel->worker;
    news->counts = channel->learner->counts;
    return send(channel->fd, news, bytes, MSG_NOSIGNAL) == (ssize_t)bytes;
}

static bool hear(struct overseer *overseer, const struct overseer_news *heard)
{
    const struct channel_overseer *channel = (const struct channel_overseer *)overseer;
    size_t done = 0;
    do {
        struct channel_news news = {.version = heard->version, .kl = heard->kl};
        const size_t rest = heard->n_returns - done;
        news.n_returns = (uint32_t)(rest < CHANNEL_RETURNS_MAX ? rest : CHANNEL_RETURNS_MAX);
        news.environment_steps = done == 0 ? heard->environment_steps : 0;
        memcpy(news.returns, heard->returns + done, news.n_returns * sizeof(double));
        done += news.n_returns;
        if (!send_news(channel, &news))
            return true;
    } while (done < heard->n_returns);
    return told_to_stop(channel->fd);
}

void channel_overseer_init(struct channel_overseer *channel, int fd, uint32_t worker,
                           const struct learner *learner)
{
    *channel = (struct channel_overseer){
        .overseer = {.hear = hear}, .fd = fd, .worker = worker, .learner = learner};
}

void channel_finish(const struct channel_overseer *channel, const char *failed)
{
    struct channel_news news = {.version = channel->learner->version};
    snprintf(news.failed, sizeof(news.failed), "%s", failed);
    (void)send_news(channel, &news);
}

void channel_give_up(int fd, uint32_t worker, const char *failed)
{
    struct channel_news news = {.worker = worker};
    snprintf(news.failed, sizeof(news.failed), "%s", failed);
    (void)send(fd, &news, offsetof(struct channel_news, returns), MSG_NOSIGNAL);
}

int channel_read(int fd, struct channel_news *news)
{
    const ssize_t count = recv(fd, news, sizeof(*news), MSG_DONTWAIT);
    if (count >= (ssize_t)offsetof(struct channel_news, returns))
        return 1;
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
        return 0;
    return -1;
}

void channel_stop(int fd)
{
    (void)send(fd, "s", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
}
