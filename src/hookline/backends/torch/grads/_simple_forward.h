/* Forward: a call enters and leaves, and hooks are put on its nodes. See _simple.c. */

static PyObject *enter(PyObject *object, PyObject *const *given, Py_ssize_t count) {
    Simple *self = (Simple *)object;
    if (count != 2) {
        PyErr_SetString(PyExc_TypeError, "enter: expected args and kwargs");
        return NULL;
    }
    PyObject *args = given[0], *kwargs = given[1];
    Here *thread = here_now();
    if (thread == NULL || note_thread(thread) < 0) {
        Py_XDECREF((PyObject *)thread);
        return NULL;
    }
    int failed = 0;
    self->before = thread->looked_up;
    Py_DECREF((PyObject *)thread);
    int single = PyTuple_CheckExact(args) && PyTuple_Size(args) == 1 && PyDict_CheckExact(kwargs) &&
                 PyDict_Size(kwargs) == 0 && (PyObject *)Py_TYPE(PyTuple_GetItem(args, 0)) == told[TENSOR];
    if (single && !are_several()) {
        PyObject *leaf = PyTuple_GetItem(args, 0), *node = node_of(leaf);
        if (node != NULL && node != Py_None) {
            self->entered_nr = number_at(leaf, OUTPUT_NR, &failed);
            self->start = asked(SEQUENCE_NUMBER, &failed);
            put(&self->entered_node, node);
            self->live = self->places_in = 1;
            return failed ? NULL : PyTuple_Pack(2, args, kwargs);
        }
        Py_XDECREF(node);
        failed = PyErr_Occurred() != NULL;
    }
    return failed ? NULL : PyObject_CallMethodObjArgs(object, names[ENTER_ANYHOW], args, kwargs, NULL);
}

/* An edge: (node, number). The node is borrowed. */
static int edge_read(PyObject *edge, PyObject **node, long long *number) {
    PyObject *second;
    if (edge == NULL || (*node = PyTuple_GetItem(edge, 0)) == NULL || (second = PyTuple_GetItem(edge, 1)) == NULL) {
        return -1;
    }
    *number = PyLong_AsLongLong(second);
    return *number == -1 && PyErr_Occurred() ? -1 : 0;
}

/* The numbers of the input that an edge leads to, borrowed from the port; NULL if it leads to none. */
static PyObject *target_at(Simple *self, PyObject *node, long long number, int *failed) {
    if (self->entered_node != NULL) {
        return node == self->entered_node && number == self->entered_nr ? told[ONLY] : NULL;
    }
    for (Py_ssize_t i = 0; i < PyTuple_Size(self->inputs); i++) {
        PyObject *port = PyTuple_GetItem(self->inputs, i), *edge = PyObject_GetAttr(port, names[EDGE]), *owner = NULL;
        long long own = -1;
        *failed |= edge == NULL || (edge != Py_None && edge_read(edge, &owner, &own) < 0);
        Py_XDECREF(edge); /* the port holds it */
        int found = !*failed && owner == node && own == number;
        if (found) {
            PyObject *numbers = PyObject_GetAttr(port, names[NUMBERS]);
            Py_XDECREF(numbers); /* the port holds it */
            *failed |= numbers == NULL;
            return numbers;
        }
    }
    return NULL;
}

static int add_sent(PyObject **sent, Py_ssize_t index, PyObject *numbers) {
    PyObject *one = Py_BuildValue("((nO))", index, numbers);
    PyObject *all = one == NULL || *sent == NULL ? one : PySequence_Concat(*sent, one);
    if (all != one) {
        Py_XDECREF(one);
    }
    put(sent, all);
    return all == NULL ? -1 : 0;
}

/* Of the graph of one call: `nodes` that the output leads to, which one sends to inputs, and what. */
typedef struct {
    PyObject *nodes[SIMPLE], *sender, *sent;
    int count;
} Found;

