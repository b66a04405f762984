/* One block with AVX-512, of fp32, fp16 or bf16 as they lie in memory; its histogram is in _kernel_slots.h.

   - Moments as with AVX2: in double, about 0, or about the mean where that is far away.
   - Only two ports of a processor work on 512 bits, and they are what limits. So comparisons give a bit for each value,
     which is stored, by other ports, and counted at the end of the block.
   - What is left at the end of a tensor is taken by the same code, with the other lanes masked. */
#ifndef HOOKLINE_AVX512_H
#define HOOKLINE_AVX512_H

#include "_kernel_avx2.h"

#ifdef HAVE_AVX512_PATH

#define WIDE 32 /* values that a loop takes at a time */
#define ALL 0xffffffffu

SUBTRACT(subtract_f32_avx512, float, AS_IT_IS, AS_IT_IS, AVX512)

/* The first n of WIDE values, as bits; and the same of values whose even ones come first. */
INLINE uint32_t first_of(int n) { return n >= WIDE ? ALL : (1u << n) - 1; }
INLINE uint32_t evens_of(int n) { return ((1u << (n + 1) / 2) - 1) | ((1u << n / 2) - 1) << 16; }

/* A bit for each value of a block. */
typedef struct {
    uint16_t of[BLOCK / 16];
} Marks;

/* How many of the first n are set, with those of the lanes behind the last value. */
AVX512 INLINE int marked(const Marks *marks, int n) {
    const int bytes = (n + WIDE - 1) / WIDE * (WIDE / 8);
    __m512i sum = _mm512_setzero_si512();
    for (int from = 0; from < bytes; from += 64) {
        const __mmask64 there = bytes - from >= 64 ? ~0ull : (1ull << (bytes - from)) - 1;
        __m512i bits = _mm512_maskz_loadu_epi8(there, (const char *)marks->of + from);
        sum = _mm512_add_epi64(sum, _mm512_popcnt_epi64(bits));
    }
    return (int)_mm512_reduce_add_epi64(sum);
}

INLINE int lanes_behind(int n) { return (WIDE - n % WIDE) % WIDE; }

/* Four of each kind, as their latency asks for; with names, or the compiler would keep them in memory. */
typedef struct {
    __m512d s1, s2;
} Sum512;

typedef struct {
    Sum512 a, b, c, d;
} Sums512;

AVX512 INLINE void sum_eight(Sum512 *s, const float *x, uint32_t which, int about, __m512d shift) {
    const __mmask8 some = (__mmask8)which;
    __m512d v = _mm512_cvtps_pd(_mm256_maskz_loadu_ps(some, x));
    if (about) v = _mm512_maskz_sub_pd(some, v, shift);
    s->s1 = _mm512_add_pd(s->s1, v);
    s->s2 = _mm512_fmadd_pd(v, v, s->s2);
}

/* Takes the `which` of WIDE floats. */
AVX512 INLINE void sum_wide(Sums512 *s, const float *x, uint32_t which, int about, __m512d shift) {
    sum_eight(&s->a, x, which, about, shift);
    sum_eight(&s->b, x + 8, which >> 8, about, shift);
    sum_eight(&s->c, x + 16, which >> 16, about, shift);
    sum_eight(&s->d, x + 24, which >> 24, about, shift);
}

AVX512 INLINE void put_sums_512(Block *b, const Sums512 *s) {
    __m512d s1 = _mm512_add_pd(_mm512_add_pd(s->a.s1, s->b.s1), _mm512_add_pd(s->c.s1, s->d.s1));
    __m512d s2 = _mm512_add_pd(_mm512_add_pd(s->a.s2, s->b.s2), _mm512_add_pd(s->c.s2, s->d.s2));
    b->s1 = _mm512_reduce_add_pd(s1);
    b->s2 = _mm512_reduce_add_pd(s2);
}

/* As in Found. */
typedef struct {
    __m512i high, low, least;
} Extremes;

AVX512 INLINE Extremes before_all(int dtype) {
    const __m512i none = _mm512_setzero_si512(), infinite = _mm512_set1_epi32((int)form_of(F32).inf);
    if (dtype != F32) return (Extremes){_mm512_set1_epi16(INT16_MIN), none, _mm512_set1_epi16(INT16_MAX)};
    return (Extremes){_mm512_or_si512(infinite, _mm512_set1_epi32((int)form_of(F32).sign)), infinite, none};
}

/* Looks at the `some` of 16 floats; the others are zeros. */
AVX512 INLINE void look_f32_512(__m512 v, __mmask16 some, Extremes *e, uint16_t *zeros, uint16_t *far) {
    const __m512i magnitude = _mm512_set1_epi32(0x7fffffff), limit = _mm512_set1_epi32((int)form_of(F32).limit);
    __m512 high = _mm512_castsi512_ps(e->high), low = _mm512_castsi512_ps(e->low);
    __m512i bits = _mm512_castps_si512(v);
    e->high = _mm512_castps_si512(_mm512_mask_max_ps(high, some, v, high));
    e->low = _mm512_castps_si512(_mm512_mask_min_ps(low, some, v, low));
    *zeros = _mm512_testn_epi32_mask(bits, magnitude);
    *far = _mm512_cmpgt_epi32_mask(_mm512_and_si512(bits, magnitude), limit);
}

