/* Prepare, submit, copy out. Declarations and contracts: ring.h.
 *
 * uring_ring.py decides what to submit and how long to wait. This file decides what needs the
 * kernel's queues between two system calls:
 *   - whether a wait polls before it sleeps: it does while recent polling has paid off and, with a
 *     load file, single completions come and a core is idle (SPINS_IN_VAIN, may_spin, came_soon);
 *   - how many completions a wait is for: one more than the small sends that were queued, whose own
 *     completions wake no client, but not for longer than SENDS_WAIT_NS (tp_submit_and_wait);
 *   - that completions are moved aside while the kernel takes no more submissions (make_room,
 *     stash_completions). */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <poll.h>
#include <sched.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "ring.h"

#define BUFFER_GROUP 1
#define LONGEST_WAIT_S 3600
#define ROOM_ATTEMPTS 100000
#define SENDS_WAIT_NS 50000
#define SMALL_SEND_BYTES 16384
#define SPINS_IN_VAIN 4
#define DATA_AND_MORE (IORING_CQE_F_BUFFER | IORING_CQE_F_MORE)
#define SINGLE_REAPS 8  /* in a row, after which one client is likely to wait for each answer */
#define LOAD_NS 1000000 /* for so long the number of running threads is believed */

struct tp_ring {
    struct io_uring uring;
    int refused;                      /* -errno every function answers: closed, or forked */
    int wake_fd;
    int wake_armed, closing;
    unsigned own_in_flight;           /* our own: the wake-up, the cancel of everything */
    uint8_t wake_bytes[256];
    unsigned in_flight;
    unsigned sends;                   /* small ones, queued since the last wait */
    struct io_uring_cqe *stash;       /* CQEs taken out of a full CQ to make room; reaped first */
    size_t stash_start, stash_end, stash_room;
    struct io_uring_buf_ring *buffers;
    size_t buffers_bytes;
    uint8_t *base;
    uint8_t *lent;                    /* 1: the caller has this receive buffer */
    unsigned buffer_count, buffer_size, lent_count;
    uint64_t single;                  /* user_data of what tp_wait_single returned; 0: nothing */
    int single_res;
    uint32_t single_flags;
    int64_t spin_ns;                  /* 0: waits always sleep */
    unsigned spins_left;              /* that may end in vain before waits sleep at once again */
    uint64_t spins;
    int load_fd;                      /* -1: polling asks for no idle core */
    unsigned cores;                   /* most running threads with which one may be idle */
    unsigned single_reaps;            /* in a row: reaps of one completion */
    unsigned has_idle_core;           /* as of load_read_ns */
    int64_t load_read_ns;             /* when load_fd was read; 0: never */
};

int tp_open(tp_ring **out, unsigned entries, unsigned completions, unsigned setup, unsigned workers, int wake_fd)
{
    struct io_uring_params params;
    tp_ring *r = calloc(1, sizeof *r);
    int result;

    *out = NULL;
    if (!r) return -ENOMEM;
    r->load_fd = -1;
    memset(&params, 0, sizeof params);
    params.flags = IORING_SETUP_CQSIZE;
    params.cq_entries = completions;
    if (setup & TP_SUBMIT_ALL) params.flags |= IORING_SETUP_SUBMIT_ALL;
    if (setup & TP_SINGLE_ISSUER) params.flags |= IORING_SETUP_SINGLE_ISSUER;
    if (setup & TP_DEFER_TASKRUN) params.flags |= IORING_SETUP_DEFER_TASKRUN;
    if (setup & TP_COOP_TASKRUN) params.flags |= IORING_SETUP_COOP_TASKRUN;
    result = io_uring_queue_init_params(entries, &r->uring, &params);
    if (result < 0) {
        free(r);
        return result;
    }
    result = io_uring_ring_dontfork(&r->uring);
    if (result == 0 && workers) {
        unsigned limits[2] = {workers, workers};    /* bounded (files), unbounded (the rest) */
        result = io_uring_register_iowq_max_workers(&r->uring, limits);
        if (result == -EINVAL) result = 0;          /* before 5.15: the kernel's own cap */
    }
    if (result < 0) {
        io_uring_queue_exit(&r->uring);
        free(r);
        return result;
    }
    r->wake_fd = wake_fd;
    *out = r;
    return 0;
}

