/*
 * Follows pointers through cache lines of memory, each of which names the next in random order, after
 * pauses in which it touches nothing else: what a program pays that uses so much memory a request.
 *
 *     cold_lines LINES SPREAD ROUNDS PAUSE_US SLEEPS
 *
 * SPREAD: bytes from a line to the next in memory; 64 is side by side, 4096 a line a page. SLEEPS: 1
 * to sleep in the pauses, 0 to ask for the time. Prints the median of the rounds in nanoseconds.
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "measure.h"

enum { LINE = 64 };

/* Line i of its page-sized or smaller place: at another offset each, so that no two share a cache set. */
static char *place(char *memory, size_t i, size_t spread) { return memory + i * spread + i * LINE % spread; }

static char *chained(size_t lines, size_t spread)
{
    char *memory = aligned_alloc(4096, (lines * spread + 4095) / 4096 * 4096);
    size_t *order = malloc(lines * sizeof *order);
    if (!memory || !order) die("malloc");
    memset(memory, 1, lines * spread);
    for (size_t i = 0; i < lines; i++) order[i] = i;
    for (size_t i = lines - 1; i > 0; i--) {
        size_t other = (size_t)rand() % (i + 1), kept = order[i];
        order[i] = order[other];
        order[other] = kept;
    }
    for (size_t i = 0; i < lines; i++) {
        char *next = place(memory, order[(i + 1) % lines], spread);
        memcpy(place(memory, order[i], spread), &next, sizeof next);
    }
    char *first = place(memory, order[0], spread);
    free(order);
    return first;
}

static void pause_for(uint64_t us, int sleeps)
{
    if (sleeps && us) usleep((useconds_t)us);
    for (uint64_t until = now_ns() + us * 1000; !sleeps && now_ns() < until;) {}
}

int main(int count, char **args)
{
    if (count != 6) {
        fprintf(stderr, "usage: cold_lines LINES SPREAD ROUNDS PAUSE_US SLEEPS\n");
        return 2;
    }
    size_t lines = strtoul(args[1], NULL, 10), spread = strtoul(args[2], NULL, 10);
    size_t rounds = strtoul(args[3], NULL, 10);
    uint64_t pause_us = strtoul(args[4], NULL, 10);
    int sleeps = atoi(args[5]);
    char *at = chained(lines, spread);
    struct samples taken = {0};
    for (size_t round = 0; round < rounds; round++) {
        pause_for(pause_us, sleeps);
        uint64_t began = now_ns();
        for (size_t i = 0; i < lines; i++) at = *(char *volatile *)at;
        sample(&taken, now_ns() - began);
    }
    sort_samples(&taken);
    printf("%u\n", quantile(&taken, 0.5));
    return 0;
}
