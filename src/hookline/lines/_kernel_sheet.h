/* Sheets: the results of many reductions with histograms, a line for each, as `lines/sheet.py` has them. Most bins of a
   histogram are empty: what is done here goes over them quickly, and writes only where something is. */
#ifndef HOOKLINE_SHEET_H
#define HOOKLINE_SHEET_H

#include "_kernel.h"

#define LINE ((int64_t)(sizeof(Header) / sizeof(int64_t)) + BINS) /* words */
#define SOME 8 /* words that are looked at at once */

INLINE int is_empty(const int64_t *words) {
    int64_t any = 0;
    for (int k = 0; k < SOME; k++) any |= words[k];
    return !any;
}

/* The bins that are not empty, line after line: how many each line has, which they are, and their counts. Returns how
   many they are in all; `bins` and `counts` have room for `lines` times BINS. */
API int64_t hookline_gather(const int64_t *words, int64_t lines, int64_t *lengths, uint16_t *bins, int64_t *counts) {
    int64_t found = 0;
    for (int64_t line = 0; line < lines; line++) {
        const int64_t *hist = words + (line + 1) * LINE - BINS, before = found;
        int bin = 0;
        while (bin < BINS) {
            if (bin + SOME <= BINS && is_empty(hist + bin)) {
                bin += SOME;
                continue;
            }
            for (int end = bin + SOME < BINS ? bin + SOME : BINS; bin < end; bin++)
                if (hist[bin]) {
                    bins[found] = (uint16_t)bin;
                    counts[found++] = hist[bin];
                }
        }
        lengths[line] = found - before;
    }
    return found;
}

/* Makes all the words of so many lines zero. */
API void hookline_clear(int64_t *words, int64_t lines) {
    const int64_t all = lines * LINE;
    int64_t at = 0;
    for (; at + SOME <= all; at += SOME)
        if (!is_empty(words + at)) memset(words + at, 0, SOME * sizeof *words);
    for (; at < all; at++) words[at] = 0;
}

#endif
