/* Keeper: a tap that keeps a copy of each output. Plain is a call of this block, with a tensor. See _tap.c. */

/* What the taps of one block share: how it is found out whether a call is plain, and where what is kept goes. */
#define KEEPING_HAS(one) \
    one(keeps) one(table) one(how) one(tensor) one(is_negated) one(in_inference) one(opened) one(number) one(backward_number) one(order) \
        one(fired)

typedef struct {
    PyObject_HEAD
    KEEPING_HAS(MEMBER)
    const void *functions; /* of the table */
    Keep keep;
    char is_plain;
} Keeping;

/* What one tap has: what its class needs of it as well, since there is a tap for every module. */
#define KEEPER_HAS(one) one(recorder) one(target) one(needs) one(keeping) one(name) one(record) one(outputs)

typedef struct {
    PyObject_HEAD
    Vectorcall call;
    KEEPER_HAS(MEMBER)
    Py_ssize_t order;
} Keeper;

LIFE(Keeping, keeping, KEEPING_HAS)
LIFE(Keeper, keeper, KEEPER_HAS)

static PyTypeObject *keeping_type;

/* 1 with a copy of the output in `*copy` where the call is plain, 0 where it is not, -1 with an exception set. */
static int copied_if_plain(Keeping *keeping, PyObject *output, PyObject **copy) {
    if (!keeping->is_plain || Py_TYPE(output) != (PyTypeObject *)keeping->tensor) return 0;
    int answer = is_here(keeping->opened, keeping->number);
    if (answer != 1) return answer;
    if ((answer = is_in_backward(keeping->backward_number)) != 0) return answer < 0 ? -1 : 0;
    if ((answer = says(PyObject_CallNoArgs(keeping->in_inference))) != 0) return answer < 0 ? -1 : 0;
    answer = says(PyObject_CallFunctionObjArgs(keeping->is_negated, output, NULL));
    if (answer != 0) return answer < 0 ? -1 : 0;
    *copy = keeping->keep(keeping->functions, output, keeping->how);
    return *copy ? 1 : PyErr_Occurred() ? -1 : 0;
}

/* Notes that the site fired, if it is the first time, and keeps (order, copy); 0 with an exception set. */
static int is_kept(Keeping *keeping, PyObject *record, PyObject *name, PyObject *outputs, PyObject *copy) {
    if (PyList_Size(outputs) == 0 && PyDict_GetItemWithError(keeping->fired, name) == NULL)
        if (PyErr_Occurred() || PyDict_SetItem(keeping->fired, name, record) < 0) return 0;
    PyObject *order = PyIter_Next(keeping->order);
    if (order == NULL && !PyErr_Occurred()) PyErr_SetNone(PyExc_StopIteration); /* there is always another number */
    PyObject *pair = order == NULL ? NULL : PyTuple_Pack(2, order, copy);
    int failed = pair == NULL || PyList_Append(outputs, pair) < 0;
    Py_XDECREF(order);
    Py_XDECREF(pair);
    return !failed;
}

static PyObject *output_kept(PyObject *tap, PyObject *const *args, size_t flagged, PyObject *names) {
    Keeper *self = (Keeper *)tap;
    PyObject *shared = self->keeping, *record = self->record, *name = self->name, *outputs = self->outputs, *copy = NULL;
    Py_ssize_t count = number_of(flagged);
    if (shared == NULL || Py_TYPE(shared) != keeping_type || !record || !name || !outputs || names || count != 3)
        return passed_on(tap, args, count, names);
    /* Other threads may run meanwhile, and end the block. */
    Keeping *keeping = (Keeping *)shared;
    Py_INCREF(shared);
    Py_INCREF(record);
    Py_INCREF(name);
    Py_INCREF(outputs);
    int plain = copied_if_plain(keeping, args[2], &copy);
    int failed = plain < 0 || (plain && !is_kept(keeping, record, name, outputs, copy));
    Py_XDECREF(copy);
    Py_DECREF(shared);
    Py_DECREF(record);
    Py_DECREF(name);
    Py_DECREF(outputs);
    if (failed) return NULL;
    if (!plain) return passed_on(tap, args, count, names);
    Py_RETURN_NONE;
}

