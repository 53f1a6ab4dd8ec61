/* ---- Gate: one hook ---- */

/* What a gate does: any call, DDP's forward, the backward that may be of one, a loader's, an optimizer's hooks. */
enum { MAX_PASSED = 8 }; /* as model_hooks */
enum { CALL, DDP_FORWARD, DDP_BACKWARD, NEXT_BATCH, BEFORE, AFTER, NUM_KINDS };

typedef struct {
    PyObject_HEAD
    vectorcall_t vectorcall;
    Hot *hot;
    PyObject *original;
    int64_t phase, bits;    /* bits of `observed` that entering it sets */
    PyObject *tail, *owner; /* None where nothing comes after; see below */
    int is_forward;
    short kind, is_choosy; /* choosy: some calls are not meant, by `ids` or `only_with` */
    int64_t after_phase, after_alert;
    Base *clock;
    PyObject *reference, *failed, *stand_in;
    PyObject *roots, *is_grad_enabled, *training;              /* of a root's forward; roots None: any module */
    PyObject *ids;                                             /* modules beside these are not meant; None: ask */
    PyObject *only_with;                                       /* the keyword argument that is true where a call is meant */
    PyObject *open, *done, *looked;                            /* of optimizers; open: also DDP modules that Python awaits */
    PyObject *tensor, *id_types, *shape, *dtype;               /* of batches: the class, types of ids, descriptors */
    PyObject *is_heard;                                        /* likewise: whether a mode of the training's is told of reading */
    PyObject *name; /* original is what `owner` inherits under this name; None: original itself */
    PyObject *base; /* the only class that it inherits from directly; None: several, or no owner */
    PyObject *reduced, *dict; /* what picklers get; attributes */
    PyObject *weak;           /* references to this gate, as to any function */
    void *known_roots[NUM_ROOTS], *known_ids[NUM_ROOTS];
    Py_ssize_t num_roots, num_ids; /* in the sets when they were kept; emptied where the reference is to be asked again */
} Gate;

#define HELD(gate)                                                                                                     \
    {(PyObject **)&(gate)->clock, &(gate)->original, &(gate)->reference, &(gate)->failed, &(gate)->tail,               \
     &(gate)->stand_in, &(gate)->roots, &(gate)->is_grad_enabled, &(gate)->training, &(gate)->open, &(gate)->done,     \
     &(gate)->looked, &(gate)->tensor, &(gate)->id_types, &(gate)->owner, &(gate)->name, &(gate)->ids,                 \
     &(gate)->base, &(gate)->shape, &(gate)->dtype, &(gate)->reduced, &(gate)->only_with, &(gate)->is_heard, &(gate)->dict}
enum { NUM_HELD = 24 };

/* Functions of Python's that a gate is called in the place of: torch.compile looks through functions and through nothing
 * else. What calls one as an object (a slot of a type, PyObject_Call) comes here without a frame of the interpreter's;
 * until 3.11 Python code that calls it by itself runs the function's own line, which calls the gate. */
enum { NUM_PLACES = 256, MAX_FUNCTIONS = 192, FIRST_WORD = 2, NUM_WORDS = 17 /* of a function in 3.11 */ };
typedef struct {
    PyObject *function;
    Gate *gate;
} StoodFor;
static StoodFor stood_for[NUM_PLACES]; /* by the function's address, or in the next free place */
static int num_stood_for;
static vectorcall_t plain_call; /* of a function of Python's */

static StoodFor *place_of(PyObject *function) {
    size_t at = (size_t)function >> 4;
    while (stood_for[at % NUM_PLACES].function && stood_for[at % NUM_PLACES].function != function)
        at++;
    return &stood_for[at % NUM_PLACES];
}

static PyObject *call_gate(PyObject *function, PyObject *const *args, size_t nargs, PyObject *names) {
    Gate *gate = place_of(function)->gate;
    if (RARELY(!gate)) /* its own line calls the gate */
        return plain_call(function, args, nargs, names);
    Py_INCREF((PyObject *)gate);
    PyObject *result = gate->vectorcall((PyObject *)gate, args, nargs, names);
    Py_DECREF((PyObject *)gate);
    return result;
}

/* The place of a function's vectorcall, found by what stands in it. NULL: not there, or not the only one. */
static vectorcall_t *place_of_vectorcall(PyObject *function, vectorcall_t wanted) {
    vectorcall_t *words = (vectorcall_t *)function, *found = NULL;
    for (int i = FIRST_WORD; i < NUM_WORDS; i++)
        if (words[i] == wanted) {
            if (found)
                return NULL;
            found = &words[i];
        }
    return found;
}

