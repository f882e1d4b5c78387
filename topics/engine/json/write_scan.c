/* The body of a write, or bare payloads, into rows: see records.h. */
#include <string.h>

#include "base64.h"
#include "json_strict.h"
#include "keep_last.h"
#include "work.h"


struct known {
    const char *name;
    uint8_t size, field;
};
static const struct known BODY_FIELDS[] = {
    {"records", 7, FIELD_RECORDS}, {"node", 4, FIELD_NODE}, {"idempotency_key", 15, FIELD_KEY},
    {"create", 6, FIELD_CREATE}, {"config", 6, FIELD_CONFIG}, {"disable_backpressure", 20, FIELD_BACKPRESSURE},
    {"incarnation", 11, FIELD_INCARNATION}, {"producer", 8, FIELD_PRODUCER},
    {NULL, 0, 0},
};
static const struct known COMMAND_FIELDS[] = {
    {"records", 7, FIELD_RECORDS}, {"node", 4, FIELD_NODE}, {"idempotency_key", 15, FIELD_KEY},
    {"create", 6, FIELD_CREATE}, {"config", 6, FIELD_CONFIG}, {"disable_backpressure", 20, FIELD_BACKPRESSURE},
    {"incarnation", 11, FIELD_INCARNATION}, {"producer", 8, FIELD_PRODUCER}, {"op", 2, FIELD_OP},
    {"topic", 5, FIELD_TOPIC}, {"request_id", 10, FIELD_REQUEST_ID}, {"return_seqs", 11, FIELD_RETURN_SEQS},
    {NULL, 0, 0},
};
/* The fields that only a command has, as bits of `seen`. */
#define COMMAND_BITS (1u << FIELD_OP | 1u << FIELD_TOPIC | 1u << FIELD_REQUEST_ID | 1u << FIELD_RETURN_SEQS)
static const struct known RECORD_FIELDS[] = {
    {"data", 4, FIELD_DATA}, {"tag", 3, FIELD_TAG}, {"node", 4, FIELD_RECORD_NODE}, {"meta", 4, FIELD_META},
    {"data_base64", 11, FIELD_BASE64}, {"delay_ms", 8, FIELD_DELAY}, {"ttl_ms", 6, FIELD_TTL},
    {NULL, 0, 0},
};

static uint32_t field_named(const struct known *known, const uint8_t *p, const uint8_t *end, int escaped)
{
    uint8_t decoded[ESCAPED_KEY_BYTES];
    if (escaped) {
        if (end - p > 6 * 32) return FIELD_UNKNOWN; /* Six bytes an escape at most: no known name is so long. */
        end = decoded + decode(p, end, decoded);
        p = decoded;
    }
    for (; known->name; known++)
        if (end - p == known->size && *p == (uint8_t)known->name[0] && !memcmp(p, known->name, known->size))
            return known->field;
    return FIELD_UNKNOWN;
}

/* Note the unknown key from p to its closing quote, unless one is noted. */
static void note_unknown(const struct scan *s, struct tp_writer *w, const uint8_t *p, const uint8_t *close)
{
    if (w->unknown.kind) return;
    w->unknown = (struct tp_span){(uint32_t)(p - s->start), (uint32_t)(close + 1 - p), KIND_STRING};
    w->unknown_record = s->error.record;
}

/* Read `"key" :` at p and set its field; NULL on error. A known key that is repeated is refused. */
static inline const uint8_t *read_key(struct scan *s, const uint8_t *p, struct tp_writer *w, const struct known *known,
                                      uint32_t *field, uint32_t *seen)
{
    if (p == s->end) return fail(s, E_END, p);
    if (*p != '"') return fail(s, E_SYNTAX, p);
    const uint8_t *close = string_end(s, p + 1);
    if (!close) return NULL;
    *field = field_named(known, p + 1, close, (int)s->escaped);
    if (*field != FIELD_UNKNOWN) {
        if (*seen >> *field & 1) {
            s->error.field = *field;
            return fail(s, E_TWICE, p);
        }
        *seen |= 1u << *field;
    } else {
        note_unknown(s, w, p, close);
    }
    p = skip_blanks(s, close + 1);
    if (p == s->end) return fail(s, E_END, p);
    if (*p != ':') return fail(s, E_SYNTAX, p);
    p = skip_blanks(s, p + 1);
    return p == s->end ? fail(s, E_END, p) : p;
}

