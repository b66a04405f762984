/* AVX-512 value by value, for processors that have AVX2 alone: with `-include` of this file, the kernel's path for AVX-512
   is compiled and tested on these, too. Slow, and made to be read beside Intel's descriptions. A sanitizer sees every
   value that is loaded or stored, where it knows nothing of masked instructions.

   A name that the kernel uses and this file lacks does not compile: __m512i is another type here. */
#ifndef AVX512_BY_AVX2_H
#define AVX512_BY_AVX2_H

#ifdef __x86_64__
#include <immintrin.h>
#include <stdint.h>
#include <string.h>

/* What _kernel.h and _kernel.c have otherwise. All processors with AVX2 have the rest of these. */
#define AVX512 __attribute__((target("avx2,fma,f16c,bmi2,popcnt")))
#define HAS(feature) __builtin_cpu_supports("avx2")

/* Not inline: the compiler would take minutes. */
#define EMULATED AVX512 static __attribute__((noinline, unused))

typedef union {
    double f64[8];
    float f32[16];
    uint64_t u64[8];
    uint32_t u32[16];
    int32_t i32[16];
    uint16_t u16[32];
    int16_t i16[32];
    uint8_t u8[64];
    __m256i half[2];
} Register512;

#define __m512 Register512
#define __m512d Register512
#define __m512i Register512

/* So the functions below have names of their own, and are called by Intel's. */
#define _mm256_maskz_loadu_ps emulated_256_maskz_loadu_ps
#define _mm512_add_epi64 emulated_add_epi64
#define _mm512_add_epi8 emulated_add_epi8
#define _mm512_add_pd emulated_add_pd
#define _mm512_and_si512 emulated_and_si512
#define _mm512_castps_si512 emulated_castps_si512
#define _mm512_castsi512_ps emulated_castsi512_ps
#define _mm512_castsi512_si256 emulated_castsi512_si256
#define _mm512_cmpgt_epi16_mask emulated_cmpgt_epi16_mask
#define _mm512_cmpgt_epi32_mask emulated_cmpgt_epi32_mask
#define _mm512_cvtph_ps emulated_cvtph_ps
#define _mm512_cvtps_pd emulated_cvtps_pd
#define _mm512_extracti64x4_epi64 emulated_extracti64x4_epi64
#define _mm512_fmadd_pd emulated_fmadd_pd
#define _mm512_gf2p8affine_epi64_epi8 emulated_gf2p8affine_epi64_epi8
#define _mm512_loadu_si512 emulated_loadu_si512
#define _mm512_mask_max_epi16 emulated_mask_max_epi16
#define _mm512_mask_max_ps emulated_mask_max_ps
#define _mm512_mask_min_epu16 emulated_mask_min_epu16
#define _mm512_mask_min_ps emulated_mask_min_ps
#define _mm512_mask_mov_epi16 emulated_mask_mov_epi16
#define _mm512_mask_storeu_ps emulated_mask_storeu_ps
#define _mm512_maskz_compress_epi16 emulated_maskz_compress_epi16
#define _mm512_maskz_compress_epi32 emulated_maskz_compress_epi32
#define _mm512_maskz_loadu_epi16 emulated_maskz_loadu_epi16
#define _mm512_maskz_loadu_epi32 emulated_maskz_loadu_epi32
#define _mm512_maskz_loadu_epi8 emulated_maskz_loadu_epi8
#define _mm512_maskz_loadu_ps emulated_maskz_loadu_ps
#define _mm512_maskz_srli_epi16 emulated_maskz_srli_epi16
#define _mm512_maskz_sub_epi16 emulated_maskz_sub_epi16
#define _mm512_maskz_sub_pd emulated_maskz_sub_pd
#define _mm512_max_epu16 emulated_max_epu16
#define _mm512_max_ps emulated_max_ps
#define _mm512_min_ps emulated_min_ps
#define _mm512_or_si512 emulated_or_si512
#define _mm512_permutexvar_epi8 emulated_permutexvar_epi8
#define _mm512_popcnt_epi64 emulated_popcnt_epi64
#define _mm512_popcnt_epi8 emulated_popcnt_epi8
#define _mm512_reduce_add_epi64 emulated_reduce_add_epi64
#define _mm512_reduce_add_pd emulated_reduce_add_pd
#define _mm512_reduce_max_ps emulated_reduce_max_ps
#define _mm512_reduce_min_ps emulated_reduce_min_ps
#define _mm512_rolv_epi64 emulated_rolv_epi64
#define _mm512_set1_epi16 emulated_set1_epi16
#define _mm512_set1_epi32 emulated_set1_epi32
#define _mm512_set1_epi64 emulated_set1_epi64
#define _mm512_set1_pd emulated_set1_pd
#define _mm512_set_epi64 emulated_set_epi64
#define _mm512_setzero_pd emulated_setzero_pd
#define _mm512_setzero_si512 emulated_setzero_si512
#define _mm512_slli_epi32 emulated_slli_epi32
#define _mm512_srli_epi32 emulated_srli_epi32
#define _mm512_storeu_ps emulated_storeu_ps
#define _mm512_storeu_si512 emulated_storeu_si512
#define _mm512_stream_ps emulated_stream_ps
#define _mm512_sub_ps emulated_sub_ps
#define _mm512_ternarylogic_epi32 emulated_ternarylogic_epi32
#define _mm512_ternarylogic_epi64 emulated_ternarylogic_epi64
#define _mm512_test_epi16_mask emulated_test_epi16_mask
#define _mm512_testn_epi16_mask emulated_testn_epi16_mask
#define _mm512_testn_epi32_mask emulated_testn_epi32_mask

