/* Reduce: tensors read by the kernel. See _direct.c. */

typedef void (*Reduce)(const void *, int64_t, int, void *);
typedef int (*ReduceStrided)(const void *, int, const int64_t *, const int64_t *, int, int, char *);

/* The kernel's number of a dtype (_kernel.h); -1 where it reads none such. */
static int code_of(const Tensor *t) {
    if (t->dtype.lanes != 1) return -1;
    if (t->dtype.code == BFLOAT) return t->dtype.bits == 16 ? 3 : -1;
    if (t->dtype.code != FLOAT) return -1;
    return t->dtype.bits == 32 ? 0 : t->dtype.bits == 64 ? 1 : t->dtype.bits == 16 ? 2 : -1;
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
