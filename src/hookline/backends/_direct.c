/* Direct: tensors reduced and copied with nothing of Python in between.

   Asked from Python, a tensor takes ten calls to tell where its values lie, which is more than the kernel takes for
   a small one. Frameworks that offer DLPack's table of C functions tell it in one. What is done here is no operation
   of the framework either: no mode, transform or tracer sees it.

   Only the limited API is used (setup.py says which), so that one build serves every later Python. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* What DLPack 1 says of a tensor and of the table, as far as it is read here (dmlc.github.io/dlpack). */
typedef struct {
    void *data;
    struct {
        int32_t kind, number;
    } device;
    int32_t ndim;
    struct {
        uint8_t code, bits;
        uint16_t lanes;
    } dtype;
    int64_t *shape, *strides;
    uint64_t byte_offset;
} Tensor;

typedef struct Owned {
    uint32_t major, minor;
    void *owner;
    void (*let_go)(struct Owned *);
    uint64_t flags;
    Tensor tensor;
} Owned;

typedef struct {
    struct {
        uint32_t major, minor;
    } version;
    void *older, *allocate, *to_owned;
    int (*from_owned)(Owned *, void **);
    int (*tell)(PyObject *, Tensor *);
} Exchange;

enum { CPU = 1, INT = 0, UINT = 1, FLOAT = 2, BFLOAT = 4, BOOL = 6, MAX_DIMS = 8, LONG = 4096, ALIGNED = 64 };

typedef void (*Reduce)(const void *, int64_t, int, void *);
typedef int (*ReduceStrided)(const void *, int, const int64_t *, const int64_t *, int, int, char *);

/* The table, which is the first argument; NULL with an exception set where arguments are missing or it is none. */
static const Exchange *table_of(const char *name, PyObject *const *args, Py_ssize_t count, Py_ssize_t expected) {
    if (count != expected) {
        PyErr_Format(PyExc_TypeError, "%s: expected %zd arguments, got %zd", name, expected, count);
        return NULL;
    }
    return PyCapsule_GetPointer(args[0], "dlpack_exchange_api");
}

/* Whether a tensor tells where it lies. One that is sparse, nested or inside of a transform does not: it is asked
   another way. */
static int tells(const Exchange *exchange, PyObject *tensor, Tensor *t) {
    if (exchange->version.major != 1 || !exchange->tell) return 0;
    if (!exchange->tell(tensor, t)) return 1;
    PyErr_Clear();
    return 0;
}

/* The kernel's number of a dtype (_kernel.h); -1 where it reads none such. */
static int code_of(const Tensor *t) {
    if (t->dtype.lanes != 1) return -1;
    if (t->dtype.code == BFLOAT) return t->dtype.bits == 16 ? 3 : -1;
    if (t->dtype.code != FLOAT) return -1;
    return t->dtype.bits == 32 ? 0 : t->dtype.bits == 64 ? 1 : t->dtype.bits == 16 ? 2 : -1;
}

static int lies_in_order(const Tensor *t) {
    int64_t apart = 1;
    if (!t->strides) return 1;
    for (int d = t->ndim - 1; d >= 0; d--) {
        if (t->shape[d] != 1 && t->strides[d] != apart) return 0;
        apart *= t->shape[d] > 1 ? t->shape[d] : 1; /* as strides are of a tensor without values */
    }
    return 1;
}

/* Functions of the kernel, and how they are called but for the dtype. */
typedef struct {
    const Exchange *exchange;
    Reduce plain;
    ReduceStrided strided;
    int how;
} Kernel;

