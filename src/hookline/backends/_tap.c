/* Tap: the plain calls of taps, without a frame of Python.

   A module calls its taps each time that it is called, and most of these calls are plain: a hook that only looks and
   returns None, a tensor that is to be kept, or reduced. Such calls are done here. A tap's method `call_anyhow`, which is
   written in Python, does all the others, and says what a call means: what is done here gives the same.

   Only the limited API is used (setup.py says which), so that one build serves every later Python. */

#include "_object.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <structmember.h>

#include "_direct_keep.h"

#include "_tap_small.h"

#include "_tap_called.h"

#include "_tap_keeper.h"

#include "_tap_measurer.h"

/* The class `name` of the module `place` that has `kind` as its base and adds nothing; NULL with an exception set. */
static PyObject *derived(PyObject *kind, PyObject *place, PyObject *name) {
    PyType_Slot slots[] = {{0, NULL}};
    PyType_Spec spec = {NULL, 0, 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | HAVE_VECTORCALL, slots};
    PyObject *text = PyUnicode_FromFormat("%U.%U", place, name), *made = NULL;
    PyObject *bytes = text == NULL ? NULL : PyUnicode_AsUTF8String(text), *bases = PyTuple_Pack(1, kind);
    if (bytes != NULL && bases != NULL) {
        spec.name = PyBytes_AsString(bytes);
        made = PyType_FromSpecWithBases(&spec, bases);
    }
    Py_XDECREF(text);
    Py_XDECREF(bytes);
    Py_XDECREF(bases);
    return made;
}

/* quick(kind) -> a class to stand for `kind`, whose objects are called without a tuple.

   A class that is written in Python has this from its base only as of 3.12. And if it has a `__call__`, as others look
   for it, its objects are called by that; unless it comes into the class as it does here: `type.__setattr__` would
   change what is called as well. */
static PyObject *quick(PyObject *module, PyObject *kind) {
    (void)module;
    if (!PyType_Check(kind)) return PyErr_Format(PyExc_TypeError, "quick: expected a class, got %R", kind);
    PyObject *function = PyObject_GetAttr(kind, call_anyhow), *made = NULL;
    PyObject *place = PyObject_GetAttrString(kind, "__module__"), *name = PyObject_GetAttrString(kind, "__name__");
    if (function != NULL && place != NULL && name != NULL) made = derived(kind, place, name);
    if (made != NULL && PyObject_GenericSetAttr(made, special_call, function) < 0) Py_CLEAR(made);
    if (made != NULL) PyType_Modified((PyTypeObject *)made);
    Py_XDECREF(function);
    Py_XDECREF(place);
    Py_XDECREF(name);
    return made;
}

/* beware(name, at_work): tells of a compiler; see `compiler`. */
static PyObject *beware(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *name, *at_work;
    if (!PyArg_ParseTuple(args, "UO:beware", &name, &at_work)) return NULL;
    Py_INCREF(name);
    Py_INCREF(at_work);
    PyUnicode_InternInPlace(&name);
    put(&compiler_at_work, at_work);
    put(&compiler, name);
    modules_without_it = -1;
    Py_RETURN_NONE;
}

/* call_by(address): tells where PyVectorcall_Function is, which every Python has and the limited API has as of 3.12. */
static PyObject *call_by(PyObject *module, PyObject *address) {
    (void)module;
    void *found = PyLong_AsVoidPtr(address);
    if (found == NULL && PyErr_Occurred()) return NULL;
    vectorcall_of = (Vectorcall(*)(PyObject *))found;
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"quick", quick, METH_O, NULL},
    {"beware", beware, METH_VARARGS, NULL},
    {"call_by", call_by, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_tap", "The plain calls of taps.", -1, functions, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__tap(void) {
    if ((call_anyhow = PyUnicode_InternFromString("call_anyhow")) == NULL ||
        (call_failed = PyUnicode_InternFromString("call_failed")) == NULL ||
        (call_replaced = PyUnicode_InternFromString("call_replaced")) == NULL ||
        (special_call = PyUnicode_InternFromString("__call__")) == NULL || !names_are_made())
        return NULL;
    PyObject *module = PyModule_Create(&definition);
    if (module == NULL || (keeping_type = added(module, "Keeping", &keeping_spec)) == NULL ||
        (measuring_type = added(module, "Measuring", &measuring_spec)) == NULL ||
        !added(module, "Called", &called_spec) || !added(module, "Keeper", &keeper_spec) ||
        !added(module, "Measurer", &measurer_spec))
        Py_CLEAR(module);
    return module;
}