void tp_free(tp_ring *r)
{
    if (r->refused != -ECHILD) {
        io_uring_queue_exit(&r->uring);
        if (r->buffers) munmap(r->buffers, r->buffers_bytes);
    }
    free(r->lent);
    free(r->stash);
    free(r);
}

void tp_refuse(tp_ring *r, int error) { r->refused = error; }
static tp_ring closed_ring = {.refused = -EBADF};
tp_ring *tp_closed(void) { return &closed_ring; }
unsigned tp_in_flight(tp_ring *r) { return r->in_flight + (r->closing ? r->own_in_flight : 0); }
unsigned tp_lent(tp_ring *r) { return r->lent_count; }

int tp_opcodes(tp_ring *r, uint8_t *supported, unsigned count)
{
    struct io_uring_probe *probe = io_uring_get_probe_ring(&r->uring);
    if (!probe) return -ENOMEM;
    for (unsigned i = 0; i < count; i++) supported[i] = i < 256 && io_uring_opcode_supported(probe, (int)i);
    io_uring_free_probe(probe);
    return 0;
}

/* --- receive buffers ------------------------------------------------------------------------------------------- */

int tp_provide(tp_ring *r, uint8_t *base, unsigned count, unsigned size)
{
    struct io_uring_buf_reg reg;
    int result;

    if (r->refused) return r->refused;
    if (r->buffers || count == 0 || count > 32768 || (count & (count - 1))) return -EINVAL;
    r->lent = calloc(count, 1);
    if (!r->lent) return -ENOMEM;
    r->buffers_bytes = count * sizeof(struct io_uring_buf);
    r->buffers = mmap(NULL, r->buffers_bytes, PROT_READ | PROT_WRITE, MAP_ANONYMOUS | MAP_PRIVATE, -1, 0);
    if (r->buffers == MAP_FAILED) {
        r->buffers = NULL;
        return -ENOMEM;
    }
    madvise(r->buffers, r->buffers_bytes, MADV_DONTFORK);
    memset(&reg, 0, sizeof reg);
    reg.ring_addr = (uint64_t)(uintptr_t)r->buffers;
    reg.ring_entries = count;
    reg.bgid = BUFFER_GROUP;
    result = io_uring_register_buf_ring(&r->uring, &reg, 0);
    if (result < 0) {
        munmap(r->buffers, r->buffers_bytes);
        r->buffers = NULL;
        return result;
    }
    r->base = base;
    r->buffer_count = count;
    r->buffer_size = size;
    io_uring_buf_ring_init(r->buffers);
    for (unsigned i = 0; i < count; i++)
        io_uring_buf_ring_add(r->buffers, base + (size_t)i * size, size, (unsigned short)i, (int)count - 1, (int)i);
    io_uring_buf_ring_advance(r->buffers, (int)count);
    return 0;
}

int tp_recycle(tp_ring *r, const uint32_t *flags, unsigned count)
{
    int added = 0;

    if (r->refused) return r->refused;
    for (unsigned i = 0; i < count; i++) {
        unsigned id = flags[i] >> IORING_CQE_BUFFER_SHIFT;
        if (!(flags[i] & IORING_CQE_F_BUFFER)) continue;
        if (id >= r->buffer_count || r->lent[id] != 1) {
            while (i--)     /* named twice, or never lent: undo the marks, give nothing back */
                if (flags[i] & IORING_CQE_F_BUFFER) r->lent[flags[i] >> IORING_CQE_BUFFER_SHIFT] = 1;
            return -EINVAL;
        }
        r->lent[id] = 0;
        io_uring_buf_ring_add(r->buffers, r->base + (size_t)id * r->buffer_size, r->buffer_size, (unsigned short)id,
                              (int)r->buffer_count - 1, added++);
    }
    io_uring_buf_ring_advance(r->buffers, added);
    r->lent_count -= (unsigned)added;
    return 0;
}

/* --- room in the submission queue --------------------------------------------------------------------------------- */

static int keep(tp_ring *r, const struct io_uring_cqe *cqe)
{
    if (r->stash_end == r->stash_room) {
        size_t room = r->stash_room ? 2 * r->stash_room : 1024;
        struct io_uring_cqe *grown = realloc(r->stash, room * sizeof *grown);
        if (!grown) return -ENOMEM;
        r->stash = grown;
        r->stash_room = room;
    }
    r->stash[r->stash_end++] = *cqe;
    return 0;
}

