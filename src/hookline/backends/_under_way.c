/* Under way: the calls of one site between a tap before the forward and the tap after it.

   `hooks/pending.py` says what is done here and has the same in Python, for where no compiler was. It is done on every
   call of every module whose gradients are asked for, so that each frame of Python and each object counts.

   Only the limited API is used (setup.py says which), so that one build serves every later Python. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#ifdef _MSC_VER
#define OF_THREAD static __declspec(thread)
#else
#define OF_THREAD static _Thread_local
#endif

/* A call that was entered. `kwargs` is the dict that stands for it, `stood` are those that did before. */
typedef struct Entry {
    struct Entry *older;           /* of the same site */
    struct Entry *previous, *next; /* among those of all sites */
    PyObject *value, *kwargs, **stood;
    size_t count; /* of those that stood */
    unsigned long thread;
} Entry;

typedef struct {
    PyObject_HEAD
    PyObject *session;
    long long elsewhere;
    Entry *latest;
} Site;

static Entry all = {.previous = &all, .next = &all};

static PyObject *opened; /* see `bind` */
static PyObject *name_number, *name_is_open, *name_while_leaving, *name_begin, *name_end, *name_enter;

static PyObject *nothing(void) {
    Py_INCREF(Py_None);
    return Py_None;
}

/* Lets go of entries that are in no list any more; whatever that runs finds everything in order. */
static void let_go(Entry *entry) {
    while (entry != NULL) {
        Entry *older = entry->older;
        Py_XDECREF(entry->value);
        Py_XDECREF(entry->kwargs);
        for (size_t i = 0; i < entry->count; i++) {
            Py_DECREF(entry->stood[i]);
        }
        PyMem_Free(entry->stood);
        PyMem_Free(entry);
        entry = older;
    }
}

/* Takes the entry at `place` out of its site and out of all. */
static Entry *unlinked(Entry **place) {
    Entry *entry = *place;
    *place = entry->older;
    entry->previous->next = entry->next;
    entry->next->previous = entry->previous;
    entry->older = NULL;
    return entry;
}

/* Has `kwargs` stand for the calls of this thread that `came` stood for; 0, or -1 with an exception set.

   No object of Python is made meanwhile: that may start a collection, which may end calls that are gone through. */
