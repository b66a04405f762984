/* Takes a block into the result, at each level: its moments and extremes, what is not finite, its histogram. */
#ifndef HOOKLINE_TAKE_H
#define HOOKLINE_TAKE_H

#include "_kernel_avx2.h"
#include "_kernel_blocks.h"
#include "_kernel_slots.h"

typedef struct {
    int dtype, avx2, avx512; /* these are the levels that may be used */
    const char *less;  /* what is subtracted, value by value; NULL for nothing */
    char *copy;        /* where the values are copied to; NULL for nowhere */
    Header *out;
    int64_t *hist;     /* where counts go at once; NULL without a histogram */
    Tally *tally;      /* where they are gathered first, for many values; NULL for few */
    int64_t tallied, tallied_outside; /* values in it, and those in counters that are no bin */
#ifdef HAVE_AVX2_PATH
    Pairs *pairs; /* the same with AVX2 */
    double shift;  /* for the moments of the next block */
    int not_clean; /* whether the last block had a NaN or Inf */
    int is_spread; /* with AVX-512: whether values are too far apart for slots */
#endif
#ifdef HAVE_AVX512_PATH
    Soon soon;
#endif
} Job;

/* Chan's way to put the moments of two parts together. Inline, as `add`: between code with AVX2 and such without, the
   processor waits. */
INLINE void merge(Header *into, double mean, double m2, int64_t n) {
    if (!n) return;
    if (!into->finite) {
        into->mean = mean;
        into->m2 = m2;
        into->finite = n;
        return;
    }
    double all = (double)(into->finite + n), share = (double)n / all, delta = mean - into->mean;
    into->m2 += m2 + delta * delta * ((double)into->finite * share);
    if (isfinite(delta))
        into->mean += delta * share;
    else /* fp64 near its limits: the difference of two means can be beyond them */
        into->mean = into->mean * (1 - share) + mean * share;
    into->finite += n;
}

INLINE void add(Header *out, const Block *b) {
    if (b->finite) {
        double n = (double)b->finite, m2 = b->s2 - b->s1 * (b->s1 / n);
        merge(out, b->shift + b->s1 / n, m2 > 0 ? m2 : 0, b->finite);
        if (b->min < out->min) out->min = b->min;
        if (b->max > out->max) out->max = b->max;
    }
    out->zeros += b->zeros;
    out->near_zero += b->near_zero;
    out->nan += b->nan;
    out->inf += b->inf;
}

static float limit_of(int dtype) { /* 0.05 as the tensor's own dtype has it, so that a tensor of 0.05 is near zero */
    return dtype == F16 ? 0x1.998p-5f : dtype == BF16 ? 0x1.9ap-5f : (float)NEAR;
}

static void plain_f64(const Job *job, const double *x, int n, double shift, Block *b) {
#ifdef HAVE_AVX2_PATH
    if (job->avx2) {
        block_f64_avx2(x, n, shift, NEAR, b);
        return;
    }
#endif
    block_f64(x, n, shift, NEAR, b);
}

/* fp64 whose squares, or sums, are beyond fp64: the mean is found at another scale; m2 is honestly inf. */
static void scaled(const Job *job, const double *x, int n, Block *b) {
    double copy[BLOCK], scale = 0x1p-600;
    Block small;
    int kept = 0;
    for (int i = 0; i < n; i++)
        if (isfinite(x[i])) copy[kept++] = x[i] * scale;
    plain_f64(job, copy, kept, 0, &small);
    b->shift = small.s1 / kept / scale;
    b->s1 = 0;
    b->s2 = INFINITY;
}

/* The counters below FIRST_KEY hold zeros and what is too small for a counter of its own, those from END_KEY on
   NaN, Inf and what is too large. Zeros, NaN and Inf are known; where there is more, the block is searched. */
static int64_t outside(const Tally counts) {
    int64_t found = 0;
    for (int copy = 0; copy < COPIES; copy++)
        for (int side = 0; side < KEYS; side += KEYS / 2) {
            for (int key = 0; key < FIRST_KEY; key++) found += counts[copy][side + key];
            for (int key = END_KEY; key < KEYS / 2; key++) found += counts[copy][side + key];
        }
    return found;
}

