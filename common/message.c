/* See message.h. */
#include "common/message.h"

#include <assert.h>
#include <stddef.h>

#define USED(member) (offsetof(struct message, member) + sizeof(((struct message *)0)->member))

static_assert(offsetof(struct message, record) == offsetof(struct message, landed),
              "all kinds begin at one place");

size_t message_used(const struct message *message)
{
    switch (message->kind) {
    case MESSAGE_RECORD: return offsetof(struct message, record) + record_used(&message->record);
    case MESSAGE_LOGGED: return USED(logged);
    case MESSAGE_LANDED: return USED(landed);
    case MESSAGE_DESCRIBE: return USED(describe);
    case MESSAGE_RECEIPT: return USED(receipt);
    case MESSAGE_STEPPED: return USED(stepped);
    case MESSAGE_WHOLE: return USED(whole);
    case MESSAGE_CLOSE: return USED(close);
    case MESSAGE_FREED: return USED(freed);
    case MESSAGE_CALLED: return USED(called);
    case MESSAGE_SWAPPED: return offsetof(struct message, swapped.data) + message->swapped.bytes;
    default: return sizeof *message;
    }
}
