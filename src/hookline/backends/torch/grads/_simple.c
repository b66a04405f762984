/* Simple: the calls whose gradients hooks on nodes tell, from their entrance to their last gradient.

   Most calls of most models are such, and most of these are plain: one tensor enters and one leaves. All that is done
   for a plain call is done here, since written in Python it takes longer than a small module does. `simple.py` says
   what is simple, and `Passage` there is to go on with all that is not: `enter_anyhow`, `leave_anyhow`.

   Only the limited API is used (setup.py says which), so that one build serves every later Python. */

#include "../../_object.h"

#include <structmember.h>

#include "_simple_small.h"

#include "_simple_forward.h"

#include "_simple_backward.h"

static PyObject *get_entered(PyObject *object, void *closure) {
    (void)closure;
    Simple *self = (Simple *)object;
    return self->entered_node == NULL ? nothing() : Py_BuildValue("(OL)", self->entered_node, self->entered_nr);
}

static int set_entered(PyObject *object, PyObject *edge, void *closure) {
    (void)closure;
    Simple *self = (Simple *)object;
    PyObject *node = NULL;
    if (is_set(edge) && edge_read(edge, &node, &self->entered_nr) < 0) {
        return -1;
    }
    Py_XINCREF(node);
    put(&self->entered_node, node);
    return 0;
}

/* Two numbers as a tuple, at their place in an object. */
static PyObject *get_pair(PyObject *object, void *offset) {
    long long *pair = (long long *)((char *)object + (size_t)offset);
    return Py_BuildValue("(LL)", pair[0], pair[1]);
}

static int set_pair(PyObject *object, PyObject *value, void *offset) {
    long long *pair = (long long *)((char *)object + (size_t)offset);
    if (value == NULL || !PyTuple_Check(value)) {
        PyErr_SetString(PyExc_TypeError, "expected a tuple of two numbers");
        return -1;
    }
    return PyArg_ParseTuple(value, "LL", &pair[0], &pair[1]) ? 0 : -1;
}

#define OBJECTS(action)                                                                                         \
    action(sink) action(on_output) action(joint_out) action(remark) action(marks) action(inputs) action(outputs) \
        action(numbers) action(sent) action(entered_node)

static int traverse(PyObject *object, visitproc visit, void *arg) {
    Simple *self = (Simple *)object;
    Py_VISIT(Py_TYPE(object));
#define VISITED(name) Py_VISIT(self->name);
    OBJECTS(VISITED)
    return 0;
}

static int clear(PyObject *object) {
    Simple *self = (Simple *)object;
#define CLEARED(name) Py_CLEAR(self->name);
    OBJECTS(CLEARED)
    return 0;
}

static void dealloc(PyObject *object) {
    PyTypeObject *kind = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    clear(object);
    PyObject_GC_Del(object);
    Py_DECREF(kind); /* an object holds a type that is made at run time */
}

static PyObject *made(PyTypeObject *kind, PyObject *args, PyObject *kwargs) {
    PyObject *sink = NULL, *joint = NULL;
    if (kwargs != NULL || !PyArg_UnpackTuple(args, "Simple", 0, 2, &sink, &joint)) {
        return kwargs == NULL ? NULL : PyErr_Format(PyExc_TypeError, "Simple: expected a sink and whether it asks");
    }
    int asks = joint == NULL ? 0 : PyObject_IsTrue(joint);
    Simple *self = asks < 0 ? NULL : (Simple *)PyType_GenericAlloc(kind, 0);
    if (self == NULL) {
        return NULL;
    }
    PyObject *empty = PyTuple_New(0);
    Py_XINCREF(self->sink = sink);
    self->joint = (char)asks;
    Py_XINCREF(empty);
    self->inputs = self->outputs = empty;
    Py_XINCREF(self->numbers = told[ONLY]);
    self->simple = 1;
    self->told_in = -2; /* no backward has this number */
    return (PyObject *)self;
}

#define OBJECT(name) {#name, T_OBJECT, offsetof(Simple, name), 0, NULL},
#define OF_KIND(name, kind) {#name, kind, offsetof(Simple, name), 0, NULL},

