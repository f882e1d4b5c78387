/*
 * What the load generators measure with: the clock, latencies as samples with quantiles, CPU seconds.
 *
 * Included once by each of them after <stdint.h>, with _GNU_SOURCE defined.
 */
#pragma once
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

static inline void die(const char *what) { perror(what); exit(1); }

static inline uint64_t now_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000ull + (uint64_t)ts.tv_nsec;
}

/* User and system time of this process, seconds: a reader sees whether the client was the bottleneck. */
static inline double cpu_seconds(void)
{
    struct rusage use;
    getrusage(RUSAGE_SELF, &use);
    return (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) +
           (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec) / 1e6;
}

/* Latencies, ns; all that come after the first SAMPLES_MAX are not kept. Longer than 4.2 s counts as that. */
enum { SAMPLES_MAX = 1 << 24 };
struct samples { uint32_t *ns; size_t count; };

static inline void sample(struct samples *samples, uint64_t took_ns)
{
    if (!samples->ns && !(samples->ns = malloc(sizeof *samples->ns * SAMPLES_MAX))) die("malloc");
    if (samples->count < SAMPLES_MAX) samples->ns[samples->count++] = took_ns > UINT32_MAX ? UINT32_MAX : (uint32_t)took_ns;
}

static int by_value(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

/* To be called before `quantile`. */
static inline void sort_samples(struct samples *samples)
{
    if (samples->count) qsort(samples->ns, samples->count, sizeof *samples->ns, by_value);
}

/* share: 0 to 1; 0 without samples. */
static inline unsigned quantile(const struct samples *samples, double share)
{
    return samples->count ? samples->ns[(size_t)((double)(samples->count - 1) * share)] : 0;
}
