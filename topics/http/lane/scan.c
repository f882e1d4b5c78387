/* Plain requests: `POST /v0/topics/<name>` and its `/diff`, over HTTP/1.1, whole, with a head of a
 * few known fields.
 *
 * The rules agree with those of the general path (http/http1/http1_connection.py). Anything unusual
 * (a repeated field, an unknown one, a value with white space at its end) is not an error but "not
 * plain". So the taken requests need no error messages, and tests/server/test_lane.py can compare
 * both paths byte for byte. */
#include <stdlib.h>
#include <string.h>

#include "scan.h"
#include "scanner.h"
#include "sha256.h"

enum { NAMES_MAX = 1 << 18, LENGTH_DIGITS_MAX = 9 };
/* The first stamp: high enough that each server soon exceeds 32 bits of scans. */
static const uint64_t SCANS_BEFORE = 0xffffff00;
enum {
    SEEN_HOST = 1, SEEN_TYPE = 2, SEEN_LENGTH = 4, SEEN_ACCEPT = 8, SEEN_AGENT = 16, SEEN_ENCODING = 32,
    SEEN_CONNECTION = 64, SEEN_LANGUAGE = 128, SEEN_KEY = 256, SEEN_IDEMPOTENCY = 512, SEEN_PREFER = 1024
};

/* Take the texts, each ended by a zero byte. Return 0; -1 for a wrong number or size. */
static int take_texts(tp_scanner *s, const char *texts, uint32_t len)
{
    const char *text = texts, *stop = texts + len;
    uint32_t count = 0;
    for (; text < stop; count++) {
        const char *end = memchr(text, 0, (size_t)(stop - text));
        if (!end || count == TEXTS) return -1;
        if (end - text > (count < READ_TEXTS ? WRITE_TEXT_BYTES : count < HEAD_STRICT ? READ_TEXT_BYTES : HEAD_TEXT_BYTES))
            return -1;
        memcpy(s->texts[count].at, text, (size_t)(end - text));
        s->texts[count].len = (uint32_t)(end - text);
        text = end + 1;
    }
    return count == TEXTS ? 0 : -1;
}

tp_scanner *tp_scanner_new(uint32_t max_head_bytes, uint32_t max_head_fields, uint64_t max_body_bytes,
                           uint64_t max_command_bytes, uint32_t max_key_bytes, uint32_t with_request_ids,
                           uint64_t secret, const char *texts, uint32_t texts_len)
{
    tp_scanner *s = calloc(1, sizeof *s);
    if (!s) return NULL;
    if (take_texts(s, texts, texts_len)) {
        free(s);
        return NULL;
    }
    s->max_head_bytes = max_head_bytes;
    s->max_head_fields = max_head_fields;
    s->max_body_bytes = max_body_bytes;
    s->max_command_bytes = max_command_bytes;
    s->max_key_bytes = max_key_bytes;
    s->with_request_ids = with_request_ids;
    s->secret = secret | 1;
    s->stamp = SCANS_BEFORE;
    s->slot_count = 256;
    s->slots = calloc(s->slot_count, sizeof *s->slots);
    if (!s->slots) {
        free(s);
        return NULL;
    }
    return s;
}

void tp_scanner_free(tp_scanner *s)
{
    free(s->names);
    free(s->slots);
    free(s->arena);
    free(s->found);
    free(s->reads);
    free(s->read_topics);
    free(s->digests);
    free(s);
}

/* ---- what was learnt ---------------------------------------------------------------------------------------------- */

int tp_learn_host(tp_scanner *s, const char *host, uint32_t len)
{
    uint32_t at = 0;
    if (len == 0 || len > HOST_BYTES_MAX) return -1;
    if (s->host_count < HOSTS_MAX) at = s->host_count++;
    else
        for (uint32_t i = 1; i < HOSTS_MAX; i++)
            if (s->hosts[i].stamp < s->hosts[at].stamp) at = i;
    memcpy(s->hosts[at].text, host, len);
    s->hosts[at].len = len;
    s->hosts[at].stamp = s->stamp;
    return (int)at;
}

