/* The native core: what every step passes, in C; everything else stays in the Python hooks beside it.
 *
 * A hook of Python's remains the reference. Around it lies a `Gate`, which does by itself what is plain (the training
 * thread, nothing to look after: one phase begins, the host's function runs, it ends) and hands every other call to the
 * reference. So there is one meaning and two speeds; tests run both and compare rows. Books are kept at once instead of
 * from notes: here an addition costs less than noting it.
 *
 * Python calls us with the interpreter's lock and we never let go of it but by calling back. Nothing is allocated in a
 * plain step but what the host's own objects make (a tensor's shape). Memory that is shared (the ring, the page with the
 * thread's ident) is held as buffers; where the ring goes, `let_go` puts words of our own in the place of its header, so
 * that a hook in the middle of something writes where it harms nobody. CPython's limited API of 3.11, one binary for all
 * that come after it.
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

/* Headers of 3.12 and 3.13 give these away without a reference, whatever API is asked for: they are immortal from 3.12
 * on. In 3.11 they are counted, and their last reference ends the process. */
#undef Py_RETURN_NONE
#undef Py_RETURN_TRUE
#undef Py_RETURN_FALSE
#define Py_RETURN_NONE return Py_NewRef(Py_None)
#define Py_RETURN_TRUE return Py_NewRef(Py_True)
#define Py_RETURN_FALSE return Py_NewRef(Py_False)

/* Exported by 3.11 already, in the limited API's headers from 3.12 on. */
PyAPI_FUNC(PyObject *) PyObject_Vectorcall(PyObject *, PyObject *const *, size_t, PyObject *);
typedef PyObject *(*vectorcall_t)(PyObject *, PyObject *const *, size_t, PyObject *);
PyAPI_FUNC(vectorcall_t) PyVectorcall_Function(PyObject *);
PyAPI_FUNC(PyObject *) PyVectorcall_Call(PyObject *, PyObject *, PyObject *);
enum { HAS_VECTORCALL = 1 << 11 }; /* Py_TPFLAGS_HAVE_VECTORCALL */
#define COUNT_OF(nargsf) ((Py_ssize_t)((nargsf) & ~((size_t)1 << (8 * sizeof(size_t) - 1))))
/* From 3.12 on; before, the function's own field is written. */
extern __attribute__((weak)) void PyFunction_SetVectorcall(PyObject *, vectorcall_t);

/* What native.py asks for: one more whenever the probe's Python relies on something that a core built before lacks. */
enum { INTERFACE = 3 };

#ifndef CORE_BUILD
#define CORE_BUILD "unknown"
#endif

enum { NUM_GROUPS = 64, NUM_ROWS = 128, NUM_REST = 11, NUM_ROOTS = 8, MAX_NESTING = 3 };
enum { CLOSED = -1, LATER = -2, UNKNOWN = -1 };
enum { STEPPED = 1, GONE = 2, BROKEN = 4, DEVICE = 8, EVALUATING = 16, MEASURING = 32, BARRIER = 64 };
enum { ASKING = 128, LOOKING = 256 }; /* these bits are step_clock.py's */
enum { STOPPED = GONE | BROKEN, RARE = STOPPED | DEVICE | EVALUATING | ASKING | LOOKING };
enum { SPOT_CHECK = 32, SPOT_CHECK_AT = 5, CPU_PERIOD = 8, LONG_GC_NS = 1000000 };
enum { FLAG_GC = 32, FLAG_DETAIL = 64, FLAG_NO_SYNC = 128 };
enum { HEADER_BYTES = 4096, WORDS = 32, RECORD_WORDS = NUM_PHASES + 20 };
enum { WORD_HEAD = 6, WORD_LEASE = 8, WORD_COMMAND = 9, WORD_NOW = 10, WORD_STEP = 12, WORD_BURST = 19, WORD_SUMMED = 20 };
enum { WRITE_EVERY_NS = 200000000, TOLD_EVERY = 4, NUM_TOLD = 12 };
#define COUNTS_MICRO_STEP ((int64_t)1 << 16)
#define RARELY(so) __builtin_expect(!!(so), 0)
#define RARE_CODE __attribute__((cold, noinline))
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

static void forget_functions(PyObject *clock);

