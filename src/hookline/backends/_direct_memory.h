/* Memory: bytes of the pool that can be written to, for copies that are not made here. */
typedef struct {
    PyObject_HEAD
    Block *block;
    Py_ssize_t bytes;
} Memory;

static PyObject *memory_new(PyTypeObject *kind, PyObject *args, PyObject *kwargs) {
    Py_ssize_t bytes;
    if (kwargs && PyDict_Size(kwargs)) {
        PyErr_SetString(PyExc_TypeError, "Memory: expected no keywords");
        return NULL;
    }
    if (!PyArg_ParseTuple(args, "n:Memory", &bytes)) return NULL;
    if (bytes < 1) {
        PyErr_SetString(PyExc_ValueError, "Memory: expected a number of bytes above 0");
        return NULL;
    }
    Block *block = block_taken((size_t)bytes);
    if (!block) return PyErr_NoMemory();
    Memory *self = (Memory *)PyType_GenericAlloc(kind, 0);
    if (!self) {
        block_returned(block);
        return NULL;
    }
    self->block = block;
    self->bytes = bytes;
    return (PyObject *)self;
}

static void memory_dealloc(PyObject *self) {
    PyTypeObject *kind = Py_TYPE(self);
    block_returned(((Memory *)self)->block);
    PyObject_Free(self);
    Py_DECREF(kind); /* an object holds a type that is made at run time */
}

static int memory_buffer(PyObject *self, Py_buffer *view, int flags) {
    Memory *memory = (Memory *)self;
    return PyBuffer_FillInfo(view, self, values_of(memory->block), memory->bytes, 0, flags);
}

static PyType_Slot memory_slots[] = {
    {Py_tp_doc, "Memory(bytes): a buffer of the pool, MemoryError where it has no more; it goes back with the object."},
    {Py_tp_new, (void *)memory_new},
    {Py_tp_dealloc, (void *)memory_dealloc},
    {Py_bf_getbuffer, (void *)memory_buffer},
    {0, NULL},
};

static PyType_Spec memory_spec = {
    "hookline.backends._direct.Memory", sizeof(Memory), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE, memory_slots,
};

/* held() -> how many bytes the pool has from the system, and in how many blocks of it there are values. */
static PyObject *held(PyObject *self, PyObject *nothing) {
    (void)self, (void)nothing;
    size_t bytes = 0, blocks = 0;
    if (pool_locked()) {
        bytes = pool.held;
        for (Slab *slab = pool.slabs; slab; slab = slab->next) blocks += slab->in_use;
        pool_unlocked();
    }
    return Py_BuildValue("(nn)", (Py_ssize_t)bytes, (Py_ssize_t)blocks);
}

/* bound(most) -> how many bytes the pool might hold until now. What it has beyond the new bound, and nobody uses,
   goes back to the system. */
static PyObject *bound(PyObject *self, PyObject *given) {
    (void)self;
    Py_ssize_t most = PyLong_AsSsize_t(given), before = 0;
    if (most < 0) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "bound: expected a number of bytes");
        return NULL;
    }
    if (pool_locked()) {
        before = (Py_ssize_t)pool.most;
        pool.most = (size_t)most;
        give_back(pool.most);
        pool_unlocked();
    }
    return PyLong_FromSsize_t(before);
}
