/* Small: how an object is called without a tuple of arguments, and how what is not plain is passed on. See _tap.c. */

/* PEP 590. Python 3.11 has it, and its limited API has no names for it: the bits are the same in all later ones. */
#define HAVE_VECTORCALL (1UL << 11)
#define HIGHEST_BIT ((size_t)1 << (8 * sizeof(size_t) - 1))
typedef PyObject *(*Vectorcall)(PyObject *, PyObject *const *, size_t, PyObject *);

static Py_ssize_t number_of(size_t flagged) { return (Py_ssize_t)(flagged & ~HIGHEST_BIT); }

/* Python's own PyVectorcall_Function: how an object is called without a tuple, NULL where it has no such way. Itself it is
   NULL until somebody tells where it is (`call_by`). */
static Vectorcall (*vectorcall_of)(PyObject *);

static PyObject *call_anyhow, *call_failed, *call_replaced, *special_call; /* names */

static PyObject *as_tuple(PyObject *const *args, Py_ssize_t count) {
    PyObject *tuple = PyTuple_New(count);
    for (Py_ssize_t i = 0; i < count && tuple != NULL; i++) {
        Py_INCREF(args[i]);
        PyTuple_SetItem(tuple, i, args[i]);
    }
    return tuple;
}

/* What `callable` gives for these arguments; `vectorcall_of` is known. */
static PyObject *called_with(PyObject *callable, PyObject *const *args, Py_ssize_t count) {
    Vectorcall function = vectorcall_of(callable);
    if (function != NULL) return function(callable, args, (size_t)count, NULL);
    PyObject *tuple = as_tuple(args, count);
    PyObject *result = tuple == NULL ? NULL : PyObject_Call(callable, tuple, NULL);
    Py_XDECREF(tuple);
    return result;
}

static PyObject *by_name(PyObject *const *values, PyObject *names) {
    PyObject *kwargs = PyDict_New();
    for (Py_ssize_t i = 0; kwargs != NULL && i < PyTuple_Size(names); i++)
        if (PyDict_SetItem(kwargs, PyTuple_GetItem(names, i), values[i]) < 0) Py_CLEAR(kwargs);
    return kwargs;
}

/* What the tap's `call_anyhow` gives; the slot for calls with a tuple. */
static PyObject *called_anyhow(PyObject *tap, PyObject *args, PyObject *kwargs) {
    PyObject *method = PyObject_GetAttr(tap, call_anyhow);
    PyObject *result = method == NULL ? NULL : PyObject_Call(method, args, kwargs);
    Py_XDECREF(method);
    return result;
}

/* The same, of a call without a tuple. */
static PyObject *passed_on(PyObject *tap, PyObject *const *args, Py_ssize_t count, PyObject *names) {
    PyObject *tuple = as_tuple(args, count), *kwargs = NULL, *result = NULL;
    if (tuple != NULL && (names == NULL || (kwargs = by_name(args + count, names)) != NULL))
        result = called_anyhow(tap, tuple, kwargs);
    Py_XDECREF(tuple);
    Py_XDECREF(kwargs);
    return result;
}

/* A class that is made at run time, which `module` has under its name and keeps; NULL with an exception set. */
static PyTypeObject *added(PyObject *module, const char *name, PyType_Spec *spec) {
    PyObject *type = PyType_FromModuleAndSpec(module, spec, NULL);
    if (type != NULL && PyModule_AddObjectRef(module, name, type) < 0) Py_CLEAR(type);
    return (PyTypeObject *)type;
}

/* Whether a call belongs to the block of this number: to one that was opened in its context, or to all if none was. */
static int is_here(PyObject *opened, PyObject *number) {
    PyObject *mine = PyObject_CallNoArgs(opened);
    Py_ssize_t count = mine == NULL ? -1 : PyObject_Size(mine);
    int is = count <= 0 ? (int)count + 1 : PySequence_Contains(mine, number);
    Py_XDECREF(mine);
    return count < 0 ? -1 : is;
}

static int is_in_backward(PyObject *backward_number) {
    PyObject *number = PyObject_CallNoArgs(backward_number);
    long value = number == NULL ? -1 : PyLong_AsLong(number);
    Py_XDECREF(number);
    return value == -1 && PyErr_Occurred() ? -1 : value != -1;
}
