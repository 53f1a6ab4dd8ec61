/* Attributes that are asked for by name. */
enum { REQUIRES_EXCHANGE, REDUCER, READY_TIMES, GROUP, SEQUENCE, NUM_NAMES };

/* ---- Base: the numbers of the step clock, which is a Python class below it ---- */

typedef struct {
    PyObject_HEAD
    Hot *hot;
    Books *books;
    PyObject *group_seq, *device, *turns; /* None where there is none */
    PyObject *group_of, *sole_ddp;        /* weak references to DDP modules, likewise */
    PyObject *gc_log;                     /* of `collections_log`, likewise */
    PyObject *awaited;                    /* the one whose gradients are still to be exchanged, of forward's end */
    int64_t awaited_at, latest_ready, num_passed; /* num_passed: backwards of others since then */
    PyObject *names[NUM_NAMES];
    PyObject *iterator;                   /* borrowed: the loader whose next batch ends the step, while it does */
    int64_t step, begin, num_kept, max_kept, write_at_ns, settle_at_ns, settle_at_seq, last_seq, comm_bytes, last_cpu;
    int64_t last_cpu_thread, spot_checks, own_time, num_measured, said, momentary, micro_steps, flags, detail_flag, gc;
    int64_t samples, tokens, write_time, burst_seen, num_optimized, next_look;
    int64_t eval_step, eval_end, num_evaluated; /* as EvalSpan */
    int64_t is_alone, light_price, closing_price, share; /* rows are written when their step ends, with this own cost */
    int64_t num_written; /* our own word for it: the ring's header is anybody's who may write the file */
    /* The optimizer that stepped last, by its address: its step under way, and the clock's step that it last ended in,
     * neither of which Python's hook knows of before it is told (`tell_turn`). */
    void *optimizer, *looked_at;
    int64_t outer, done_in;
    int is_open, is_done, has_words, has_page, has_map;
    Thin *thin;
    Py_buffer words, page, map; /* map: all of the ring, of so many steps */
    int64_t capacity;
    int64_t own_words[WORDS]; /* in the place of the ring's header when that has gone */
} Base;

static int intern_names(Base *self) {
    static const char *const names[NUM_NAMES] = {"require_backward_grad_sync", "reducer", "get_backward_stats",
                                                 "process_group", "_get_sequence_number_for_group"};
    for (int i = 0; i < NUM_NAMES; i++)
        if (!(self->names[i] = PyUnicode_InternFromString(names[i])))
            return -1;
    return 0;
}

static PyObject *base_let_go(Base *self, PyObject *unused) {
    (void)unused;
    forget_functions((PyObject *)self);
    if (self->has_words) {
        self->has_words = 0;
        if (self->hot && self->hot->words)
            self->hot->words = self->own_words;
        PyBuffer_Release(&self->words);
    }
    if (self->has_map) {
        self->has_map = 0;
        PyBuffer_Release(&self->map);
    }
    Py_RETURN_NONE;
}

static int base_traverse(Base *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE((PyObject *)self));
    Py_VISIT(self->group_seq);
    Py_VISIT(self->device);
    Py_VISIT(self->turns);
    Py_VISIT(self->group_of);
    Py_VISIT(self->sole_ddp);
    Py_VISIT(self->awaited);
    Py_VISIT(self->gc_log);
    return 0;
}

static int base_clear(Base *self) {
    Py_CLEAR(self->group_seq);
    Py_CLEAR(self->device);
    Py_CLEAR(self->turns);
    Py_CLEAR(self->group_of);
    Py_CLEAR(self->sole_ddp);
    Py_CLEAR(self->awaited);
    Py_CLEAR(self->gc_log);
    return 0;
}

