/* One block with AVX2, of fp32, fp16 or bf16 as they lie in memory.

   - Sums are in double and at first about 0, which saves a subtraction for each value. Where the mean is so large beside
     the spread that this would cost digits, the moments are taken again about the mean, and so are those that follow.
   - Without the sign, the bits of floats are ordered as their magnitudes are. So the values near zero, and the extremes
     of halves, are found with whole numbers, 16 halves at a time.
   - The histogram counts two neighbours at once, in a table of all pairs, for it is stores that limit counting. The
     table has room for a window of magnitudes; what is outside of it is counted one by one.
   - Values that are not finite cost nothing to find: they show in the sum of squares. Only then a block is scanned again,
     and those that follow are at once, with a finite value in the place of each such one. */
#ifndef HOOKLINE_AVX2_H
#define HOOKLINE_AVX2_H

#include "_kernel_blocks.h"

#ifdef HAVE_AVX2_PATH

#define STEP 16 /* values that a loop takes at a time */
#define WHOLE(n) ((n) / STEP * STEP)
#define LOAD(address) _mm256_loadu_si256((const __m256i *)(address))

#define AHEAD 4096 /* bytes: far enough for memory to answer, over the end of a page, where processors stop guessing */

SUBTRACT(subtract_f32_avx2, float, AS_IT_IS, AS_IT_IS, AVX2)
/* narrow_bfloat(x - y) in each lane; x and y are bfloats with 16 zero bits behind them. */
AVX2 INLINE __m256i bfloat_difference(__m256i x, __m256i y) {
    __m256 d = _mm256_sub_ps(_mm256_castsi256_ps(x), _mm256_castsi256_ps(y));
    __m256i bits = _mm256_castps_si256(d), odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    __m256i found = _mm256_srli_epi32(_mm256_add_epi32(_mm256_add_epi32(bits, odd), _mm256_set1_epi32(0x7fff)), 16);
    __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(d, d, _CMP_UNORD_Q));
    return _mm256_blendv_epi8(found, _mm256_set1_epi32(0x7fc0), nan);
}

AVX2 static void subtract_bf16_avx2(const void *from, const void *less, int n, void *to) {
    const __m256i zero = _mm256_setzero_si256();
    const uint16_t *x = from, *y = less;
    uint16_t *d = to;
    int i = 0;
    for (; i + 16 <= n; i += 16) {
        __m256i a = _mm256_loadu_si256((const __m256i *)(x + i)), b = _mm256_loadu_si256((const __m256i *)(y + i));
        __m256i low = bfloat_difference(_mm256_unpacklo_epi16(zero, a), _mm256_unpacklo_epi16(zero, b));
        __m256i high = bfloat_difference(_mm256_unpackhi_epi16(zero, a), _mm256_unpackhi_epi16(zero, b));
        _mm256_storeu_si256((__m256i *)(d + i), _mm256_packus_epi32(low, high));
    }
    subtract_bf16(x + i, y + i, n - i, d + i);
}

AVX2 static void subtract_f16_avx2(const void *from, const void *less, int n, void *to) {
    const uint16_t *x = from, *y = less;
    uint16_t *d = to;
    int i = 0;
    for (; i + 8 <= n; i += 8) {
        __m256 a = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(x + i)));
        __m256 b = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(y + i)));
        _mm_storeu_si128((__m128i *)(d + i), _mm256_cvtps_ph(_mm256_sub_ps(a, b), _MM_FROUND_TO_NEAREST_INT));
    }
    subtract_f16(x + i, y + i, n - i, d + i);
}

/* A copy past the caches, to the beginning of a cache line. What is copied stays in the cache, and is reduced from there. */
AVX2 static void stream_avx2(const char *from, char *to, int64_t bytes) {
    int64_t i = 0;
    for (; i + 64 <= bytes; i += 64) {
        PREFETCH(from + i + AHEAD);
        __m256i a = LOAD(from + i), b = LOAD(from + i + 32);
        _mm256_stream_si256((__m256i *)(to + i), a);
        _mm256_stream_si256((__m256i *)(to + i + 32), b);
    }
    memcpy(to + i, from + i, (size_t)(bytes - i));
}

