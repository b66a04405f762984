/* How far two arrays are apart, in one pass over both.

   numpy makes a new array for each step of the same work, and its BLAS takes all cores for a dot product. Everything
   is summed in double. What is not plain here (numbers that are not finite, sums that overflow, dtypes other than
   float and double, gaps between the numbers) gives None, and numpy does it. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#define LANES 8 /* sums side by side, so that the compiler may add them at once */

/* Where the C library chooses among functions when it loads them, there is one for each kind of processor. */
#if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__)
#define EACH_PROCESSOR __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define EACH_PROCESSOR
#endif

typedef struct {
    double largest, square;
} Sums;

static double most(const double *lanes)
{
    double found = 0.0;
    for (int k = 0; k < LANES; k++)
        found = lanes[k] > found ? lanes[k] : found;
    return found;
}

static double total(const double *lanes)
{
    double sum = 0.0;
    for (int k = 0; k < LANES; k++)
        sum += lanes[k];
    return sum;
}

/* A NaN is never the largest, but it makes the square NaN, which tells of it. */
#define DEFINE(T)                                                                                                    \
    EACH_PROCESSOR static Sums apart_##T(const T *restrict a, const T *restrict b, int64_t count)                    \
    {                                                                                                                \
        double largest[LANES] = {0}, square[LANES] = {0};                                                            \
        int64_t i = 0;                                                                                               \
        for (; i + LANES <= count; i += LANES)                                                                       \
            for (int k = 0; k < LANES; k++) {                                                                        \
                double gap = fabs((double)a[i + k] - (double)b[i + k]);                                              \
                largest[k] = gap > largest[k] ? gap : largest[k];                                                    \
                square[k] += gap * gap;                                                                              \
            }                                                                                                        \
        for (; i < count; i++) {                                                                                     \
            double gap = fabs((double)a[i] - (double)b[i]);                                                          \
            largest[0] = gap > largest[0] ? gap : largest[0];                                                        \
            square[0] += gap * gap;                                                                                  \
        }                                                                                                            \
        return (Sums){most(largest), total(square)};                                                                 \
    }                                                                                                                \
                                                                                                                     \
    EACH_PROCESSOR static Sums scale_##T(const T *restrict a, int64_t count)                                         \
    {                                                                                                                \
        double largest[LANES] = {0}, square[LANES] = {0};                                                            \
        int64_t i = 0;                                                                                               \
        for (; i + LANES <= count; i += LANES)                                                                       \
            for (int k = 0; k < LANES; k++) {                                                                        \
                double size = fabs((double)a[i + k]);                                                                \
                largest[k] = size > largest[k] ? size : largest[k];                                                  \
                square[k] += size * size;                                                                            \
            }                                                                                                        \
        for (; i < count; i++) {                                                                                     \
            double size = fabs((double)a[i]);                                                                        \
            largest[0] = size > largest[0] ? size : largest[0];                                                      \
            square[0] += size * size;                                                                                \
        }                                                                                                            \
        return (Sums){most(largest), total(square)};                                                                 \
    }                                                                                                                \
                                                                                                                     \
    EACH_PROCESSOR static double dot_##T(const T *restrict a, const T *restrict b, int64_t count)                    \
    {                                                                                                                \
        double sum[LANES] = {0};                                                                                     \
        int64_t i = 0;                                                                                               \
        for (; i + LANES <= count; i += LANES)                                                                       \
            for (int k = 0; k < LANES; k++)                                                                          \
                sum[k] += (double)a[i + k] * (double)b[i + k];                                                       \
        for (; i < count; i++)                                                                                       \
            sum[0] += (double)a[i] * (double)b[i];                                                                   \
        return total(sum);                                                                                           \
    }                                                                                                                \
                                                                                                                     \
    EACH_PROCESSOR static int64_t beyond_##T(const T *restrict a, const T *restrict b, int64_t count, double bound)  \
    {                                                                                                                \
        int64_t found = 0;                                                                                           \
        for (int64_t i = 0; i < count; i++)                                                                          \
            found += fabs((double)a[i] - (double)b[i]) > bound;                                                      \
        return found;                                                                                                \
    }                                                                                                                \
                                                                                                                     \
    static int64_t place_##T(const T *a, const T *b, int64_t count, double largest)                                  \
    {                                                                                                                \
        for (int64_t i = 0; i < count; i++)                                                                          \
            if (fabs((double)a[i] - (double)b[i]) == largest)                                                        \
                return i;                                                                                            \
        return 0;                                                                                                    \
    }

DEFINE(float)
DEFINE(double)

/* The memory of an array of floats or doubles without gaps: its kind, 'f' or 'd'; 0 where it is another one, with no
   error set. A kind that is given must be the same. */
