/* The histogram of a block with AVX-512, without a table that values would have to be counted in.

   A window of magnitudes has 64 slots: 32 keys of positive values, and the same of negative ones. Each value becomes a
   word of 64 bits in which the bit of its slot is set. Eight such words are a register, and registers are added up
   place by place, as carries and rests of whole adders made of logic: `ones` has the last bit of every slot's count,
   `twos` the one before it, and so on. It takes the same time for all values, alike or not.

   Zeros are in slot 0, from which they are taken away. What is outside of the window is marked, and counted one by one. */
#ifndef HOOKLINE_SLOTS_H
#define HOOKLINE_SLOTS_H

#include "_kernel_avx512.h"

#define SLOT_KEYS 32
#define GROUP 128 /* values of 16 registers: their carry has the weight 16 */

typedef struct {
    Window window;
    int is_open;
    int64_t counted; /* values */
    uint32_t counts[2 * SLOT_KEYS];
} Slots;

#ifdef HAVE_AVX512_PATH

/* The first bit of a key in the upper 16 bits of a value, which is all of it that matters here. */
INLINE int key_shift(int dtype) { return dtype == F32 ? KEY_SHIFT - 16 : form_of(dtype).shift; }

/* A window for values such as those of a block; `above` keys more than its largest one needs. */
INLINE void open_slots(Slots *slots, const Block *b, int dtype, int above) {
    const Form form = form_of(dtype);
    int end = (int)(most_of(b) >> KEY_SHIFT) - form.bias + 1 + above, last = (int)(form.inf >> form.shift);
    end = end < last ? end : last;
    int first = end - SLOT_KEYS > FIRST_KEY ? end - SLOT_KEYS : FIRST_KEY;
    slots->window = (Window){(uint32_t)first << form.shift, (uint32_t)(first + SLOT_KEYS) << form.shift};
    slots->is_open = 1;
    slots->counted = 0;
    memset(slots->counts, 0, sizeof slots->counts);
}

static void fold_slots(Slots *slots, int dtype, int64_t *hist) {
    const Form form = form_of(dtype);
    const int to_bin = (int)(slots->window.low >> form.shift) + form.bias + TO_BIN;
    for (int k = 0; k < SLOT_KEYS; k++) {
        hist[ZERO_BIN + to_bin + k] += slots->counts[k];
        hist[ZERO_BIN - to_bin - k] += slots->counts[SLOT_KEYS + k];
    }
    slots->is_open = 0;
}

/* The upper 16 bits of WIDE values. Those of fp32 are in another order: `place_of` tells which. */
AVX512 INLINE __m512i upper_halves(const void *x, uint32_t which, int dtype) {
    if (dtype != F32) return _mm512_maskz_loadu_epi16(which, x);
    __m512i a = _mm512_maskz_loadu_epi32((__mmask16)which, x);
    __m512i b = _mm512_maskz_loadu_epi32((__mmask16)(which >> 16), (const float *)x + 16);
    return _mm512_mask_mov_epi16(_mm512_srli_epi32(b, 16), 0xaaaaaaaau, a);
}

INLINE int place_of(int lane, int dtype) {
    if (dtype != F32) return lane;
    return lane % 2 ? lane / 2 : 16 + lane / 2;
}

/* What is stored of each value: its slot in the lowest 6 bits; and whether it is a zero, or outside of the window. Only
   there the key has more than 5 bits: below the window the difference is negative, which no window is large enough to
   hide. */
typedef struct {
    uint16_t slots[BLOCK + WIDE];
    Marks zeros, outside;
} Numbered;

