/*
 * Commits without a server: what the disk, the file system and the scheduler alone do to paced writes.
 *
 *   paced_commits FILE SECONDS RATE BYTES SYNC_EVERY_MS
 *
 * Records of BYTES are due at RATE a second. One thread writes all that are due as whole 4 KiB blocks into a file that
 * was zeroed before, as a log does, and answers them then: after an fdatasync with SYNC_EVERY_MS 0, else at once, while
 * another thread syncs so often. Prints one JSON object with quantiles (ns) of the time from when a record was due.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "requests.h"

enum { BLOCK = 4096, FILE_BYTES = 64 << 20, WRITE_MAX = 1 << 20 };

static int fd, sync_every_ms;

static void *sync_by_time(void *unused)
{
    for (;;) {
        usleep((useconds_t)sync_every_ms * 1000);
        if (fdatasync(fd)) die("fdatasync");
    }
    return unused;
}

int main(int argc, char **argv)
{
    if (argc != 6) { fprintf(stderr, "usage: paced_commits FILE SECONDS RATE BYTES SYNC_EVERY_MS\n"); return 2; }
    double seconds = atof(argv[2]), rate = atof(argv[3]);
    uint64_t bytes = (uint64_t)atoll(argv[4]);
    sync_every_ms = atoi(argv[5]);
    static char block[WRITE_MAX + BLOCK];
    fd = open(argv[1], O_RDWR | O_CREAT, 0600);
    if (fd < 0) die(argv[1]);
    for (off_t at = 0; at < FILE_BYTES; at += WRITE_MAX)
        if (pwrite(fd, block, WRITE_MAX, at) != WRITE_MAX) die("pwrite");
    if (fsync(fd)) die("fsync");
    memset(block, 'q', sizeof block);
    pthread_t thread;
    if (sync_every_ms && pthread_create(&thread, NULL, sync_by_time, NULL)) die("pthread_create");
    prctl(PR_SET_TIMERSLACK, 1);
    uint64_t start = now_ns(), end = start + (uint64_t)(seconds * 1e9), issued = 0, position = 0;
    for (uint64_t now; (now = now_ns()) < end;) {
        uint64_t due = (uint64_t)((double)(now - start) * rate / 1e9) + 1;
        if (due == issued) {
            uint64_t next = start + (uint64_t)((double)issued * 1e9 / rate);
            struct timespec until = { (time_t)(next / 1000000000), (long)(next % 1000000000) };
            clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
            continue;
        }
        uint64_t count = due - issued, most = WRITE_MAX / bytes;
        if (count > most) count = most;
        if (position + count * bytes > FILE_BYTES) position = 0;
        uint64_t from = position / BLOCK * BLOCK, upto = (position + count * bytes + BLOCK - 1) / BLOCK * BLOCK;
        if (pwrite(fd, block, upto - from, (off_t)from) != (ssize_t)(upto - from)) die("pwrite");
        if (!sync_every_ms && fdatasync(fd)) die("fdatasync");
        position += count * bytes;
        uint64_t done = now_ns();
        for (uint64_t i = 0; i < count; i++) sample(&latencies, done - start - (uint64_t)((double)(issued + i) * 1e9 / rate));
        issued += count;
        done_count += count;
    }
    print_figures((double)(now_ns() - start) / 1e9);
    return 0;
}