static void base_dealloc(Base *self) {
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    PyObject_GC_UnTrack(self);
    base_clear(self);
    base_let_go(self, NULL);
    if (self->hot) { /* what may outlive the page has its own again */
        self->thin->own = self->books->own = *self->hot;
        self->thin->own.words = self->books->own.words = NULL;
        self->thin->hot = &self->thin->own, self->books->hot = &self->books->own;
    }
    if (self->has_page)
        PyBuffer_Release(&self->page);
    for (int i = 0; i < NUM_NAMES; i++)
        Py_XDECREF(self->names[i]);
    Py_XDECREF((PyObject *)self->thin);
    Py_XDECREF((PyObject *)self->books);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

#define NUMBER(name, field) {name, T_LONGLONG, offsetof(Base, field), 0, NULL}
#define OBJECT(name) {#name, T_OBJECT, offsetof(Base, name), 0, NULL}
static PyMemberDef base_members[] = {
    NUMBER("flags", flags), NUMBER("micro_steps", micro_steps), NUMBER("samples", samples), NUMBER("tokens", tokens),
    NUMBER("gc_ns", gc), NUMBER("own_ns", own_time), NUMBER("num_measured", num_measured), NUMBER("step", step),
    NUMBER("begin", begin), NUMBER("num_kept", num_kept), NUMBER("max_kept", max_kept),
    NUMBER("settle_at_ns", settle_at_ns), NUMBER("settle_at_seq", settle_at_seq), NUMBER("said", said),
    NUMBER("momentary", momentary), NUMBER("last_seq", last_seq), NUMBER("comm_bytes", comm_bytes),
    NUMBER("last_cpu_ns", last_cpu), NUMBER("last_cpu_thread", last_cpu_thread), NUMBER("detail_flag", detail_flag),
    NUMBER("spot_checks", spot_checks), NUMBER("write_ns", write_time), NUMBER("num_optimized", num_optimized),
    NUMBER("eval_step", eval_step), NUMBER("eval_end_ns", eval_end), NUMBER("num_evaluated", num_evaluated),
    NUMBER("next_look", next_look), NUMBER("write_at_ns", write_at_ns), NUMBER("burst_seen", burst_seen),
    NUMBER("is_alone", is_alone), NUMBER("light_ns", light_price), NUMBER("closing_ns", closing_price),
    NUMBER("share_ns", share), NUMBER("num_written", num_written), OBJECT(group_seq), OBJECT(device), OBJECT(turns),
    OBJECT(group_of), OBJECT(sole_ddp), OBJECT(awaited), OBJECT(gc_log), NUMBER("awaited_ns", awaited_at),
    NUMBER("latest_ready", latest_ready),
    {"iterator", T_OBJECT, offsetof(Base, iterator), READONLY, NULL}, {NULL},
};
static PyMethodDef base_methods[] = {
    {"let_go", (PyCFunction)base_let_go, METH_NOARGS, "The ring's mapping goes."},
    {NULL},
};
static PyType_Slot base_slots[] = {
    {Py_tp_doc, "The numbers of a step clock."},
    {Py_tp_members, base_members},
    {Py_tp_methods, base_methods},
    {Py_tp_traverse, base_traverse},
    {Py_tp_clear, base_clear},
    {Py_tp_dealloc, base_dealloc},
    {0, NULL},
};

/* Whether the agent wants something, or has gone. */
static int is_wanted(Base *self) {
    const int64_t *words = self->hot->words;
    return words[WORD_COMMAND] || words[WORD_BURST] != self->burst_seen ||
           (words[WORD_LEASE] > 0 && words[WORD_LEASE] < self->begin);
}

/* Write the rows and look after nothing else: what they tell waits in `early` for the next `settle`. */
static int write_early(Base *self) {
    PyObject *clock = (PyObject *)self, *written = NULL, *early = PyObject_GetAttrString(clock, "early"), *price = NULL;
    PyObject *ring = PyObject_GetAttrString(clock, "ring"), *cost = PyObject_GetAttrString(clock, "cost");
    PyObject *map = ring ? PyObject_GetAttrString(ring, "map") : NULL, *unknown = PyLong_FromLong(UNKNOWN);
    PyObject *capacity = ring ? PyObject_GetAttrString(ring, "step_capacity") : NULL;
    PyObject *index = PyLong_FromLongLong(self->num_written);
    int64_t count = self->books->num_rows;
    PyObject *peak = PyObject_GetAttrString(clock, "peak_bytes"), *end = NULL;
    int64_t begun = clock_ns(CLOCK_THREAD_CPUTIME_ID), unbooked;
    if (early && cost && map && capacity && index && peak && unknown) {
        PyObject *args = PyTuple_Pack(6, ring, cost, map, capacity, index, peak);
        written = args ? books_write(self->books, args) : NULL;
        Py_XDECREF(args);
    }
    self->num_written += count;
    int failed = !written || PyObject_SetAttrString(clock, "peak_bytes", unknown) ||
                 PyList_SetSlice(early, PyList_Size(early), PyList_Size(early), written);
    if (!failed && (price = PyObject_GetAttrString(cost, "unbooked_ns")) && !read_whole(price, &unbooked) &&
        (end = PyLong_FromLongLong(unbooked + clock_ns(CLOCK_THREAD_CPUTIME_ID) - begun)))
        failed = PyObject_SetAttrString(cost, "unbooked_ns", end);
    else
        failed = 1;
    PyObject *held[] = {written, early, price, ring, cost, map, unknown, capacity, index, peak, end};
    for (size_t i = 0; i < sizeof held / sizeof *held; i++)
        Py_XDECREF(held[i]);
    return failed ? -1 : 0;
}

static int is_none(PyObject *object) { return !object || object == Py_None; }

/* What the hooks of a step took, which were timed in so many of its transitions: it tells a price. -1: exception. */
static RARE_CODE int64_t timed_cost(Base *self, const Row *row) {
    PyObject *cost = PyObject_GetAttrString((PyObject *)self, "cost"), *told = NULL;
    int64_t own = -1, detail, closing;
    if (cost)
        told = PyObject_CallMethod(cost, "of_hooks", "LLLLL", (long long)row->rest[5], (long long)row->rest[9],
                                   (long long)row->rest[8], (long long)row->rest[10], (long long)row->num_transitions);
    if (!told || read_whole(told, &own) || prices_of(cost, &self->light_price, &detail, &closing))
        own = -1;
    Py_XDECREF(cost);
    Py_XDECREF(told);
    return own;
}

/* The step that ends is written right away. */
static int close_alone(Base *self, int64_t now, const int64_t *rest) {
    Row row;
    end_row(self->books, &row, now, self->step, self->said, self->momentary, self->micro_steps, rest);
    int64_t own = self->light_price * row.num_transitions, num_measured = rest[10];
    if (RARELY(2 * num_measured > row.num_transitions) && (own = timed_cost(self, &row)) < 0)
        return -1;
    if (!self->has_map) /* we left by another thread while a price was told */
        return 0;
    own += self->closing_price + self->share;
    put_row(&row, self->map.buf, self->capacity, self->num_written++, own, UNKNOWN);
    tell(self->books, &row, own);
    return 0;
}

/* The last collective of the gradients' group, as Python's `group_seq` tells it. 0, or -1 with an exception. */
static int tell_sequence(Base *self, int64_t *seq) {
    PyObject *told = NULL;
    if (is_none(self->group_of)) {
        told = PyObject_CallNoArgs(self->group_seq);
    } else {
        PyObject *module = PyObject_CallNoArgs(self->group_of), *group = NULL;
        if (module == Py_None) /* it has gone: Python chooses another */
            told = PyObject_CallNoArgs(self->group_seq);
        else if (module)
            group = PyObject_GetAttr(module, self->names[GROUP]);
        if (group)
            told = PyObject_CallMethodObjArgs(group, self->names[SEQUENCE], NULL);
        Py_XDECREF(group);
        Py_XDECREF(module);
    }
    int failed = !told || read_whole(told, seq);
    Py_XDECREF(told);
    return failed ? -1 : 0;
}

/* As StepClock.close_step where nothing is rare. 0, or -1 with an exception. */
static int close_step(Base *self, int64_t now) {
    Hot *hot = self->hot;
    int64_t seq = UNKNOWN, num_collectives = UNKNOWN, cpu = UNKNOWN, step = self->step, flags = self->flags;
    if (!is_none(self->group_seq)) {
        if (tell_sequence(self, &seq))
            return -1;
        if (seq != UNKNOWN && self->last_seq != UNKNOWN)
            num_collectives = seq - self->last_seq;
        self->last_seq = seq;
    }
    if (self->last_cpu != UNKNOWN) {
        if (syscall(SYS_gettid) == self->last_cpu_thread)
            cpu = clock_ns(CLOCK_THREAD_CPUTIME_ID) - self->last_cpu;
        self->last_cpu = UNKNOWN;
    }
    if (!is_none(self->gc_log) && RARELY(PyObject_Size(self->gc_log) != 0)) {
        PyObject *done = PyObject_CallMethod((PyObject *)self, "take_collections", NULL);
        Py_XDECREF(done);
        if (!done)
            return -1;
    }
    int64_t own = self->own_time > 0 ? self->own_time : 0, num_measured = self->num_measured;
    int64_t was = hot->alert & MEASURING, next_one = was;
    self->own_time = self->num_measured = 0;
    if (self->spot_checks) {
        if (was) { /* the hook that closes a step is the first of the next one: the check ends there and is told there */
            next_one = 0;
            self->own_time = own, self->num_measured = num_measured, own = num_measured = 0;
        } else if (step % SPOT_CHECK == SPOT_CHECK_AT)
            next_one = MEASURING;
    }
    const int64_t rest[NUM_REST] = {seq, num_collectives, self->comm_bytes, self->samples, self->tokens,
                                    flags | self->detail_flag, self->gc, cpu, 0, own, num_measured};
    int is_alone = self->is_alone && !self->books->num_rows && !self->detail_flag && self->has_map;
    if (is_alone ? close_alone(self, now, rest)
                 : books_close(self->books, now, step, self->said, self->momentary, self->micro_steps, rest))
        return -1;
    self->said &= ~self->momentary;
    self->step = ++step;
    self->num_kept++;
    hot->words[WORD_STEP] = step;
    self->begin = now;
    hot->alert = (hot->alert & ~(STEPPED | MEASURING)) | next_one;
    self->flags = self->micro_steps = self->gc = 0;
    self->samples = self->tokens = UNKNOWN;
    if (step % CPU_PERIOD == 0)
        self->last_cpu = clock_ns(CLOCK_THREAD_CPUTIME_ID), self->last_cpu_thread = syscall(SYS_gettid);
    const char *then = NULL;
    if (flags || self->num_kept >= self->max_kept || now >= self->settle_at_ns || seq >= self->settle_at_seq ||
        self->books->num_rows > NUM_ROWS / 2 || (now >= self->write_at_ns && is_wanted(self)))
        then = "settle";
    else if (was)
        then = "closed";
    int is_early = now >= self->write_at_ns && self->books->num_rows && !(then && *then == 's');
    if (now >= self->write_at_ns)
        self->write_at_ns = now + WRITE_EVERY_NS;
    if (then) {
        PyObject *done = PyObject_CallMethod((PyObject *)self, then, "L", (long long)now);
        Py_XDECREF(done);
        if (!done)
            return -1;
    }
    if (is_early && write_early(self))
        return -1;
    self->write_time = was ? now_ns() - now : 0;
    return 0;
}