/* Count one more member of the body or a record; 0 beyond the limit. */
static inline int one_more(struct scan *s, const uint8_t *p, const struct tp_writer *w, uint32_t *members,
                           uint32_t field)
{
    if (++*members <= w->limits.members) return 1;
    s->error.field = field;
    fail(s, E_MANY, p);
    return 0;
}

static const uint8_t *wrong_type(struct scan *s, const uint8_t *p, uint32_t field)
{
    const uint8_t *after = skip_value(s, p, 3); /* Text that is no JSON at all is refused as that. */
    if (!after) return NULL;
    s->error.field = field;
    s->error.kind = kind_at(*p);
    return fail(s, E_TYPE, p);
}


static uint32_t over_limit(const struct tp_limits *limits, const struct tp_row *row, uint64_t meta_bytes,
                           uint32_t meta_keys)
{
    if (row->tag_len > limits->tag_bytes) return V_TAG;
    if (row->node_len > limits->node_bytes) return V_NODE;
    if (meta_bytes > limits->meta_bytes) return V_META_BYTES;
    if (meta_keys > limits->meta_keys) return V_META_KEYS;
    return row->size > limits->record_bytes ? V_SIZE : 0;
}

/* Note the violation of the first record that has one. */
static inline void note_violation(struct tp_writer *w, uint32_t violation, uint32_t record)
{
    if (violation && (!w->violation || record < w->violation_record)) {
        w->violation = violation;
        w->violation_record = record;
    }
}

/* Return the decoded bytes of a label; any number over the limit if it exceeds the limit. */
static uint32_t label_bytes(const uint8_t *body, uint32_t off, uint32_t len, int escaped, uint32_t most)
{
    if (!escaped || len > 6 * (uint64_t)most) return len; /* a byte takes six in an escape */
    return (uint32_t)decode(body + off, body + off + len, NULL);
}

/* Note the limit that a row breaks. A row that may have a key twice is judged when it is
 * cleaned. */
static inline void judge_row(struct tp_writer *w, const uint8_t *body, const struct tp_row *row, uint64_t meta_bytes,
                             uint32_t meta_keys, uint32_t index)
{
    if (!(row->flags & (MARK_TWICE | MARK_TAG_ESCAPED | MARK_NODE_ESCAPED))) {
        note_violation(w, over_limit(&w->limits, row, meta_bytes, meta_keys), index);
        return;
    }
    if (row->flags & MARK_TWICE) return;
    struct tp_row limited = *row; /* the limits apply to decoded bytes */
    limited.tag_len =
        label_bytes(body, row->tag_off, row->tag_len, row->flags & MARK_TAG_ESCAPED, w->limits.tag_bytes);
    limited.node_len =
        label_bytes(body, row->node_off, row->node_len, row->flags & MARK_NODE_ESCAPED, w->limits.node_bytes);
    note_violation(w, over_limit(&w->limits, &limited, meta_bytes, meta_keys), index);
}

/* Read data or meta at p, with its keys compared. Fills off and len, returns the end; *compact
 * becomes the accounted size. */
static inline const uint8_t *read_payload(struct scan *s, const uint8_t *p, const struct tp_writer *w,
                                          struct tp_row *row, uint32_t *off, uint32_t *len, uint64_t *compact)
{
    uint64_t white = s->white, saved = s->saved;
    const uint8_t *from = p;
    s->keys = w->keys;
    s->key_count = 0;
    s->twice = 0;
    p = skip_value(s, p, 3);
    s->keys = NULL;
    if (!p) return NULL;
    *off = (uint32_t)(from - s->start);
    *len = (uint32_t)(p - from);
    *compact = *len - (s->white - white) - (s->saved - saved);
    if (s->white != white) row->flags |= MARK_WHITE;
    if (s->twice) row->flags |= MARK_TWICE;
    return p;
}

/* Read tag or node at p: a string or null. */
static inline const uint8_t *read_label(struct scan *s, const uint8_t *p, struct tp_row *row, uint32_t field)
{
    if (*p == 'n') return skip_literal(s, p);
    if (*p != '"') return wrong_type(s, p, field);
    const uint8_t *close = string_end(s, p + 1);
    if (!close) return NULL;
    uint32_t off = (uint32_t)(p + 1 - s->start), len = (uint32_t)(close - p - 1);
    int is_tag = field == FIELD_TAG;
    if (s->escaped) row->flags |= is_tag ? MARK_TAG_ESCAPED : MARK_NODE_ESCAPED; /* tp_clean_rows decodes it */
    if (is_tag) row->tag_off = off, row->tag_len = len, row->flags |= TP_ROW_TAG;
    else row->node_off = off, row->node_len = len, row->flags |= TP_ROW_NODE;
    return close + 1;
}

