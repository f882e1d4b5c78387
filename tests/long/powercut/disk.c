/* A disk in one file, by FUSE: a loop device and a real file system lie on it, and every write and flush that reaches
 * it is written down, in order. From the log the contents that a power cut could have left are built (images.py).
 *
 *     powercut-disk LOG MEGABYTES -f -s MOUNTPOINT
 *
 * MOUNTPOINT/disk  the disk's bytes, zero at first, held in memory
 * MOUNTPOINT/ctl   read: "WRITES FLUSHES\n" so far. Written: "eio AFTER COUNT" (after AFTER more writes, COUNT fail),
 *                  "eioflush COUNT" (so many flushes fail, and make nothing durable), "lie" (a flush succeeds and does
 *                  nothing), "honest"
 *
 * LOG: an entry is struct entry, then for a write its bytes. Run with -s: one thread, so the log's order is the disk's.
 */
#define FUSE_USE_VERSION 31
#define _GNU_SOURCE
#include <errno.h>
#include <fuse.h>
#include <linux/falloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct entry {
    uint64_t kind; /* 'W' write, 'Z' zeros, 'F' flush: all before it is on stable storage */
    uint64_t offset;
    uint64_t length;
};

static char *bytes;
static size_t size;
static FILE *journal;
static unsigned long writes, flushes;
static long fail_after = -1, fail_count, flush_fail_count;
static int lying;

static void note(char kind, uint64_t offset, uint64_t length, const char *data)
{
    struct entry entry = {(uint64_t)kind, offset, length};
    fwrite(&entry, sizeof entry, 1, journal);
    if (data)
        fwrite(data, 1, length, journal);
    if (kind == 'F')
        fflush(journal);
}

static int disk_getattr(const char *path, struct stat *st, struct fuse_file_info *info)
{
    (void)info;
    memset(st, 0, sizeof *st);
    if (!strcmp(path, "/")) {
        st->st_mode = S_IFDIR | 0700;
        st->st_nlink = 2;
        return 0;
    }
    st->st_nlink = 1;
    st->st_mode = S_IFREG | 0600;
    if (!strcmp(path, "/disk")) {
        st->st_size = (off_t)size;
        st->st_blksize = 4096;
        return 0;
    }
    return strcmp(path, "/ctl") ? -ENOENT : 0;
}

static int disk_readdir(const char *path, void *buffer, fuse_fill_dir_t fill, off_t offset, struct fuse_file_info *info,
                        enum fuse_readdir_flags flags)
{
    (void)path, (void)offset, (void)info, (void)flags;
    fill(buffer, ".", NULL, 0, 0);
    fill(buffer, "..", NULL, 0, 0);
    fill(buffer, "disk", NULL, 0, 0);
    fill(buffer, "ctl", NULL, 0, 0);
    return 0;
}

static int disk_open(const char *path, struct fuse_file_info *info)
{
    (void)path;
    info->direct_io = 1; /* no page cache between the loop device and the log */
    return 0;
}

static int disk_read(const char *path, char *buffer, size_t length, off_t offset, struct fuse_file_info *info)
{
    (void)info;
    if (!strcmp(path, "/ctl")) {
        char text[64];
        int count = snprintf(text, sizeof text, "%lu %lu\n", writes, flushes);
        if (offset >= count)
            return 0;
        if (length > (size_t)(count - offset))
            length = (size_t)(count - offset);
        memcpy(buffer, text + offset, length);
        return (int)length;
    }
    if ((size_t)offset >= size)
        return 0;
    if (offset + length > size)
        length = size - (size_t)offset;
    memcpy(buffer, bytes + offset, length);
    return (int)length;
}

static int control(const char *buffer, size_t length)
{
    char text[64];
    size_t count = length < sizeof text ? length : sizeof text - 1;
    memcpy(text, buffer, count);
    text[count] = 0;
    if (sscanf(text, "eio %ld %ld", &fail_after, &fail_count) == 2)
        return (int)length;
    if (sscanf(text, "eioflush %ld", &flush_fail_count) == 1)
        return (int)length;
    if (!strncmp(text, "lie", 3))
        lying = 1;
    else if (!strncmp(text, "honest", 6))
        lying = 0;
    else
        return -EINVAL;
    return (int)length;
}

static int disk_write(const char *path, const char *buffer, size_t length, off_t offset, struct fuse_file_info *info)
{
    (void)info;
    if (!strcmp(path, "/ctl"))
        return control(buffer, length);
    if (offset + length > size)
        return -ENOSPC;
    if (fail_count > 0) {
        if (fail_after <= 0) {
            fail_count--;
            return -EIO;
        }
        fail_after--;
    }
    memcpy(bytes + offset, buffer, length);
    writes++;
    note('W', (uint64_t)offset, length, buffer);
    return (int)length;
}

static int disk_fsync(const char *path, int data_only, struct fuse_file_info *info)
{
    (void)path, (void)data_only, (void)info;
    if (flush_fail_count > 0) {
        flush_fail_count--;
        return -EIO;
    }
    if (lying)
        return 0;
    flushes++;
    note('F', 0, 0, NULL);
    return 0;
}

static int disk_truncate(const char *path, off_t length, struct fuse_file_info *info)
{
    (void)path, (void)length, (void)info;
    return 0;
}

static int disk_fallocate(const char *path, int mode, off_t offset, off_t length, struct fuse_file_info *info)
{
    (void)path, (void)info;
    if (!(mode & (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE)))
        return -EOPNOTSUPP;
    memset(bytes + offset, 0, (size_t)length);
    writes++;
    note('Z', (uint64_t)offset, (uint64_t)length, NULL);
    return 0;
}

static const struct fuse_operations operations = {
    .getattr = disk_getattr,
    .readdir = disk_readdir,
    .open = disk_open,
    .read = disk_read,
    .write = disk_write,
    .fsync = disk_fsync,
    .truncate = disk_truncate,
    .fallocate = disk_fallocate,
};

int main(int argc, char **argv)
{
    if (argc < 4) {
        fprintf(stderr, "usage: %s LOG MEGABYTES -f -s MOUNTPOINT\n", argv[0]);
        return 2;
    }
    journal = fopen(argv[1], "wb");
    size = (size_t)atol(argv[2]) << 20;
    bytes = calloc(1, size);
    if (!journal || !bytes) {
        perror("powercut-disk");
        return 1;
    }
    argv[2] = argv[0];
    return fuse_main(argc - 2, argv + 2, &operations, NULL);
}
