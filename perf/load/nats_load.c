/*
 * A closed-loop JetStream publisher: N connections, one message awaiting its acknowledgement on each, one thread.
 *
 *   nats_load HOST PORT CONNECTIONS SECONDS SUBJECT PAYLOAD
 *
 * Prints what http_load prints.
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
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "requests.h"

enum { BUFFER = 65536 };

struct conn {
    int fd;
    size_t message_len, have;
    uint64_t sent_at;
    char *message, buffer[BUFFER];
};


static void send_all(int fd, const char *data, size_t len)
{
    while (len) {
        ssize_t n = send(fd, data, len, MSG_NOSIGNAL);
        if (n > 0) data += n, len -= (size_t)n;
        else if (errno != EAGAIN && errno != EINTR) die("send");
    }
}

static void publish(struct conn *c)
{
    c->sent_at = now_ns();
    send_all(c->fd, c->message, c->message_len);
}

/* Whole lines of the protocol: MSG is the acknowledgement of what was published, PING wants a PONG. */
static void consume(struct conn *c)
{
    for (;;) {
        char *line = c->buffer, *end = memmem(line, c->have, "\r\n", 2);
        if (!end) return;
        size_t used = (size_t)(end - line) + 2;
        if (!strncmp(line, "MSG ", 4)) {
            *end = 0;
            size_t payload = (size_t)atoll(strrchr(line, ' ') + 1);
            *end = '\r';
            if (c->have < used + payload + 2) return;
            if (memmem(line + used, payload, "\"error\"", 7) && error_count++ == 0)
                fprintf(stderr, "first unexpected answer: %.*s\n", (int)payload, line + used);
            used += payload + 2;
            sample(&latencies, now_ns() - c->sent_at);
            done_count++;
            publish(c);
        } else if (!strncmp(line, "PING", 4)) {
            send_all(c->fd, "PONG\r\n", 6);
        } else if (!strncmp(line, "-ERR", 4)) {
            fprintf(stderr, "%.*s\n", (int)used, line);
            exit(1);
        }
        memmove(c->buffer, c->buffer + used, c->have - used);
        c->have -= used;
    }
}

int main(int argc, char **argv)
{
    if (argc != 7) { fprintf(stderr, "usage: nats_load HOST PORT CONNECTIONS SECONDS SUBJECT PAYLOAD\n"); return 2; }
    int connections = atoi(argv[3]), ep = epoll_create1(0);
    double seconds = atof(argv[4]);
    struct conn *conns = calloc((size_t)connections, sizeof *conns);
    struct sockaddr_in addr = { .sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(argv[2])) };
    inet_pton(AF_INET, argv[1], &addr.sin_addr);
    for (int i = 0; i < connections; i++) {
        struct conn *c = conns + i;
        char hello[256];
        int one = 1;
        c->fd = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(c->fd, (struct sockaddr *)&addr, sizeof addr)) die("connect");
        setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        int len = snprintf(hello, sizeof hello, "CONNECT {\"verbose\":false,\"pedantic\":false}\r\nSUB _INBOX.load.%d 1\r\n", i);
        send_all(c->fd, hello, (size_t)len);
        c->message_len = (size_t)asprintf(&c->message, "PUB %s _INBOX.load.%d %zu\r\n%s\r\n", argv[5], i, strlen(argv[6]), argv[6]);
        fcntl(c->fd, F_SETFL, O_NONBLOCK);
        struct epoll_event ev = { .events = EPOLLIN, .data.ptr = c };
        epoll_ctl(ep, EPOLL_CTL_ADD, c->fd, &ev);
    }
    uint64_t start = now_ns(), end = start + (uint64_t)(seconds * 1e9);
    for (int i = 0; i < connections; i++) publish(conns + i);
    struct epoll_event events[256];
    while (now_ns() < end) {
        int n = epoll_wait(ep, events, 256, 100);
        for (int i = 0; i < n; i++) {
            struct conn *c = events[i].data.ptr;
            ssize_t got = recv(c->fd, c->buffer + c->have, BUFFER - c->have, 0);
            if (got > 0) { bytes_read += (uint64_t)got; c->have += (size_t)got; consume(c); }
            else if (got == 0) { fprintf(stderr, "server closed a connection\n"); return 1; }
            else if (errno != EAGAIN && errno != EINTR) die("recv");
        }
    }
    double took = (double)(now_ns() - start) / 1e9;
    print_figures(took);
    return error_count != 0;
}