/* What to know of a dtype's bits. A magnitude without its last `shift` bits is its key; with `bias` it is the key of the
   same value as fp32, if that is a normal number. */
typedef struct {
    uint32_t sign, inf, limit;
    int shift, bias;
} Form;

INLINE Form form_of(int dtype) {
    if (dtype == F32) return (Form){0x80000000u, 0x7f800000u, 0x3d4ccccdu, KEY_SHIFT, 0};
    if (dtype == F16) return (Form){0x8000, 0x7c00, 0x2a66, KEY_SHIFT - 13, (127 - 15) << MANTISSA_BITS};
    return (Form){0x8000, 0x7f80, 0x3d4d, KEY_SHIFT - 16, 0};
}

INLINE uint32_t bits_at(const void *x, int i, int dtype) {
    uint32_t word;
    uint16_t half;
    memcpy(&half, (const uint16_t *)x + i, 2);
    if (dtype != F32) return half;
    memcpy(&word, (const uint32_t *)x + i, 4);
    return word;
}

INLINE float widened(uint32_t bits, int dtype) {
    if (dtype == F32) return float_of(bits);
    return dtype == F16 ? widen_half((uint16_t)bits) : widen_bfloat((uint16_t)bits);
}

INLINE const void *at(const void *x, int i, int dtype) { return (const char *)x + (int64_t)i * (dtype == F32 ? 4 : 2); }

INLINE uint32_t first_finite(const void *x, int n, int dtype) {
    const Form form = form_of(dtype);
    for (int i = 0; i < n; i++)
        if ((bits_at(x, i, dtype) & (form.sign - 1)) < form.inf) return bits_at(x, i, dtype);
    return 0;
}

INLINE uint32_t narrowed(double x, int dtype) {
    if (dtype == F32) return bits32((float)x);
    return dtype == F16 ? narrow_half((float)x) : narrow_bfloat((float)x);
}

typedef struct {
    __m256d s1[2], s2[4];
} Sums;

/* Four of the floats of a step, by their number; bfloats with the even ones first. */
AVX2 INLINE __m128 four_floats(const void *x, int k, int dtype) {
    if (dtype == F32) return _mm_loadu_ps((const float *)x + 4 * k);
    __m256 eight;
    if (dtype == F16)
        eight = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)x + k / 2));
    else if (k < 2)
        eight = _mm256_castsi256_ps(_mm256_slli_epi32(LOAD(x), 16));
    else
        eight = _mm256_castsi256_ps(_mm256_and_si256(LOAD(x), _mm256_set1_epi32((int)0xffff0000u)));
    return k % 2 ? _mm256_extractf128_ps(eight, 1) : _mm256_castps256_ps128(eight);
}

/* The sums of squares are `ways` many: four, as their latency asks for, or two, where registers are few. */
AVX2 INLINE void sum_step(Sums *s, const void *x, int dtype, int ways, const __m256d *shift) {
    for (int k = 0; k < 4; k++) {
        __m256d v = _mm256_cvtps_pd(four_floats(x, k, dtype));
        if (shift) v = _mm256_sub_pd(v, *shift);
        s->s1[k % 2] = _mm256_add_pd(s->s1[k % 2], v);
        s->s2[k % ways] = _mm256_fmadd_pd(v, v, s->s2[k % ways]);
    }
}

AVX2 INLINE double sum_of(__m256d v) {
    __m128d half = _mm_add_pd(_mm256_castpd256_pd128(v), _mm256_extractf128_pd(v, 1));
    return _mm_cvtsd_f64(_mm_add_sd(half, _mm_unpackhi_pd(half, half)));
}

