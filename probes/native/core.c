/* The native core: what every step passes, in C; everything else stays in the Python hooks beside it.
 *
 * A hook of Python's remains the reference. Around it lies a `Gate`, which does by itself what is plain (the training
 * thread, nothing to look after: one phase begins, the host's function runs, it ends) and hands every other call to the
 * reference. So there is one meaning and two speeds; tests run both and compare rows. Books are kept at once instead of
 * from notes: here an addition costs less than noting it.
 *
 * Python calls us with the interpreter's lock and we never let go of it but by calling back. Nothing is allocated in a
 * plain step but what the host's own objects make (a tensor's shape), and two small tuples of which one is kept.
 * Memory that is shared (the ring's header, the page with the thread's ident) is held as buffers; where the ring goes,
 * `let_go` puts a page of our own in its place, so that a hook in the middle of something writes where it harms nobody.
 * CPython's limited API of 3.11, one binary for all that come after it.
 */
#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <structmember.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "phases.h"

#ifndef CORE_BUILD
#define CORE_BUILD "unknown"
#endif

enum { NUM_GROUPS = 64, NUM_ROWS = 128, NUM_REST = 11, NUM_ROOTS = 8, MAX_NESTING = 3 };
enum { CLOSED = -1, LATER = -2, UNKNOWN = -1 };
enum { STEPPED = 1, GONE = 2, BROKEN = 4, DEVICE = 8, EVALUATING = 16, MEASURING = 32 };
enum { STOPPED = GONE | BROKEN, RARE = STOPPED | DEVICE | EVALUATING };
enum { SPOT_CHECK = 32, SPOT_CHECK_AT = 5, CPU_PERIOD = 8, LONG_GC_NS = 1000000 };
enum { FLAG_GC = 32, FLAG_DETAIL = 64, FLAG_NO_SYNC = 128 };
enum { HEADER_BYTES = 4096, WORDS = 32, RECORD_WORDS = NUM_PHASES + 20 };
enum { WORD_HEAD = 6, WORD_LEASE = 8, WORD_COMMAND = 9, WORD_NOW = 10, WORD_STEP = 12, WORD_BURST = 19, WORD_SUMMED = 20 };
enum { WRITE_EVERY_NS = 200000000 };
#define COUNTS_MICRO_STEP ((int64_t)1 << 16)
#define ABSORBS(phase) ((ABSORBING) >> (phase) & 1)

