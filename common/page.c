/* See page.h. */
#include "common/page.h"

#include <stdarg.h>
#include <stdio.h>

void page_put(struct page *page, const char *format, ...)
{
    const size_t room = page->size - page->used;
    va_list arguments;
    va_start(arguments, format);
    const int written = vsnprintf(page->text + page->used, room, format, arguments);
    va_end(arguments);
    if (written > 0)
        page->used += (size_t)written < room ? (size_t)written : room - 1;
}

void page_quoted(struct page *page, const char *text)
{
    page_put(page, "\"");
    for (; *text != 0; text++) {
        if (*text == '"' || *text == '\\')
            page_put(page, "\\%c", *text);
        else if ((unsigned char)*text >= 0x20 && (unsigned char)*text < 0x7f)
            page_put(page, "%c", *text);
        else
            page_put(page, "?");
    }
    page_put(page, "\"");
}
