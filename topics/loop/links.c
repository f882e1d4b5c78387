/* The table of links.py: the work of a pass for each connection, without an object for any of
 * them. No policy. */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "links.h"

enum { BUFFERS_MAX = 4096, IDLE_KEPT = 8 };
#define SLOT_OF(user_data) ((uint32_t)((user_data) >> TP_KIND_BITS) & ((1u << TP_SLOT_BITS) - 1))

struct link {
    uint64_t send_data, recv_data, since;
    char *flying;
    uint32_t length; /* of the send in flight */
    int fd, buffer;  /* buffer: of the send in flight, -1 without one; its completion frees it */
    uint8_t open, owned, busy;
    uint8_t shares; /* its sends are made by tp_links_share */
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

struct tp_links {
    struct link *links;
    uint32_t count, room, free; /* free: slot + 1 of the first free one */
    uint64_t *refs, *starts, *ends, pass;
    uint32_t *flags, rows, rows_room;
    struct buffer buffers[BUFFERS_MAX];
    int buffer_count;
};

tp_links *tp_links_new(uint32_t receives)
{
    tp_links *l = calloc(1, sizeof *l);
    if (!l) return NULL;
    l->rows_room = receives;
    l->refs = calloc(receives, sizeof *l->refs);
    l->starts = calloc(receives, sizeof *l->starts);
    l->ends = calloc(receives, sizeof *l->ends);
    l->flags = calloc(receives, sizeof *l->flags);
    if (l->refs && l->starts && l->ends && l->flags) return l;
    tp_links_free(l);
    return NULL;
}

void tp_links_free(tp_links *l)
{
    for (int i = 0; i < l->buffer_count; i++)
        if (!l->buffers[i].users) free(l->buffers[i].memory);
    free(l->links);
    free(l->refs);
    free(l->starts);
    free(l->ends);
    free(l->flags);
    free(l);
}

int64_t tp_link_open(tp_links *l)
{
    uint32_t slot;
    if (l->free) {
        slot = l->free - 1;
        l->free = l->links[slot].next_free;
    } else {
        if (l->count == 1u << TP_SLOT_BITS) return -ENOMEM;
        if (l->count == l->room) {
            uint32_t room = l->room ? 2 * l->room : 64;
            struct link *links = realloc(l->links, room * sizeof *links);
            if (!links) return -ENOMEM;
            l->links = links;
            l->room = room;
        }
        slot = l->count++;
    }
    l->links[slot] = (struct link){.open = 1, .buffer = -1};
    return slot;
}

void tp_link_set(tp_links *l, uint32_t slot, int fd, uint64_t send_data)
{
    l->links[slot].fd = fd;
    l->links[slot].send_data = send_data;
}

void tp_link_reads(tp_links *l, uint32_t slot, uint64_t recv_data) { l->links[slot].recv_data = recv_data; }

static void give_back(tp_links *l, struct link *link)
{
    if (link->buffer >= 0) l->buffers[link->buffer].users--;
    link->buffer = -1;
    link->ended = 0;
}

void tp_link_close(tp_links *l, uint32_t slot)
{
    struct link *link = l->links + slot;
    if (!link->open) return;
    give_back(l, link);
    *link = (struct link){.buffer = -1, .next_free = l->free};
    l->free = slot + 1;
}

void tp_link_own(tp_links *l, uint32_t slot)
{
    struct link *link = l->links + slot;
    link->owned = link->busy = 1;
    link->length = 0;
}

void tp_link_begin_sharing(tp_links *l, uint32_t slot, uint32_t most)
{
    l->links[slot].shares = 1;
    l->links[slot].most = most;
    l->links[slot].length = 0;
}

int tp_link_leave(tp_links *l, uint32_t slot, char **flying, uint32_t *length)
{
    struct link *link = l->links + slot;
    int busy = link->busy;
    *flying = link->flying;
    *length = link->length;
    link->owned = link->busy = link->shares = 0;
    link->length = 0;
    if (link->ended) give_back(l, link);
    return busy;
}

uint64_t tp_link_since(tp_links *l, uint32_t slot, int *busy, uint32_t *length)
{
    *length = l->links[slot].length;
    *busy = l->links[slot].busy;
    return l->links[slot].since;
}

void tp_links_begin(tp_links *l)
{
    l->rows = 0;
    l->pass++;
}

uint32_t tp_links_sort(tp_links *l, uint32_t count, uint64_t *user_data, int *res, uint32_t *flags,
                       uint64_t buffer_bytes)
{
    uint32_t rest = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t kind = user_data[i] & ((1u << TP_KIND_BITS) - 1);
        uint32_t slot = SLOT_OF(user_data[i]);
        if (slot < l->count && kind == TP_SEND) {
            struct link *link = l->links + slot;
            if (link->send_data == user_data[i] && link->buffer >= 0) {
                int in_table = link->owned || link->shares, whole = in_table && (uint32_t)res[i] == link->length;
                /* After a bad send, the Connection copies the bytes (leave) before the buffer is
                 * used again. */
                if (whole || !in_table) give_back(l, link);
                else link->ended = 1;
                if (whole) {
                    link->length = 0;
                    continue;
                }
            }
        } else if (slot < l->count && kind == TP_RECV && (flags[i] & (TP_F_BUFFER | TP_F_MORE)) == (TP_F_BUFFER | TP_F_MORE)) {
            struct link *link = l->links + slot;
            if (link->owned && link->recv_data == user_data[i] && !link->busy && !link->length &&
                link->passed != l->pass && l->rows < l->rows_room) {
                uint32_t row = l->rows++;
                link->busy = 1;
                l->refs[row] = link->send_data >> TP_KIND_BITS;
                l->flags[row] = flags[i];
                l->starts[row] = buffer_bytes ? (flags[i] >> 16) * buffer_bytes : row ? l->ends[row - 1] : 0;
                l->ends[row] = l->starts[row] + (uint32_t)res[i];
                continue;
            }
            link->passed = l->pass;
        }
        user_data[rest] = user_data[i];
        res[rest] = res[i];
        flags[rest++] = flags[i];
    }
    return rest;
}