/* Read data_base64 at p: a string. *size becomes the number of its bytes. */
static const uint8_t *read_base64(struct scan *s, const uint8_t *p, struct tp_row *row, uint64_t *size)
{
    if (*p != '"') return wrong_type(s, p, FIELD_BASE64);
    const uint8_t *close = string_end(s, p + 1);
    if (!close) return NULL;
    int escaped = (int)s->escaped;
    int64_t bytes = base64_bytes(s, p + 1, close, escaped);
    if (bytes < 0) {
        s->error.field = FIELD_BASE64;
        return fail(s, E_BASE64, p);
    }
    *size = (uint64_t)bytes;
    row->data_off = (uint32_t)(p + 1 - s->start), row->data_len = (uint32_t)(close - p - 1);
    row->flags |= TP_ROW_IS_BYTES | MARK_BASE64 | (escaped ? MARK_BASE64_ESCAPED : 0);
    return close + 1;
}

/* Read delay_ms or ttl_ms at p: an unsigned integer, or null, which is 0. */
static const uint8_t *read_time(struct scan *s, const uint8_t *p, uint32_t field, uint64_t *delay)
{
    uint32_t kind = kind_at(*p);
    *delay = 0;
    if (kind == KIND_NULL) return skip_literal(s, p);
    if (kind != KIND_NUMBER) return wrong_type(s, p, field);
    const uint8_t *end = skip_value(s, p, 3);
    if (!end) return NULL;
    for (const uint8_t *digit = p; digit < end; digit++) {
        uint64_t more = (uint64_t)(*digit - '0');
        if (!is_digit(*digit) || *delay > (UINT64_MAX - more) / 10) {
            s->error.field = field;
            return fail(s, E_COUNT, p);
        }
        *delay = *delay * 10 + more;
    }
    return end;
}

/* Read one element of `records`, p at its first character. */
static const uint8_t *read_record(struct scan *s, const uint8_t *p, struct tp_writer *w, struct tp_row *row,
                                  uint32_t index)
{
    uint32_t seen = 0, field, meta_keys = 0, members = 0;
    uint64_t data_bytes = 0, meta_bytes = 0, delay = 0, ttl = 0;
    memset(row, 0, sizeof *row);
    s->error.record = index;
    if (p == s->end) return fail(s, E_END, p);
    if (*p != '{') return wrong_type(s, p, FIELD_RECORD);
    p = skip_blanks(s, p + 1);
    if (p < s->end && *p == '}') goto closed;
    for (;;) {
        if (!one_more(s, p, w, &members, FIELD_RECORD)) return NULL;
        p = read_key(s, p, w, RECORD_FIELDS, &field, &seen);
        if (!p) return NULL;
        if ((seen >> FIELD_DATA & 1) && (seen >> FIELD_BASE64 & 1)) {
            s->error.field = FIELD_BASE64;
            return fail(s, E_BOTH, p);
        }
        switch (field) {
        case FIELD_DATA:
            p = read_payload(s, p, w, row, &row->data_off, &row->data_len, &data_bytes);
            break;
        case FIELD_BASE64:
            p = read_base64(s, p, row, &data_bytes);
            break;
        case FIELD_META:
            if (*p == 'n') {
                p = skip_literal(s, p);
                break;
            }
            row->flags |= TP_ROW_META;
            p = read_payload(s, p, w, row, &row->meta_off, &row->meta_len, &meta_bytes);
            meta_keys = s->outer_keys;
            break;
        case FIELD_TAG:
        case FIELD_RECORD_NODE:
            p = read_label(s, p, row, field);
            break;
        case FIELD_DELAY:
            p = read_time(s, p, field, &delay);
            break;
        case FIELD_TTL:
            p = read_time(s, p, field, &ttl);
            break;
        default:
            p = skip_value(s, p, 3);
        }
        if (!p) return NULL;
        p = skip_blanks(s, p);
        if (p == s->end) return fail(s, E_END, p);
        if (*p == '}') break;
        if (*p != ',') return fail(s, E_SYNTAX, p);
        p = skip_blanks(s, p + 1);
    }
closed:
    if (!(seen >> FIELD_DATA & 1) && !(seen >> FIELD_BASE64 & 1)) {
        s->error.field = FIELD_DATA;
        return fail(s, E_MISSING, p);
    }
    if (delay) {
        row->flags |= TP_ROW_DELAY;
        if (w->delays && index < w->limits.records) w->delays[index] = delay;
    }
    if (ttl) {
        row->flags |= TP_ROW_TTL;
        if (w->ttls && index < w->limits.records) w->ttls[index] = ttl;
    }
    row->size = (uint32_t)(data_bytes + meta_bytes);
    w->size += row->size;
    w->marks |= row->flags;
    judge_row(w, s->start, row, meta_bytes, meta_keys, index);
    if (delay > w->limits.delay_ms) note_violation(w, V_DELAY, index);
    if (ttl > w->limits.ttl_ms) note_violation(w, V_TTL, index);
    s->error.record = NO_RECORD;
    return p + 1;
}

