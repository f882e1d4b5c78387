/* Long calls in turns, each on a stack of its own: see work.h. */
#include <stdlib.h>

#include "work.h"

struct tp_work *new_work(void (*run)(struct tp_work *), struct tp_writer *writer, const unsigned char *text,
                         uint64_t len)
{
    struct tp_work *work = malloc(sizeof *work);
    if (!work) return NULL;
    work->run = run;
    work->writer = writer;
    work->text = text;
    work->len = len;
    work->result = work->over = 0;
#ifdef __GLIBC__
    work->begun = 0;
#endif
    return work;
}

#ifdef __GLIBC__
/* The address sanitizer is informed of each change of stacks: before it with the target, after
 * it with the origin. */
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#define LEAVE_FOR(fake, stack, size) __sanitizer_start_switch_fiber(fake, stack, size)
#define ARRIVED(fake, stack, size) __sanitizer_finish_switch_fiber(fake, stack, size)
#else
#define LEAVE_FOR(fake, stack, size)
#define ARRIVED(fake, stack, size)
#endif

/* A context takes integers: the pointer is passed in two of them. */
static void enter_work(unsigned low, unsigned high)
{
    struct tp_work *work = (struct tp_work *)((uintptr_t)low | (uintptr_t)high << 16 << 16);
    ARRIVED(NULL, &work->caller_stack, &work->caller_size);
    work->run(work);
    work->over = 1;
    LEAVE_FOR(NULL, work->caller_stack, work->caller_size); /* never to return */
    swapcontext(&work->own, &work->caller);
}

void rest(struct tp_work *work)
{
    LEAVE_FOR(&work->own_fake, work->caller_stack, work->caller_size);
    swapcontext(&work->own, &work->caller);
    ARRIVED(work->own_fake, &work->caller_stack, &work->caller_size);
}

/* Run on the work's own stack until it rests or ends. */
static void go_on(struct tp_work *work)
{
    LEAVE_FOR(&work->caller_fake, work->stack, sizeof work->stack);
    swapcontext(&work->caller, &work->own);
    ARRIVED(work->caller_fake, NULL, NULL);
}
#else
void rest(struct tp_work *work) { (void)work; }
#endif

int tp_work_on(struct tp_work *work, uint64_t bytes)
{
    work->bytes = bytes;
#ifdef __GLIBC__
    if (!work->begun) {
        uintptr_t self = (uintptr_t)work;
        work->begun = 1;
        if (getcontext(&work->own)) return -1;
        work->own.uc_stack.ss_sp = work->stack;
        work->own.uc_stack.ss_size = sizeof work->stack;
        work->own.uc_link = NULL;
        makecontext(&work->own, (void (*)(void))enter_work, 2, (unsigned)self, (unsigned)(self >> 16 >> 16));
    }
    if (!work->over) go_on(work);
#else
    if (!work->over) work->run(work), work->over = 1;
#endif
    return !work->over;
}

int64_t tp_work_result(const struct tp_work *work) { return work->result; }

void tp_work_free(struct tp_work *work) { free(work); }