static PyMemberDef members[] = {
    OBJECT(sink) OBJECT(on_output) OBJECT(joint_out) OBJECT(remark) OBJECT(marks) OBJECT(inputs) OBJECT(outputs)
    OBJECT(numbers) OBJECT(sent)
    OF_KIND(told_in, T_LONGLONG) OF_KIND(start, T_LONGLONG) OF_KIND(group, T_LONGLONG)
    OF_KIND(before, T_LONGLONG) OF_KIND(output_nr, T_LONGLONG)
    OF_KIND(live, T_INT) OF_KIND(places_in, T_INT) OF_KIND(places_out, T_INT)
    OF_KIND(joint, T_BOOL) OF_KIND(simple, T_BOOL) OF_KIND(by_ledger, T_BOOL) OF_KIND(mixed, T_BOOL) OF_KIND(of_leaf, T_BOOL)
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef computed[] = {
    {"entered", get_entered, set_entered, NULL, NULL},
    {"span", get_pair, set_pair, NULL, (void *)offsetof(Simple, span)},
    {NULL, NULL, NULL, NULL, NULL},
};

#define FAST(name, function) {name, (PyCFunction)(void (*)(void))function, METH_FASTCALL, NULL}

static PyMethodDef methods[] = {
    FAST("enter", enter),
    FAST("leave", leave),
    FAST("hear", hear_method),
    FAST("tell_output", tell_output),
    FAST("tell_inputs", tell_inputs),
    {"ask_output", ask_output, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_doc, "One call, as long as it is simple."},
    {Py_tp_new, (void *)made},
    {Py_tp_dealloc, (void *)dealloc},
    {Py_tp_traverse, (void *)traverse},
    {Py_tp_clear, (void *)clear},
    {Py_tp_call, (void *)tell_both},
    {Py_tp_members, (void *)members},
    {Py_tp_getset, (void *)computed},
    {Py_tp_methods, (void *)methods},
    {0, NULL},
};

static PyType_Spec spec = {
    "hookline.backends.torch.grads._simple.Simple",
    sizeof(Simple),
    0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE,
    slots,
};

/* What a thread knows. */

static PyObject *get_known(PyObject *object, void *closure) {
    (void)closure;
    Here *self = (Here *)object;
    if (self->known != NULL) {
        Py_INCREF(self->known);
        return self->known;
    }
    return self->only == NULL ? PyTuple_New(0) : Py_BuildValue("(N)", PyLong_FromVoidPtr(self->only));
}

static int set_known(PyObject *object, PyObject *value, void *closure) {
    (void)closure;
    Py_XINCREF(value);
    put(&((Here *)object)->known, value);
    ((Here *)object)->only = NULL;
    return 0;
}

static void here_dealloc(PyObject *object) {
    PyTypeObject *kind = Py_TYPE(object);
    put(&((Here *)object)->known, NULL);
    put(&((Here *)object)->handed_on, NULL);
    PyObject_Free(object);
    Py_DECREF(kind);
}

#define OF_HERE(name, kind) {#name, kind, offsetof(Here, name), 0, NULL},

static PyMemberDef here_members[] = {
    OF_HERE(call, T_LONGLONG) OF_HERE(group, T_LONGLONG) OF_HERE(looked_up, T_LONGLONG) OF_HERE(marked, T_LONGLONG)
    OF_HERE(looking, T_LONGLONG) OF_HERE(is_main, T_BOOL) OF_HERE(handed_on, T_OBJECT)
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef here_computed[] = {
    {"known", get_known, set_known, NULL, NULL},
    {"span", get_pair, set_pair, NULL, (void *)offsetof(Here, span)},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot here_slots[] = {
    {Py_tp_doc, "What a thread knows of its calls."},
    {Py_tp_new, (void *)PyType_GenericNew},
    {Py_tp_dealloc, (void *)here_dealloc},
    {Py_tp_members, (void *)here_members},
    {Py_tp_getset, (void *)here_computed},
    {0, NULL},
};

static PyType_Spec here_spec = {
    "hookline.backends.torch.grads._simple.Here", sizeof(Here), 0, Py_TPFLAGS_DEFAULT, here_slots,
};

static PyMemberDef several_members[] = {
    {"several", T_BOOL, offsetof(Several, several), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot several_slots[] = {
    {Py_tp_doc, "Whether calls come from several threads."},
    {Py_tp_new, (void *)PyType_GenericNew},
    {Py_tp_members, (void *)several_members},
    {0, NULL},
};

static PyType_Spec several_spec = {
    "hookline.backends.torch.grads._simple.Several",
    sizeof(Several),
    0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    several_slots,
};

/* bind(**told): what there is of torch and of hookline, by the names above. */
static PyObject *bind(PyObject *module, PyObject *args, PyObject *kwargs) {
    (void)module;
    for (int i = 0; i < TOLD; i++) {
        PyObject *value = kwargs == NULL ? NULL : PyDict_GetItemString(kwargs, told_names[i]);
        if (value == NULL || PyTuple_Size(args) != 0) {
            return PyErr_Format(PyExc_TypeError, "bind: expected %s, by name", told_names[i]);
        }
        if (i == THREADS && !PyObject_TypeCheck(value, (PyTypeObject *)several_type)) {
            return PyErr_Format(PyExc_TypeError, "bind: expected threads that are a Several");
        }
        Py_INCREF(value);
        put(&told[i], value);
    }
    return nothing();
}

static PyMethodDef functions[] = {
    {"bind", (PyCFunction)(void (*)(void))bind, METH_VARARGS | METH_KEYWORDS, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_simple", NULL, -1, functions, NULL, NULL, NULL, NULL,
};

/* Makes a type and adds it; `kept`, if it is no NULL, gets a reference of its own. */
static int added(PyObject *module, const char *name, PyType_Spec *made_of, PyObject **kept) {
    PyObject *type = PyType_FromModuleAndSpec(module, made_of, NULL);
    int result = type == NULL ? -1 : PyModule_AddObjectRef(module, name, type);
    if (kept != NULL && result == 0) {
        Py_INCREF(type);
        put(kept, type);
    }
    Py_XDECREF(type);
    return result;
}

PyMODINIT_FUNC PyInit__simple(void) {
    for (int i = 0; i < NAMES; i++) {
        if (names[i] == NULL && (names[i] = PyUnicode_InternFromString(name_texts[i])) == NULL) {
            return NULL;
        }
    }
    PyObject *module = PyModule_Create(&definition);
    if (module == NULL || added(module, "Simple", &spec, NULL) < 0 || added(module, "Here", &here_spec, &here_type) < 0 ||
        added(module, "Several", &several_spec, &several_type) < 0) {
        Py_CLEAR(module);
    }
    return module;
}
