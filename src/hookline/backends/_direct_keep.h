/* Keep: how another part in C has a tensor kept, as `keep` of _direct.c does, with no call of Python in between. */

/* A Kept of a tensor's values; NULL without an exception where it is no plain one of numbers on the CPU. `table` is
   that of DLPack's functions, and `how` the function that is called where a tensor is made of it. */
typedef PyObject *(*Keep)(const void *table, PyObject *tensor, PyObject *how);

#define KEEPS "hookline.backends._direct.keeps"