static int set_vectorcall(PyObject *function, vectorcall_t from, vectorcall_t to) {
    if (PyFunction_SetVectorcall) {
        PyFunction_SetVectorcall(function, to);
        return 1;
    }
    vectorcall_t *place = place_of_vectorcall(function, from);
    if (place)
        *place = to;
    return place != NULL;
}

/* A clock's functions are as they were: calls that come later run their own line, which knows that we have left. */
static void forget_functions(PyObject *clock) {
    StoodFor all[NUM_PLACES];
    memcpy(all, stood_for, sizeof all);
    memset(stood_for, 0, sizeof stood_for);
    num_stood_for = 0;
    for (int i = 0; i < NUM_PLACES; i++)
        if (all[i].function && (PyObject *)all[i].gate->clock != clock) {
            *place_of(all[i].function) = all[i];
            num_stood_for++;
        }
    for (int i = 0; i < NUM_PLACES; i++)
        if (all[i].function && (PyObject *)all[i].gate->clock == clock)
            set_vectorcall(all[i].function, call_gate, plain_call);
        else
            all[i].function = NULL;
    for (int i = 0; i < NUM_PLACES; i++) /* which may run anybody's code */
        if (all[i].function) {
            Py_DECREF(all[i].function);
            Py_DECREF((PyObject *)all[i].gate);
        }
}

/* stand_for(function): whether the gate is what runs where this function of Python's is called as an object. */
static PyObject *gate_stand_for(Gate *self, PyObject *function) {
    vectorcall_t was = Py_TYPE(function) == Py_TYPE(self->reference) ? PyVectorcall_Function(function) : NULL;
    int is_plain = was && was != call_gate && (!plain_call || was == plain_call);
    if (!is_plain || !self->clock->has_words || num_stood_for == MAX_FUNCTIONS || !set_vectorcall(function, was, call_gate))
        Py_RETURN_FALSE;
    Py_INCREF(function);
    Py_INCREF((PyObject *)self);
    *place_of(function) = (StoodFor){function, self};
    plain_call = was;
    num_stood_for++;
    Py_RETURN_TRUE;
}

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
    if (self->weak)
        PyObject_ClearWeakRefs((PyObject *)self);
    gate_clear(self);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static PyObject *run(PyObject *, PyObject *const *, size_t, PyObject *);
static PyObject *run_next_batch(PyObject *, PyObject *const *, size_t, PyObject *);
static PyObject *run_before(PyObject *, PyObject *const *, size_t, PyObject *);
static PyObject *run_after(PyObject *, PyObject *const *, size_t, PyObject *);

static int gate_init(Gate *self, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"clock",       "original",    "reference", "failed",   "tail",            "stand_in",
                            "phase",       "group",       "kind",      "reduced",  "after_phase",     "after_alert",
                            "roots",       "is_grad_enabled",          "is_forward", "open",          "done",
                            "looked",      "tensor",      "id_types",  "shape",    "dtype",           "owner",
                            "name",        "ids",         "base",      "only_with", "is_heard", NULL};
    static const vectorcall_t calls[NUM_KINDS] = {run, run, run, run_next_batch, run_before, run_after};
    PyObject *none = Py_None, *clock, *given[4], *tail = none, *stand_in = none, *roots = none, *grad = none;
    PyObject *open = none, *done = none, *looked = none, *tensor = none, *id_types = none, *shape = none, *dtype = none;
    PyObject *owner = none, *name = none, *ids = none, *base = none, *reduced = none, *only_with = none, *is_heard = none;
    int kind = CALL;
    Types *types = PyType_GetModuleState(Py_TYPE((PyObject *)self));
    long long phase = 0, group = 0, after_phase = -1, after_alert = 0;
    if (!types || self->clock ||
        !PyArg_ParseTupleAndKeywords(args, kwargs, "OOOOOOLL|iOLLOOpOOOOOOOOOOOOO", names, &clock, &given[0], &given[1],
                                     &given[2], &tail, &stand_in, &phase, &group, &kind, &reduced, &after_phase,
                                     &after_alert, &roots, &grad, &self->is_forward, &open,
                                     &done, &looked, &tensor, &id_types, &shape, &dtype, &owner, &name, &ids, &base,
                                     &only_with, &is_heard))
        return -1;
    if (!PyObject_TypeCheck(clock, types->base) || !((Base *)clock)->hot || phase < 0 || phase >= NUM_PHASES ||
        group < 0 || group >> 4 >= NUM_GROUPS || kind < 0 || kind >= NUM_KINDS) {
        PyErr_SetString(PyExc_TypeError, "no step clock that is bound, or no phase");
        return -1;
    }
    self->vectorcall = calls[kind], self->kind = (short)kind;
    self->clock = (Base *)clock, self->hot = self->clock->hot;
    self->phase = phase, self->bits = self->clock->books->groups[group >> 4];
    self->after_phase = after_phase, self->after_alert = after_alert;
    self->original = given[0], self->reference = given[1], self->failed = given[2], self->tail = tail;
    self->stand_in = stand_in, self->roots = roots, self->is_grad_enabled = grad;
    self->owner = owner, self->name = name, self->ids = ids, self->base = base, self->reduced = reduced;
    self->only_with = only_with, self->is_choosy = ids != none || only_with != none;
    self->open = open, self->done = done, self->looked = looked, self->tensor = tensor, self->id_types = id_types;
    self->shape = shape, self->dtype = dtype, self->is_heard = is_heard;
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

