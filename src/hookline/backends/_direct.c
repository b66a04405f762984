/* Direct: tensors reduced and copied with nothing of Python in between.

   Asked from Python, a tensor takes ten calls to tell where its values lie, which is more than the kernel takes for
   a small one. Frameworks that offer DLPack's table of C functions tell it in one. What is done here is no operation
   of the framework either: no mode, transform or tracer sees it.

   Only the limited API is used (setup.py says which), so that one build serves every later Python. */

#include "_object.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "_direct_keep.h"
#include "_direct_pool.h"
#include "_direct_tensor.h"

#include "_direct_reduce.h"

#include "_direct_copy.h"

#include "_direct_kept.h"

#include "_direct_memory.h"

static PyMethodDef methods[] = {
    {"copy", (PyCFunction)(void (*)(void))copy, METH_FASTCALL, NULL},
    {"room", (PyCFunction)(void (*)(void))room, METH_FASTCALL, NULL},
    {"keep", (PyCFunction)(void (*)(void))keep, METH_FASTCALL, NULL},
    {"keeper", keeper, METH_VARARGS, NULL},
    {"reduce", (PyCFunction)(void (*)(void))reduce, METH_FASTCALL, NULL},
    {"held", held, METH_NOARGS, NULL},
    {"bound", bound, METH_O, NULL},
    {"reduce_line", (PyCFunction)(void (*)(void))reduce_line, METH_FASTCALL, NULL},
    {"reduce_two", (PyCFunction)(void (*)(void))reduce_two, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_direct", "Tensors, reduced and copied.", -1, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__direct(void) {
    PyObject *module = PyModule_Create(&definition);
    if (module == NULL) return NULL;
    if (pool.lock == NULL) pool.lock = PyThread_allocate_lock();
    kept_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &kept_spec, NULL);
    PyObject *memory = PyType_FromModuleAndSpec(module, &memory_spec, NULL);
    PyObject *keeps = PyCapsule_New((void *)kept_of, KEEPS, NULL);
    if (PyModule_AddObjectRef(module, "keeps", keeps) < 0 || PyModule_AddObjectRef(module, "Memory", memory) < 0 ||
        PyModule_AddObjectRef(module, "Kept", (PyObject *)kept_type) < 0)
        Py_CLEAR(module);
    Py_XDECREF(keeps);
    Py_XDECREF(memory);
    return module;
}
