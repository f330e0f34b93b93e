/* Names of kinds, for people. */
#include "common/message.h"

const char *message_name(uint32_t kind)
{
    switch (kind) {
#define MESSAGE_ENTRY(name, number)                                                                \
    case number: return #name;
        MESSAGE_MAP(MESSAGE_ENTRY)
#undef MESSAGE_ENTRY
    default: return "?";
    }
}

const char *record_name(uint32_t kind)
{
    switch (kind) {
#define RECORD_ENTRY(name, number)                                                                 \
    case number: return #name;
        RECORD_MAP(RECORD_ENTRY)
#undef RECORD_ENTRY
    default: return "?";
    }
}

const char *verdict_name(uint32_t verdict)
{
    switch (verdict) {
#define VERDICT_ENTRY(name, number)                                                                \
    case number: return #name;
        VERDICT_MAP(VERDICT_ENTRY)
#undef VERDICT_ENTRY
    default: return "?";
    }
}
