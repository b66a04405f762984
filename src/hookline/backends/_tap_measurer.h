/* Measurer: a tap that has each output reduced. Plain is a call of an open watch, within a call of its model, with a
   tensor that the kernel reads; its number, its key and where it goes are those that Python would find. See _tap.c. */

/* What the taps of one watch share. */
#define MEASURING_HAS(one) \
    one(watch) one(clock) one(gathered) one(tensor) one(opened) one(number) one(backward_number)

typedef struct {
    PyObject_HEAD
    MEASURING_HAS(MEMBER)
} Measuring;

/* What one tap has: `visits` are the calls of the forward of this number, `keys` those of such calls by their number, as
   they are in this mode. `broken` says why nothing is reduced any more. */
#define MEASURER_HAS(one) one(measuring) one(visits) one(forward) one(keys) one(mode) one(broken)

typedef struct {
    PyObject_HEAD
    Vectorcall call;
    MEASURER_HAS(MEMBER)
    Py_ssize_t fired, order;
} Measurer;

LIFE(Measuring, measuring, MEASURING_HAS)
LIFE(Measurer, measurer, MEASURER_HAS)

static PyTypeObject *measuring_type;

#define NAMES_MEASURED(one) \
    one(is_due) one(depths) one(forward) one(last_mode) one(step) one(sheet) one(entries) one(into_line) one(reduce_elsewhere) one(reduce) one(enter_late)
#define NAME(name) static PyObject *name_##name;
NAMES_MEASURED(NAME)

