/* Direct: the kernel called on a framework's tensor, with nothing of Python in between.

   Asked from Python, a tensor takes ten calls to tell where its values lie, which is more than the kernel takes for
   a small one. Frameworks that offer DLPack's table of C functions tell it in one.

   Only the limited API is used (setup.py says which), so that one build serves every later Python. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

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

typedef struct {
    struct {
        uint32_t major, minor;
    } version;
    void *older, *allocate, *to_managed, *from_managed;
    int (*tell)(PyObject *, Tensor *);
} Exchange;

enum { CPU = 1, FLOAT = 2, BFLOAT = 4, MAX_DIMS = 8, LONG = 4096 };

typedef void (*Reduce)(const void *, int64_t, int, void *);
typedef int (*ReduceStrided)(const void *, int, const int64_t *, const int64_t *, int, int, char *);

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
        apart *= t->shape[d];
    }
    return 1;
}

/* reduce(exchange, reduce, reduce_strided, tensor, how, words) -> whether the kernel could read the tensor.
   `reduce` and `reduce_strided` are addresses of the kernel's functions, `words` is that of memory with zeros. */
static PyObject *reduce(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    (void)self;
    if (count != 6) {
        PyErr_Format(PyExc_TypeError, "reduce: expected 6 arguments, got %zd", count);
        return NULL;
    }
    const Exchange *exchange = PyCapsule_GetPointer(args[0], "dlpack_exchange_api");
    if (!exchange) return NULL;
    Reduce plain = (Reduce)PyLong_AsVoidPtr(args[1]);
    ReduceStrided strided = (ReduceStrided)PyLong_AsVoidPtr(args[2]);
    int how = (int)PyLong_AsLong(args[4]);
    char *words = PyLong_AsVoidPtr(args[5]);
    if (PyErr_Occurred()) return NULL;

    Tensor t;
    if (exchange->version.major != 1 || !exchange->tell) Py_RETURN_FALSE;
    if (exchange->tell(args[3], &t)) { /* sparse, nested, or inside of a transform: asked another way */
        PyErr_Clear();
        Py_RETURN_FALSE;
    }
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

static PyMethodDef methods[] = {
    {"reduce", (PyCFunction)(void (*)(void))reduce, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_direct", "The kernel on the tensors of a framework.", -1, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__direct(void) { return PyModule_Create(&definition); }