/* Lane i of the result is VALUE. */
#define LANES(NAME, ARGUMENTS, LANE, VALUE)                                                    \
    EMULATED Register512 NAME ARGUMENTS {                                                      \
        Register512 to;                                                                        \
        for (int i = 0; i < (int)(sizeof to / sizeof to.LANE[0]); i++) to.LANE[i] = VALUE;     \
        return to;                                                                             \
    }

/* Bit i of the result tells whether HOLDS. */
#define BITS(NAME, ARGUMENTS, MASK, HOLDS)                                                     \
    EMULATED MASK NAME ARGUMENTS {                                                             \
        MASK to = 0;                                                                           \
        for (int i = 0; i < 8 * (int)sizeof to; i++) to = (MASK)(to | (uint32_t)(HOLDS) << i); \
        return to;                                                                             \
    }

#define IS_IN(mask) ((mask) >> i & 1)
#define TWO (Register512 a, Register512 b)

/* The second one if they are equal, as zeros of both signs are, or if one is NaN. */
#define MAX(a, b) ((a) > (b) ? (a) : (b))
#define MIN(a, b) ((a) < (b) ? (a) : (b))

LANES(_mm512_setzero_pd, (void), f64, 0)
LANES(_mm512_setzero_si512, (void), u64, 0)
LANES(_mm512_set1_epi16, (short x), i16, x)
LANES(_mm512_set1_epi32, (int x), i32, x)
LANES(_mm512_set1_epi64, (long long x), u64, (uint64_t)x)
LANES(_mm512_set1_pd, (double x), f64, x)

/* The last argument is the lowest lane. */
EMULATED Register512 _mm512_set_epi64(
    long long h, long long g, long long f, long long e, long long d, long long c, long long b, long long a) {
    const long long lanes[8] = {a, b, c, d, e, f, g, h};
    Register512 to;
    memcpy(&to, lanes, sizeof to);
    return to;
}

EMULATED Register512 _mm512_castps_si512(Register512 a) { return a; }
EMULATED Register512 _mm512_castsi512_ps(Register512 a) { return a; }
EMULATED __m256i _mm512_castsi512_si256(Register512 a) { return a.half[0]; }
EMULATED __m256i _mm512_extracti64x4_epi64(Register512 a, int which) { return a.half[which]; }

LANES(_mm512_and_si512, TWO, u64, a.u64[i] & b.u64[i])
LANES(_mm512_or_si512, TWO, u64, a.u64[i] | b.u64[i])
LANES(_mm512_add_epi64, TWO, u64, a.u64[i] + b.u64[i])
LANES(_mm512_add_epi8, TWO, u8, (uint8_t)(a.u8[i] + b.u8[i]))
LANES(_mm512_max_epu16, TWO, u16, MAX(a.u16[i], b.u16[i]))
LANES(_mm512_mask_max_epi16, (Register512 or, __mmask32 k, Register512 a, Register512 b), i16,
      IS_IN(k) ? MAX(a.i16[i], b.i16[i]) : or.i16[i])
LANES(_mm512_mask_min_epu16, (Register512 or, __mmask32 k, Register512 a, Register512 b), u16,
      IS_IN(k) ? MIN(a.u16[i], b.u16[i]) : or.u16[i])
