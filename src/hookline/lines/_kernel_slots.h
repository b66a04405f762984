/* The histogram of a block with AVX-512, without a table that values would have to be counted in.

   A window of magnitudes has 64 slots: 32 keys of positive values, and the same of negative ones. Each value becomes a
   word of 64 bits in which the bit of its slot is set. Eight such words are a register, and registers are added up
   place by place, as carries and rests of whole adders made of logic: `ones` has the last bit of every slot's count,
   `twos` the one before it, and so on. It takes the same time for all values, alike or not.

   Each block has a window of its own, below its largest value; where that is not enough, a second one below the first.
   Zeros, and what is outside, are in slot 0, from which they are taken away. */
#ifndef HOOKLINE_SLOTS_H
#define HOOKLINE_SLOTS_H

#include "_kernel_avx512.h"

#ifdef HAVE_AVX512_PATH

#define SLOT_KEYS 32
#define GROUP 128 /* values of 16 registers: their carry has the weight 16 */

/* The window whose keys end before `end`, or the lowest one of normal numbers. */
INLINE Window window_below(int end, int dtype) {
    const int shift = form_of(dtype).shift;
    const int first = end - SLOT_KEYS > FIRST_KEY ? end - SLOT_KEYS : FIRST_KEY;
    return (Window){(uint32_t)first << shift, (uint32_t)(first + SLOT_KEYS) << shift};
}

/* The upper 16 bits of WIDE values, which have all of their keys. Those of fp32 are in another order: odd ones first. */
AVX512 INLINE __m512i upper_halves(const void *x, uint32_t which, int dtype) {
    if (dtype != F32) return _mm512_maskz_loadu_epi16(which, x);
    __m512i a = _mm512_maskz_loadu_epi32((__mmask16)which, x);
    __m512i b = _mm512_maskz_loadu_epi32((__mmask16)(which >> 16), (const float *)x + 16);
    return _mm512_mask_mov_epi16(_mm512_srli_epi32(b, 16), 0xaaaaaaaau, a);
}

AVX512 INLINE uint32_t in_order(uint32_t marks, int dtype) {
    return dtype == F32 ? _pext_u32(marks, 0xaaaaaaaau) | _pext_u32(marks, 0x55555555u) << 16 : marks;
}

/* What is stored of each value: its slot in the lowest 6 bits; and marks, whether it is not zero as far as its upper half
   tells, and whether it is in the window or zero. */
typedef struct {
    uint16_t slots[BLOCK + WIDE];
    Marks some, inside;
} Numbered;

/* Outside of the window the key has more than 5 bits: below it the difference is negative, and no window begins so high
   that this could be hidden. */
AVX512 INLINE void number_wide(Numbered *to, int i, const void *x, uint32_t which, int dtype, Window in) {
    const int cut = dtype == F32 ? 16 : 0, shift = form_of(dtype).shift - cut;
    const __m512i low = _mm512_set1_epi16((short)(in.low >> cut)), slot_of_sign = _mm512_set1_epi16(SLOT_KEYS);
    const __m512i more = _mm512_set1_epi16((short)(0x7fff & ~((SLOT_KEYS << shift) - 1)));
    __m512i upper = upper_halves(x, which, dtype);
    const __mmask32 some = _mm512_test_epi16_mask(upper, _mm512_set1_epi16(0x7fff));
    __m512i key = _mm512_maskz_sub_epi16(some, upper, low);
    const __mmask32 inside = _mm512_testn_epi16_mask(key, more);
    __m512i sign = _mm512_maskz_srli_epi16(inside, key, 10);
    key = _mm512_maskz_srli_epi16(inside, key, shift);
    _mm512_storeu_si512(to->slots + i, _mm512_ternarylogic_epi32(key, sign, slot_of_sign, 0xd8)); /* its bit is the sign's */
    memcpy(to->some.of + i / 16, &some, sizeof some);
    memcpy(to->inside.of + i / 16, &inside, sizeof inside);
}

