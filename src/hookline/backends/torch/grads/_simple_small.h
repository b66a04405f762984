/* Small: what a simple call is, what is known of torch, and how Python is asked for small things. See _simple.c. */

enum { SIMPLE = 16 }; /* a call that makes more nodes is not looked through to find out whether it is simple */

typedef struct {
    PyObject_HEAD
    PyObject *sink, *on_output, *joint_out, *remark, *marks;
    PyObject *inputs, *outputs, *numbers, *sent, *entered_node;
    long long entered_nr, told_in, start, group, before, output_nr, span[2];
    int live, places_in, places_out;
    char joint, simple, by_ledger, mixed, of_leaf;
} Simple;

/* What a thread knows of its calls: `threads.py` says what each means. */
typedef struct {
    PyObject_HEAD
    PyObject *known, *handed_on;
    void *only; /* in place of `known`: the one tensor that left */
    long long call, group, looked_up, marked, looking, span[2];
    char is_main;
} Here;

/* Whether calls come from several threads: the base of `threads.Threads`. */
typedef struct {
    PyObject_HEAD
    char several;
} Several;

static PyObject *here_type, *several_type;

#define TEXT(number, text) text,
#define NUMBER(number, text) number,

/* What Python has told: see `bind`. */
#define TOLD_BY_PYTHON(one)                                                                                   \
    one(HERE, "here") one(THREADS, "threads") one(KEPT, "kept") one(TENSOR, "tensor")                         \
    one(EVERY_PASSAGE, "every_passage") one(REPLACING, "replacing") one(ONLY, "only")                         \
    one(SEQUENCE_NUMBER, "sequence_number") one(GRAPH_TASK, "graph_task") one(IS_VIEW, "is_view")             \
    one(GRAD_ENABLED, "grad_enabled") one(TRACER, "tracer") one(FUNCTION_DEPTH, "function_depth")             \
    one(DISPATCH_DEPTH, "dispatch_depth") one(NUMBER_NAME, "number_name")
static const char *const told_names[] = {TOLD_BY_PYTHON(TEXT)};
enum { TOLD_BY_PYTHON(NUMBER) TOLD };
static PyObject *told[TOLD];

#define NAMED(one)                                                                                              \
    one(NOW, "now") one(ALONE, "alone") one(GRAD_FN, "grad_fn") one(OUTPUT_NR, "output_nr")                     \
    one(NEXT_FUNCTIONS, "next_functions") one(REGISTER_HOOK, "register_hook")                                   \
    one(REGISTER_PREHOOK, "register_prehook") one(ALIVE, "alive") one(MADE, "made") one(NOTE, "note")           \
    one(EDGE, "edge") one(NUMBERS, "numbers") one(ENTER_ANYHOW, "enter_anyhow")                                 \
    one(LEAVE_ANYHOW, "leave_anyhow") one(IS_CLAIMED, "is_claimed") one(TELL_OUTPUT, "tell_output")             \
    one(TELL_INPUTS, "tell_inputs") one(ASK_OUTPUT, "ask_output") one(TOLD_SEVERAL, "told_several")             \
    one(ASKED_INPUTS, "asked_inputs") one(KEEP_VIEW, "keep_view") one(CLONE, "clone")                           \
    one(HEAR_INPUT, "_hear_input") one(HEAR_OUTPUT, "_hear_output") one(HEAR_BOTH, "_hear_both") one(ASK, "_ask")
static const char *const name_texts[] = {NAMED(TEXT)};
enum { NAMED(NUMBER) NAMES };
static PyObject *names[NAMES];

/* Whether there is something: a member that Python has set may be None. */
static int is_set(PyObject *member) { return member != NULL && member != Py_None; }

/* Small things. A number is -1 with an exception set, or `*failed` is set, where it can't be had. */

static long long as_number(PyObject *value, int *failed) {
    int beyond = 0;
    long long number = value == NULL ? -1 : PyLong_AsLongLongAndOverflow(value, &beyond);
    if (value == NULL || (number == -1 && PyErr_Occurred())) {
        *failed = 1;
    }
    if (beyond > 0) { /* the nodes of leaves have the largest number there is */
        number = LLONG_MAX;
    }
    Py_XDECREF(value);
    return number;
}

static long long number_at(PyObject *owner, int name, int *failed) {
    return as_number(PyObject_GetAttr(owner, names[name]), failed);
}

static long long asked(int function, int *failed) {
    return as_number(PyObject_CallNoArgs(told[function]), failed);
}

static long long number_of(PyObject *node, int *failed) {
    return as_number(PyObject_CallMethodObjArgs(node, told[NUMBER_NAME], NULL), failed);
}

static int is_true(PyObject *value, int *failed) {
    int answer = value == NULL ? -1 : PyObject_IsTrue(value);
    if (answer < 0) {
        *failed = 1;
    }
    Py_XDECREF(value);
    return answer > 0;
}

static int done(PyObject *result) {
    Py_XDECREF(result);
    return result == NULL ? -1 : 0;
}

/* What this thread knows; NULL with an exception set. */
static Here *here_now(void) {
    PyObject *now = PyObject_GetAttr(told[HERE], names[NOW]);
    if (now != NULL && !PyObject_TypeCheck(now, (PyTypeObject *)here_type)) {
        PyErr_SetString(PyExc_TypeError, "here.now: expected a Here");
        Py_CLEAR(now);
    }
    return (Here *)now;
}

static int are_several(void) { return ((Several *)told[THREADS])->several; }

static int note_thread(Here *thread) {
    return thread->is_main ? 0 : done(PyObject_CallMethodObjArgs(told[THREADS], names[NOTE], NULL));
}

/* Whether autograd follows what runs now, and no mode and no tracer looks on. */
static int is_followed(int *failed) {
    if (!is_true(PyObject_CallNoArgs(told[GRAD_ENABLED]), failed) || *failed) {
        return 0;
    }
    PyObject *tracer = PyObject_CallNoArgs(told[TRACER]);
    int is_traced = tracer != Py_None;
    if (done(tracer) < 0) {
        *failed = 1;
    }
    return !*failed && !is_traced && asked(FUNCTION_DEPTH, failed) == 0 && asked(DISPATCH_DEPTH, failed) == 0;
}

/* The node of a tensor, None where it has none. Borrowed from `told` that it is no view: NULL without an exception. */
static PyObject *node_of(PyObject *tensor) {
    int failed = 0;
    PyObject *node = PyObject_GetAttr(tensor, names[GRAD_FN]);
    if (node == NULL || node == Py_None) {
        return node;
    }
    int view = is_true(PyObject_CallFunctionObjArgs(told[IS_VIEW], tensor, NULL), &failed);
    if (view || failed) {
        Py_CLEAR(node);
    }
    return node;
}
