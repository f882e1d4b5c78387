/* The figures of a load generator that sends requests and waits for each answer, as the one JSON object it prints. */
#pragma once
#include "measure.h"

static struct samples latencies;
static uint64_t done_count, error_count, bytes_read;

/* took: seconds of the measurement. */
static inline void print_figures(double took)
{
    sort_samples(&latencies);
    printf("{\"requests\":%llu,\"errors\":%llu,\"seconds\":%.3f,\"rate\":%.1f,\"p50_ns\":%u,\"p90_ns\":%u,"
           "\"p99_ns\":%u,\"p999_ns\":%u,\"worst_ns\":%u,\"bytes_read\":%llu,\"client_cpu\":%.3f}\n",
           (unsigned long long)done_count, (unsigned long long)error_count, took, (double)done_count / took,
           quantile(&latencies, 0.5), quantile(&latencies, 0.9), quantile(&latencies, 0.99), quantile(&latencies, 0.999),
           quantile(&latencies, 1),
           (unsigned long long)bytes_read, cpu_seconds());
}