/* Whether the kernel could read the tensor: its words are at `words` then, where there were zeros. */
static int is_reduced(Kernel kernel, PyObject *tensor, char *words) {
    Tensor t;
    if (!tells(kernel.exchange, tensor, &t)) return 0;
    int code = code_of(&t);
    if (t.device.kind != CPU || code < 0) return 0;
    int64_t values = 1;
    for (int d = 0; d < t.ndim; d++) values *= t.shape[d];
    int in_order = lies_in_order(&t);
    if ((values && !t.data) || (!in_order && t.ndim > MAX_DIMS)) return 0;

    const char *data = (const char *)t.data + t.byte_offset;
    PyThreadState *thread = values > LONG ? PyEval_SaveThread() : NULL;
    if (in_order)
        kernel.plain(data, values, kernel.how | code, words);
    else
        kernel.strided(data, t.ndim, t.shape, t.strides, -1, kernel.how | code, words);
    if (thread) PyEval_RestoreThread(thread);
    return 1;
}

/* reduce(exchange, plain, strided, how, words, tensor) -> whether the kernel could read the tensor.
   `plain` and `strided` are addresses of the kernel's functions, `words` is that of memory with zeros. */
static PyObject *reduce(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    (void)self;
    Kernel kernel = {.exchange = table_of("reduce", args, count, 6)};
    if (!kernel.exchange) return NULL;
    kernel.plain = (Reduce)PyLong_AsVoidPtr(args[1]);
    kernel.strided = (ReduceStrided)PyLong_AsVoidPtr(args[2]);
    kernel.how = (int)PyLong_AsLong(args[3]);
    char *words = PyLong_AsVoidPtr(args[4]);
    if (PyErr_Occurred()) return NULL;
    return PyBool_FromLong(is_reduced(kernel, args[5], words));
}

/* Whether memory has the values of the tensor as they are: it is of one of `types`, and `is_odd` says no. */
static int is_as_it_lies(PyObject *tensor, PyObject *types, PyObject *is_odd) {
    int known = 0;
    for (Py_ssize_t k = 0; k < PyTuple_Size(types); k++) known |= (PyObject *)Py_TYPE(tensor) == PyTuple_GetItem(types, k);
    if (!known) return 0;
    PyObject *answer = PyObject_CallFunctionObjArgs(is_odd, tensor, NULL);
    int odd = answer ? PyObject_IsTrue(answer) : -1;
    Py_XDECREF(answer);
    if (odd < 0) PyErr_Clear(); /* it is asked another way, where the error comes again */
    return !odd;
}

/* reduce_line(exchange, plain, strided, how, types, is_odd, words, apart, lines, numbers, tensor) -> the number of the
   line that has the tensor's words: the next of `numbers`. Where the kernel could not write them, -1 less that number.
   The first of so many `lines` is at the address `words`, the others so many bytes `apart`. */
static PyObject *reduce_line(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    (void)self;
    Kernel kernel = {.exchange = table_of("reduce_line", args, count, 11)};
    if (!kernel.exchange) return NULL;
    if (!PyTuple_Check(args[4]) || !PyIter_Check(args[9])) {
        PyErr_SetString(PyExc_TypeError, "reduce_line: expected a tuple of types and an iterator of numbers");
        return NULL;
    }
    kernel.plain = (Reduce)PyLong_AsVoidPtr(args[1]);
    kernel.strided = (ReduceStrided)PyLong_AsVoidPtr(args[2]);
    kernel.how = (int)PyLong_AsLong(args[3]);
    char *words = PyLong_AsVoidPtr(args[6]);
    Py_ssize_t apart = PyLong_AsSsize_t(args[7]), lines = PyLong_AsSsize_t(args[8]);
    if (PyErr_Occurred()) return NULL;
    PyObject *number = PyIter_Next(args[9]);
    if (!number) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "reduce_line: there is no number any more");
        return NULL;
    }
    Py_ssize_t line = PyLong_AsSsize_t(number);
    if (line == -1 && PyErr_Occurred()) {
        Py_DECREF(number);
        return NULL;
    }
    if (line >= 0 && line < lines && is_as_it_lies(args[10], args[4], args[5]) &&
        is_reduced(kernel, args[10], words + line * apart))
        return number;
    Py_DECREF(number);
    return PyLong_FromSsize_t(-1 - line);
}