#define HISTOGRAM(NAME, T, TALLY, KEY)                                                 \
    static void NAME(Job *job, const T *x, int n, const Block *b) {                    \
        int64_t found = 0, known = b->zeros + b->nan + b->inf;                         \
        if (job->tally) {                                                              \
            TALLY(x, n, *job->tally);                                                  \
            found = outside(*job->tally) - job->tallied_outside;                       \
            job->tallied_outside += found;                                             \
            job->tallied += n;                                                         \
            job->hist[ZERO_BIN] += b->zeros;                                           \
            if (found == known) return;                                                \
        }                                                                              \
        for (int i = 0; i < n; i++) {                                                  \
            uint32_t key = KEY(x[i]) & (KEYS / 2 - 1);                                 \
            if (job->tally && (x[i] == 0 || (key >= FIRST_KEY && key < END_KEY))) continue; \
            int bin = bin_of(x[i]);                                                    \
            if (bin >= 0) job->hist[bin]++;                                            \
        }                                                                              \
    }

HISTOGRAM(histogram_f32, float, tally_f32, key_f32)
HISTOGRAM(histogram_f64, double, tally_f64, key_f64)

static void fold(Job *job) {
    const int offset = 2 + ((-127 - LOWEST) << MANTISSA_BITS);
    uint32_t *sums = (*job->tally)[0];
    for (int copy = 1; copy < COPIES; copy++)
        for (int key = 0; key < KEYS; key++) sums[key] += (*job->tally)[copy][key];
    for (int key = FIRST_KEY; key < END_KEY; key++) { /* most are zero */
        if (sums[key]) job->hist[ZERO_BIN + offset + key] += sums[key];
        if (sums[KEYS / 2 + key]) job->hist[ZERO_BIN - offset - key] += sums[KEYS / 2 + key];
    }
}

static void take_f32(Job *job, const void *data, int n) {
    const float *x = data, limit = limit_of(job->dtype);
    Block b;
    block_f32(x, n, x[0], limit, &b);
    if (!isfinite(b.s2)) {
        float copy[BLOCK];
        int64_t nan, gone;
        float stand_in = first_finite_f32(x, n);
        clean_32(data, n, 0x7f800000u, bits32(stand_in), copy, &nan, &gone);
        block_f32(copy, n, stand_in, limit, &b);
        if (is_far_from_mean(&b, n - gone)) {
            stand_in = (float)mean_of(&b, n - gone);
            clean_32(data, n, 0x7f800000u, bits32(stand_in), copy, &nan, &gone);
            block_f32(copy, n, stand_in, limit, &b);
        }
        without(&b, stand_in, limit, nan, gone);
    } else if (is_far_from_mean(&b, n)) {
        block_f32(x, n, mean_of(&b, n), limit, &b);
    }
    add(job->out, &b);
    if (job->hist) histogram_f32(job, x, n, &b);
}

static void take_f64(Job *job, const void *data, int n) {
    const double *x = data;
    Block b;
    plain_f64(job, x, n, x[0], &b);
    if (!isfinite(b.s2)) {
        double copy[BLOCK];
        int64_t nan, gone;
        double stand_in = first_finite_f64(x, n);
        clean_64(data, n, 0x7ff0000000000000u, bits64(stand_in), copy, &nan, &gone);
        plain_f64(job, copy, n, stand_in, &b);
        if (is_far_from_mean(&b, n - gone)) {
            stand_in = mean_of(&b, n - gone);
            clean_64(data, n, 0x7ff0000000000000u, bits64(stand_in), copy, &nan, &gone);
            plain_f64(job, copy, n, stand_in, &b);
        }
        without(&b, stand_in, NEAR, nan, gone);
    } else if (is_far_from_mean(&b, n)) {
        plain_f64(job, x, n, mean_of(&b, n), &b);
    }
    if (b.finite && !isfinite(b.s2)) scaled(job, x, n, &b);
    add(job->out, &b);
    if (job->hist) histogram_f64(job, x, n, &b);
}

static void take_halves(Job *job, const void *data, int n) {
    const uint16_t *x = data;
    float wide[BLOCK];
    for (int i = 0; i < n; i++) wide[i] = job->dtype == BF16 ? widen_bfloat(x[i]) : widen_half(x[i]);
    take_f32(job, wide, n);
}