static int host_is_known(tp_scanner *s, const char *p, uint64_t len)
{
    for (uint32_t i = 0; i < s->host_count; i++)
        if (s->hosts[i].len == len && !memcmp(s->hosts[i].text, p, len)) {
            s->hosts[i].stamp = s->stamp;
            return 1;
        }
    return 0;
}

int tp_learn_keys(tp_scanner *s, const unsigned char *digests, uint32_t count)
{
    uint8_t *copy = malloc(32 * (size_t)count + 1);
    if (!copy) return -1;
    memcpy(copy, digests, 32 * (size_t)count);
    free(s->digests);
    s->digests = copy;
    s->key_count = count;
    return 0;
}

void tp_digest(const unsigned char *text, uint64_t len, unsigned char *digest) { sha256(text, len, digest); }

/* Return the key of a token, or TP_NO_KEY. The time is the same for every key, and for none. */
static uint32_t key_of(const tp_scanner *s, const char *token, uint64_t len)
{
    uint8_t digest[32];
    uint32_t found = TP_NO_KEY;
    sha256((const uint8_t *)token, len, digest);
    for (uint32_t key = 0; key < s->key_count; key++) {
        uint8_t differs = 0;
        for (int i = 0; i < 32; i++) differs |= digest[i] ^ s->digests[32 * (size_t)key + (size_t)i];
        /* All ones if the digests are equal. */
        uint32_t same = (uint32_t)(((uint64_t)differs - 1) >> 32);
        found = (found & ~same) | (key & same);
    }
    return found;
}

/* Hash a name with a secret, so that a client cannot choose names that share one place. */
static uint64_t hash_name(const tp_scanner *s, const char *p, uint64_t len, uint32_t key)
{
    uint64_t h = s->secret ^ len ^ (uint64_t)key << 32;
    while (len) {
        uint64_t part = 0, take = len < 8 ? len : 8;
        memcpy(&part, p, take);
        unsigned __int128 product = (unsigned __int128)(h ^ part) * (s->secret ^ 0x9E3779B97F4A7C15u);
        h = (uint64_t)product ^ (uint64_t)(product >> 64);
        p += take;
        len -= take;
    }
    return h;
}

/* Return the slot of a name, or the free slot where it would be. */
static uint32_t *slot_of(const tp_scanner *s, uint64_t hash, const char *p, uint64_t len, uint32_t key)
{
    for (uint64_t at = hash & (s->slot_count - 1);; at = (at + 1) & (s->slot_count - 1)) {
        uint32_t *slot = s->slots + at;
        if (!*slot) return slot;
        const struct name *name = s->names + *slot - 1;
        if (name->hash == hash && name->key == key && name->len == len && !memcmp(s->arena + name->off, p, len)) return slot;
    }
}

static int grow_slots(tp_scanner *s)
{
    uint32_t count = s->slot_count * 2, *slots = calloc(count, sizeof *slots);
    if (!slots) return -1;
    for (uint32_t i = 0; i < s->name_count; i++) {
        uint64_t at = s->names[i].hash & (count - 1);
        while (slots[at]) at = (at + 1) & (count - 1);
        slots[at] = i + 1;
    }
    free(s->slots);
    s->slots = slots;
    s->slot_count = count;
    return 0;
}

