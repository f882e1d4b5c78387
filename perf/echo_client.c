/* Echo load: N connections, each with one message in flight; prints messages per second.
   Usage: echo_client HOST PORT CONNECTIONS BYTES SECONDS */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void die(const char *what)
{
    perror(what);
    exit(1);
}

int main(int argc, char **argv)
{
    if (argc != 6) {
        fprintf(stderr, "usage: echo_client HOST PORT CONNECTIONS BYTES SECONDS\n");
        return 2;
    }
    int connections = atoi(argv[3]), size = atoi(argv[4]), poll_fd = epoll_create1(0), one = 1;
    double duration = atof(argv[5]);
    char *message = malloc((size_t)size), *reply = malloc((size_t)size);
    int *missing = calloc((size_t)connections + 4096, sizeof *missing);    /* bytes of the reply still to come, by descriptor */
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((unsigned short)atoi(argv[2]))};
    struct epoll_event events[256];

    inet_pton(AF_INET, argv[1], &address.sin_addr);
    memset(message, 'x', (size_t)size);
    for (int i = 0; i < connections; i++) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) < 0) die("connect");
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
        epoll_ctl(poll_fd, EPOLL_CTL_ADD, fd, &event);
        missing[fd] = size;
        if (send(fd, message, (size_t)size, 0) != size) die("send");
    }
    long done = 0, counted_from = 0;
    double warm = seconds() + duration * 0.2, end = warm + duration, started = 0;
    for (;;) {
        int ready = epoll_wait(poll_fd, events, 256, 1000);
        if (ready == 0) {
            fprintf(stderr, "no reply for a second\n");
            return 1;
        }
        for (int i = 0; i < ready; i++) {
            int fd = events[i].data.fd;
            ssize_t got = recv(fd, reply, (size_t)missing[fd], MSG_DONTWAIT);
            if (got <= 0) {
                if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
                die("recv");
            }
            missing[fd] -= (int)got;
            if (missing[fd]) continue;
            missing[fd] = size;
            done++;
            if (send(fd, message, (size_t)size, 0) != size) die("send");
        }
        double now = seconds();
        if (!started && now >= warm) {
            started = now;
            counted_from = done;
        }
        if (now >= end) {
            printf("%.0f\n", (double)(done - counted_from) / (now - started));
            return 0;
        }
    }
}
