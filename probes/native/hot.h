/* ---- Hot: all that a plain change of phase touches; Thin, which shows two words of it to Python ---- */

/* Three lines of the cache on one page: behind the ident of the thread, on the page that the kernel empties in a forked
 * child. There nothing is ours, and `words` is NULL. Before a clock is bound, and after it has gone, in the object itself. */
typedef struct {
    uint64_t ident;
    int64_t alert, phase; /* Thin's */
    int64_t noted;        /* the phase as of the last note */
    int64_t since, seen, micro_steps, num_transitions;
    int64_t totals[NUM_PHASES];
    int64_t *words;          /* the ring's header, or what stands in its place */
    void *thread;            /* whose ident it is, by the processor's own pointer */
    uint64_t ident_of_thread;
} Hot;

typedef struct {
    PyObject_HEAD
    Hot *hot, own;
} Thin;

/* Words of Hot as attributes; closure: the offset. */
typedef struct {
    PyObject_HEAD
    Hot *hot;
} WithHot;

static PyObject *get_hot(PyObject *self, void *offset) {
    return PyLong_FromLongLong(*(int64_t *)((char *)((WithHot *)self)->hot + (size_t)offset));
}

static int set_hot(PyObject *self, PyObject *value, void *offset) {
    int64_t number = value ? PyLong_AsLongLong(value) : -1;
    if (!value)
        PyErr_SetString(PyExc_TypeError, "cannot be deleted");
    if (number == -1 && PyErr_Occurred())
        return -1;
    *(int64_t *)((char *)((WithHot *)self)->hot + (size_t)offset) = number;
    return 0;
}

#define HOT_WORD(name, field) {name, get_hot, set_hot, NULL, (void *)offsetof(Hot, field)}
static PyGetSetDef thin_getset[] = {HOT_WORD("alert", alert), HOT_WORD("phase", phase), {NULL}};

static int thin_init(Thin *self, PyObject *args, PyObject *kwargs) {
    (void)args, (void)kwargs;
    self->hot = &self->own;
    self->own.alert = 0;
    self->own.phase = OTHER;
    return 0;
}

static void plain_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static PyType_Slot thin_slots[] = {
    {Py_tp_doc, "What the training thread is in, and what hooks have to look after."},
    {Py_tp_getset, thin_getset},
    {Py_tp_init, thin_init},
    {Py_tp_dealloc, plain_dealloc},
    {0, NULL},
};

static inline void note(Hot *hot, int64_t bits, int64_t phase, int64_t now) {
    hot->totals[hot->noted] += now - hot->since;
    hot->since = now;
    hot->seen |= bits;
    if (bits & COUNTS_MICRO_STEP && hot->noted != BACKWARD)
        hot->micro_steps++;
    hot->noted = phase;
    hot->num_transitions++;
}

/* From now on the thread is in this phase, also for who reads the ring's header. */
static inline void change(Hot *hot, int64_t bits, int64_t phase, int64_t now) {
    hot->phase = phase;
    note(hot, bits, phase, now);
    hot->words[WORD_NOW] = now << 4 | phase;
}

/* Whether the thread that runs is the training thread, in its own process. */
static inline int is_ours(Hot *hot) {
    void *thread = __builtin_thread_pointer();
    if (hot->thread == thread && hot->ident == hot->ident_of_thread)
        return hot->words != NULL;
    if (!hot->words || hot->ident != (uint64_t)PyThread_get_thread_ident())
        return 0;
    hot->thread = thread, hot->ident_of_thread = hot->ident;
    return 1;
}
