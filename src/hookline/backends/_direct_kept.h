/* Kept: a copy of which a tensor is made when somebody asks for it.

   That is cheaper where few are asked for. And the small objects of a tensor, between the large ones that the model
   takes and gives back, keep these from being joined, so that the model gets fresh pages, which cost it more. */
typedef struct {
    PyObject_HEAD
    const Exchange *exchange;
    PyObject *how;       /* a function that calls what it gets, where tensors are ordinary ones */
    Copy *copy;          /* NULL as soon as there is a tensor */
    PyObject *tensor;    /* NULL before */
    unsigned long maker; /* the thread that is making the tensor; 0 if none is */
} Kept;

static PyTypeObject *kept_type;

/* See _direct_keep.h. */
static PyObject *kept_of(const void *table, PyObject *tensor, PyObject *how) {
    const Exchange *exchange = table;
    Copy *made = copied(exchange, tensor);
    Kept *kept = made ? PyObject_GC_New(Kept, kept_type) : NULL;
    if (!kept) {
        if (made) let_go(&made->owned);
        return NULL;
    }
    Py_INCREF(how);
    kept->exchange = exchange, kept->how = how, kept->copy = made, kept->tensor = NULL, kept->maker = 0;
    PyObject_GC_Track((PyObject *)kept);
    return (PyObject *)kept;
}

/* keep(exchange, tensor, how) -> what `copy` gives, to be had by `get`; None where that is None. */
static PyObject *keep(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    (void)self;
    const Exchange *exchange = table_of("keep", args, count, 3);
    PyObject *kept = exchange ? kept_of(exchange, args[1], args[2]) : NULL;
    if (kept || PyErr_Occurred()) return kept;
    Py_RETURN_NONE;
}

/* What a keeper has: in this order. */
enum { TABLE, HOW, KIND, IS_NEGATED, IN_INFERENCE, ANYHOW, PARTS };

/* keeper(...)(tensor): kept here where it is of the kind, tensors are ordinary now, and memory has its signs. */
static PyObject *kept_if_plain(PyObject *parts, PyObject *tensor) {
    if ((PyObject *)Py_TYPE(tensor) == PyTuple_GetItem(parts, KIND)) {
        int is_odd = says(PyObject_CallNoArgs(PyTuple_GetItem(parts, IN_INFERENCE)));
        if (!is_odd) is_odd = says(PyObject_CallFunctionObjArgs(PyTuple_GetItem(parts, IS_NEGATED), tensor, NULL));
        const void *table = is_odd ? NULL : PyCapsule_GetPointer(PyTuple_GetItem(parts, TABLE), "dlpack_exchange_api");
        PyObject *kept = table ? kept_of(table, tensor, PyTuple_GetItem(parts, HOW)) : NULL;
        if (kept || PyErr_Occurred()) return kept;
    }
    return PyObject_CallFunctionObjArgs(PyTuple_GetItem(parts, ANYHOW), tensor, NULL);
}

static PyMethodDef keeper_definition = {"keep", kept_if_plain, METH_O, PyDoc_STR("A copy that is kept.")};

/* keeper(table, how, kind, is_negated, in_inference, anyhow) -> a function that keeps a tensor; `anyhow` keeps others. */
static PyObject *keeper(PyObject *self, PyObject *parts) {
    (void)self;
    if (PyTuple_Size(parts) != PARTS) {
        PyErr_Format(PyExc_TypeError, "keeper: expected %d arguments, got %zd", PARTS, PyTuple_Size(parts));
        return NULL;
    }
    if (!PyCapsule_GetPointer(PyTuple_GetItem(parts, TABLE), "dlpack_exchange_api")) return NULL;
    return PyCFunction_NewEx(&keeper_definition, parts, NULL);
}

/* Makes the tensor, for `how`. It is kept at once: an interrupt may end `how` before that has returned it. */
static PyObject *kept_make(PyObject *self, PyObject *nothing) {
    (void)nothing;
    Kept *kept = (Kept *)self;
    Copy *copy = kept->copy;
    if (!copy || kept->maker != PyThread_get_thread_ident()) {
        PyErr_SetString(PyExc_RuntimeError, "make: a tensor is made once, by the thread that asked for it");
        return NULL;
    }
    kept->copy = NULL; /* it is gone, also where no tensor comes of it */
    kept->tensor = tensor_of(kept->exchange, copy);
    Py_XINCREF(kept->tensor);
    return kept->tensor;
}

static PyObject *kept_get(PyObject *self, PyObject *nothing) {
    (void)nothing;
    Kept *kept = (Kept *)self;
    unsigned long me = PyThread_get_thread_ident();
    while (kept->maker && kept->maker != me) { /* Python may change threads at any object that is made */
        PyThreadState *thread = PyEval_SaveThread();
        PyEval_RestoreThread(thread);
    }
    if (kept->copy && !kept->maker) {
        kept->maker = me;
        PyObject *make = PyObject_GetAttrString(self, "make");
        PyObject *made = make ? PyObject_CallFunctionObjArgs(kept->how, make, NULL) : NULL;
        Py_XDECREF(make);
        Py_XDECREF(made);
        kept->maker = 0;
        if (!made) return NULL;
    }
    Py_XINCREF(kept->tensor);
    if (!kept->tensor) PyErr_SetString(PyExc_RuntimeError, "no tensor could be made of this copy");
    return kept->tensor;
}

/* Pickled or copied, it is a tensor. */
static PyObject *kept_reduce(PyObject *self, PyObject *nothing) {
    PyObject *tensor = kept_get(self, nothing), *module = PyImport_ImportModule("hookline.backends.kept");
    PyObject *itself = module ? PyObject_GetAttrString(module, "itself") : NULL;
    PyObject *result = tensor && itself ? Py_BuildValue("O(O)", itself, tensor) : NULL;
    Py_XDECREF(tensor);
    Py_XDECREF(module);
    Py_XDECREF(itself);
    return result;
}

static int kept_traverse(PyObject *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(((Kept *)self)->how);
    Py_VISIT(((Kept *)self)->tensor);
    return 0;
}

static int kept_clear(PyObject *self) {
    Py_CLEAR(((Kept *)self)->how);
    Py_CLEAR(((Kept *)self)->tensor);
    return 0;
}

static void kept_dealloc(PyObject *self) {
    PyTypeObject *kind = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    if (((Kept *)self)->copy) let_go(&((Kept *)self)->copy->owned);
    kept_clear(self);
    PyObject_GC_Del(self);
    Py_DECREF(kind); /* an object holds a type that is made at run time */
}

static PyMethodDef kept_methods[] = {
    {"get", kept_get, METH_NOARGS, PyDoc_STR("The tensor, the same one each time.")},
    {"make", kept_make, METH_NOARGS, PyDoc_STR("Makes the tensor; for the function that `keep` was given.")},
    {"__reduce__", kept_reduce, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot kept_slots[] = {
    {Py_tp_doc, "A copy of which a tensor is made when somebody asks for it."},
    {Py_tp_dealloc, (void *)kept_dealloc},
    {Py_tp_traverse, (void *)kept_traverse},
    {Py_tp_clear, (void *)kept_clear},
    {Py_tp_methods, kept_methods},
    {0, NULL},
};

static PyType_Spec kept_spec = {
    "hookline.backends._direct.Kept",
    sizeof(Kept),
    0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE,
    kept_slots,
};
