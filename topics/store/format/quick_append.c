/* Quick appends of a library (tp_quick in codec.h): the one function in C that drives a log.
 *
 * Which appends it may take is decided in Python: engine/write/write_streak.py opens it with bounds
 * and with the flags of rows that it leaves; embedded/driving/driver.py gives the lock and the
 * queues. Here they are only looked at, in the order of `Driver.run_exclusively`.
 *
 * The interpreter's lock is released only for the write. So no handler of a signal runs within an
 * append, and no exception of a handler leaves it half done: what is counted in the struct was
 * written, and what was not counted is written again in its place. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "_log_format.h"
#include "codec.h"

#define WAKE_TRIES 100 /* a signal's handler may raise in each; each takes one signal */

/* tp_write_now of uring/ring.h */
typedef int64_t write_now(int fd, const char *bytes, uint64_t size, uint64_t offset, int dsync);

struct appender {
    PyObject_HEAD
    struct tp_quick *quick;
    PyObject *cells, *acquire, *release, *driving;
};

/* The parts of a plain request. */
struct request {
    Py_buffer buffer;
    const char *spans;
    uint32_t count;
    uint64_t size;
};

static PyObject *cell(const struct appender *a, int at)
{
    return PyList_GET_ITEM(a->cells, at);
}

/* Calls a callable that returns an int; 0, and an error is set, if it does not. */
static int ask(PyObject *callable, uint64_t *number)
{
    PyObject *answer = PyObject_CallNoArgs(callable);
    if (answer == NULL) return 0;
    *number = PyLong_AsUnsignedLongLongMask(answer);
    Py_DECREF(answer);
    return PyErr_Occurred() == NULL;
}

/* Whether a queue has something; -1 after an error. */
static int any_queued(const struct appender *a)
{
    PyObject *queues = cell(a, TP_CELL_QUEUES);
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(queues); i++) {
        Py_ssize_t size = PyObject_Size(PyTuple_GET_ITEM(queues, i));
        if (size) return size < 0 ? -1 : 1;
    }
    return 0;
}

/* Whether a request is of the topic, has no option, and has no row that is left to others. */
static int is_plain(const struct appender *a, PyObject *request, struct request *r)
{
    PyObject *plain = cell(a, TP_CELL_PLAIN), *name = cell(a, TP_CELL_NAME);
    if (!PyTuple_Check(request) || PyTuple_GET_SIZE(request) != PyTuple_GET_SIZE(plain) + 2) return 0;
    PyObject *topic = PyTuple_GET_ITEM(request, 0), *rows = PyTuple_GET_ITEM(request, 1);
    if (!PyUnicode_CheckExact(topic) || (topic != name && PyUnicode_Compare(topic, name))) return 0;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(plain); i++)
        if (PyTuple_GET_ITEM(request, i + 2) != PyTuple_GET_ITEM(plain, i)) return 0;
    if (!PyTuple_Check(rows) || PyTuple_GET_SIZE(rows) != 4) return 0;
    PyObject *spans = PyTuple_GET_ITEM(rows, 1);
    if (!PyBytes_CheckExact(spans)) return 0;
    const struct tp_row *row = (const struct tp_row *)PyBytes_AS_STRING(spans);
    Py_ssize_t count = PyBytes_GET_SIZE(spans) / (Py_ssize_t)sizeof *row;
    if (count < 1 || count > TP_QUICK_ROWS - (Py_ssize_t)a->quick->rows) return 0;
    uint32_t flags = 0;
    uint64_t size = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        flags |= row[i].flags;
        size += row[i].size;
    }
    if (flags & a->quick->left_flags) return 0;
    r->spans = (const char *)row;
    r->count = (uint32_t)count;
    r->size = size;
    return PyObject_GetBuffer(PyTuple_GET_ITEM(rows, 0), &r->buffer, PyBUF_SIMPLE) == 0;
}

