/* All statistics of a tensor in one pass over its memory. Called through ctypes, which releases the GIL;
   no state outside of the arguments and the stack, no threads, no Python.h.

   hookline_reduce takes contiguous memory, hookline_reduce_copied also copies it, hookline_reduce_difference takes two of them, hookline_reduce_strided any layout, and
   statistics per channel. hookline_fingerprint and its like take the same memories, and hash their bits. */
#include "_kernel_bits.h"
#include "_kernel_layout.h"
#include "_kernel_sheet.h"
#include "_kernel_spread.h"
#include "_kernel_take.h"

typedef union { /* a block of any dtype */
    double f64[BLOCK];
    float f32[BLOCK];
    uint16_t half[BLOCK];
} Values;

static int size_of(int dtype) { return dtype == F64 ? 8 : dtype == F32 ? 4 : 2; }

typedef void (*Take)(Job *, const void *, int);

static Take take_of(const Job *job) {
#ifdef HAVE_AVX512_PATH
    static const Take avx512[] = {[F32] = take_f32_avx512, [F16] = take_f16_avx512, [BF16] = take_bf16_avx512};
    if (job->avx512 && job->dtype != F64) return avx512[job->dtype];
#endif
#ifdef HAVE_AVX2_PATH
    static const Take avx2[] = {[F32] = take_f32_avx2, [F16] = take_f16_avx2, [BF16] = take_bf16_avx2};
    if (job->avx2 && job->dtype != F64) return avx2[job->dtype];
#endif
    return job->dtype == F32 ? take_f32 : job->dtype == F64 ? take_f64 : take_halves;
}

/* Before 32 bits are full. */
static void make_room(Job *job) {
    const int64_t full = 1 << 30;
    if (job->tallied > full) {
        fold(job);
        memset(*job->tally, 0, sizeof(Tally));
        job->tallied = job->tallied_outside = 0;
    }
#ifdef HAVE_AVX2_PATH
    if (job->pairs && job->pairs->is_open && job->pairs->counted > full) fold_pairs(job->pairs, job->dtype, job->hist);
#endif
}

typedef void (*Subtract)(const void *, const void *, int, void *);

static Subtract subtract_of(const Job *job) {
#ifdef HAVE_AVX512_PATH
    if (job->avx512 && job->dtype == F32) return subtract_f32_avx512;
#endif
#ifdef HAVE_AVX2_PATH
    static const Subtract avx2[] = {
        [F32] = subtract_f32_avx2, [F64] = subtract_f64, [F16] = subtract_f16_avx2, [BF16] = subtract_bf16_avx2};
    if (job->avx2) return avx2[job->dtype];
#endif
    static const Subtract baseline[] = {
        [F32] = subtract_f32, [F64] = subtract_f64, [F16] = subtract_f16, [BF16] = subtract_bf16};
    return baseline[job->dtype];
}

/* What is not read again soon is written past the caches: memory then need not be fetched only to be overwritten. */
#define STREAMS (1 << 14) /* values from which on it is worth it */

static int is_streamed(const Job *job, int64_t n) {
    return job->avx2 && n >= STREAMS && (uintptr_t)job->copy % 64 == 0;
}

static void stream(const char *from, char *to, int64_t bytes) {
#ifdef HAVE_AVX2_PATH
    stream_avx2(from, to, bytes);
#else
    memcpy(to, from, (size_t)bytes);
#endif
}

/* Has memory work on the next block, while this one is reduced from the cache. */
static void fetch(const char *data, int64_t from, int64_t end) {
    for (int64_t at = from; at < end && at < from + BLOCK * 4; at += 64) PREFETCH(data + at);
}

static int is_aligned(const void *data, int dtype) { return (uintptr_t)data % (unsigned)size_of(dtype) == 0; }