/* Keeping((keeps, table, how, tensor, is_negated, in_inference), opened, number, backward_number, order, fired) */
static PyObject *keeping_new(PyTypeObject *kind, PyObject *args, PyObject *kwargs) {
    PyObject *keeps, *table, *how, *tensor, *is_negated, *in_inference;
    PyObject *opened, *number, *backward_number, *order, *fired;
    if (kwargs != NULL && PyDict_Size(kwargs)) return PyErr_Format(PyExc_TypeError, "Keeping: no names, please");
    if (!PyArg_ParseTuple(args, "(OOOO!OO)OO!OOO!:Keeping", &keeps, &table, &how, &PyType_Type, &tensor, &is_negated,
                          &in_inference, &opened, &PyLong_Type, &number, &backward_number, &order, &PyDict_Type, &fired))
        return NULL;
    if (!PyIter_Check(order)) return PyErr_Format(PyExc_TypeError, "Keeping: %R is no iterator", order);
    const void *functions = PyCapsule_GetPointer(table, "dlpack_exchange_api");
    Keep keep = functions == NULL ? NULL : (Keep)PyCapsule_GetPointer(keeps, KEEPS);
    Keeping *self = keep == NULL ? NULL : (Keeping *)PyType_GenericAlloc(kind, 0);
    if (self == NULL) return NULL;
    KEEPING_HAS(HELD)
    self->functions = functions;
    self->keep = keep;
    self->is_plain = 1;
    return (PyObject *)self;
}

/* Keeper(recorder, target, needs, keeping, name, record, outputs) */
static PyObject *keeper_new(PyTypeObject *kind, PyObject *args, PyObject *kwargs) {
    PyObject *recorder, *target, *needs, *keeping, *name, *record, *outputs;
    if (kwargs != NULL && PyDict_Size(kwargs)) return PyErr_Format(PyExc_TypeError, "Keeper: no names, please");
    if (!PyArg_UnpackTuple(args, "Keeper", 7, 7, &recorder, &target, &needs, &keeping, &name, &record, &outputs))
        return NULL;
    Keeper *self = (Keeper *)PyType_GenericAlloc(kind, 0);
    if (self == NULL) return NULL;
    KEEPER_HAS(HELD)
    self->call = output_kept;
    return (PyObject *)self;
}

/* All was done by `keeper_new`; a class may have another base with an __init__. */
static int keeper_init(PyObject *tap, PyObject *args, PyObject *kwargs) {
    (void)tap;
    (void)args;
    (void)kwargs;
    return 0;
}

static PyMemberDef keeping_members[] = {
    {"is_plain", T_BOOL, offsetof(Keeping, is_plain), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyMemberDef keeper_members[] = {
#define OBJECT(name) {#name, T_OBJECT_EX, offsetof(Keeper, name), 0, NULL},
    KEEPER_HAS(OBJECT)
    {"order", T_PYSSIZET, offsetof(Keeper, order), 0, NULL},
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Keeper, call), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot keeping_slots[] = {
    {Py_tp_doc, "What the taps of one block share."},
    {Py_tp_new, (void *)keeping_new},
    {Py_tp_dealloc, (void *)keeping_dealloc},
    {Py_tp_traverse, (void *)keeping_traverse},
    {Py_tp_clear, (void *)keeping_clear},
    {Py_tp_members, (void *)keeping_members},
    {0, NULL},
};

static PyType_Slot keeper_slots[] = {
    {Py_tp_doc, "A tap that keeps a copy of each output."},
    {Py_tp_new, (void *)keeper_new},
    {Py_tp_init, (void *)keeper_init},
    {Py_tp_dealloc, (void *)keeper_dealloc},
    {Py_tp_traverse, (void *)keeper_traverse},
    {Py_tp_clear, (void *)keeper_clear},
    {Py_tp_call, (void *)called_anyhow},
    {Py_tp_members, (void *)keeper_members},
    {0, NULL},
};

static PyType_Spec keeping_spec = {
    "hookline.backends._tap.Keeping", sizeof(Keeping), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, keeping_slots,
};

static PyType_Spec keeper_spec = {
    "hookline.backends._tap.Keeper",
    sizeof(Keeper),
    0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE,
    keeper_slots,
};
