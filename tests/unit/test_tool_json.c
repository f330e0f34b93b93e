#include "client/tool_json.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

static const char page[] =
    "{\"version\":812, "
    "\"rate\":-2.5e-4,\"first\":true,\"settings\":{\"window\":4,\"mode\":\"async\"},"
    "\"empty\":[],\"none\":{},\"waits\":[\"a \\\"quoted\\\" one\",\"two\"],"
    "\"workers\":[{\"identity\":\"w-0\",\"verdicts\":{\"ADMITTED\":3,\"STALE\":1}},{\"identity\":"
    "\"version\"}]}\n";

Test(tool_json, values_are_found_by_path)
{
    char text[32];
    cr_assert(json_sound(page));
    cr_assert_eq(json_count(json_member(page, "version")), 812);
    cr_assert_eq(json_number(json_member(page, "rate")), -2.5e-4);
    cr_assert(json_true(json_member(page, "first")));
    cr_assert_eq(json_count(json_member(page, "settings.window")), 4);
    json_text(json_member(page, "settings.mode"), text, sizeof text);
    cr_assert_str_eq(text, "async");
    json_text(json_member(page, "settings.mode"), text, 3);
    cr_assert_str_eq(text, "as");
}

Test(tool_json, what_is_not_there_is_nothing_and_never_a_crash)
{
    char text[8] = "x";
    cr_assert_null(json_member(page, "versio"));
    cr_assert_null(json_member(page, "settings.window.more"));
    cr_assert_null(json_member(page, "nobody.window"));
    cr_assert_null(json_first(json_member(page, "empty")));
    cr_assert_null(json_first(json_member(page, "none")));
    cr_assert_null(json_next(NULL));
    cr_assert_eq(json_count(json_member(page, "rate")), 0, "negative is no count");
    cr_assert_not(json_true(NULL));
    json_text(NULL, text, sizeof text);
    cr_assert_str_eq(text, "");
}

Test(tool_json, arrays_and_objects_are_walked_in_order)
{
    char text[32];
    const char *wait = json_first(json_member(page, "waits"));
    json_text(wait, text, sizeof text);
    cr_assert_str_eq(text, "a \"quoted\" one");
    json_text(json_next(wait), text, sizeof text);
    cr_assert_str_eq(text, "two");
    cr_assert_null(json_next(json_next(wait)));
    const char *worker = json_first(json_member(page, "workers"));
    const char *verdicts = json_member(worker, "verdicts"),
               *stale = json_next(json_first(verdicts));
    cr_assert_eq(json_count(stale), 1);
    json_name(verdicts, stale, text, sizeof text);
    cr_assert_str_eq(text, "STALE");
    json_text(json_member(json_next(worker), "identity"), text, sizeof text);
    cr_assert_str_eq(text, "version");
}

Test(tool_json, a_text_that_is_cut_anywhere_is_not_sound)
{
    for (size_t cut = 0; cut + 2 < sizeof page; cut++) {
        char *copy = strndup(page, cut); /* its own memory: a sanitizer sees reads behind it */
        cr_assert_not(json_sound(copy), "%zu", cut);
        free(copy);
    }
}

Test(tool_json, what_is_no_json_is_not_sound)
{
    static const char *const wrong[] = {
        "",    "{",      "}",   "[1,]", "{\"a\"}",   "{\"a\":}", "{a:1}", "[1 2]",
        "nul", "\"open", "1 1", "[}",   "{\"a\":1]", "\"\\",     "[1}",   "{\"a\":1,}"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        cr_assert_not(json_sound(wrong[i]), "%s", wrong[i]);
    char deep[200];
    memset(deep, '[', 99);
    memset(deep + 99, ']', 99);
    deep[198] = 0;
    cr_assert_not(json_sound(deep));
    cr_assert(json_sound(" [ [ ] , { } , null , \"\" , -1.5 ] "));
}