AVX2 INLINE void put_sums(Block *b, const Sums *s) {
    b->s1 += sum_of(_mm256_add_pd(s->s1[0], s->s1[1]));
    b->s2 += sum_of(_mm256_add_pd(_mm256_add_pd(s->s2[0], s->s2[1]), _mm256_add_pd(s->s2[2], s->s2[3])));
}

AVX2 INLINE void put_sums_about(Block *b, const void *x, int n, int dtype) {
    const __m256d shift = _mm256_set1_pd(b->shift);
    Sums sums = {0};
    for (int i = 0; i < n; i += STEP) {
        PREFETCH(at(x, i + BLOCK, dtype)); /* what is summed is in the cache; memory works on the next block */
        sum_step(&sums, at(x, i, dtype), dtype, 4, &shift);
    }
    put_sums(b, &sums);
}

/* Across the lanes of a register by shuffles: by way of memory, the compiler would keep it there during the loop. */
#define ACROSS_32(NAME, OF)                                                        \
    AVX2 INLINE uint32_t NAME(__m256i v) {                                         \
        __m128i h = OF(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1)); \
        h = OF(h, _mm_shuffle_epi32(h, 0x4e));                                     \
        return (uint32_t)_mm_cvtsi128_si32(OF(h, _mm_shuffle_epi32(h, 0xb1)));     \
    }
#define ACROSS_16(NAME, OF)                                                        \
    AVX2 INLINE uint32_t NAME(__m256i v) {                                         \
        __m128i h = OF(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1)); \
        h = OF(h, _mm_shuffle_epi32(h, 0x4e));                                     \
        h = OF(h, _mm_shuffle_epi32(h, 0xb1));                                     \
        return (uint16_t)_mm_cvtsi128_si32(OF(h, _mm_srli_epi32(h, 16)));          \
    }
ACROSS_32(least_32, _mm_min_epu32)
ACROSS_32(sum_32, _mm_add_epi32)
ACROSS_16(largest_signed_16, _mm_max_epi16)
ACROSS_16(largest_16, _mm_max_epu16)
ACROSS_16(least_16, _mm_min_epu16)

#define MAX_PS(a, b) _mm_castps_si128(_mm_max_ps(_mm_castsi128_ps(a), _mm_castsi128_ps(b)))
#define MIN_PS(a, b) _mm_castps_si128(_mm_min_ps(_mm_castsi128_ps(a), _mm_castsi128_ps(b)))
ACROSS_32(bits_of_largest, MAX_PS)
ACROSS_32(bits_of_least, MIN_PS)

/* Comparisons that held, each of them -1 in its lane. */
AVX2 INLINE int64_t held_32(__m256i v) { return -(int64_t)(int32_t)sum_32(v); }
AVX2 INLINE int64_t held_16(__m256i v) { return held_32(_mm256_madd_epi16(v, _mm256_set1_epi16(1))); }

/* Magnitudes from `low` to below `high`, as bits. */
typedef struct {
    uint32_t low, high;
} Window;

#define REACH 47 /* the keys of the window have the numbers 1 to 46; what has none is 47, or 0 */
#define WIDTH 96 /* of a line of the table: -47 to 47 */
#define MIDDLE (REACH * (WIDTH + 1))
#define PARTS 2 /* tables, or neighbours that are alike would wait for each other's store */
#define WAITING 64 /* pairs: by the time that one is counted, its store is long done */
typedef struct {
    Window window;
    int is_open;     /* whether there is a window */
    int64_t counted; /* values */
    int32_t waiting[WAITING]; /* numbers that are still to be counted; those of nothing at first */
    uint32_t counts[PARTS][WIDTH * WIDTH + 32]; /* the same counters not a multiple of 4096 bytes apart */
} Pairs;

/* Counts as many pairs as there are in a step; two numbers a load. */
INLINE void count_step(Pairs *pairs, int from) {
    uint32_t *a = pairs->counts[0] + MIDDLE, *b = pairs->counts[1] + MIDDLE;
    for (int k = 0; k < STEP / 2; k += 2) {
        int64_t two;
        memcpy(&two, pairs->waiting + from + k, 8);
        a[(int32_t)two]++;
        b[two >> 32]++;
    }
}