static const uint8_t *read_records(struct scan *s, const uint8_t *p, struct tp_writer *w)
{
    struct tp_row *rows = w->rows, spare;
    if (*p != '[') return wrong_type(s, p, FIELD_RECORDS);
    p = skip_blanks(s, p + 1);
    if (p < s->end && *p == ']') return p + 1;
    for (;;) {
        p = read_record(s, p, w, w->count < w->limits.records ? rows + w->count : &spare, w->count);
        if (!p) return NULL;
        w->count++;
        p = skip_blanks(s, p);
        if (p == s->end) return fail(s, E_END, p);
        if (*p == ']') break;
        if (*p != ',') return fail(s, E_SYNTAX, p);
        MAY_REST(s, p);
        p = skip_blanks(s, p + 1);
    }
    return p + 1;
}

static int may_be(uint32_t field, uint32_t kind)
{
    switch (field) {
    case FIELD_NODE:
    case FIELD_KEY:
    case FIELD_INCARNATION: return kind == KIND_STRING || kind == KIND_NULL;
    case FIELD_REQUEST_ID: return 1;
    case FIELD_OP:
    case FIELD_TOPIC: return kind == KIND_STRING;
    case FIELD_CREATE: return kind == KIND_TRUE || kind == KIND_FALSE || kind == KIND_NULL;
    case FIELD_PRODUCER:
    case FIELD_CONFIG: return kind == KIND_OBJECT || kind == KIND_NULL;
    default: return kind == KIND_TRUE || kind == KIND_FALSE;
    }
}

static const uint8_t *read_body(struct scan *s, const uint8_t *p, struct tp_writer *w, uint32_t *seen)
{
    const struct known *known = w->command ? COMMAND_FIELDS : BODY_FIELDS;
    uint32_t field, members = 0;
    if (*p != '{') return wrong_type(s, p, FIELD_BODY);
    p = skip_blanks(s, p + 1);
    if (p < s->end && *p == '}') return p + 1;
    for (;;) {
        if (!one_more(s, p, w, &members, FIELD_BODY)) return NULL;
        p = read_key(s, p, w, known, &field, seen);
        if (!p) return NULL;
        if (field == FIELD_RECORDS) {
            p = read_records(s, p, w);
        } else {
            uint32_t kind = kind_at(*p);
            const uint8_t *from = p;
            if (field != FIELD_UNKNOWN && !may_be(field, kind)) return wrong_type(s, p, field);
            p = skip_value(s, p, 1);
            if (p && field != FIELD_UNKNOWN)
                w->fields[field] = (struct tp_span){(uint32_t)(from - s->start), (uint32_t)(p - from), kind};
        }
        if (!p) return NULL;
        p = skip_blanks(s, p);
        if (p == s->end) return fail(s, E_END, p);
        if (*p == '}') return p + 1;
        if (*p != ',') return fail(s, E_SYNTAX, p);
        MAY_REST(s, p);
        p = skip_blanks(s, p + 1);
    }
}

/* work: the work that rests; NULL: no rests. */
static int scan_write(struct tp_writer *w, const unsigned char *body, uint64_t len, struct tp_work *work)
{
    struct scan s = start_scan(body, len);
    uint32_t seen = 0;
    w->size = 0;
    w->count = w->marks = w->violation = w->violation_record = w->unknown.kind = w->error.code = 0;
    s.key_room = w->key_room;
    s.secret = w->secret;
    s.work = work;
    rest_from(&s, body);
    const uint8_t *p = first_character(&s);
    if (p) p = read_body(&s, p, w, &seen);
    if (p && !trailing(&s, p) && !(seen >> FIELD_RECORDS & 1) && !w->command) {
        s.error.field = FIELD_RECORDS;
        fail(&s, E_MISSING, p);
    }
    if (s.error.code) {
        w->error = s.error;
        return -1;
    }
    for (int field = FIELD_NODE; field <= FIELD_PRODUCER; field++)
        if (!(seen >> field & 1)) w->fields[field].kind = 0;
    if (w->command) w->fields[FIELD_RECORDS].kind = seen >> FIELD_RECORDS & 1;
    for (int field = w->command ? FIELD_OP : FIELDS; field < FIELDS; field++)
        if (!(seen >> field & 1)) w->fields[field].kind = 0;
    if (w->command) seen &= ~COMMAND_BITS; /* they say nothing of the records */
    w->records_only = seen == 1u << FIELD_RECORDS && !w->violation && w->count && w->count <= w->limits.records;
    return w->records_only && w->marks < MARK_WHITE ? 0 : 1;
}