static int names_are_made(void) {
#define MADE_NAME(name) \
    if ((name_##name = PyUnicode_InternFromString(#name)) == NULL) return 0;
    NAMES_MEASURED(MADE_NAME)
    return 1;
}

/* Whether the watch goes on with the step under way, and with a call of its model; -1 with an exception set. */
static int is_under_way(Measuring *shared) {
    int due = says(PyObject_GetAttr(shared->clock, name_is_due));
    if (due != 0) return due < 0 ? -1 : 0;
    return says(PyObject_GetAttr(shared->clock, name_depths));
}

/* Whether the call has the key of a call before it. Then it is one of the visits, and `*key` is the key, a new
   reference. As other threads may call the same module: nothing runs between its being counted and its being there. */
static int is_visited(Measurer *self, Measuring *shared, PyObject **key) {
    PyObject *forward = PyObject_GetAttr(shared->watch, name_forward);
    PyObject *mode = forward == NULL ? NULL : PyObject_GetAttr(shared->watch, name_last_mode);
    int found = mode == NULL ? -1 : 0;
    if (mode != NULL && mode == self->mode && self->keys != NULL && self->visits != NULL && self->forward != NULL) {
        int same = forward == self->forward ? 1 : PyObject_RichCompareBool(forward, self->forward, Py_EQ);
        Py_ssize_t number = same == 1 ? PyList_Size(self->visits) : 0;
        if (same < 0)
            found = -1;
        else if (number < PyList_Size(self->keys)) {
            PyObject *fresh = same ? NULL : PyList_New(0);
            *key = PyList_GetItem(self->keys, number);
            Py_INCREF(*key);
            if (fresh != NULL) {
                Py_INCREF(forward);
                put(&self->forward, forward);
                put(&self->visits, fresh);
            }
            PyObject *visit = PyTuple_GetItem(*key, 2);
            found = (!same && fresh == NULL) || visit == NULL || PyList_Append(self->visits, visit) < 0 ? -1 : 1;
            if (found < 0) Py_CLEAR(*key);
        }
    }
    Py_XDECREF(forward);
    Py_XDECREF(mode);
    return found;
}

/* Enters a line of the step under way; who ends the step meanwhile takes it, or Python finds another place for it. */
static int is_entered(Measuring *shared, PyObject *step, PyObject *key, PyObject *line, PyObject *tensor) {
    PyObject *entries = PyObject_GetAttr(step, name_entries), *entry = PyTuple_Pack(3, key, line, Py_None), *now = NULL;
    int failed = entries == NULL || entry == NULL || PyList_Append(entries, entry) < 0;
    if (!failed) failed = (now = PyObject_GetAttr(shared->gathered, name_step)) == NULL;
    if (!failed && now != step) {
        PyObject *done = PyObject_CallMethodObjArgs(shared->gathered, name_enter_late, step, entry, tensor, NULL);
        failed = done == NULL;
        Py_XDECREF(done);
    }
    Py_XDECREF(entries);
    Py_XDECREF(entry);
    Py_XDECREF(now);
    return !failed;
}

/* The line that has the tensor's statistics; NULL, and perhaps with an exception, where Python has to find one. */
static PyObject *line_of(PyObject *sheet, PyObject *tensor) {
    PyObject *into = PyObject_GetAttr(sheet, name_into_line);
    PyObject *line = into == NULL || into == Py_None ? NULL : PyObject_CallFunctionObjArgs(into, tensor, NULL);
    Py_XDECREF(into);
    if (line == NULL || PyLong_AsLong(line) >= 0) return line;
    PyObject *elsewhere = PyObject_CallMethodObjArgs(sheet, name_reduce_elsewhere, line, tensor, NULL);
    Py_DECREF(line);
    return elsewhere;
}

/* Has the tensor reduced into the step under way, by the kernel or by Python, which also says what fails. */
static int is_measured(Measurer *self, Measuring *shared, PyObject *key, PyObject *tensor) {
    PyObject *step = PyObject_GetAttr(shared->gathered, name_step);
    PyObject *sheet = step == NULL ? NULL : PyObject_GetAttr(step, name_sheet);
    PyObject *line = sheet == NULL ? NULL : line_of(sheet, tensor);
    int done = line != NULL && is_entered(shared, step, key, line, tensor);
    Py_XDECREF(step);
    Py_XDECREF(sheet);
    Py_XDECREF(line);
    if (done) return 1;
    if (PyErr_Occurred()) {
        if (!PyErr_ExceptionMatches(PyExc_Exception)) return 0;
        PyErr_Clear();
    }
    PyObject *none = PyObject_CallMethodObjArgs((PyObject *)self, name_reduce, key, tensor, NULL);
    Py_XDECREF(none);
    return none != NULL;
}

static PyObject *output_measured(PyObject *tap, PyObject *const *args, size_t flagged, PyObject *names) {
    Measurer *self = (Measurer *)tap;
    PyObject *known = self->measuring, *key = NULL;
    Py_ssize_t count = number_of(flagged);
    if (known == NULL || Py_TYPE(known) != measuring_type || (self->broken != NULL && self->broken != Py_None) || names ||
        count != 3)
        return passed_on(tap, args, count, names);
    Measuring *shared = (Measuring *)known;
    Py_INCREF(known); /* other threads may run meanwhile, and end the watch */
    int plain = Py_TYPE(args[2]) == (PyTypeObject *)shared->tensor;
    if (plain == 1) plain = is_here(shared->opened, shared->number);
    if (plain == 1) plain = is_in_backward(shared->backward_number) == 0 ? 1 : PyErr_Occurred() ? -1 : 0;
    if (plain == 1) plain = is_under_way(shared);
    if (plain == 1) plain = is_visited(self, shared, &key);
    if (plain == 1) {
        self->fired++;
        if (!is_measured(self, shared, key, args[2])) plain = -1;
    }
    Py_XDECREF(key);
    Py_DECREF(known);
    if (plain < 0) return NULL;
    if (plain == 0) return passed_on(tap, args, count, names);
    Py_RETURN_NONE;
}

/* Measuring(watch, clock, gathered, tensor, opened, number, backward_number) */
static PyObject *measuring_new(PyTypeObject *kind, PyObject *args, PyObject *kwargs) {
    PyObject *watch, *clock, *gathered, *tensor, *opened, *number, *backward_number;
    if (kwargs != NULL && PyDict_Size(kwargs)) return PyErr_Format(PyExc_TypeError, "Measuring: no names, please");
    if (!PyArg_UnpackTuple(
            args, "Measuring", 7, 7, &watch, &clock, &gathered, &tensor, &opened, &number, &backward_number))
        return NULL;
    Measuring *self = (Measuring *)PyType_GenericAlloc(kind, 0);
    if (self == NULL) return NULL;
    MEASURING_HAS(HELD)
    return (PyObject *)self;
}

static PyObject *measurer_new(PyTypeObject *kind, PyObject *args, PyObject *kwargs) {
    (void)args;
    (void)kwargs;
    Measurer *self = (Measurer *)PyType_GenericAlloc(kind, 0);
    if (self != NULL) self->call = output_measured;
    return (PyObject *)self;
}

static PyMemberDef measurer_members[] = {
#define OBJECT_OR_NONE(name) {#name, T_OBJECT, offsetof(Measurer, name), 0, NULL},
    MEASURER_HAS(OBJECT_OR_NONE)
    {"fired", T_PYSSIZET, offsetof(Measurer, fired), 0, NULL},
    {"order", T_PYSSIZET, offsetof(Measurer, order), 0, NULL},
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Measurer, call), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot measuring_slots[] = {
    {Py_tp_doc, "What the taps of one watch share."},
    {Py_tp_new, (void *)measuring_new},
    {Py_tp_dealloc, (void *)measuring_dealloc},
    {Py_tp_traverse, (void *)measuring_traverse},
    {Py_tp_clear, (void *)measuring_clear},
    {0, NULL},
};

static PyType_Slot measurer_slots[] = {
    {Py_tp_doc, "A tap that has each output reduced."},
    {Py_tp_new, (void *)measurer_new},
    {Py_tp_dealloc, (void *)measurer_dealloc},
    {Py_tp_traverse, (void *)measurer_traverse},
    {Py_tp_clear, (void *)measurer_clear},
    {Py_tp_call, (void *)called_anyhow},
    {Py_tp_members, (void *)measurer_members},
    {0, NULL},
};

static PyType_Spec measuring_spec = {
    "hookline.backends._tap.Measuring", sizeof(Measuring), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, measuring_slots,
};

static PyType_Spec measurer_spec = {
    "hookline.backends._tap.Measurer",
    sizeof(Measurer),
    0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE,
    measurer_slots,
};