/* What is numbered is in the cache; memory works on what comes next. */
AVX512 INLINE void number(Numbered *to, const void *x, int n, int dtype, Window in, Soon soon) {
    int i = 0;
    for (; i + WIDE <= n; i += WIDE) {
        if (soon.of[0]) FETCH_SOON(soon.of[0] + 2 * (BLOCK + i));
        if (soon.of[1]) FETCH_SOON(soon.of[1] + 2 * (BLOCK + i));
        number_wide(to, i, at(x, i, dtype), ALL, dtype, in);
    }
    if (i < n) number_wide(to, i, at(x, i, dtype), first_of(n - i), dtype, in);
    for (i += i < n ? WIDE : 0; i % GROUP; i += WIDE) _mm512_storeu_si512(to->slots + i, _mm512_setzero_si512());
}

/* A whole adder for each bit: leaves the sum, returns the carry. That is a where a and b are the same, else it is what the
   sum is not. By the sum before, a register would have to be copied. */
AVX512 INLINE __m512i add_three(__m512i *sum, __m512i a, __m512i b) {
    *sum = _mm512_ternarylogic_epi64(*sum, a, b, 0x96);
    return _mm512_ternarylogic_epi64(a, b, *sum, 0xd4);
}

/* How many of the 8 words have each of the 64 bits, as 64 bytes: the register's bits are transposed. */
AVX512 INLINE __m512i words_with_each_bit(__m512i words) {
    const __m512i eighths = _mm512_set_epi64(
        0x3f372f271f170f07, 0x3e362e261e160e06, 0x3d352d251d150d05, 0x3c342c241c140c04, 0x3b332b231b130b03,
        0x3a322a221a120a02, 0x3931292119110901, 0x3830282018100800);
    __m512i bytes = _mm512_permutexvar_epi8(eighths, words);
    bytes = _mm512_gf2p8affine_epi64_epi8(_mm512_set1_epi64((long long)0x8040201008040201u), bytes, 0);
    return _mm512_popcnt_epi8(bytes);
}

/* The word of each value is the 1, turned as far as its slot says. Of a count only the lowest 6 bits matter, so that
   loads from one value later put another one there. */
AVX512 INLINE __m512i words_of(const uint16_t *slots, int k) {
    return _mm512_rolv_epi64(_mm512_set1_epi64(1), _mm512_loadu_si512((const void *)(slots + k / 4 * WIDE + k % 4)));
}

/* How many values each slot has. */
AVX512 INLINE void count_slots(const uint16_t *slots, int n, uint16_t *counts) {
    const __m512i none = _mm512_setzero_si512();
    __m512i ones = none, twos = none, fours = none, eights = none;
    __m512i sixteens = none, others = none; /* in turn: a byte has room for half of a block */
    uint8_t found[3][2 * SLOT_KEYS];
    for (int i = 0; i < n; i += GROUP) {
        __m512i to_eights[2], to_fours[2], to_twos[2];
        for (int k = 0; k < 16; k += 2) {
            to_twos[k / 2 % 2] = add_three(&ones, words_of(slots + i, k), words_of(slots + i, k + 1));
            if (k % 4 == 2) to_fours[k / 4 % 2] = add_three(&twos, to_twos[0], to_twos[1]);
            if (k % 8 == 6) to_eights[k / 8] = add_three(&fours, to_fours[0], to_fours[1]);
        }
        __m512i sum = _mm512_add_epi8(others, words_with_each_bit(add_three(&eights, to_eights[0], to_eights[1])));
        others = sixteens;
        sixteens = sum;
    }
    __m512i rest = words_with_each_bit(eights);
    rest = _mm512_add_epi8(_mm512_add_epi8(rest, rest), words_with_each_bit(fours));
    rest = _mm512_add_epi8(_mm512_add_epi8(rest, rest), words_with_each_bit(twos));
    rest = _mm512_add_epi8(_mm512_add_epi8(rest, rest), words_with_each_bit(ones));
    _mm512_storeu_si512(found[0], sixteens);
    _mm512_storeu_si512(found[1], others);
    _mm512_storeu_si512(found[2], rest);
    for (int k = 0; k < 2 * SLOT_KEYS; k++) counts[k] = (uint16_t)(16 * (found[0][k] + found[1][k]) + found[2][k]);
}