static int64_t clock_ns(clockid_t which) {
    struct timespec time;
    clock_gettime(which, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static int64_t now_ns(void) { return clock_ns(CLOCK_MONOTONIC); }

typedef struct {
    PyTypeObject *thin, *books, *base, *gate;
} Types;

/* ---- Thin: all that a hook touches in a plain step ---- */

typedef struct {
    PyObject_HEAD
    int64_t alert, phase;
} Thin;

static PyMemberDef thin_members[] = {
    {"alert", T_LONGLONG, offsetof(Thin, alert), 0, NULL},
    {"phase", T_LONGLONG, offsetof(Thin, phase), 0, NULL},
    {NULL},
};

static int thin_init(Thin *self, PyObject *args, PyObject *kwargs) {
    (void)args, (void)kwargs;
    self->alert = 0;
    self->phase = OTHER;
    return 0;
}

static void plain_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static PyType_Slot thin_slots[] = {
    {Py_tp_doc, "What the training thread is in, and what hooks have to look after."},
    {Py_tp_members, thin_members},
    {Py_tp_init, thin_init},
    {Py_tp_dealloc, plain_dealloc},
    {0, NULL},
};

/* ---- Books: the step in the making and those that are not written; also the list of notes that hooks append to ---- */

typedef struct { /* one ended step */
    int64_t step, begin, end, totals[NUM_PHASES], arrive, release, hidden, micro_steps, observed, num_transitions;
    int64_t rest[NUM_REST]; /* seq, collectives, bytes, samples, tokens, flags, gc, cpu, device, hooks, measured */
} Row;

typedef struct {
    PyObject_HEAD
    int64_t seen, comm_before, phase, step, begin, since, arrive, release, hidden, micro_steps, num_transitions;
    int64_t totals[NUM_PHASES], groups[NUM_GROUPS], half, num_rows, num_groups;
    int has_half;
    Row rows[NUM_ROWS];
} Books;

static void books_restart(Books *self, int64_t now) {
    self->since = self->begin = now;
    memset(self->totals, 0, sizeof self->totals);
    self->arrive = self->release = self->hidden = UNKNOWN;
    self->micro_steps = self->num_transitions = 0;
}

static void books_note(Books *self, int64_t number, int64_t now) {
    self->totals[self->phase] += now - self->since;
    self->since = now;
    if (number > 15) {
        int64_t bits = self->groups[(number >> 4) & (NUM_GROUPS - 1)];
        self->seen |= bits;
        if (bits & COUNTS_MICRO_STEP && self->phase != BACKWARD)
            self->micro_steps++;
    }
    self->phase = number & 15;
    self->num_transitions++;
}

static int books_close(Books *self, int64_t end, int64_t step, int64_t said, int64_t momentary, int64_t micro_steps,
                       const int64_t *rest) {
    if (self->num_rows == NUM_ROWS) {
        PyErr_SetString(PyExc_RuntimeError, "steps ended that nobody wrote");
        return -1;
    }
    Row *row = &self->rows[self->num_rows++];
    self->totals[self->phase] += end - self->since;
    self->comm_before += self->totals[COMM_EXPOSED];
    row->step = step, row->begin = self->begin, row->end = end;
    memcpy(row->totals, self->totals, sizeof row->totals);
    row->arrive = self->arrive, row->release = self->release, row->hidden = self->hidden;
    row->micro_steps = self->micro_steps + micro_steps;
    row->observed = (said | self->seen) & (COUNTS_MICRO_STEP - 1);
    row->num_transitions = self->num_transitions;
    memcpy(row->rest, rest, sizeof row->rest);
    self->seen &= ~momentary;
    self->step = step + 1;
    books_restart(self, end);
    return 0;
}

static int books_init(Books *self, PyObject *args, PyObject *kwargs) {
    long long now;
    (void)kwargs;
    if (!PyArg_ParseTuple(args, "L", &now))
        return -1;
    self->seen = self->comm_before = self->step = self->num_rows = self->has_half = 0;
    self->phase = OTHER;
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
    books_note(self, number, now);
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

static PyObject *books_move(Books *self, PyObject *args) {
    long long duration;
    int source, target;
    if (!PyArg_ParseTuple(args, "Lii", &duration, &source, &target))
        return NULL;
    if (source < 0 || source >= NUM_PHASES || target < 0 || target >= NUM_PHASES) {
        PyErr_SetString(PyExc_IndexError, "no such phase");
        return NULL;
    }
    self->totals[source] -= duration;
    self->totals[target] += duration;
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
        PyObject *number = PyLong_FromLongLong(self->totals[i]);
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
    int64_t *slot = (int64_t *)(ring + HEADER_BYTES + index % capacity * (RECORD_WORDS * 8)), at = 0;
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

static PyObject *write_rows(Books *self, PyObject *ring, PyObject *cost, Py_buffer *map, int64_t capacity,
                            int64_t index, int64_t peak) {
    int64_t light, detail, closing, unbooked = 0, count = self->num_rows;
    PyObject *number = PyObject_GetAttrString(cost, "unbooked_ns"), *zero = PyLong_FromLong(0);
    PyObject *written = PyList_New(0), *head = NULL;
    int failed = !number || !zero || !written || read_whole(number, &unbooked) ||
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
        PyObject *told = Py_BuildValue("LLLLLL", (long long)row->end, (long long)(row->end - row->begin),
                                       (long long)own, (long long)rest[0], (long long)row->observed,
                                       (long long)row->num_transitions);
        failed = !told || PyList_Append(written, told);
        Py_XDECREF(told);
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
    BOOKED("seen", seen), BOOKED("comm_before_ns", comm_before), BOOKED("phase", phase), BOOKED("step", step),
    BOOKED("begin", begin), BOOKED("since", since), BOOKED("arrive_ns", arrive), BOOKED("release_ns", release),
    BOOKED("comm_hidden_ns", hidden), BOOKED("micro_steps", micro_steps),
    BOOKED("num_transitions", num_transitions), {NULL},
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
    {"hide", (PyCFunction)books_hide, METH_O, "As books.Books.hide."},
    {"write", (PyCFunction)books_write, METH_VARARGS, "As step_record.write."},
    {NULL},
};
static PyGetSetDef books_getset[] = {{"totals", (getter)books_totals, NULL, NULL, NULL}, {NULL}};
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

/* ---- Base: the numbers of the step clock, which is a Python class below it ---- */

typedef struct {
    PyObject_HEAD
    int64_t flags, micro_steps, samples, tokens, gc, own_time, num_measured, step, begin, num_kept, max_kept;
    int64_t settle_at_ns, settle_at_seq, said, momentary, last_seq, comm_bytes, last_cpu, last_cpu_thread, detail_flag;
    int64_t spot_checks, write_time, num_optimized, next_look, write_at_ns, burst_seen;
    PyObject *group_seq, *device, *turns; /* None where there is none */
    Thin *thin;
    Books *books;
    Py_buffer words, page;
    int has_words, has_page;
    int64_t own_words[WORDS]; /* in the place of the ring's header when that has gone */
} Base;

static inline int64_t *header(Base *self) { return self->has_words ? self->words.buf : self->own_words; }

static int is_ours(Base *self) {
    return self->has_page && *(uint64_t *)self->page.buf == (uint64_t)PyThread_get_thread_ident();
}

static PyObject *base_let_go(Base *self, PyObject *unused) {
    (void)unused;
    if (self->has_words) {
        self->has_words = 0;
        PyBuffer_Release(&self->words);
    }
    Py_RETURN_NONE;
}

static int base_traverse(Base *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE((PyObject *)self));
    Py_VISIT(self->group_seq);
    Py_VISIT(self->device);
    Py_VISIT(self->turns);
    return 0;
}

static int base_clear(Base *self) {
    Py_CLEAR(self->group_seq);
    Py_CLEAR(self->device);
    Py_CLEAR(self->turns);
    return 0;
}

static void base_dealloc(Base *self) {
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    PyObject_GC_UnTrack(self);
    base_clear(self);
    base_let_go(self, NULL);
    if (self->has_page)
        PyBuffer_Release(&self->page);
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
    NUMBER("next_look", next_look), NUMBER("write_at_ns", write_at_ns), NUMBER("burst_seen", burst_seen), OBJECT(group_seq), OBJECT(device), OBJECT(turns), {NULL},
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
    const int64_t *words = header(self);
    return words[WORD_COMMAND] || words[WORD_BURST] != self->burst_seen ||
           (words[WORD_LEASE] > 0 && words[WORD_LEASE] < self->begin);
}

/* Write the rows and look after nothing else: what they tell waits in `early` for the next `settle`. */
static int write_early(Base *self, int64_t now) {
    PyObject *clock = (PyObject *)self, *written = NULL, *early = PyObject_GetAttrString(clock, "early"), *price = NULL;
    PyObject *ring = PyObject_GetAttrString(clock, "ring"), *cost = PyObject_GetAttrString(clock, "cost");
    PyObject *map = ring ? PyObject_GetAttrString(ring, "map") : NULL, *unknown = PyLong_FromLong(UNKNOWN);
    PyObject *capacity = ring ? PyObject_GetAttrString(ring, "step_capacity") : NULL;
    PyObject *index = ring ? PyObject_GetAttrString(ring, "num_steps") : NULL;
    PyObject *peak = PyObject_GetAttrString(clock, "peak_bytes"), *end = NULL;
    int64_t begun = clock_ns(CLOCK_THREAD_CPUTIME_ID), unbooked;
    if (early && cost && map && capacity && index && peak && unknown) {
        PyObject *args = PyTuple_Pack(6, ring, cost, map, capacity, index, peak);
        written = args ? books_write(self->books, args) : NULL;
        Py_XDECREF(args);
    }
    int failed = !written || PyObject_SetAttrString(clock, "peak_bytes", unknown) ||
                 PyList_SetSlice(early, PyList_Size(early), PyList_Size(early), written);
    self->write_at_ns = now + WRITE_EVERY_NS;
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

/* As StepClock.close_step where nothing is rare. 0, or -1 with an exception. */
static int close_step(Base *self, int64_t now) {
    Thin *thin = self->thin;
    int64_t seq = UNKNOWN, num_collectives = UNKNOWN, cpu = UNKNOWN, step = self->step, flags = self->flags;
    if (!is_none(self->group_seq)) {
        PyObject *told = PyObject_CallNoArgs(self->group_seq);
        int failed = !told || read_whole(told, &seq);
        Py_XDECREF(told);
        if (failed)
            return -1;
        if (self->last_seq != UNKNOWN)
            num_collectives = seq - self->last_seq;
        self->last_seq = seq;
    }
    if (self->last_cpu != UNKNOWN) {
        if (syscall(SYS_gettid) == self->last_cpu_thread)
            cpu = clock_ns(CLOCK_THREAD_CPUTIME_ID) - self->last_cpu;
        self->last_cpu = UNKNOWN;
    }
    int64_t own = self->own_time > 0 ? self->own_time : 0, num_measured = self->num_measured;
    int64_t was = thin->alert & MEASURING, next_one = was;
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
    if (books_close(self->books, now, step, self->said, self->momentary, self->micro_steps, rest))
        return -1;
    self->said &= ~self->momentary;
    self->step = ++step;
    self->num_kept++;
    header(self)[WORD_STEP] = step;
    self->begin = now;
    thin->alert = (thin->alert & ~(STEPPED | MEASURING)) | next_one;
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
    int is_early = now >= self->write_at_ns && !(then && *then == 's');
    if (then) {
        PyObject *done = PyObject_CallMethod((PyObject *)self, then, "L", (long long)now);
        Py_XDECREF(done);
        if (!done)
            return -1;
    }
    if (is_early && write_early(self, now))
        return -1;
    self->write_time = was ? now_ns() - now : 0;
    return 0;
}

/* ---- Gate: one hook ---- */

typedef struct {
    PyObject_HEAD
    Base *clock;
    PyObject *original, *reference, *failed, *tail, *stand_in; /* tail: None where nothing comes after */
    PyObject *roots, *is_grad_enabled, *training;              /* of a root's forward; roots None: any module */
    PyObject *ids;                                             /* modules beside these are not meant; None: ask */
    PyObject *open, *done, *looked, *tensor, *id_types;        /* of optimizers; of batches */
    PyObject *optimizer_number, *optimizer_entry;              /* of the one that stepped last */
    PyObject *owner, *name; /* original is what this class inherits under this name; None: original itself */
    PyObject *base;         /* the only class that it inherits from directly; None: several, or no owner */
    void *optimizer, *known_roots[NUM_ROOTS];
    Py_ssize_t num_roots; /* in the set when they were kept: it is emptied where the reference is to be asked again */
    long long phase, group, after_phase, after_alert, entry_outer;
    int is_forward;
} Gate;

#define HELD(gate)                                                                                                     \
    {(PyObject **)&(gate)->clock, &(gate)->original, &(gate)->reference, &(gate)->failed, &(gate)->tail,                \
     &(gate)->stand_in, &(gate)->roots, &(gate)->is_grad_enabled, &(gate)->training, &(gate)->open, &(gate)->done,     \
     &(gate)->looked, &(gate)->tensor, &(gate)->id_types, &(gate)->optimizer_number, &(gate)->optimizer_entry, \
     &(gate)->owner, &(gate)->name, &(gate)->ids, &(gate)->base}
enum { NUM_HELD = 20 };

static int gate_traverse(Gate *self, visitproc visit, void *arg) {
    PyObject **held[NUM_HELD] = HELD(self);
    Py_VISIT(Py_TYPE((PyObject *)self));
    for (int i = 0; i < NUM_HELD; i++)
        Py_VISIT(*held[i]);
    return 0;
}

static int gate_clear(Gate *self) {
    PyObject **held[NUM_HELD] = HELD(self);
    for (int i = 0; i < NUM_HELD; i++)
        Py_CLEAR(*held[i]);
    return 0;
}

static void gate_dealloc(Gate *self) {
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    PyObject_GC_UnTrack(self);
    gate_clear(self);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static int gate_init(Gate *self, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"clock",   "original",    "reference",   "failed",   "tail", "stand_in", "phase",
                            "group",   "after_phase", "after_alert", "roots",    "is_grad_enabled",  "is_forward",
                            "open",    "done",        "looked",      "tensor",   "id_types", "owner", "name",
                            "ids",     "base",        NULL};
    PyObject *none = Py_None, *clock, *given[4], *tail = none, *stand_in = none, *roots = none, *grad = none;
    PyObject *open = none, *done = none, *looked = none, *tensor = none, *id_types = none;
    PyObject *owner = none, *name = none, *ids = none, *base = none;
    Types *types = PyType_GetModuleState(Py_TYPE((PyObject *)self));
    self->after_phase = -1, self->after_alert = 0;
    if (!types || self->clock ||
        !PyArg_ParseTupleAndKeywords(args, kwargs, "OOOOOOLL|LLOOpOOOOOOOOO", names, &clock, &given[0], &given[1],
                                     &given[2], &tail, &stand_in, &self->phase, &self->group, &self->after_phase,
                                     &self->after_alert, &roots, &grad, &self->is_forward, &open, &done, &looked,
                                     &tensor, &id_types, &owner, &name, &ids, &base))
        return -1;
    if (!PyObject_TypeCheck(clock, types->base) || !((Base *)clock)->thin || self->phase < 0 ||
        self->phase >= NUM_PHASES || self->group < 0 || self->group >> 4 >= NUM_GROUPS) {
        PyErr_SetString(PyExc_TypeError, "no step clock that is bound, or no phase");
        return -1;
    }
    self->clock = (Base *)clock;
    self->original = given[0], self->reference = given[1], self->failed = given[2], self->tail = tail;
    self->stand_in = stand_in, self->roots = roots, self->is_grad_enabled = grad;
    self->owner = owner, self->name = name, self->ids = ids, self->base = base;
    self->open = open, self->done = done, self->looked = looked, self->tensor = tensor, self->id_types = id_types;
    PyObject **held[NUM_HELD] = HELD(self);
    for (int i = 0; i < NUM_HELD; i++)
        Py_XINCREF(*held[i]);
    self->training = PyUnicode_InternFromString("training");
    return self->training ? 0 : -1;
}

/* An exception of ours, told to the reference's guard, which raises what is the host's. 0: swallowed. */
static int guard(Gate *self) {
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyErr_NormalizeException(&type, &value, &trace);
    if (trace)
        PyException_SetTraceback(value, trace);
    PyObject *told = PyObject_CallFunctionObjArgs(self->failed, value, NULL);
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(trace);
    Py_XDECREF(told);
    return told ? 0 : -1;
}

static void enter(Gate *self, int64_t now) {
    Base *clock = self->clock;
    clock->thin->phase = self->phase;
    books_note(clock->books, self->group | self->phase, now);
    header(clock)[WORD_NOW] = now << 4 | self->phase;
}

static void leave(Base *clock, int64_t outer, int64_t now) {
    clock->thin->phase = outer;
    books_note(clock->books, outer, now);
    header(clock)[WORD_NOW] = now << 4 | outer;
}

static void count_own(Base *clock, int64_t since) {
    clock->own_time += now_ns() - since - clock->write_time;
    clock->write_time = 0;
    clock->num_measured++;
}

/* What lies before our first line, once more and where it can be timed. */
static void stand_in(Gate *self, PyObject *args, PyObject *kwargs) {
    PyObject *done = self->stand_in == Py_None ? NULL : PyObject_Call(self->stand_in, args, kwargs);
    Py_XDECREF(done);
    PyErr_Clear();
}

/* Whether this call is of no module that is meant, as where a root's class is also that of its parts. */
static int is_foreign(Gate *self, PyObject *args) {
    PyObject *module = self->ids != Py_None && PyTuple_Size(args) > 0 ? PyTuple_GetItem(args, 0) : NULL;
    if (!module)
        return 0;
    for (int i = 0; i < NUM_ROOTS && self->known_roots[i]; i++)
        if (self->known_roots[i] == module)
            return 0;
    PyObject *number = PyLong_FromVoidPtr(module);
    int is_meant = number ? PySet_Contains(self->ids, number) : -1;
    Py_XDECREF(number);
    PyErr_Clear();
    return is_meant == 0;
}

/* Whether the first argument is a root in training, with gradients; 0 also where it cannot be asked: the reference asks. */
static int trains(Gate *self, PyObject *args) {
    PyObject *module = PyTuple_Size(args) > 0 ? PyTuple_GetItem(args, 0) : NULL;
    int known = self->roots == Py_None, answer = 0;
    if (!known && PySet_Size(self->roots) != self->num_roots) {
        memset(self->known_roots, 0, sizeof self->known_roots);
        self->num_roots = PySet_Size(self->roots);
    }
    for (int i = 0; module && !known && i < NUM_ROOTS && self->known_roots[i]; i++)
        known = self->known_roots[i] == module;
    if (module && !known) {
        PyObject *number = PyLong_FromVoidPtr(module);
        known = number && PySet_Contains(self->roots, number) == 1;
        Py_XDECREF(number);
        for (int i = 0; known && i < NUM_ROOTS; i++)
            if (!self->known_roots[i]) {
                self->known_roots[i] = module;
                break;
            }
    }
    PyObject *training = module && known ? PyObject_GetAttr(module, self->training) : NULL, *grad = NULL;
    if (training == Py_True && (grad = PyObject_CallNoArgs(self->is_grad_enabled)))
        answer = grad == Py_True;
    Py_XDECREF(training);
    Py_XDECREF(grad);
    return answer;
}

/* Begin the phase; outer: what is around it. 1: begun, 0: the reference must do this call, -1: exception. */
static int begin(Gate *self, PyObject *args, int64_t *outer, int64_t *begun) {
    Base *clock = self->clock;
    Thin *thin = clock->thin;
    if (!is_ours(clock) || thin->alert & RARE || ABSORBS(thin->phase))
        return 0;
    if (self->is_forward && !trains(self, args)) {
        if (!PyErr_Occurred())
            return 0;
        return guard(self) ? -1 : 0;
    }
    *outer = thin->phase;
    *begun = now_ns();
    if (thin->alert & STEPPED && BEGINS_ITERATION >> self->phase & 1 && *outer == OTHER) {
        if (!is_none(clock->turns) || !is_none(clock->device))
            return 0;
        if (close_step(clock, *begun) && guard(self))
            return -1;
        if (thin->alert & STOPPED) /* we left at this step's end, or failed there */
            return 0;
    }
    enter(self, *begun);
    return 1;
}

/* End the phase; the exception that the host's call has raised stays as it is. Returns result, or NULL. */
static PyObject *end(Gate *self, PyObject *args, PyObject *result, int64_t begun, int64_t outer, int is_measured) {
    Base *clock = self->clock;
    int64_t now = now_ns(), alert = clock->thin->alert;
    clock->thin->phase = outer;
    if (alert & GONE)
        return result;
    leave(clock, outer, now);
    int is_wanted = self->tail != Py_None && (self->after_phase < 0 || self->phase == self->after_phase) &&
                    (!self->after_alert || alert & self->after_alert);
    if (is_wanted) {
        PyObject *type, *value, *trace;
        PyErr_Fetch(&type, &value, &trace);
        PyObject *done = PyObject_CallFunction(self->tail, "LLOO", (long long)begun, (long long)now, args,
                                               result ? result : Py_None);
        if (!done && guard(self)) { /* a signal's: it takes the place of what the call raised, as in a finally */
            Py_XDECREF(type);
            Py_XDECREF(value);
            Py_XDECREF(trace);
            Py_XDECREF(result);
            return NULL;
        }
        Py_XDECREF(done);
        PyErr_Restore(type, value, trace);
    }
    if (is_measured)
        count_own(clock, now);
    return result;
}

/* The host's function; an inherited one is looked up at each call, as patch._inherited does. Where one class lies above
 * the other, what super() would find is the base's attribute, and a function of Python's needs no binding. */
static PyObject *call_original(Gate *self, PyObject *args, PyObject *kwargs) {
    if (self->owner == Py_None || PyTuple_Size(args) < 1)
        return PyObject_Call(self->original, args, kwargs);
    if (self->base != Py_None && (PyObject *)Py_TYPE(PyTuple_GetItem(args, 0)) == self->owner &&
        PyType_GetSlot((PyTypeObject *)self->owner, Py_tp_base) == self->base) {
        PyObject *function = PyObject_GetAttr(self->base, self->name), *result = NULL;
        if (!function)
            return NULL;
        int is_plain = Py_TYPE(function) == Py_TYPE(self->reference);
        if (is_plain)
            result = PyObject_Call(function, args, kwargs);
        Py_DECREF(function);
        if (is_plain)
            return result;
    }
    PyObject *bases = PyObject_CallFunctionObjArgs((PyObject *)&PySuper_Type, self->owner, PyTuple_GetItem(args, 0), NULL);
    PyObject *inherited = bases ? PyObject_GetAttr(bases, self->name) : NULL;
    PyObject *others = inherited ? PyTuple_GetSlice(args, 1, PyTuple_Size(args)) : NULL;
    PyObject *result = others ? PyObject_Call(inherited, others, kwargs) : NULL;
    Py_XDECREF(bases);
    Py_XDECREF(inherited);
    Py_XDECREF(others);
    return result;
}

static PyObject *run(Gate *self, PyObject *args, PyObject *kwargs) {
    int64_t outer = OTHER, begun = 0;
    if (is_foreign(self, args))
        return call_original(self, args, kwargs);
    int64_t called = self->clock->thin->alert & MEASURING && is_ours(self->clock) ? now_ns() : 0;
    if (called)
        stand_in(self, args, kwargs);
    int state = begin(self, args, &outer, &begun);
    if (state < 0)
        return NULL;
    if (!state)
        return PyObject_Call(self->reference, args, kwargs);
    if (called)
        count_own(self->clock, called);
    return end(self, args, call_original(self, args, kwargs), begun, outer, called != 0);
}

/* gate(*args, **kwargs) */
static PyObject *gate_call(Gate *self, PyObject *args, PyObject *kwargs) { return run(self, args, kwargs); }

/* run(args, kwargs), for a frame that has packed them already */
static PyObject *gate_run(Gate *self, PyObject *const *given, Py_ssize_t count) {
    if (count != 2 || !PyTuple_Check(given[0]) || !PyDict_Check(given[1]))
        return PyErr_Format(PyExc_TypeError, "run(args, kwargs)");
    return run(self, given[0], given[1]);
}

/* The tensor that counts a batch's samples, borrowed; NULL: ask the reference. Only exact types, which run no code. */
static PyObject *counted_tensor(Gate *self, PyObject *batch) {
    for (int i = 0; i < MAX_NESTING; i++) {
        Py_ssize_t place = 0;
        PyObject *key, *found = NULL;
        if ((PyObject *)Py_TYPE(batch) == self->tensor)
            return batch;
        if (PyList_CheckExact(batch) && PyList_Size(batch) > 0)
            found = PyList_GetItem(batch, 0);
        else if (PyTuple_CheckExact(batch) && PyTuple_Size(batch) > 0)
            found = PyTuple_GetItem(batch, 0);
        else if (PyDict_CheckExact(batch) && !(found = PyDict_GetItemString(batch, "input_ids")))
            PyDict_Next(batch, &place, &key, &found);
        if (!found)
            return NULL;
        batch = found;
    }
    return (PyObject *)Py_TYPE(batch) == self->tensor ? batch : NULL;
}

/* As data_hook.count_batch. 0 where the reference must count. */
static int count_batch(Gate *self, PyObject *batch) {
    Base *clock = self->clock;
    PyObject *tensor = counted_tensor(self, batch), *shape = NULL, *type = NULL;
    int64_t sizes[2] = {0, 0};
    Py_ssize_t dims = -1;
    if (tensor && (shape = PyObject_GetAttrString(tensor, "shape")) && PyTuple_Check(shape))
        dims = PyTuple_Size(shape);
    for (Py_ssize_t i = 0; i < dims && i < 2; i++)
        if (read_whole(PyTuple_GetItem(shape, i), &sizes[i]))
            dims = -1;
    if (dims == 2 && !(type = PyObject_GetAttrString(tensor, "dtype")))
        dims = -1;
    if (dims > 0)
        clock->samples = clock->samples < 0 ? sizes[0] : sizes[0] + clock->samples;
    for (Py_ssize_t i = 0; dims == 2 && i < PyTuple_Size(self->id_types); i++)
        if (PyTuple_GetItem(self->id_types, i) == type)
            clock->tokens = (clock->tokens < 0 ? 0 : clock->tokens) + sizes[0] * sizes[1];
    Py_XDECREF(shape);
    Py_XDECREF(type);
    PyErr_Clear();
    return dims > 0;
}

/* next_batch(iterator) */
static PyObject *gate_next_batch(Gate *self, PyObject *iterator) {
    int64_t outer = OTHER, begun = 0;
    int64_t called = self->clock->thin->alert & MEASURING && is_ours(self->clock) ? now_ns() : 0;
    if (called && self->stand_in != Py_None) {
        Py_XDECREF(PyObject_CallFunctionObjArgs(self->stand_in, iterator, NULL));
        PyErr_Clear();
    }
    int state = begin(self, NULL, &outer, &begun);
    if (state < 0)
        return NULL;
    if (!state)
        return PyObject_CallFunctionObjArgs(self->reference, iterator, NULL);
    if (called)
        count_own(self->clock, called);
    PyObject *batch = PyObject_CallFunctionObjArgs(self->original, iterator, NULL);
    Base *clock = self->clock;
    int64_t now = now_ns(), alert = clock->thin->alert;
    clock->thin->phase = outer;
    if (alert & GONE)
        return batch;
    leave(clock, outer, now);
    /* A loader inside a loader's dataset counts none. */
    if (batch && batch != Py_None && outer != DATA_WAIT && !count_batch(self, batch)) {
        PyObject *done = PyObject_CallFunctionObjArgs(self->tail, (PyObject *)clock, batch, NULL);
        Py_XDECREF(done);
        if (!done && guard(self))
            Py_CLEAR(batch);
    }
    if (called)
        count_own(clock, now);
    return batch;
}

/* The optimizer's own number and its entry in `open`, kept for the next step. */
static int know_optimizer(Gate *self, PyObject *optimizer, int64_t outer) {
    if (self->optimizer == optimizer && self->optimizer_entry && self->entry_outer == outer)
        return 0;
    PyObject *number = PyLong_FromVoidPtr(optimizer), *entry = NULL;
    if (number)
        entry = Py_BuildValue("OL", number, (long long)outer);
    Py_XDECREF(self->optimizer_number);
    Py_XDECREF(self->optimizer_entry);
    self->optimizer_number = number, self->optimizer_entry = entry;
    self->optimizer = optimizer, self->entry_outer = outer;
    return number && entry ? 0 : -1;
}

/* before(optimizer, args, kwargs): torch's own hook before each step */
static PyObject *gate_before(Gate *self, PyObject *args) {
    Base *clock = self->clock;
    Thin *thin = clock->thin;
    int64_t outer = thin->phase;
    if (!is_ours(clock) || thin->alert & (RARE | STEPPED) || ABSORBS(outer) || PyList_Size(self->open) ||
        PyTuple_Size(args) < 1)
        return PyObject_CallObject(self->reference, args);
    int64_t called = thin->alert & MEASURING ? now_ns() : 0;
    if (called)
        stand_in(self, args, NULL);
    if (know_optimizer(self, PyTuple_GetItem(args, 0), outer) || PyList_Append(self->open, self->optimizer_entry)) {
        if (guard(self))
            return NULL;
        Py_RETURN_NONE;
    }
    enter(self, now_ns());
    if (called)
        count_own(clock, called);
    Py_RETURN_NONE;
}

/* after(optimizer, args, kwargs): likewise after it; only for the entry that `before` has made */
static PyObject *gate_after(Gate *self, PyObject *args) {
    Base *clock = self->clock;
    int64_t now = now_ns(), outer, alert = clock->thin->alert;
    PyObject *entry, *optimizer = PyTuple_Size(args) > 0 ? PyTuple_GetItem(args, 0) : NULL, *step = NULL;
    if (!optimizer || !is_ours(clock) || alert & (STOPPED | DEVICE) || !is_none(clock->turns) ||
        PyList_Size(self->open) != 1)
        return PyObject_CallObject(self->reference, args);
    entry = PyList_GetItem(self->open, 0);
    if (!PyTuple_Check(entry) || read_whole(PyTuple_GetItem(entry, 1), &outer) || outer < 0 || outer >= NUM_PHASES) {
        PyErr_Clear();
        return PyObject_CallObject(self->reference, args);
    }
    leave(clock, outer, now);
    clock->thin->alert |= STEPPED;
    int failed = PyList_SetSlice(self->open, 0, 1, NULL) || know_optimizer(self, optimizer, outer) ||
                 !(step = PyLong_FromLongLong(clock->step)) || PyDict_SetItem(self->done, self->optimizer_number, step);
    Py_XDECREF(step);
    clock->num_optimized++;
    if (!failed && alert & MEASURING) {
        stand_in(self, args, NULL);
        count_own(clock, now);
    }
    if (!failed && (clock->step >= clock->next_look || PySet_Contains(self->looked, self->optimizer_number) != 1)) {
        PyObject *done = PyObject_CallFunctionObjArgs(self->tail, optimizer, NULL);
        failed = !done;
        Py_XDECREF(done);
    }
    if (failed && guard(self))
        return NULL;
    Py_RETURN_NONE;
}

static PyMethodDef gate_methods[] = {
    {"run", (PyCFunction)(void (*)(void))gate_run, METH_FASTCALL, "run(args, kwargs)"},
    {"next_batch", (PyCFunction)gate_next_batch, METH_O, "next_batch(iterator)"},
    {"before", (PyCFunction)gate_before, METH_VARARGS, "Before an optimizer's step."},
    {"after", (PyCFunction)gate_after, METH_VARARGS, "After it."},
    {NULL},
};
static PyType_Slot gate_slots[] = {
    {Py_tp_doc, "One hook: plain calls by itself, the others by the reference."},
    {Py_tp_methods, gate_methods},
    {Py_tp_init, gate_init},
    {Py_tp_call, gate_call},
    {Py_tp_traverse, gate_traverse},
    {Py_tp_clear, gate_clear},
    {Py_tp_dealloc, gate_dealloc},
    {0, NULL},
};

/* ---- The module ---- */

#define PLAIN (Py_TPFLAGS_DEFAULT)
static PyType_Spec thin_spec = {"_tuiadvisor_core.Thin", sizeof(Thin), 0, PLAIN, thin_slots};
static PyType_Spec books_spec = {"_tuiadvisor_core.Books", sizeof(Books), 0, PLAIN, books_slots};
static PyType_Spec base_spec = {"_tuiadvisor_core.Base", sizeof(Base), 0,
                                PLAIN | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, base_slots};
static PyType_Spec gate_spec = {"_tuiadvisor_core.Gate", sizeof(Gate), 0, PLAIN | Py_TPFLAGS_HAVE_GC, gate_slots};

static int add_type(PyObject *module, PyType_Spec *spec, PyTypeObject **type) {
    *type = (PyTypeObject *)PyType_FromModuleAndSpec(module, spec, NULL);
    return *type ? PyModule_AddType(module, *type) : -1;
}

static int core_exec(PyObject *module) {
    Types *types = PyModule_GetState(module);
    prepare_crc();
    if (PyInterpreterState_GetID(PyInterpreterState_Get())) {
        PyErr_SetString(PyExc_ImportError, "the native core is for the main interpreter alone");
        return -1;
    }
    return add_type(module, &thin_spec, &types->thin) || add_type(module, &books_spec, &types->books) ||
                   add_type(module, &base_spec, &types->base) || add_type(module, &gate_spec, &types->gate) ||
                   PyModule_AddStringConstant(module, "BUILD", "tuiadvisor-core " CORE_BUILD)
               ? -1
               : 0;
}

static int core_traverse(PyObject *module, visitproc visit, void *arg) {
    Types *types = PyModule_GetState(module);
    if (types) {
        Py_VISIT(types->thin);
        Py_VISIT(types->books);
        Py_VISIT(types->base);
        Py_VISIT(types->gate);
    }
    return 0;
}

static int core_clear(PyObject *module) {
    Types *types = PyModule_GetState(module);
    if (types) {
        Py_CLEAR(types->thin);
        Py_CLEAR(types->books);
        Py_CLEAR(types->base);
        Py_CLEAR(types->gate);
    }
    return 0;
}

/* bind(clock, thin, books, words, page): what the clock's numbers belong to; once. */
static PyObject *core_bind(PyObject *module, PyObject *args) {
    Types *types = PyModule_GetState(module);
    PyObject *clock, *thin, *books, *words, *page;
    if (!PyArg_ParseTuple(args, "O!O!O!OO", types->base, &clock, types->thin, &thin, types->books, &books, &words,
                          &page))
        return NULL;
    Base *self = (Base *)clock;
    if (self->thin || self->has_words || self->has_page)
        return PyErr_Format(PyExc_RuntimeError, "bound already");
    if (PyObject_GetBuffer(words, &self->words, PyBUF_WRITABLE))
        return NULL;
    self->has_words = 1;
    if (PyObject_GetBuffer(page, &self->page, PyBUF_WRITABLE))
        return NULL;
    self->has_page = 1;
    if (self->words.len < (Py_ssize_t)sizeof self->own_words || self->page.len < 8)
        return PyErr_Format(PyExc_ValueError, "no header of a ring, or no page");
    Py_INCREF(thin);
    Py_INCREF(books);
    self->thin = (Thin *)thin, self->books = (Books *)books;
    Py_RETURN_NONE;
}

static PyMethodDef core_methods[] = {
    {"bind", core_bind, METH_VARARGS, "bind(clock, thin, books, words, page)"},
    {NULL},
};

static PyModuleDef_Slot core_slots[] = {{Py_mod_exec, core_exec}, {0, NULL}};
static struct PyModuleDef core_module = {
    PyModuleDef_HEAD_INIT, "_tuiadvisor_core", "The probe's native core.", sizeof(Types), core_methods, core_slots,
    core_traverse, core_clear, NULL,
};

PyMODINIT_FUNC PyInit__tuiadvisor_core(void) { return PyModuleDef_Init(&core_module); }
