/* Calls: the calls of modules whose operators are told, noted without frames of Python.

   A module may be so small that noting its call takes longer than its operators do. So a call within another one that runs
   for the first time is noted here. All others are noted by `OperatorMode.enter` and `leave`, which say what is noted.

   Only the limited API is used (setup.py says which), so that one build serves every later Python. */

#include "../../_object.h"

#include <structmember.h>

#define OBJECT(Struct, name) {#name, T_OBJECT_EX, offsetof(Struct, name), 0, NULL}

/* Scope: as `backends/operators.py` has it. */
#define SCOPE_HAS(one) \
    one(module) one(call) one(step) one(sequence) one(muted) one(backward) one(task) one(repeated_in)

typedef struct {
    PyObject_HEAD
    SCOPE_HAS(MEMBER)
} Scope;

LIFE(Scope, scope, SCOPE_HAS)

static PyObject *scope_made(PyTypeObject *type, PyObject *module, PyObject *call, PyObject *step, PyObject *sequence,
                            PyObject *muted) {
    Scope *self = (Scope *)PyType_GenericAlloc(type, 0);
    if (self == NULL) return NULL;
    PyObject *backward = Py_None, *task = Py_None, *repeated_in = Py_None;
    SCOPE_HAS(HELD)
    return (PyObject *)self;
}

static PyObject *scope_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"module", "call", "step", "sequence", "muted", NULL};
    PyObject *module, *call, *step, *sequence = NULL, *muted = Py_False;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOO|OO:Scope", names, &module, &call, &step, &sequence, &muted))
        return NULL;
    PyObject *zero = PyLong_FromLong(0);
    PyObject *made = zero == NULL ? NULL : scope_made(type, module, call, step, sequence == NULL ? zero : sequence, muted);
    Py_XDECREF(zero);
    return made;
}

static PyMemberDef scope_members[] = {
    OBJECT(Scope, module), OBJECT(Scope, call),     OBJECT(Scope, step), OBJECT(Scope, sequence),
    OBJECT(Scope, muted),  OBJECT(Scope, backward), OBJECT(Scope, task), OBJECT(Scope, repeated_in),
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot scope_slots[] = {
    {Py_tp_doc, "One call of a module."},
    {Py_tp_new, (void *)scope_new},
    {Py_tp_dealloc, (void *)scope_dealloc},
    {Py_tp_traverse, (void *)scope_traverse},
    {Py_tp_clear, (void *)scope_clear},
    {Py_tp_members, (void *)scope_members},
    {0, NULL},
};

static PyType_Spec scope_spec = {
    "hookline.backends.torch.eager._calls.Scope",
    sizeof(Scope),
    0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    scope_slots,
};

/* Here: the scopes under way in a thread, the scopes of the calls so far by the starts of their modules, and the numbers and
   scopes of the thread's trail. */
#define HERE_HAS(one) one(scopes) one(calls) one(numbers) one(marked)

typedef struct {
    PyObject_HEAD
    HERE_HAS(MEMBER)
} Here;

LIFE(Here, here, HERE_HAS)

static PyMemberDef here_members[] = {
    OBJECT(Here, scopes), OBJECT(Here, calls), OBJECT(Here, numbers), OBJECT(Here, marked), {NULL, 0, 0, 0, NULL},
};

static PyType_Slot here_slots[] = {
    {Py_tp_doc, "What is under way in one thread."},
    {Py_tp_dealloc, (void *)here_dealloc},
    {Py_tp_traverse, (void *)here_traverse},
    {Py_tp_clear, (void *)here_clear},
    {Py_tp_members, (void *)here_members},
    {0, NULL},
};

static PyType_Spec here_spec = {
    "hookline.backends.torch.eager._calls.Here",
    sizeof(Here),
    0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE,
    here_slots,
};

static PyTypeObject *scope_type, *here_type;
static PyObject *here_name;

/* Part: a module whose calls are noted. `local` leads to the Here of a thread; `sequence_number` and `graph_task` are torch's,
   `leave` the mode's. A trail that is `limit` long is for Python to shorten. */
#define PART_HAS(one) one(local) one(start) one(module) one(sequence_number) one(graph_task) one(leave)

typedef struct {
    PyObject_HEAD
    PART_HAS(MEMBER)
    Py_ssize_t limit;
} Part;

LIFE(Part, part, PART_HAS)

static PyObject *part_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    PyObject *local, *start, *module, *sequence_number, *graph_task, *leave;
    Py_ssize_t limit;
    if (kwargs != NULL && PyDict_Size(kwargs) > 0)
        return PyErr_Format(PyExc_TypeError, "Part takes no keyword arguments");
    if (!PyArg_ParseTuple(args, "OOOOOOn:Part", &local, &start, &module, &sequence_number, &graph_task, &leave, &limit))
        return NULL;
    Part *self = (Part *)PyType_GenericAlloc(type, 0);
    if (self == NULL) return NULL;
    PART_HAS(HELD)
    self->limit = limit;
    return (PyObject *)self;
}