int64_t tp_learn_topic(tp_scanner *s, const char *name, uint32_t len, uint32_t key)
{
    uint64_t hash = hash_name(s, name, len, key);
    uint32_t *slot = slot_of(s, hash, name, len, key);
    if (*slot) {
        s->names[*slot - 1].forgotten = 0;
        return *slot - 1;
    }
    if (s->name_count == NAMES_MAX) return -1;
    if (s->name_count == s->name_room) {
        uint32_t room = s->name_room ? s->name_room * 2 : 64;
        struct name *names = realloc(s->names, room * sizeof *names);
        if (!names) return -1;
        s->names = names;
        s->name_room = room;
    }
    if (s->arena_used + len > s->arena_room) {
        uint64_t room = (s->arena_room + len) * 2;
        char *arena = room > 0xffffffffu ? NULL : realloc(s->arena, room);
        if (!arena) return -1;
        s->arena = arena;
        s->arena_room = room;
    }
    if (s->name_count >= s->slot_count / 2) {
        if (grow_slots(s)) return -1;
        slot = slot_of(s, hash, name, len, key);
    }
    memcpy(s->arena + s->arena_used, name, len);
    s->names[s->name_count] = (struct name){
        .hash = hash, .off = (uint32_t)s->arena_used, .len = len, .key = key, .reads = memchr(name, '/', len) != NULL};
    s->arena_used += len;
    *slot = ++s->name_count;
    return s->name_count - 1;
}

void tp_forget_topic(tp_scanner *s, uint32_t number)
{
    if (number < s->name_count) s->names[number].forgotten = 1;
}

void tp_forget_topics(tp_scanner *s)
{
    memset(s->slots, 0, s->slot_count * sizeof *s->slots);
    s->name_count = 0;
    s->arena_used = 0;
}

/* ---- one request -------------------------------------------------------------------------------------------------- */

/* Compare without case. name: lower-case letters and '-' only. */
static inline int is_field(const char *p, const char *name, uint64_t len)
{
    for (uint64_t i = 0; i < len; i++)
        if ((p[i] | 0x20) != name[i] || (name[i] == '-' && p[i] != '-')) return 0;
    return 1;
}

static inline int is_printable(const char *p, const char *end)
{
    for (; p < end; p++)
        if (((uint8_t)*p < 0x20 && *p != '\t') || *p == 0x7f) return 0;
    return 1;
}

/* Fields that proxies, tracing and browsers add, and that change nothing. */
static const char *const UNUSED[] = {
    "via", "dnt", "pragma", "baggage", "priority", "forwarded", "x-real-ip", "tracestate", "traceparent",
    "cache-control", "x-forwarded-for", "x-forwarded-host", "x-forwarded-port", "x-forwarded-proto",
    "x-forwarded-server", "x-amzn-trace-id", "x-request-id", /* the last one is in the access log */
};

/* Whether the field with its line from p to `stop` (the CR) is one of these. */
static int is_unused(const tp_scanner *s, const char *p, const char *stop)
{
    const char *colon = memchr(p, ':', (size_t)(stop - p));
    if (!colon) return 0;
    uint64_t count = sizeof UNUSED / sizeof *UNUSED - (s->with_request_ids ? 1 : 0), len = (uint64_t)(colon - p);
    for (uint64_t i = 0; i < count; i++)
        if (strlen(UNUSED[i]) == len && is_field(p, UNUSED[i], len)) return is_printable(colon + 1, stop);
    return 0;
}

