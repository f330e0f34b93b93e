/* Says in one sentence where two layouts part. */
#include "common/model.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct text {
    char *start;
    size_t size;
    size_t used;
};

static void say(struct text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void say(struct text *text, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    const int written =
        vsnprintf(text->start + text->used, text->size - text->used, format, arguments);
    va_end(arguments);
    if (written > 0)
        text->used += (size_t)written < text->size - text->used ? (size_t)written
                                                                : text->size - text->used - 1;
}

/* "float32 [64, 4] of group 0", "moments [4]" */
static void say_tensor(struct text *text, const struct model_tensor *tensor)
{
    say(text, tensor->kind == MODEL_PARAMETER ? "float32 [" : "moments [");
    for (uint32_t i = 0; i < tensor->dimensions; i++)
        say(text, "%s%llu", i ? ", " : "", (unsigned long long)tensor->shape[i]);
    say(text, "] of group %u", tensor->group);
}

static void say_named(struct text *text, const struct model_tensor *tensor)
{
    if (!tensor) {
        say(text, "missing");
        return;
    }
    say(text, "%s ", tensor->name);
    say_tensor(text, tensor);
}

static bool same_tensor(const struct model_tensor *a, const struct model_tensor *b)
{
    return a->kind == b->kind && a->group == b->group && a->dimensions == b->dimensions &&
           memcmp(a->shape, b->shape, a->dimensions * sizeof *a->shape) == 0;
}

static bool same_group(const struct model_group *a, const struct model_group *b)
{
    return a->learning_rate_scale == b->learning_rate_scale && a->weight_decay == b->weight_decay &&
           a->beta1 == b->beta1 && a->beta2 == b->beta2 && a->frozen == b->frozen;
}

static void say_group(struct text *text, const struct model_group *group)
{
    say(text, "learning-rate scale %g, weight decay %g, betas %g %g%s", group->learning_rate_scale,
        group->weight_decay, group->beta1, group->beta2, group->frozen ? ", frozen" : "");
}

static bool tensors_differ(const struct model *ours, const struct model *theirs, struct text *text)
{
    const uint32_t more =
        ours->tensors_count > theirs->tensors_count ? ours->tensors_count : theirs->tensors_count;
    for (uint32_t i = 0; i < more; i++) {
        const struct model_tensor *a = i < ours->tensors_count ? &ours->tensors[i] : NULL;
        const struct model_tensor *b = i < theirs->tensors_count ? &theirs->tensors[i] : NULL;
        if (a && b && strcmp(a->name, b->name) == 0) {
            if (same_tensor(a, b))
                continue;
            say(text, "tensor %s is ", a->name);
            say_tensor(text, a);
            say(text, " here and ");
            say_tensor(text, b);
            say(text, " there");
            return true;
        }
        say(text, "tensor number %u is ", i);
        say_named(text, a);
        say(text, " here and ");
        say_named(text, b);
        say(text, " there");
        return true;
    }
    return false;
}

bool model_difference(const struct model *ours, const struct model *theirs, char *text, size_t size)
{
    ASSERT(size > 0);
    struct text out = {.start = text, .size = size};
    text[0] = '\0';
    if (tensors_differ(ours, theirs, &out))
        return true;
    if (ours->groups_count != theirs->groups_count) {
        say(&out, "%u parameter groups here and %u there", ours->groups_count,
            theirs->groups_count);
        return true;
    }
    for (uint32_t i = 0; i < ours->groups_count; i++) {
        if (same_group(&ours->groups[i], &theirs->groups[i]))
            continue;
        say(&out, "group %u has ", i);
        say_group(&out, &ours->groups[i]);
        say(&out, " here and ");
        say_group(&out, &theirs->groups[i]);
        say(&out, " there");
        return true;
    }
    return false;
}
