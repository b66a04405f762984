/* Again: methods that no interrupt comes before.

   Python looks for signals when a function written in Python begins. So Ctrl-C may come at the entry of an
   __exit__, before its first line, and nothing of it is done; and at the entry of an __enter__, after which no
   __exit__ follows. A method made here is entered without such a look, and calls what is written in Python a second
   time if an interrupt ended the first. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

typedef struct {
    PyObject_HEAD
    PyObject *method;
} Again;

static PyObject *again_call(PyObject *self, PyObject *args, PyObject *kwargs) {
    PyObject *method = ((Again *)self)->method;
    PyObject *result = PyObject_Call(method, args, kwargs);
    if (result != NULL || !PyErr_ExceptionMatches(PyExc_KeyboardInterrupt)) {
        return result;
    }
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    result = PyObject_Call(method, args, kwargs);
    if (result == NULL) {
        PyErr_WriteUnraisable(method); /* the interrupt is what goes on */
    }
    Py_XDECREF(result);
    PyErr_Restore(type, value, trace);
    return NULL;
}

static PyObject *again_get(PyObject *self, PyObject *owner, PyObject *kind) {
    (void)kind;
    if (owner == NULL || owner == Py_None) {
        Py_INCREF(self);
        return self;
    }
    return PyMethod_New(self, owner);
}

static int again_traverse(PyObject *self, visitproc visit, void *arg) {
    Py_VISIT(((Again *)self)->method);
    return 0;
}

static int again_clear(PyObject *self) {
    Py_CLEAR(((Again *)self)->method);
    return 0;
}

static void again_dealloc(PyObject *self) {
    PyObject_GC_UnTrack(self);
    again_clear(self);
    Py_TYPE(self)->tp_free(self);
}

static PyObject *again_new(PyTypeObject *kind, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"method", NULL};
    PyObject *method;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O:again", names, &method)) {
        return NULL;
    }
    Again *self = (Again *)kind->tp_alloc(kind, 0);
    if (self != NULL) {
        Py_INCREF(method);
        self->method = method;
    }
    return (PyObject *)self;
}

static PyTypeObject again_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "hookline.backends._again.again",
    .tp_doc = PyDoc_STR("A method that is called a second time if an interrupt ended the first."),
    .tp_basicsize = sizeof(Again),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_new = again_new,
    .tp_dealloc = again_dealloc,
    .tp_traverse = again_traverse,
    .tp_clear = again_clear,
    .tp_call = again_call,
    .tp_descr_get = again_get,
};

static PyObject *itself(PyObject *module, PyObject *owner) {
    (void)module;
    Py_INCREF(owner);
    return owner;
}

static PyMethodDef itself_function = {"itself", itself, METH_O, PyDoc_STR("Returns what it is a method of.")};

static struct PyModuleDef module_definition = {
    PyModuleDef_HEAD_INIT, "_again", NULL, -1, NULL, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__again(void) {
    if (PyType_Ready(&again_type) < 0) {
        return NULL;
    }
    PyObject *module = PyModule_Create(&module_definition);
    if (module == NULL) {
        return NULL;
    }
    PyObject *function = PyCFunction_NewEx(&itself_function, NULL, NULL);
    PyObject *method = function == NULL ? NULL : PyInstanceMethod_New(function);
    Py_XDECREF(function);
    Py_INCREF(&again_type);
    if (method == NULL || PyModule_AddObject(module, "again", (PyObject *)&again_type) < 0 ||
        PyModule_AddObject(module, "itself", method) < 0) {
        Py_XDECREF(method);
        Py_DECREF(module);
        return NULL;
    }
    return module;
}