/* What a scan gathers besides sums. Of fp32 `high` and `low` are the extremes. Of halves `high` is the largest as a
   signed number, `low` as an unsigned one, and `least` the least magnitude. */
typedef struct {
    __m256i high, low, least, zeros, far;
    __m256i nan, gone; /* where others stand for those that are not finite */
} Found;

AVX2 INLINE Found start_of(const void *x, int dtype) {
    const __m256i none = _mm256_setzero_si256();
    if (dtype != F32) return (Found){_mm256_set1_epi16(INT16_MIN), none, _mm256_set1_epi16(INT16_MAX), none, none, none, none};
    const __m256i first = _mm256_set1_epi32((int)bits_at(x, 0, F32));
    return (Found){first, first, none, none, none, none, none};
}

AVX2 INLINE void look_f32(Found *f, const void *x) {
    for (int k = 0; k < STEP; k += 8) {
        __m256 v = _mm256_loadu_ps((const float *)x + k);
        __m256i size = _mm256_and_si256(_mm256_castps_si256(v), _mm256_set1_epi32(0x7fffffff));
        f->high = _mm256_castps_si256(_mm256_max_ps(v, _mm256_castsi256_ps(f->high)));
        f->low = _mm256_castps_si256(_mm256_min_ps(v, _mm256_castsi256_ps(f->low)));
        f->zeros = _mm256_add_epi32(f->zeros, _mm256_cmpeq_epi32(size, _mm256_setzero_si256()));
        f->far = _mm256_add_epi32(f->far, _mm256_cmpgt_epi32(size, _mm256_set1_epi32((int)form_of(F32).limit)));
    }
}

AVX2 INLINE void look_halves(Found *f, const void *x, int dtype) {
    __m256i bits = LOAD(x), size = _mm256_and_si256(bits, _mm256_set1_epi16(0x7fff));
    f->high = _mm256_max_epi16(f->high, bits);
    f->low = _mm256_max_epu16(f->low, bits);
    f->least = _mm256_min_epu16(f->least, size);
    f->zeros = _mm256_add_epi16(f->zeros, _mm256_cmpeq_epi16(size, _mm256_setzero_si256()));
    f->far = _mm256_add_epi16(f->far, _mm256_cmpgt_epi16(size, _mm256_set1_epi16((short)form_of(dtype).limit)));
}

AVX2 INLINE void put_found_f32(Block *b, const Found *f, int n) {
    b->max = float_of(bits_of_largest(f->high));
    b->min = float_of(bits_of_least(f->low));
    b->zeros += held_32(f->zeros);
    b->near_zero += n - held_32(f->far);
}

/* Signed, the largest is the highest value if one is positive; unsigned, it is the lowest if one is negative. If there
   is none, it is the one with the least magnitude. */
AVX2 INLINE void put_extremes(Block *b, const Found *f, int dtype) {
    const uint32_t sign = form_of(dtype).sign, least = least_16(f->least);
    uint32_t high = largest_signed_16(f->high), low = largest_16(f->low);
    b->max = widened(high & sign ? least | sign : high, dtype);
    b->min = widened(low & sign ? low : least, dtype);
}

AVX2 INLINE void put_found_halves(Block *b, const Found *f, int n, int dtype) {
    put_extremes(b, f, dtype);
    b->zeros += held_16(f->zeros);
    b->near_zero += n - held_16(f->far);
}

/* The upper 16 bits of STEP values, which have all of their keys. Those of fp32 are in another order. */
AVX2 INLINE __m256i upper_16(const void *x, int dtype) {
    if (dtype != F32) return LOAD(x);
    return _mm256_blend_epi16(_mm256_srli_epi32(LOAD(x), 16), LOAD((const float *)x + 8), 0xaa);
}

