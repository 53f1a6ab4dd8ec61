/* ---- Books: the step in the making and those that are not written; also the list of notes that hooks append to ---- */

typedef struct { /* one ended step */
    int64_t step, begin, end, totals[NUM_PHASES], arrive, release, hidden, micro_steps, observed, num_transitions;
    int64_t rest[NUM_REST]; /* seq, collectives, bytes, samples, tokens, flags, gc, cpu, device, hooks, measured */
} Row;

typedef struct { /* of a written row, what decides on later steps */
    int64_t end, duration, own, seq, observed, transitions;
} Told;

typedef struct {
    PyObject_HEAD
    Hot *hot, own;
    int64_t num_told; /* rows that the core has written by itself since Python asked for what they tell */
    Told least, most; /* of those, by transitions */
    Told told[NUM_TOLD], last;
    int64_t comm_before, step, begin, arrive, release, hidden, num_rows, half, num_groups;
    int64_t waited_in, waited_at_latest, waited_before; /* as books.Books */
    int has_half;
    int64_t evaluated[NUM_PHASES]; /* totals as of the last evaluating forward */
    int64_t groups[NUM_GROUPS];
    Row rows[NUM_ROWS];
} Books;

static void books_restart(Books *self, int64_t now) {
    Hot *hot = self->hot;
    hot->since = self->begin = now;
    memset(hot->totals, 0, sizeof hot->totals);
    self->arrive = self->release = self->hidden = UNKNOWN;
    hot->micro_steps = hot->num_transitions = 0;
}

/* The step in the making ends, and the next one begins. */
static void end_row(Books *self, Row *row, int64_t end, int64_t step, int64_t said, int64_t momentary,
                    int64_t micro_steps, const int64_t *rest) {
    Hot *hot = self->hot;
    hot->totals[hot->noted] += end - hot->since;
    self->comm_before += hot->totals[COMM_EXPOSED];
    row->step = step, row->begin = self->begin, row->end = end;
    memcpy(row->totals, hot->totals, sizeof row->totals);
    row->arrive = self->arrive, row->release = self->release, row->hidden = self->hidden;
    row->micro_steps = hot->micro_steps + micro_steps;
    row->observed = (said | hot->seen) & (COUNTS_MICRO_STEP - 1);
    row->num_transitions = hot->num_transitions;
    memcpy(row->rest, rest, sizeof row->rest);
    hot->seen &= ~momentary;
    self->step = step + 1;
    books_restart(self, end);
}

static int books_close(Books *self, int64_t end, int64_t step, int64_t said, int64_t momentary, int64_t micro_steps,
                       const int64_t *rest) {
    if (self->num_rows == NUM_ROWS) {
        PyErr_SetString(PyExc_RuntimeError, "steps ended that nobody wrote");
        return -1;
    }
    end_row(self, &self->rows[self->num_rows++], end, step, said, momentary, micro_steps, rest);
    return 0;
}

static int books_init(Books *self, PyObject *args, PyObject *kwargs) {
    long long now;
    (void)kwargs;
    if (!PyArg_ParseTuple(args, "L", &now))
        return -1;
    self->hot = &self->own;
    memset(&self->own, 0, sizeof self->own);
    self->comm_before = self->step = self->num_rows = self->num_told = self->has_half = 0;
    self->own.noted = OTHER;
    self->waited_in = self->waited_at_latest = self->waited_before = UNKNOWN;
    self->groups[0] = 0, self->num_groups = 1;
    books_restart(self, now);
    return 0;
}

static int read_whole(PyObject *number, int64_t *value) {
    *value = PyLong_AsLongLong(number);
    return *value == -1 && PyErr_Occurred() ? -1 : 0;
}