/* Move every CQE out of the queue, so that the kernel may post more and take submissions again. */
static int stash_completions(tp_ring *r)
{
    struct io_uring_cqe *cqe;
    unsigned head, count = 0;
    int result = 0;

    io_uring_for_each_cqe(&r->uring, head, cqe) {
        result = keep(r, cqe);
        if (result < 0) break;
        count++;
    }
    io_uring_cq_advance(&r->uring, count);
    return result;
}

/* Submit until `count` SQEs are free. EBUSY and EAGAIN mean: reap first. */
static int make_room(tp_ring *r, unsigned count)
{
    for (int attempt = 0; attempt < ROOM_ATTEMPTS; attempt++) {
        int result = io_uring_submit(&r->uring);
        if (io_uring_sq_space_left(&r->uring) >= count) return 0;
        if (result == -EBUSY || result == -EAGAIN) {
            result = stash_completions(r);
            if (result < 0) return result;
            result = io_uring_get_events(&r->uring);
        }
        if (result < 0 && result != -EINTR && result != -EBUSY && result != -EAGAIN) return result;
    }
    return -EBUSY;
}

/* Return the next SQE to fill; NULL, with *error set, when the ring is refused or the kernel takes
 * no more. */
static inline struct io_uring_sqe *next_sqe(tp_ring *r, uint64_t user_data, int *error)
{
    struct io_uring_sqe *sqe;

    if (r->refused) {
        *error = r->refused;
        return NULL;
    }
    if (!user_data) {
        *error = -EINVAL;
        return NULL;
    }
    sqe = io_uring_get_sqe(&r->uring);
    if (__builtin_expect(!sqe, 0)) {
        *error = make_room(r, 1);
        if (*error < 0) return NULL;
        sqe = io_uring_get_sqe(&r->uring);
    }
    r->in_flight++;
    return sqe;
}

/* Cut a length to what the kernel moves at a time, less than 2 GiB: in the 32 bits of an SQE it
 * would wrap. */
static inline unsigned bounded(size_t length) { return length > 0x7ffff000 ? 0x7ffff000 : (unsigned)length; }

/* --- one function an operation ------------------------------------------------------------------------------------ */

#define PREPARE(call)                                                 \
    int error = 0;                                                    \
    struct io_uring_sqe *sqe = next_sqe(r, user_data, &error);        \
    if (!sqe) return error;                                           \
    call;                                                             \
    io_uring_sqe_set_data64(sqe, user_data);                          \
    return 0

int tp_accept(tp_ring *r, uint64_t user_data, int fd)
{
    PREPARE(io_uring_prep_multishot_accept(sqe, fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK));
}

int tp_connect(tp_ring *r, uint64_t user_data, int fd, const void *address, unsigned length)
{
    PREPARE(io_uring_prep_connect(sqe, fd, address, length));
}

int tp_recv(tp_ring *r, uint64_t user_data, int fd)
{
    PREPARE(io_uring_prep_recv_multishot(sqe, fd, NULL, 0, 0); sqe->flags |= IOSQE_BUFFER_SELECT;
            sqe->buf_group = BUFFER_GROUP);
}

int tp_send(tp_ring *r, uint64_t user_data, int fd, const void *data, size_t length)
{
    PREPARE(io_uring_prep_send(sqe, fd, data, bounded(length), MSG_NOSIGNAL); r->sends += length <= SMALL_SEND_BYTES);
}

int tp_sends(tp_ring *r, unsigned count, const uint64_t *user_data, const int *fds, const uint32_t *lengths,
             const uint8_t *data)
{
    for (unsigned i = 0; i < count; i++) {
        int result = fds[i] < 0 ? 0 : tp_send(r, user_data[i], fds[i], data, lengths[i]);
        if (result < 0) return result;
        data += lengths[i];
    }
    return 0;
}

int tp_broadcast(tp_ring *r, unsigned count, const uint64_t *user_data, const int *fds, const uint8_t *data,
                 size_t length)
{
    for (unsigned i = 0; i < count; i++) {
        int result = tp_send(r, user_data[i], fds[i], data, length);
        if (result < 0) return result;
    }
    return 0;
}

int64_t tp_send_now(tp_ring *r, int fd, const char *data, size_t length)
{
    if (r->refused) return r->refused;
    ssize_t count = send(fd, data, bounded(length), MSG_NOSIGNAL | MSG_DONTWAIT);
    return count < 0 ? -errno : count;
}

int tp_shutdown(tp_ring *r, uint64_t user_data, int fd, int sends_only)
{
    PREPARE(io_uring_prep_shutdown(sqe, fd, sends_only ? SHUT_WR : SHUT_RDWR));
}