AVX512 INLINE void number_wide(Numbered *to, int i, const void *x, uint32_t which, int dtype, uint32_t low) {
    const int shift = key_shift(dtype);
    const __m512i beyond = _mm512_set1_epi16((short)(0x7fff & ~((SLOT_KEYS << shift) - 1)));
    __m512i upper = upper_halves(x, which, dtype);
    const __mmask32 some = _mm512_test_epi16_mask(upper, _mm512_set1_epi16(0x7fff));
    __m512i key = _mm512_maskz_sub_epi16(some, upper, _mm512_set1_epi16((short)low));
    const __mmask32 zeros = ~some, outside = _mm512_test_epi16_mask(key, beyond);
    __m512i sign = _mm512_srli_epi16(key, 10);
    key = _mm512_ternarylogic_epi32(_mm512_srli_epi16(key, shift), sign, _mm512_set1_epi16(SLOT_KEYS), 0xd8);
    _mm512_storeu_si512(to->slots + i, key);
    memcpy(to->zeros.of + i / 16, &zeros, sizeof zeros);
    memcpy(to->outside.of + i / 16, &outside, sizeof outside);
}

AVX512 INLINE void number(Numbered *to, const void *x, int n, int dtype, Window in) {
    const int whole = n / WIDE * WIDE;
    const uint32_t low = dtype == F32 ? in.low >> 16 : in.low;
    for (int i = 0; i < whole; i += WIDE) number_wide(to, i, at(x, i, dtype), ALL, dtype, low);
    if (n > whole) number_wide(to, whole, at(x, whole, dtype), first_of(n - whole), dtype, low);
    for (int i = whole + (n > whole ? WIDE : 0); i % GROUP; i += WIDE)
        _mm512_storeu_si512(to->slots + i, _mm512_setzero_si512());
}

/* A whole adder for each bit: leaves the sum, returns the carry. */
AVX512 INLINE __m512i add_three(__m512i *sum, __m512i a, __m512i b) {
    __m512i carry = _mm512_ternarylogic_epi64(*sum, a, b, 0xe8);
    *sum = _mm512_ternarylogic_epi64(*sum, a, b, 0x96);
    return carry;
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

AVX512 INLINE void count_slots(const uint16_t *slots, int n, uint32_t *counts) {
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
        __m512i more = words_with_each_bit(add_three(&eights, to_eights[0], to_eights[1]));
        __m512i sum = _mm512_add_epi8(others, more);
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
    for (int k = 0; k < 2 * SLOT_KEYS; k++) counts[k] += 16u * (found[0][k] + found[1][k]) + found[2][k];
}

/* Counts what is marked, and takes it away from where it was counted with the others. */
INLINE void count_marked(const Numbered *from, const void *x, int n, int dtype, Slots *slots, int64_t *hist) {
    for (int i = 0; i < n; i += WIDE) {
        uint32_t marks;
        memcpy(&marks, from->outside.of + i / 16, sizeof marks);
        for (; marks; marks &= marks - 1) {
            const int lane = __builtin_ctz(marks);
            slots->counts[from->slots[i + lane] % (2 * SLOT_KEYS)]--;
            count_if_outside(bits_at(x, i + place_of(lane, dtype), dtype), dtype, slots->window, hist);
        }
    }
}

/* Values of fp32 that are not zero, but whose upper 16 bits are. */
INLINE void count_tiny(const void *x, int n, int64_t *hist) {
    for (int i = 0; i < n; i++) count_if_outside(bits_at(x, i, F32), F32, (Window){1u << 16, UINT32_MAX}, hist);
}

/* Whether the block is counted: not if too much of it is outside of the window. `zeros` are how many it has. */
AVX512 INLINE int count_in_slots(Slots *slots, const void *x, int n, int dtype, int64_t zeros, int64_t *hist) {
    Numbered numbered;
    number(&numbered, x, n, dtype, slots->window);
    const int outside = marked(&numbered.outside, n), seen = marked(&numbered.zeros, n), groups = (n + GROUP - 1) / GROUP;
    if (outside > n / STRANGE) return 0;
    count_slots(numbered.slots, n, slots->counts);
    slots->counts[0] -= (uint32_t)(seen + groups * GROUP - n - lanes_behind(n));
    slots->counted += n;
    if (outside) count_marked(&numbered, x, n, dtype, slots, hist);
    if (seen - lanes_behind(n) != zeros) count_tiny(x, n, hist);
    return 1;
}

#endif
#endif
