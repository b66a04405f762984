/* Direct copy: a copy of a small tensor in memory of its own, by DLPack's table of C functions. See _direct.c. */

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

enum { CPU = 1, INT = 0, UINT = 1, FLOAT = 2, BFLOAT = 4, BOOL = 6, ALIGNED = 64 };

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

static int is_copied_as_bytes(const Tensor *t) {
    int code = t->dtype.code;
    int known = code == INT || code == UINT || code == FLOAT || code == BFLOAT || code == BOOL;
    return known && t->dtype.lanes == 1 && t->dtype.bits >= 8;
}

static void let_go(Owned *owned) { free(owned->owner); }

/* A copy of `t`, whose values take so many bytes, in memory of its own, which is freed when nobody has it any more. */
static Owned *copied(const Tensor *t, size_t bytes) {
    size_t dims = (size_t)t->ndim * sizeof(int64_t);
    char *memory = malloc(sizeof(Owned) + 2 * dims + ALIGNED + bytes);
    if (!memory) return NULL;
    Owned *owned = (Owned *)memory;
    int64_t *shape = (int64_t *)(memory + sizeof(Owned)), *strides = shape + t->ndim, apart = 1;
    char *data = (char *)(((uintptr_t)(strides + t->ndim) + ALIGNED - 1) / ALIGNED * ALIGNED);
    for (int d = t->ndim - 1; d >= 0; d--) {
        shape[d] = t->shape[d];
        strides[d] = apart;
        apart *= t->shape[d] > 1 ? t->shape[d] : 1;
    }
    if (bytes) memcpy(data, (const char *)t->data + t->byte_offset, bytes);
    *owned = (Owned){.major = 1, .owner = memory, .let_go = let_go, .tensor = *t};
    owned->tensor.data = data;
    owned->tensor.shape = shape;
    owned->tensor.strides = strides;
    owned->tensor.byte_offset = 0;
    return owned;
}

/* 1 with a tensor of the same values without history in `*made`; 0 where `tensor` is no plain one of numbers that lie
   in order on the CPU, or takes `most` bytes or more; -1 with an exception set where there is no memory. */
static int copied_directly(const Exchange *exchange, PyObject *tensor, int64_t most, PyObject **made) {
    Tensor t;
    if (!tells(exchange, tensor, &t)) return 0;
    if (t.device.kind != CPU || !is_copied_as_bytes(&t) || !lies_in_order(&t)) return 0;
    int64_t bytes = t.dtype.bits / 8;
    for (int d = 0; d < t.ndim; d++) bytes *= t.shape[d];
    if ((bytes && !t.data) || bytes >= most) return 0;

    void *copy = NULL;
    Owned *owned = copied(&t, (size_t)bytes);
    if (!owned) {
        PyErr_NoMemory();
        return -1;
    }
    if (exchange->from_owned(owned, &copy)) { /* it has taken `owned` all the same */
        PyErr_Clear();
        return 0;
    }
    *made = copy;
    return 1;
}