/* Halves are also widened, bfloats with the even ones first. */
AVX512 INLINE void look_wide_halves(
    const uint16_t *x, uint32_t which, int dtype, Extremes *e, uint16_t *zeros, uint16_t *far, float *wide) {
    __m512i bits = _mm512_maskz_loadu_epi16(which, x), size = _mm512_and_si512(bits, _mm512_set1_epi16(0x7fff));
    const __mmask32 is_zero = _mm512_testn_epi16_mask(size, size);
    const __mmask32 is_far = _mm512_cmpgt_epi16_mask(size, _mm512_set1_epi16((short)form_of(dtype).limit));
    e->high = _mm512_mask_max_epi16(e->high, which, e->high, bits);
    e->low = _mm512_max_epu16(e->low, bits);
    e->least = _mm512_mask_min_epu16(e->least, which, e->least, size);
    memcpy(zeros, &is_zero, sizeof is_zero);
    memcpy(far, &is_far, sizeof is_far);
    if (dtype == BF16) {
        _mm512_storeu_si512(wide, _mm512_slli_epi32(bits, 16));
        _mm512_storeu_si512(wide + 16, _mm512_and_si512(bits, _mm512_set1_epi32((int)0xffff0000u)));
    } else {
        _mm512_storeu_ps(wide, _mm512_cvtph_ps(_mm512_castsi512_si256(bits)));
        _mm512_storeu_ps(wide + 16, _mm512_cvtph_ps(_mm512_extracti64x4_epi64(bits, 1)));
    }
}

#define TWO_PARTS(v) _mm512_castsi512_si256(v), _mm512_extracti64x4_epi64(v, 1)

/* What a scan gathers: sums and extremes in registers, marks in memory. */
typedef struct {
    Sums512 sums;
    Extremes extremes, others; /* fp32 has them in turn: to wait for one after the other would take longer */
} Gathered;

typedef struct {
    Marks zeros, far;
} Marked;

AVX512 INLINE void put_extremes_512(Block *b, const Gathered *g, int dtype) {
    const Extremes *e = &g->extremes, *o = &g->others;
    if (dtype == F32) {
        b->max = _mm512_reduce_max_ps(_mm512_max_ps(_mm512_castsi512_ps(e->high), _mm512_castsi512_ps(o->high)));
        b->min = _mm512_reduce_min_ps(_mm512_min_ps(_mm512_castsi512_ps(e->low), _mm512_castsi512_ps(o->low)));
    } else {
        const Found f = {
            .high = _mm256_max_epi16(TWO_PARTS(e->high)),
            .low = _mm256_max_epu16(TWO_PARTS(e->low)),
            .least = _mm256_min_epu16(TWO_PARTS(e->least))};
        put_extremes(b, &f, dtype);
    }
}

/* Where the next block lies, and what is subtracted from it; NULL where there is none, or nobody is to fetch it. */
typedef struct {
    const char *of[2];
} Soon;
#define NOTHING_SOON ((Soon){{NULL, NULL}})

/* Into the second cache: the first one is full of this block, what is made of it, and its slots. */
#define FETCH_SOON(address) __builtin_prefetch(address, 0, 2)

/* Where the floats of a scan come from, and go to: they lie at `x`; they are copied from there to `to` as well, past the
   caches; or they are the differences of `x` and `less`, which are made at `to`. */
enum { AS_THEY_LIE, STREAMED, MADE };

typedef struct {
    const float *x, *less;
    float *to;
    Soon soon;
} Floats;

AVX512 INLINE void look_at_16(Extremes *e, Marked *m, Floats of, int source, int i, __mmask16 some) {
    __m512 v = _mm512_maskz_loadu_ps(some, of.x + i);
    if (source == MADE) v = _mm512_sub_ps(v, _mm512_maskz_loadu_ps(some, of.less + i));
    if (source == MADE) _mm512_storeu_ps(of.to + i, v); /* which has room for a whole block */
    if (source == STREAMED && some == 0xffff) _mm512_stream_ps(of.to + i, v);
    if (source == STREAMED && some != 0xffff) _mm512_mask_storeu_ps(of.to + i, some, v);
    look_f32_512(v, some, e, m->zeros.of + (unsigned)i / 16, m->far.of + (unsigned)i / 16);
}

AVX512 INLINE void look_wide_f32(Gathered *g, Marked *m, Floats of, int source, int i, uint32_t which) {
    look_at_16(&g->extremes, m, of, source, i, (__mmask16)which);
    look_at_16(&g->others, m, of, source, i + 16, (__mmask16)(which >> 16));
}

