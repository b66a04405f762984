/* Spread: how far the lines of a matrix are apart, by some of their values. */
#ifndef HOOKLINE_SPREAD_H
#define HOOKLINE_SPREAD_H

#include "_kernel.h"

#define COLUMNS 512 /* that are summed at a time */

/* Of every `step`-th of the `width` values in each of so many `lines`: out[0] is the RMS of their standard deviations over
   the lines, out[1] that of the values themselves. */
API void hookline_spread(const float *x, int64_t lines, int64_t width, int64_t step, double *out) {
    double means[COLUMNS], apart = 0, squares = 0;
    int64_t all = 0;
    for (int64_t from = 0; from < width; from += COLUMNS * step) {
        int count = 0;
        for (int64_t at = from; at < width && count < COLUMNS; at += step) means[count++] = 0;
        for (int64_t line = 0; line < lines; line++)
            for (int k = 0; k < count; k++) means[k] += (double)x[line * width + from + k * step];
        for (int k = 0; k < count; k++) means[k] /= (double)lines;
        for (int64_t line = 0; line < lines; line++)
            for (int k = 0; k < count; k++) {
                double value = (double)x[line * width + from + k * step], away = value - means[k];
                apart += away * away;
                squares += value * value;
            }
        all += count;
    }
    out[0] = sqrt(apart / (double)(all * lines));
    out[1] = sqrt(squares / (double)(all * lines));
}

#endif
