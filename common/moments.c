/* Merging of running statistics: Chan, Golub and LeVeque 1979. */
#include "common/model.h"

void moments_merge(struct moments *a, const struct moments *b)
{
    if (b->count <= 0)
        return;
    const double total = a->count + b->count;
    const double delta = b->mean - a->mean;
    a->mean += delta * (b->count / total);
    a->m2 += b->m2 + delta * delta * (a->count * (b->count / total));
    a->count = total;
}
