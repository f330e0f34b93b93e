/* What can go wrong, for callers of the library. One table gives name, number and text. */
#ifndef GRADWEIR_STATUS_H
#define GRADWEIR_STATUS_H

#ifdef __cplusplus
extern "C" {
#endif

/* X(NAME, number, text). Numbers never change once released. */
#define GRADWEIR_STATUS_MAP(X)                                                                     \
    X(OK, 0, "ok")                                                                                 \
    X(ERR_INVALID, -1, "an argument or input is not valid")                                        \
    X(ERR_TIMEOUT, -2, "the deadline passed")                                                      \
    X(ERR_UNREACHABLE, -3, "no peer answers at that address")                                      \
    X(ERR_LOST, -4, "the peer was there and is lost")                                              \
    X(ERR_MISMATCH, -5, "both sides do not mean the same model, job or protocol")                  \
    X(ERR_FENCED, -6, "another process has taken this worker's place")                             \
    X(ERR_REFUSED, -7, "the peer said no")                                                         \
    X(ERR_FULL, -8, "a limit is reached")                                                          \
    X(ERR_AGAIN, -9, "nothing yet: ask again later")                                               \
    X(ERR_STATE, -10, "this call does not fit what was called before")                             \
    X(ERR_NO_MEMORY, -11, "not enough memory")                                                     \
    X(ERR_IO, -12, "the operating system reported an error")                                       \
    X(ERR_PROTOCOL, -13, "the peer sent something that makes no sense")                            \
    X(ERR_UNSUPPORTED, -14, "this build or machine cannot do that")                                \
    X(ERR_CORRUPT, -15, "a checksum does not match")                                               \
    X(ERR_STOPPED, -16, "the other side has shut down in order")

typedef enum {
#define GRADWEIR_STATUS_ENTRY(name, number, text) GRADWEIR_##name = number,
    GRADWEIR_STATUS_MAP(GRADWEIR_STATUS_ENTRY)
#undef GRADWEIR_STATUS_ENTRY
} gradweir_status;

#ifdef __cplusplus
}
#endif

#endif