static void take(Job *job, const char *data, int64_t n) {
    const Take take_block = take_of(job);
    const Subtract subtract = subtract_of(job);
    const int bytes = size_of(job->dtype), aligned = is_aligned(data, job->dtype);
    const int streamed = aligned && job->copy && is_streamed(job, n);
    Values made; /* it never leaves the cache */
    for (int64_t at = 0; at < n; at += BLOCK) {
        int count = n - at < BLOCK ? (int)(n - at) : BLOCK;
        const void *block = data + at * bytes;
        make_room(job);
#ifdef HAVE_AVX512_PATH
        if (job->hist && job->dtype == F32 && at + 2 * BLOCK <= n) {
            job->soon = (Soon){{data + (at + BLOCK) * bytes, job->less ? job->less + (at + BLOCK) * bytes : NULL}};
        } else {
            job->soon = NOTHING_SOON;
        }
        if (streamed && job->avx512 && job->dtype == F32) {
            take_f32_streamed_avx512(job, block, job->copy + at * bytes, count);
            continue;
        }
        if (job->less && job->avx512 && job->dtype == F32) {
            take_f32_made_avx512(job, block, job->less + at * bytes, &made, count);
            continue;
        }
#endif
        if (streamed)
            stream(block, job->copy + at * bytes, count * bytes);
        else if (job->copy)
            memcpy(job->copy + at * bytes, block, (size_t)(count * bytes));
        if (job->less) {
            subtract(block, job->less + at * bytes, count, &made);
            block = &made;
            fetch(data, (at + count) * bytes, n * bytes);
            fetch(job->less, (at + count) * bytes, n * bytes);
        } else if (!aligned) {
            block = memcpy(&made, block, (size_t)(count * bytes));
        }
        take_block(job, block, count);
    }
#ifdef HAVE_AVX2_PATH
    if (streamed) _mm_sfence(); /* whoever is told that the copy is there finds it */
    if (job->hist && job->avx2 && job->dtype != F64) settle(job);
#endif
}

static void set_way(Job *job, int how) {
    job->dtype = DTYPE_OF(how);
    job->avx2 = LEVEL_OF(how) >= AVX2_LEVEL;
    job->avx512 = LEVEL_OF(how) >= AVX512_LEVEL;
}

static Job begin(Header *out, int how) {
    *out = (Header){.min = INFINITY, .max = -INFINITY};
    int64_t *hist = WITH_HISTOGRAM(how) ? HIST(out) : NULL;
    Job job = {.out = out, .hist = hist};
    set_way(&job, how);
    return job;
}

/* torch.set_flush_denormal makes the processor take denormals for zeros; here they count as what they are. To set its mode
   makes it wait, longer than a few values take: that is done only where it is another one. */
#ifdef __SSE2__
#include <xmmintrin.h>
#define FLUSHING 0x8040u
#define DENORMALS_SEEN                    \
    const unsigned before = _mm_getcsr(); \
    if (before & FLUSHING) _mm_setcsr(before & ~FLUSHING)
#define DENORMALS_AS_BEFORE \
    if (before & FLUSHING) _mm_setcsr(before)
#define FLUSHES (_mm_getcsr() & FLUSHING)
#else
#define DENORMALS_SEEN
#define DENORMALS_AS_BEFORE
#define FLUSHES 0
#endif

API int hookline_abi(void) { return ABI * 10000 + BINS; }

API int hookline_best_level(void) {
#ifdef HAVE_AVX2_PATH
    __builtin_cpu_init(); /* asks the system, too, whether it keeps such registers */
#ifdef HAVE_AVX512_PATH
#ifndef HAS
#define HAS(feature) __builtin_cpu_supports(feature)
#endif
    if (HAS("avx2") && HAS("fma") && HAS("f16c") && HAS("avx512f") && HAS("avx512bw") && HAS("avx512dq") && HAS("avx512vl") &&
        HAS("avx512vbmi") && HAS("avx512vbmi2") && HAS("avx512bitalg") && HAS("avx512vpopcntdq") && HAS("gfni") &&
        HAS("bmi2") && HAS("popcnt"))
        return AVX512_LEVEL;
#endif
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c"))
        return AVX2_LEVEL;
#endif
    return BASELINE;
}

#define FEW 512 /* values for which clearing and folding a Tally costs more than it saves */

static void take_tallied(Job *job, const char *data, int64_t n) {
    Tally counts;
    memset(counts, 0, sizeof counts);
    job->tally = &counts;
    take(job, data, n);
    fold(job);
}

#ifdef HAVE_AVX2_PATH
#define MANY 16384 /* values that are worth a table of pairs */

static void take_in_pairs(Job *job, const char *data, int64_t n) {
    Pairs pairs;
    pairs.is_open = 0;
    job->pairs = &pairs;
    take(job, data, n);
}
#endif

static void take_all(Job *job, const char *data, int64_t n) {
#ifdef HAVE_AVX2_PATH
    if (job->avx2 && job->dtype != F64) {
        if (job->hist && n >= MANY && !job->avx512)
            take_in_pairs(job, data, n);
        else
            take(job, data, n);
        return;
    }
#endif
    if (job->hist && n > FEW)
        take_tallied(job, data, n);
    else
        take(job, data, n);
}