/* Into the second cache first, which waits for more of memory at a time than the first one can. */
#define FAR_AHEAD 16384 /* bytes */
#define NEXT 1024

AVX512 INLINE void fetch_wide(const float *x) {
    for (int line = 0; line < 2 * 64; line += 64) {
        __builtin_prefetch((const char *)x + FAR_AHEAD + line, 0, 2);
        PREFETCH((const char *)x + NEXT + line);
    }
}

/* Sums read what was made one step before: to wait for what has just been stored would cost more. */
AVX512 INLINE void scan_f32(Gathered *g, Marked *m, Floats of, int n, int source, int about, __m512d shift) {
    const int late = source == MADE ? WIDE : 0;
    const float *summed = source == MADE ? of.to : of.x;
    int i = 0;
    for (; i + WIDE <= n; i += WIDE) {
        if (of.soon.of[0]) {
            FETCH_SOON(of.soon.of[0] + 2 * i);
            if (source == MADE) FETCH_SOON(of.soon.of[1] + 2 * i);
        } else {
            fetch_wide(of.x + i);
            if (source == MADE) fetch_wide(of.less + i);
        }
        look_wide_f32(g, m, of, source, i, ALL);
        if (i >= late) sum_wide(&g->sums, summed + i - late, ALL, about, shift);
    }
    if (i >= WIDE && late) sum_wide(&g->sums, summed + i - late, ALL, about, shift);
    if (i == n) return;
    look_wide_f32(g, m, of, source, i, first_of(n - i));
    sum_wide(&g->sums, summed + i, first_of(n - i), about, shift);
}

/* Sums read from memory what was widened one step before: to take a register apart would cost more, and so would to wait
   for what has just been stored. */
AVX512 INLINE void scan_halves(Gathered *g, Marked *m, const uint16_t *x, int n, int dtype, int about, __m512d shift) {
    float wide[2][WIDE];
    int i = 0;
#define LOOK(which) \
    look_wide_halves(x + i, which, dtype, &g->extremes, m->zeros.of + i / 16, m->far.of + i / 16, wide[i / WIDE % 2])
    for (; i + WIDE <= n; i += WIDE) {
        PREFETCH((const char *)(x + i) + AHEAD);
        LOOK(ALL);
        if (i) sum_wide(&g->sums, wide[(i / WIDE + 1) % 2], ALL, about, shift);
    }
    if (i) sum_wide(&g->sums, wide[(i / WIDE + 1) % 2], ALL, about, shift);
    if (i == n) return;
    LOOK(first_of(n - i));
    sum_wide(&g->sums, wide[i / WIDE % 2], dtype == BF16 ? evens_of(n - i) : first_of(n - i), about, shift);
#undef LOOK
}

AVX512 INLINE void scan_512(
    const void *x, const void *less, void *to, Soon soon, int n, int dtype, int source, int about, Block *b) {
    const __m512d shift = _mm512_set1_pd(b->shift);
    const Sum512 none = {_mm512_setzero_pd(), _mm512_setzero_pd()};
    Gathered g = {{none, none, none, none}, before_all(dtype), before_all(dtype)};
    Marked m;
    if (dtype == F32)
        scan_f32(&g, &m, (Floats){x, less, to, soon}, n, source, about, shift);
    else
        scan_halves(&g, &m, x, n, dtype, about, shift);
    put_sums_512(b, &g.sums);
    put_extremes_512(b, &g, dtype);
    b->zeros = marked(&m.zeros, n) - lanes_behind(n); /* these lanes are zeros, and not far */
    b->near_zero = n - marked(&m.far, n);
}

/* Everything but the histogram, about a shift. Where a value is not finite, s2 is not, and nothing else is of use. */
#define BLOCK_512(NAME, DTYPE, SOURCE)                                                                              \
    AVX512 static void NAME(const void *x, const void *less, void *to, Soon soon, int n, double shift, Block *b) {  \
        *b = (Block){.shift = shift, .finite = n};                                                                  \
        if (shift == 0)                                                                                             \
            scan_512(x, less, to, soon, n, DTYPE, SOURCE, 0, b);                                                    \
        else                                                                                                        \
            scan_512(x, less, to, soon, n, DTYPE, SOURCE, 1, b);                                                    \
    }
BLOCK_512(block_f32_512, F32, AS_THEY_LIE)
BLOCK_512(block_f32_streamed_512, F32, STREAMED)
BLOCK_512(block_f32_made_512, F32, MADE)
BLOCK_512(block_f16_512, F16, AS_THEY_LIE)
BLOCK_512(block_bf16_512, BF16, AS_THEY_LIE)

INLINE void block_512(const void *x, Soon soon, int n, int dtype, double shift, Block *b) {
    if (dtype == F32)
        block_f32_512(x, NULL, NULL, soon, n, shift, b);
    else if (dtype == F16)
        block_f16_512(x, NULL, NULL, soon, n, shift, b);
    else
        block_bf16_512(x, NULL, NULL, soon, n, shift, b);
}

#endif
#endif