static int books_closed(Books *self, PyObject *ended) {
    long long head[5], rest[NUM_REST];
    int64_t numbers[NUM_REST];
    if (!PyArg_ParseTuple(ended, "LLLLL(LLLLLLLLLLL)", head, head + 1, head + 2, head + 3, head + 4, rest, rest + 1,
                          rest + 2, rest + 3, rest + 4, rest + 5, rest + 6, rest + 7, rest + 8, rest + 9, rest + 10))
        return -1;
    for (int i = 0; i < NUM_REST; i++)
        numbers[i] = rest[i];
    return books_close(self, head[0], head[1], head[2], head[3], head[4], numbers);
}

static int books_take(Books *self, int64_t number, PyObject *value) {
    int64_t now;
    if (number == CLOSED)
        return books_closed(self, value);
    if (number == LATER) {
        PyObject *function = PyTuple_GetItem(value, 0), *arguments = PyTuple_GetItem(value, 1), *done = NULL;
        if (function && arguments)
            done = PyObject_CallObject(function, arguments);
        Py_XDECREF(done);
        return done ? 0 : -1;
    }
    if (number < 0 || (number & 15) >= NUM_PHASES) {
        PyErr_SetString(PyExc_ValueError, "no phase of this number");
        return -1;
    }
    if (read_whole(value, &now))
        return -1;
    note(self->hot, number > 15 ? self->groups[(number >> 4) & (NUM_GROUPS - 1)] : 0, number & 15, now);
    return 0;
}

static PyObject *books_append(Books *self, PyObject *item) {
    if (self->has_half) {
        self->has_half = 0;
        if (books_take(self, self->half, item))
            return NULL;
    } else {
        if (read_whole(item, &self->half))
            return NULL;
        self->has_half = 1;
    }
    Py_RETURN_NONE;
}

static PyObject *books_extend(Books *self, PyObject *pair) {
    int64_t number;
    PyObject *first = PyTuple_GetItem(pair, 0), *second = PyTuple_GetItem(pair, 1);
    if (!first || !second || read_whole(first, &number) || books_take(self, number, second))
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *books_drop_half(Books *self, PyObject *unused) {
    (void)unused;
    self->has_half = 0;
    Py_RETURN_NONE;
}

static PyObject *books_book(Books *self, PyObject *log) {
    (void)self, (void)log;
    Py_RETURN_NONE;
}

static Py_ssize_t books_length(Books *self) { return self->has_half; }

static PyObject *books_py_restart(Books *self, PyObject *now) {
    int64_t number;
    if (read_whole(now, &number))
        return NULL;
    books_restart(self, number);
    Py_RETURN_NONE;
}

static PyObject *books_group(Books *self, PyObject *bits) {
    int64_t wanted, place = 0;
    if (read_whole(bits, &wanted))
        return NULL;
    while (place < self->num_groups && self->groups[place] != wanted)
        place++;
    if (place == NUM_GROUPS) {
        PyErr_SetString(PyExc_ValueError, "more groups of hooks than there is room for");
        return NULL;
    }
    if (place == self->num_groups)
        self->groups[self->num_groups++] = wanted;
    return PyLong_FromLongLong(place << 4);
}

/* As books.Books.synchronized. */
static void synchronized(Books *self, int64_t arrive, int64_t release) {
    int64_t waited = self->comm_before + self->hot->totals[COMM_EXPOSED];
    if (self->step != self->waited_in)
        self->waited_in = self->step, self->waited_before = self->waited_at_latest;
    self->waited_at_latest = waited;
    if (self->waited_before == UNKNOWN)
        self->waited_before = waited - (release - arrive);
    self->arrive = release - (waited - self->waited_before);
    self->release = release;
}

static PyObject *books_synchronized(Books *self, PyObject *args) {
    long long arrive, release;
    if (!PyArg_ParseTuple(args, "LL", &arrive, &release))
        return NULL;
    synchronized(self, arrive, release);
    Py_RETURN_NONE;
}

static PyObject *books_move(Books *self, PyObject *args) {
    long long duration;
    int source, target;
    if (!PyArg_ParseTuple(args, "Lii", &duration, &source, &target))
        return NULL;
    if (source < 0 || source >= NUM_PHASES || target < 0 || target >= NUM_PHASES) {
        PyErr_SetString(PyExc_IndexError, "no such phase");
        return NULL;
    }
    self->hot->totals[source] -= duration;
    self->hot->totals[target] += duration;
    Py_RETURN_NONE;
}

/* As books.Books.evaluate. */
static void evaluate(Books *self, int is_first) {
    int64_t *totals = self->hot->totals;
    for (int i = 0; i < NUM_PHASES && !is_first; i++)
        if (!ABSORBS(i) && i != FORWARD) {
            totals[EVAL] += totals[i] - self->evaluated[i];
            totals[i] = self->evaluated[i];
        }
    memcpy(self->evaluated, totals, sizeof self->evaluated);
}

static PyObject *books_evaluate(Books *self, PyObject *is_first) {
    evaluate(self, PyObject_IsTrue(is_first));
    Py_RETURN_NONE;
}

static PyObject *books_hide(Books *self, PyObject *duration) {
    int64_t number;
    if (read_whole(duration, &number))
        return NULL;
    self->hidden = (self->hidden < 0 ? 0 : self->hidden) + number;
    Py_RETURN_NONE;
}

static PyObject *books_totals(Books *self, void *unused) {
    (void)unused;
    PyObject *list = PyList_New(NUM_PHASES);
    for (int i = 0; list && i < NUM_PHASES; i++) {
        PyObject *number = PyLong_FromLongLong(self->hot->totals[i]);
        if (!number || PyList_SetItem(list, i, number))
            Py_CLEAR(list);
    }
    return list;
}

static int price_of(PyObject *cost, const char *name, int64_t *value) {
    PyObject *median = PyObject_GetAttrString(cost, name), *number = NULL;
    int failed = 1;
    if (median && (number = PyObject_GetAttrString(median, "value")))
        failed = read_whole(number, value);
    Py_XDECREF(number);
    Py_XDECREF(median);
    return failed;
}

static int prices_of(PyObject *cost, int64_t *light, int64_t *detail, int64_t *closing) {
    return price_of(cost, "transition_ns", light) || price_of(cost, "in_detail_ns", detail) ||
           price_of(cost, "closing_ns", closing);
}

/* CRC-32 as zlib's, of whole words; only rings of machines that may reorder stores carry it. Idempotent, under the GIL. */
static uint32_t crc_of_byte[256];

static void prepare_crc(void) {
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t value = byte;
        for (int bit = 0; bit < 8; bit++)
            value = value >> 1 ^ (value & 1 ? 0xEDB88320u : 0);
        crc_of_byte[byte] = value;
    }
}