/* The statistics of n values behind each other. `out` is a Header and, with a histogram, BINS zeros. */
API void hookline_reduce(const void *data, int64_t n, int how, Header *out) {
    DENORMALS_SEEN;
    Job job = begin(out, how);
    take_all(&job, data, n);
    DENORMALS_AS_BEFORE;
}

/* The same, and a copy of the values is at `copy` then, which is other memory. Returns 0: it can always be done. */
API int hookline_reduce_copied(const void *data, void *copy, int64_t n, int how, Header *out) {
    DENORMALS_SEEN;
    Job job = begin(out, how);
    job.copy = copy;
    take_all(&job, data, n);
    DENORMALS_AS_BEFORE;
    return 0;
}

/* The statistics of the differences of two such memories. Returns 0, or 1 where nothing was done: they are not aligned, or the
   processor takes denormals for zeros and a difference would be another one than elsewhere. */
API int hookline_reduce_difference(const void *data, const void *less, int64_t n, int how, Header *out) {
    if (FLUSHES || !is_aligned(data, DTYPE_OF(how)) || !is_aligned(less, DTYPE_OF(how))) return 1;
    Job job = begin(out, how);
    job.less = less;
    take_all(&job, data, n);
    return 0;
}

static void gather(Job *job, const char *data, const int64_t *offsets, int n) {
    Values block;
    /* Not by pointers to values: these need not be aligned. */
    if (job->dtype == F64)
        for (int i = 0; i < n; i++) memcpy(&block.f64[i], data + 8 * offsets[i], 8);
    else if (job->dtype == F32)
        for (int i = 0; i < n; i++) memcpy(&block.f32[i], data + 4 * offsets[i], 4);
    else
        for (int i = 0; i < n; i++) memcpy(&block.half[i], data + 2 * offsets[i], 2);
    take(job, (const char *)&block, n);
}

static void repeat(Header *out, int64_t times, int with_histogram) {
    int64_t *counts[] = {&out->finite, &out->zeros, &out->near_zero, &out->nan, &out->inf};
    for (int i = 0; i < 5; i++) *counts[i] *= times;
    out->m2 *= (double)times;
    if (with_histogram)
        for (int i = 0; i < BINS; i++) HIST(out)[i] *= times;
}

#define LONG 512 /* values behind each other that are worth a call of their own */

/* The statistics of each of `channels` slices, the first at `data`, `step` values apart. A batch of places is
   looked at in all channels before the next: where channels are neighbours, a cache line serves several. */
static void reduce_slices(const char *data, const Layout *l, int64_t channels, int64_t step, int how, char *out) {
    const int64_t apart = (int64_t)sizeof(Header) + (WITH_HISTOGRAM(how) ? BINS * (int64_t)sizeof(int64_t) : 0);
    const int64_t bytes = size_of(DTYPE_OF(how));
    const int64_t run = l->stride[l->dims - 1] == 1 && l->size[l->dims - 1] >= LONG ? l->size[l->dims - 1] : 0;
    Layout outer = *l;
    int64_t index[MAX_DIMS] = {0}, offsets[BLOCK], total = l->count;
    if (run) { /* the walk is over the beginnings of the runs */
        total /= run;
        outer.size[outer.dims - 1] = 1;
    }
    for (int64_t c = 0; c < channels; c++) begin((Header *)(out + c * apart), how);
    for (int64_t done = 0; done < total;) {
        int n = total - done < BLOCK ? (int)(total - done) : BLOCK;
        walk(&outer, index, offsets, n);
        for (int64_t c = 0; c < channels; c++) {
            Header *header = (Header *)(out + c * apart), kept = *header;
            Job job = begin(header, how);
            *header = kept;
            const char *slice = data + c * step * bytes;
            if (run)
                for (int i = 0; i < n; i++) take(&job, slice + offsets[i] * bytes, run);
            else
                gather(&job, slice, offsets, n);
        }
        done += n;
    }
    for (int64_t c = 0; c < channels; c++) repeat((Header *)(out + c * apart), l->repeats, WITH_HISTOGRAM(how));
}

/* The same for any layout of up to MAX_DIMS dims, strides in values. With a `channel_dim`, one result for each
   of its indices, behind each other; -1 for one of all. Returns 0, or 1 where there are too many dims. */
