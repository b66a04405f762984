/* How far two arrays are apart, in one pass over both.

   numpy makes a new array for each step of the same work, and its BLAS takes all cores for a dot product. Everything
   is summed in double. What is not plain here (numbers that are not finite, sums that overflow, dtypes other than
   float and double, gaps between the numbers) gives None, and numpy does it. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

/* Where the C library chooses among functions when it loads them, there is one for each kind of processor. */
#if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__)
#define EACH_PROCESSOR __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define EACH_PROCESSOR
#endif

#define TEXT(x) #x
#ifdef _MSC_VER
#define SEVERAL_AT_ONCE(how)
#else
#define SEVERAL_AT_ONCE(how) _Pragma(TEXT(omp simd how))
#endif

typedef struct {
    double largest, square;
} Sums;

#define DETAILS 8
typedef struct {
    double all[DETAILS]; /* of the differences, of the first array and of the second one the largest number without
                            its sign and the sum of squares; the dot product; how many differences are too large */
} Details;

/* A NaN is never the largest, but it makes the square NaN, which tells of it. Sums are in any order: `omp simd` says
   that the compiler may add several at once. */
#define DEFINE(T)                                                                                                    \
    EACH_PROCESSOR static Sums apart_##T(const T *restrict a, const T *restrict b, int64_t count)                    \
    {                                                                                                                \
        double largest = 0.0, square = 0.0;                                                                          \
        SEVERAL_AT_ONCE(reduction(max : largest) reduction(+ : square))                                              \
        for (int64_t i = 0; i < count; i++) {                                                                        \
            double gap = fabs((double)a[i] - (double)b[i]);                                                          \
            largest = gap > largest ? gap : largest;                                                                 \
            square += gap * gap;                                                                                     \
        }                                                                                                            \
        return (Sums){largest, square};                                                                              \
    }                                                                                                                \
                                                                                                                     \
    EACH_PROCESSOR static Sums scale_##T(const T *restrict a, int64_t count)                                         \
    {                                                                                                                \
        double largest = 0.0, square = 0.0;                                                                          \
        SEVERAL_AT_ONCE(reduction(max : largest) reduction(+ : square))                                              \
        for (int64_t i = 0; i < count; i++) {                                                                        \
            double size = fabs((double)a[i]);                                                                        \
            largest = size > largest ? size : largest;                                                               \
            square += size * size;                                                                                   \
        }                                                                                                            \
        return (Sums){largest, square};                                                                              \
    }                                                                                                                \
                                                                                                                     \
    EACH_PROCESSOR static Details details_##T(const T *restrict a, const T *restrict b, int64_t count, double bound) \
    {                                                                                                                \
        double gap_most = 0.0, gap_square = 0.0, a_most = 0.0, a_square = 0.0, b_most = 0.0, b_square = 0.0;         \
        double dot = 0.0, beyond = 0.0;                                                                              \
        SEVERAL_AT_ONCE(reduction(max : gap_most, a_most, b_most)                                                    \
                        reduction(+ : gap_square, a_square, b_square, dot, beyond))                                  \
        for (int64_t i = 0; i < count; i++) {                                                                        \
            double one = (double)a[i], other = (double)b[i], gap = fabs(one - other);                                \
            gap_most = gap > gap_most ? gap : gap_most;                                                              \
            a_most = fabs(one) > a_most ? fabs(one) : a_most;                                                        \
            b_most = fabs(other) > b_most ? fabs(other) : b_most;                                                    \
            gap_square += gap * gap;                                                                                 \
            a_square += one * one;                                                                                   \
            b_square += other * other;                                                                               \
            dot += one * other;                                                                                      \
            beyond += gap > bound ? 1.0 : 0.0;                                                                       \
        }                                                                                                            \
        return (Details){{gap_most, gap_square, a_most, a_square, b_most, b_square, dot, beyond}};                   \
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
    double bound;
    if (!PyArg_ParseTuple(args, "OOd", &arrays[0], &arrays[1], &bound))
        return NULL;
    char kind = both_taken(arrays, views);
    if (kind == 0)
        Py_RETURN_NONE;
    Details found;
    const void *a = views[0].buf, *b = views[1].buf;
    int64_t place, count = views[0].len / views[0].itemsize;
    Py_BEGIN_ALLOW_THREADS
    if (kind == 'f') {
        found = details_float(a, b, count, bound);
        place = place_float(a, b, count, found.all[0]);
    } else {
        found = details_double(a, b, count, bound);
        place = place_double(a, b, count, found.all[0]);
    }
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&views[0]);
    PyBuffer_Release(&views[1]);
    const double *all = found.all;
    if (!(isfinite(all[1]) && isfinite(all[3]) && isfinite(all[5]) && isfinite(all[6])))
        Py_RETURN_NONE;
    return Py_BuildValue("(dd)(dd)(dd)ddL", all[0], sqrt(all[1]), all[2], sqrt(all[3]), all[4], sqrt(all[5]), all[6],
                         all[7], (long long)place);
}

static PyMethodDef methods[] = {
    {"gap", gap, METH_VARARGS, "(largest, norm) of the differences of two arrays, or None"},
    {"same", same, METH_VARARGS, "whether two arrays without gaps have the same bytes, or None"},
    {"scale", scale, METH_O, "(largest, norm) of an array, or None"},
    {"details", details, METH_VARARGS,
     "(largest, norm) of the differences, the first and the second array, the dot product, how many differences are "
     "above a bound, and the place of the largest; or None"},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_apart", "How far two arrays are apart.", 0, methods};

PyMODINIT_FUNC PyInit__apart(void)
{
    return PyModuleDef_Init(&module);
}