int tp_scan_write(struct tp_writer *w, const unsigned char *body, uint64_t len) { return scan_write(w, body, len, NULL); }

static void run_scan(struct tp_work *work)
{
    work->result = scan_write(work->writer, work->text, work->len, work);
}

struct tp_work *tp_scan_work(struct tp_writer *w, const unsigned char *body, uint64_t len)
{
    return new_work(run_scan, w, body, len);
}

/* A payload after cleaning: its accounted bytes, and the keys of its outermost object. */
struct counted {
    uint64_t bytes;
    uint32_t keys;
};

/* Move a payload to out + at. s: a scan with its secret and its turns. keys 0: no key is
 * repeated; otherwise *counted is filled, unless the payload has more keys: then nothing is
 * moved. Returns its new length, 0 if it has more keys. */
static uint32_t move_payload(struct scan *s, const uint8_t *body, uint32_t *off, uint32_t len, int white, uint8_t *out,
                             uint64_t at, void *room, uint64_t keys, struct counted *counted)
{
    const uint8_t *from = body + *off;
    uint64_t bytes = len;
    s->start = from, s->end = from + len;
    rest_from(s, from);
    if (white) bytes = compact(s, out + at);
    else copy_in_turns(s, out + at, from, len);
    if (keys) {
        s->start = out + at, s->end = out + at + bytes;
        rest_from(s, s->start);
        bytes = keep_last(s, out + at, out + at + bytes, room, keys);
        if (!bytes) return 0;
        s->end = s->start + bytes;
        s->white = s->saved = 0;
        rest_from(s, s->start);
        skip_value(s, s->start, 3);
        *counted = (struct counted){bytes - s->saved, s->outer_keys};
    }
    *off = (uint32_t)at;
    return (uint32_t)bytes;
}

static uint32_t move_label(const uint8_t *body, uint32_t *off, uint32_t len, int escaped, uint8_t *out, uint64_t at)
{
    const uint8_t *from = body + *off;
    *off = (uint32_t)at;
    if (escaped) return (uint32_t)decode(from, from + len, out + at);
    memcpy(out + at, from, len);
    return len;
}

static uint64_t row_count(const struct tp_writer *w)
{
    return w->count < w->limits.records ? w->count : w->limits.records;
}

