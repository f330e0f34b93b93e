/* Workers' own numbers for the status page: the last report of each, nothing is computed. */
#include "common/page.h"
#include "server/coordinator/order_internal.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

static bool good_name(const char name[REPORT_NAME_MAX])
{
    if (name[0] == 0 || !memchr(name, 0, REPORT_NAME_MAX))
        return false;
    for (const char *c = name; *c != 0; c++)
        if (!isprint((unsigned char)*c) || *c == '"' || *c == '\\')
            return false;
    return true;
}

void reports_came(struct order *order, uint32_t index, const struct message_report *report)
{
    struct order_worker *worker = &order->workers[index];
    for (uint32_t i = 0; i < report->numbers_count; i++)
        if (!good_name(report->numbers[i].name)) {
            order->figures.foreign++;
            return;
        }
    worker->numbers_count = report->numbers_count;
    memcpy(worker->numbers, report->numbers, sizeof worker->numbers);
}

/* JSON has no NaN and no infinity. */
void reports_put(struct page *page, const struct order_worker *worker)
{
    page_put(page, "\"report\":{");
    for (uint32_t i = 0; i < worker->numbers_count; i++) {
        const struct report_number *number = &worker->numbers[i];
        page_put(page, "%s\"%s\":", i ? "," : "", number->name);
        if (isfinite(number->value))
            page_put(page, "%.9g", number->value);
        else
            page_put(page, "null");
    }
    page_put(page, "}");
}
