/* What the files of the kernel share: the result, the bins, the parts of one block. Plain C11. */
#ifndef HOOKLINE_KERNEL_H
#define HOOKLINE_KERNEL_H

#include <float.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#if (defined(__x86_64__) || defined(__i386__)) && (defined(__GNUC__) || defined(__clang__))
#define HAVE_AVX2_PATH 1
#include <immintrin.h>
#define AVX2 __attribute__((target("avx2,fma,f16c")))
#endif

/* What processors since Ice Lake and Zen 4 have. Older ones with AVX-512 slow down where it is used, and take AVX2. */
#if defined(HAVE_AVX2_PATH) && defined(__x86_64__) && (defined(__clang__) ? __clang_major__ >= 9 : __GNUC__ >= 9)
#define HAVE_AVX512_PATH 1
#ifndef AVX512 /* tests/lines/avx512_by_avx2.h has another one */
#define AVX512                                                                                                       \
    __attribute__((target("avx2,fma,f16c,bmi2,popcnt,avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vbmi2,avx512bitalg," \
                          "avx512vpopcntdq,gfni")))
#endif
#endif

#if defined(__GNUC__) || defined(__clang__)
#define PREFETCH(address) __builtin_prefetch(address)
#define INLINE static inline __attribute__((always_inline))
#else
#define PREFETCH(address)
#define INLINE static inline
#endif

#ifdef _WIN32
#define API __declspec(dllexport)
#else
#define API __attribute__((visibility("default")))
#endif

/* The layout of Header in kernel.py, and of the bins in bins.py; ABI grows with every change. */
#define ABI 5

enum { F32 = 0, F64 = 1, F16 = 2, BF16 = 3, BYTES = 4 };
enum { BASELINE = 1, AVX2_LEVEL = 2, AVX512_LEVEL = 3 };

/* How a call is to be done, in one number, for every argument of a ctypes call costs time. */
#define DTYPE_OF(how) ((how) & 15)
#define LEVEL_OF(how) ((how) >> 4 & 15)
#define WITH_HISTOGRAM(how) ((how) >> 8 & 1)

#define MANTISSA_BITS 1
#define LOWEST (-149)                                        /* exponent of the smallest fp32 number */
#define HIGHEST 127                                          /* exponent of the largest */
#define SIDE (((HIGHEST - LOWEST + 1) << MANTISSA_BITS) + 2) /* bins of one sign: two are open ends */
#define BINS (2 * SIDE + 1)
#define ZERO_BIN SIDE

typedef struct {
    double mean, m2, min, max; /* of the finite values; 0, 0, inf, -inf where there are none */
    int64_t finite, zeros, near_zero, nan, inf;
} Header;

/* A result is a Header and, where a histogram is asked for, BINS counters right behind it. */
#define HIST(header) ((int64_t *)((header) + 1))

/* The moments of a block are taken about `shift`: s1 = sum(x - shift), s2 = sum((x - shift)^2). If that is one of its
   values, s2 - s1^2/n loses at most a factor n of double precision, whatever the mean. */
typedef struct {
    double shift, s1, s2, min, max;
    int64_t finite, zeros, near_zero, nan, inf;
} Block;

#define BLOCK 4096 /* values: 16 KB of fp32, half of a first-level cache */
#define NEAR 0.05

static inline uint32_t bits32(float x) {
    uint32_t u;
    memcpy(&u, &x, 4);
    return u;
}

static inline uint64_t bits64(double x) {
    uint64_t u;
    memcpy(&u, &x, 8);
    return u;
}

static inline float float_of(uint32_t u) {
    float x;
    memcpy(&x, &u, 4);
    return x;
}

static inline double double_of(uint64_t u) {
    double x;
    memcpy(&x, &u, 8);
    return x;
}

/* The bin of a finite value; for NaN and Inf, -1. Every dtype's values fit a double, so that this is the definition. */
static inline int bin_of(double x) {
    uint64_t u = bits64(x);
    int exponent = (int)(u >> 52 & 0x7ff) - 1023;
    int magnitude;
    if (exponent == 1024) return -1;
    if (!(u << 1)) return ZERO_BIN;
    if (exponent < LOWEST) {
        magnitude = 1;
    } else if (exponent > HIGHEST) {
        magnitude = SIDE;
    } else {
        magnitude = 2 + ((exponent - LOWEST) << MANTISSA_BITS);
        magnitude += (int)(u >> (52 - MANTISSA_BITS)) & ((1 << MANTISSA_BITS) - 1);
    }
    return u >> 63 ? ZERO_BIN - magnitude : ZERO_BIN + magnitude;
}

static inline float widen_half(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = h >> 10 & 31, mantissa = h & 1023;
    if (exponent == 31) return float_of(sign | 0x7f800000u | mantissa << 13);
    if (exponent) return float_of(sign | (exponent + 112) << 23 | mantissa << 13);
    float tiny = (float)mantissa * 0x1p-24f;
    return sign ? -tiny : tiny;
}

static inline float widen_bfloat(uint16_t h) { return float_of((uint32_t)h << 16); }

/* To the nearest, to the even one of two. */
static inline uint16_t narrow_bfloat(float x) {
    uint32_t u = bits32(x);
    if (x != x) return 0x7fc0;
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

static inline uint16_t narrow_half(float x) {
    uint32_t u = bits32(x), size = u & 0x7fffffff, sign = u >> 16 & 0x8000;
    if (x != x) return 0x7e00;
    if (size >= 0x47800000) return (uint16_t)(sign | 0x7c00);
    if (size < 0x38800000) /* a denormal: 0.5 has the last place that a half has there, so that the sum is rounded to it */
        return (uint16_t)(sign | (bits32(float_of(size) + 0.5f) - bits32(0.5f)));
    return (uint16_t)(sign | (size + 0xfff + (size >> 13 & 1) - (112u << 23)) >> 13);
}

#endif