static uint64_t clean_rows(struct tp_writer *w, const unsigned char *body, uint64_t len, unsigned char *out, void *room,
                           uint64_t keys, struct tp_work *work)
{
    struct scan s = start_scan(body, len);
    uint64_t n = 0, spent = 0, count = row_count(w);
    s.secret = w->secret;
    s.work = work;
    for (uint32_t i = 0; i < count; i++) {
        struct tp_row *row = w->rows + i;
        struct counted data = {0, 0}, meta = {0, 0};
        uint32_t flags = row->flags, twice = flags & MARK_TWICE;
        if (w->violation && i >= w->violation_record) return n; /* the rows are not used */
        if (w->violation && !twice) continue;
        spent += (uint64_t)row->data_len + row->meta_len + row->tag_len + row->node_len;
        if (work && spent >= work->bytes) {
            rest(work);
            spent = 0;
        }
        if (twice) { /* its labels are judged before they are decoded */
            struct tp_row limited = *row;
            limited.flags &= ~(uint32_t)MARK_TWICE;
            limited.size = 0;
            judge_row(w, body, &limited, 0, 0, i);
            if (w->violation_record == i && w->violation) return n;
        }
        if (flags & TP_ROW_TTL) { /* its key and digits took more */
            memcpy(out + n, w->ttls + i, TP_TIME_BYTES);
            n += TP_TIME_BYTES;
        }
        if (flags & TP_ROW_DELAY) {
            memcpy(out + n, w->delays + i, TP_TIME_BYTES);
            n += TP_TIME_BYTES;
        }
        if (flags & MARK_BASE64) {
            row->data_len = move_base64(&s, body + row->data_off, row->data_len, flags & MARK_BASE64_ESCAPED, out + n);
            row->data_off = (uint32_t)n;
            data.bytes = row->data_len;
        } else {
            row->data_len = move_payload(&s, body, &row->data_off, row->data_len, flags & MARK_WHITE, out, n, room,
                                         twice ? keys : 0, &data);
        }
        n += row->data_len;
        if (flags & TP_ROW_META) {
            row->meta_len = move_payload(&s, body, &row->meta_off, row->meta_len, flags & MARK_WHITE, out, n, room,
                                         twice ? keys : 0, &meta);
            n += row->meta_len;
        }
        if (twice) {
            if ((!row->data_len && !(flags & MARK_BASE64)) || (flags & TP_ROW_META && !row->meta_len)) {
                note_violation(w, V_SIZE, i);
                return n;
            }
            w->size -= row->size;
            row->size = (uint32_t)(data.bytes + meta.bytes);
            w->size += row->size;
            struct tp_row limited = {.size = row->size};
            note_violation(w, over_limit(&w->limits, &limited, meta.bytes, meta.keys), i);
        }
        if (flags & TP_ROW_TAG)
            n += row->tag_len = move_label(body, &row->tag_off, row->tag_len, flags & MARK_TAG_ESCAPED, out, n);
        if (flags & TP_ROW_NODE)
            n += row->node_len = move_label(body, &row->node_off, row->node_len, flags & MARK_NODE_ESCAPED, out, n);
        row->flags &= TP_ROW_TAG | TP_ROW_NODE | TP_ROW_META | TP_ROW_IS_BYTES | TP_ROW_TIMES;
    }
    return n;
}

/* Clean the rows of a body into scratch, if that makes it plain. Returns the bytes, never more
 * than the body's (blanks and escapes are removed, and base64 is longer than its bytes); -1: not
 * plain. */
static int64_t clean_apart(struct tp_writer *w, const unsigned char *body, uint32_t len, unsigned char *scratch,
                           uint64_t scratch_bytes)
{
    if (!w->records_only || w->marks & (MARK_TWICE | TP_ROW_TIMES) || len > scratch_bytes) return -1;
    return (int64_t)clean_rows(w, body, len, scratch, NULL, 0, NULL);
}

/* Scan the body of a request and clean its rows. Returns 0: they count from the body; 1: from
 * scratch, where they have *cleaned bytes; -1: not plain. */
static int scan_plain(struct tp_writer *w, const unsigned char *body, const struct tp_request *request,
                      unsigned char *scratch, uint64_t scratch_bytes, int64_t *cleaned)
{
    int status = tp_scan_write(w, body, request->len);
    if (status < 0 || (request->flags & TP_FEW_RECORDS && w->count > w->few_records)) return -1;
    if (request->flags & TP_STRICT && w->unknown.kind) return -1;
    if (!status) return 0;
    *cleaned = clean_apart(w, body, request->len, scratch, scratch_bytes);
    return *cleaned < 0 ? -1 : 1;
}

/* Let the rows of the last scan count from `off` bytes before. */
static void move_rows(struct tp_writer *w, uint32_t off)
{
    for (struct tp_row *row = w->rows; row < w->rows + w->count; row++) {
        row->data_off += off;
        row->meta_off += off;
        row->tag_off += off;
        row->node_off += off;
    }
}

int tp_scan_single_write(struct tp_writer *w, unsigned char *scratch, uint64_t scratch_bytes,
                         const unsigned char *buffer, const struct tp_request *request)
{
    int64_t cleaned = 0;
    int status = scan_plain(w, buffer + request->off, request, scratch, scratch_bytes, &cleaned);
    if (!status) move_rows(w, request->off);
    return status;
}

/* Frame the rows of a scan that returned `status`: see tp_write_next. */
static int64_t frame_scanned(const struct tp_writer *w, int status, const unsigned char *scratch,
                             uint64_t scratch_bytes, uint64_t frame_next, struct tp_next_batch *next,
                             unsigned char *placed, uint32_t placed_rows, const unsigned char *buffer,
                             uint64_t buffer_bytes, uint64_t now_ms)
{
    if (status < 0 || w->count > placed_rows || w->marks & (TP_ROW_TAG | TP_ROW_IS_BYTES | TP_ROW_TIMES)) return 0;
    int64_t (*frame)(struct tp_next_batch *, const char *, uint64_t, const char *, uint32_t, uint64_t, uint64_t, char *);
    frame = (__typeof__(frame))(uintptr_t)frame_next;
    return frame(next, (const char *)(status ? scratch : buffer), status ? scratch_bytes : buffer_bytes,
                 (const char *)w->rows, w->count, w->size, now_ms, (char *)placed);
}