/* In the order in which they need one another. */
#include "hot.h"
#include "books.h"
#include "clock.h"
#include "gate.h"

#define PLAIN (Py_TPFLAGS_DEFAULT)
static PyType_Spec thin_spec = {"_tuiadvisor_core.Thin", sizeof(Thin), 0, PLAIN, thin_slots};
static PyType_Spec books_spec = {"_tuiadvisor_core.Books", sizeof(Books), 0, PLAIN, books_slots};
static PyType_Spec base_spec = {"_tuiadvisor_core.Base", sizeof(Base), 0,
                                PLAIN | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, base_slots};
static PyType_Spec gate_spec = {"_tuiadvisor_core.Gate", sizeof(Gate), 0, PLAIN | Py_TPFLAGS_HAVE_GC | HAS_VECTORCALL, gate_slots};

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
                   PyModule_AddStringConstant(module, "BUILD", "tuiadvisor-core " CORE_BUILD) ||
                   PyModule_AddIntConstant(module, "INTERFACE", INTERFACE) ||
                   PyModule_AddIntConstant(module, "CALL", CALL) ||
                   PyModule_AddIntConstant(module, "DDP_FORWARD", DDP_FORWARD) ||
                   PyModule_AddIntConstant(module, "DDP_BACKWARD", DDP_BACKWARD) ||
                   PyModule_AddIntConstant(module, "NEXT_BATCH", NEXT_BATCH) ||
                   PyModule_AddIntConstant(module, "BEFORE", BEFORE) ||
                   PyModule_AddIntConstant(module, "AFTER", AFTER)
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

/* bind(clock, thin, books, words, page, map, capacity): what the clock's numbers belong to; once. */
static PyObject *core_bind(PyObject *module, PyObject *args) {
    Types *types = PyModule_GetState(module);
    PyObject *clock, *thin, *books, *words, *page, *map;
    long long capacity;
    if (!PyArg_ParseTuple(args, "O!O!O!OOOL", types->base, &clock, types->thin, &thin, types->books, &books, &words,
                          &page, &map, &capacity))
        return NULL;
    Base *self = (Base *)clock;
    if (self->hot)
        return PyErr_Format(PyExc_RuntimeError, "bound already");
    if (PyObject_GetBuffer(words, &self->words, PyBUF_WRITABLE))
        return NULL;
    self->has_words = 1;
    if (map != Py_None && PyObject_GetBuffer(map, &self->map, PyBUF_WRITABLE))
        return NULL;
    self->has_map = map != Py_None, self->capacity = capacity;
    if (PyObject_GetBuffer(page, &self->page, PyBUF_WRITABLE))
        return NULL;
    self->has_page = 1;
    if ((self->has_map && (capacity < 1 || self->map.len < HEADER_BYTES ||
                           (self->map.len - HEADER_BYTES) / (RECORD_WORDS * 8) < capacity)) ||
        self->words.len < (Py_ssize_t)sizeof self->own_words || self->page.len < (Py_ssize_t)sizeof(Hot))
        return PyErr_Format(PyExc_ValueError, "no header of a ring, or no page of a process");
    if (intern_names(self))
        return NULL;
    Py_INCREF(thin);
    Py_INCREF(books);
    self->thin = (Thin *)thin, self->books = (Books *)books;
    Hot *hot = (Hot *)self->page.buf;
    uint64_t ident = hot->ident;
    *hot = self->books->own;
    hot->ident = ident;
    hot->alert = self->thin->own.alert, hot->phase = self->thin->own.phase;
    hot->words = self->words.buf;
    self->hot = self->thin->hot = self->books->hot = hot;
    Py_RETURN_NONE;
}

static PyMethodDef core_methods[] = {
    {"bind", core_bind, METH_VARARGS, "bind(clock, thin, books, words, page, map, capacity)"},
    {NULL},
};

static PyModuleDef_Slot core_slots[] = {{Py_mod_exec, core_exec}, {0, NULL}};
static struct PyModuleDef core_module = {
    PyModuleDef_HEAD_INIT, "_tuiadvisor_core", "The probe's native core.", sizeof(Types), core_methods, core_slots,
    core_traverse, core_clear, NULL,
};

PyMODINIT_FUNC PyInit__tuiadvisor_core(void) { return PyModuleDef_Init(&core_module); }