/* How keys become numbers: the one at `base` is `add`, and none has more than `most` + `add`. */
typedef struct {
    uint32_t base, low;
    int most, add;
} Numbering;

/* The numbers of STEP values, signed as these are. `below` counts those under `low`, with zeros. */
AVX2 INLINE __m256i numbers_of(const void *x, int dtype, Numbering as, __m256i *below) {
    const int cut = dtype == F32 ? 16 : 0, shift = form_of(dtype).shift - cut;
    __m256i bits = upper_16(x, dtype), size = _mm256_and_si256(bits, _mm256_set1_epi16(0x7fff));
    __m256i key = _mm256_srli_epi16(_mm256_sub_epi16(size, _mm256_set1_epi16((short)(as.base >> cut))), shift);
    key = _mm256_min_epu16(key, _mm256_set1_epi16((short)as.most));
    *below = _mm256_add_epi16(*below, _mm256_cmpgt_epi16(_mm256_set1_epi16((short)(as.low >> cut)), size));
    return _mm256_sign_epi16(_mm256_add_epi16(key, _mm256_set1_epi16((short)as.add)), bits);
}

/* A copy of STEP values in which `stand_in` stands for those that are not finite. */
AVX2 INLINE void clean_step(Found *f, const void *x, int dtype, uint32_t stand_in, void *to) {
    for (int k = 0; k < STEP; k += dtype == F32 ? 8 : 16) {
        __m256i bits = LOAD(at(x, k, dtype)), instead, nan, gone;
        if (dtype == F32) {
            const __m256i size = _mm256_and_si256(bits, _mm256_set1_epi32(0x7fffffff)), one = _mm256_set1_epi32(1);
            const __m256i inf = _mm256_set1_epi32((int)form_of(F32).inf);
            instead = _mm256_set1_epi32((int)stand_in);
            nan = _mm256_cmpgt_epi32(size, inf);
            gone = _mm256_cmpgt_epi32(size, _mm256_sub_epi32(inf, one));
            f->nan = _mm256_add_epi32(f->nan, nan);
            f->gone = _mm256_add_epi32(f->gone, gone);
        } else {
            const __m256i size = _mm256_and_si256(bits, _mm256_set1_epi16(0x7fff)), one = _mm256_set1_epi16(1);
            const __m256i inf = _mm256_set1_epi16((short)form_of(dtype).inf);
            instead = _mm256_set1_epi16((short)stand_in);
            nan = _mm256_cmpgt_epi16(size, inf);
            gone = _mm256_cmpgt_epi16(size, _mm256_sub_epi16(inf, one));
            f->nan = _mm256_add_epi16(f->nan, nan);
            f->gone = _mm256_add_epi16(f->gone, gone);
        }
        _mm256_storeu_si256((__m256i *)((char *)to + 4 * k), _mm256_blendv_epi8(bits, instead, gone));
    }
}

/* What a scan does: whether it takes sums; about what, if not about 0; what stands for values that are not finite, if
   they are looked for. */
typedef struct {
    int summed;
    const __m256d *shift;
    const uint32_t *stand_in;
} Task;

/* n is a number of whole steps. With `pairs`, those that wait are counted, and those of these values wait in their place;
   returns how many values are below the window, with zeros. */
