/* Object: what the C parts of backends do alike with objects of Python. */
#ifndef HOOKLINE_OBJECT_H
#define HOOKLINE_OBJECT_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* Puts `value`, which is given away, in place of what is there. */
static inline void put(PyObject **place, PyObject *value) {
    PyObject *before = *place;
    *place = value;
    Py_XDECREF(before);
}

/* Whether an answer, which is given away, is yes; -1 with an exception set, also where there is none. */
static inline int says(PyObject *answer) {
    int is_true = answer == NULL ? -1 : PyObject_IsTrue(answer);
    Py_XDECREF(answer);
    return is_true;
}

/* A struct tells what objects it has by a macro: HAS(one) is one(first) one(second) ... These are what is done with each of
   them, in functions whose `self` is such a struct. */
#define MEMBER(name) PyObject *name;
#define VISITED(name) Py_VISIT(self->name);
#define CLEARED(name) Py_CLEAR(self->name);
#define HELD(name)   \
    Py_INCREF(name); \
    self->name = name;

/* How such objects are visited, cleared and freed: KIND_traverse, KIND_clear, KIND_dealloc. An object holds its type, which
   is made at run time. */
#define LIFE(Struct, KIND, HAS)                                                \
    static int KIND##_traverse(PyObject *object, visitproc visit, void *arg) { \
        Struct *self = (Struct *)object;                                       \
        Py_VISIT(Py_TYPE(object));                                             \
        HAS(VISITED)                                                           \
        return 0;                                                              \
    }                                                                          \
    static int KIND##_clear(PyObject *object) {                                \
        Struct *self = (Struct *)object;                                       \
        HAS(CLEARED)                                                           \
        return 0;                                                              \
    }                                                                          \
    static void KIND##_dealloc(PyObject *object) {                             \
        PyTypeObject *type = Py_TYPE(object);                                  \
        PyObject_GC_UnTrack(object);                                           \
        KIND##_clear(object);                                                  \
        PyObject_GC_Del(object);                                               \
        Py_DECREF(type);                                                       \
    }

#endif
