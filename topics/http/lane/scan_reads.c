/* Plain reads: the body of `POST /v0/topics/<name>/diff`, and the answers: see scan.h. */
#include <string.h>

#include "scan.h"
#include "scanner.h"

/* Bounds of an answer around its records: two texts and the name; six texts, four seqs, a count. */
enum {
    READ_TIMES_BYTES_MAX = 96,
    READ_BEFORE_BYTES = 2 * READ_TEXT_BYTES + TOPIC_NAME_BYTES_MAX + 1,
    READ_AFTER_BYTES = 6 * READ_TEXT_BYTES + 4 * 20 + READ_TIMES_BYTES_MAX + 16
};
enum { GIVEN_FROM = 1, GIVEN_LIMIT = 2, GIVEN_TAGS = 4, GIVEN_META = 8, GIVEN_WAIT = 16, GIVEN_BUDGET = 32 };

static inline const char *skip_white(const char *p, const char *end)
{
    while (p < end && (*p == ' ' || *p == '\t' || *p == '\n' || *p == '\r')) p++;
    return p;
}

/* Read an integer of JSON up to `most`, without sign, fraction or exponent. NULL: it is none. */
static const char *read_number(const char *p, const char *end, uint64_t most, uint64_t *value)
{
    const char *from = p;
    uint64_t v = 0;
    for (; p < end && (uint8_t)(*p - '0') <= 9; p++) {
        uint64_t digit = (uint64_t)(*p - '0');
        if (v > (most - digit) / 10) return NULL;
        v = v * 10 + digit;
    }
    if (p == from || (*from == '0' && p - from > 1)) return NULL;
    *value = v;
    return p;
}

static const char *read_boolean(const char *p, const char *end, uint64_t *value)
{
    if (STARTS(p, end, "true")) return *value = 1, p + 4;
    if (STARTS(p, end, "false")) return *value = 0, p + 5;
    return NULL;
}

/* Read an object that only has fields of a plain read, each once. Return 0; -1: not plain. */
static int read_query(const char *p, const char *end, struct tp_read *read)
{
    uint32_t given = 0;
    p = skip_white(p, end);
    if (p == end || *p != '{') return -1;
    p = skip_white(p + 1, end);
    if (p < end && *p == '}') return skip_white(p + 1, end) == end ? 0 : -1;
    for (;;) {
        uint64_t value = 0;
        uint32_t field = 0;
        if (p == end || *p != '"') return -1;
        const char *name = p + 1, *quote = memchr(name, '"', (size_t)(end - name));
        if (!quote) return -1;
        uint64_t len = (uint64_t)(quote - name);
        p = skip_white(quote + 1, end);
        if (p == end || *p != ':') return -1;
        p = skip_white(p + 1, end);
        if (IS(name, len, "from_seq")) {
            field = GIVEN_FROM;
            p = read_number(p, end, UINT64_MAX, &read->from_seq);
        } else if (IS(name, len, "limit")) {
            field = GIVEN_LIMIT;
            p = read_number(p, end, UINT32_MAX, &value);
            read->limit = (uint32_t)value;
        } else if (IS(name, len, "max_batch_bytes")) {
            field = GIVEN_BUDGET;
            p = read_number(p, end, UINT64_MAX, &read->budget);
        } else if (IS(name, len, "wait_ms")) {
            field = GIVEN_WAIT;
            p = read_number(p, end, UINT32_MAX, &value);
            if (value) read->flags |= TP_READ_WAITS;
        } else if (IS(name, len, "include_tags")) {
            field = GIVEN_TAGS;
            p = read_boolean(p, end, &value);
            if (value) read->flags |= TP_READ_TAGS;
        } else if (IS(name, len, "include_meta")) {
            field = GIVEN_META;
            p = read_boolean(p, end, &value);
            if (!value) read->flags |= TP_READ_NO_META;
        }
        if (!field || !p || given & field) return -1;
        given |= field;
        p = skip_white(p, end);
        if (p < end && *p == '}') return skip_white(p + 1, end) == end ? 0 : -1;
        if (p == end || *p != ',') return -1;
        p = skip_white(p + 1, end);
    }
}