/* Writes the blocks of the batch that was framed last. Returns whether all were; -1: an error. */
static int write_blocks(const struct appender *a, int64_t used)
{
    struct tp_quick *s = a->quick;
    uint64_t begin = s->next.begin / BLOCK_BYTES * BLOCK_BYTES;
    uint64_t end = (s->next.begin + (uint64_t)used + BLOCK_BYTES - 1) / BLOCK_BYTES * BLOCK_BYTES;
    int64_t written;
    if (s->write) {
        const char *blocks = (const char *)(uintptr_t)s->next.chunk + begin;
        Py_BEGIN_ALLOW_THREADS
        written = ((write_now *)(uintptr_t)s->write)(s->fd, blocks, end - begin, s->start + begin, s->dsync);
        Py_END_ALLOW_THREADS
    } else {
        PyObject *blocks = PySequence_GetSlice(cell(a, TP_CELL_VIEW), (Py_ssize_t)begin, (Py_ssize_t)end);
        if (blocks == NULL) return -1;
        PyObject *answer = PyObject_CallFunction(cell(a, TP_CELL_WRITE), "iNKO", s->fd, blocks,
                                                 (unsigned long long)(s->start + begin), s->dsync ? Py_True : Py_False);
        if (answer == NULL) return -1;
        written = PyLong_AsLongLong(answer);
        Py_DECREF(answer);
        if (PyErr_Occurred()) return -1;
    }
    s->expected = end - begin;
    s->result = written;
    return written == (int64_t)s->expected;
}

static void add(struct tp_times *times, uint64_t ns)
{
    int bits = ns ? 64 - __builtin_clzll(ns) : 0;
    times->buckets[bits < TP_TIME_BUCKETS ? bits : TP_TIME_BUCKETS - 1]++;
    times->total_ns += ns;
}

/* Counts the batch that was written. */
static void count(struct tp_quick *s, const struct request *r, int64_t used, uint64_t began_ns, uint64_t framed_ns,
                  uint64_t ended_ns)
{
    const struct tp_next_batch *next = &s->next;
    if (!s->batches) s->first_begin = next->begin;
    for (uint32_t i = 0; i < r->count; i++) s->placed[s->rows + i].start += (uint32_t)(next->begin - s->first_begin);
    add(&s->appends, ended_ns - began_ns);
    add(&s->writes, ended_ns - framed_ns);
    s->write_ns[s->batches++] = ended_ns - framed_ns;
    s->rows += r->count;
    s->size += r->size;
    s->bytes += (uint64_t)used;
    s->end = next->begin + (uint64_t)used;
    s->ts_ms = next->ts_ms;
    s->checksum = next->checksum;
    s->ended_ns = ended_ns;
}

/* Frames and writes a batch. Returns whether it is in the log; -1 after an error. */
static int write_batch(const struct appender *a, const struct request *r, uint64_t began_ns, uint64_t now_ms)
{
    struct tp_quick *s = a->quick;
    uint64_t framed_ns = began_ns, ended_ns;
    int64_t used = tp_frame_next(&s->next, r->buffer.buf, (uint64_t)r->buffer.len, r->spans, r->count, r->size, now_ms,
                                 (char *)(s->placed + s->rows));
    if (used <= 0) return 0;
    s->is_open = 0; /* until it is counted: the next batch has its place, its number and its seqs */
    int done = ask(cell(a, TP_CELL_NOW_NS), &framed_ns) ? write_blocks(a, used) : -1;
    if (done <= 0) return done;
    ended_ns = framed_ns;
    int timed = ask(cell(a, TP_CELL_NOW_NS), &ended_ns);
    count(s, r, used, began_ns, framed_ns, ended_ns);
    s->is_open = timed && s->rows < TP_QUICK_ROWS;
    return timed ? 1 : -1;
}

/* Frees the lock, and passes on what came for the thread that held it. Returns 0 after an error. */
static int leave(const struct appender *a)
{
    PyObject *type = NULL, *value = NULL, *trace = NULL;
    PyErr_Fetch(&type, &value, &trace);
    if (PyObject_SetAttr(cell(a, TP_CELL_DRIVER), a->driving, Py_None) < 0) PyErr_WriteUnraisable(a->cells);
    PyObject *freed = PyObject_CallNoArgs(a->release);
    if (freed == NULL) PyErr_WriteUnraisable(a->cells);
    Py_XDECREF(freed);
    for (int i = 0; i < WAKE_TRIES && any_queued(a) > 0; i++) {
        PyObject *woken = PyObject_CallNoArgs(cell(a, TP_CELL_WAKE_NEXT_DRIVER));
        if (woken != NULL) {
            Py_DECREF(woken);
            break;
        }
        if (type == NULL) PyErr_Fetch(&type, &value, &trace);
        else PyErr_Clear();
    }
    if (type == NULL) return PyErr_Occurred() == NULL;
    PyErr_Restore(type, value, trace);
    return 0;
}