static uint32_t crc_of(const int64_t *words, int count) {
    uint32_t sum = 0xFFFFFFFFu;
    for (int i = 0; i < count; i++)
        for (int shift = 0; shift < 64; shift += 8)
            sum = sum >> 8 ^ crc_of_byte[(sum ^ (uint64_t)words[i] >> shift) & 0xFF];
    return ~sum;
}

/* As step_record.write: own cost, flags, the ring's record. ring: the whole mapping, writable. */
static int put_row(const Row *row, char *ring, int64_t capacity, int64_t index, int64_t own, int64_t peak) {
    int64_t *slot = (int64_t *)(ring + HEADER_BYTES + (uint64_t)index % (uint64_t)capacity * (RECORD_WORDS * 8)), at = 0;
    const int64_t *rest = row->rest;
    int64_t flags = rest[5] | (row->arrive == UNKNOWN ? FLAG_NO_SYNC : 0) | (rest[6] > LONG_GC_NS ? FLAG_GC : 0);
    int64_t values[RECORD_WORDS - 1];
    values[at++] = index + 1;
    values[at++] = row->step, values[at++] = row->begin, values[at++] = row->end;
    for (int i = 0; i < NUM_PHASES; i++)
        values[at++] = row->totals[i];
    values[at++] = row->arrive, values[at++] = row->release;
    values[at++] = row->hidden == UNKNOWN ? UNKNOWN : row->hidden + row->totals[COMM_EXPOSED];
    values[at++] = rest[0], values[at++] = rest[1], values[at++] = rest[2], values[at++] = row->micro_steps;
    values[at++] = rest[3], values[at++] = rest[4], values[at++] = flags, values[at++] = row->observed | 1 << OTHER;
    values[at++] = own, values[at++] = rest[6], values[at++] = peak, values[at++] = rest[7];
    int64_t end = index + 1;
    if (((int64_t *)ring)[WORD_SUMMED])
        end = (int64_t)((uint64_t)crc_of(values, RECORD_WORDS - 1) << 32 | ((uint64_t)end & 0xFFFFFFFFu));
    /* The fences hold the compiler; where the machine reorders for the reader, the sum tells (ring.closing). */
    slot[0] = index + 1;
    __atomic_thread_fence(__ATOMIC_RELEASE);
    memcpy(slot + 1, values + 1, sizeof values - sizeof *values);
    __atomic_thread_fence(__ATOMIC_RELEASE);
    slot[RECORD_WORDS - 1] = end;
    __atomic_store_n((int64_t *)ring + WORD_HEAD, index + 1, __ATOMIC_RELEASE);
    return 0;
}

