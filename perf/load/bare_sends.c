/*
 * The yardstick of deliveries: a loop of send() over all watchers, and nothing else.
 *
 *   bare_sends PORT BYTES
 *
 * Whoever sends a GET watches and is answered "caught"; whoever sends anything else writes: every watcher is sent BYTES
 * bytes that begin with "$seq", in a loop, then the writer gets its 200. It prints a line when it listens.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    if (argc != 3) { fprintf(stderr, "usage: bare_sends PORT BYTES\n"); return 2; }
    size_t size = (size_t)atoi(argv[2]);
    char *message = malloc(size), buffer[65536];
    memset(message, 'x', size);
    memcpy(message, "$seq", 4);
    static int watchers[65536];
    int count = 0, one = 1, ep = epoll_create1(0), listener = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons((unsigned short)atoi(argv[1])) };
    inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, 1024)) { perror("listen"); return 1; }
    struct epoll_event event = { .events = EPOLLIN, .data.fd = listener }, events[64];
    epoll_ctl(ep, EPOLL_CTL_ADD, listener, &event);
    puts("listening");
    fflush(stdout);
    for (;;) {
        int n = epoll_wait(ep, events, 64, -1);
        for (int i = 0; i < n; i++) {
            int fd = events[i].data.fd;
            if (fd == listener) {
                fd = accept(listener, NULL, NULL);
                setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
                event.data.fd = fd;
                epoll_ctl(ep, EPOLL_CTL_ADD, fd, &event);
                continue;
            }
            ssize_t got = recv(fd, buffer, sizeof buffer, 0);
            if (got <= 0) {
                close(fd);
                for (int w = 0; w < count; w++)
                    if (watchers[w] == fd) watchers[w--] = watchers[--count];
            } else if (memcmp(buffer, "GET", 3) == 0) {
                watchers[count++] = fd;
                send(fd, "caught", 6, MSG_NOSIGNAL);
            } else {
                static const char answer[] = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}";
                for (int w = 0; w < count; w++) send(watchers[w], message, size, MSG_NOSIGNAL);
                send(fd, answer, sizeof answer - 1, MSG_NOSIGNAL);
            }
        }
    }
}
