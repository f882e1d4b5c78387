/* Rows of a caller's list of byte strings: see codec.h. The caller holds the interpreter's lock, so
 * that nothing changes the list or the strings between the two passes; no step runs Python code. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <string.h>

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
