/*
 * A closed-loop HTTP/1.1 load generator: N connections, one request in flight on each, one thread, epoll.
 *
 *   http_load HOST PORT CONNECTIONS SECONDS REQUEST_FILE...
 *
 * A REQUEST_FILE holds the exact bytes of one request (head and body); connection i uses file i modulo their
 * number. Every connection sends its own, reads one Content-Length response, checks for status 200, and sends again. Prints one JSON object: requests, errors, seconds,
 * rate, latency quantiles (ns), bytes read and the CPU seconds this client used, so that a reader can see whether
 * the client was the bottleneck.
 *
 * With RATE=n in the environment the loop is open: requests are due at n a second, whatever the answers do, each goes
 * out on a connection that is free, and its latency counts from when it was due. With TOPICS=n each "########" in a
 * request becomes a number below n, all of them by turns from FIRST on. With ANSWER_LINES=n an answer ends at its n-th line
 * feed, as Redis' do, and is not looked at. With SAMPLES=path that file gets three u64 for each answer (CLOCK_MONOTONIC
 * ns: due, sent, answered), and for each time that it had no core for half a millisecond: 0, from, to.
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
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "requests.h"

enum { HEAD_MAX = 4096 };

struct request {
    char *bytes, *number; /* number: where "########" stands, or NULL */
    size_t len;
};

struct conn {
    int fd;
    const struct request *request;
    size_t head_len;        /* bytes of the response head gathered so far */
    int64_t body_left;      /* -1: still in the head */
    uint64_t sent_at, due;
    int lines_left;
    char head[HEAD_MAX];
};

static FILE *samples_file;
static int lines;
static double rate; /* requests a second; 0: the next one when the last is answered */
static uint64_t topics, next_topic;
static struct conn **idle;
static size_t idle_count;

static void send_request(struct conn *c, uint64_t due)
{
    size_t at = 0;
    c->head_len = 0;
    c->body_left = -1;
    c->lines_left = lines;
    c->due = due;
    c->sent_at = samples_file ? now_ns() : due;
    if (topics && c->request->number) {
        char digits[9];
        snprintf(digits, sizeof digits, "%08u", (unsigned)(next_topic++ % topics % 100000000));
        memcpy(c->request->number, digits, 8);
    }
    while (at < c->request->len) {
        ssize_t n = send(c->fd, c->request->bytes + at, c->request->len - at, MSG_NOSIGNAL);
        if (n > 0) { at += (size_t)n; continue; }
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) continue;
        die("send");
    }
}

static void note(uint64_t due, uint64_t from, uint64_t to)
{
    uint64_t row[3] = { due, from, to };
    if (fwrite(row, sizeof row, 1, samples_file) != 1) die("write");
}

static void finish(struct conn *c)
{
    uint64_t now = now_ns();
    sample(&latencies, now - c->due);
    if (samples_file) note(c->due, c->sent_at, now);
    done_count++;
    if (!lines && memcmp(c->head + 9, "200", 3) != 0) {
        if (error_count++ == 0) fprintf(stderr, "first unexpected answer: %.*s\n", 300, c->head);
    }
    if (rate > 0) idle[idle_count++] = c;
    else send_request(c, now_ns());
}

/* Consumes bytes of a response; starts the next request when one is complete. */
static void consume(struct conn *c, const char *data, size_t len)
{
    if (lines) {
        for (size_t i = 0; i < len; i++) c->lines_left -= data[i] == '\n';
        if (c->lines_left <= 0) finish(c);
        return;
    }
    while (len > 0) {
        if (c->body_left < 0) {
            size_t room = HEAD_MAX - 1 - c->head_len, take = len < room ? len : room;
            memcpy(c->head + c->head_len, data, take);
            size_t before = c->head_len;
            c->head_len += take;
            c->head[c->head_len] = 0;
            char *end = strstr(c->head, "\r\n\r\n");
            if (!end) {
                if (c->head_len == HEAD_MAX - 1) { fprintf(stderr, "response head too long\n"); exit(1); }
                return;
            }
            size_t head_bytes = (size_t)(end - c->head) + 4;
            size_t used = head_bytes - before;
            char *length = strcasestr(c->head, "content-length:");
            c->body_left = length && length < end ? atoll(length + 15) : 0;
            data += used;
            len -= used;
            if (c->body_left == 0) { finish(c); return; }
        } else {
            size_t take = (int64_t)len < c->body_left ? len : (size_t)c->body_left;
            c->body_left -= (int64_t)take;
            data += take;
            len -= take;
            if (c->body_left == 0) { finish(c); return; }
        }
    }
}

