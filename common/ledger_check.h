/* Whether a record may be folded next. A part of ledger.c, kept apart for size. */
#ifndef GRADWEIR_COMMON_LEDGER_CHECK_H
#define GRADWEIR_COMMON_LEDGER_CHECK_H

#include "common/ledger.h"

/* ERR_PROTOCOL with the reason; the ledger is only read. */
gradweir_status ledger_check(const struct ledger *ledger, const struct record *record);

#endif