#ifdef HAVE_AVX2_PATH

/* Into the histogram; the zeros come at the end, but it must be known how many there are. */
AVX2 INLINE void count_avx2(Job *job, const void *x, int n, int dtype, const Block *b, int64_t zeros, int64_t below) {
    const int in_pairs = job->pairs && job->pairs->is_open, whole = WHOLE(n);
    Window in;
    int outside = 0;
    if (in_pairs)
        in = job->pairs->window;
    else
        below = count_one_by_one(x, whole, dtype, job->hist, &in);
    for (int i = whole; i < n; i++) {
        const uint32_t bits = bits_at(x, i, dtype);
        zeros -= !(bits & (form_of(dtype).sign - 1));
        count_if_outside(bits, dtype, (Window){0}, job->hist);
    }
    if (below != zeros || is_above(b, in, dtype)) outside = count_outside(x, whole, dtype, in, job->hist);
    if (in_pairs && outside > n / STRANGE) {
        fold_pairs(job->pairs, dtype, job->hist);
        job->pairs = NULL;
    }
    if (job->pairs && !in_pairs && most_of(b)) open_window(job->pairs, b, dtype);
}

/* Blocks that follow one with a NaN or Inf most often have some, too: these are looked for at once. */
AVX2 INLINE void take_avx2(Job *job, const void *x, int n, int dtype) {
    Pairs *pairs = job->pairs && job->pairs->is_open ? job->pairs : NULL;
    Block b;
    int64_t below = 0;
    if (pairs) pairs->counted += n;
    if (!job->not_clean) {
        below = block_of(x, n, dtype, job->shift, pairs, &b);
        pairs = NULL; /* they are counted */
        job->not_clean = !isfinite(b.s2);
        if (!job->not_clean && is_far_from_mean(&b, n)) {
            about_mean(&b, x, n, dtype);
            job->shift = b.shift; /* the next block's mean is most often near it */
        }
    }
    if (job->not_clean) {
        const uint32_t first = first_finite(x, n, dtype);
        if (pairs)
            below = block_of_finite(x, n, dtype, first, pairs, &b);
        else
            block_of_finite(x, n, dtype, first, NULL, &b);
        if (is_far_from_mean(&b, b.finite))
            block_of_finite(x, n, dtype, narrowed(mean_of(&b, b.finite), dtype), NULL, &b);
        job->not_clean = b.nan + b.inf > 0;
    }
    add(job->out, &b);
    if (job->hist) count_avx2(job, x, n, dtype, &b, b.zeros, below);
}

AVX2 static void take_f32_avx2(Job *job, const void *x, int n) { take_avx2(job, x, n, F32); }
AVX2 static void take_f16_avx2(Job *job, const void *x, int n) { take_avx2(job, x, n, F16); }
AVX2 static void take_bf16_avx2(Job *job, const void *x, int n) { take_avx2(job, x, n, BF16); }

#ifdef HAVE_AVX512_PATH
CLEAN(clean_16_avx2, uint16_t, AVX2)
CLEAN(clean_32_avx2, uint32_t, AVX2)

/* With a NaN or Inf, it is a cleaned copy that is taken, and counted. What follows one such block most often is another:
   it is cleaned at once. */
typedef struct {
    uint32_t copy[BLOCK];
    float stand_in;
    int64_t nan, gone;
} Cleaned;

AVX2 INLINE void clean(Job *job, const void *x, int n, int dtype, uint32_t stand_in, Cleaned *to) {
    const uint32_t inf = form_of(dtype).inf;
    if (dtype == F32)
        clean_32_avx2(x, n, inf, stand_in, to->copy, &to->nan, &to->gone);
    else
        clean_16_avx2(x, n, (uint16_t)inf, (uint16_t)stand_in, to->copy, &to->nan, &to->gone);
    to->stand_in = widened(stand_in, dtype);
    job->not_clean = to->gone > 0;
}

INLINE void take_back(Job *job, const Cleaned *from, int dtype, Block *b) {
    without(b, from->stand_in, widened(form_of(dtype).limit, dtype), from->nan, from->gone);
    if (job->hist && from->stand_in != 0) job->hist[bin_of(from->stand_in)] -= from->gone;
}