AVX2 INLINE int64_t scan(const void *x, int n, int dtype, Task task, Pairs *pairs, Block *b) {
    const __m256i weights = _mm256_set1_epi32(WIDTH << 16 | 1);
    const uint32_t low = pairs ? pairs->window.low : 0;
    const Numbering as = {low - (1u << form_of(dtype).shift), low, REACH, 0};
    __m256i below = _mm256_setzero_si256();
    Found found = start_of(task.stand_in ? task.stand_in : x, dtype);
    Sums sums = {0};
    uint32_t clean[STEP];
    for (int i = 0; i < n; i += STEP) {
        const void *values = at(x, i, dtype);
        PREFETCH((const char *)values + AHEAD);
        if (task.stand_in) {
            clean_step(&found, values, dtype, *task.stand_in, clean);
            values = clean;
        }
        if (task.summed) sum_step(&sums, values, dtype, 2, task.shift);
        if (dtype == F32)
            look_f32(&found, values);
        else
            look_halves(&found, values, dtype);
        if (pairs) {
            const int place = i / 2 % WAITING;
            __m256i numbers = _mm256_madd_epi16(numbers_of(at(x, i, dtype), dtype, as, &below), weights);
            count_step(pairs, place);
            _mm256_storeu_si256((__m256i *)(pairs->waiting + place), numbers);
        }
    }
    put_sums(b, &sums);
    if (dtype == F32)
        put_found_f32(b, &found, n);
    else
        put_found_halves(b, &found, n, dtype);
    if (task.stand_in) {
        b->nan = dtype == F32 ? held_32(found.nan) : held_16(found.nan);
        b->inf = (dtype == F32 ? held_32(found.gone) : held_16(found.gone)) - b->nan;
    }
    return held_16(below);
}

/* Loops without what they need not do. Sums about a shift have one of their own: here, registers would not suffice. */
AVX2 INLINE int64_t scan_as_needed(const void *x, int n, int dtype, Pairs *pairs, Block *b) {
    const Task all = {1, NULL, NULL}, no_sums = {0, NULL, NULL};
    int64_t below;
    if (b->shift == 0) return pairs ? scan(x, n, dtype, all, pairs, b) : scan(x, n, dtype, all, NULL, b);
    below = pairs ? scan(x, n, dtype, no_sums, pairs, b) : scan(x, n, dtype, no_sums, NULL, b);
    put_sums_about(b, x, n, dtype);
    return below;
}

AVX2 INLINE int64_t scan_finite(const void *x, int n, int dtype, uint32_t stand_in, Pairs *pairs, Block *b) {
    const __m256d shift = _mm256_set1_pd(b->shift);
    const Task task = {1, &shift, &stand_in};
    return pairs ? scan(x, n, dtype, task, pairs, b) : scan(x, n, dtype, task, NULL, b);
}

/* Takes the moments again, about their mean. */
AVX2 INLINE void about_mean(Block *b, const void *x, int n, int dtype) {
    b->shift = mean_of(b, n);
    b->s1 = b->s2 = 0;
    put_sums_about(b, x, WHOLE(n), dtype);
    for (int i = WHOLE(n); i < n; i++) {
        double v = widened(bits_at(x, i, dtype), dtype) - b->shift;
        b->s1 += v;
        b->s2 += v * v;
    }
}

/* Fewer values than a step, by portable C; `stand_in` as a scan has it. */
AVX2 INLINE void put_rest(Block *b, const void *x, int n, int dtype, const uint32_t *stand_in) {
    const Form form = form_of(dtype);
    float wide[STEP];
    Block rest;
    for (int i = 0; i < n; i++) {
        uint32_t bits = bits_at(x, i, dtype), size = bits & (form.sign - 1);
        if (stand_in && size >= form.inf) {
            bits = *stand_in;
            b->nan += size > form.inf;
            b->inf += size == form.inf;
        }
        wide[i] = widened(bits, dtype);
    }
    block_f32(wide, n, b->shift, widened(form.limit, dtype), &rest);
    b->s1 += rest.s1;
    b->s2 += rest.s2;
    b->min = rest.min < b->min ? rest.min : b->min;
    b->max = rest.max > b->max ? rest.max : b->max;
    b->zeros += rest.zeros;
    b->near_zero += rest.near_zero;
}

/* Everything but the histogram, about a shift; with `pairs`, most of that. Where a value is not finite, s2 is not, and of
   the block nothing else is of use. Returns what a scan does. */