static void count_own(Base *clock, int64_t since) {
    clock->own_time += now_ns() - since - clock->write_time;
    clock->write_time = 0;
    clock->num_measured++;
}

/* What lies before our first line, once more and where it can be timed. */
static void stand_in(Gate *self, PyObject *const *args, size_t count, PyObject *names) {
    PyObject *done =
        self->stand_in == Py_None ? NULL : PyObject_Vectorcall(self->stand_in, args, COUNT_OF(count), names);
    Py_XDECREF(done);
    PyErr_Clear();
}

/* Copy a small set of ids; whether it holds this one, -1 where it is too large to be copied. The size tells a change:
 * ids only come, but for all of them going at once. */
static int is_among(PyObject *ids, void **known, Py_ssize_t *size, void *wanted) {
    Py_ssize_t now = PySet_Size(ids);
    if (now != *size) {
        int at = 0;
        PyObject *all = PyObject_GetIter(ids), *one;
        memset(known, 0, NUM_ROOTS * sizeof *known);
        *size = now;
        while (all && (one = PyIter_Next(all))) {
            if (at < NUM_ROOTS)
                known[at++] = PyLong_AsVoidPtr(one);
            Py_DECREF(one);
        }
        Py_XDECREF(all);
        PyErr_Clear();
    }
    for (int i = 0; i < NUM_ROOTS && known[i]; i++)
        if (known[i] == wanted)
            return 1;
    return now > NUM_ROOTS ? -1 : 0;
}

static int is_in(PyObject *ids, void **known, Py_ssize_t *size, void *wanted) {
    int answer = is_among(ids, known, size, wanted);
    if (answer >= 0)
        return answer;
    PyObject *number = PyLong_FromVoidPtr(wanted);
    answer = number ? PySet_Contains(ids, number) : -1;
    Py_XDECREF(number);
    PyErr_Clear();
    return answer;
}

/* Whether an argument of this name is given by keyword and true. */
static inline int is_given(PyObject *name, PyObject *const *keywords, PyObject *names) {
    for (Py_ssize_t i = names ? PyTuple_Size(names) : 0; i-- > 0;) {
        PyObject *one = PyTuple_GetItem(names, i);
        if (one == name || PyUnicode_Compare(one, name) == 0)
            return keywords[i] == Py_True;
    }
    return 0;
}

/* Whether this call is not meant: of no module that is, as where a root's class is also that of its parts, or for another
 * purpose, as the keyword argument says. */
static int is_foreign(Gate *self, PyObject *const *args, Py_ssize_t count, PyObject *names) {
    if (self->only_with != Py_None)
        return !is_given(self->only_with, args + count, names);
    return count > 0 && is_in(self->ids, self->known_ids, &self->num_ids, args[0]) == 0;
}

/* Whether the first argument is a root in training, with gradients; 0 also where it cannot be asked: the reference asks. */
static int trains(Gate *self, PyObject *const *args, Py_ssize_t count) {
    int answer = 0;
    if (count < 1 || (self->roots != Py_None && is_in(self->roots, self->known_roots, &self->num_roots, args[0]) != 1))
        return 0;
    PyObject *training = PyObject_GetAttr(args[0], self->training), *grad = NULL;
    if (training == Py_True && (grad = PyObject_CallNoArgs(self->is_grad_enabled)))
        answer = grad == Py_True;
    Py_XDECREF(training);
    Py_XDECREF(grad);
    return answer;
}

