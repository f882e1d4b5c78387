/* Connections whose receives and answers are columns of a pass: see links.c and links.py. Plain
 * declarations, read by the C compiler and by cffi.
 *
 * A link is a connection's row, by slot. It is owned by the columns or left to its Connection
 * object. An owned link has at most one request unit at a time: received, then taken, then
 * answered by one send. A link that shares is left to its Connection except for sends of equal
 * bytes to many links, made by tp_links_share. A `ref` names a link and is not reused: it is its
 * send's user_data without the kind, (serial << 24 | slot). */
#ifndef TOPICS_LOOP_LINKS_H
#define TOPICS_LOOP_LINKS_H

#include <stdint.h>

/* A user_data is a serial, the slot of its connection (or listener) and its kind, from the
 * highest bits down. */
enum { TP_KIND_BITS = 4, TP_SLOT_BITS = 24 };
enum { TP_FILE = 1, TP_RECV, TP_SEND, TP_ACCEPT, TP_CONTROL };
/* Flags of a completion, as io_uring's: data is in a provided buffer, whose number is flags >>
 * 16; a multishot continues. */
enum { TP_F_BUFFER = 1, TP_F_MORE = 2 };

typedef struct tp_links tp_links;

/* Returns a table with room for `receives` rows of a pass, or NULL: no memory. */
tp_links *tp_links_new(uint32_t receives);
/* Frees the table, except buffers that the kernel may still read from. */
void tp_links_free(tp_links *l);
/* Returns a slot for a connection, or -ENOMEM. */
int64_t tp_link_open(tp_links *l);
void tp_link_set(tp_links *l, uint32_t slot, int fd, uint64_t send_data);
/* Sets the receive in flight, 0 for none. */
void tp_link_reads(tp_links *l, uint32_t slot, uint64_t recv_data);
void tp_link_close(tp_links *l, uint32_t slot);
/* Makes the next receives rows. A request received already is to be answered first. */
void tp_link_own(tp_links *l, uint32_t slot);
/* Lets tp_links_share send from a link that is open and has nothing to send. most: bytes that it
 * takes in one send. */
void tp_link_begin_sharing(tp_links *l, uint32_t slot, uint32_t most);
/* Returns a link to its Connection. Returns 1 if a request was received and not answered.
 * *flying and *length get the bytes of the send in flight (length 0: none), valid until its
 * completion, or if that has come, until the next call. */
int tp_link_leave(tp_links *l, uint32_t slot, char **flying, uint32_t *length);
/* Returns the tick of the last answer; *busy as tp_link_leave returns it, *length of the send in
 * flight. */
uint64_t tp_link_since(tp_links *l, uint32_t slot, int *busy, uint32_t *length);

/* Takes from `count` completions those that need no Connection: sends of links in the table (owned
 * or sharing) that were sent whole, and the receives of owned links between requests, which become
 * rows. The others are moved to the front, in order; returns their number. buffer_bytes: size of a
 * receive buffer in the memory of all of them; 0: starts and ends count received bytes. */
uint32_t tp_links_sort(tp_links *l, uint32_t count, uint64_t *user_data, int *res, uint32_t *flags,
                       uint64_t buffer_bytes);
/* Returns the number of rows since tp_links_begin, and these columns, which never move. */
uint32_t tp_links_rows(tp_links *l, uint64_t **refs, uint32_t **flags, uint64_t **starts, uint64_t **ends);
void tp_links_begin(tp_links *l);

/* Finds a buffer for answers of at least `bytes`. Returns its number, its memory in *memory, or
 * -ENOMEM: no memory, or 4096 buffers are in flight. The buffer can be returned again as soon as
 * no send is in flight from it. */
int tp_links_buffer(tp_links *l, uint64_t bytes, char **memory);
/* Lists the sends in flight from a buffer, at most `room`: their user_data, and for each its
 * share of the buffer beyond its own bytes, because the buffer is held until its last send has
 * ended. Returns the number of these sends. */
uint32_t tp_links_pinned(tp_links *l, uint32_t room, uint64_t *send_data, uint64_t *bytes);
/* Frees idle buffers except a few, and returns their bytes. Not between tp_links_buffer and
 * tp_links_answer. */
uint64_t tp_links_trim(tp_links *l);
/* Answers from a buffer, one after the other, lengths[i] bytes to refs[i]. The other columns get
 * one row each: fds -1 where the link is not owned any more, else the send to queue, in flight
 * from now on. Returns the number of fds that are -1. */
uint32_t tp_links_answer(tp_links *l, int buffer, const uint64_t *refs, const uint32_t *lengths, uint32_t count,
                         uint64_t tick, uint64_t *user_data, int *fds);
/* Sends the first `length` bytes of a buffer to all of refs[:count] that share, have no send in
 * flight and take so many bytes. user_data and fds get the sends to queue, in flight from now on;
 * left gets the indexes of the other refs, in order. Returns the number of sends. */
uint32_t tp_links_share(tp_links *l, int buffer, uint32_t length, const uint64_t *refs, uint32_t count,
                        uint64_t *user_data, int *fds, uint32_t *left);
/* Copies the spans memory[starts[i] .. ends[i]), of `bytes`, one after the other into a buffer,
 * and answers with them as tp_links_answer. *data gets the buffer's memory, lengths the size of
 * each. Returns the number of fds that are -1, or -EINVAL for a span that is empty or outside of
 * the memory, or -ENOMEM; nothing is done on an error. */
int64_t tp_links_answer_spans(tp_links *l, const char *memory, uint64_t bytes, const uint64_t *refs,
                              const uint64_t *starts, const uint64_t *ends, uint32_t count, uint64_t tick,
                              uint32_t *lengths, uint64_t *user_data, int *fds, char **data);

#endif
