/*
 * How long does a write take to reach its watchers? N watchers on streams, W writers, one thread, epoll.
 *
 *   deliver_load HOST PORT SECONDS WRITERS WRITE_FILE WATCHERS_FILE
 *
 * WRITE_FILE holds the exact bytes of one write request. WATCHERS_FILE holds, for each watcher, a u32 (little endian)
 * and that many bytes to send after connecting. A watcher is ready when it has received "caught"; then the writers
 * begin. Each writer sends, waits for its whole answer (a Content-Length response of status 2xx), and, when there is
 * one writer, until every watcher has received the record; then it sends again. A delivery is one occurrence of
 * "$seq" on a watcher's connection.
 *
 * Prints one JSON object. p50_ns.. are from a write's first byte to the arrival of each delivery, with one writer only.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "measure.h"

struct conn {
    int fd;
    int is_writer, busy;
    size_t matched;             /* of the pattern, across receives */
    uint64_t seen;              /* deliveries */
    char head[2048];            /* a writer's answer so far */
    size_t head_len;
};

static struct samples latencies;
static uint64_t writes, deliveries, bytes_read, sent_at;

static void send_all(int fd, const char *bytes, size_t len)
{
    while (len > 0) {
        ssize_t n = send(fd, bytes, len, MSG_NOSIGNAL);
        if (n > 0) { bytes += n; len -= (size_t)n; }
        else if (errno != EAGAIN && errno != EINTR) die("send");
    }
}

static char *read_file(const char *path, size_t *len)
{
    FILE *file = fopen(path, "rb");
    if (!file) die(path);
    fseek(file, 0, SEEK_END);
    *len = (size_t)ftell(file);
    rewind(file);
    char *bytes = malloc(*len + 1);
    if (fread(bytes, 1, *len, file) != *len) die("read");
    fclose(file);
    return bytes;
}

/* Occurrences of a pattern whose first byte occurs in it once, over any cutting of the stream. */
static int count(struct conn *c, const char *data, size_t len, const char *pattern, size_t size)
{
    int found = 0;
    size_t at = 0;
    while (at < len) {
        if (c->matched == 0) {
            const char *next = memchr(data + at, pattern[0], len - at);
            if (!next) break;
            at = (size_t)(next - data) + 1;
            c->matched = 1;
        } else if (data[at] == pattern[c->matched]) {
            at++;
            if (++c->matched == size) { found++; c->matched = 0; }
        } else {
            c->matched = 0;     /* looks at the same byte again */
        }
    }
    return found;
}

/* Whether the writer's answer is whole. */
static int answered(struct conn *c, const char *data, size_t len)
{
    if (c->head_len + len >= sizeof c->head) { fprintf(stderr, "an answer too long\n"); exit(1); }
    memcpy(c->head + c->head_len, data, len);
    c->head_len += len;
    c->head[c->head_len] = 0;
    char *end = strstr(c->head, "\r\n\r\n");
    if (!end) return 0;
    if (c->head[9] != '2') { fprintf(stderr, "unexpected answer: %s\n", c->head); exit(1); }
    char *length = strcasestr(c->head, "content-length:");
    size_t body = length && length < end ? (size_t)atoll(length + 15) : 0;
    if (c->head_len < (size_t)(end - c->head) + 4 + body) return 0;
    c->head_len = 0;
    return 1;
}

static int dial(const char *host, const char *port)
{
    int one = 1, fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in addr = { .sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port)) };
    inet_pton(AF_INET, host, &addr.sin_addr);
    if (fd < 0 || connect(fd, (struct sockaddr *)&addr, sizeof addr)) die("connect");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return fd;
}