/* The last of a list, borrowed; NULL with an exception set, also where it is no list or has none. */
static PyObject *last_of(PyObject *list) { return PyList_GetItem(list, PyList_Size(list) - 1); }

/* As `Trail.mark`; -1 with an exception set. */
static int mark(Here *here, PyObject *scope, PyObject *number) {
    PyObject *numbers = here->numbers, *marked = here->marked;
    Py_ssize_t count = PyList_Size(numbers);
    if (count < 0) return -1;
    if (count > 0) {
        long long before = PyLong_AsLongLong(PyList_GetItem(numbers, count - 1)), next = PyLong_AsLongLong(number);
        if ((before == -1 || next == -1) && PyErr_Occurred()) return -1;
        if (before >= next) {
            Py_INCREF(scope);
            return PyList_SetItem(marked, PyList_Size(marked) - 1, scope);
        }
    }
    return PyList_Append(numbers, number) < 0 || PyList_Append(marked, scope) < 0 ? -1 : 0;
}

/* Whether the call that begins is noted here; -1 with an exception set. */
static int is_plain(Part *self, PyObject *found) {
    if (!PyObject_TypeCheck(found, here_type)) return 0;
    Here *here = (Here *)found;
    if (!here->scopes || !here->calls || !here->numbers || !here->marked) return 0;
    if (PyList_Size(here->scopes) < 1 || PyList_Size(here->numbers) >= self->limit) return PyErr_Occurred() ? -1 : 0;
    PyObject *around = last_of(here->scopes);
    if (around == NULL) return -1;
    if (!PyObject_TypeCheck(around, scope_type) || ((Scope *)around)->muted != Py_False) return 0;
    PyObject *task = PyObject_CallNoArgs(self->graph_task);
    long long value = task == NULL ? -1 : PyLong_AsLongLong(task);
    Py_XDECREF(task);
    return value == -1 ? (PyErr_Occurred() ? -1 : 1) : 0;
}

/* As `OperatorMode.enter`: the scope of the call that begins; NULL with an exception set. */
static PyObject *entered(Part *self, Here *here) {
    PyObject *number = PyObject_CallNoArgs(self->sequence_number), *scope = NULL;
    if (number == NULL) return NULL;
    PyObject *calls = PyDict_GetItemWithError(here->calls, self->start);
    if (calls != NULL) {
        Py_INCREF(calls);
    } else if (PyErr_Occurred() || (calls = PyList_New(0)) == NULL || PyDict_SetItem(here->calls, self->start, calls) < 0) {
        Py_XDECREF(calls);
        Py_DECREF(number);
        return NULL;
    }
    PyObject *call = PyLong_FromSsize_t(PyList_Size(calls));
    if (call != NULL) scope = scope_made(scope_type, self->module, call, self->start, number, Py_False);
    if (scope != NULL && (PyList_Append(calls, scope) < 0 || PyList_Append(here->scopes, scope) < 0 || mark(here, scope, number) < 0))
        Py_CLEAR(scope);
    Py_XDECREF(call);
    Py_DECREF(calls);
    Py_DECREF(number);
    return scope;
}