static PyObject *result_of(const struct appender *a)
{
    const struct tp_quick *s = a->quick;
    uint64_t took_ns = s->write_ns[s->batches - 1], last = s->next.first_seq + s->next.count - 1;
    uint64_t numbers[] = {s->next.first_seq, last, last, s->next.count, 0, 0, took_ns, s->next.flags ? took_ns : 0};
    PyObject *items[8];
    for (int i = 0; i < 8; i++) {
        items[i] = i == 4 || i == 5 ? Py_NewRef(Py_False) : PyLong_FromUnsignedLongLong(numbers[i]);
        if (items[i] == NULL) {
            while (i--) Py_DECREF(items[i]);
            return NULL;
        }
    }
    PyTypeObject *type = (PyTypeObject *)cell(a, TP_CELL_RESULT);
    PyObject *result = type->tp_alloc(type, 8);
    for (int i = 0; i < 8; i++) {
        if (result == NULL) Py_DECREF(items[i]);
        else PyTuple_SET_ITEM(result, i, items[i]);
    }
    return result;
}

/* Takes the lock, and appends. The clocks were asked before: those of Python may run a handler, and
 * let other threads run. From the look at the request on, nothing does until the lock is held. */
static PyObject *append_at(const struct appender *a, PyObject *request, PyObject *thread, uint64_t began_ns,
                           uint64_t now_ms)
{
    struct request r;
    if (!a->quick->is_open || began_ns >= a->quick->until_ns || !is_plain(a, request, &r)) {
        PyErr_Clear();
        Py_RETURN_NONE;
    }
    PyObject *result = NULL, *taken = PyObject_CallFunctionObjArgs(a->acquire, Py_False, NULL);
    if (taken == Py_True) {
        int done = PyObject_SetAttr(cell(a, TP_CELL_DRIVER), a->driving, thread) < 0 ? -1 : any_queued(a);
        done = done ? (done < 0 ? -1 : 0) : write_batch(a, &r, began_ns, now_ms);
        result = done < 0 ? NULL : done ? result_of(a) : Py_NewRef(Py_None);
        if (!leave(a)) Py_CLEAR(result);
    } else if (taken != NULL) {
        result = Py_NewRef(Py_None); /* another thread drives, or this one does */
    }
    Py_XDECREF(taken);
    PyBuffer_Release(&r.buffer);
    return result;
}

/* append(request, thread) */
static PyObject *append(PyObject *self, PyObject *const *args, Py_ssize_t given)
{
    const struct appender *a = (const struct appender *)self;
    uint64_t began_ns, now_ms;
    if (given != 2) return PyErr_Format(PyExc_TypeError, "append(request, thread)");
    if (a->cells == NULL || !a->quick->is_open) Py_RETURN_NONE;
    if (!ask(cell(a, TP_CELL_NOW_NS), &began_ns) || !ask(cell(a, TP_CELL_NOW_MS), &now_ms)) return NULL;
    return append_at(a, args[0], args[1], began_ns, now_ms);
}

static PyMethodDef method = {"append", (PyCFunction)(void (*)(void))append, METH_FASTCALL, NULL};

static int traverse(struct appender *a, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(a));
    Py_VISIT(a->cells);
    Py_VISIT(a->acquire);
    Py_VISIT(a->release);
    return 0;
}

static int clear(struct appender *a)
{
    Py_CLEAR(a->cells);
    Py_CLEAR(a->acquire);
    Py_CLEAR(a->release);
    Py_CLEAR(a->driving);
    return 0;
}

static void forget(struct appender *a)
{
    PyTypeObject *type = Py_TYPE(a);
    PyObject_GC_UnTrack(a);
    clear(a);
    type->tp_free(a);
    Py_DECREF(type);
}

static PyType_Slot slots[] = {
    {Py_tp_traverse, traverse}, {Py_tp_clear, clear}, {Py_tp_dealloc, forget}, {0, NULL}};
static PyType_Spec spec = {"topics.QuickAppend", sizeof(struct appender), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, slots};

void *tp_quick_append(struct tp_quick *quick, void *cells)
{
    static PyObject *type; /* made once; the collector follows its objects, which refer to the log */
    if (type == NULL && (type = PyType_FromSpec(&spec)) == NULL) return NULL;
    struct appender *a = (struct appender *)((PyTypeObject *)type)->tp_alloc((PyTypeObject *)type, 0);
    if (a == NULL) return NULL;
    PyObject *lock = PyList_GET_ITEM((PyObject *)cells, TP_CELL_LOCK), *callable = NULL;
    a->quick = quick;
    a->cells = Py_NewRef((PyObject *)cells);
    a->acquire = PyObject_GetAttrString(lock, "acquire");
    a->release = PyObject_GetAttrString(lock, "release");
    a->driving = PyUnicode_InternFromString("_driving");
    if (a->acquire != NULL && a->release != NULL && a->driving != NULL) callable = PyCFunction_New(&method, (PyObject *)a);
    Py_DECREF(a);
    return callable;
}