uint32_t tp_links_rows(tp_links *l, uint64_t **refs, uint32_t **flags, uint64_t **starts, uint64_t **ends)
{
    *refs = l->refs;
    *flags = l->flags;
    *starts = l->starts;
    *ends = l->ends;
    return l->rows;
}

int tp_links_buffer(tp_links *l, uint64_t bytes, char **memory)
{
    int found = -1;
    for (int i = 0; i < l->buffer_count; i++) {
        struct buffer *b = l->buffers + i;
        if (b->users) continue;
        found = i;
        if (b->room >= bytes) break;
    }
    if (found < 0) {
        if (l->buffer_count == BUFFERS_MAX) return -ENOMEM;
        found = l->buffer_count++;
    }
    struct buffer *b = l->buffers + found;
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

uint32_t tp_links_pinned(tp_links *l, uint32_t room, uint64_t *send_data, uint64_t *bytes)
{
    uint32_t found = 0;
    for (uint32_t i = 0; i < l->count; i++) {
        const struct link *link = l->links + i;
        if (link->buffer < 0) continue;
        const struct buffer *b = l->buffers + link->buffer;
        uint64_t share = b->room / b->users;
        if (found < room) {
            send_data[found] = link->send_data;
            bytes[found] = share > link->length ? share - link->length : 0;
        }
        found++;
    }
    return found;
}

uint64_t tp_links_trim(tp_links *l)
{
    int idle = 0;
    uint64_t freed = 0;
    for (int i = 0; i < l->buffer_count; i++) {
        struct buffer *b = l->buffers + i;
        if (b->users || !b->memory || ++idle <= IDLE_KEPT) continue;
        freed += b->room;
        free(b->memory);
        *b = (struct buffer){0};
    }
    return freed;
}

uint32_t tp_links_answer(tp_links *l, int buffer, const uint64_t *refs, const uint32_t *lengths, uint32_t count,
                         uint64_t tick, uint64_t *user_data, int *fds)
{
    char *p = l->buffers[buffer].memory;
    uint32_t odd = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t ref = refs[i];
        uint32_t slot = (uint32_t)ref & ((1u << TP_SLOT_BITS) - 1);
        struct link *link = slot < l->count ? l->links + slot : NULL;
        user_data[i] = ref << TP_KIND_BITS | TP_SEND;
        if (link && link->owned && link->send_data == user_data[i] && !link->length) {
            fds[i] = link->fd;
            link->busy = 0;
            link->since = tick;
            link->flying = p;
            link->length = lengths[i];
            link->buffer = buffer;
            l->buffers[buffer].users++;
        } else {
            fds[i] = -1;
            odd++;
        }
        p += lengths[i];
    }
    return odd;
}

uint32_t tp_links_share(tp_links *l, int buffer, uint32_t length, const uint64_t *refs, uint32_t count,
                        uint64_t *user_data, int *fds, uint32_t *left)
{
    struct buffer *b = l->buffers + buffer;
    uint32_t sends = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t slot = (uint32_t)refs[i] & ((1u << TP_SLOT_BITS) - 1);
        struct link *link = slot < l->count ? l->links + slot : NULL;
        uint64_t send_data = refs[i] << TP_KIND_BITS | TP_SEND;
        if (link && link->shares && link->send_data == send_data && !link->length && length <= link->most) {
            link->flying = b->memory;
            link->length = length;
            link->buffer = buffer;
            user_data[sends] = send_data;
            fds[sends++] = link->fd;
        } else {
            left[i - sends] = i;
        }
    }
    b->users += sends;
    return sends;
}

int64_t tp_links_answer_spans(tp_links *l, const char *memory, uint64_t bytes, const uint64_t *refs,
                              const uint64_t *starts, const uint64_t *ends, uint32_t count, uint64_t tick,
                              uint32_t *lengths, uint64_t *user_data, int *fds, char **data)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (starts[i] >= ends[i] || ends[i] > bytes || ends[i] - starts[i] > INT32_MAX) return -EINVAL;
        lengths[i] = (uint32_t)(ends[i] - starts[i]);
        sum += lengths[i];
    }
    int buffer = tp_links_buffer(l, sum, data);
    if (buffer < 0) return buffer;
    char *p = *data;
    for (uint32_t i = 0; i < count; p += lengths[i++]) memcpy(p, memory + starts[i], lengths[i]);
    return tp_links_answer(l, buffer, refs, lengths, count, tick, user_data, fds);
}
