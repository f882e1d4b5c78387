/* Work on objects of Python, for callers that hold the interpreter's lock: rows of a list of byte
 * strings, and slots loaded into the caches. They are declared in codec.h.
 *
 * No step of the first runs Python code, so that nothing changes the list or the strings between
 * its two passes. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <string.h>
#include <structmember.h>

#include "codec.h"

/* One payload: where it is, and its bytes. */
struct payload {
    const char *at;
    Py_ssize_t size;
};

/* Finds the bytes of a bytes object, a bytearray, or a view of contiguous memory; 0: of none. */
static int find(PyObject *object, struct payload *p)
{
    if (PyBytes_Check(object)) {
        *p = (struct payload){PyBytes_AS_STRING(object), PyBytes_GET_SIZE(object)};
    } else if (PyByteArray_Check(object)) {
        *p = (struct payload){PyByteArray_AS_STRING(object), PyByteArray_GET_SIZE(object)};
    } else {
        Py_buffer view;
        if (!PyMemoryView_Check(object)) return 0;
        if (PyObject_GetBuffer(object, &view, PyBUF_CONTIG_RO) < 0) { /* it was released, or has gaps */
            PyErr_Clear();
            return 0;
        }
        *p = (struct payload){view.buf, view.len};
        PyBuffer_Release(&view); /* the object that the list holds keeps the memory */
    }
    return 1;
}

static void put_row(struct tp_row *row, uint64_t at, Py_ssize_t size)
{
    memset(row, 0, sizeof *row);
    row->data_off = (uint32_t)at;
    row->data_len = row->size = (uint32_t)size;
    row->flags = TP_ROW_IS_BYTES;
}

uint32_t tp_slot_offset(void *descriptor)
{
    PyObject *slot = descriptor;
    if (Py_TYPE(slot) != &PyMemberDescr_Type) return 0;
    return (uint32_t)((PyMemberDescrObject *)slot)->d_member->offset;
}

static PyObject *slot_of(PyObject *object, uint32_t at) { return *(PyObject **)((char *)object + at); }

static uint64_t load(const void *from, uint32_t bytes)
{
    uint64_t lines = 0;
    for (uint32_t at = 0; at < bytes; at += 64, lines++) __builtin_prefetch((const char *)from + at, 1, 3);
    return lines;
}

/* Loads what is in the slots of an object, and the object in the one that leads on. */
static uint64_t load_slots(PyObject *object, const struct tp_slots *its, uint32_t next_bytes)
{
    uint64_t lines = 0;
    if (!object) return 0;
    for (uint32_t i = 0; i < its->count; i++) lines += load(slot_of(object, its->at[i]), 1);
    return next_bytes ? lines + load(slot_of(object, its->next), next_bytes) : lines;
}

/* The last item of the list in a slot; NULL: it has none. */
static PyObject **last_item(PyObject *object, uint32_t at)
{
    PyObject *list = object ? slot_of(object, at) : NULL;
    Py_ssize_t size = list && PyList_CheckExact(list) ? PyList_GET_SIZE(list) : 0;
    return size ? &((PyListObject *)list)->ob_item[size - 1] : NULL;
}

uint64_t tp_load_slots(void *list, const struct tp_slots *classes)
{
    const struct tp_slots *first = classes, *second = classes + 1, *third = classes + 2;
    PyObject **objects = ((PyListObject *)list)->ob_item, **last;
    Py_ssize_t count = PyList_GET_SIZE((PyObject *)list);
    uint64_t lines = 0;
    /* Each loop reads what the one before has asked for. */
    for (Py_ssize_t i = 0; i < count; i++)
        if (objects[i] != Py_None) lines += load(objects[i], first->bytes);
    for (Py_ssize_t i = 0; i < count; i++)
        if (objects[i] != Py_None) lines += load_slots(objects[i], first, second->bytes);
    for (Py_ssize_t i = 0; i < count; i++)
        if (objects[i] != Py_None) lines += load_slots(slot_of(objects[i], first->next), second, sizeof(PyListObject));
    for (Py_ssize_t i = 0; i < count; i++)
        if (objects[i] != Py_None && (last = last_item(slot_of(objects[i], first->next), second->next)))
            lines += load(last, 1);
    for (Py_ssize_t i = 0; i < count; i++)
        if (objects[i] != Py_None && (last = last_item(slot_of(objects[i], first->next), second->next)))
            lines += load(*last, third->bytes);
    for (Py_ssize_t i = 0; i < count; i++)
        if (objects[i] != Py_None && (last = last_item(slot_of(objects[i], first->next), second->next)))
            lines += load_slots(*last, third, 0);
    return lines;
}

void *tp_rows_of_list(void *list, uint64_t record_max)
{
    PyObject *payloads = list, *buffer, *spans;
    if (!PyList_Check(payloads) && !PyTuple_Check(payloads)) Py_RETURN_NONE;
    Py_ssize_t count = PySequence_Fast_GET_SIZE(payloads);
    PyObject **items = PySequence_Fast_ITEMS(payloads);
    struct payload p = {NULL, 0};
    uint64_t total = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        if (!find(items[i], &p)) Py_RETURN_NONE;
        if ((uint64_t)p.size > record_max) return PyLong_FromSsize_t(i);
        total += (uint64_t)p.size;
    }
    if (total > UINT32_MAX || (uint64_t)count > UINT32_MAX / sizeof(struct tp_row))
        return PyErr_Format(PyExc_OverflowError, "%llu bytes", (unsigned long long)total);
    spans = PyBytes_FromStringAndSize(NULL, count * (Py_ssize_t)sizeof(struct tp_row));
    if (spans == NULL) return NULL;
    struct tp_row *row = (struct tp_row *)PyBytes_AS_STRING(spans);
    if (count == 1 && PyBytes_CheckExact(items[0])) {
        buffer = Py_NewRef(items[0]);
        put_row(row, 0, PyBytes_GET_SIZE(buffer));
    } else {
        buffer = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)total);
        if (buffer == NULL) {
            Py_DECREF(spans);
            return NULL;
        }
        char *begin = PyBytes_AS_STRING(buffer);
        uint64_t at = 0;
        for (Py_ssize_t i = 0; i < count; i++, row++) {
            find(items[i], &p);
            memcpy(begin + at, p.at, (size_t)p.size);
            put_row(row, at, p.size);
            at += (uint64_t)p.size;
        }
    }
    return Py_BuildValue("(NNnK)", buffer, spans, count, (unsigned long long)total);
}