/* Read one field, its line from p to `stop` (the CR). Return 0, or the TP_MISS_* reason. */
static int read_field(tp_scanner *s, const char *p, const char *stop, uint32_t *seen, uint32_t *flags,
                      uint64_t *length, uint32_t *key, const char **idempotency_key, uint32_t *idempotency_len)
{
    const char *colon = memchr(p, ':', (size_t)(stop - p));
    if (!colon) return TP_MISS_FIELD;
    uint64_t name_len = (uint64_t)(colon - p);
    const char *value = colon + 1;
    while (value < stop && (*value == ' ' || *value == '\t')) value++;
    uint64_t len = (uint64_t)(stop - value);
    uint32_t field = 0;
    switch (name_len) {
    case 4:
        if (!is_field(p, "host", 4)) return TP_MISS_FIELD;
        field = SEEN_HOST;
        if (!host_is_known(s, value, len)) return TP_MISS_HOST;
        break;
    case 6:
        if (is_field(p, "accept", 6)) {
            field = SEEN_ACCEPT;
            if (!is_printable(value, stop)) return TP_MISS_FIELD;
        } else if (is_field(p, "prefer", 6) && IS(value, len, "handling=strict")) {
            field = SEEN_PREFER;
            *flags |= TP_STRICT;
        } else {
            return TP_MISS_FIELD;
        }
        break;
    case 10:
        if (is_field(p, "user-agent", 10)) {
            field = SEEN_AGENT;
            if (!is_printable(value, stop)) return TP_MISS_FIELD;
        } else if (is_field(p, "connection", 10)) {
            field = SEEN_CONNECTION;
            if (len != 10 || !is_field(value, "keep-alive", 10)) return TP_MISS_FIELD;
        } else {
            return TP_MISS_FIELD;
        }
        break;
    case 12:
        if (!is_field(p, "content-type", 12) || !IS(value, len, "application/json")) return TP_MISS_FIELD;
        field = SEEN_TYPE;
        break;
    case 13:
        if (!s->key_count || !is_field(p, "authorization", 13) || !STARTS(value, stop, "Bearer ")) return TP_MISS_FIELD;
        value += 7;
        /* Only the general path strips blanks around a token. */
        for (const char *q = value; q < stop; q++)
            if ((uint8_t)*q <= ' ' || (uint8_t)*q >= 0x7f) return TP_MISS_FIELD;
        *key = value == stop ? TP_NO_KEY : key_of(s, value, (uint64_t)(stop - value));
        if (*key == TP_NO_KEY) return TP_MISS_FIELD;
        field = SEEN_KEY;
        break;
    case 14:
        if (!is_field(p, "content-length", 14) || !len || len > LENGTH_DIGITS_MAX) return TP_MISS_FIELD;
        field = SEEN_LENGTH;
        *length = 0;
        for (; value < stop; value++) {
            if ((uint8_t)(*value - '0') > 9) return TP_MISS_FIELD;
            *length = *length * 10 + (uint64_t)(*value - '0');
        }
        break;
    case 15:
        /* A long answer may be compressed, which is not plain. */
        if (is_field(p, "accept-encoding", 15)) field = SEEN_ENCODING, *flags |= TP_FEW_RECORDS;
        else if (is_field(p, "accept-language", 15)) field = SEEN_LANGUAGE;
        else if (is_field(p, "idempotency-key", 15) && len && len <= s->max_key_bytes && stop[-1] > ' ') {
            field = SEEN_IDEMPOTENCY;
            for (const char *q = value; q < stop; q++)
                if ((uint8_t)*q < ' ' || (uint8_t)*q > 0x7e) return TP_MISS_FIELD;
            *idempotency_key = value;
            *idempotency_len = (uint32_t)len;
        } else return TP_MISS_FIELD;
        if (!is_printable(value, stop)) return TP_MISS_FIELD;
        break;
    default:
        return TP_MISS_FIELD;
    }
    if (*seen & field) return TP_MISS_FIELD;
    *seen |= field;
    return 0;
}

