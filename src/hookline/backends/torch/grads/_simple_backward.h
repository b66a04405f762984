/* Backward: hooks on nodes tell what comes by. See _simple.c. */

/* One of the gradients that a hook gets, borrowed; compiled autograd has them in a list. */
static PyObject *grad_at(PyObject *grads, Py_ssize_t index) {
    return PyList_Check(grads) ? PyList_GetItem(grads, index) : PyTuple_GetItem(grads, index);
}

/* `grads` with another one at `index`. */
static PyObject *with_another(PyObject *grads, Py_ssize_t index, PyObject *other) {
    PyObject *all = PySequence_List(grads);
    Py_INCREF(other);
    if (all == NULL || PyList_SetItem(all, index, other) < 0) {
        Py_XDECREF(all);
        return NULL;
    }
    PyObject *result = PyList_AsTuple(all);
    Py_DECREF(all);
    return result;
}

static PyObject *nothing(void) {
    Py_INCREF(Py_None);
    return Py_None;
}

/* Nothing to go on with, whatever somebody who was told has answered. */
static PyObject *said(PyObject *answer) { return done(answer) < 0 ? NULL : nothing(); }

/* What to go on with, of `answer`, which is taken: None, or a list of one gradient. */
static PyObject *answered(PyObject *answer, PyObject *grads, Py_ssize_t index, PyObject *shown) {
    if (answer == NULL || answer == Py_None) {
        return answer;
    }
    PyObject *other = PySequence_GetItem(answer, 0);
    PyObject *result = other == NULL || other == shown ? NULL : with_another(grads, index, other);
    if (other == shown) {
        result = nothing();
    }
    Py_XDECREF(other);
    Py_DECREF(answer);
    return result;
}

/* Tells the gradient of the only output; -1: an exception is set. */
static int told_output(Simple *self, PyObject *came) {
    if (is_set(self->on_output)) {
        return done(PyObject_CallFunctionObjArgs(self->on_output, self->numbers, came, NULL));
    }
    return done(PyObject_CallMethodObjArgs(self->sink, names[HEAR_OUTPUT], self->numbers, came, NULL));
}

/* What is told or asked of the gradients of inputs; `came`, if it is no NULL, is that of the output, told as well. */
static PyObject *told_inputs(Simple *self, PyObject *grads, PyObject *came) {
    PyObject *object = (PyObject *)self;
    Py_ssize_t sent = self->sent == NULL ? 0 : PyTuple_Size(self->sent), index = 0;
    PyObject *numbers = NULL, *grad = NULL;
    if (sent == 1) {
        PyObject *one = PyTuple_GetItem(self->sent, 0);
        index = PyLong_AsSsize_t(PyTuple_GetItem(one, 0));
        numbers = PyTuple_GetItem(one, 1);
        if (numbers == NULL || (grad = grad_at(grads, index)) == NULL) {
            return NULL;
        }
    }
    int plain = sent == 1 && numbers == told[ONLY] && self->places_in == 1 && grad != Py_None;
    /* The very tuple: another one of the same numbers is that of a structure with one tensor. */
    if (came != NULL && !(plain && self->numbers == told[ONLY])) {
        if (told_output(self, came) < 0) {
            return NULL;
        }
        came = NULL;
    }
    if (!self->joint) {
        if (sent > 1) {
            return PyObject_CallMethodObjArgs(object, names[TOLD_SEVERAL], grads, NULL);
        }
        if (came != NULL) {
            return said(PyObject_CallMethodObjArgs(self->sink, names[HEAR_BOTH], came, grad, NULL));
        }
        if (sent == 0 || grad == Py_None) {
            return nothing();
        }
        return said(PyObject_CallMethodObjArgs(self->sink, names[HEAR_INPUT], numbers, grad, NULL));
    }
    if (!plain) {
        return PyObject_CallMethodObjArgs(object, names[ASKED_INPUTS], grads, NULL);
    }
    PyObject *shown = grad, *answer;
    Py_INCREF(shown);
    if (self->of_leaf) { /* its gradient will have the same memory and be added to, and a hook may keep what it gets */
        put(&shown, PyObject_CallMethodObjArgs(grad, names[CLONE], NULL));
        if (shown == NULL) {
            return NULL;
        }
    }
    if (came != NULL) {
        answer = PyObject_CallMethodObjArgs(self->sink, names[HEAR_BOTH], came, shown, NULL);
    } else {
        PyObject *list = Py_BuildValue("[O]", shown);
        answer = list == NULL ? NULL : PyObject_CallMethodObjArgs(self->sink, names[ASK], list, NULL);
        Py_XDECREF(list);
    }
    PyObject *result = answered(answer, grads, index, shown);
    Py_DECREF(shown);
    return result;
}

/* The gradient that came to the output, borrowed; NULL if there is nothing to tell, or an exception is set. */
static PyObject *came_to(Simple *self, PyObject *grads) {
    PyObject *grad = grad_at(grads, (Py_ssize_t)self->output_nr);
    return grad == Py_None || self->by_ledger ? NULL : grad;
}

static PyObject *nothing_or_error(void) { return PyErr_Occurred() ? NULL : nothing(); }

/* After the only node of a call, or the only one of its nodes that matters: (grads, grad_outputs). */
static PyObject *tell_both(PyObject *object, PyObject *args, PyObject *kwargs) {
    (void)kwargs;
    Simple *self = (Simple *)object;
    PyObject *grads, *grad_outputs;
    if (!PyArg_UnpackTuple(args, "tell_both", 2, 2, &grads, &grad_outputs)) {
        return NULL;
    }
    PyObject *came = came_to(self, grad_outputs);
    int failed = 0;
    if (came == NULL) {
        return nothing_or_error();
    }
    self->told_in = asked(GRAPH_TASK, &failed);
    return failed ? NULL : told_inputs(self, grads, came);
}

/* After the node that made the only output: what came to it. */
static PyObject *tell_output(PyObject *object, PyObject *const *args, Py_ssize_t count) {
    Simple *self = (Simple *)object;
    PyObject *came = count == 2 ? came_to(self, args[1]) : NULL;
    int failed = 0;
    if (came == NULL) {
        return nothing_or_error();
    }
    self->told_in = asked(GRAPH_TASK, &failed);
    return failed || told_output(self, came) < 0 ? NULL : nothing();
}

/* After the only node that feeds inputs: what it sends to them, or what is to be sent instead. */
static PyObject *tell_inputs(PyObject *object, PyObject *const *args, Py_ssize_t count) {
    Simple *self = (Simple *)object;
    int failed = 0;
    long long task = asked(GRAPH_TASK, &failed);
    if (failed || count != 2 || self->told_in != task || self->by_ledger) {
        return nothing_or_error();
    }
    return told_inputs(self, args[0], NULL);
}

/* Before the node that made the only output: what is to go on in place of what came. */
static PyObject *ask_output(PyObject *object, PyObject *grads) {
    Simple *self = (Simple *)object;
    PyObject *came = came_to(self, grads);
    if (came == NULL) {
        return nothing_or_error();
    }
    PyObject *list = Py_BuildValue("[O]", came);
    PyObject *answer = list == NULL ? NULL : PyObject_CallFunctionObjArgs(self->joint_out, list, NULL);
    Py_XDECREF(list);
    return answered(answer, grads, (Py_ssize_t)self->output_nr, came);
}
