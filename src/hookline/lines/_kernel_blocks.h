/* One block: the loops that touch every value, in portable C and with AVX2.

   All sums are in double. The values are taken to be finite, which costs nothing to check: a NaN or
   Inf among them makes s2 so, and the caller then comes again with a cleaned copy. */
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

static void widen_halves(const uint16_t *from, int n, float *to) {
    for (int i = 0; i < n; i++) to[i] = widen_half(from[i]);
}

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

AVX2 static double sum_of(__m256d v) {
    __m128d half = _mm_add_pd(_mm256_castpd256_pd128(v), _mm256_extractf128_pd(v, 1));
    return _mm_cvtsd_f64(_mm_add_sd(half, _mm_unpackhi_pd(half, half)));
}

AVX2 static int64_t count_of(__m256i v) {
    int32_t lanes[8];
    int64_t sum = 0;
    _mm256_storeu_si256((__m256i *)lanes, v);
    for (int k = 0; k < 8; k++) sum -= lanes[k]; /* a comparison that holds is -1 */
    return sum;
}

AVX2 static void block_f32_avx2(const float *x, int n, double shift, float limit, Block *out) {
    const __m256 no_sign = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
    const __m256 zero = _mm256_setzero_ps(), near = _mm256_set1_ps(limit);
    const __m256d about = _mm256_set1_pd(shift);
    __m256 low = _mm256_set1_ps(x[0]), high = low;
    __m256i zeros = _mm256_setzero_si256(), nears = zeros;
    __m256d s1a = _mm256_setzero_pd(), s1b = s1a, s2a = s1a, s2b = s1a;
    int i = 0;
    for (; i + 8 <= n; i += 8) {
        __m256 v = _mm256_loadu_ps(x + i);
        __m256d a = _mm256_sub_pd(_mm256_cvtps_pd(_mm256_castps256_ps128(v)), about);
        __m256d b = _mm256_sub_pd(_mm256_cvtps_pd(_mm256_extractf128_ps(v, 1)), about);
        s1a = _mm256_add_pd(s1a, a);
        s1b = _mm256_add_pd(s1b, b);
        s2a = _mm256_fmadd_pd(a, a, s2a);
        s2b = _mm256_fmadd_pd(b, b, s2b);
        low = _mm256_min_ps(low, v);
        high = _mm256_max_ps(high, v);
        zeros = _mm256_add_epi32(zeros, _mm256_castps_si256(_mm256_cmp_ps(v, zero, _CMP_EQ_OQ)));
        nears = _mm256_add_epi32(
            nears, _mm256_castps_si256(_mm256_cmp_ps(_mm256_and_ps(v, no_sign), near, _CMP_LE_OQ)));
    }
    Block rest = {.min = x[0], .max = x[0]};
    if (i < n) block_f32(x + i, n - i, shift, limit, &rest);
    float lows[8], highs[8];
    _mm256_storeu_ps(lows, low);
    _mm256_storeu_ps(highs, high);
    for (int k = 0; k < 8; k++) {
        rest.min = lows[k] < rest.min ? lows[k] : rest.min;
        rest.max = highs[k] > rest.max ? highs[k] : rest.max;
    }
    *out = (Block){.shift = shift,
                   .s1 = sum_of(_mm256_add_pd(s1a, s1b)) + rest.s1,
                   .s2 = sum_of(_mm256_add_pd(s2a, s2b)) + rest.s2,
                   .min = rest.min,
                   .max = rest.max,
                   .finite = n,
                   .zeros = count_of(zeros) + rest.zeros,
                   .near_zero = count_of(nears) + rest.near_zero};
}

AVX2 static void widen_halves_avx2(const uint16_t *from, int n, float *to) {
    int i = 0;
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(from + i))));
    widen_halves(from + i, n - i, to + i);
}

#endif
#endif