API int hookline_reduce_strided(
    const void *data, int dims, const int64_t *size, const int64_t *stride, int channel_dim, int how, char *out) {
    if (dims > MAX_DIMS) return 1;
    DENORMALS_SEEN;
    Layout l = layout_of(dims, size, stride, channel_dim);
    int64_t channels = channel_dim < 0 ? 1 : size[channel_dim];
    int64_t step = channel_dim < 0 ? 0 : stride[channel_dim];
    if (l.repeats == 0) l.count = 0;
    if (channels == 1 && l.dims == 1 && l.stride[0] == 1 && l.count) {
        hookline_reduce(data, l.count, how, (Header *)out);
        repeat((Header *)out, l.repeats, WITH_HISTOGRAM(how));
    } else {
        reduce_slices(data, &l, channels, step, how, out);
    }
    DENORMALS_AS_BEFORE;
    return 0;
}

/* The fingerprint of the bits of n values behind each other, or of n bytes; `out` has room for it. */
API void hookline_fingerprint(const void *data, int64_t n, int how, uint64_t *out) {
    const int bytes = DTYPE_OF(how) == BYTES ? 1 : size_of(DTYPE_OF(how));
    *out = fingerprint(data, n * bytes, LEVEL_OF(how) >= AVX2_LEVEL);
}

/* The same for any layout of up to MAX_DIMS dims, strides in values; with the arguments of hookline_reduce_strided, in
   whose place it is called. Returns 0, or 1 where there are too many dims. */
API int hookline_fingerprint_strided(
    const void *data, int dims, const int64_t *size, const int64_t *stride, int unused, int how, char *out) {
    (void)unused;
    if (dims > MAX_DIMS) return 1;
    uint64_t found = fingerprint_strided(data, dims, size, stride, size_of(DTYPE_OF(how)), LEVEL_OF(how) >= AVX2_LEVEL);
    memcpy(out, &found, sizeof found);
    return 0;
}

/* And of the differences of two such memories, as hookline_reduce_difference makes them. */
API int hookline_fingerprint_difference(const void *data, const void *less, int64_t n, int how, uint64_t *out) {
    if (FLUSHES || !is_aligned(data, DTYPE_OF(how)) || !is_aligned(less, DTYPE_OF(how))) return 1;
    Job job = {0};
    set_way(&job, how);
    const Subtract subtract = subtract_of(&job);
    const int64_t bytes = size_of(job.dtype), full = 8 * WORDS / bytes;
    Values made;
    Bits bits;
    begin_bits(&bits, n * bytes, job.avx2);
    for (int64_t at = 0; at < n; at += full) {
        int count = n - at < full ? (int)(n - at) : (int)full;
        subtract((const char *)data + at * bytes, (const char *)less + at * bytes, count, &made);
        take_bits(&bits, (const char *)&made, count * bytes);
    }
    *out = end_bits(&bits);
    return 0;
}

/* What reading costs: the sum of n fp32 values. Only bench/kernel.py calls it. */
#ifdef HAVE_AVX2_PATH
AVX2 static double read_avx2(const float *x, int64_t n) {
    __m256 a = _mm256_setzero_ps(), b = a, c = a, d = a;
    for (int64_t i = 0; i + 32 <= n; i += 32) {
        a = _mm256_add_ps(a, _mm256_loadu_ps(x + i));
        b = _mm256_add_ps(b, _mm256_loadu_ps(x + i + 8));
        c = _mm256_add_ps(c, _mm256_loadu_ps(x + i + 16));
        d = _mm256_add_ps(d, _mm256_loadu_ps(x + i + 24));
    }
    float lanes[8];
    _mm256_storeu_ps(lanes, _mm256_add_ps(_mm256_add_ps(a, b), _mm256_add_ps(c, d)));
    return lanes[0] + lanes[1] + lanes[2] + lanes[3] + lanes[4] + lanes[5] + lanes[6] + lanes[7];
}
#endif

API double hookline_read_pass(const float *x, int64_t n) {
#ifdef HAVE_AVX2_PATH
    if (hookline_best_level() >= AVX2_LEVEL) return read_avx2(x, n);
#endif
    float lanes[16] = {0};
    for (int64_t i = 0; i + 16 <= n; i += 16)
        for (int k = 0; k < 16; k++) lanes[k] += x[i + k];
    float sum = 0;
    for (int k = 0; k < 16; k++) sum += lanes[k];
    return sum;
}