/* Keep what a row tells that was written alone: of one in TOLD_EVERY, and of those with the fewest and most transitions. */
static void tell(Books *self, const Row *row, int64_t own) {
    const Told told = {row->end, row->end - row->begin, own, row->rest[0], row->observed, row->num_transitions};
    if (!self->num_told || told.transitions < self->least.transitions)
        self->least = told;
    if (!self->num_told || told.transitions > self->most.transitions)
        self->most = told;
    if (self->num_told++ % TOLD_EVERY == 0)
        self->told[self->num_told / TOLD_EVERY % NUM_TOLD] = told;
    self->last = told;
}

static int append_told(PyObject *list, const Told *told) {
    PyObject *row = Py_BuildValue("LLLLLL", (long long)told->end, (long long)told->duration, (long long)told->own,
                                  (long long)told->seq, (long long)told->observed, (long long)told->transitions);
    int failed = !row || PyList_Append(list, row);
    Py_XDECREF(row);
    return failed;
}

/* What rows told that were written alone, the oldest first. */
static int append_all_told(Books *self, PyObject *list) {
    int64_t count = (self->num_told + TOLD_EVERY - 1) / TOLD_EVERY, first = count > NUM_TOLD ? count - NUM_TOLD : 0;
    int failed = self->num_told && (append_told(list, &self->least) || append_told(list, &self->most));
    for (int64_t i = first; !failed && i < count; i++)
        failed = append_told(list, &self->told[(i * TOLD_EVERY + 1) / TOLD_EVERY % NUM_TOLD]);
    failed = failed || (self->num_told && append_told(list, &self->last));
    self->num_told = 0;
    return failed;
}

static PyObject *write_rows(Books *self, PyObject *ring, PyObject *cost, Py_buffer *map, int64_t capacity,
                            int64_t index, int64_t peak) {
    int64_t light, detail, closing, unbooked = 0, count = self->num_rows;
    PyObject *number = PyObject_GetAttrString(cost, "unbooked_ns"), *zero = PyLong_FromLong(0);
    PyObject *written = PyList_New(0), *head = NULL;
    int failed = !number || !zero || !written || append_all_told(self, written) || read_whole(number, &unbooked) ||
                 PyObject_SetAttrString(cost, "unbooked_ns", zero) || prices_of(cost, &light, &detail, &closing);
    int64_t share = unbooked / (count ? count : 1);
    self->num_rows = 0;
    for (int64_t i = 0; !failed && i < count; i++) {
        const Row *row = &self->rows[i];
        const int64_t *rest = row->rest, num_measured = rest[10];
        int64_t own = rest[5] & FLAG_DETAIL ? detail : light;
        own *= row->num_transitions > num_measured ? row->num_transitions : num_measured;
        if (2 * num_measured > row->num_transitions) { /* it tells a price */
            PyObject *told = PyObject_CallMethod(cost, "of_hooks", "LLLLL", (long long)rest[5], (long long)rest[9],
                                                 (long long)rest[8], (long long)num_measured,
                                                 (long long)row->num_transitions);
            failed = !told || read_whole(told, &own) || prices_of(cost, &light, &detail, &closing);
            Py_XDECREF(told);
            if (failed)
                break;
        }
        own += closing + share + rest[8];
        put_row(row, map->buf, capacity, index++, own, peak);
        peak = UNKNOWN;
        const Told told = {row->end, row->end - row->begin, own, rest[0], row->observed, row->num_transitions};
        failed = append_told(written, &told);
    }
    head = PyLong_FromLongLong(index);
    if (!head || PyObject_SetAttrString(ring, "num_steps", head))
        failed = 1;
    Py_XDECREF(head);
    Py_XDECREF(number);
    Py_XDECREF(zero);
    if (failed)
        Py_CLEAR(written);
    return written;
}