static int is_copied_as_bytes(const Tensor *t) {
    int code = t->dtype.code;
    int known = code == INT || code == UINT || code == FLOAT || code == BFLOAT || code == BOOL;
    return known && t->dtype.lanes == 1 && t->dtype.bits >= 8;
}

static void let_go(Owned *owned) { free(owned->owner); }

/* A copy of `t`, whose values take so many bytes, in memory of its own, which is freed when nobody has it any more. */
static Owned *copied(const Tensor *t, size_t bytes) {
    size_t dims = (size_t)t->ndim * sizeof(int64_t);
    char *memory = malloc(sizeof(Owned) + 2 * dims + ALIGNED + bytes);
    if (!memory) return NULL;
    Owned *owned = (Owned *)memory;
    int64_t *shape = (int64_t *)(memory + sizeof(Owned)), *strides = shape + t->ndim, apart = 1;
    char *data = (char *)(((uintptr_t)(strides + t->ndim) + ALIGNED - 1) / ALIGNED * ALIGNED);
    for (int d = t->ndim - 1; d >= 0; d--) {
        shape[d] = t->shape[d];
        strides[d] = apart;
        apart *= t->shape[d] > 1 ? t->shape[d] : 1;
    }
    if (bytes) memcpy(data, (const char *)t->data + t->byte_offset, bytes);
    *owned = (Owned){.major = 1, .owner = memory, .let_go = let_go, .tensor = *t};
    owned->tensor.data = data;
    owned->tensor.shape = shape;
    owned->tensor.strides = strides;
    owned->tensor.byte_offset = 0;
    return owned;
}

/* copy(exchange, tensor, most) -> a tensor of the same values without history, or None where it is no plain one of
   numbers that lie in order on the CPU, or takes `most` bytes or more. */
static PyObject *copy(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    (void)self;
    const Exchange *exchange = table_of("copy", args, count, 3);
    if (!exchange) return NULL;
    int64_t most = PyLong_AsLongLong(args[2]);
    if (PyErr_Occurred()) return NULL;

    Tensor t;
    if (!tells(exchange, args[1], &t)) Py_RETURN_NONE;
    if (t.device.kind != CPU || !is_copied_as_bytes(&t) || !lies_in_order(&t)) Py_RETURN_NONE;
    int64_t bytes = t.dtype.bits / 8;
    for (int d = 0; d < t.ndim; d++) bytes *= t.shape[d];
    if ((bytes && !t.data) || bytes >= most) Py_RETURN_NONE;

    void *made = NULL;
    Owned *owned = copied(&t, (size_t)bytes);
    if (!owned) return PyErr_NoMemory();
    if (exchange->from_owned(owned, &made)) { /* it has taken `owned` all the same */
        PyErr_Clear();
        Py_RETURN_NONE;
    }
    return made;
}

/* Whether the values fill the memory from the first to the last of them, in whatever order. */
static int has_no_gaps(const Tensor *t) {
    if (t->ndim > MAX_DIMS) return lies_in_order(t);
    int used[MAX_DIMS] = {0};
    int64_t apart = 1;
    for (int found = 0; found < t->ndim; found++) {
        int next = -1;
        for (int d = 0; d < t->ndim && next < 0; d++)
            if (!used[d] && (t->shape[d] == 1 || t->strides[d] == apart)) next = d;
        if (next < 0) return 0;
        used[next] = 1;
        apart *= t->shape[next];
    }
    return 1;
}

static int are_alike(const Tensor *a, const Tensor *b) {
    if (a->ndim != b->ndim || memcmp(&a->dtype, &b->dtype, sizeof a->dtype)) return 0;
    for (int d = 0; d < a->ndim; d++)
        if (a->shape[d] != b->shape[d] || (a->shape[d] != 1 && a->strides[d] != b->strides[d])) return 0;
    return 1;
}

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#define STREAMED (1 << 16) /* bytes from which on it is worth it */