LANES(_mm512_mask_mov_epi16, (Register512 or, __mmask32 k, Register512 a), u16, IS_IN(k) ? a.u16[i] : or.u16[i])
LANES(_mm512_maskz_sub_epi16, (__mmask32 k, Register512 a, Register512 b), u16,
      IS_IN(k) ? (uint16_t)(a.u16[i] - b.u16[i]) : 0)

/* Shifts by all of a lane's bits or more leave nothing; turns are by what a count is beyond whole ones. */
LANES(_mm512_slli_epi32, (Register512 a, unsigned by), u32, by < 32 ? a.u32[i] << by : 0)
LANES(_mm512_srli_epi32, (Register512 a, unsigned by), u32, by < 32 ? a.u32[i] >> by : 0)
LANES(_mm512_maskz_srli_epi16, (__mmask32 k, Register512 a, unsigned by), u16,
      IS_IN(k) && by < 16 ? (uint16_t)(a.u16[i] >> by) : 0)
LANES(_mm512_rolv_epi64, TWO, u64, a.u64[i] << (b.u64[i] & 63) | a.u64[i] >> (-b.u64[i] & 63))

LANES(_mm512_popcnt_epi64, (Register512 a), u64, (uint64_t)__builtin_popcountll(a.u64[i]))
LANES(_mm512_popcnt_epi8, (Register512 a), u8, (uint8_t)__builtin_popcount(a.u8[i]))
LANES(_mm512_permutexvar_epi8, (Register512 at, Register512 a), u8, a.u8[at.u8[i] & 63])

/* Three bits, the first one of them the highest, are the number of a bit of `table`. */
EMULATED uint64_t by_table(uint64_t a, uint64_t b, uint64_t c, int table) {
    uint64_t to = 0;
    for (int k = 0; k < 8; k++)
        if (table >> k & 1) to |= (k & 4 ? a : ~a) & (k & 2 ? b : ~b) & (k & 1 ? c : ~c);
    return to;
}
LANES(_mm512_ternarylogic_epi64, (Register512 a, Register512 b, Register512 c, int table), u64,
      by_table(a.u64[i], b.u64[i], c.u64[i], table))
LANES(_mm512_ternarylogic_epi32, (Register512 a, Register512 b, Register512 c, int table), u64,
      by_table(a.u64[i], b.u64[i], c.u64[i], table))

/* A byte times a matrix of bits: bit k of the product is that of line 7 - k, the sum of the bits that both have. */
EMULATED uint8_t times(uint8_t byte, const uint8_t *lines, int plus) {
    int to = 0;
    for (int k = 0; k < 8; k++) to |= __builtin_parity(byte & lines[7 - k]) << k;
    return (uint8_t)(to ^ plus);
}
LANES(_mm512_gf2p8affine_epi64_epi8, (Register512 a, Register512 matrices, int plus), u8,
      times(a.u8[i], matrices.u8 + i / 8 * 8, plus))

#define COMPRESS(NAME, LANE, MASK)                                        \
    EMULATED Register512 NAME(MASK k, Register512 a) {                    \
        Register512 to = {{0}};                                           \
        int found = 0;                                                    \
        for (int i = 0; i < 8 * (int)sizeof k; i++)                       \
            if (IS_IN(k)) to.LANE[found++] = a.LANE[i];                   \
        return to;                                                        \
    }
COMPRESS(_mm512_maskz_compress_epi16, u16, __mmask32)
COMPRESS(_mm512_maskz_compress_epi32, u32, __mmask16)

BITS(_mm512_cmpgt_epi16_mask, TWO, __mmask32, a.i16[i] > b.i16[i])
BITS(_mm512_cmpgt_epi32_mask, TWO, __mmask16, a.i32[i] > b.i32[i])
BITS(_mm512_test_epi16_mask, TWO, __mmask32, (a.u16[i] & b.u16[i]) != 0)
BITS(_mm512_testn_epi16_mask, TWO, __mmask32, (a.u16[i] & b.u16[i]) == 0)
BITS(_mm512_testn_epi32_mask, TWO, __mmask16, (a.u32[i] & b.u32[i]) == 0)

LANES(_mm512_add_pd, TWO, f64, a.f64[i] + b.f64[i])
LANES(_mm512_maskz_sub_pd, (__mmask8 k, Register512 a, Register512 b), f64, IS_IN(k) ? a.f64[i] - b.f64[i] : 0)
LANES(_mm512_fmadd_pd, (Register512 a, Register512 b, Register512 c), f64, __builtin_fma(a.f64[i], b.f64[i], c.f64[i]))
LANES(_mm512_sub_ps, TWO, f32, a.f32[i] - b.f32[i])
LANES(_mm512_max_ps, TWO, f32, MAX(a.f32[i], b.f32[i]))
LANES(_mm512_min_ps, TWO, f32, MIN(a.f32[i], b.f32[i]))
LANES(_mm512_mask_max_ps, (Register512 or, __mmask16 k, Register512 a, Register512 b), f32,
      IS_IN(k) ? MAX(a.f32[i], b.f32[i]) : or.f32[i])
