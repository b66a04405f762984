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

#include "_direct_keep.h"
#include "_direct_pool.h"

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
enum { LARGE = 1 << 12, STREAMED = 1 << 16 };
/* LARGE: bytes from which on a copy is one of the pool's. STREAMED: from which on it is written past the caches. */

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

/* Whether the values fill the memory from the first to the last of them, in whatever order. */
static int has_no_gaps(const Tensor *t) {
    if (!t->strides || t->ndim > MAX_DIMS) return lies_in_order(t);
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

static int are_alike(const Tensor *a, const Tensor *b) {
    if (a->ndim != b->ndim || memcmp(&a->dtype, &b->dtype, sizeof a->dtype)) return 0;
    for (int d = 0; d < a->ndim; d++)
        if (a->shape[d] != b->shape[d] || (a->shape[d] != 1 && a->strides[d] != b->strides[d])) return 0;
    return 1;
}

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

/* Kept: a copy of which a tensor is made when somebody asks for it.

   That is cheaper where few are asked for. And the small objects of a tensor, between the large ones that the model
   takes and gives back, keep these from being joined, so that the model gets fresh pages, which cost it more. */
typedef struct {
    PyObject_HEAD
    const Exchange *exchange;
    PyObject *how;       /* a function that calls what it gets, where tensors are ordinary ones */
    Copy *copy;          /* NULL as soon as there is a tensor */
    PyObject *tensor;    /* NULL before */
    unsigned long maker; /* the thread that is making the tensor; 0 if none is */
} Kept;

static PyTypeObject *kept_type;

/* See _direct_keep.h. */
static PyObject *kept_of(const void *table, PyObject *tensor, PyObject *how) {
    const Exchange *exchange = table;
    Copy *made = copied(exchange, tensor);
    Kept *kept = made ? PyObject_GC_New(Kept, kept_type) : NULL;
    if (!kept) {
        if (made) let_go(&made->owned);
        return NULL;
    }
    Py_INCREF(how);
    kept->exchange = exchange, kept->how = how, kept->copy = made, kept->tensor = NULL, kept->maker = 0;
    PyObject_GC_Track((PyObject *)kept);
    return (PyObject *)kept;
}

/* keep(exchange, tensor, how) -> what `copy` gives, to be had by `get`; None where that is None. */
static PyObject *keep(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    (void)self;
    const Exchange *exchange = table_of("keep", args, count, 3);
    PyObject *kept = exchange ? kept_of(exchange, args[1], args[2]) : NULL;
    if (kept || PyErr_Occurred()) return kept;
    Py_RETURN_NONE;
}

/* Makes the tensor, for `how`. It is kept at once: an interrupt may end `how` before that has returned it. */
static PyObject *kept_make(PyObject *self, PyObject *nothing) {
    (void)nothing;
    Kept *kept = (Kept *)self;
    Copy *copy = kept->copy;
    if (!copy || kept->maker != PyThread_get_thread_ident()) {
        PyErr_SetString(PyExc_RuntimeError, "make: a tensor is made once, by the thread that asked for it");
        return NULL;
    }
    kept->copy = NULL; /* it is gone, also where no tensor comes of it */
    kept->tensor = tensor_of(kept->exchange, copy);
    Py_XINCREF(kept->tensor);
    return kept->tensor;
}

static PyObject *kept_get(PyObject *self, PyObject *nothing) {
    (void)nothing;
    Kept *kept = (Kept *)self;
    unsigned long me = PyThread_get_thread_ident();
    while (kept->maker && kept->maker != me) { /* Python may change threads at any object that is made */
        PyThreadState *thread = PyEval_SaveThread();
        PyEval_RestoreThread(thread);
    }
    if (kept->copy && !kept->maker) {
        kept->maker = me;
        PyObject *make = PyObject_GetAttrString(self, "make");
        PyObject *made = make ? PyObject_CallFunctionObjArgs(kept->how, make, NULL) : NULL;
        Py_XDECREF(make);
        Py_XDECREF(made);
        kept->maker = 0;
        if (!made) return NULL;
    }
    Py_XINCREF(kept->tensor);
    if (!kept->tensor) PyErr_SetString(PyExc_RuntimeError, "no tensor could be made of this copy");
    return kept->tensor;
}

/* Pickled or copied, it is a tensor. */
static PyObject *kept_reduce(PyObject *self, PyObject *nothing) {
    PyObject *tensor = kept_get(self, nothing), *module = PyImport_ImportModule("hookline.backends.kept");
    PyObject *itself = module ? PyObject_GetAttrString(module, "itself") : NULL;
    PyObject *result = tensor && itself ? Py_BuildValue("O(O)", itself, tensor) : NULL;
    Py_XDECREF(tensor);
    Py_XDECREF(module);
    Py_XDECREF(itself);
    return result;
}

static int kept_traverse(PyObject *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(((Kept *)self)->how);
    Py_VISIT(((Kept *)self)->tensor);
    return 0;
}

static int kept_clear(PyObject *self) {
    Py_CLEAR(((Kept *)self)->how);
    Py_CLEAR(((Kept *)self)->tensor);
    return 0;
}

static void kept_dealloc(PyObject *self) {
    PyTypeObject *kind = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    if (((Kept *)self)->copy) let_go(&((Kept *)self)->copy->owned);
    kept_clear(self);
    PyObject_GC_Del(self);
    Py_DECREF(kind); /* an object holds a type that is made at run time */
}

static PyMethodDef kept_methods[] = {
    {"get", kept_get, METH_NOARGS, PyDoc_STR("The tensor, the same one each time.")},
    {"make", kept_make, METH_NOARGS, PyDoc_STR("Makes the tensor; for the function that `keep` was given.")},
    {"__reduce__", kept_reduce, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot kept_slots[] = {
    {Py_tp_doc, "A copy of which a tensor is made when somebody asks for it."},
    {Py_tp_dealloc, (void *)kept_dealloc},
    {Py_tp_traverse, (void *)kept_traverse},
    {Py_tp_clear, (void *)kept_clear},
    {Py_tp_methods, kept_methods},
    {0, NULL},
};

static PyType_Spec kept_spec = {
    "hookline.backends._direct.Kept",
    sizeof(Kept),
    0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE,
    kept_slots,
};

/* Memory: bytes of the pool that can be written to, for copies that are not made here. */
typedef struct {
    PyObject_HEAD
    Block *block;
    Py_ssize_t bytes;
} Memory;

static PyObject *memory_new(PyTypeObject *kind, PyObject *args, PyObject *kwargs) {
    Py_ssize_t bytes;
    if (kwargs && PyDict_Size(kwargs)) {
        PyErr_SetString(PyExc_TypeError, "Memory: expected no keywords");
        return NULL;
    }
    if (!PyArg_ParseTuple(args, "n:Memory", &bytes)) return NULL;
    if (bytes < 1) {
        PyErr_SetString(PyExc_ValueError, "Memory: expected a number of bytes above 0");
        return NULL;
    }
    Block *block = block_taken((size_t)bytes);
    if (!block) return PyErr_NoMemory();
    Memory *self = (Memory *)PyType_GenericAlloc(kind, 0);
    if (!self) {
        block_returned(block);
        return NULL;
    }
    self->block = block;
    self->bytes = bytes;
    return (PyObject *)self;
}

static void memory_dealloc(PyObject *self) {
    PyTypeObject *kind = Py_TYPE(self);
    block_returned(((Memory *)self)->block);
    PyObject_Free(self);
    Py_DECREF(kind); /* an object holds a type that is made at run time */
}

static int memory_buffer(PyObject *self, Py_buffer *view, int flags) {
    Memory *memory = (Memory *)self;
    return PyBuffer_FillInfo(view, self, values_of(memory->block), memory->bytes, 0, flags);
}

static PyType_Slot memory_slots[] = {
    {Py_tp_doc, "Memory(bytes): a buffer of the pool, MemoryError where it has no more; it goes back with the object."},
    {Py_tp_new, (void *)memory_new},
    {Py_tp_dealloc, (void *)memory_dealloc},
    {Py_bf_getbuffer, (void *)memory_buffer},
    {0, NULL},
};

static PyType_Spec memory_spec = {
    "hookline.backends._direct.Memory", sizeof(Memory), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE, memory_slots,
};

/* held() -> how many bytes the pool has from the system, and in how many blocks of it there are values. */
static PyObject *held(PyObject *self, PyObject *nothing) {
    (void)self, (void)nothing;
    size_t bytes = 0, blocks = 0;
    if (pool_locked()) {
        bytes = pool.held;
        for (Slab *slab = pool.slabs; slab; slab = slab->next) blocks += slab->in_use;
        pool_unlocked();
    }
    return Py_BuildValue("(nn)", (Py_ssize_t)bytes, (Py_ssize_t)blocks);
}

/* bound(most) -> how many bytes the pool might hold until now. What it has beyond the new bound, and nobody uses,
   goes back to the system. */
static PyObject *bound(PyObject *self, PyObject *given) {
    (void)self;
    Py_ssize_t most = PyLong_AsSsize_t(given), before = 0;
    if (most < 0) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "bound: expected a number of bytes");
        return NULL;
    }
    if (pool_locked()) {
        before = (Py_ssize_t)pool.most;
        pool.most = (size_t)most;
        give_back(pool.most);
        pool_unlocked();
    }
    return PyLong_FromSsize_t(before);
}

static PyMethodDef methods[] = {
    {"copy", (PyCFunction)(void (*)(void))copy, METH_FASTCALL, NULL},
    {"room", (PyCFunction)(void (*)(void))room, METH_FASTCALL, NULL},
    {"keep", (PyCFunction)(void (*)(void))keep, METH_FASTCALL, NULL},
    {"reduce", (PyCFunction)(void (*)(void))reduce, METH_FASTCALL, NULL},
    {"held", held, METH_NOARGS, NULL},
    {"bound", bound, METH_O, NULL},
    {"reduce_line", (PyCFunction)(void (*)(void))reduce_line, METH_FASTCALL, NULL},
    {"reduce_two", (PyCFunction)(void (*)(void))reduce_two, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_direct", "Tensors, reduced and copied.", -1, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__direct(void) {
    PyObject *module = PyModule_Create(&definition);
    if (module == NULL) return NULL;
    if (pool.lock == NULL) pool.lock = PyThread_allocate_lock();
    kept_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &kept_spec, NULL);
    PyObject *memory = PyType_FromModuleAndSpec(module, &memory_spec, NULL);
    PyObject *keeps = PyCapsule_New((void *)kept_of, KEEPS, NULL);
    if (PyModule_AddObjectRef(module, "keeps", keeps) < 0 || PyModule_AddObjectRef(module, "Memory", memory) < 0 ||
        PyModule_AddObjectRef(module, "Kept", (PyObject *)kept_type) < 0)
        Py_CLEAR(module);
    Py_XDECREF(keeps);
    Py_XDECREF(memory);
    return module;
}