/* Whether a forward is one more of the evaluation under way, as all without gradients are; 0: the reference tells. */
static RARE_CODE int goes_on(Gate *self, PyObject *const *args, Py_ssize_t count) {
    Base *clock = self->clock;
    if (!clock->eval_end || clock->eval_step != clock->step || count < 1 ||
        (self->roots != Py_None && is_in(self->roots, self->known_roots, &self->num_roots, args[0]) != 1))
        return 0;
    PyObject *grad = PyObject_CallNoArgs(self->is_grad_enabled);
    Py_XDECREF(grad);
    return grad == Py_False;
}

/* A call with something to look after beside it; what, as of `begin`. */
static RARE_CODE int begin_rarely(Gate *self, PyObject *const *args, Py_ssize_t count, int64_t *outer, int64_t *begun) {
    Hot *hot = self->hot;
    int64_t phase = self->phase;
    if (!is_ours(hot) || hot->alert & (RARE & ~EVALUATING))
        return 0;
    if (ABSORBS(hot->phase)) { /* it is part of what is around it */
        hot->num_transitions++;
        return 2;
    }
    if (hot->alert & STEPPED || phase == BACKWARD)
        return 0;
    if (self->is_forward) {
        if (!goes_on(self, args, count))
            return PyErr_Occurred() && guard(self) ? -1 : 0;
        phase = EVAL;
    }
    *outer = hot->phase, *begun = now_ns();
    change(hot, self->bits, phase, *begun);
    return 1;
}

/* Begin the phase; outer: what is around it. 1: begun, 2: nothing is to be told of this call but that it has its price,
 * 0: the reference must do it, -1: exception. */
static inline __attribute__((always_inline)) int begin(Gate *self, PyObject *const *args, Py_ssize_t count,
                                                       int64_t *outer, int64_t *begun) {
    Hot *hot = self->hot;
    if (RARELY(!is_ours(hot) || hot->alert & RARE || ABSORBS(hot->phase)))
        return begin_rarely(self, args, count, outer, begun);
    if (self->is_forward && RARELY(!trains(self, args, count)))
        return PyErr_Occurred() && guard(self) ? -1 : 0;
    /* A model within a model, as one that calls itself. */
    if (RARELY(self->is_forward && hot->phase == self->phase && self->kind == CALL && !(self->bits & ~hot->seen))) {
        hot->num_transitions++;
        return 2;
    }
    *outer = hot->phase;
    *begun = now_ns();
    if (hot->alert & STEPPED && BEGINS_ITERATION >> self->phase & 1 && *outer == OTHER) {
        Base *clock = self->clock;
        if (RARELY(!is_none(clock->turns) || !is_none(clock->device)))
            return 0;
        if (RARELY(close_step(clock, *begun)) && guard(self))
            return -1;
        if (RARELY(hot->alert & STOPPED)) /* we left at this step's end, or failed there */
            return 0;
    }
    change(hot, self->bits, self->phase, *begun);
    return 1;
}

static PyObject *tuple_of(PyObject *const *args, Py_ssize_t count) {
    PyObject *tuple = PyTuple_New(count);
    for (Py_ssize_t i = 0; tuple && i < count; i++) {
        Py_INCREF(args[i]);
        PyTuple_SetItem(tuple, i, args[i]);
    }
    return tuple;
}

/* What comes after a call; takes the place of what the call has raised where a signal raises, as in a finally. */
static PyObject *tell_tail(Gate *self, PyObject *const *args, Py_ssize_t count, PyObject *result, int64_t begun,
                           int64_t now) {
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyObject *given = tuple_of(args, count), *done = NULL;
    if (given)
        done = PyObject_CallFunction(self->tail, "LLOO", (long long)begun, (long long)now, given,
                                     result ? result : Py_None);
    Py_XDECREF(given);
    if (!done && guard(self)) {
        Py_XDECREF(type);
        Py_XDECREF(value);
        Py_XDECREF(trace);
        Py_XDECREF(result);
        return NULL;
    }
    Py_XDECREF(done);
    PyErr_Restore(type, value, trace);
    return result;
}