/* Read the request at `from` into *r, with offsets from `from`. Return 0, or a TP_MISS_*. */
static int read_request(tp_scanner *s, const char *from, const char *end, struct tp_request *r)
{
    const char *p = from;
    uint32_t seen = 0, flags = 0, fields = 0, key = TP_NO_KEY;
    uint64_t length = 0;
    const char *idempotency_key = from;
    uint32_t idempotency_len = 0;
    if (!STARTS(p, end, "POST /v0/topics/")) return end - p < 16 && !memcmp(p, "POST /v0/topics/", (size_t)(end - p))
                                                        ? TP_MISS_PART : TP_MISS_LINE;
    p += 16;
    const char *stop = memchr(p, '\r', (size_t)(end - p));
    if (!stop) return TP_MISS_PART;
    const char *line = p;
    if (stop - line < 10 || memcmp(stop - 9, " HTTP/1.1", 9)) return TP_MISS_LINE;
    const char *name_end = stop - 9;
    const char *query = memchr(line, '?', (size_t)(name_end - line));
    if (query) {
        uint64_t len = (uint64_t)(name_end - query);
        if (IS(query, len, "?return_seqs=false") || IS(query, len, "?return_seqs=0")) flags |= TP_WITHOUT_SEQS;
        else if (!IS(query, len, "?return_seqs=true") && !IS(query, len, "?return_seqs=1")) return TP_MISS_LINE;
        name_end = query;
    }
    uint64_t name_len = (uint64_t)(name_end - line);
    const char *slash = memchr(line, '/', name_len);
    if (slash && (query || !IS(slash, (uint64_t)(name_end - slash), READ_SUFFIX))) return TP_MISS_LINE;
    for (p = stop;;) {
        if (end - p < 2) return TP_MISS_PART;
        if (p[1] != '\n') return TP_MISS_FIELD;
        p += 2;
        if (p == end) return TP_MISS_PART;
        if (*p == '\r') break;
        stop = memchr(p, '\r', (size_t)(end - p));
        if (!stop) return TP_MISS_PART;
        int reason = read_field(s, p, stop, &seen, &flags, &length, &key, &idempotency_key, &idempotency_len);
        if (reason && !(reason == TP_MISS_FIELD && is_unused(s, p, stop))) return reason;
        fields++;
        p = stop;
    }
    if (end - p < 2) return TP_MISS_PART;
    if (p[1] != '\n') return TP_MISS_FIELD;
    p += 2;
    const uint32_t needed = SEEN_HOST | SEEN_TYPE | SEEN_LENGTH | (s->key_count ? SEEN_KEY : 0);
    if ((seen & needed) != needed || !length || fields > s->max_head_fields) return TP_MISS_FIELD;
    if ((uint64_t)(p - from) > s->max_head_bytes || (s->max_body_bytes && length > s->max_body_bytes))
        return TP_MISS_FIELD;
    uint32_t number = *slot_of(s, hash_name(s, line, name_len, key), line, name_len, key);
    if (!number || s->names[number - 1].forgotten) return TP_MISS_TOPIC;
    if (s->names[number - 1].reads && (idempotency_len || (s->max_command_bytes && length > s->max_command_bytes)))
        return TP_MISS_FIELD;
    if ((uint64_t)(end - p) < length) return TP_MISS_PART;
    r->topic = number - 1;
    r->off = (uint32_t)(p - from);
    r->len = (uint32_t)length;
    r->end = r->off + r->len;
    r->flags = flags;
    r->key_off = (uint32_t)(idempotency_key - from);
    r->key_len = idempotency_len;
    return 0;
}

/* ---- a pass ------------------------------------------------------------------------------------------------------- */

static int make_room(tp_scanner *s, uint32_t room)
{
    if (room <= s->found_room) return 0;
    struct tp_request *found = realloc(s->found, room * sizeof *found);
    if (!found) return -1;
    s->found = found;
    struct tp_read *reads = realloc(s->reads, room * sizeof *reads);
    if (!reads) return -1;
    s->reads = reads;
    uint32_t *topics = realloc(s->read_topics, room * sizeof *topics);
    if (!topics) return -1;
    s->read_topics = topics;
    s->found_room = room;
    return 0;
}

uint32_t tp_missed(const uint64_t *ends, const uint32_t *upto, uint32_t count, uint32_t *rows)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < count; i++)
        if (upto[i] != ends[i]) rows[n++] = i;
    return n;
}