AVX2 INLINE int64_t block_of(const void *x, int n, int dtype, double shift, Pairs *pairs, Block *b) {
    int64_t below = 0;
    *b = (Block){.shift = shift, .min = INFINITY, .max = -INFINITY, .finite = n};
    if (n >= STEP) below = scan_as_needed(x, WHOLE(n), dtype, pairs, b);
    if (n % STEP) put_rest(b, at(x, WHOLE(n), dtype), n % STEP, dtype, NULL);
    return below;
}

/* The same of the finite values, about the one that stands for the others. */
AVX2 INLINE int64_t block_of_finite(const void *x, int n, int dtype, uint32_t stand_in, Pairs *pairs, Block *b) {
    const float value = widened(stand_in, dtype);
    int64_t below = 0;
    *b = (Block){.shift = value, .min = INFINITY, .max = -INFINITY, .finite = n};
    if (n >= STEP) below = scan_finite(x, WHOLE(n), dtype, stand_in, pairs, b);
    if (n % STEP) put_rest(b, at(x, WHOLE(n), dtype), n % STEP, dtype, &stand_in);
    without(b, value, widened(form_of(dtype).limit, dtype), b->nan, b->nan + b->inf);
    return below;
}

/* The histogram. */

#define TO_BIN (2 + ((-127 - LOWEST) << MANTISSA_BITS)) /* from the key of an fp32 value to its bin, from ZERO_BIN on */

#define STRANGE 16 /* of so many values one outside of the window: then it is not the right one */
#define SEVERAL 1024 /* values that are worth a second table */

/* Every second value in a table of its own, or neighbours that are alike would wait for each other's store. */
static void count_alternately(const int16_t *numbers, int n, int64_t *hist) {
    uint32_t others[BINS] = {0};
    for (int i = 0; i < n; i += 2) {
        hist[ZERO_BIN + numbers[i]]++;
        others[ZERO_BIN + numbers[i + 1]]++;
    }
    for (int i = 0; i < BINS; i++) hist[i] += others[i];
}

/* Normal numbers in their bins. All others are in those of Inf's key, which are cleared at the end. Returns how many values
   are below the window, which is that of normal numbers. */
AVX2 INLINE int64_t count_one_by_one(const void *x, int n, int dtype, int64_t *hist, Window *in) {
    const Form form = form_of(dtype);
    *in = (Window){FIRST_KEY << form.shift, form.inf};
    const Numbering as = {in->low, in->low, (int)(in->high >> form.shift) - FIRST_KEY, FIRST_KEY + form.bias + TO_BIN};
    __m256i below = _mm256_setzero_si256();
    int16_t numbers[BLOCK];
    for (int i = 0; i < n; i += STEP)
        _mm256_storeu_si256((__m256i *)(numbers + i), numbers_of(at(x, i, dtype), dtype, as, &below));
    if (n < SEVERAL)
        for (int i = 0; i < n; i++) hist[ZERO_BIN + numbers[i]]++;
    else
        count_alternately(numbers, n, hist);
    return held_16(below);
}

/* Counts a finite value that is not zero and outside of the window; returns whether it is one. */
INLINE int count_if_outside(uint32_t bits, int dtype, Window in, int64_t *hist) {
    const Form form = form_of(dtype);
    const uint32_t size = bits & (form.sign - 1);
    if (!size || (size >= in.low && size < in.high) || size >= form.inf) return 0;
    hist[bin_of(widened(bits, dtype))]++;
    return 1;
}

