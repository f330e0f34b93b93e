/* Text that grows in a caller's memory: cut when it is full, never overrun, always terminated. */
#ifndef GRADWEIR_COMMON_PAGE_H
#define GRADWEIR_COMMON_PAGE_H

#include <stddef.h>

struct page {
    char *text;
    size_t size, used; /* used: bytes without the end */
};

void page_put(struct page *page, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* In double quotes, as JSON has them; whatever is not printable ASCII becomes '?'. */
void page_quoted(struct page *page, const char *text);

#endif