int64_t tp_scan_requests(tp_scanner *s, const char *buffer, const uint64_t *starts, const uint64_t *ends,
                         uint32_t count, struct tp_request *requests, struct tp_group *groups, uint32_t room,
                         uint8_t *reasons)
{
    uint32_t found = 0, group_count = 0;
    int far = 0;
    for (uint32_t i = 0; i < count; i++) far |= ends[i] > 0xffffffffu;
    s->read_count = s->read_topic_count = 0;
    if (far || make_room(s, room)) {
        memset(reasons, TP_MISS_ROOM, count);
        return 0;
    }
    s->stamp++;
    for (uint32_t i = 0; i < count; i++) {
        const char *p = buffer + starts[i], *end = buffer + ends[i];
        uint32_t topic = NO_PLACE;
        int reason = 0;
        while (p < end) {
            struct tp_request r;
            reason = found + s->read_count == room ? TP_MISS_ROOM : read_request(s, p, end, &r);
            if (!reason && topic != NO_PLACE && (r.topic != topic || r.key_len)) reason = TP_MISS_MIXED;
            if (reason) break;
            uint32_t at = (uint32_t)(p - buffer);
            topic = r.topic;
            r.receive = i;
            r.off += at;
            p += r.end;
            r.end += at;
            r.key_off += at;
            if (s->names[topic].reads) {
                reason = add_read(s, &r, buffer + r.off);
                if (reason) break;
                continue;
            }
            /* Each keyed request is checked for duplicates: it needs its own group and receive. */
            if (r.key_len) {
                topic = NOT_ANY;
                r.flags |= (group_count + 1) << 8;
                s->found[found++] = r;
                groups[group_count++] = (struct tp_group){.topic = r.topic | TP_KEYED, .count = 1};
                continue;
            }
            s->found[found++] = r;
            struct name *name = s->names + topic;
            if (name->stamp != s->stamp) {
                name->stamp = s->stamp;
                name->group = group_count;
                groups[group_count++] = (struct tp_group){.topic = topic};
            }
            groups[name->group].count++;
        }
        reasons[i] = (uint8_t)reason;
    }
    if (group_count == 1) {
        memcpy(requests, s->found, found * sizeof *requests);
        requests->flags &= TP_FLAGS;
        return 1;
    }
    uint32_t first = 0;
    for (uint32_t g = 0; g < group_count; g++) {
        groups[g].first = first;
        first += groups[g].count;
        groups[g].count = 0;
    }
    for (uint32_t i = 0; i < found; i++) {
        struct tp_request *r = s->found + i;
        struct tp_group *group = groups + (r->flags > TP_FLAGS ? (r->flags >> 8) - 1 : s->names[r->topic].group);
        r->flags &= TP_FLAGS;
        requests[group->first + group->count++] = *r;
    }
    return group_count;
}

int64_t tp_scan_single(tp_scanner *s, struct tp_request *request, const char *buffer, uint64_t len)
{
    uint64_t start = 0;
    struct tp_group group;
    uint8_t reason;
    int64_t groups = tp_scan_requests(s, buffer, &start, &len, 1, request, &group, 1, &reason);
    if (reason) return -1 - (int64_t)reason;
    return groups ? (int64_t)group.topic : -1;
}

/* ---- answers ------------------------------------------------------------------------------------------------------ */

/* Return the number of characters of `first,first+1,...,last`. */
static uint64_t list_bytes(uint64_t first, uint64_t last)
{
    uint64_t bytes = last - first;
    while (first <= last) {
        uint32_t digits = digits_of(first);
        uint64_t next = 1;
        for (uint32_t i = 0; i < digits && next; i++) next = next > UINT64_MAX / 10 ? 0 : next * 10;
        uint64_t upto = next && next - 1 < last ? next - 1 : last;
        bytes += (upto - first + 1) * digits;
        if (upto == last) break;
        first = upto + 1;
    }
    return bytes;
}

