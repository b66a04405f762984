/* Called: a tap that calls a hook. Plain is a call with all its arguments, of a hook that returns None. See _tap.c. */

#define CALLED_HAS(one) one(hook)

typedef struct {
    PyObject_HEAD
    Vectorcall call;
    CALLED_HAS(MEMBER)
    Py_ssize_t count; /* of arguments, as long as the tap is on a module */
} Called;

LIFE(Called, called, CALLED_HAS)

/* A compiler may follow whatever is called; code that it must not follow is written in Python, and marked there. It
   can be at work when the module of this name is loaded, and is not when the function returns None. */
static PyObject *compiler, *compiler_at_work;
static Py_ssize_t modules_without_it = -1; /* so many were loaded when it was not among them */

/* Whether a compiler may follow what is called now; -1 with an exception set. */
static int may_be_followed(void) {
    PyObject *modules = PyImport_GetModuleDict();
    if (compiler == NULL || PyDict_Size(modules) == modules_without_it) return 0;
    if (PyDict_GetItemWithError(modules, compiler) == NULL) {
        if (PyErr_Occurred()) return -1;
        modules_without_it = PyDict_Size(modules);
        return 0;
    }
    if (compiler_at_work == Py_None) return 1;
    PyObject *work = PyObject_CallNoArgs(compiler_at_work);
    if (work == NULL) return -1;
    Py_DECREF(work);
    return work != Py_None;
}

/* Has the tap say what is raised where its hook has raised an Exception; any other goes on as it is. */
static PyObject *hook_failed(PyObject *tap) {
    if (!PyErr_ExceptionMatches(PyExc_Exception)) return NULL;
    PyObject *kind, *error, *trace;
    PyErr_Fetch(&kind, &error, &trace);
    PyErr_NormalizeException(&kind, &error, &trace);
    if (trace != NULL) PyException_SetTraceback(error, trace);
    PyObject *result = PyObject_CallMethodObjArgs(tap, call_failed, error, NULL);
    Py_XDECREF(kind);
    Py_XDECREF(error);
    Py_XDECREF(trace);
    return result;
}

static PyObject *hook_called(PyObject *tap, PyObject *const *args, size_t flagged, PyObject *names) {
    Called *self = (Called *)tap;
    PyObject *hook = self->hook;
    Py_ssize_t count = number_of(flagged);
    int followed = may_be_followed();
    if (followed < 0) return NULL;
    if (hook == NULL || vectorcall_of == NULL || followed || names != NULL || count != self->count)
        return passed_on(tap, args, count, names);
    Py_INCREF(hook);
    PyObject *new = called_with(hook, args, count);
    Py_DECREF(hook);
    if (new == Py_None) return new;
    if (new == NULL) return hook_failed(tap);
    PyObject *told = as_tuple(args, count);
    PyObject *result = told == NULL ? NULL : PyObject_CallMethodObjArgs(tap, call_replaced, new, told, NULL);
    Py_XDECREF(told);
    Py_DECREF(new);
    return result;
}

static PyObject *called_new(PyTypeObject *kind, PyObject *args, PyObject *kwargs) {
    (void)args;
    (void)kwargs;
    Called *self = (Called *)PyType_GenericAlloc(kind, 0);
    if (self != NULL) self->call = hook_called;
    return (PyObject *)self;
}

static PyMemberDef called_members[] = {
    {"hook", T_OBJECT_EX, offsetof(Called, hook), 0, NULL},
    {"count", T_PYSSIZET, offsetof(Called, count), 0, NULL},
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Called, call), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot called_slots[] = {
    {Py_tp_doc, "A tap that calls a hook."},
    {Py_tp_new, (void *)called_new},
    {Py_tp_dealloc, (void *)called_dealloc},
    {Py_tp_traverse, (void *)called_traverse},
    {Py_tp_clear, (void *)called_clear},
    {Py_tp_call, (void *)called_anyhow},
    {Py_tp_members, (void *)called_members},
    {0, NULL},
};

static PyType_Spec called_spec = {
    "hookline.backends._tap.Called",
    sizeof(Called),
    0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE,
    called_slots,
};