/* Whether one of STEP values is outside of the window. Less 1, magnitudes are signed numbers, and zeros -1. */
AVX2 INLINE int is_one_outside(const void *x, int dtype, Window in) {
    __m256i outside = _mm256_setzero_si256();
    for (int k = 0; k < STEP; k += dtype == F32 ? 8 : 16) {
        __m256i bits = LOAD(at(x, k, dtype)), size, low, high;
        if (dtype == F32) {
            size = _mm256_sub_epi32(_mm256_and_si256(bits, _mm256_set1_epi32(0x7fffffff)), _mm256_set1_epi32(1));
            low = _mm256_cmpgt_epi32(_mm256_set1_epi32((int)in.low - 1), size);
            high = _mm256_cmpgt_epi32(size, _mm256_set1_epi32((int)in.high - 2));
            low = _mm256_andnot_si256(_mm256_cmpeq_epi32(size, _mm256_set1_epi32(-1)), low);
        } else {
            size = _mm256_sub_epi16(_mm256_and_si256(bits, _mm256_set1_epi16(0x7fff)), _mm256_set1_epi16(1));
            low = _mm256_cmpgt_epi16(_mm256_set1_epi16((short)(in.low - 1)), size);
            high = _mm256_cmpgt_epi16(size, _mm256_set1_epi16((short)(in.high - 2)));
            low = _mm256_andnot_si256(_mm256_cmpeq_epi16(size, _mm256_set1_epi16(-1)), low);
        }
        outside = _mm256_or_si256(outside, _mm256_or_si256(low, high));
    }
    return !_mm256_testz_si256(outside, outside);
}

/* Counts what is outside of the window, in whole steps; returns how many values that are. */
AVX2 INLINE int count_outside(const void *x, int n, int dtype, Window in, int64_t *hist) {
    int found = 0;
    for (int i = 0; i < n; i += STEP)
        if (is_one_outside(at(x, i, dtype), dtype, in))
            for (int k = i; k < i + STEP; k++) found += count_if_outside(bits_at(x, k, dtype), dtype, in, hist);
    return found;
}

#define ABOVE 4 /* keys that the window has above the largest value of the block that it is opened by */

INLINE uint32_t most_of(const Block *b) { return bits32((float)(b->max > -b->min ? b->max : -b->min)); }

/* A window for values such as those of a block. */
INLINE void open_window(Pairs *pairs, const Block *b, int dtype) {
    const Form form = form_of(dtype);
    int end = (int)(most_of(b) >> KEY_SHIFT) - form.bias + 1 + ABOVE, last = (int)(form.inf >> form.shift);
    end = end < last ? end : last;
    int first = end - (REACH - 1) > FIRST_KEY ? end - (REACH - 1) : FIRST_KEY;
    pairs->window = (Window){(uint32_t)first << form.shift, (uint32_t)(first + REACH - 1) << form.shift};
    pairs->is_open = 1;
    pairs->counted = 0;
    memset(pairs->waiting, 0, sizeof pairs->waiting);
    memset(pairs->counts, 0, sizeof pairs->counts);
}

/* Whether a value of the block is above the window: as fp32, of which halves are a part. */
INLINE int is_above(const Block *b, Window in, int dtype) {
    const Form form = form_of(dtype);
    return most_of(b) >> KEY_SHIFT >= (in.high >> form.shift) + (uint32_t)form.bias;
}

/* From the pairs to the bins: a value is one of a line or one of a column. */
static void fold_pairs(Pairs *pairs, int dtype, int64_t *hist) {
    const Form form = form_of(dtype);
    const int to_bin = (int)(pairs->window.low >> form.shift) - 1 + form.bias + TO_BIN;
    uint32_t sums[WIDTH] = {0};
    for (int i = 0; i < WAITING; i += STEP / 2) count_step(pairs, i);
    for (int line = 0; line < WIDTH; line++) {
        const uint32_t *a = pairs->counts[0] + WIDTH * line, *b = pairs->counts[1] + WIDTH * line;
        uint32_t whole = 0;
        for (int k = 0; k < WIDTH; k++) {
            whole += a[k] + b[k];
            sums[k] += a[k] + b[k];
        }
        sums[line] += whole;
    }
    for (int k = 1; k < REACH; k++) {
        hist[ZERO_BIN + to_bin + k] += sums[REACH + k];
        hist[ZERO_BIN - to_bin - k] += sums[REACH - k];
    }
    pairs->is_open = 0;
}

#endif
#endif
