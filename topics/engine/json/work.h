/* A long call that rests half-way and goes on later, so that others have their turns. Internal to this folder; what Python
 * calls is in records.h.
 *
 * It runs on a stack of its own, which it leaves in `rest` and enters again in tp_work_on: so what it does is the code of
 * the short call, and a place where it may rest is one comparison (MAY_REST in json_strict.h). It touches nothing but its
 * arguments and may be dropped at any rest. Without ucontext (musl) it never rests.
 */
#ifndef TOPICS_ENGINE_WORK_H
#define TOPICS_ENGINE_WORK_H

#include <stddef.h>
#include <stdint.h>
#ifdef __GLIBC__
#include <ucontext.h>
#endif

#include "records.h"

enum { WORK_STACK = 64 << 10 }; /* the deepest call, has_equal_among_many inside a body, takes some 8 KiB */

struct tp_work {
    void (*run)(struct tp_work *);
    struct tp_writer *writer;
    const unsigned char *text;
    unsigned char *out;
    void *room;
    uint64_t len, keys;
    uint64_t bytes;  /* a turn */
    int64_t result;
    int over;
#ifdef __GLIBC__
    ucontext_t caller, own;
    int begun;
#ifdef __SANITIZE_ADDRESS__
    void *caller_fake, *own_fake; /* what the address sanitizer knows of the two stacks */
    const void *caller_stack;
    size_t caller_size;
#endif
    unsigned char stack[WORK_STACK];
#endif
};

/* Work whose first turn calls run(work), which sets the result; NULL: no memory. */
struct tp_work *new_work(void (*run)(struct tp_work *), struct tp_writer *writer, const unsigned char *text,
                         uint64_t len);
/* The end of a turn, called by what `run` calls; returns when the next one begins. */
void rest(struct tp_work *work);

#endif
