/* The few C functions behind topics/uring/uring_ring.py: prepare SQEs, submit and wait, copy CQEs out.
   How waits are made short is decided in ring.c, whose first lines say so.
   Read twice, by the C compiler and by cffi: plain declarations only.
   Every function answers 0 (or a count) or -errno; a refused ring (tp_refuse) answers its reason to all of them. */
#ifndef TOPICS_URING_RING_H
#define TOPICS_URING_RING_H

#include <stddef.h>
#include <stdint.h>

typedef struct tp_ring tp_ring;

/* What the kernel was asked for: setup flags of io_uring_setup(2), as bits of our own. */
#define TP_SUBMIT_ALL 1
#define TP_SINGLE_ISSUER 2
#define TP_DEFER_TASKRUN 4
#define TP_COOP_TASKRUN 8

/* Opens a ring of `entries` SQEs and `completions` CQEs. `wake_fd` is a blocking socket: a receive on it is kept
   armed, and whatever arrives there ends a wait. */
int tp_open(tp_ring **out, unsigned entries, unsigned completions, unsigned setup, unsigned workers, int wake_fd);
/* Unmaps and frees; the caller has seen to it that nothing is in flight. */
void tp_free(tp_ring *ring);
/* Unmaps in a forked child: no system call touches the parent's ring. */
void tp_refuse(tp_ring *ring, int error);
/* A ring that was never open and refuses everything with -EBADF: what a closed one is replaced by. */
tp_ring *tp_closed(void);
unsigned tp_features(tp_ring *ring);
/* supported[i] = 1 for each opcode i < count the kernel knows. */
int tp_opcodes(tp_ring *ring, uint8_t *supported, unsigned count);
/* Registers `count` (a power of two) receive buffers of `size` bytes each, lying at `base`. */
int tp_provide(tp_ring *ring, uint8_t *base, unsigned count, unsigned size);
/* Gives the buffers named by completions' flags back; those without a buffer are passed over.
   -EINVAL, and nothing is given back: a buffer that is not lent. */
int tp_recycle(tp_ring *ring, const uint32_t *flags, unsigned count);
unsigned tp_lent(tp_ring *ring);
/* Operations whose last CQE has not been reaped; after tp_cancel_all our own ones too. */
unsigned tp_in_flight(tp_ring *ring);

int tp_accept(tp_ring *ring, uint64_t user_data, int fd);
int tp_connect(tp_ring *ring, uint64_t user_data, int fd, const void *address, unsigned length);
int tp_recv(tp_ring *ring, uint64_t user_data, int fd);
int tp_send(tp_ring *ring, uint64_t user_data, int fd, const void *data, size_t length);
/* `count` sends, whose bytes lie one after the other at `data`; those of a negative fd are passed over. */
int tp_sends(tp_ring *ring, unsigned count, const uint64_t *user_data, const int *fds, const uint32_t *lengths,
             const uint8_t *data);
/* The same bytes to `count` descriptors. */
int tp_broadcast(tp_ring *ring, unsigned count, const uint64_t *user_data, const int *fds, const uint8_t *data,
                 size_t length);
/* send(2), which never waits: the count, perhaps short, or -errno. No completion comes. */
int64_t tp_send_now(tp_ring *ring, int fd, const char *data, size_t length);
int tp_shutdown(tp_ring *ring, uint64_t user_data, int fd, int sends_only);
int tp_openat(tp_ring *ring, uint64_t user_data, const char *path, int flags, unsigned mode);
int tp_close(tp_ring *ring, uint64_t user_data, int fd);
int tp_read(tp_ring *ring, uint64_t user_data, int fd, void *buffer, size_t length, uint64_t offset);
int tp_write(tp_ring *ring, uint64_t user_data, int fd, const void *buffer, size_t length, uint64_t offset, int dsync);
int tp_commit(tp_ring *ring, uint64_t write_data, uint64_t sync_data, int fd, const void *buffer, size_t length,
              uint64_t offset);
int tp_fsync(tp_ring *ring, uint64_t user_data, int fd, int data_only);
int tp_rename(tp_ring *ring, uint64_t user_data, const char *from, const char *to);
int tp_unlink(tp_ring *ring, uint64_t user_data, const char *path);
int tp_cancel(tp_ring *ring, uint64_t user_data, uint64_t target);
/* The beginning of the end: cancels all that can be cancelled, the wake-up too. */
int tp_cancel_all(tp_ring *ring);
int tp_nop(tp_ring *ring, uint64_t user_data);

/* From here on a wait polls for so long before it sleeps, as long as waits prove to be that short; 0: never. */
void tp_spin(tp_ring *ring, int64_t ns);
/* Waits that polled. */
uint64_t tp_spins(tp_ring *ring);
/* Submits; waits for one CQE at least, but not when some are unreaped, and not for timeout_ns == 0; < 0: for ever.
   After small sends it waits for one more than their own, and for a short time only, so it may return without any.
   A signal and the timeout are no errors. */
int tp_submit_and_wait(tp_ring *ring, int64_t timeout_ns);
/* Copies up to `room` CQEs out, oldest first, our own (user_data 0) left out; the count copied. */
int tp_reap(tp_ring *ring, uint64_t *user_data, int *res, uint32_t *flags, unsigned room);

#endif
