/* The control plane's sockets: messages between numbered peers over ZeroMQ. The only code that
 * knows ZeroMQ. It knows nothing of what the messages mean.
 *
 * A server (the coordinator) listens; clients (shards, workers, tools) connect, in any order, and
 * reconnect by themselves. A server's peers are small numbers, given when a connection's first
 * message arrives and never given again; a client has one peer, CONTROL_SERVER.
 *
 * control_send puts a message into its peer's frame; control_flush sends the frames. One object
 * belongs to one thread. Nothing blocks.
 *
 * LOST: a server says it once per peer, when the connection broke (a killed process: at once; a
 * stopped one: when the heartbeats stay out) or cannot be sent to. Messages that came before are
 * handed out before it. A client says LOST when its connection broke, and UP when there is one
 * (again): whoever is there must then introduce himself anew, for the server knows him no more. */
#ifndef GRADWEIR_COMMON_CONTROL_H
#define GRADWEIR_COMMON_CONTROL_H

#include "common/log.h"
#include "common/wire.h"

enum { CONTROL_SERVER = 1 };

struct control_options {
    uint32_t peers_max;         /* server: connections at a time */
    uint32_t queue_max;         /* frames that may wait for one peer */
    uint32_t heartbeat_ms;      /* how often silence is broken */
    uint32_t heartbeat_dead_ms; /* silence after which a connection is given up */
    bool insecure;              /* no keys: for loopback, inproc, or networks trusted as a whole */
    /* CURVE, as soon as there is a secret key. Keys are Z85 text, 40 characters. Peers within the
     * process (inproc) need none, and use none. */
    const char *secret_key;           /* mine */
    const char *public_key;           /* mine; NULL: computed. ERR_INVALID when it is another's */
    const char *server_key;           /* client: the server's public key */
    const char *const *allowed;       /* server: public keys that may come in; read at listen */
    const char *const *allowed_names; /* and whose they are: these become identities */
    uint32_t allowed_count;
    const struct log *log; /* for frames that are dropped and refusals; NULL: silent */
};

struct control_options
control_defaults(void); /* 320 peers, 1000 frames, 200 ms, 600 ms, not insecure */

/* One per process: sockets of one context reach each other by inproc names. */
struct control_context;
gradweir_status control_context_new(struct control_context **context);
void control_context_free(struct control_context *context); /* all its sockets must be closed */

struct control;

/* listen: "ip:port" (port 0: any free one), "[ip6]:port" or "*:port"; inproc: a second name for
 * this process, or NULL. ERR_IO with errno's text and the address; ERR_INVALID for addresses that
 * are none, and for a listener without keys off loopback that was not declared insecure. With keys
 * it tries a stranger's key before it returns; ERR_STATE unless that is turned away. */
gradweir_status control_listen(struct control_context *context,
                               const struct control_options *options, const char *listen,
                               const char *inproc, struct control **control);

/* endpoint: "host:port", "tcp://host:port" or "inproc://name". Returns at once; UP follows, unless
 * control_refused. */
gradweir_status control_connect(struct control_context *context,
                                const struct control_options *options, const char *endpoint,
                                struct control **control);

/* A client within the server's own thread, without sockets: what one sends, the other has at its
 * next poll. Close it before or after the server. */
gradweir_status control_connect_within(struct control *server, struct control **client);
void control_close(
    struct control *control); /* NULL is accepted; waits at most 1 s for what is flushed */

enum control_event_kind { CONTROL_MESSAGE = 1, CONTROL_LOST, CONTROL_UP };

struct control_event {
    enum control_event_kind kind;
    uint32_t peer;
    struct message message;
};

/* The next event, or NULL; valid until the next call. A frame that cannot be read is counted,
 * logged with the reason and dropped from its first bad message on. */
struct control_event *control_poll(struct control *control);

/* ERR_LOST: no such peer (any more). ERR_FULL: its frames have reached queue_max; the message is
 * not kept and the peer counts as lost. */
gradweir_status control_send(struct control *control, uint32_t peer, const struct message *message);

/* control_send to each of `count` peers, encoded once; whoever is gone (or 0) is passed over. */
void control_send_all(struct control *control, const uint32_t *peers, uint32_t count,
                      const struct message *message);
void control_flush(struct control *control);

/* Forget a peer without a LOST. */
void control_drop(struct control *control, uint32_t peer);

/* Whether control_poll may have something: ask before sleeping on control_fds (readable), which are
 * edge-triggered. */
bool control_ready(struct control *control);
size_t control_fds(struct control *control, int fds[2]);

/* Client: why the server turned us away at the last attempt (our key, no key, or no ZeroMQ at all),
 * a sentence; NULL: it did not. Attempts go on, once a second, as long as control_poll is called.
 */
const char *control_refused(const struct control *control);

/* Client: whether that was sure: told by a server that is there, or several times in a row. */
bool control_refused_surely(const struct control *control);

const char *control_address(const struct control *control); /* real "ip:port" of a listener */
const char *
control_identity(const struct control *control,
                 uint32_t peer); /* authenticated name; "" when insecure or within the process */
uint64_t control_bad_frames(const struct control *control);

/* A new key pair as Z85 text, 41 bytes each with NUL. */
gradweir_status control_keys(char public_key[41], char secret_key[41]);

/* Whether the text is Z85 of 40 characters. */
bool control_key_good(const char *key);

#endif