static int hand_on(PyObject *came, PyObject *kwargs) {
    unsigned long thread = PyThread_get_thread_ident();
    for (Entry *entry = all.next; entry != &all; entry = entry->next) {
        if (entry->thread != thread || entry->kwargs != came) {
            continue;
        }
        PyObject **stood = PyMem_Realloc(entry->stood, (entry->count + 1) * sizeof(PyObject *));
        if (stood == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        Py_INCREF(kwargs);
        entry->stood = stood;
        entry->stood[entry->count++] = came; /* with the reference that the entry had */
        entry->kwargs = kwargs;
    }
    return 0;
}

static PyObject *handed_on(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *came, *kwargs;
    if (!PyArg_UnpackTuple(args, "handed_on", 2, 2, &came, &kwargs) || hand_on(came, kwargs) < 0) {
        return NULL;
    }
    return nothing();
}

static int put_entry(Site *self, PyObject *came, PyObject *kwargs, PyObject *value) {
    Entry *entry = PyMem_Calloc(1, sizeof(Entry));
    if (entry == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    Py_INCREF(value);
    Py_INCREF(came);
    entry->value = value;
    entry->kwargs = came;
    entry->thread = PyThread_get_thread_ident();
    entry->older = self->latest;
    self->latest = entry;
    entry->previous = all.previous;
    entry->next = &all;
    all.previous->next = entry;
    all.previous = entry;
    return came == kwargs ? 0 : hand_on(came, kwargs);
}

static int stood_for(Entry *entry, PyObject *kwargs) {
    for (size_t i = 0; i < entry->count; i++) {
        if (entry->stood[i] == kwargs) {
            return 1;
        }
    }
    return 0;
}

/* What was left for the end of the call with these kwargs; NULL, without an exception, where nothing was. */
static PyObject *take_entry(Site *self, PyObject *kwargs) {
    unsigned long thread = PyThread_get_thread_ident();
    Entry **place = &self->latest;
    while (*place != NULL && ((*place)->thread != thread || (*place)->kwargs != kwargs)) {
        place = &(*place)->older;
    }
    if (*place == NULL) { /* a later tap handed other kwargs on, and it is told of the first ones */
        place = &self->latest;
        while (*place != NULL && ((*place)->thread != thread || !stood_for(*place, kwargs))) {
            place = &(*place)->older;
        }
    }
    Entry *found = *place, *gone = NULL;
    if (found == NULL) {
        return NULL;
    }
    int again = 0; /* the same kwargs stand for a call around this one, too */
    for (Entry *outer = found->older; outer != NULL; outer = outer->older) {
        again |= outer->thread == thread && outer->kwargs == kwargs;
    }
    if (!again) { /* calls within the one that has come to its end have failed: they will not come to theirs */
        for (place = &self->latest; *place != found;) {
            if ((*place)->thread != thread) {
                place = &(*place)->older;
                continue;
            }
            Entry *failed = unlinked(place);
            failed->older = gone;
            gone = failed;
        }
    }
    unlinked(place);
    PyObject *value = found->value;
    found->value = NULL;
    found->older = gone;
    let_go(found);
    return value;
}

static PyObject *put(PyObject *object, PyObject *args) {
    PyObject *came, *kwargs, *value;
    if (!PyArg_UnpackTuple(args, "put", 3, 3, &came, &kwargs, &value) ||
        put_entry((Site *)object, came, kwargs, value) < 0) {
        return NULL;
    }
    return nothing();
}

static PyObject *take(PyObject *object, PyObject *kwargs) {
    PyObject *value = take_entry((Site *)object, kwargs);
    return value == NULL ? nothing() : value;
}

/* All entries of a site, the first first, in no list any more. */
static Entry *emptied(Site *self) {
    Entry *gone = NULL;
    while (self->latest != NULL) {
        Entry *entry = unlinked(&self->latest);
        entry->older = gone;
        gone = entry;
    }
    return gone;
}

static PyObject *drained(PyObject *object, PyObject *none) {
    (void)none;
    PyObject *values = PyList_New(0);
    if (values == NULL) {
        return NULL;
    }
    Entry *gone = emptied((Site *)object);
    int failed = 0;
    for (Entry *entry = gone; entry != NULL; entry = entry->older) {
        failed |= PyList_Append(values, entry->value) < 0;
    }
    let_go(gone);
    if (failed) {
        Py_CLEAR(values);
    }
    return values;
}

static PyObject *get_under_way(PyObject *object, void *closure) {
    (void)closure;
    Py_ssize_t count = 0;
    for (Entry *entry = ((Site *)object)->latest; entry != NULL; entry = entry->older) {
        count++;
    }
    return PyLong_FromSsize_t(count);
}

/* The number of a call. Identities are all that is kept, so nothing is held, and a thread that ends leaves nothing.
   Of very many arguments or taps the first are looked at. */
enum { MOST = 16 };
OF_THREAD struct {
    void *module, *args, *items[MOST], *taps[MOST];
    Py_ssize_t count;
    int met;
    long long number;
} last;
static long long numbers;

static long long number_of_call(PyObject *tap, PyObject *module, PyObject *args) {
    Py_ssize_t count = PyTuple_Check(args) ? PyTuple_Size(args) : 0, looked = count < MOST ? count : MOST;
    int same = last.number && last.module == module && last.args == args && last.count == count;
    for (Py_ssize_t i = 0; i < looked; i++) {
        PyObject *item = PyTuple_GetItem(args, i);
        same = same && last.items[i] == item;
        last.items[i] = item;
    }
    for (int i = 0; i < last.met && same; i++) {
        same = last.taps[i] != tap;
    }
    if (!same) {
        last.module = module;
        last.args = args;
        last.count = count;
        last.met = 0;
        last.number = ++numbers;
    }
    if (last.met < MOST) {
        last.taps[last.met++] = tap;
    }
    return last.number;
}

static PyObject *call_number(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *tap, *called, *given;
    if (!PyArg_UnpackTuple(args, "call_number", 3, 3, &tap, &called, &given)) {
        return NULL;
    }
    return PyLong_FromLongLong(number_of_call(tap, called, given));
}

static int is_at(PyObject *owner, PyObject *name) {
    PyObject *value = PyObject_GetAttr(owner, name);
    int answer = value == NULL ? -1 : PyObject_IsTrue(value);
    Py_XDECREF(value);
    return answer;
}

/* Whether a call of this context belongs to the session: what `Session.sees_this_context` does. -1: an exception. */
static int is_mine(PyObject *object, PyObject *session) {
    PyObject *mine = PyObject_CallNoArgs(opened), *number;
    Py_ssize_t blocks = mine == NULL ? -1 : PyObject_Size(mine);
    int seen = blocks < 0 ? -1 : 1;
    if (blocks > 0) {
        number = PyObject_GetAttr(session, name_number);
        seen = number == NULL ? -1 : PySequence_Contains(mine, number);
        Py_XDECREF(number);
    }
    Py_XDECREF(mine);
    if (seen == 1 && (seen = is_at(session, name_is_open)) == 0) {
        seen = is_at(object, name_while_leaving);
    }
    return seen;
}

/* The two objects of a tuple, borrowed. */
static int both(PyObject *pair, const char *what, PyObject **one, PyObject **other) {
    if (!PyTuple_Check(pair) || PyTuple_Size(pair) != 2) {
        PyErr_Format(PyExc_TypeError, "%s: expected a tuple of two", what);
        return -1;
    }
    *one = PyTuple_GetItem(pair, 0);
    *other = PyTuple_GetItem(pair, 1);
    return 0;
}

/* came(module, args, kwargs): what the tap before the forward answers. */
static PyObject *came(PyObject *object, PyObject *const *given, Py_ssize_t count) {
    Site *self = (Site *)object;
    if (count != 3) {
        PyErr_SetString(PyExc_TypeError, "came: expected module, args and kwargs");
        return NULL;
    }
    PyObject *args = given[1], *kwargs = given[2], *session = self->session;
    if (session != NULL && session != Py_None) {
        Py_INCREF(session);
        int mine = is_mine(object, session);
        Py_DECREF(session);
        if (mine < 0) {
            return NULL;
        }
        if (!mine) {
            self->elsewhere++;
            return nothing();
        }
    }
    PyObject *begun = PyObject_CallMethodObjArgs(object, name_begin, given[0], args, kwargs, NULL);
    if (begun == NULL || begun == Py_None) {
        return begun;
    }
    PyObject *call, *passage, *new_args = args, *new_kwargs = kwargs, *pair = NULL;
    int failed = both(begun, "begin", &call, &passage) < 0;
    if (!failed && passage != Py_None) {
        pair = PyObject_CallMethodObjArgs(passage, name_enter, args, kwargs, NULL);
        failed = pair == NULL || both(pair, "enter", &new_args, &new_kwargs) < 0;
    }
    failed = failed || put_entry(self, kwargs, new_kwargs, begun) < 0;
    Py_DECREF(begun);
    if (failed || pair == NULL || (new_args == args && new_kwargs == kwargs)) {
        Py_XDECREF(pair);
        return failed ? NULL : nothing();
    }
    return pair;
}

/* left(module, args, kwargs, output, references): what the tap after the forward answers. */
static PyObject *left(PyObject *object, PyObject *const *given, Py_ssize_t count) {
    if (count != 5) {
        PyErr_SetString(PyExc_TypeError, "left: expected module, args, kwargs, output and references");
        return NULL;
    }
    PyObject *begun = take_entry((Site *)object, given[2]), *call, *passage;
    if (begun == NULL) {
        return nothing();
    }
    if (both(begun, "begin", &call, &passage) < 0) {
        Py_DECREF(begun);
        return NULL;
    }
    PyObject *output = given[3], *new = NULL;
    PyObject *number = PyLong_FromLongLong(passage == Py_None ? 0 : number_of_call(object, given[0], given[1]));
    if (number != NULL) {
        new = PyObject_CallMethodObjArgs(object, name_end, call, passage, output, number, given[4], NULL);
        Py_DECREF(number);
    }
    Py_DECREF(begun);
    if (new == output) {
        Py_DECREF(new);
        return nothing();
    }
    return new;
}

static int traverse(PyObject *object, visitproc visit, void *arg) {
    Site *self = (Site *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->session);
    for (Entry *entry = self->latest; entry != NULL; entry = entry->older) {
        Py_VISIT(entry->value);
        Py_VISIT(entry->kwargs);
        for (size_t i = 0; i < entry->count; i++) {
            Py_VISIT(entry->stood[i]);
        }
    }
    return 0;
}

static int clear(PyObject *object) {
    Site *self = (Site *)object;
    Py_CLEAR(self->session);
    let_go(emptied(self));
    return 0;
}

static void dealloc(PyObject *object) {
    PyTypeObject *kind = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    clear(object);
    PyObject_GC_Del(object);
    Py_DECREF(kind); /* an object holds a type that is made at run time */
}

static PyMemberDef members[] = {
    {"session", T_OBJECT, offsetof(Site, session), 0, NULL},
    {"elsewhere", T_LONGLONG, offsetof(Site, elsewhere), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef computed[] = {
    {"under_way", get_under_way, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

#define FAST(name, function) {name, (PyCFunction)(void (*)(void))function, METH_FASTCALL, NULL}

static PyMethodDef methods[] = {
    FAST("came", came),
    FAST("left", left),
    {"put", put, METH_VARARGS, NULL},
    {"take", take, METH_O, NULL},
    {"drained", drained, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_doc, "The calls of one site that are under way."},
    {Py_tp_new, (void *)PyType_GenericNew},
    {Py_tp_dealloc, (void *)dealloc},
    {Py_tp_traverse, (void *)traverse},
    {Py_tp_clear, (void *)clear},
    {Py_tp_members, (void *)members},
    {Py_tp_getset, (void *)computed},
    {Py_tp_methods, (void *)methods},
    {0, NULL},
};

static PyType_Spec spec = {
    "hookline.backends._under_way.CallsUnderWay",
    sizeof(Site),
    0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE,
    slots,
};

/* bind(opened): the function that gives the numbers of the sessions of this context. */
static PyObject *bind(PyObject *module, PyObject *function) {
    (void)module;
    PyObject *before = opened;
    Py_INCREF(function);
    opened = function;
    Py_XDECREF(before);
    return nothing();
}

static PyMethodDef functions[] = {
    {"bind", bind, METH_O, NULL},
    {"call_number", call_number, METH_VARARGS, NULL},
    {"handed_on", handed_on, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_under_way", NULL, -1, functions, NULL, NULL, NULL, NULL,
};

static int intern(PyObject **place, const char *text) {
    return *place == NULL && (*place = PyUnicode_InternFromString(text)) == NULL ? -1 : 0;
}

PyMODINIT_FUNC PyInit__under_way(void) {
    if (intern(&name_number, "number") < 0 || intern(&name_is_open, "is_open") < 0 ||
        intern(&name_while_leaving, "while_leaving") < 0 || intern(&name_begin, "begin") < 0 ||
        intern(&name_end, "end") < 0 || intern(&name_enter, "enter") < 0) {
        return NULL;
    }
    PyObject *module = PyModule_Create(&definition);
    PyObject *type = module == NULL ? NULL : PyType_FromModuleAndSpec(module, &spec, NULL);
    if (type == NULL || PyModule_AddObjectRef(module, "CallsUnderWay", type) < 0) {
        Py_CLEAR(module);
    }
    Py_XDECREF(type);
    return module;
}
