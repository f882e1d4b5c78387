/* A long call that rests half-way and continues later, so that other work gets its turns.
 * Internal to this folder; records.h declares the calls for Python.
 *
 * It runs on a stack of its own, which it leaves in `rest` and enters again in tp_work_on. It
 * therefore runs the same code as the short call, and a place where it may rest costs one
 * comparison (MAY_REST in json_strict.h). It touches nothing except its arguments and may be
 * dropped at any rest. Without ucontext (musl) it never rests. */
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
    uint64_t bytes;  /* of the text in one turn */
    int64_t result;
    int over;
#ifdef __GLIBC__
    ucontext_t caller, own;
    int begun;
#ifdef __SANITIZE_ADDRESS__
    void *caller_fake, *own_fake; /* the address sanitizer's data on the two stacks */
    const void *caller_stack;
    size_t caller_size;
#endif
    unsigned char stack[WORK_STACK];
#endif
};

/* Create work whose first turn calls run(work), which sets the result. NULL: no memory. */
struct tp_work *new_work(void (*run)(struct tp_work *), struct tp_writer *writer, const unsigned char *text,
                         uint64_t len);
/* End a turn. Called by code under `run`; returns when the next turn begins. */
void rest(struct tp_work *work);

#endif