/* Adds the values of a window to the histogram; how many of the block are neither zero nor there, and are marked so. */
AVX512 INLINE int count_window(
    Numbered *numbered, const void *x, int n, int dtype, Window in, Soon soon, int64_t *hist) {
    const Form form = form_of(dtype);
    const int to_bin = (int)(in.low >> form.shift) + form.bias + TO_BIN, lanes = n + lanes_behind(n);
    uint16_t counts[2 * SLOT_KEYS];
    number(numbered, x, n, dtype, in, soon);
    count_slots(numbered->slots, n, counts);
    const int outside = lanes - marked(&numbered->inside, n), zeros = lanes - marked(&numbered->some, n);
    counts[0] -= (uint16_t)(outside + zeros + (n + GROUP - 1) / GROUP * GROUP - lanes);
    for (int k = 0; k < SLOT_KEYS; k++) hist[ZERO_BIN + to_bin + k] += counts[k];
    for (int k = 0; k < SLOT_KEYS; k++) hist[ZERO_BIN - to_bin - k] += counts[SLOT_KEYS + k];
    return outside;
}

/* Copies the values that are not marked as `inside`, and maybe others behind them; how many they are. */
AVX512 INLINE int copy_outside(const Numbered *numbered, const void *x, int n, int dtype, void *to) {
    int found = 0;
    for (int i = 0; i < n; i += WIDE) {
        uint32_t which;
        memcpy(&which, numbered->inside.of + i / 16, sizeof which);
        if (which == ALL) continue;
        which = in_order(~which, dtype);
        for (int k = 0; k < WIDE; k += dtype == F32 ? 16 : WIDE) {
            const uint32_t there = first_of(n - i) >> k, some = dtype == F32 ? which >> k & 0xffff : which;
            void *end = (char *)to + found * (dtype == F32 ? 4 : 2);
            __m512i v;
            if (dtype == F32)
                v = _mm512_maskz_compress_epi32((__mmask16)some, _mm512_maskz_loadu_epi32((__mmask16)there, at(x, i + k, F32)));
            else
                v = _mm512_maskz_compress_epi16(some, _mm512_maskz_loadu_epi16(there, at(x, i, dtype)));
            _mm512_storeu_si512(end, v);
            found += __builtin_popcount(some);
        }
    }
    return found;
}

/* Values of fp32 that are not zero, but whose upper halves are. */
INLINE void count_tiny(const void *x, int n, int64_t *hist) {
    for (int i = 0; i < n; i++) count_if_outside(bits_at(x, i, F32), F32, (Window){1u << 16, UINT32_MAX}, hist);
}

#define RARE 64 /* of so many values one outside of the window: then a second window is worth it */

/* Counts a block with so many zeros, which are not counted; but for some values, which are copied to `rest`, with room for
   a register more. How many these are. */
AVX512 INLINE int count_in_slots(
    const void *x, int n, int dtype, const Block *b, int64_t zeros, Soon soon, int64_t *hist, void *rest) {
    const Form form = form_of(dtype);
    Numbered numbered;
    Window in = window_below((int)(most_of(b) >> KEY_SHIFT) - form.bias + 1, dtype);
    int outside = count_window(&numbered, x, n, dtype, in, soon, hist);
    const int some = marked(&numbered.some, n), next = (int)(in.low >> form.shift);
    if (outside > n / RARE && next - SLOT_KEYS >= FIRST_KEY) {
        const Marks first = numbered.inside;
        outside -= some - count_window(&numbered, x, n, dtype, window_below(next, dtype), NOTHING_SOON, hist);
        for (int i = 0; i < BLOCK / 16; i++) numbered.inside.of[i] |= first.of[i];
    }
    if (some != n - zeros) count_tiny(x, n, hist);
    return outside ? copy_outside(&numbered, x, n, dtype, rest) : 0;
}

#endif
#endif