/* A copy that is not read again soon is written past the caches: memory then need not be fetched only to be
   overwritten, and what the model works on stays in them. */
static void copy_bytes(char *to, const char *from, size_t bytes) {
    size_t at = -(uintptr_t)to & 15;
    if (bytes < STREAMED) {
        memcpy(to, from, bytes);
        return;
    }
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

typedef int (*ReduceTwo)(const void *, const void *, int64_t, int, void *);

/* reduce_two(exchange, function, tensor, other, how, words) -> whether `function` of the kernel, an address, could take
   both: on the CPU, of one shape, dtype and layout without gaps. It subtracts the other one, or copies to it. */
static PyObject *reduce_two(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    (void)self;
    const Exchange *exchange = table_of("reduce_two", args, count, 6);
    if (!exchange) return NULL;
    ReduceTwo function = (ReduceTwo)PyLong_AsVoidPtr(args[1]);
    int how = (int)PyLong_AsLong(args[4]);
    char *words = PyLong_AsVoidPtr(args[5]);
    if (PyErr_Occurred()) return NULL;

    Tensor one, other;
    if (!tells(exchange, args[2], &one) || !tells(exchange, args[3], &other)) Py_RETURN_FALSE;
    int code = code_of(&one), failed;
    if (one.device.kind != CPU || other.device.kind != CPU || code < 0) Py_RETURN_FALSE;
    if (!one.strides || !other.strides || !are_alike(&one, &other) || !has_no_gaps(&one)) Py_RETURN_FALSE;
    int64_t values = 1;
    for (int d = 0; d < one.ndim; d++) values *= one.shape[d];
    if (values && (!one.data || !other.data)) Py_RETURN_FALSE;

    const char *data = (const char *)one.data + one.byte_offset, *second = (const char *)other.data + other.byte_offset;
    PyThreadState *thread = values > LONG ? PyEval_SaveThread() : NULL;
    failed = function(data, second, values, how | code, words);
    if (thread) PyEval_RestoreThread(thread);
    return PyBool_FromLong(!failed);
}

/* copy_into(exchange, tensor, room) -> whether the values of `tensor` are in `room` now: both on the CPU, of one
   shape, dtype and layout without gaps. */
static PyObject *copy_into(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    (void)self;
    const Exchange *exchange = table_of("copy_into", args, count, 3);
    if (!exchange) return NULL;
    Tensor from, to;
    if (!tells(exchange, args[1], &from) || !tells(exchange, args[2], &to)) Py_RETURN_FALSE;
    if (from.device.kind != CPU || to.device.kind != CPU || !is_copied_as_bytes(&from)) Py_RETURN_FALSE;
    if (!from.strides || !to.strides || !are_alike(&from, &to) || !has_no_gaps(&from)) Py_RETURN_FALSE;
    size_t bytes = from.dtype.bits / 8;
    for (int d = 0; d < from.ndim; d++) bytes *= (size_t)from.shape[d];
    if (bytes && (!from.data || !to.data)) Py_RETURN_FALSE;

    PyThreadState *thread = PyEval_SaveThread();
    copy_bytes((char *)to.data + to.byte_offset, (const char *)from.data + from.byte_offset, bytes);
    PyEval_RestoreThread(thread);
    Py_RETURN_TRUE;
}

static PyMethodDef methods[] = {
    {"copy_into", (PyCFunction)(void (*)(void))copy_into, METH_FASTCALL, NULL},
    {"copy", (PyCFunction)(void (*)(void))copy, METH_FASTCALL, NULL},
    {"reduce", (PyCFunction)(void (*)(void))reduce, METH_FASTCALL, NULL},
    {"reduce_line", (PyCFunction)(void (*)(void))reduce_line, METH_FASTCALL, NULL},
    {"reduce_two", (PyCFunction)(void (*)(void))reduce_two, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_direct", "Tensors, reduced and copied.", -1, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__direct(void) { return PyModule_Create(&definition); }