int64_t tp_write_next(struct tp_writer *w, unsigned char *scratch, uint64_t scratch_bytes,
                      const struct tp_request *request, uint64_t frame_next, struct tp_next_batch *next,
                      unsigned char *placed, uint32_t placed_rows, const unsigned char *buffer, uint64_t buffer_bytes,
                      uint64_t now_ms)
{
    int status = tp_scan_single_write(w, scratch, scratch_bytes, buffer, request);
    return frame_scanned(w, status, scratch, scratch_bytes, frame_next, next, placed, placed_rows, buffer,
                         buffer_bytes, now_ms);
}

/* Unmask the message of a frame that is one whole text, its length in the shortest form. Returns
 * its bytes; 0: the frame is something else. */
static uint32_t unmask_text(const unsigned char *frame, uint64_t frame_bytes, unsigned char *text, uint32_t most)
{
    if (frame_bytes < 8 || frame[0] != 0x81 || frame[1] < 0x80) return 0;
    uint32_t size = frame[1] & 127, start = 6;
    if (size == 127) return 0;
    if (size == 126) {
        size = (uint32_t)frame[2] << 8 | frame[3];
        start = 8;
        if (size < 126) return 0;
    }
    if (size > most || start + (uint64_t)size != frame_bytes) return 0;
    const unsigned char *mask = frame + start - 4, *from = frame + start;
    uint64_t twice, eight;
    memcpy(&twice, mask, 4);
    memcpy((unsigned char *)&twice + 4, mask, 4);
    uint32_t i = 0;
    for (; i + 8 <= size; i += 8) {
        memcpy(&eight, from + i, 8);
        eight ^= twice;
        memcpy(text + i, &eight, 8);
    }
    for (; i < size; i++) text[i] = from[i] ^ mask[i & 3];
    return size;
}

/* Whether the last command that was scanned is a publish as tp_publish_next takes it; notes its
 * fields. */
static int is_plain_publish(const struct tp_writer *w, struct tp_publish *publish)
{
    const struct tp_span *op = w->fields + FIELD_OP, *topic = w->fields + FIELD_TOPIC, *id = w->fields + FIELD_REQUEST_ID;
    const unsigned char *text = publish->text;
    if (!op->kind || op->len != 9 || memcmp(text + op->off, "\"publish\"", 9)) return 0;
    if (!topic->kind || topic->len != publish->topic_len || memcmp(text + topic->off, publish->topic, topic->len)) return 0;
    publish->id_off = id->off;
    publish->id_len = id->kind ? id->len : 0;
    publish->without_seqs = w->fields[FIELD_RETURN_SEQS].kind == KIND_FALSE;
    return !id->kind || ((id->kind == KIND_NUMBER || id->kind == KIND_STRING) && id->len <= publish->request_id_most);
}

int64_t tp_publish_next(struct tp_writer *w, unsigned char *scratch, uint64_t scratch_bytes,
                        struct tp_publish *publish, uint64_t frame_next, struct tp_next_batch *next,
                        unsigned char *placed, uint32_t placed_rows, const unsigned char *frame, uint64_t frame_bytes,
                        uint64_t now_ms)
{
    uint32_t size = unmask_text(frame, frame_bytes, publish->text, publish->most);
    if (!size) return 0;
    struct tp_request request = {.len = size, .flags = publish->strict ? TP_STRICT : 0};
    int status = tp_scan_single_write(w, scratch, scratch_bytes, publish->text, &request);
    if (status < 0 || !is_plain_publish(w, publish)) return 0;
    return frame_scanned(w, status, scratch, scratch_bytes, frame_next, next, placed, placed_rows, publish->text, size,
                         now_ms);
}