int add_read(tp_scanner *s, const struct tp_request *r, const char *body)
{
    struct tp_read read = {.receive = r->receive, .end = r->end};
    if (r->flags & TP_FEW_RECORDS) read.flags |= TP_READ_SHORT;
    if (r->flags & TP_STRICT) read.flags |= TP_READ_STRICT;
    if (read_query(body, body + r->len, &read)) return TP_MISS_BODY;
    struct name *name = s->names + r->topic;
    if (name->stamp != s->stamp) {
        name->stamp = s->stamp;
        name->group = s->read_topic_count;
        s->read_topics[s->read_topic_count++] = r->topic;
    }
    read.slot = name->group;
    s->reads[s->read_count++] = read;
    return 0;
}

uint32_t tp_scanned_reads(tp_scanner *s, struct tp_read **reads, uint32_t **topics, uint32_t *topic_count)
{
    *reads = s->reads;
    *topics = s->read_topics;
    *topic_count = s->read_topic_count;
    return s->read_count;
}

int64_t tp_render_reads(tp_scanner *s, char *out, uint64_t room, const char *elements,
                        const struct tp_read_topic *topics, const uint64_t *refs, const char *head, uint32_t head_len,
                        const char *times, uint32_t times_len, uint32_t *upto, uint64_t *out_refs, uint32_t *out_lengths, uint32_t *sends)
{
    char *p = out;
    uint32_t n = 0, receive = NO_PLACE;
    *sends = 0;
    if (times_len > READ_TIMES_BYTES_MAX) return -1;
    for (uint32_t i = 0; i < s->read_count; i++) {
        const struct tp_read *read = s->reads + i;
        if (!read->taken) continue;
        const struct tp_read_topic *topic = topics + read->slot;
        const struct name *name = s->names + s->read_topics[read->slot];
        char before[READ_BEFORE_BYTES], after[READ_AFTER_BYTES], *b = before, *a = after, *start = p;
        if (head_len + read->len + sizeof before + sizeof after + HEAD_TEXT_BYTES + 32 > room - (uint64_t)(p - out))
            return -1;
        b = PUT_READ_TEXT(b, READ_NAME);
        b = put(b, s->arena + name->off, name->len - (sizeof READ_SUFFIX - 1));
        b = PUT_READ_TEXT(b, READ_RECORDS);
        a = PUT_READ_TEXT(a, READ_NEXT);
        a = put_number(a, read->next);
        a = PUT_READ_TEXT(a, READ_HEAD);
        a = put_number(a, topic->head);
        a = PUT_READ_TEXT(a, READ_EARLIEST);
        a = put_number(a, topic->earliest);
        a = read->next == topic->head ? PUT_READ_TEXT(a, READ_CAUGHT_UP) : PUT_READ_TEXT(a, READ_MORE);
        a = PUT_READ_TEXT(a, READ_LAG);
        a = put_number(a, topic->head - read->next);
        a = put(a, times, times_len);
        a = put_number(a, read->count);
        a = PUT_READ_TEXT(a, READ_END);
        p = put(p, head, head_len);
        p = put_head_end(p, s, (uint64_t)(b - before) + read->len + (uint64_t)(a - after), read->flags & TP_READ_STRICT);
        p = put(p, before, (uint64_t)(b - before));
        p = put(p, elements + read->off, read->len);
        p = put(p, after, (uint64_t)(a - after));
        if (read->receive != receive) {
            receive = read->receive;
            out_refs[n] = refs[receive];
            out_lengths[n++] = 0;
        }
        out_lengths[n - 1] += (uint32_t)(p - start);
        upto[receive] = read->end;
    }
    *sends = n;
    return p - out;
}
