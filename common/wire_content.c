/* Long contents as numbered pages, and back. */
#include "common/wire.h"

#include <stdlib.h>
#include <string.h>

struct content_assembler {
    uint8_t *bytes;
    size_t max, total, count;
    uint32_t content, pages, next;
};

uint32_t content_pages(size_t count)
{
    return count == 0 ? 1 : (uint32_t)((count + PAGE_BYTES_MAX - 1) / PAGE_BYTES_MAX);
}

void content_page(uint32_t content, const uint8_t *bytes, size_t count, uint32_t page,
                  struct message_page *out)
{
    const size_t begin = (size_t)page * PAGE_BYTES_MAX;
    ASSERT(page < content_pages(count));
    const size_t rest = count - begin;
    *out = (struct message_page){.content = content,
                                 .page = page,
                                 .pages = content_pages(count),
                                 .total = count,
                                 .bytes = rest < PAGE_BYTES_MAX ? (uint32_t)rest : PAGE_BYTES_MAX,
                                 .data = bytes + begin};
}

gradweir_status content_assembler_new(size_t max, struct content_assembler **assembler)
{
    struct content_assembler *made = calloc(1, sizeof *made);
    if (!made)
        return fail(GRADWEIR_ERR_NO_MEMORY, "no memory to put pages together");
    made->max = max;
    *assembler = made;
    return GRADWEIR_OK;
}

void content_assembler_free(struct content_assembler *assembler)
{
    if (assembler)
        free(assembler->bytes);
    free(assembler);
}

static gradweir_status start(struct content_assembler *assembler, const struct message_page *page)
{
    if (page->total > assembler->max)
        return fail(GRADWEIR_ERR_PROTOCOL, "a content of %llu bytes: at most %zu",
                    (unsigned long long)page->total, assembler->max);
    if (page->pages != content_pages((size_t)page->total))
        return fail(GRADWEIR_ERR_PROTOCOL, "%u pages for %llu bytes", page->pages,
                    (unsigned long long)page->total);
    uint8_t *bytes = realloc(assembler->bytes, (size_t)page->total + 1);
    if (!bytes)
        return fail(GRADWEIR_ERR_NO_MEMORY, "no memory for a content of %llu bytes",
                    (unsigned long long)page->total);
    assembler->bytes = bytes;
    assembler->total = (size_t)page->total;
    assembler->content = page->content;
    assembler->pages = page->pages;
    assembler->count = 0;
    assembler->next = 0;
    return GRADWEIR_OK;
}

static gradweir_status add(struct content_assembler *assembler, const struct message_page *page)
{
    if (page->page == 0)
        TRY(start(assembler, page));
    const size_t rest = assembler->total - assembler->count;
    const size_t due = rest < PAGE_BYTES_MAX ? rest : PAGE_BYTES_MAX;
    if (!assembler->bytes || page->page != assembler->next || page->pages != assembler->pages ||
        page->content != assembler->content || page->total != assembler->total ||
        page->bytes != due)
        return fail(GRADWEIR_ERR_PROTOCOL, "page %u of %u does not follow", page->page,
                    page->pages);
    memcpy(assembler->bytes + assembler->count, page->data, page->bytes);
    assembler->count += page->bytes;
    assembler->next++;
    return GRADWEIR_OK;
}

gradweir_status content_add(struct content_assembler *assembler, const struct message_page *page)
{
    const gradweir_status status = add(assembler, page);
    if (status != GRADWEIR_OK) {
        assembler->pages = 0;
        assembler->next = UINT32_MAX;
    }
    return status;
}

bool content_whole(const struct content_assembler *assembler)
{
    return assembler->pages && assembler->next == assembler->pages;
}

const uint8_t *content_bytes(const struct content_assembler *assembler)
{
    return assembler->bytes;
}

size_t content_count(const struct content_assembler *assembler)
{
    return assembler->count;
}
