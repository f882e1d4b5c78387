/* The C functions of topics/uring/uring_ring.py: prepare SQEs, submit and wait, copy CQEs out. The
 * first lines of ring.c list the decisions that are made in C.
 *
 * Plain declarations, read by the C compiler and by cffi. Every function returns 0 or a count, or
 * -errno. A refused ring (tp_refuse) returns its reason from all of them. */
#ifndef TOPICS_URING_RING_H
#define TOPICS_URING_RING_H

#include <stddef.h>
#include <stdint.h>

typedef struct tp_ring tp_ring;

/* Setup flags of io_uring_setup(2), as bits of our own. */
#define TP_SUBMIT_ALL 1
#define TP_SINGLE_ISSUER 2
#define TP_DEFER_TASKRUN 4
#define TP_COOP_TASKRUN 8

/* Open a ring of `entries` SQEs and `completions` CQEs. `wake_fd` is a blocking socket: a receive
 * on it is always armed, and any byte that arrives there ends a wait. */
int tp_open(tp_ring **out, unsigned entries, unsigned completions, unsigned setup, unsigned workers, int wake_fd);
/* Unmap and free a ring that has nothing in flight. */
void tp_free(tp_ring *ring);
/* Unmap in a forked child: no system call touches the parent's ring. */
void tp_refuse(tp_ring *ring, int error);
/* Return a ring that was never open and refuses everything with -EBADF. It replaces a closed one.
 * */
tp_ring *tp_closed(void);
/* Set supported[i] = 1 for each opcode i < count that the kernel knows. */
int tp_opcodes(tp_ring *ring, uint8_t *supported, unsigned count);
/* Register `count` (a power of two) receive buffers of `size` bytes each, from `base` on. */
int tp_provide(tp_ring *ring, uint8_t *base, unsigned count, unsigned size);
/* Give back the buffers that the flags of completions name; flags without a buffer are skipped.
 * -EINVAL, and nothing is given back: a buffer that is not lent. */
int tp_recycle(tp_ring *ring, const uint32_t *flags, unsigned count);
/* Return the number of receive buffers reaped and not yet recycled. */
unsigned tp_lent(tp_ring *ring);
/* Return the number of operations whose last CQE has not been reaped; after tp_cancel_all, with our
 * own ones. */
unsigned tp_in_flight(tp_ring *ring);

int tp_accept(tp_ring *ring, uint64_t user_data, int fd);
int tp_connect(tp_ring *ring, uint64_t user_data, int fd, const void *address, unsigned length);
int tp_recv(tp_ring *ring, uint64_t user_data, int fd);
int tp_send(tp_ring *ring, uint64_t user_data, int fd, const void *data, size_t length);
/* Queue `count` sends, whose bytes follow each other at `data`; those of a negative fd are
 * skipped. */
int tp_sends(tp_ring *ring, unsigned count, const uint64_t *user_data, const int *fds, const uint32_t *lengths,
             const uint8_t *data);
/* Queue a send of the same bytes to `count` descriptors. */
int tp_broadcast(tp_ring *ring, unsigned count, const uint64_t *user_data, const int *fds, const uint8_t *data,
                 size_t length);
/* Call send(2), which never waits: returns the count, perhaps short, or -errno. It has no
 * completion. */
int64_t tp_send_now(tp_ring *ring, int fd, const char *data, size_t length);
int tp_shutdown(tp_ring *ring, uint64_t user_data, int fd, int sends_only);
int tp_poll(tp_ring *ring, uint64_t user_data, int fd);
int tp_openat(tp_ring *ring, uint64_t user_data, const char *path, int flags, unsigned mode);
int tp_close(tp_ring *ring, uint64_t user_data, int fd);
int tp_read(tp_ring *ring, uint64_t user_data, int fd, void *buffer, size_t length, uint64_t offset);
int tp_write(tp_ring *ring, uint64_t user_data, int fd, const void *buffer, size_t length, int64_t offset, int dsync);
int tp_commit(tp_ring *ring, uint64_t write_data, uint64_t sync_data, int fd, const void *buffer, size_t length,
              uint64_t offset);
int tp_fsync(tp_ring *ring, uint64_t user_data, int fd, int data_only);
int tp_rename(tp_ring *ring, uint64_t user_data, const char *from, const char *to);
int tp_unlink(tp_ring *ring, uint64_t user_data, const char *path);
int tp_cancel(tp_ring *ring, uint64_t user_data, uint64_t target);
/* Begin to close: cancel all that can be cancelled, the wake-up too. */
int tp_cancel_all(tp_ring *ring);
int tp_nop(tp_ring *ring, uint64_t user_data);

/* Set how long a wait polls before it sleeps, while waits prove to be that short; 0: it never
 * polls. load_fd: a descriptor of /proc/loadavg, held by the caller: waits poll only while at most
 * `cores` threads run and single completions come, one after the other; -1: whatever runs. */
void tp_spin(tp_ring *ring, int64_t ns, int load_fd, unsigned cores);
/* Return the descriptor of the ring, which is readable while there are CQEs; -1: it is closed. */
int tp_fd(tp_ring *ring);
/* Return 1 if a wake-up makes a CQE, which that descriptor shows; 0: one was reaped, with no wait
 * since. */
int tp_shows_wakes(tp_ring *ring);
/* Return the number of waits that polled. */
uint64_t tp_spins(tp_ring *ring);
/* Submit, and wait for at least one CQE unless some are unreaped. timeout_ns: 0: do not wait; < 0:
 * for ever. After small sends it waits for one more than their own, and only for a short time, so
 * it may return without any. A signal and the timeout are no errors. */
int tp_submit_and_wait(tp_ring *ring, int64_t timeout_ns);
/* Submit and wait like tp_submit_and_wait. If the only CQE then is a receive that brings data and
 * continues, return it: its receive buffer << 32 | its count, and its user_data in *user_data. 0:
 * there is something else, or nothing. The next wait gives the buffer back, unless tp_reap was
 * called before, which then returns this CQE first. */
int64_t tp_wait_single(tp_ring *ring, int64_t timeout_ns, uint64_t *user_data);
/* Copy up to `room` CQEs out, oldest first, without our own (user_data 0). Return the count. */
int tp_reap(tp_ring *ring, uint64_t *user_data, int *res, uint32_t *flags, unsigned room);

/* Write past the ring, before returning. Return the count, which may be short, or -errno. */
int64_t tp_write_now(int fd, const char *bytes, uint64_t size, uint64_t offset, int dsync);

#endif
