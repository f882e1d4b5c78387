/* The rows of connection_table.py: the work of a pass for each connection, without an object for
 * any of them. No policy. */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "connection_table.h"

enum { BUFFERS_MAX = 4096, IDLE_KEPT = 8 };
#define SLOT_OF(user_data) ((uint32_t)((user_data) >> TP_KIND_BITS) & ((1u << TP_SLOT_BITS) - 1))

struct connection {
    uint64_t send_data, recv_data, since;
    char *flying;
    uint32_t length; /* of the send in flight */
    int fd, buffer;  /* buffer: of the send in flight, -1 without one; its completion frees it */
    uint8_t open, owned, busy;
    uint8_t shares; /* its sends are made by tp_table_share */
    uint32_t most;  /* bytes that it takes in one such send */
    uint8_t ended; /* the send from the buffer has failed or was short: its bytes wait for the
                    * Connection */
    uint32_t next_free;
    uint64_t passed; /* the last pass in which the Connection got a receive: later ones may not
                      * overtake it */
};

struct buffer {
    char *memory;
    uint64_t room;
    uint32_t users;
};

struct tp_table {
    struct connection *connections;
    uint32_t count, room, free; /* free: slot + 1 of the first free one */
    uint64_t *refs, *starts, *ends, pass;
    uint32_t *flags, rows, rows_room;
    struct buffer buffers[BUFFERS_MAX];
    int buffer_count;
};

tp_table *tp_table_new(uint32_t receives)
{
    tp_table *t = calloc(1, sizeof *t);
    if (!t) return NULL;
    t->rows_room = receives;
    t->refs = calloc(receives, sizeof *t->refs);
    t->starts = calloc(receives, sizeof *t->starts);
    t->ends = calloc(receives, sizeof *t->ends);
    t->flags = calloc(receives, sizeof *t->flags);
    if (t->refs && t->starts && t->ends && t->flags) return t;
    tp_table_free(t);
    return NULL;
}

void tp_table_free(tp_table *t)
{
    for (int i = 0; i < t->buffer_count; i++)
        if (!t->buffers[i].users) free(t->buffers[i].memory);
    free(t->connections);
    free(t->refs);
    free(t->starts);
    free(t->ends);
    free(t->flags);
    free(t);
}

int64_t tp_table_open(tp_table *t)
{
    uint32_t slot;
    if (t->free) {
        slot = t->free - 1;
        t->free = t->connections[slot].next_free;
    } else {
        if (t->count == 1u << TP_SLOT_BITS) return -ENOMEM;
        if (t->count == t->room) {
            uint32_t room = t->room ? 2 * t->room : 64;
            struct connection *connections = realloc(t->connections, room * sizeof *connections);
            if (!connections) return -ENOMEM;
            t->connections = connections;
            t->room = room;
        }
        slot = t->count++;
    }
    t->connections[slot] = (struct connection){.open = 1, .buffer = -1};
    return slot;
}

void tp_table_set(tp_table *t, uint32_t slot, int fd, uint64_t send_data)
{
    t->connections[slot].fd = fd;
    t->connections[slot].send_data = send_data;
}

void tp_table_reads(tp_table *t, uint32_t slot, uint64_t recv_data) { t->connections[slot].recv_data = recv_data; }

static void give_back(tp_table *t, struct connection *conn)
{
    if (conn->buffer >= 0) t->buffers[conn->buffer].users--;
    conn->buffer = -1;
    conn->ended = 0;
}

void tp_table_close(tp_table *t, uint32_t slot)
{
    struct connection *conn = t->connections + slot;
    if (!conn->open) return;
    give_back(t, conn);
    *conn = (struct connection){.buffer = -1, .next_free = t->free};
    t->free = slot + 1;
}

void tp_table_own(tp_table *t, uint32_t slot)
{
    struct connection *conn = t->connections + slot;
    conn->owned = conn->busy = 1;
    conn->length = 0;
}

void tp_table_begin_sharing(tp_table *t, uint32_t slot, uint32_t most)
{
    t->connections[slot].shares = 1;
    t->connections[slot].most = most;
    t->connections[slot].length = 0;
}

int tp_table_leave(tp_table *t, uint32_t slot, char **flying, uint32_t *length)
{
    struct connection *conn = t->connections + slot;
    int busy = conn->busy;
    *flying = conn->flying;
    *length = conn->length;
    conn->owned = conn->busy = conn->shares = 0;
    conn->length = 0;
    if (conn->ended) give_back(t, conn);
    return busy;
}

uint64_t tp_table_since(tp_table *t, uint32_t slot, int *busy, uint32_t *length)
{
    *length = t->connections[slot].length;
    *busy = t->connections[slot].busy;
    return t->connections[slot].since;
}

void tp_table_begin(tp_table *t)
{
    t->rows = 0;
    t->pass++;
}