int64_t tp_render_answers(const tp_scanner *s, char *out, uint64_t room, const struct tp_request *requests,
                          const uint32_t *counts, uint32_t count, uint64_t first_seq, const uint64_t *refs,
                          const char *head, uint32_t head_len, const char *name, uint32_t name_len,
                          const char *after, uint32_t after_len, uint64_t *out_refs, uint32_t *out_lengths,
                          uint32_t *sends)
{
    const uint64_t list_around = s->texts[TEXT_SEQS].len + s->texts[TEXT_SEQS_END].len;
    uint64_t needed = 0, fixed = name_len + after_len;
    for (uint32_t text = 0; text < READ_TEXTS; text++) fixed += s->texts[text].len;
    fixed -= list_around;
    for (uint32_t i = 0; i < count; i++)
        if (counts[i])
            needed += head_len + HEAD_TEXT_BYTES + 24 + fixed + 80 + (requests[i].flags & TP_WITHOUT_SEQS ? 0 : 21ull * counts[i] + list_around);
    if (needed > room) return -(int64_t)needed;
    char *p = out;
    uint32_t n = 0, receive = NO_PLACE;
    for (uint32_t i = 0; i < count; i++) {
        if (!counts[i]) continue;
        uint64_t first = first_seq, last = first_seq + counts[i] - 1;
        int with_seqs = !(requests[i].flags & TP_WITHOUT_SEQS);
        uint64_t body = fixed + digits_of(first) + 2 * digits_of(last) + digits_of(counts[i]);
        if (with_seqs) body += list_around + list_bytes(first, last);
        char *start = p;
        p = put(p, head, head_len);
        p = put_head_end(p, s, body, requests[i].flags & TP_STRICT);
        p = PUT_TEXT(p, TEXT_NAME);
        p = put(p, name, name_len);
        p = PUT_TEXT(p, TEXT_FIRST);
        p = put_number(p, first);
        p = PUT_TEXT(p, TEXT_LAST);
        p = put_number(p, last);
        if (with_seqs) {
            p = PUT_TEXT(p, TEXT_SEQS);
            p = put_number(p, first);
            for (uint64_t seq = first + 1; seq <= last; seq++) {
                *p++ = ',';
                p = put_number(p, seq);
            }
            p = PUT_TEXT(p, TEXT_SEQS_END);
        }
        p = PUT_TEXT(p, TEXT_HEAD);
        p = put_number(p, last);
        p = PUT_TEXT(p, TEXT_COUNT);
        p = put_number(p, counts[i]);
        p = put(p, after, after_len);
        if (requests[i].receive != receive) {
            receive = requests[i].receive;
            out_refs[n] = refs[receive];
            out_lengths[n++] = 0;
        }
        out_lengths[n - 1] += (uint32_t)(p - start);
        first_seq += counts[i];
    }
    *sends = n;
    return p - out;
}

int64_t tp_render_topics(const tp_scanner *s, char *out, uint64_t room, const struct tp_request *requests,
                         const uint32_t *counts, const uint32_t *firsts, const uint32_t *sizes,
                         const uint64_t *first_seqs, uint32_t groups, const char *names, const uint64_t *refs,
                         const char *head, uint32_t head_len, const char *after, uint32_t after_len,
                         uint64_t *out_refs, uint32_t *out_lengths, uint32_t *sends)
{
    char *p = out;
    uint32_t n = 0;
    for (uint32_t i = 0; i < groups; i++) {
        uint64_t len = strlen(names);
        if (len > TOPIC_NAME_BYTES_MAX) return -1;
        uint32_t more = 0;
        int64_t size = tp_render_answers(s, p, room - (uint64_t)(p - out), requests + firsts[i], counts + firsts[i],
                                         sizes[i], first_seqs[i], refs, head, head_len, names, (uint32_t)len,
                                         after, after_len, out_refs + n, out_lengths + n, &more);
        if (size < 0) return -1;
        p += size;
        n += more;
        names += len + 1;
    }
    *sends = n;
    return p - out;
}