/* A forward of DDP's is over: as model_hooks, of the only module there is. 0: Python has to do it, -1: exception. */
static int begin_to_await(Gate *self, PyObject *module, int64_t now) {
    Base *clock = self->clock;
    if (is_none(clock->sole_ddp) || PyList_Size(self->open) ||
        !(is_none(clock->awaited) || clock->awaited == clock->sole_ddp))
        return 0;
    PyObject *known = PyObject_CallNoArgs(clock->sole_ddp), *wanted = NULL;
    if (known == module)
        wanted = PyObject_GetAttr(module, clock->names[REQUIRES_EXCHANGE]);
    Py_XDECREF(known);
    int is_plain = wanted == Py_True || wanted == Py_False, is_wanted = wanted == Py_True;
    Py_XDECREF(wanted);
    if (PyErr_Occurred())
        return guard(self) ? -1 : 1;
    if (is_plain && is_wanted && clock->has_words) {
        PyObject *before = clock->awaited;
        Py_INCREF(clock->sole_ddp);
        clock->awaited = clock->sole_ddp, clock->awaited_at = now, clock->num_passed = 0;
        Py_XDECREF(before);
        self->hot->alert |= BARRIER;
    }
    return is_plain;
}

/* The latest of the times in a list, as Python's max(); UNKNOWN with an exception, and of none. */
static int64_t latest_of(PyObject *times) {
    int64_t latest = UNKNOWN, one;
    if (times && !PyList_Check(times))
        PyErr_SetString(PyExc_TypeError, "the reducer's times are no list");
    Py_ssize_t count = times && PyList_Check(times) ? PyList_Size(times) : 0;
    for (Py_ssize_t i = 0; i < count && !read_whole(PyList_GetItem(times, i), &one); i++)
        latest = i && one < latest ? latest : one;
    return PyErr_Occurred() ? UNKNOWN : latest;
}

/* As Awaited.ready, of a weak reference. */
static int64_t latest_ready(Base *clock, PyObject *awaited) {
    PyObject *module = PyObject_CallNoArgs(awaited), *reducer = NULL, *ready = NULL;
    if (module && module != Py_None)
        reducer = PyObject_GetAttr(module, clock->names[REDUCER]);
    if (reducer)
        ready = PyObject_CallMethodObjArgs(reducer, clock->names[READY_TIMES], NULL);
    int64_t latest = latest_of(ready);
    Py_XDECREF(ready);
    Py_XDECREF(reducer);
    Py_XDECREF(module);
    return latest;
}

/* A backward is over, and one module's gradients were awaited: as model_hooks. 0: Python has to do it, -1: exception. */
static int book_exchange(Gate *self, int64_t begun, int64_t now) {
    Base *clock = self->clock;
    Hot *hot = self->hot;
    if (is_none(clock->awaited) || PyList_Size(self->open) || clock->detail_flag || hot->alert & RARE)
        return 0;
    if (hot->phase == BACKWARD) /* within a pipeline's, or within another of torch's, which exchanges */
        return 0;
    PyObject *awaited = clock->awaited; /* ours alone: asking may let another thread in, which leaves */
    clock->awaited = NULL;
    hot->alert &= ~BARRIER;
    int64_t base = clock->awaited_at, latest = latest_ready(clock, awaited), arrived = base + latest;
    int is_over = PyErr_Occurred() || hot->alert & GONE || !hot->words || !is_none(clock->awaited);
    int is_new = latest != UNKNOWN && latest != clock->latest_ready; /* else as of the exchange before */
    if (!is_over && is_new && begun <= arrived && arrived <= now) {
        clock->latest_ready = latest;
        hot->totals[BACKWARD] -= now - arrived;
        hot->totals[COMM_EXPOSED] += now - arrived;
        clock->said |= 1 << COMM_EXPOSED;
        synchronized(clock->books, arrived, now);
    } else if (!is_over && ++clock->num_passed < MAX_PASSED) {
        clock->awaited = awaited; /* another's backward came first */
        hot->alert |= BARRIER;
        return 1;
    }
    Py_DECREF(awaited);
    return PyErr_Occurred() && guard(self) ? -1 : 1;
}

/* What comes after a call of DDP's, or what Python says of it. */
static PyObject *end_of_ddp(Gate *self, PyObject *const *args, Py_ssize_t count, PyObject *result, int64_t begun,
                            int64_t now) {
    int done = 0;
    if (result && self->kind == DDP_BACKWARD)
        done = book_exchange(self, begun, now);
    else if (result && count > 0)
        done = begin_to_await(self, args[0], now);
    if (!done)
        return tell_tail(self, args, count, result, begun, now);
    if (done < 0)
        Py_CLEAR(result);
    return result;
}