int main(int argc, char **argv)
{
    if (argc != 7) { fprintf(stderr, "usage: deliver_load HOST PORT SECONDS WRITERS WRITE_FILE WATCHERS_FILE\n"); return 2; }
    double seconds = atof(argv[3]);
    int writers = atoi(argv[4]), watchers = 0;
    size_t write_len, watchers_len;
    char *write_bytes = read_file(argv[5], &write_len), *watcher_bytes = read_file(argv[6], &watchers_len);
    for (size_t at = 0; at < watchers_len; watchers++) {
        uint32_t len;
        memcpy(&len, watcher_bytes + at, 4);
        at += 4 + len;
    }
    struct conn *conns = calloc((size_t)(watchers + writers), sizeof *conns);
    static char buffer[1 << 20];
    int ep = epoll_create1(0);
    size_t at = 0;
    for (int i = 0; i < watchers; i++) {
        struct conn *c = &conns[i];
        uint32_t len;
        memcpy(&len, watcher_bytes + at, 4);
        c->fd = dial(argv[1], argv[2]);
        send_all(c->fd, watcher_bytes + at + 4, len);
        at += 4 + len;
        for (int ready = 0; !ready;) {
            ssize_t got = recv(c->fd, buffer, sizeof buffer, 0);
            if (got <= 0) { fprintf(stderr, "a watcher was turned away\n"); return 1; }
            ready = count(c, buffer, (size_t)got, "caught", 6);
            if (!ready && memmem(buffer, (size_t)got, "\"error\"", 7)) { fprintf(stderr, "%.*s\n", (int)got, buffer); return 1; }
        }
        c->matched = 0;
    }
    for (int i = watchers; i < watchers + writers; i++) {
        conns[i].fd = dial(argv[1], argv[2]);
        conns[i].is_writer = 1;
    }
    for (int i = 0; i < watchers + writers; i++) {
        fcntl(conns[i].fd, F_SETFL, O_NONBLOCK);
        struct epoll_event ev = { .events = EPOLLIN, .data.ptr = &conns[i] };
        epoll_ctl(ep, EPOLL_CTL_ADD, conns[i].fd, &ev);
    }
    uint64_t start = now_ns(), end = start + (uint64_t)(seconds * 1e9), wanted = 0;
    double cpu_before = cpu_seconds();
    struct epoll_event events[1024];
    for (;;) {
        uint64_t now = now_ns();
        int stopping = now >= end, busy = 0;
        for (int i = watchers; i < watchers + writers; i++) {
            struct conn *c = &conns[i];
            if (!c->busy && !stopping && (writers > 1 || deliveries == wanted)) {
                c->busy = 1;
                writes++;
                wanted += (uint64_t)watchers;
                sent_at = now_ns();
                send_all(c->fd, write_bytes, write_len);
            }
            busy |= c->busy;
        }
        if (stopping && !busy && deliveries >= wanted) break;
        if (now > end + 5000000000ull) { fprintf(stderr, "%llu of %llu deliveries came\n", (unsigned long long)deliveries, (unsigned long long)wanted); return 1; }
        int n = epoll_wait(ep, events, 1024, 1000);
        for (int i = 0; i < n; i++) {
            struct conn *c = events[i].data.ptr;
            ssize_t got = recv(c->fd, buffer, sizeof buffer, 0);
            if (got == 0) { fprintf(stderr, "the server closed a connection\n"); return 1; }
            if (got < 0) { if (errno != EAGAIN && errno != EINTR) die("recv"); continue; }
            bytes_read += (uint64_t)got;
            if (c->is_writer) {
                if (answered(c, buffer, (size_t)got)) c->busy = 0;
                continue;
            }
            int found = count(c, buffer, (size_t)got, "$seq", 4);
            deliveries += (uint64_t)found;
            if (found && writers == 1) sample(&latencies, now_ns() - sent_at);
        }
    }
    double took = (double)(now_ns() - start) / 1e9;
    double cpu = cpu_seconds() - cpu_before;
    sort_samples(&latencies);
    printf("{\"watchers\":%d,\"writes\":%llu,\"deliveries\":%llu,\"seconds\":%.3f,\"rate\":%.1f,\"p50_ns\":%u,"
           "\"p90_ns\":%u,\"p99_ns\":%u,\"max_ns\":%u,\"bytes_read\":%llu,\"client_cpu\":%.3f}\n",
           watchers, (unsigned long long)writes, (unsigned long long)deliveries, took, (double)deliveries / took,
           quantile(&latencies, 0.5), quantile(&latencies, 0.9), quantile(&latencies, 0.99), quantile(&latencies, 1.0),
           (unsigned long long)bytes_read, cpu);
    return 0;
}
