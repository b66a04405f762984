/* Entries: puts taps into the hook dictionaries of modules, and takes them off.

   `torch/entries.py` says what is done here and has the same in Python, for where no compiler was. It is done twice for every
   module that a block is opened on, so that each frame of Python and each object counts. No signal comes in between.

   Only the limited API is used (setup.py says which), so that one build serves every later Python. */

#include "_object.h"

#include <structmember.h>

#define ENTRIES_HAS(one) one(hooks_name) one(kwargs_name) one(key) one(order_numbers) one(held)

typedef struct {
    PyObject_HEAD
    ENTRIES_HAS(MEMBER)
} Entries;

LIFE(Entries, entries, ENTRIES_HAS)

static PyObject *name_order;

/* Notes the module before anything is put. */
static int is_noted(Entries *self, PyObject *module) {
    PyObject *reference = PyWeakref_NewRef(module, NULL);
    int failed = reference == NULL || PyList_Append(self->held, reference) < 0;
    Py_XDECREF(reference);
    return !failed;
}

static int is_numbered(Entries *self, PyObject *tap) {
    PyObject *order = PyIter_Next(self->order_numbers);
    if (order == NULL && !PyErr_Occurred()) PyErr_SetNone(PyExc_StopIteration); /* there is always another number */
    int failed = order == NULL || PyObject_SetAttr(tap, name_order, order) < 0;
    Py_XDECREF(order);
    return !failed;
}

static int takes_kwargs(Entries *self, PyObject *module) {
    PyObject *notes = PyObject_GetAttr(module, self->kwargs_name);
    int failed = notes == NULL || PyObject_SetItem(notes, self->key, Py_True) < 0;
    Py_XDECREF(notes);
    return !failed;
}

static PyObject *put_tap(PyObject *object, PyObject *const *given, Py_ssize_t count) {
    Entries *self = (Entries *)object;
    if (count != 2) return PyErr_Format(PyExc_TypeError, "put: expected a module and a tap");
    PyObject *module = given[0], *tap = given[1], *hooks = PyObject_GetAttr(module, self->hooks_name);
    int there = hooks == NULL ? -1 : PySequence_Contains(hooks, self->key);
    if (there == 0 && is_noted(self, module) && is_numbered(self, tap) &&
        (self->kwargs_name == Py_None || takes_kwargs(self, module)) && PyObject_SetItem(hooks, self->key, tap) == 0) {
        return hooks;
    }
    Py_XDECREF(hooks);
    if (there != 1) return NULL;
    Py_RETURN_NONE;
}

/* 0, or -1 with an exception set. */
static int taken_off(PyObject *module, PyObject *name, PyObject *key) {
    PyObject *entries = PyObject_GetAttr(module, name);
    int there = entries == NULL ? -1 : PySequence_Contains(entries, key);
    int failed = there < 0 || (there && PyObject_DelItem(entries, key) < 0);
    Py_XDECREF(entries);
    return failed ? -1 : 0;
}

static PyObject *remove_all(PyObject *object, PyObject *none) {
    (void)none;
    Entries *self = (Entries *)object;
    for (Py_ssize_t i = 0; i < PyList_Size(self->held); i++) {
        PyObject *reference = PyList_GetItem(self->held, i), *module = reference ? PyWeakref_GetObject(reference) : NULL;
        if (module == NULL) return NULL;
        if (module == Py_None) continue;
        Py_INCREF(module);
        int failed = taken_off(module, self->hooks_name, self->key) < 0 ||
                     (self->kwargs_name != Py_None && taken_off(module, self->kwargs_name, self->key) < 0);
        Py_DECREF(module);
        if (failed) return NULL;
    }
    Py_RETURN_NONE;
}

static PyObject *made(PyTypeObject *kind, PyObject *args, PyObject *kwargs) {
    PyObject *hooks_name, *kwargs_name, *key, *order_numbers, *held;
    if (kwargs != NULL && PyDict_Size(kwargs)) return PyErr_Format(PyExc_TypeError, "Entries: no names, please");
    if (!PyArg_ParseTuple(args, "UOO!OO!:Entries", &hooks_name, &kwargs_name, &PyLong_Type, &key, &order_numbers,
                          &PyList_Type, &held))
        return NULL;
    if (!PyIter_Check(order_numbers)) return PyErr_Format(PyExc_TypeError, "Entries: %R is no iterator", order_numbers);
    Entries *self = (Entries *)PyType_GenericAlloc(kind, 0);
    if (self == NULL) return NULL;
    ENTRIES_HAS(HELD)
    return (PyObject *)self;
}

static PyMethodDef methods[] = {
    {"put", (PyCFunction)(void (*)(void))put_tap, METH_FASTCALL, NULL},
    {"remove", remove_all, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef members[] = {
    {"key", T_OBJECT, offsetof(Entries, key), READONLY, NULL},
    {"held", T_OBJECT, offsetof(Entries, held), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_doc, "Entries of one attachment, of taps that are called alike."},
    {Py_tp_new, (void *)made},
    {Py_tp_dealloc, (void *)entries_dealloc},
    {Py_tp_traverse, (void *)entries_traverse},
    {Py_tp_clear, (void *)entries_clear},
    {Py_tp_methods, (void *)methods},
    {Py_tp_members, (void *)members},
    {0, NULL},
};

static PyType_Spec spec = {
    "hookline.backends._entries.Entries", sizeof(Entries), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, slots,
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_entries", NULL, -1, NULL, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__entries(void) {
    if (name_order == NULL && (name_order = PyUnicode_InternFromString("order")) == NULL) return NULL;
    PyObject *module = PyModule_Create(&definition);
    PyObject *type = module == NULL ? NULL : PyType_FromModuleAndSpec(module, &spec, NULL);
    if (type == NULL || PyModule_AddObjectRef(module, "Entries", type) < 0) Py_CLEAR(module);
    Py_XDECREF(type);
    return module;
}