static char taken(PyObject *array, Py_buffer *view, char kind)
{
    if (PyObject_GetBuffer(array, view, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT) < 0) {
        PyErr_Clear();
        return 0;
    }
    const char *format = view->format == NULL ? "" : view->format;
    char own = (format[0] == 'f' || format[0] == 'd') && format[1] == 0 ? format[0] : 0;
    if (own == 0 || (kind != 0 && own != kind)) {
        PyBuffer_Release(view);
        return 0;
    }
    return own;
}

/* Two memories of one kind and one size; 0 where they are not. */
static char both_taken(PyObject *args[2], Py_buffer views[2])
{
    char kind = taken(args[0], &views[0], 0);
    if (kind == 0)
        return 0;
    if (taken(args[1], &views[1], kind) == 0) {
        PyBuffer_Release(&views[0]);
        return 0;
    }
    if (views[0].len == views[1].len)
        return kind;
    PyBuffer_Release(&views[0]);
    PyBuffer_Release(&views[1]);
    return 0;
}

static PyObject *gap(PyObject *self, PyObject *args)
{
    PyObject *arrays[2];
    Py_buffer views[2];
    if (!PyArg_ParseTuple(args, "OO", &arrays[0], &arrays[1]))
        return NULL;
    char kind = both_taken(arrays, views);
    if (kind == 0)
        Py_RETURN_NONE;
    Sums sums = {0};
    const void *a = views[0].buf, *b = views[1].buf;
    int64_t count = views[0].len / views[0].itemsize;
    Py_BEGIN_ALLOW_THREADS
    if (memcmp(a, b, (size_t)views[0].len) != 0)
        sums = kind == 'f' ? apart_float(a, b, count) : apart_double(a, b, count);
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&views[0]);
    PyBuffer_Release(&views[1]);
    if (!isfinite(sums.square))
        Py_RETURN_NONE;
    return Py_BuildValue("dd", sums.largest, sqrt(sums.square));
}

static PyObject *same(PyObject *self, PyObject *args)
{
    PyObject *arrays[2];
    Py_buffer a, b;
    if (!PyArg_ParseTuple(args, "OO", &arrays[0], &arrays[1]))
        return NULL;
    if (PyObject_GetBuffer(arrays[0], &a, PyBUF_C_CONTIGUOUS) < 0) {
        PyErr_Clear();
        Py_RETURN_NONE;
    }
    if (PyObject_GetBuffer(arrays[1], &b, PyBUF_C_CONTIGUOUS) < 0) {
        PyBuffer_Release(&a);
        PyErr_Clear();
        Py_RETURN_NONE;
    }
    int equal;
    Py_BEGIN_ALLOW_THREADS
    equal = a.len == b.len && memcmp(a.buf, b.buf, (size_t)a.len) == 0;
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&a);
    PyBuffer_Release(&b);
    return PyBool_FromLong(equal);
}

static PyObject *scale(PyObject *self, PyObject *array)
{
    Py_buffer view;
    char kind = taken(array, &view, 0);
    if (kind == 0)
        Py_RETURN_NONE;
    Sums sums;
    int64_t count = view.len / view.itemsize;
    Py_BEGIN_ALLOW_THREADS
    sums = kind == 'f' ? scale_float(view.buf, count) : scale_double(view.buf, count);
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&view);
    if (!isfinite(sums.square))
        Py_RETURN_NONE;
    return Py_BuildValue("dd", sums.largest, sqrt(sums.square));
}

static PyObject *details(PyObject *self, PyObject *args)
{
    PyObject *arrays[2];
    Py_buffer views[2];
    double largest, bound, dot;
    if (!PyArg_ParseTuple(args, "OOdd", &arrays[0], &arrays[1], &largest, &bound))
        return NULL;
    char kind = both_taken(arrays, views);
    if (kind == 0)
        Py_RETURN_NONE;
    const void *a = views[0].buf, *b = views[1].buf;
    int64_t place, beyond, count = views[0].len / views[0].itemsize;
    Py_BEGIN_ALLOW_THREADS
    if (kind == 'f') {
        dot = dot_float(a, b, count);
        place = place_float(a, b, count, largest);
        beyond = beyond_float(a, b, count, bound);
    } else {
        dot = dot_double(a, b, count);
        place = place_double(a, b, count, largest);
        beyond = beyond_double(a, b, count, bound);
    }
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&views[0]);
    PyBuffer_Release(&views[1]);
    return Py_BuildValue("dLL", dot, (long long)place, (long long)beyond);
}

static PyMethodDef methods[] = {
    {"gap", gap, METH_VARARGS, "(largest, norm) of the differences of two arrays, or None"},
    {"same", same, METH_VARARGS, "whether two arrays without gaps have the same bytes, or None"},
    {"scale", scale, METH_O, "(largest, norm) of an array, or None"},
    {"details", details, METH_VARARGS,
     "(dot product, place of the difference `largest`, how many are above `bound`) of two arrays, or None"},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_apart", "How far two arrays are apart.", 0, methods};

PyMODINIT_FUNC PyInit__apart(void)
{
    return PyModuleDef_Init(&module);
}