int tp_poll(tp_ring *r, uint64_t user_data, int fd)
{
    PREPARE(io_uring_prep_poll_add(sqe, fd, POLLIN));
}

int tp_openat(tp_ring *r, uint64_t user_data, const char *path, int flags, unsigned mode)
{
    PREPARE(io_uring_prep_openat(sqe, AT_FDCWD, path, flags | O_CLOEXEC | O_NOFOLLOW, mode));
}

int tp_close(tp_ring *r, uint64_t user_data, int fd) { PREPARE(io_uring_prep_close(sqe, fd)); }

int tp_read(tp_ring *r, uint64_t user_data, int fd, void *buffer, size_t length, uint64_t offset)
{
    PREPARE(io_uring_prep_read(sqe, fd, buffer, bounded(length), offset));
}

int tp_write(tp_ring *r, uint64_t user_data, int fd, const void *buffer, size_t length, int64_t offset, int dsync)
{
    PREPARE(io_uring_prep_write(sqe, fd, buffer, bounded(length), (uint64_t)offset); sqe->rw_flags = dsync ? RWF_DSYNC : 0);
}

/* Both SQEs are reserved first: a submit between them would cut the chain, and the sync would then
 * run after a failed write. The link is soft: a hard one would let the sync succeed after a short
 * write. */
int tp_commit(tp_ring *r, uint64_t write_data, uint64_t sync_data, int fd, const void *buffer, size_t length,
              uint64_t offset)
{
    struct io_uring_sqe *write, *sync;
    int result;

    if (r->refused) return r->refused;
    if (!write_data || !sync_data) return -EINVAL;
    if (io_uring_sq_space_left(&r->uring) < 2) {
        result = make_room(r, 2);
        if (result < 0) return result;
    }
    write = io_uring_get_sqe(&r->uring);
    io_uring_prep_write(write, fd, buffer, bounded(length), offset);
    write->flags |= IOSQE_IO_LINK;
    io_uring_sqe_set_data64(write, write_data);
    sync = io_uring_get_sqe(&r->uring);
    io_uring_prep_fsync(sync, fd, IORING_FSYNC_DATASYNC);
    io_uring_sqe_set_data64(sync, sync_data);
    r->in_flight += 2;
    return 0;
}

int tp_fsync(tp_ring *r, uint64_t user_data, int fd, int data_only)
{
    PREPARE(io_uring_prep_fsync(sqe, fd, data_only ? IORING_FSYNC_DATASYNC : 0));
}

int tp_rename(tp_ring *r, uint64_t user_data, const char *from, const char *to)
{
    PREPARE(io_uring_prep_renameat(sqe, AT_FDCWD, from, AT_FDCWD, to, 0));
}

int tp_unlink(tp_ring *r, uint64_t user_data, const char *path)
{
    PREPARE(io_uring_prep_unlinkat(sqe, AT_FDCWD, path, 0));
}

int tp_cancel(tp_ring *r, uint64_t user_data, uint64_t target)
{
    if (!target) return -EINVAL;      /* 0 is our own wake-up */
    PREPARE(io_uring_prep_cancel64(sqe, target, 0));
}

int tp_cancel_all(tp_ring *r)
{
    struct io_uring_sqe *sqe;
    int result;

    if (r->refused) return r->refused;
    if (!io_uring_sq_space_left(&r->uring) && (result = make_room(r, 1)) < 0) return result;
    sqe = io_uring_get_sqe(&r->uring);
    io_uring_prep_cancel64(sqe, 0, IORING_ASYNC_CANCEL_ANY | IORING_ASYNC_CANCEL_ALL);
    io_uring_sqe_set_data64(sqe, 0);
    r->own_in_flight++;
    r->closing = 1;                   /* the wake-up is cancelled too, and stays so */
    return 0;
}

int tp_nop(tp_ring *r, uint64_t user_data) { PREPARE(io_uring_prep_nop(sqe)); }

/* --- submit, wait, reap --------------------------------------------------------------------------------------------- */

static int arm_wake(tp_ring *r)
{
    struct io_uring_sqe *sqe;
    int result;

    if (!io_uring_sq_space_left(&r->uring) && (result = make_room(r, 1)) < 0) return result;
    sqe = io_uring_get_sqe(&r->uring);
    io_uring_prep_recv(sqe, r->wake_fd, r->wake_bytes, sizeof r->wake_bytes, 0);
    io_uring_sqe_set_data64(sqe, 0);
    r->own_in_flight++;
    r->wake_armed = 1;
    return 0;
}