/* As `OperatorMode.leave`; -1 with an exception set. */
static int left(Part *self, Here *here, PyObject *scope) {
    PyObject *scopes = here->scopes;
    Py_ssize_t count = PyList_Size(scopes);
    if (count < 2 || PyList_GetItem(scopes, count - 1) != scope) {
        if (count < 0) PyErr_Clear();
        PyObject *done = PyObject_CallFunctionObjArgs(self->leave, (PyObject *)here, scope, NULL);
        Py_XDECREF(done);
        return done == NULL ? -1 : 0;
    }
    PyObject *around = PyList_GetItem(scopes, count - 2);
    Py_INCREF(around);
    int result = PyList_SetSlice(scopes, count - 1, count, NULL);
    PyObject *number = PyObject_CallNoArgs(self->sequence_number);
    if (number == NULL || mark(here, around, number) < 0) result = -1;
    Py_XDECREF(number);
    Py_DECREF(around);
    return result;
}

/* part(forward, args, kwargs) -> what the forward gives; the part itself where the call is not noted here, and has not run. */
static PyObject *part_called(PyObject *object, PyObject *told, PyObject *kwargs) {
    Part *self = (Part *)object;
    PyObject *forward, *args, *named;
    if (kwargs != NULL && PyDict_Size(kwargs) > 0)
        return PyErr_Format(PyExc_TypeError, "a Part takes no keyword arguments");
    if (!PyArg_ParseTuple(told, "OO!O!:Part", &forward, &PyTuple_Type, &args, &PyDict_Type, &named)) return NULL;
    PyObject *here = PyObject_GetAttr(self->local, here_name), *scope = NULL, *result = NULL;
    if (here == NULL) return NULL;
    int plain = is_plain(self, here);
    if (plain == 0) {
        Py_DECREF(here);
        Py_INCREF(object);
        return object;
    }
    if (plain > 0) scope = entered(self, (Here *)here);
    if (scope != NULL) {
        PyObject *kind, *error, *trace;
        result = PyObject_Call(forward, args, named);
        PyErr_Fetch(&kind, &error, &trace);
        if (left(self, (Here *)here, scope) < 0) {
            if (kind != NULL) PyErr_Clear();
            Py_CLEAR(result);
        }
        if (kind != NULL) PyErr_Restore(kind, error, trace);
        Py_DECREF(scope);
    }
    Py_DECREF(here);
    return result;
}

static PyType_Slot part_slots[] = {
    {Py_tp_doc, "A module whose calls are noted."},
    {Py_tp_new, (void *)part_new},
    {Py_tp_dealloc, (void *)part_dealloc},
    {Py_tp_traverse, (void *)part_traverse},
    {Py_tp_clear, (void *)part_clear},
    {Py_tp_call, (void *)part_called},
    {0, NULL},
};

static PyType_Spec part_spec = {
    "hookline.backends.torch.eager._calls.Part",
    sizeof(Part),
    0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    part_slots,
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_calls", "The calls of modules whose operators are told.", -1, NULL, NULL, NULL, NULL, NULL,
};

/* A class that is made at run time, which `module` has under its name and keeps; NULL with an exception set. */
static PyTypeObject *added(PyObject *module, const char *name, PyType_Spec *spec) {
    PyObject *type = PyType_FromModuleAndSpec(module, spec, NULL);
    if (type != NULL && PyModule_AddObjectRef(module, name, type) < 0) Py_CLEAR(type);
    return (PyTypeObject *)type;
}

PyMODINIT_FUNC PyInit__calls(void) {
    if ((here_name = PyUnicode_InternFromString("here")) == NULL) return NULL;
    PyObject *module = PyModule_Create(&definition);
    if (module == NULL || (scope_type = added(module, "Scope", &scope_spec)) == NULL ||
        (here_type = added(module, "Here", &here_spec)) == NULL || added(module, "Part", &part_spec) == NULL)
        Py_CLEAR(module);
    return module;
}