/* How long this process has been ready to run without a core, ns; 0 where the kernel does not tell. */
static uint64_t delayed_ns(void)
{
    static int fd;
    char text[64] = "";
    unsigned long long ran, waited = 0;
    if (!fd) fd = open("/proc/self/schedstat", O_RDONLY);
    if (pread(fd, text, sizeof text - 1, 0) > 0) sscanf(text, "%llu %llu", &ran, &waited);
    return waited;
}

int main(int argc, char **argv)
{
    if (argc < 6) { fprintf(stderr, "usage: http_load HOST PORT CONNECTIONS SECONDS REQUEST_FILE...\n"); return 2; }
    int connections = atoi(argv[3]);
    double seconds = atof(argv[4]);
    int request_count = argc - 5;
    struct request *requests = calloc((size_t)request_count, sizeof *requests);
    for (int i = 0; i < request_count; i++) {
        FILE *file = fopen(argv[5 + i], "rb");
        if (!file) die(argv[5 + i]);
        fseek(file, 0, SEEK_END);
        requests[i].len = (size_t)ftell(file);
        rewind(file);
        requests[i].bytes = malloc(requests[i].len);
        if (fread(requests[i].bytes, 1, requests[i].len, file) != requests[i].len) die("read");
        fclose(file);
        requests[i].number = memmem(requests[i].bytes, requests[i].len, "########", 8);
    }
    rate = getenv("RATE") ? atof(getenv("RATE")) : 0;
    topics = getenv("TOPICS") ? (uint64_t)atoll(getenv("TOPICS")) : 0;
    next_topic = getenv("FIRST") ? (uint64_t)atoll(getenv("FIRST")) : 0;
    lines = getenv("ANSWER_LINES") ? atoi(getenv("ANSWER_LINES")) : 0;
    if (getenv("SAMPLES")) {
        samples_file = fopen(getenv("SAMPLES"), "wb");
        if (!samples_file) die(getenv("SAMPLES"));
        setvbuf(samples_file, NULL, _IOFBF, 64 << 20);
    }
    idle = calloc((size_t)connections, sizeof *idle);
    struct conn *conns = calloc((size_t)connections, sizeof *conns);
    int ep = epoll_create1(0);
    struct sockaddr_in addr = { .sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(argv[2])) };
    inet_pton(AF_INET, argv[1], &addr.sin_addr);
    for (int i = 0; i < connections; i++) {
        int one = 1;
        conns[i].request = &requests[i % request_count];
        conns[i].fd = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(conns[i].fd, (struct sockaddr *)&addr, sizeof addr)) die("connect");
        setsockopt(conns[i].fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        fcntl(conns[i].fd, F_SETFL, O_NONBLOCK);
        struct epoll_event ev = { .events = EPOLLIN, .data.ptr = &conns[i] };
        epoll_ctl(ep, EPOLL_CTL_ADD, conns[i].fd, &ev);
    }
    uint64_t start = now_ns(), end = start + (uint64_t)(seconds * 1e9);
    uint64_t issued = 0;
    prctl(PR_SET_TIMERSLACK, 1); /* ns, so that requests leave when they are due */
    for (int i = 0; i < connections; i++) {
        if (rate > 0) idle[idle_count++] = &conns[i];
        else send_request(&conns[i], now_ns());
    }
    static char buffer[1 << 20];
    struct epoll_event events[256];
    uint64_t delayed = delayed_ns();
    for (uint64_t now; (now = now_ns()) < end;) {
        struct timespec timeout = { 0, 100000000 };
        uint64_t due = 0;
        if (rate > 0) {
            while (idle_count && (due = start + (uint64_t)((double)issued * 1e9 / rate)) <= now) {
                send_request(idle[--idle_count], due);
                issued++;
            }
            /* without a free connection an answer comes next */
            if (idle_count && due - now < 100000000) timeout.tv_nsec = (long)(due - now);
        }
        int n = epoll_pwait2(ep, events, 256, &timeout, NULL);
        if (samples_file) {
            uint64_t before = delayed;
            if ((delayed = delayed_ns()) > before + 500000) note(0, now, now_ns());
        }
        for (int i = 0; i < n; i++) {
            struct conn *c = events[i].data.ptr;
            ssize_t got = recv(c->fd, buffer, sizeof buffer, 0);
            if (got > 0) { bytes_read += (uint64_t)got; consume(c, buffer, (size_t)got); }
            else if (got == 0) { fprintf(stderr, "server closed a connection\n"); return 1; }
            else if (errno != EAGAIN && errno != EINTR) die("recv");
        }
    }
    double took = (double)(now_ns() - start) / 1e9;
    print_figures(took);
    if (samples_file && fclose(samples_file)) die("write");
    return error_count != 0;
}
