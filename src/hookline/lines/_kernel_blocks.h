/* One block in portable C: the loops that touch every value.

   All sums are in double. The values are taken to be finite, which costs nothing to check: a NaN or
   Inf among them makes s2 so, and the caller then comes again with a copy of the finite ones. */
#ifndef HOOKLINE_BLOCKS_H
#define HOOKLINE_BLOCKS_H

#include "_kernel.h"

#define LANES 4

#define PORTABLE_VALUE(T, v, k)                    \
    do {                                           \
        double d = (double)(v) - shift;            \
        s1[k] += d;                                \
        s2[k] += d * d;                            \
        low[k] = (v) < low[k] ? (v) : low[k];      \
        high[k] = (v) > high[k] ? (v) : high[k];   \
        zeros[k] += (v) == 0;                      \
        near[k] += ((v) <= limit) & ((v) >= -limit);\
    } while (0)

/* LANES independent sums, for the compiler to vectorise: it may not reorder a single one. */
#define PORTABLE_BLOCK(NAME, T, TARGET)                                             \
    TARGET static void NAME(const T *x, int n, double shift, T limit, Block *out) { \
        double s1[LANES] = {0}, s2[LANES] = {0};                                    \
        T low[LANES], high[LANES];                                                  \
        int32_t zeros[LANES] = {0}, near[LANES] = {0};                              \
        for (int k = 0; k < LANES; k++) low[k] = high[k] = x[0];                    \
        int i = 0;                                                                  \
        for (; i + LANES <= n; i += LANES)                                          \
            for (int k = 0; k < LANES; k++) PORTABLE_VALUE(T, x[i + k], k);         \
        for (int k = 0; i < n; i++, k++) PORTABLE_VALUE(T, x[i], k);                \
        *out = (Block){.shift = shift, .min = low[0], .max = high[0], .finite = n}; \
        for (int k = 0; k < LANES; k++) {                                           \
            out->s1 += s1[k];                                                       \
            out->s2 += s2[k];                                                       \
            out->min = low[k] < out->min ? low[k] : out->min;                       \
            out->max = high[k] > out->max ? high[k] : out->max;                     \
            out->zeros += zeros[k];                                                 \
            out->near_zero += near[k];                                              \
        }                                                                           \
    }

PORTABLE_BLOCK(block_f32, float, )
PORTABLE_BLOCK(block_f64, double, )

/* Counters by the top bits of an fp32 number: sign, exponent and the mantissa bits of the bins. Four of
   each, or neighbours that are alike (the zeros behind a ReLU) would wait for each other's store. */
#define KEY_SHIFT (23 - MANTISSA_BITS)
#define KEYS (1 << (32 - KEY_SHIFT))
#define COPIES 4
#define PADDING 48 /* or the copies of one counter are 4096 bytes apart, which the processor takes for the same address */
typedef uint32_t Tally[COPIES][KEYS + PADDING];

#define FIRST_KEY (1 << MANTISSA_BITS) /* keys of exponent 0: zeros and denormals */
#define END_KEY (255 << MANTISSA_BITS) /* keys of exponent 255: Inf and NaN */

static inline uint32_t key_f32(float x) { return bits32(x) >> KEY_SHIFT; }

/* The key that the value has as fp32; the first and last ones take what fp32 does not have. */
static inline uint32_t key_f64(double x) {
    uint64_t u = bits64(x);
    int32_t key = (int32_t)(u >> (52 - MANTISSA_BITS) & ((1u << (11 + MANTISSA_BITS)) - 1));
    key -= (1023 - 127) << MANTISSA_BITS;
    key = key < 0 ? 0 : key;
    key = key > END_KEY ? END_KEY : key;
    return (uint32_t)(u >> 63) * (KEYS / 2) + (uint32_t)key;
}

