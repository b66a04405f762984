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

#include "_direct_copy.h"

enum { MAX_DIMS = 8, LONG = 4096 };

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

/* The kernel's number of a dtype (_kernel.h); -1 where it reads none such. */
static int code_of(const Tensor *t) {
    if (t->dtype.lanes != 1) return -1;
    if (t->dtype.code == BFLOAT) return t->dtype.bits == 16 ? 3 : -1;
    if (t->dtype.code != FLOAT) return -1;
    return t->dtype.bits == 32 ? 0 : t->dtype.bits == 64 ? 1 : t->dtype.bits == 16 ? 2 : -1;
}

/* reduce(exchange, reduce, reduce_strided, tensor, how, words) -> whether the kernel could read the tensor.
   `reduce` and `reduce_strided` are addresses of the kernel's functions, `words` is that of memory with zeros. */
static PyObject *reduce(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    (void)self;
    const Exchange *exchange = table_of("reduce", args, count, 6);
    if (!exchange) return NULL;
    Reduce plain = (Reduce)PyLong_AsVoidPtr(args[1]);
    ReduceStrided strided = (ReduceStrided)PyLong_AsVoidPtr(args[2]);
    int how = (int)PyLong_AsLong(args[4]);
    char *words = PyLong_AsVoidPtr(args[5]);
    if (PyErr_Occurred()) return NULL;

    Tensor t;
    if (!tells(exchange, args[3], &t)) Py_RETURN_FALSE;
    int code = code_of(&t);
    if (t.device.kind != CPU || code < 0) Py_RETURN_FALSE;
    int64_t values = 1;
    for (int d = 0; d < t.ndim; d++) values *= t.shape[d];
    int in_order = lies_in_order(&t);
    if ((values && !t.data) || (!in_order && t.ndim > MAX_DIMS)) Py_RETURN_FALSE;

    const char *data = (const char *)t.data + t.byte_offset;
    PyThreadState *thread = values > LONG ? PyEval_SaveThread() : NULL;
    if (in_order)
        plain(data, values, how | code, words);
    else
        strided(data, t.ndim, t.shape, t.strides, -1, how | code, words);
    if (thread) PyEval_RestoreThread(thread);
    Py_RETURN_TRUE;
}

/* copy(exchange, tensor, most) -> a tensor of the same values without history, or None where it is no plain one of
   numbers that lie in order on the CPU, or takes `most` bytes or more. */
static PyObject *copy(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    (void)self;
    const Exchange *exchange = table_of("copy", args, count, 3);
    if (!exchange) return NULL;
    int64_t most = PyLong_AsLongLong(args[2]);
    if (PyErr_Occurred()) return NULL;

    PyObject *made = NULL;
    if (copied_directly(exchange, args[1], most, &made) < 0) return NULL;
    if (!made) Py_RETURN_NONE;
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
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_direct", "Tensors, reduced and copied.", -1, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__direct(void) { return PyModule_Create(&definition); }