void tp_scan_writes(struct tp_writer *w, unsigned char *buffer, const struct tp_request *requests,
                    struct tp_group *groups, uint32_t group_count, uint32_t room, uint32_t *counts, uint32_t *upto, unsigned char *scratch,
                    uint64_t scratch_bytes)
{
    struct tp_row *rows = w->rows;
    uint32_t used = 0;
    for (struct tp_group *group = groups; group < groups + group_count; group++) {
        uint32_t refused = NO_RECORD; /* the receive whose bodies are no longer scanned */
        group->row = used;
        group->taken = group->rows = 0;
        group->size = 0;
        for (uint32_t i = group->first; i < group->first + group->count; i++) {
            const struct tp_request *request = requests + i;
            counts[i] = 0;
            if (request->receive == refused) continue;
            w->rows = rows + used;
            unsigned char *body = buffer + request->off;
            int64_t cleaned = 0;
            int status = room - used < w->limits.records
                             ? -1
                             : scan_plain(w, body, request, scratch, scratch_bytes, &cleaned);
            if (status < 0) {
                refused = request->receive;
                continue;
            }
            if (status) memcpy(body, scratch, (size_t)cleaned);
            move_rows(w, request->off);
            counts[i] = w->count;
            upto[request->receive] = request->end;
            used += w->count;
            group->taken++;
            group->rows += w->count;
            group->size += w->size;
        }
    }
    w->rows = rows;
}

static void begin_texts(struct tp_writer *w, uint32_t count)
{
    w->size = 0;
    w->count = count;
    w->marks = w->violation = w->violation_record = 0;
    memset(w->fields, 0, sizeof w->fields);
}

static inline struct scan start_texts(const struct tp_writer *w, const uint8_t *text, uint64_t size)
{
    struct scan s = start_scan(text, size);
    s.key_room = w->key_room;
    s.secret = w->secret;
    return s;
}

/* Scan the value at s->start, which is in `text`, into row i. Return its end. */
static inline const uint8_t *scan_text(struct scan *s, struct tp_writer *w, const uint8_t *text, uint32_t i)
{
    struct tp_row *row = w->rows + i;
    uint64_t compact, from = (uint64_t)(s->start - text); /* offsets of errors count from s->start */
    memset(row, 0, sizeof *row);
    s->error.record = i;
    const uint8_t *p = first_character(s);
    if (p) p = read_payload(s, p, w, row, &row->data_off, &row->data_len, &compact);
    if (!p) return NULL;
    row->data_off += (uint32_t)from;
    row->size = (uint32_t)compact;
    w->size += compact;
    w->marks |= row->flags;
    judge_row(w, text, row, 0, 0, i);
    return p;
}

int tp_scan_lines(struct tp_writer *w, const unsigned char *text, uint64_t size, uint32_t count)
{
    begin_texts(w, count);
    if (!count || count > w->limits.records || size > 0xffffffffu) return 1;
    struct scan s = start_texts(w, text, size);
    for (uint32_t i = 0; i < count; i++) {
        /* Blanks before or in a value may be line ends; without any, each value is one text. */
        const uint8_t *end = s.start < s.end && is_blank(*s.start) ? NULL : scan_text(&s, w, text, i);
        if (!end || end == s.end || *end != '\n') return 1;
        s.start = end + 1;
    }
    return s.start != s.end || w->violation || w->marks >= MARK_WHITE;
}

int tp_scan_texts(struct tp_writer *w, const unsigned char *text, const uint64_t *ends, uint32_t count)
{
    uint64_t from = 0;
    begin_texts(w, count);
    if (!count || count > w->limits.records) return 1;
    if (ends[count - 1] > 0xffffffffu) {
        w->error = (struct tp_error){.code = E_LONG, .record = 0, .field = FIELD_UNKNOWN};
        return -1;
    }
    struct scan s = start_texts(w, text, ends[count - 1]);
    for (uint32_t i = 0; i < count; from = ends[i], i++) {
        s.start = text + from;
        s.stop = s.end = text + ends[i];
        const uint8_t *p = scan_text(&s, w, text, i);
        if (!p || trailing(&s, p)) {
            w->error = s.error;
            return -1;
        }
    }
    return !w->violation && w->marks < MARK_WHITE ? 0 : 1;
}

uint64_t tp_clean_rows(struct tp_writer *w, const unsigned char *body, uint64_t len, unsigned char *out, void *room,
                       uint64_t keys)
{
    return clean_rows(w, body, len, out, room, keys, NULL);
}

static void run_clean(struct tp_work *work)
{
    work->result = (int64_t)clean_rows(work->writer, work->text, work->len, work->out, work->room, work->keys, work);
}

struct tp_work *tp_clean_work(struct tp_writer *w, const unsigned char *body, uint64_t len, unsigned char *out,
                              void *room, uint64_t keys)
{
    struct tp_work *work = new_work(run_clean, w, body, len);
    if (work) work->out = out, work->room = room, work->keys = keys;
    return work;
}
