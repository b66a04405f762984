/* Copy: tensors copied into memory of the pool, or of their own where they are small. See _direct.c. */

enum { LARGE = 1 << 12, STREAMED = 1 << 16 };
/* LARGE: bytes from which on a copy is one of the pool's. STREAMED: from which on it is written past the caches. */

static int is_copied_as_bytes(const Tensor *t) {
    int code = t->dtype.code;
    int known = code == INT || code == UINT || code == FLOAT || code == BFLOAT || code == BOOL;
    return known && t->dtype.lanes == 1 && t->dtype.bits >= 8;
}

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>

/* A large copy that is not read again soon is written past the caches: memory then need not be fetched only to be
   overwritten, and what the model works on stays in them. */
static void copy_bytes(char *to, const char *from, size_t bytes) {
    size_t at = -(uintptr_t)to & 15;
    memcpy(to, from, at);
    for (; at + 64 <= bytes; at += 64)
        for (int part = 0; part < 64; part += 16)
            _mm_stream_si128((__m128i *)(to + at + part), _mm_loadu_si128((const __m128i *)(from + at + part)));
    _mm_sfence();
    memcpy(to + at, from + at, bytes - at);
}
#else
static void copy_bytes(char *to, const char *from, size_t bytes) { memcpy(to, from, bytes); }
#endif

/* What a copy has besides its values: freed, or handed back, when nobody has the copy any more. */
typedef struct {
    Owned owned;
    Block *block; /* of the pool, whose notes have this struct; NULL where the values lie behind it */
    int64_t dims[];
} Copy;

static void let_go(Owned *owned) {
    Copy *copy = (Copy *)owned;
    if (copy->block)
        block_returned(copy->block);
    else
        free(copy);
}

/* Room for a copy of `t`, whose values take so many bytes and lie as its own do; NULL where there is no memory. */
static Copy *room_for(const Tensor *t, size_t bytes, int in_order) {
    size_t notes = sizeof(Copy) + 2 * (size_t)t->ndim * sizeof(int64_t);
    Block *block = bytes < LARGE || notes > NOTES ? NULL : block_taken(bytes);
    Copy *copy = block ? (Copy *)block->notes : malloc(notes + ALIGNED + bytes);
    if (!copy) return NULL;
    int64_t *shape = copy->dims, *strides = shape + t->ndim, apart = 1;
    for (int d = t->ndim - 1; d >= 0; d--) {
        shape[d] = t->shape[d];
        strides[d] = in_order ? apart : t->strides[d];
        apart *= t->shape[d] > 1 ? t->shape[d] : 1;
    }
    copy->owned = (Owned){.major = 1, .owner = copy, .let_go = let_go, .tensor = *t};
    copy->block = block;
    char *behind = (char *)(((uintptr_t)(strides + t->ndim) + ALIGNED - 1) / ALIGNED * ALIGNED);
    copy->owned.tensor.data = block ? values_of(block) : behind;
    copy->owned.tensor.shape = shape;
    copy->owned.tensor.strides = strides;
    copy->owned.tensor.byte_offset = 0;
    return copy;
}

/* Room for a copy of a tensor, which is told in `*t`, and how many bytes it takes; NULL where it is no plain one of
   numbers on the CPU, there are gaps between them, or an exception is set. */
static Copy *room_of(const Exchange *exchange, PyObject *tensor, Tensor *t, size_t *bytes) {
    if (!tells(exchange, tensor, t) || t->device.kind != CPU || !is_copied_as_bytes(t)) return NULL;
    int in_order = lies_in_order(t);
    if (!in_order && !has_no_gaps(t)) return NULL;
    *bytes = t->dtype.bits / 8;
    for (int d = 0; d < t->ndim; d++) *bytes *= (size_t)t->shape[d];
    if (*bytes && !t->data) return NULL;
    Copy *room = room_for(t, *bytes, in_order);
    if (!room) PyErr_NoMemory();
    return room;
}

/* The values of a tensor, copied; NULL where `room_of` is. */
static Copy *copied(const Exchange *exchange, PyObject *tensor) {
    Tensor t;
    size_t bytes;
    Copy *made = room_of(exchange, tensor, &t, &bytes);
    if (!made) return NULL;
    const char *from = (const char *)t.data + t.byte_offset;
    if (bytes < STREAMED) {
        if (bytes) memcpy(made->owned.tensor.data, from, bytes);
    } else {
        PyThreadState *thread = PyEval_SaveThread();
        copy_bytes(made->owned.tensor.data, from, bytes);
        PyEval_RestoreThread(thread);
    }
    return made;
}

/* A tensor in the memory of a copy, which it takes; NULL with an exception set where there can't be one. */
static PyObject *tensor_of(const Exchange *exchange, Copy *copy) {
    void *tensor = NULL;
    if (exchange->from_owned(&copy->owned, &tensor)) { /* it has taken the copy all the same */
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_RuntimeError, "no tensor could be made of a copy");
        return NULL;
    }
    return tensor;
}

/* copy(exchange, tensor) -> a tensor of the same values without history, or None where it is no plain one of numbers
   on the CPU, or there are gaps between them. */
static PyObject *copy(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    (void)self;
    const Exchange *exchange = table_of("copy", args, count, 2);
    Copy *made = exchange ? copied(exchange, args[1]) : NULL;
    if (made) return tensor_of(exchange, made);
    if (PyErr_Occurred()) return NULL;
    Py_RETURN_NONE;
}

/* room(exchange, tensor) -> an uninitialised tensor for what `copy` would give; None where that is None. */
static PyObject *room(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    (void)self;
    Tensor t;
    size_t bytes;
    const Exchange *exchange = table_of("room", args, count, 2);
    Copy *made = exchange ? room_of(exchange, args[1], &t, &bytes) : NULL;
    if (made) return tensor_of(exchange, made);
    if (PyErr_Occurred()) return NULL;
    Py_RETURN_NONE;
}
