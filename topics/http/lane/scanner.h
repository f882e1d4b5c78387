/* The scanner and helpers for text, shared by scan.c and scan_reads.c. Internal to them. */
#ifndef TOPICS_HTTP_SCANNER_H
#define TOPICS_HTTP_SCANNER_H

#include <stdint.h>
#include <string.h>

#include "scan.h"

enum { HOSTS_MAX = 16, HOST_BYTES_MAX = 128, TOPIC_NAME_BYTES_MAX = 255 };
enum { NO_PLACE = 0xffffffff, NOT_ANY = 0xfffffffe }; /* no receive, or no topic */
#define READ_SUFFIX "/diff"

struct name {
    uint64_t hash;
    uint32_t off, len;     /* in the arena */
    uint32_t key;
    uint8_t forgotten, reads; /* reads: the target of reads, "<name>/diff" */
    uint32_t group;           /* in the scan `stamp`; of reads, the slot */
    uint64_t stamp;           /* 64 bits, as a repeated stamp would mix up groups; 0: none yet */
};

/* Texts of a write's answer: before the topic's name, before the first seq, and so on. Then those
 * of a read's answer: before the name, the records, and so on. Last the line of strict answers. */
enum {
    TEXT_NAME, TEXT_FIRST, TEXT_LAST, TEXT_SEQS, TEXT_SEQS_END, TEXT_HEAD, TEXT_COUNT,
    READ_NAME, READ_RECORDS, READ_NEXT, READ_HEAD, READ_EARLIEST, READ_MORE, READ_CAUGHT_UP, READ_LAG, READ_END,
    HEAD_STRICT, TEXTS, READ_TEXTS = READ_NAME
};
enum { WRITE_TEXT_BYTES = 16, READ_TEXT_BYTES = 32, HEAD_TEXT_BYTES = 48 }; /* the most of one text */

struct tp_scanner {
    uint32_t max_head_bytes, max_head_fields, max_key_bytes;
    uint32_t with_request_ids; /* 1: `X-Request-Id` is a field that matters */
    /* max_command_bytes: bodies of reads; 0: no limit */
    uint64_t max_body_bytes, max_command_bytes, secret;
    uint8_t *digests;
    uint32_t key_count;
    uint32_t host_count;
    /* stamp: the last scan that met it */
    struct { uint64_t stamp; uint32_t len; char text[HOST_BYTES_MAX]; } hosts[HOSTS_MAX];
    struct name *names;
    uint32_t name_count, name_room;
    uint32_t *slots, slot_count; /* number of a name + 1; slot_count is a power of two */
    char *arena;
    uint64_t arena_used, arena_room;
    uint64_t stamp; /* number of the current scan */
    struct tp_request *found; /* in order of arrival */
    struct tp_read *reads;    /* in order of arrival */
    uint32_t *read_topics;
    uint32_t read_count, read_topic_count;
    uint32_t found_room;      /* rows of found, reads and read_topics */
    struct { char at[HEAD_TEXT_BYTES]; uint32_t len; } texts[TEXTS];
};

/* Add the read of request r, with its body at `body`, as a row. Return 0, or a TP_MISS_*. */
int add_read(tp_scanner *s, const struct tp_request *r, const char *body);

/* Whether a text begins with a literal, or equals it. */
#define STARTS(p, end, text) ((uint64_t)((end) - (p)) >= sizeof(text) - 1 && !memcmp(p, text, sizeof(text) - 1))
#define IS(p, len, text) ((len) == sizeof(text) - 1 && !memcmp(p, text, sizeof(text) - 1))

static inline uint32_t digits_of(uint64_t v)
{
    uint32_t n = 1;
    for (; v >= 10; v /= 10) n++;
    return n;
}

static inline char *put_number(char *out, uint64_t v)
{
    uint32_t n = digits_of(v);
    for (char *p = out + n; p > out; v /= 10) *--p = (char)('0' + v % 10);
    return out + n;
}

static inline char *put(char *out, const void *text, uint64_t len)
{
    memcpy(out, text, len);
    return out + len;
}
#define PUT(out, literal) put(out, literal, sizeof(literal) - 1)
/* Copy the most bytes of a text, in one or two moves; what follows overwrites the excess. */
#define PUT_TEXT(out, text) (memcpy(out, s->texts[text].at, WRITE_TEXT_BYTES), (out) + s->texts[text].len)
#define PUT_READ_TEXT(out, text) (memcpy(out, s->texts[text].at, READ_TEXT_BYTES), (out) + s->texts[text].len)

/* Write the length of the body, with which a head ends, or with the line of a strict answer. */
static inline char *put_head_end(char *out, const tp_scanner *s, uint64_t body_bytes, int strict)
{
    out = put_number(out, body_bytes);
    out = PUT(out, "\r\n");
    if (strict) out = put(out, s->texts[HEAD_STRICT].at, s->texts[HEAD_STRICT].len);
    return PUT(out, "\r\n");
}

#endif
