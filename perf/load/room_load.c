/*
 * A room: N participants on WebSockets, each sends a packet every INTERVAL_MS and hears everybody. One thread, epoll.
 *
 *   room_load HOST PORT SECONDS N INTERVAL_MS FILTER
 *
 * FILTER 1: each subscribes with its own node left out, so it hears the N-1 others; 0: it hears itself too, and all
 * subscriptions are alike. Packets are sent by the clock, whatever is answered (open loop); the senders are spread over
 * the interval. A packet carries the time it was sent; a delivery is one packet on one connection.
 *
 * Prints one JSON object: asked and reached deliveries a second, p50, p99 and worst in ns, packets not sent because a
 * socket was full, and the CPU seconds of this program.
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

#include "measure.h"

enum { BUCKETS = 1 << 20, CARRY = 64, ROOM = 1 << 18 }; /* buckets of 1 us */

struct participant {
    int fd, ready;
    size_t carried;
    char carry[CARRY];
};

static uint32_t histogram[BUCKETS];
static uint64_t deliveries, bytes_read, worst, unsent, begun_at;
static char buffer[CARRY + ROOM];

/* A text frame of a client, masked with zeros. Returns its length. */
static size_t text_frame(char *out, const char *text, size_t len)
{
    size_t head = 2;
    out[0] = (char)0x81;
    if (len < 126) {
        out[1] = (char)(0x80 | len);
    } else {
        out[1] = (char)(0x80 | 126);
        out[2] = (char)(len >> 8);
        out[3] = (char)len;
        head = 4;
    }
    memset(out + head, 0, 4);
    memcpy(out + head + 4, text, len);
    return head + 4 + len;
}

static void join(struct participant *one, const char *host, int port, int number, int filter)
{
    static const char request[] =
        "GET /v0/ws HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    char text[256], frame[300];
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
    int yes = 1;
    inet_pton(AF_INET, host, &address.sin_addr);
    one->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (one->fd < 0 || connect(one->fd, (struct sockaddr *)&address, sizeof address) != 0) die("connect");
    setsockopt(one->fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    int len = filter ? snprintf(text, sizeof text,
                                "{\"op\":\"subscribe\",\"topic\":\"room\",\"tail\":true,\"node\":\"p%d\"}", number)
                     : snprintf(text, sizeof text, "{\"op\":\"subscribe\",\"topic\":\"room\",\"tail\":true}");
    size_t size = text_frame(frame, text, (size_t)len);
    if (send(one->fd, request, sizeof request - 1, 0) < 0 || send(one->fd, frame, size, 0) < 0) die("send");
    fcntl(one->fd, F_SETFL, O_NONBLOCK);
}

static void speak(struct participant *one, int number, uint64_t at)
{
    char text[512], frame[560];
    int len = snprintf(text, sizeof text,
                       "{\"op\":\"publish\",\"topic\":\"room\",\"return_seqs\":false,\"node\":\"p%d\",\"records\":[{\"data\":"
                       "{\"t\":%019llu,\"x\":\"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\"}}]}",
                       number, (unsigned long long)at + 1000000000000000000ull);
    size_t size = text_frame(frame, text, (size_t)len);
    ssize_t sent = send(one->fd, frame, size, MSG_NOSIGNAL);
    if (sent == (ssize_t)size) return;
    if (sent < 0 && errno == EAGAIN) { unsent++; return; }
    die("a packet was sent in part: the server does not read");
}

static void hear(struct participant *one)
{
    for (;;) {
        memcpy(buffer, one->carry, one->carried);
        ssize_t n = recv(one->fd, buffer + one->carried, ROOM, 0);
        if (n < 0 && errno == EAGAIN) return;
        if (n <= 0) die("the server closed");
        bytes_read += (uint64_t)n;
        uint64_t now = now_ns();
        char *at = buffer, *end = buffer + one->carried + n, *found;
        if (!one->ready && memmem(at, (size_t)(end - at), "caught_up", 9)) one->ready = 1;
        while ((found = memmem(at, (size_t)(end - at), "\"t\":", 4)) && end - found >= 24) {
            uint64_t sent = strtoull(found + 4, NULL, 10) - 1000000000000000000ull, took = now - sent;
            at = found + 23;
            if (sent < begun_at) continue;
            deliveries++;
            if (took > worst) worst = took;
            histogram[took / 1000 < BUCKETS ? took / 1000 : BUCKETS - 1]++;
        }
        if (found) at = found;
        size_t left = (size_t)(end - at);
        if (!found && left > 3) { at = end - 3; left = 3; }
        memcpy(one->carry, at, left);
        one->carried = left;
        if (n < ROOM) return;
    }
}

static uint64_t heard_quantile(double share)
{
    uint64_t wanted = (uint64_t)(share * (double)deliveries), seen = 0;
    for (int i = 0; i < BUCKETS; i++)
        if ((seen += histogram[i]) > wanted) return (uint64_t)(i + 1) * 1000;
    return worst;
}

int main(int argc, char **argv)
{
    if (argc != 7) { fprintf(stderr, "usage: room_load HOST PORT SECONDS N INTERVAL_MS FILTER\n"); return 2; }
    double seconds = atof(argv[3]);
    int count = atoi(argv[4]), filter = atoi(argv[6]), epoll = epoll_create1(0), all = 0;
    uint64_t interval = (uint64_t)(atof(argv[5]) * 1e6), packets = 0;
    struct participant *room = calloc((size_t)count, sizeof *room);
    struct epoll_event events[256];
    uint64_t *next = calloc((size_t)count, sizeof *next);
    for (int i = 0; i < count; i++) {
        join(&room[i], argv[1], atoi(argv[2]), i, filter);
        struct epoll_event event = { .events = EPOLLIN, .data.u32 = (uint32_t)i };
        epoll_ctl(epoll, EPOLL_CTL_ADD, room[i].fd, &event);
    }
    while (all < count) {
        int n = epoll_wait(epoll, events, 256, 5000);
        if (n <= 0) die("not everybody got in");
        for (int i = 0; i < n; i++) hear(&room[events[i].data.u32]);
        for (all = 0; all < count && room[all].ready; all++) {}
    }
    uint64_t start = now_ns(), settled = start + 1000000000ull, stop = settled + (uint64_t)(seconds * 1e9);
    begun_at = settled; /* the first second is not counted */
    for (int i = 0; i < count; i++) next[i] = start + interval * (uint64_t)i / (uint64_t)count;
    int turn = 0;
    for (uint64_t now = start; now < stop; now = now_ns()) {
        while (next[turn] <= now) {
            speak(&room[turn], turn, now_ns());
            if (next[turn] >= settled) packets++;
            next[turn] += interval;
            turn = (turn + 1) % count;
        }
        uint64_t wait = next[turn] > now ? (next[turn] - now) / 1000000 : 0;
        int n = epoll_wait(epoll, events, 256, (int)wait);
        for (int i = 0; i < n; i++) hear(&room[events[i].data.u32]);
    }
    printf("{\"asked\": %.0f, \"reached\": %.0f, \"p50_ns\": %llu, \"p99_ns\": %llu, \"worst_ns\": %llu, \"unsent\": %llu,"
           " \"bytes\": %llu, \"client_cpu\": %.3f}\n",
           (double)packets * (count - filter) / seconds, (double)deliveries / seconds, (unsigned long long)heard_quantile(0.5),
           (unsigned long long)heard_quantile(0.99), (unsigned long long)worst, (unsigned long long)unsent,
           (unsigned long long)bytes_read, cpu_seconds());
    return 0;
}
