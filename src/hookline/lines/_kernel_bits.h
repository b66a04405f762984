/* Bits: a fingerprint of 64 bits of the values of a tensor, in their order; backends/hashing.py says the same in numpy.

   The bytes are taken as words of 64 bits, the last one filled up with zeros, in blocks of WORDS. To each word of a
   block two keys are added, its own and another place's; the products of the upper and the lower half of these sums
   are summed up, to two numbers for each block. With keys that are as good as random, two blocks that differ have the
   same numbers once in 2^64 times. Both are scrambled with the number of the block, so that blocks can't change places,
   and summed up: no block waits for another, on a device they are all worked on at once. */
#ifndef HOOKLINE_BITS_H
#define HOOKLINE_BITS_H

#include "_kernel_layout.h"

#define WORDS 512  /* of a block: 4 KB, which with the keys stay in a first-level cache */
#define BESIDE 8   /* so far away is the second key of a word */
#define WEYL 0x9e3779b97f4a7c15u

static inline uint64_t scrambled(uint64_t x) {
    x ^= x >> 31;
    x *= 0xd6e8feb86659fd93u;
    x ^= x >> 29;
    x *= 0xa0761d6478bd642fu;
    return x ^ x >> 32;
}

typedef struct {
    uint64_t keys[WORDS + BESIDE], sum, bytes;
    int64_t blocks;
    int avx2;
} Bits;

static void begin_bits(Bits *bits, int64_t bytes, int avx2) {
    const int64_t words = bytes / 8 + 1;
    const int64_t needed = BESIDE + (words < WORDS ? words : WORDS);
    for (int64_t i = 0; i < needed; i++) bits->keys[i] = scrambled((uint64_t)(i + 1) * WEYL);
    bits->sum = 0;
    bits->bytes = (uint64_t)bytes;
    bits->blocks = 0;
    bits->avx2 = avx2;
}

static inline uint64_t halves(uint64_t x) { return (x & 0xffffffffu) * (x >> 32); }

static void sum_words(const char *data, int from, int words, const uint64_t *keys, uint64_t *one, uint64_t *two) {
    uint64_t a = *one, b = *two;
    for (int i = from; i < words; i++) {
        uint64_t word;
        memcpy(&word, data + 8 * i, 8);
        a += halves(word + keys[i]);
        b += halves(word + keys[i + BESIDE]);
    }
    *one = a;
    *two = b;
}

#ifdef HAVE_AVX2_PATH
/* The same of all words but the last few; how many they are. */
AVX2 static int sum_words_avx2(const char *data, int words, const uint64_t *keys, uint64_t *one, uint64_t *two) {
    __m256i a = _mm256_setzero_si256(), b = a;
    uint64_t parts[8];
    int i = 0;
    for (; i + 4 <= words; i += 4) {
        __m256i word = _mm256_loadu_si256((const __m256i *)(data + 8 * i));
        __m256i x = _mm256_add_epi64(word, _mm256_loadu_si256((const __m256i *)(keys + i)));
        __m256i y = _mm256_add_epi64(word, _mm256_loadu_si256((const __m256i *)(keys + i + BESIDE)));
        a = _mm256_add_epi64(a, _mm256_mul_epu32(x, _mm256_srli_epi64(x, 32)));
        b = _mm256_add_epi64(b, _mm256_mul_epu32(y, _mm256_srli_epi64(y, 32)));
    }
    _mm256_storeu_si256((__m256i *)parts, a);
    _mm256_storeu_si256((__m256i *)(parts + 4), b);
    for (int part = 0; part < 4; part++) {
        *one += parts[part];
        *two += parts[4 + part];
    }
    return i;
}
#endif

/* Takes the next block; all but the last have WORDS words. */
static void take_bits(Bits *bits, const char *data, int64_t bytes) {
    const int words = (int)(bytes / 8), rest = (int)(bytes % 8);
    uint64_t one = 0, two = 0;
    int from = 0;
#ifdef HAVE_AVX2_PATH
    if (bits->avx2) from = sum_words_avx2(data, words, bits->keys, &one, &two);
#endif
    sum_words(data, from, words, bits->keys, &one, &two);
    if (rest) {
        char last[8] = {0};
        memcpy(last, data + 8 * words, (size_t)rest);
        sum_words(last, 0, 1, bits->keys + words, &one, &two);
    }
    bits->blocks++;
    bits->sum += scrambled(one ^ scrambled(two + (uint64_t)bits->blocks * WEYL));
}

static uint64_t end_bits(const Bits *bits) { return scrambled(bits->sum + bits->bytes * WEYL); }

static uint64_t fingerprint(const char *data, int64_t bytes, int avx2) {
    Bits bits;
    begin_bits(&bits, bytes, avx2);
    for (int64_t at = 0; at < bytes; at += 8 * WORDS) {
        for (int64_t next = at + 8 * WORDS; next < bytes && next < at + 16 * WORDS; next += 64) PREFETCH(data + next);
        take_bits(&bits, data + at, bytes - at < 8 * WORDS ? bytes - at : 8 * WORDS);
    }
    return end_bits(&bits);
}

/* A row of values, `stride` bytes apart, behind each other. */
static void copy_row(const char *from, int64_t stride, int n, int size, char *to) {
    if (stride == size)
        memcpy(to, from, (size_t)n * (size_t)size);
    else if (size == 8)
        for (int i = 0; i < n; i++) memcpy(to + 8 * i, from + i * stride, 8);
    else if (size == 4)
        for (int i = 0; i < n; i++) memcpy(to + 4 * i, from + i * stride, 4);
    else
        for (int i = 0; i < n; i++) memcpy(to + 2 * i, from + i * stride, 2);
}

/* The next n values of a walk through a tensor in the order of its indices, whose state is `index`. */
static void copy_next(
    const char *data, int dims, const int64_t *shape, const int64_t *stride, int64_t *index, int n, int size, char *to) {
    const int inner = dims - 1;
    for (int done = 0; done < n;) {
        int64_t at = 0, left = shape[inner] - index[inner];
        int row = left < n - done ? (int)left : n - done;
        for (int d = 0; d < dims; d++) at += index[d] * stride[d];
        copy_row(data + at * size, stride[inner] * size, row, size, to + (int64_t)done * size);
        done += row;
        index[inner] += row;
        for (int d = inner; d > 0 && index[d] == shape[d]; d--) {
            index[d] = 0;
            index[d - 1]++;
        }
    }
}

/* The same of values of 2, 4 or 8 bytes in any layout, in the order of their indices. */
static uint64_t fingerprint_strided(
    const char *data, int dims, const int64_t *shape, const int64_t *stride, int size, int avx2) {
    if (!dims) return fingerprint(data, size, avx2);
    int64_t index[MAX_DIMS] = {0}, count = 1;
    for (int d = 0; d < dims; d++) count *= shape[d];
    const int full = 8 * WORDS / size;
    char block[8 * WORDS];
    Bits bits;
    begin_bits(&bits, count * size, avx2);
    for (int64_t done = 0; done < count; done += full) {
        int n = count - done < full ? (int)(count - done) : full;
        copy_next(data, dims, shape, stride, index, n, size, block);
        take_bits(&bits, block, (int64_t)n * size);
    }
    return end_bits(&bits);
}

#endif