/* 1: there is one sender, or none; 0: several, or nodes that the output does not lead to. */
static int look_through(Simple *self, Found *found, PyObject *owner, long long end) {
    long long start = self->start, count = end - start;
    for (int i = 0; i < found->count; i++) { /* and those that are added meanwhile */
        PyObject *node = found->nodes[i], *edges = PyObject_GetAttr(node, names[NEXT_FUNCTIONS]);
        Py_ssize_t size = edges == NULL ? -1 : PyTuple_Size(edges);
        int failed = size < 0, no = 0;
        for (Py_ssize_t index = 0; index < size && !failed && !no; index++) {
            PyObject *child, *numbers;
            long long number;
            if (edge_read(PyTuple_GetItem(edges, index), &child, &number) < 0) {
                failed = 1;
                break;
            }
            if ((numbers = target_at(self, child, number, &failed)) != NULL) {
                no = found->sent != NULL && found->sender != node;
                found->sender = node;
                failed |= !no && add_sent(&found->sent, index, numbers) < 0;
                continue;
            }
            if (owner != NULL && child == owner) {
                no = 1;
            }
            if (failed || count == 1 || child == Py_None) {
                continue;
            }
            int known = 0;
            for (int j = 0; j < found->count; j++) {
                known |= found->nodes[j] == child;
            }
            long long born = known ? -1 : number_of(child, &failed);
            if (!failed && start <= born && born < end) {
                if (found->count == SIMPLE) {
                    no = 1;
                } else {
                    Py_INCREF(child);
                    found->nodes[found->count++] = child;
                }
            }
        }
        Py_XDECREF(edges);
        if (failed || no) {
            return failed ? -1 : 0;
        }
    }
    return found->count == count;
}

static int hook_on(PyObject *node, int registers, PyObject *self, int method) {
    PyObject *hook = PyObject_GetAttr(self, names[method]);
    PyObject *handle = hook == NULL ? NULL : PyObject_CallMethodObjArgs(node, names[registers], hook, NULL);
    Py_XDECREF(hook);
    return done(handle);
}

/* Hooks on the node of the only output, and on that which feeds inputs; 0 if it is not so simple. */
static int hear(Simple *self, Here *thread, PyObject *node, long long end) {
    int failed = 0;
    PyObject *object = (PyObject *)self;
    long long number = number_of(node, &failed);
    /* A node that is younger than all those has nobody else's port; most are. */
    if (!failed && (number <= thread->marked || are_several()) &&
        is_true(PyObject_CallMethodObjArgs(object, names[IS_CLAIMED], node, NULL), &failed)) {
        return 0;
    }
    Py_ssize_t inputs = PyTuple_Size(self->inputs);
    if (failed || inputs < 0) {
        return -1;
    }
    if (self->entered_node == NULL && inputs == 0) {
        /* Nothing of the call is younger than the node, so nothing of the call uses the output. */
        if (number != end - 1) {
            return 0;
        }
        if (!is_set(self->joint_out)) {
            return hook_on(node, REGISTER_HOOK, object, TELL_OUTPUT) < 0 ? -1 : 1;
        }
        if (hook_on(node, REGISTER_PREHOOK, object, ASK_OUTPUT) < 0) {
            return -1;
        }
        thread->marked = number;
        return 1;
    }
    if (number < self->start || end - self->start > SIMPLE || (self->joint && inputs > 1) ||
        (self->of_leaf && self->entered_node == NULL)) {
        return 0;
    }
    PyObject *edges = NULL, *owner = NULL;
    if (self->of_leaf) {
        long long first;
        edges = PyObject_GetAttr(self->entered_node, names[NEXT_FUNCTIONS]);
        if (edges != NULL && PyTuple_Size(edges) == 0) {
            Py_DECREF(edges); /* no view of ours: a transform of torch.func wraps it */
            return 0;
        }
        if (edges == NULL || edge_read(PyTuple_GetItem(edges, 0), &owner, &first) < 0) {
            Py_XDECREF(edges);
            return -1;
        }
    }
    Py_INCREF(node);
    Found found = {.nodes = {node}, .sender = node, .sent = NULL, .count = 1};
    int result = look_through(self, &found, owner, end);
    if (result == 1 && self->joint && found.sent == NULL) {
        result = 0;
    }
    if (result == 1) {
        int hooked;
        put(&self->sent, found.sent);
        found.sent = NULL;
        if (found.sender == node) { /* this very object is the hook: see `tell_both` */
            hooked = done(PyObject_CallMethodObjArgs(node, names[REGISTER_HOOK], object, NULL));
        } else {
            hooked = hook_on(node, REGISTER_HOOK, object, TELL_OUTPUT);
            if (hooked == 0) {
                hooked = hook_on(found.sender, REGISTER_HOOK, object, TELL_INPUTS);
            }
        }
        result = hooked < 0 ? -1 : 1;
    }
    for (int i = 0; i < found.count; i++) {
        Py_DECREF(found.nodes[i]);
    }
    Py_XDECREF(found.sent);
    Py_XDECREF(edges);
    return result;
}