void tp_spin(tp_ring *r, int64_t ns, int load_fd, unsigned cores)
{
    r->spin_ns = ns;
    r->load_fd = load_fd;
    r->cores = cores;
}

uint64_t tp_spins(tp_ring *r) { return r->spins; }

int tp_shows_wakes(tp_ring *r) { return r->wake_armed; }
int tp_fd(tp_ring *r) { return r->refused ? -1 : r->uring.ring_fd; }

static int64_t now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

/* Poll for at most `ns`, until there are more than `sends`
 * completions. Another thread that wants this core has it meanwhile, a kernel worker too. */
static int spin(tp_ring *r, unsigned sends, int64_t began, int64_t ns)
{
    int result;

    r->spins++;
    do {
        sched_yield();
        result = io_uring_get_events(&r->uring);
    } while (result >= 0 && io_uring_cq_ready(&r->uring) <= sends && now_ns() - began < ns);
    return result;
}

/* Return the number of running threads in a text like "0.52 1.01 0.88 2/345 6789"; 0: it is
 * none. */
static unsigned running_in(const char *text)
{
    for (int field = 0; field < 3; field++) {
        text = strchr(text, ' ');
        if (!text) return 0;
        text++;
    }
    return (unsigned)strtoul(text, NULL, 10);
}

/* Return whether polling takes no core from another thread, and one client at a time is served. */
static int may_spin(tp_ring *r, int64_t now)
{
    if (!r->spins_left) return 0;
    if (r->load_fd < 0) return 1;
    if (r->single_reaps < SINGLE_REAPS) return 0;
    if (!r->load_read_ns || now - r->load_read_ns > LOAD_NS) {
        char text[128];
        ssize_t size = pread(r->load_fd, text, sizeof text - 1, 0);
        unsigned running;
        text[size > 0 ? size : 0] = 0;
        running = running_in(text);
        r->has_idle_core = running && running <= r->cores;
        r->load_read_ns = now;
    }
    return (int)r->has_idle_core;
}

/* Return whether the wait has ended without sleeping: a submitted operation has completed at once,
 * or polling has found one. */
static int came_soon(tp_ring *r, unsigned sends, int64_t *timeout_ns, int64_t began, int *result)
{
    int64_t limit = *timeout_ns > 0 && *timeout_ns < r->spin_ns ? *timeout_ns : r->spin_ns;

    *result = io_uring_submit_and_get_events(&r->uring);
    if (*result < 0 || io_uring_cq_ready(&r->uring) > sends) return 1;
    *result = spin(r, sends, began, limit);
    if (*result < 0) return 1;
    if (io_uring_cq_ready(&r->uring) > sends) {
        r->spins_left = SPINS_IN_VAIN;
        return 1;
    }
    r->spins_left--;
    if (*timeout_ns > 0) *timeout_ns = *timeout_ns > limit ? *timeout_ns - limit : 1;
    return 0;
}

/* End the use of the completion that tp_wait_single returned: its buffer is the kernel's again. */
static void drop_single(tp_ring *r)
{
    r->single = 0;
    r->single_reaps++;
    tp_recycle(r, &r->single_flags, 1); /* its buffer is lent, so it does not fail */
}

int tp_submit_and_wait(tp_ring *r, int64_t timeout_ns)
{
    int64_t began = r->spin_ns ? now_ns() : 0;
    int result;
    unsigned sends = r->sends;

    if (r->refused) return r->refused;
    if (r->single) drop_single(r);
    r->sends = 0;
    if (!r->wake_armed && !r->closing && (result = arm_wake(r)) < 0) return result;
    if (timeout_ns == 0 || r->stash_start < r->stash_end || io_uring_cq_ready(&r->uring)) {
        result = io_uring_submit_and_get_events(&r->uring);
    } else if (!r->spin_ns || !may_spin(r, began) || !came_soon(r, sends, &timeout_ns, began, &result)) {
        /* Always with a time: without one, liburing sleeps again when a signal has cut a wait that
         * had submitted. */
        struct __kernel_timespec time = {.tv_sec = LONGEST_WAIT_S};
        struct io_uring_cqe *cqe;
        if (timeout_ns > 0) {
            time.tv_sec = timeout_ns / 1000000000;
            time.tv_nsec = timeout_ns % 1000000000;
        }
        /* Nearly all small sends complete while they are submitted, and would end the wait for the
         * answers to them. One that does not might hold up other completions, so the wait is
         * short. */
        if (sends && (timeout_ns < 0 || timeout_ns > SENDS_WAIT_NS))
            time = (struct __kernel_timespec){.tv_nsec = SENDS_WAIT_NS};
        if (sends > *r->uring.cq.kring_entries / 2) sends = 0;
        result = io_uring_submit_and_wait_timeout(&r->uring, &cqe, 1 + sends, &time, NULL);
        if (r->spin_ns && io_uring_cq_ready(&r->uring) > sends && now_ns() - began < r->spin_ns)
            r->spins_left = SPINS_IN_VAIN;
    }
    if (result == -EBUSY || result == -EAGAIN) return stash_completions(r);
    if (result == -ETIME || result == -EINTR) return 0;
    return result < 0 ? result : 0;
}

