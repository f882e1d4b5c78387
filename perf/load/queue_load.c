/*
 * Workers of one queue: each claims MAX jobs, acks them, and begins again. One connection a worker, one thread, epoll.
 *
 *   queue_load HOST PORT TOPIC WORKERS MAX SECONDS REFILL
 *
 * REFILL 1: after its ack a worker writes as many jobs as it acked, so that the queue keeps its depth. Ends when the
 * time is over, or when every worker found the queue empty. Prints one JSON object: jobs acked, cycles, seconds, jobs
 * a second, the fewest and most jobs of a worker, latency quantiles of claims and acks (ns), CPU seconds of this client.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "measure.h"

enum { ROOM = 1 << 19, REQUEST_MAX = 1 << 16 };
enum step { CLAIM, ACK, REFILL };

struct worker {
    int fd, number, empty;
    enum step step;
    size_t got, seqs;
    uint64_t sent_at, jobs;
    char *seq_text;         /* "1,2,3" */
    char *answer;           /* ROOM bytes */
};

static const char *topic;
static int most, refill, running;
static uint64_t cycles, errors;
static struct samples latencies[2]; /* of claims, of acks */

static void send_all(struct worker *w, const char *path, const char *body)
{
    static char request[REQUEST_MAX];
    int len = snprintf(request, sizeof request,
                       "POST /v0/topics/%s%s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
                       "Content-Length: %zu\r\n\r\n%s", topic, path, strlen(body), body);
    if (len >= (int)sizeof request) { fprintf(stderr, "request too long\n"); exit(1); }
    w->got = 0;
    w->sent_at = now_ns();
    for (int at = 0; at < len;) {
        ssize_t n = send(w->fd, request + at, (size_t)(len - at), MSG_NOSIGNAL);
        if (n < 0 && errno != EAGAIN && errno != EINTR) die("send");
        if (n > 0) at += (int)n;
    }
}

static void go(struct worker *w)
{
    static char body[REQUEST_MAX];
    if (w->step == CLAIM) {
        snprintf(body, sizeof body, "{\"node\":\"w%d\",\"max\":%d}", w->number, most);
        send_all(w, "/claim", body);
    } else if (w->step == ACK) {
        snprintf(body, sizeof body, "{\"node\":\"w%d\",\"seqs\":[%s]}", w->number, w->seq_text);
        send_all(w, "/ack", body);
    } else {
        size_t at = (size_t)sprintf(body, "{\"records\":[");
        for (size_t i = 0; i < w->seqs; i++)
            at += (size_t)sprintf(body + at, "%s{\"data\":{\"user\":12345678,\"action\":\"resize\",\"n\":1}}", i ? "," : "");
        sprintf(body + at, "]}");
        send_all(w, "?return_seqs=false", body);
    }
}

/* The answer is complete: what comes next. */
static void finish(struct worker *w, const char *body)
{
    uint64_t took = now_ns() - w->sent_at;
    if (memcmp(w->answer + 9, "200", 3) != 0 && errors++ == 0)
        fprintf(stderr, "first unexpected answer: %.300s\n", w->answer);
    if (w->step != REFILL) sample(&latencies[w->step], took);
    if (w->step == CLAIM) {
        size_t at = 0;
        w->seqs = 0;
        for (const char *p = body; (p = strstr(p, "\"$seq\":")); p += 7) {
            at += (size_t)sprintf(w->seq_text + at, "%s%llu", w->seqs ? "," : "", strtoull(p + 7, NULL, 10));
            w->seqs++;
        }
        if (!w->seqs && !refill) {
            w->empty = 1;
            running--;
            return;
        }
        w->step = w->seqs ? ACK : CLAIM;
    } else if (w->step == ACK) {
        cycles++;
        w->jobs += w->seqs;
        w->step = refill ? REFILL : CLAIM;
    } else {
        w->step = CLAIM;
    }
    go(w);
}

static void take(struct worker *w)
{
    ssize_t n = recv(w->fd, w->answer + w->got, ROOM - 1 - w->got, 0);
    if (n == 0) { fprintf(stderr, "server closed a connection\n"); exit(1); }
    if (n < 0) { if (errno == EAGAIN || errno == EINTR) return; die("recv"); }
    w->got += (size_t)n;
    w->answer[w->got] = 0;
    char *end = strstr(w->answer, "\r\n\r\n");
    if (!end) return;
    char *length = strcasestr(w->answer, "content-length:");
    size_t whole = (size_t)(end - w->answer) + 4 + (size_t)(length && length < end ? atoll(length + 15) : 0);
    if (w->got >= whole) finish(w, end + 4);
    else if (whole >= ROOM) { fprintf(stderr, "answer too long\n"); exit(1); }
}

int main(int argc, char **argv)
{
    if (argc != 8) { fprintf(stderr, "usage: queue_load HOST PORT TOPIC WORKERS MAX SECONDS REFILL\n"); return 2; }
    topic = argv[3];
    int count = atoi(argv[4]);
    most = atoi(argv[5]);
    refill = atoi(argv[7]);
    running = count;
    struct worker *workers = calloc((size_t)count, sizeof *workers);
    int ep = epoll_create1(0);
    struct sockaddr_in addr = { .sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(argv[2])) };
    inet_pton(AF_INET, argv[1], &addr.sin_addr);
    for (int i = 0; i < count; i++) {
        struct worker *w = &workers[i];
        int one = 1;
        w->number = i;
        w->answer = malloc(ROOM);
        w->seq_text = malloc((size_t)most * 21 + 1);
        w->fd = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(w->fd, (struct sockaddr *)&addr, sizeof addr)) die("connect");
        setsockopt(w->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        struct epoll_event ev = { .events = EPOLLIN, .data.ptr = w };
        epoll_ctl(ep, EPOLL_CTL_ADD, w->fd, &ev);
    }
    uint64_t start = now_ns(), end = start + (uint64_t)(atof(argv[6]) * 1e9);
    for (int i = 0; i < count; i++) go(&workers[i]);
    struct epoll_event events[256];
    while (running > 0 && now_ns() < end) {
        int n = epoll_wait(ep, events, 256, 100);
        for (int i = 0; i < n; i++) take(events[i].data.ptr);
    }
    double seconds = (double)(now_ns() - start) / 1e9;
    uint64_t jobs = 0, fewest = UINT64_MAX, largest = 0;
    for (int i = 0; i < count; i++) {
        jobs += workers[i].jobs;
        if (workers[i].jobs < fewest) fewest = workers[i].jobs;
        if (workers[i].jobs > largest) largest = workers[i].jobs;
    }
    for (int i = 0; i < 2; i++) sort_samples(&latencies[i]);
    printf("{\"jobs\":%llu,\"cycles\":%llu,\"errors\":%llu,\"seconds\":%.3f,\"rate\":%.1f,\"fewest\":%llu,"
           "\"most\":%llu,\"claim_p50_ns\":%u,\"claim_p99_ns\":%u,\"ack_p50_ns\":%u,\"ack_p99_ns\":%u,"
           "\"client_cpu\":%.3f}\n",
           (unsigned long long)jobs, (unsigned long long)cycles, (unsigned long long)errors, seconds,
           (double)jobs / seconds, (unsigned long long)fewest, (unsigned long long)largest,
           quantile(&latencies[CLAIM], 0.5), quantile(&latencies[CLAIM], 0.99), quantile(&latencies[ACK], 0.5),
           quantile(&latencies[ACK], 0.99), cpu_seconds());
    return errors != 0;
}