LANES(_mm512_mask_min_ps, (Register512 or, __mmask16 k, Register512 a, Register512 b), f32,
      IS_IN(k) ? MIN(a.f32[i], b.f32[i]) : or.f32[i])

EMULATED Register512 _mm512_cvtps_pd(__m256 a) {
    Register512 to;
    float lanes[8];
    memcpy(lanes, &a, sizeof lanes);
    for (int i = 0; i < 8; i++) to.f64[i] = lanes[i];
    return to;
}

EMULATED Register512 _mm512_cvtph_ps(__m256i a) {
    const __m256 parts[2] = {_mm256_cvtph_ps(_mm256_castsi256_si128(a)), _mm256_cvtph_ps(_mm256_extracti128_si256(a, 1))};
    Register512 to;
    memcpy(&to, parts, sizeof to);
    return to;
}

/* The upper half onto the lower one, until one lane is left. */
#define ACROSS(NAME, T, LANE, OF)                                                            \
    EMULATED T NAME(Register512 a) {                                                         \
        for (int left = (int)(sizeof a / sizeof(T)) / 2; left; left /= 2)                    \
            for (int i = 0; i < left; i++) a.LANE[i] = OF(a.LANE[i], a.LANE[left + i]);      \
        return (T)a.LANE[0];                                                                 \
    }
#define PLUS(a, b) ((a) + (b))
ACROSS(_mm512_reduce_add_epi64, long long, u64, PLUS)
ACROSS(_mm512_reduce_add_pd, double, f64, PLUS)
ACROSS(_mm512_reduce_max_ps, float, f32, MAX)
ACROSS(_mm512_reduce_min_ps, float, f32, MIN)

/* Memory of lanes that are masked is not touched. */
#define MASKED_LOAD(NAME, LANE, MASK)                                                                       \
    EMULATED Register512 NAME(MASK k, const void *from) {                                                   \
        Register512 to = {{0}};                                                                             \
        for (int i = 0; i < 8 * (int)sizeof k; i++)                                                         \
            if (IS_IN(k)) memcpy(to.LANE + i, (const char *)from + i * sizeof to.LANE[0], sizeof to.LANE[0]); \
        return to;                                                                                          \
    }
MASKED_LOAD(_mm512_maskz_loadu_epi8, u8, __mmask64)
MASKED_LOAD(_mm512_maskz_loadu_epi16, u16, __mmask32)
MASKED_LOAD(_mm512_maskz_loadu_epi32, u32, __mmask16)
MASKED_LOAD(_mm512_maskz_loadu_ps, f32, __mmask16)

EMULATED __m256 _mm256_maskz_loadu_ps(__mmask8 k, const void *from) {
    float lanes[8] = {0};
    for (int i = 0; i < 8; i++)
        if (IS_IN(k)) memcpy(lanes + i, (const float *)from + i, sizeof lanes[0]);
    return _mm256_loadu_ps(lanes);
}

EMULATED void _mm512_mask_storeu_ps(void *to, __mmask16 k, Register512 a) {
    for (int i = 0; i < 16; i++)
        if (IS_IN(k)) memcpy((float *)to + i, a.f32 + i, sizeof a.f32[0]);
}

EMULATED Register512 _mm512_loadu_si512(const void *from) {
    Register512 to;
    memcpy(&to, from, sizeof to);
    return to;
}

EMULATED void _mm512_storeu_si512(void *to, Register512 a) { memcpy(to, &a, sizeof a); }
EMULATED void _mm512_storeu_ps(void *to, Register512 a) { memcpy(to, &a, sizeof a); }

/* It ends the process where memory is not that of a whole cache line, as a processor does. */
EMULATED void _mm512_stream_ps(void *to, Register512 a) {
    if ((uintptr_t)to % sizeof a) __builtin_trap();
    memcpy(to, &a, sizeof a);
}

#undef LANES
#undef BITS
#undef IS_IN
#undef TWO
#undef MAX
#undef MIN
#undef COMPRESS
#undef ACROSS
#undef PLUS
#undef MASKED_LOAD

#endif
#endif