static inline int copy_out(tp_ring *r, const struct io_uring_cqe *cqe, uint64_t *user_data, int *res, uint32_t *flags)
{
    if (!cqe->user_data) {            /* our own: the wake-up or its end; the next wait arms it */
        r->own_in_flight--;
        r->wake_armed = 0;
        return 0;
    }
    if (!(cqe->flags & IORING_CQE_F_MORE)) r->in_flight--;
    if (cqe->flags & IORING_CQE_F_BUFFER) {
        unsigned id = cqe->flags >> IORING_CQE_BUFFER_SHIFT;
        if (id < r->buffer_count) {
            r->lent[id] = 1;
            r->lent_count++;
        }
    }
    *user_data = cqe->user_data;
    *res = cqe->res;
    *flags = cqe->flags;
    return 1;
}

int64_t tp_wait_single(tp_ring *r, int64_t timeout_ns, uint64_t *user_data)
{
    struct io_uring_cqe *cqe;
    int result = tp_submit_and_wait(r, timeout_ns);

    if (result < 0) return result;
    if (io_uring_cq_ready(&r->uring) != 1 || r->stash_start < r->stash_end) return 0;
    if (io_uring_peek_cqe(&r->uring, &cqe)) return 0;
    if ((cqe->flags & DATA_AND_MORE) != DATA_AND_MORE || !cqe->user_data || cqe->res <= 0) return 0;
    copy_out(r, cqe, &r->single, &r->single_res, &r->single_flags);
    io_uring_cq_advance(&r->uring, 1);
    *user_data = r->single;
    return (int64_t)(r->single_flags >> IORING_CQE_BUFFER_SHIFT) << 32 | r->single_res;
}

int tp_reap(tp_ring *r, uint64_t *user_data, int *res, uint32_t *flags, unsigned room)
{
    unsigned n = 0;

    if (r->refused) return r->refused;
    if (r->single && room) {
        *user_data = r->single;
        *res = r->single_res;
        *flags = r->single_flags;
        r->single = 0;
        n = 1;
    }
    while (n < room && r->stash_start < r->stash_end) {
        const struct io_uring_cqe *cqe = &r->stash[r->stash_start++];
        n += (unsigned)copy_out(r, cqe, user_data + n, res + n, flags + n);
    }
    if (r->stash_start == r->stash_end) r->stash_start = r->stash_end = 0;
    while (n < room) {
        struct io_uring_cqe *cqe;
        unsigned head, seen = 0;
        io_uring_for_each_cqe(&r->uring, head, cqe) {
            if (n == room) break;
            n += (unsigned)copy_out(r, cqe, user_data + n, res + n, flags + n);
            seen++;
        }
        io_uring_cq_advance(&r->uring, seen);
        if (!io_uring_cq_has_overflow(&r->uring)) break;
        int result = io_uring_get_events(&r->uring);      /* moves the backlog of the kernel into the queue */
        if (result < 0 && result != -EINTR && result != -EBUSY && result != -EAGAIN) return result;
    }
    if (n > 1) r->single_reaps = 0;
    else if (n) r->single_reaps++;
    return (int)n;
}

int64_t tp_write_now(int fd, const char *bytes, uint64_t size, uint64_t offset, int dsync)
{
    struct iovec part = {(void *)(uintptr_t)bytes, size};
    ssize_t written = pwritev2(fd, &part, 1, (off_t)offset, dsync ? RWF_DSYNC : 0);
    return written < 0 ? -errno : written;
}
