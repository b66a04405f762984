/* Again: methods that no interrupt comes before.

   Python looks for signals when a function written in Python begins. So Ctrl-C may come at the entry of an
   __exit__, before its first line, and nothing of it is done; and at the entry of an __enter__, after which no
   __exit__ follows. A method made here is entered without such a look, and calls what is written in Python a second
   time if an interrupt ended the first.

   Only the limited API is used (setup.py says which), so that one build serves every later Python. */

#include "_object.h"

#define AGAIN_HAS(one) one(method)

typedef struct {
    PyObject_HEAD
    AGAIN_HAS(MEMBER)
} Again;

LIFE(Again, again, AGAIN_HAS)

static PyObject *method_type; /* types.MethodType: the limited API has no PyMethod_New */

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
    return PyObject_CallFunctionObjArgs(method_type, self, owner, NULL);
}

static PyObject *again_new(PyTypeObject *kind, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"method", NULL};
    PyObject *method;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O:again", names, &method)) {
        return NULL;
    }
    Again *self = (Again *)PyType_GenericAlloc(kind, 0);
    if (self != NULL) {
        Py_INCREF(method);
        self->method = method;
    }
    return (PyObject *)self;
}

static PyType_Slot again_slots[] = {
    {Py_tp_doc, "A method that is called a second time if an interrupt ended the first."},
    {Py_tp_new, (void *)again_new},
    {Py_tp_dealloc, (void *)again_dealloc},
    {Py_tp_traverse, (void *)again_traverse},
    {Py_tp_clear, (void *)again_clear},
    {Py_tp_call, (void *)again_call},
    {Py_tp_descr_get, (void *)again_get},
    {0, NULL},
};

static PyType_Spec again_spec = {
    "hookline.backends._again.again",
    sizeof(Again),
    0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
    again_slots,
};

static PyObject *itself(PyObject *owner, PyObject *nothing) {
    (void)nothing;
    Py_INCREF(owner);
    return owner;
}

static PyMethodDef itself_method = {"itself", itself, METH_NOARGS, PyDoc_STR("Returns what it is a method of.")};

static struct PyModuleDef module_definition = {
    PyModuleDef_HEAD_INIT, "_again", NULL, -1, NULL, NULL, NULL, NULL, NULL,
};

/* Adds `value`, which is given away, to `module`; false with an exception set where that, or `value`, failed. */
static int added(PyObject *module, const char *name, PyObject *value) {
    int failed = PyModule_AddObjectRef(module, name, value) < 0;
    Py_XDECREF(value);
    return !failed;
}

PyMODINIT_FUNC PyInit__again(void) {
    PyObject *types = PyImport_ImportModule("types");
    if (types == NULL) {
        return NULL;
    }
    Py_XDECREF(method_type);
    method_type = PyObject_GetAttrString(types, "MethodType");
    Py_DECREF(types);
    PyObject *module = method_type == NULL ? NULL : PyModule_Create(&module_definition);
    if (module != NULL &&
        (!added(module, "again", PyType_FromModuleAndSpec(module, &again_spec, NULL)) ||
         /* of object, so that it is a method of whatever class it is put into */
         !added(module, "itself", PyDescr_NewMethod(&PyBaseObject_Type, &itself_method)))) {
        Py_CLEAR(module);
    }
    return module;
}
