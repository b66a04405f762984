/* Layouts: how the values of a tensor lie in memory, and a walk over them. */
#ifndef HOOKLINE_LAYOUT_H
#define HOOKLINE_LAYOUT_H

#include "_kernel.h"

#define MAX_DIMS 8

/* A layout without what does not matter for statistics: dims of size 1 are gone, those that lie behind each
   other in memory are one, the innermost has the smallest stride; a dim of stride 0 only repeats. */
typedef struct {
    int dims;
    int64_t size[MAX_DIMS], stride[MAX_DIMS];
    int64_t count, repeats;
} Layout;

static Layout layout_of(int dims, const int64_t *size, const int64_t *stride, int left_out) {
    Layout l = {.count = 1, .repeats = 1};
    for (int d = 0; d < dims; d++) {
        if (d == left_out) continue;
        if (stride[d] == 0 || size[d] == 0) l.repeats *= size[d];
        if (stride[d] == 0 || size[d] <= 1) continue;
        l.count *= size[d];
        int at = l.dims++;
        for (; at > 0 && l.stride[at - 1] < stride[d]; at--) {
            l.size[at] = l.size[at - 1];
            l.stride[at] = l.stride[at - 1];
        }
        l.size[at] = size[d];
        l.stride[at] = stride[d];
    }
    int kept = 0;
    for (int d = 1; d < l.dims; d++) {
        if (l.stride[kept] == l.stride[d] * l.size[d]) {
            l.size[kept] *= l.size[d];
            l.stride[kept] = l.stride[d];
        } else {
            kept++;
            l.size[kept] = l.size[d];
            l.stride[kept] = l.stride[d];
        }
    }
    if (!l.dims) l.size[0] = l.stride[0] = 1;
    l.dims = kept + 1;
    return l;
}

/* The next n offsets of a walk through a layout, whose state is `index`. */
static void walk(const Layout *l, int64_t *index, int64_t *offsets, int n) {
    const int inner = l->dims - 1;
    for (int i = 0; i < n;) {
        int64_t at = 0;
        for (int d = 0; d < l->dims; d++) at += index[d] * l->stride[d];
        for (; i < n && index[inner] < l->size[inner]; index[inner]++, at += l->stride[inner]) offsets[i++] = at;
        for (int d = inner; d > 0 && index[d] == l->size[d]; d--) {
            index[d] = 0;
            index[d - 1]++;
        }
    }
}

#endif
