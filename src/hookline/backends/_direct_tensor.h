/* Tensor: what DLPack tells of a tensor, and how it lies in memory. See _direct.c. */

/* What DLPack 1 says of a tensor and of the table, as far as it is read here (dmlc.github.io/dlpack). */
typedef struct {
    void *data;
    struct {
        int32_t kind, number;
    } device;
    int32_t ndim;
    struct {
        uint8_t code, bits;
        uint16_t lanes;
    } dtype;
    int64_t *shape, *strides;
    uint64_t byte_offset;
} Tensor;

typedef struct Owned {
    uint32_t major, minor;
    void *owner;
    void (*let_go)(struct Owned *);
    uint64_t flags;
    Tensor tensor;
} Owned;

typedef struct {
    struct {
        uint32_t major, minor;
    } version;
    void *older, *allocate, *to_owned;
    int (*from_owned)(Owned *, void **);
    int (*tell)(PyObject *, Tensor *);
} Exchange;

enum { CPU = 1, INT = 0, UINT = 1, FLOAT = 2, BFLOAT = 4, BOOL = 6, MAX_DIMS = 8, LONG = 4096, ALIGNED = 64 };

/* The table, which is the first argument; NULL with an exception set where arguments are missing or it is none. */
static const Exchange *table_of(const char *name, PyObject *const *args, Py_ssize_t count, Py_ssize_t expected) {
    if (count != expected) {
        PyErr_Format(PyExc_TypeError, "%s: expected %zd arguments, got %zd", name, expected, count);
        return NULL;
    }
    return PyCapsule_GetPointer(args[0], "dlpack_exchange_api");
}

/* Whether a tensor tells where it lies. One that is sparse, nested or inside of a transform does not: it is asked
   another way. */
static int tells(const Exchange *exchange, PyObject *tensor, Tensor *t) {
    if (exchange->version.major != 1 || !exchange->tell) return 0;
    if (!exchange->tell(tensor, t)) return 1;
    PyErr_Clear();
    return 0;
}

static int lies_in_order(const Tensor *t) {
    int64_t apart = 1;
    if (!t->strides) return 1;
    for (int d = t->ndim - 1; d >= 0; d--) {
        if (t->shape[d] != 1 && t->strides[d] != apart) return 0;
        apart *= t->shape[d] > 1 ? t->shape[d] : 1; /* as strides are of a tensor without values */
    }
    return 1;
}

/* Whether the values fill the memory from the first to the last of them, in whatever order. */
static int has_no_gaps(const Tensor *t) {
    if (!t->strides || t->ndim > MAX_DIMS) return lies_in_order(t);
    int used[MAX_DIMS] = {0};
    int64_t apart = 1;
    for (int found = 0; found < t->ndim; found++) {
        int next = -1;
        for (int d = 0; d < t->ndim && next < 0; d++)
            if (!used[d] && (t->shape[d] == 1 || t->strides[d] == apart)) next = d;
        if (next < 0) return 0;
        used[next] = 1;
        apart *= t->shape[next];
    }
    return 1;
}

static int are_alike(const Tensor *a, const Tensor *b) {
    if (a->ndim != b->ndim || memcmp(&a->dtype, &b->dtype, sizeof a->dtype)) return 0;
    for (int d = 0; d < a->ndim; d++)
        if (a->shape[d] != b->shape[d] || (a->shape[d] != 1 && a->strides[d] != b->strides[d])) return 0;
    return 1;
}
