#include "common/populate.h"

#include <criterion/criterion.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGES = 256 };

static size_t resident(void *memory, size_t bytes)
{
    unsigned char present[PAGES] = {0};
    size_t count = 0;
    cr_assert_eq(mincore(memory, bytes, present), 0);
    for (size_t i = 0; i < PAGES; i++)
        count += present[i] & 1;
    return count;
}

Test(populate, pages_are_there_at_once_and_keep_what_they_hold)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *memory =
        mmap(NULL, PAGES * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    cr_assert_neq(memory, MAP_FAILED);
    cr_assert_eq(resident(memory, PAGES * page), 0);
    strcpy(memory + page, "kept");
    cr_assert_eq(populate_memory(memory, PAGES * page), GRADWEIR_OK, "%s", fail_reason());
    cr_assert_eq(resident(memory, PAGES * page), PAGES);
    cr_assert_str_eq(memory + page, "kept");
    munmap(memory, PAGES * page);
}

Test(populate, more_than_there_is_is_refused_with_both_numbers_and_touches_nothing)
{
    const uint64_t available = populate_available();
    cr_assert(available > 0 && available < UINT64_MAX);
    cr_assert_eq(populate_memory(NULL, UINT64_C(1) << 50), GRADWEIR_ERR_NO_MEMORY);
    cr_assert_not_null(strstr(fail_reason(), "1073741824.0 MiB are wanted"));
}