/* End the phase; the exception that the host's call has raised stays as it is. Returns result, or NULL. */
static inline __attribute__((always_inline)) PyObject *end(Gate *self, PyObject *const *args, Py_ssize_t count,
                                                           PyObject *result, int64_t begun, int64_t outer) {
    Hot *hot = self->hot;
    int64_t now = now_ns(), alert = hot->alert, was = hot->phase;
    hot->phase = outer;
    if (RARELY(alert & GONE || !hot->words)) /* or a child forked within the call */
        return result;
    change(hot, 0, outer, now);
    if (RARELY(was == EVAL && self->phase != EVAL)) { /* see `goes_on` */
        if (alert & EVALUATING) {
            evaluate(self->clock->books, 0);
            self->clock->eval_end = now;
            self->clock->num_evaluated++;
        }
        return result;
    }
    if (RARELY(self->tail != Py_None && (self->after_phase < 0 || self->phase == self->after_phase) &&
               (!self->after_alert || alert & self->after_alert)))
        return self->kind == CALL ? tell_tail(self, args, count, result, begun, now)
                                  : end_of_ddp(self, args, count, result, begun, now);
    return result;
}

/* The host's function; an inherited one is looked up at each call, as patch._inherited does. Where one class lies above
 * the other, what super() would find is the base's attribute, and a function of Python's needs no binding. */
static PyObject *call_original(Gate *self, PyObject *const *args, size_t nargs, PyObject *names) {
    Py_ssize_t count = COUNT_OF(nargs);
    if (self->owner == Py_None || count < 1)
        return PyObject_Vectorcall(self->original, args, nargs, names);
    if (self->base != Py_None && (PyObject *)Py_TYPE(args[0]) == self->owner &&
        PyType_GetSlot((PyTypeObject *)self->owner, Py_tp_base) == self->base) {
        PyObject *function = PyObject_GetAttr(self->base, self->name), *result = NULL;
        if (!function)
            return NULL;
        int is_plain = Py_TYPE(function) == Py_TYPE(self->reference);
        if (is_plain)
            result = PyObject_Vectorcall(function, args, nargs, names);
        Py_DECREF(function);
        if (is_plain)
            return result;
    }
    PyObject *bases = PyObject_CallFunctionObjArgs((PyObject *)&PySuper_Type, self->owner, args[0], NULL);
    if (RARELY(!bases && PyErr_ExceptionMatches(PyExc_TypeError))) { /* of a class made of the owner's dict: Python's */
        PyErr_Clear();
        return PyObject_Vectorcall(self->original, args, nargs, names);
    }
    PyObject *inherited = bases ? PyObject_GetAttr(bases, self->name) : NULL;
    PyObject *result = inherited ? PyObject_Vectorcall(inherited, args + 1, (size_t)(count - 1), names) : NULL;
    Py_XDECREF(bases);
    Py_XDECREF(inherited);
    return result;
}

/* Of a measured step: as `run`, with the time that it takes. */
static RARE_CODE PyObject *run_measured(Gate *self, PyObject *const *args, size_t nargs, PyObject *names) {
    Py_ssize_t count = COUNT_OF(nargs);
    int64_t outer = OTHER, begun = 0, called = now_ns();
    stand_in(self, args, nargs, names);
    int state = begin(self, args, count, &outer, &begun);
    if (state < 0)
        return NULL;
    if (!state)
        return PyObject_Vectorcall(self->reference, args, nargs, names);
    count_own(self->clock, called);
    if (state == 2)
        return call_original(self, args, nargs, names);
    PyObject *result = call_original(self, args, nargs, names);
    called = now_ns();
    result = end(self, args, count, result, begun, outer);
    if (self->hot->words && !(self->hot->alert & GONE))
        count_own(self->clock, called);
    return result;
}