static PyObject *books_write(Books *self, PyObject *args) {
    PyObject *ring, *cost, *map, *written = NULL;
    long long capacity, index, peak;
    Py_buffer view;
    if (!PyArg_ParseTuple(args, "OOOLLL", &ring, &cost, &map, &capacity, &index, &peak))
        return NULL;
    if (PyObject_GetBuffer(map, &view, PyBUF_WRITABLE))
        return NULL;
    if (capacity < 1 || index < 0 || view.len < HEADER_BYTES || (view.len - HEADER_BYTES) / (RECORD_WORDS * 8) < capacity)
        PyErr_SetString(PyExc_ValueError, "the ring is shorter than its capacity");
    else
        written = write_rows(self, ring, cost, &view, capacity, index, peak);
    PyBuffer_Release(&view);
    return written;
}

#define BOOKED(name, field) {name, T_LONGLONG, offsetof(Books, field), 0, NULL}
static PyMemberDef books_members[] = {
    BOOKED("comm_before_ns", comm_before), BOOKED("step", step), BOOKED("begin", begin), BOOKED("arrive_ns", arrive),
    BOOKED("release_ns", release), BOOKED("comm_hidden_ns", hidden), {NULL},
};
static PyMethodDef books_methods[] = {
    {"append", (PyCFunction)books_append, METH_O, "Half a note."},
    {"extend", (PyCFunction)books_extend, METH_O, "A note."},
    {"pop", (PyCFunction)books_drop_half, METH_NOARGS, "Drop half a note."},
    {"clear", (PyCFunction)books_drop_half, METH_NOARGS, "Drop half a note."},
    {"book", (PyCFunction)books_book, METH_O, "Nothing: notes are booked when they come."},
    {"restart", (PyCFunction)books_py_restart, METH_O, "The step in the making begins now."},
    {"group", (PyCFunction)books_group, METH_O, "As books.Books.group."},
    {"move", (PyCFunction)books_move, METH_VARARGS, "As books.Books.move."},
    {"synchronized", (PyCFunction)books_synchronized, METH_VARARGS, "As books.Books.synchronized."},
    {"evaluate", (PyCFunction)books_evaluate, METH_O, "As books.Books.evaluate."},
    {"hide", (PyCFunction)books_hide, METH_O, "As books.Books.hide."},
    {"write", (PyCFunction)books_write, METH_VARARGS, "As step_record.write."},
    {NULL},
};
static PyGetSetDef books_getset[] = {
    HOT_WORD("seen", seen), HOT_WORD("phase", noted), HOT_WORD("since", since), HOT_WORD("micro_steps", micro_steps),
    HOT_WORD("num_transitions", num_transitions), {"totals", (getter)books_totals, NULL, NULL, NULL}, {NULL},
};
static PyType_Slot books_slots[] = {
    {Py_tp_doc, "As books.Books, and the notes as well."},
    {Py_tp_members, books_members},
    {Py_tp_methods, books_methods},
    {Py_tp_getset, books_getset},
    {Py_sq_length, books_length},
    {Py_tp_init, books_init},
    {Py_tp_dealloc, plain_dealloc},
    {0, NULL},
};