uint32_t tp_table_sort(tp_table *t, uint32_t count, uint64_t *user_data, int *res, uint32_t *flags,
                       uint64_t buffer_bytes)
{
    uint32_t rest = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t kind = user_data[i] & ((1u << TP_KIND_BITS) - 1);
        uint32_t slot = SLOT_OF(user_data[i]);
        if (slot < t->count && kind == TP_SEND) {
            struct connection *conn = t->connections + slot;
            if (conn->send_data == user_data[i] && conn->buffer >= 0) {
                int in_table = conn->owned || conn->shares, whole = in_table && (uint32_t)res[i] == conn->length;
                /* After a bad send, the Connection copies the bytes (leave) before the buffer is
                 * used again. */
                if (whole || !in_table) give_back(t, conn);
                else conn->ended = 1;
                if (whole) {
                    conn->length = 0;
                    continue;
                }
            }
        } else if (slot < t->count && kind == TP_RECV && (flags[i] & (TP_F_BUFFER | TP_F_MORE)) == (TP_F_BUFFER | TP_F_MORE)) {
            struct connection *conn = t->connections + slot;
            if (conn->owned && conn->recv_data == user_data[i] && !conn->busy && !conn->length &&
                conn->passed != t->pass && t->rows < t->rows_room) {
                uint32_t row = t->rows++;
                conn->busy = 1;
                t->refs[row] = conn->send_data >> TP_KIND_BITS;
                t->flags[row] = flags[i];
                t->starts[row] = buffer_bytes ? (flags[i] >> 16) * buffer_bytes : row ? t->ends[row - 1] : 0;
                t->ends[row] = t->starts[row] + (uint32_t)res[i];
                continue;
            }
            conn->passed = t->pass;
        }
        user_data[rest] = user_data[i];
        res[rest] = res[i];
        flags[rest++] = flags[i];
    }
    return rest;
}

uint32_t tp_table_rows(tp_table *t, uint64_t **refs, uint32_t **flags, uint64_t **starts, uint64_t **ends)
{
    *refs = t->refs;
    *flags = t->flags;
    *starts = t->starts;
    *ends = t->ends;
    return t->rows;
}

int tp_table_buffer(tp_table *t, uint64_t bytes, char **memory)
{
    int found = -1;
    for (int i = 0; i < t->buffer_count; i++) {
        struct buffer *b = t->buffers + i;
        if (b->users) continue;
        found = i;
        if (b->room >= bytes) break;
    }
    if (found < 0) {
        if (t->buffer_count == BUFFERS_MAX) return -ENOMEM;
        found = t->buffer_count++;
    }
    struct buffer *b = t->buffers + found;
    if (b->room < bytes) {
        uint64_t room = bytes < 65536 ? 65536 : bytes;
        free(b->memory);
        b->room = 0;
        b->memory = malloc(room);
        if (!b->memory) return -ENOMEM;
        b->room = room;
    }
    *memory = b->memory;
    return found;
}

uint32_t tp_table_pinned(tp_table *t, uint32_t room, uint64_t *send_data, uint64_t *bytes)
{
    uint32_t found = 0;
    for (uint32_t i = 0; i < t->count; i++) {
        const struct connection *conn = t->connections + i;
        if (conn->buffer < 0) continue;
        const struct buffer *b = t->buffers + conn->buffer;
        uint64_t share = b->room / b->users;
        if (found < room) {
            send_data[found] = conn->send_data;
            bytes[found] = share > conn->length ? share - conn->length : 0;
        }
        found++;
    }
    return found;
}

uint64_t tp_table_trim(tp_table *t)
{
    int idle = 0;
    uint64_t freed = 0;
    for (int i = 0; i < t->buffer_count; i++) {
        struct buffer *b = t->buffers + i;
        if (b->users || !b->memory || ++idle <= IDLE_KEPT) continue;
        freed += b->room;
        free(b->memory);
        *b = (struct buffer){0};
    }
    return freed;
}

uint32_t tp_table_answer(tp_table *t, int buffer, const uint64_t *refs, const uint32_t *lengths, uint32_t count,
                         uint64_t tick, uint64_t *user_data, int *fds)
{
    char *p = t->buffers[buffer].memory;
    uint32_t odd = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t ref = refs[i];
        uint32_t slot = (uint32_t)ref & ((1u << TP_SLOT_BITS) - 1);
        struct connection *conn = slot < t->count ? t->connections + slot : NULL;
        user_data[i] = ref << TP_KIND_BITS | TP_SEND;
        if (conn && conn->owned && conn->send_data == user_data[i] && !conn->length) {
            fds[i] = conn->fd;
            conn->busy = 0;
            conn->since = tick;
            conn->flying = p;
            conn->length = lengths[i];
            conn->buffer = buffer;
            t->buffers[buffer].users++;
        } else {
            fds[i] = -1;
            odd++;
        }
        p += lengths[i];
    }
    return odd;
}

uint32_t tp_table_share(tp_table *t, int buffer, uint32_t length, const uint64_t *refs, uint32_t count,
                        uint64_t *user_data, int *fds, uint32_t *left)
{
    struct buffer *b = t->buffers + buffer;
    uint32_t sends = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t slot = (uint32_t)refs[i] & ((1u << TP_SLOT_BITS) - 1);
        struct connection *conn = slot < t->count ? t->connections + slot : NULL;
        uint64_t send_data = refs[i] << TP_KIND_BITS | TP_SEND;
        if (conn && conn->shares && conn->send_data == send_data && !conn->length && length <= conn->most) {
            conn->flying = b->memory;
            conn->length = length;
            conn->buffer = buffer;
            user_data[sends] = send_data;
            fds[sends++] = conn->fd;
        } else {
            left[i - sends] = i;
        }
    }
    b->users += sends;
    return sends;
}

int64_t tp_table_answer_spans(tp_table *t, const char *memory, uint64_t bytes, const uint64_t *refs,
                              const uint64_t *starts, const uint64_t *ends, uint32_t count, uint64_t tick,
                              uint32_t *lengths, uint64_t *user_data, int *fds, char **data)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (starts[i] >= ends[i] || ends[i] > bytes || ends[i] - starts[i] > INT32_MAX) return -EINVAL;
        lengths[i] = (uint32_t)(ends[i] - starts[i]);
        sum += lengths[i];
    }
    int buffer = tp_table_buffer(t, sum, data);
    if (buffer < 0) return buffer;
    char *p = *data;
    for (uint32_t i = 0; i < count; p += lengths[i++]) memcpy(p, memory + starts[i], lengths[i]);
    return tp_table_answer(t, buffer, refs, lengths, count, tick, user_data, fds);
}