/* gate(*args, **kwargs) of a host's function */
static PyObject *run(PyObject *gate, PyObject *const *args, size_t nargs, PyObject *names) {
    Gate *self = (Gate *)gate;
    Py_ssize_t count = COUNT_OF(nargs);
    int64_t outer = OTHER, begun = 0;
    if (self->is_choosy && is_foreign(self, args, count, names))
        return call_original(self, args, nargs, names);
    if (RARELY(self->hot->alert & MEASURING && is_ours(self->hot)))
        return run_measured(self, args, nargs, names);
    int state = begin(self, args, count, &outer, &begun);
    if (RARELY(state != 1))
        return !state      ? PyObject_Vectorcall(self->reference, args, nargs, names)
               : state < 0 ? NULL
                           : call_original(self, args, nargs, names);
    return end(self, args, count, call_original(self, args, nargs, names), begun, outer);
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

/* An attribute by its descriptor, which the class has been asked for once. */
static PyObject *described(PyObject *descriptor, PyObject *owner) {
    descrgetfunc get = (descrgetfunc)PyType_GetSlot(Py_TYPE(descriptor), Py_tp_descr_get);
    return get ? get(descriptor, owner, (PyObject *)Py_TYPE(owner)) : NULL;
}

/* Whether a mode of the training's own would be told that we read a tensor; the reference reads past it. */
static int is_heard(Gate *self) {
    PyObject *answer = is_none(self->is_heard) ? NULL : PyObject_CallNoArgs(self->is_heard);
    int is_false = answer == Py_False || (answer && !PyObject_IsTrue(answer));
    Py_XDECREF(answer);
    return !is_false;
}

/* As data_hook.count_batch. 0 where the reference must count. */
static int count_batch(Gate *self, PyObject *batch) {
    Base *clock = self->clock;
    PyObject *tensor = counted_tensor(self, batch), *shape = NULL, *type = NULL;
    int64_t sizes[2] = {0, 0};
    Py_ssize_t dims = -1;
    if (tensor && !is_heard(self) && (shape = described(self->shape, tensor)) && PyTuple_Check(shape))
        dims = PyTuple_Size(shape);
    for (Py_ssize_t i = 0; i < dims && i < 2; i++)
        if (read_whole(PyTuple_GetItem(shape, i), &sizes[i]))
            dims = -1;
    if (dims == 2 && !(type = described(self->dtype, tensor)))
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

/* gate(iterator) of a loader's next batch */
static PyObject *run_next_batch(PyObject *gate, PyObject *const *args, size_t nargs, PyObject *names) {
    Gate *self = (Gate *)gate;
    Hot *hot = self->hot;
    int64_t outer = OTHER, begun = 0, called = 0;
    if (RARELY(COUNT_OF(nargs) != 1 || names))
        return PyObject_Vectorcall(self->reference, args, nargs, names);
    if (RARELY(hot->alert & MEASURING && is_ours(hot))) {
        called = now_ns();
        stand_in(self, args, nargs, names);
    }
    self->clock->iterator = args[0];
    int state = begin(self, args, 1, &outer, &begun);
    self->clock->iterator = NULL;
    if (RARELY(state <= 0))
        return state ? NULL : PyObject_Vectorcall(self->reference, args, nargs, names);
    if (RARELY(called))
        count_own(self->clock, called);
    if (RARELY(state == 2))
        return PyObject_Vectorcall(self->original, args, nargs, names);
    PyObject *batch = PyObject_Vectorcall(self->original, args, nargs, names);
    int64_t now = now_ns();
    hot->phase = outer;
    if (RARELY(hot->alert & GONE || !hot->words))
        return batch;
    change(hot, 0, outer, now);
    /* A loader inside a loader's dataset counts none. */
    if (batch && batch != Py_None && outer != DATA_WAIT && RARELY(!count_batch(self, batch))) {
        PyObject *done = PyObject_CallFunctionObjArgs(self->tail, (PyObject *)self->clock, batch, NULL);
        Py_XDECREF(done);
        if (!done && guard(self))
            Py_CLEAR(batch);
    }
    if (RARELY(called))
        count_own(self->clock, now);
    return batch;
}

/* What the core alone knows of optimizers goes where Python's hook looks. 0, or -1 with an exception. */
static RARE_CODE int tell_turn(Gate *self) {
    Base *clock = self->clock;
    PyObject *number = clock->is_open || clock->is_done ? PyLong_FromVoidPtr(clock->optimizer) : NULL;
    int failed = 0;
    if (clock->is_done) {
        PyObject *step = PyLong_FromLongLong(clock->done_in);
        failed = !number || !step || PyDict_SetItem(self->done, number, step);
        Py_XDECREF(step);
    }
    if (clock->is_open && !failed) {
        PyObject *entry = number ? Py_BuildValue("OL", number, (long long)clock->outer) : NULL;
        failed = !entry || PyList_Append(self->open, entry);
        Py_XDECREF(entry);
    }
    clock->is_open = clock->is_done = 0;
    Py_XDECREF(number);
    return failed ? -1 : 0;
}

/* A call that Python's hook does. */
static RARE_CODE PyObject *ask_reference(Gate *self, PyObject *const *args, size_t nargs, PyObject *names) {
    if (is_ours(self->hot) && tell_turn(self) && guard(self))
        return NULL;
    return PyObject_Vectorcall(self->reference, args, nargs, names);
}

/* gate(optimizer, args, kwargs): torch's own hook before each step */
static PyObject *run_before(PyObject *gate, PyObject *const *args, size_t nargs, PyObject *names) {
    Gate *self = (Gate *)gate;
    Base *clock = self->clock;
    Hot *hot = self->hot;
    int64_t called = 0;
    if (RARELY(!is_ours(hot) || hot->alert & (RARE | STEPPED) || ABSORBS(hot->phase) || clock->is_open ||
               COUNT_OF(nargs) < 1 || names || PyList_Size(self->open)))
        return ask_reference(self, args, nargs, names);
    if (RARELY(hot->alert & MEASURING)) {
        called = now_ns();
        stand_in(self, args, nargs, NULL);
    }
    if (clock->optimizer != args[0] && clock->is_done && tell_turn(self) && guard(self))
        return NULL;
    clock->optimizer = args[0], clock->outer = hot->phase, clock->is_open = 1;
    change(hot, self->bits, self->phase, now_ns());
    if (RARELY(called))
        count_own(clock, called);
    Py_RETURN_NONE;
}

/* gate(optimizer, args, kwargs): likewise after it; only for the step that `before` has opened */
static PyObject *run_after(PyObject *gate, PyObject *const *args, size_t nargs, PyObject *names) {
    Gate *self = (Gate *)gate;
    Base *clock = self->clock;
    Hot *hot = self->hot;
    int64_t now = now_ns(), alert = hot->alert;
    if (RARELY(COUNT_OF(nargs) < 1 || names || !is_ours(hot) || alert & (STOPPED | DEVICE) || !is_none(clock->turns) ||
               !clock->is_open || clock->optimizer != args[0]))
        return ask_reference(self, args, nargs, names);
    change(hot, 0, clock->outer, now);
    hot->alert |= STEPPED;
    clock->is_open = 0, clock->is_done = 1, clock->done_in = clock->step;
    clock->num_optimized++;
    if (RARELY(alert & MEASURING)) {
        stand_in(self, args, nargs, NULL);
        count_own(clock, now);
    }
    if (RARELY(clock->step >= clock->next_look || clock->looked_at != args[0])) {
        PyObject *number = PyLong_FromVoidPtr(args[0]), *done = NULL;
        int is_due = clock->step >= clock->next_look || !number || PySet_Contains(self->looked, number) != 1;
        Py_XDECREF(number);
        clock->looked_at = is_due ? NULL : args[0];
        if (is_due && !tell_turn(self))
            done = PyObject_CallFunctionObjArgs(self->tail, args[0], NULL);
        Py_XDECREF(done);
        if (is_due && !done && guard(self))
            return NULL;
    }
    Py_RETURN_NONE;
}

/* What a pickler finds: `reduced`, a name or what makes a copy. */
static PyObject *gate_reduce(Gate *self, PyObject *unused) {
    (void)unused;
    Py_INCREF(self->reduced);
    return self->reduced;
}

static PyMemberDef gate_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Gate, vectorcall), READONLY, NULL},
    {"__dictoffset__", T_PYSSIZET, offsetof(Gate, dict), READONLY, NULL},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(Gate, weak), READONLY, NULL},
    {NULL},
};
static PyGetSetDef gate_getset[] = {
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, NULL, NULL}, {NULL}};
static PyMethodDef gate_methods[] = {
    {"stand_for", (PyCFunction)gate_stand_for, METH_O, "Run where this function is called as an object."},
    {"__reduce_ex__", (PyCFunction)gate_reduce, METH_O, "For picklers."},
    {NULL},
};
static PyType_Slot gate_slots[] = {
    {Py_tp_doc, "One hook: plain calls by itself, the others by the reference."},
    {Py_tp_members, gate_members},
    {Py_tp_getset, gate_getset},
    {Py_tp_methods, gate_methods},
    {Py_tp_init, gate_init},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_traverse, gate_traverse},
    {Py_tp_clear, gate_clear},
    {Py_tp_dealloc, gate_dealloc},
    {0, NULL},
};