static PyObject *hear_method(PyObject *object, PyObject *const *args, Py_ssize_t count) {
    if (count != 4) {
        PyErr_SetString(PyExc_TypeError, "hear: expected thread, node, output_nr and end");
        return NULL;
    }
    Simple *self = (Simple *)object;
    if (!PyObject_TypeCheck(args[0], (PyTypeObject *)here_type)) {
        PyErr_SetString(PyExc_TypeError, "hear: expected a Here");
        return NULL;
    }
    self->output_nr = PyLong_AsLongLong(args[2]);
    long long end = PyLong_AsLongLong(args[3]);
    int heard = PyErr_Occurred() ? -1 : hear(self, (Here *)args[0], args[1], end);
    return heard < 0 ? NULL : PyBool_FromLong(heard);
}

/* Notes of a plain call that has left: for later hooks of the same call, and that it is alive. */
static int noted(Simple *self, Here *thread, PyObject *output, long long call, long long end) {
    thread->only = output;
    put(&thread->known, NULL);
    self->places_out = 1;
    self->group = ++thread->group;
    thread->call = call;
    thread->looking = end;
    self->span[0] = thread->span[0] = self->start;
    self->span[1] = thread->span[1] = end;
    PyObject *kind = told[!is_set(self->joint_out) ? EVERY_PASSAGE : REPLACING], *alive, *mark = NULL;
    if ((alive = PyObject_GetAttr(kind, names[ALIVE])) != NULL) {
        mark = PyObject_CallNoArgs(alive);
        Py_DECREF(alive);
        if (mark == Py_None) {
            Py_DECREF(mark);
            mark = PyObject_CallMethodObjArgs(kind, names[MADE], NULL);
        }
    }
    put(&self->marks, mark);
    if (mark != NULL && self->of_leaf) {
        return done(PyObject_CallMethodObjArgs((PyObject *)self, names[KEEP_VIEW], NULL));
    }
    return mark == NULL ? -1 : 0;
}

/* 1: it left plainly; 0: it has to leave anyhow. */
static int leaves_plainly(Simple *self, Here *thread, PyObject *output, long long call, long long references) {
    int failed = 0;
    if ((PyObject *)Py_TYPE(output) != told[TENSOR] || self->mixed || call == thread->call || are_several() ||
        (self->start && thread->looked_up != self->before)) {
        return 0;
    }
    if (references > number_at(told[KEPT], ALONE, &failed) || failed || !is_followed(&failed)) {
        return failed ? -1 : 0;
    }
    PyObject *node = node_of(output);
    if (node == NULL || node == Py_None) {
        Py_XDECREF(node);
        return PyErr_Occurred() ? -1 : 0;
    }
    self->output_nr = number_at(output, OUTPUT_NR, &failed);
    long long end = asked(SEQUENCE_NUMBER, &failed);
    int heard = failed ? -1 : hear(self, thread, node, end);
    Py_DECREF(node);
    if (heard == 0) {
        self->simple = 0;
    }
    return heard == 1 && noted(self, thread, output, call, end) < 0 ? -1 : heard;
}

static PyObject *leave(PyObject *object, PyObject *const *given, Py_ssize_t count) {
    Simple *self = (Simple *)object;
    if (count != 3) {
        PyErr_SetString(PyExc_TypeError, "leave: expected output, call and references");
        return NULL;
    }
    long long call = PyLong_AsLongLong(given[1]), references = PyLong_AsLongLong(given[2]);
    Here *thread = PyErr_Occurred() ? NULL : here_now();
    if (thread == NULL || (!self->start && note_thread(thread) < 0)) {
        Py_XDECREF((PyObject *)thread);
        return NULL;
    }
    int plain = leaves_plainly(self, thread, given[0], call, references);
    Py_DECREF((PyObject *)thread);
    if (plain < 0) {
        return NULL;
    }
    if (plain) {
        Py_INCREF(given[0]);
        return given[0];
    }
    return PyObject_CallMethodObjArgs(object, names[LEAVE_ANYHOW], given[0], given[1], given[2], NULL);
}