static void tally_f32(const float *x, int n, Tally counts) {
    int i = 0;
    for (; i + 4 <= n; i += 4) {
        PREFETCH(x + i + BLOCK); /* this loop reads what is in the cache; memory works on the next block */
        uint64_t a, b;           /* two values a load: half the loads */
        memcpy(&a, x + i, 8);
        memcpy(&b, x + i + 2, 8);
        counts[0][(uint32_t)a >> KEY_SHIFT]++;
        counts[1][a >> (32 + KEY_SHIFT)]++;
        counts[2][(uint32_t)b >> KEY_SHIFT]++;
        counts[3][b >> (32 + KEY_SHIFT)]++;
    }
    for (; i < n; i++) counts[0][key_f32(x[i])]++;
}

static void tally_f64(const double *x, int n, Tally counts) {
    for (int i = 0; i < n; i++) counts[i % COPIES][key_f64(x[i])]++;
}

#ifdef HAVE_AVX2_PATH
PORTABLE_BLOCK(block_f64_avx2, double, AVX2)
#endif

/* A copy of a block, by its bits, in which another value stands for each that is not finite. Counts those. */
#define CLEAN(NAME, U, TARGET)                                                                                      \
    TARGET static inline void NAME(const void *x, int n, U inf, U stand_in, void *to, int64_t *nan, int64_t *gone) { \
        const U magnitude = (U)-1 >> 1;                                                                             \
        int nans = 0, bad = 0;                                                                                      \
        for (int i = 0; i < n; i++) {                                                                               \
            U bits;                                                                                                 \
            memcpy(&bits, (const U *)x + i, sizeof bits);                                                           \
            const U size = bits & magnitude;                                                                        \
            nans += size > inf;                                                                                     \
            bad += size >= inf;                                                                                     \
            bits = size >= inf ? stand_in : bits;                                                                   \
            memcpy((U *)to + i, &bits, sizeof bits);                                                                \
        }                                                                                                           \
        *nan = nans;                                                                                                \
        *gone = bad;                                                                                                \
    }

CLEAN(clean_32, uint32_t, )
CLEAN(clean_64, uint64_t, )

/* The first finite value of a block, or 0. It stands for those that are not: it adds nothing to moments about itself, and
   is between the extremes. So is the mean, rounded to the dtype, where it is the first value that is far from the others. */
#define FIRST_FINITE(NAME, T)                 \
    static T NAME(const T *x, int n) {        \
        for (int i = 0; i < n; i++)           \
            if (isfinite(x[i])) return x[i];  \
        return 0;                             \
    }
FIRST_FINITE(first_finite_f32, float)
FIRST_FINITE(first_finite_f64, double)

#define SPREAD 16 /* where the squares are so many times their deviations, they are taken about the mean */

INLINE int is_far_from_mean(const Block *b, int64_t n) { return b->s2 > SPREAD * (b->s2 - b->s1 * (b->s1 / (double)n)); }
INLINE double mean_of(const Block *b, int64_t n) { return b->shift + b->s1 / (double)n; }

/* Takes back what the stand-ins of a cleaned block were counted for. They are what the moments are about, and so added
   nothing to these. */
static void without(Block *b, double stand_in, double limit, int64_t nan, int64_t gone) {
    b->finite -= gone;
    b->nan = nan;
    b->inf = gone - nan;
    if (stand_in == 0) b->zeros -= gone;
    if (stand_in <= limit && stand_in >= -limit) b->near_zero -= gone;
}

/* Differences, rounded as the dtype has them. */
#define SUBTRACT(NAME, T, WIDEN, NARROW, TARGET)                                              \
    TARGET static void NAME(const void *from, const void *less, int n, void *to) {            \
        const T *x = from, *y = less;                                                         \
        T *d = to;                                                                            \
        for (int i = 0; i < n; i++) d[i] = NARROW(WIDEN(x[i]) - WIDEN(y[i]));                 \
    }
#define AS_IT_IS(x) (x)

SUBTRACT(subtract_f32, float, AS_IT_IS, AS_IT_IS, )
SUBTRACT(subtract_f64, double, AS_IT_IS, AS_IT_IS, )
SUBTRACT(subtract_f16, uint16_t, widen_half, narrow_half, )
SUBTRACT(subtract_bf16, uint16_t, widen_bfloat, narrow_bfloat, )

#endif
