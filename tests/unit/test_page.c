#include "common/page.h"

#include <criterion/criterion.h>

Test(page, grows_until_it_is_full_and_is_then_cut)
{
    char text[8] = "";
    struct page page = {.text = text, .size = sizeof text};
    page_put(&page, "%d ", 123);
    cr_assert_str_eq(text, "123 ");
    page_put(&page, "%s", "abcdef");
    page_put(&page, "more");
    cr_assert_str_eq(text, "123 abc");
    cr_assert_eq(page.used, 7);
}
