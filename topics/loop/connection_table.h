/* The table of connections: receives and answers as columns of a pass. See connection_table.c and
 * connection_table.py. Plain declarations, read by the C compiler and by cffi.
 *
 * A connection has a row, by slot. It is owned by the table or left to its Connection object. An
 * owned connection has at most one request unit at a time: received, then taken, then answered by
 * one send. A connection that shares is left to its object except for sends of equal bytes to many
 * connections, made by tp_table_share. A `ref` names a connection and is not reused: it is its
 * send's user_data without the kind, (serial << 24 | slot). */
#ifndef TOPICS_LOOP_CONNECTION_TABLE_H
#define TOPICS_LOOP_CONNECTION_TABLE_H

#include <stdint.h>

/* A user_data is a serial, the slot of its connection (or listener) and its kind, from the
 * highest bits down. */
enum { TP_KIND_BITS = 4, TP_SLOT_BITS = 24 };
enum { TP_FILE = 1, TP_RECV, TP_SEND, TP_ACCEPT, TP_CONTROL };
/* Flags of a completion, as io_uring's: data is in a provided buffer, whose number is flags >>
 * 16; a multishot continues. */
enum { TP_F_BUFFER = 1, TP_F_MORE = 2 };

typedef struct tp_table tp_table;

/* Returns a table with room for `receives` rows of a pass, or NULL: no memory. */
tp_table *tp_table_new(uint32_t receives);
/* Frees the table, except buffers that the kernel may still read from. */
void tp_table_free(tp_table *t);
/* Returns a slot for a connection, or -ENOMEM. */
int64_t tp_table_open(tp_table *t);
void tp_table_set(tp_table *t, uint32_t slot, int fd, uint64_t send_data);
/* Sets the receive in flight, 0 for none. */
void tp_table_reads(tp_table *t, uint32_t slot, uint64_t recv_data);
void tp_table_close(tp_table *t, uint32_t slot);
/* Makes the next receives rows. A request received already is to be answered first. */
void tp_table_own(tp_table *t, uint32_t slot);
/* Lets tp_table_share send from a connection that is open and has nothing to send. most: bytes
 * that it takes in one send. */
void tp_table_begin_sharing(tp_table *t, uint32_t slot, uint32_t most);
/* Leaves a connection to its Connection object. Returns 1 if a request was received and not
 * answered. *flying and *length get the bytes of the send in flight (length 0: none), valid until
 * its completion, or if that has come, until the next call. */
int tp_table_leave(tp_table *t, uint32_t slot, char **flying, uint32_t *length);
/* Returns the tick of the last answer; *busy as tp_table_leave returns it, *length of the send in
 * flight. */
uint64_t tp_table_since(tp_table *t, uint32_t slot, int *busy, uint32_t *length);

/* Takes from `count` completions those that need no Connection object: sends of connections in the
 * table (owned or sharing) that were sent whole, and the receives of owned connections between
 * requests, which become rows. The others are moved to the front, in order; returns their number.
 * buffer_bytes: size of a receive buffer in the memory of all of them; 0: starts and ends count
 * received bytes. */
uint32_t tp_table_sort(tp_table *t, uint32_t count, uint64_t *user_data, int *res, uint32_t *flags,
                       uint64_t buffer_bytes);
/* Returns the number of rows since tp_table_begin, and these columns, which never move. */
uint32_t tp_table_rows(tp_table *t, uint64_t **refs, uint32_t **flags, uint64_t **starts, uint64_t **ends);
void tp_table_begin(tp_table *t);

/* Finds a buffer for answers of at least `bytes`. Returns its number, its memory in *memory, or
 * -ENOMEM: no memory, or 4096 buffers are in flight. The buffer can be returned again as soon as
 * no send is in flight from it. */
int tp_table_buffer(tp_table *t, uint64_t bytes, char **memory);
/* Lists the sends in flight from a buffer, at most `room`: their user_data, and for each its
 * share of the buffer beyond its own bytes, because the buffer is held until its last send has
 * ended. Returns the number of these sends. */
uint32_t tp_table_pinned(tp_table *t, uint32_t room, uint64_t *send_data, uint64_t *bytes);
/* Frees idle buffers except a few, and returns their bytes. Not between tp_table_buffer and
 * tp_table_answer. */
uint64_t tp_table_trim(tp_table *t);
/* Answers from a buffer, one after the other, lengths[i] bytes to refs[i]. The other columns get
 * one row each: fds -1 where the connection is not owned any more, else the send to queue, in
 * flight from now on. Returns the number of fds that are -1. */
uint32_t tp_table_answer(tp_table *t, int buffer, const uint64_t *refs, const uint32_t *lengths, uint32_t count,
                         uint64_t tick, uint64_t *user_data, int *fds);
/* Sends the first `length` bytes of a buffer to all of refs[:count] that share, have no send in
 * flight and take so many bytes. user_data and fds get the sends to queue, in flight from now on;
 * left gets the indexes of the other refs, in order. Returns the number of sends. */
uint32_t tp_table_share(tp_table *t, int buffer, uint32_t length, const uint64_t *refs, uint32_t count,
                        uint64_t *user_data, int *fds, uint32_t *left);
/* Copies the spans memory[starts[i] .. ends[i]), of `bytes`, one after the other into a buffer,
 * and answers with them as tp_table_answer. *data gets the buffer's memory, lengths the size of
 * each. Returns the number of fds that are -1, or -EINVAL for a span that is empty or outside of
 * the memory, or -ENOMEM; nothing is done on an error. */
int64_t tp_table_answer_spans(tp_table *t, const char *memory, uint64_t bytes, const uint64_t *refs,
                              const uint64_t *starts, const uint64_t *ends, uint32_t count, uint64_t tick,
                              uint32_t *lengths, uint64_t *user_data, int *fds, char **data);

#endif