AVX512 INLINE void count_avx512(Job *job, const void *x, int n, int dtype, const Block *b, int64_t zeros) {
    uint32_t rest[BLOCK + 16];
    if (b->min == 0 && b->max == 0) return; /* zeros come at the end */
    if (job->is_spread) {
        count_avx2(job, x, n, dtype, b, zeros, 0);
        return;
    }
    const int left = count_in_slots(x, n, dtype, b, zeros, job->soon, job->hist, rest);
    if (left) count_avx2(job, rest, left, dtype, b, 0, 0); /* zeros are not left */
    job->is_spread = left > n / 4;
}

AVX512 INLINE void scan_from(
    int source, const void *x, const void *less, void *to, Soon soon, int n, int dtype, double shift, Block *b) {
    if (source == STREAMED)
        block_f32_streamed_512(x, less, to, soon, n, shift, b);
    else if (source == MADE)
        block_f32_made_512(x, less, to, soon, n, shift, b);
    else
        block_512(x, soon, n, dtype, shift, b);
}

AVX512 INLINE void take_from(Job *job, int source, const void *x, const void *less, void *to, int n, int dtype) {
    Cleaned cleaned;
    Block b;
    if (job->not_clean) {
        if (source == STREAMED) memcpy(to, x, (size_t)n * sizeof(float));
        if (source == MADE) subtract_f32_avx512(x, less, n, to);
        if (source == MADE) x = to;
        source = AS_THEY_LIE;
        clean(job, x, n, dtype, first_finite(x, n, dtype), &cleaned);
    }
    if (!job->not_clean) {
        scan_from(source, x, less, to, job->soon, n, dtype, job->shift, &b);
        if (source == MADE) x = to;
        if (!isfinite(b.s2)) clean(job, x, n, dtype, first_finite(x, n, dtype), &cleaned);
    }
    int64_t zeros;
    if (job->not_clean) {
        const int64_t finite = n - cleaned.gone;
        block_512(cleaned.copy, NOTHING_SOON, n, dtype, cleaned.stand_in, &b);
        if (is_far_from_mean(&b, finite)) {
            clean(job, x, n, dtype, narrowed(mean_of(&b, finite), dtype), &cleaned);
            block_512(cleaned.copy, NOTHING_SOON, n, dtype, cleaned.stand_in, &b);
        }
        x = cleaned.copy;
        zeros = b.zeros;
        take_back(job, &cleaned, dtype, &b);
    } else {
        if (is_far_from_mean(&b, n)) {
            block_512(x, NOTHING_SOON, n, dtype, mean_of(&b, n), &b);
            job->shift = b.shift;
        }
        zeros = b.zeros;
    }
    add(job->out, &b);
    if (job->hist) count_avx512(job, x, n, dtype, &b, zeros);
}

AVX512 static void take_f32_streamed_avx512(Job *job, const void *x, void *to, int n) {
    take_from(job, STREAMED, x, NULL, to, n, F32);
}
AVX512 static void take_f32_made_avx512(Job *job, const void *x, const void *less, void *to, int n) {
    take_from(job, MADE, x, less, to, n, F32);
}
AVX512 static void take_f32_avx512(Job *job, const void *x, int n) { take_from(job, AS_THEY_LIE, x, NULL, NULL, n, F32); }
AVX512 static void take_f16_avx512(Job *job, const void *x, int n) { take_from(job, AS_THEY_LIE, x, NULL, NULL, n, F16); }
AVX512 static void take_bf16_avx512(Job *job, const void *x, int n) { take_from(job, AS_THEY_LIE, x, NULL, NULL, n, BF16); }
#endif

/* Zeros are known by now; bins that no value of the dtype is in had what was counted elsewhere. */
static void settle(Job *job) {
    const Form form = form_of(job->dtype);
    const int unused = (int)(form.inf >> form.shift) + form.bias + TO_BIN;
    if (job->pairs && job->pairs->is_open) fold_pairs(job->pairs, job->dtype, job->hist);
    job->hist[ZERO_BIN] = job->out->zeros;
    job->hist[ZERO_BIN + unused] = job->hist[ZERO_BIN - unused] = 0;
}

#endif

#endif
