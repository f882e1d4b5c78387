/* The scan of one JSON text: where a value ends, checked strictly on the way. Internal to the C files of this folder.
 *
 * Strict: RFC 8259, valid UTF-8, no lone surrogates, numbers below a double's overflow, at most DEPTH_MAX nested
 * containers. Nothing is allocated and nothing recurses: room comes from the caller, nesting is a small array.
 * Input needs no terminator and is never read beyond its end. Functions that return a place return NULL after `fail`.
 */
#ifndef TOPICS_ENGINE_JSON_STRICT_H
#define TOPICS_ENGINE_JSON_STRICT_H

#include <stdint.h>
#include <string.h>

#include "records.h"
#include "work.h"

enum { ESCAPED_KEY_BYTES = 256, FEW_BLANKS = 32 };

struct scan {
    const uint8_t *start, *end;
    uint64_t white, saved;  /* blanks outside strings; bytes that shorter escapes would save */
    uint64_t *keys;         /* stack of key hashes; NULL: keys are not compared */
    uint64_t key_room, key_count;
    const uint64_t *secret;
    uint32_t outer_keys;    /* keys of the outermost object of the last value */
    uint32_t escaped;       /* the last string had an escape */
    uint32_t twice;         /* some object may have a key twice */
    const uint8_t *pause;   /* from here on it is time to rest */
    const uint8_t *stop;    /* that, or the end */
    struct tp_work *work;   /* what rests; NULL: nothing does */
    struct tp_error error;
};

#define NEVER ((const uint8_t *)UINTPTR_MAX)
/* A place where a long call may rest: one comparison in a short one. */
#define MAY_REST(s, p) do { if (__builtin_expect((p) >= (s)->pause, 0)) take_rest(s, p); } while (0)

/* A scan of a text, at its start. */
static inline struct scan start_scan(const uint8_t *text, uint64_t len)
{
    struct scan s;
    memset(&s, 0, sizeof s);
    s.start = text;
    s.end = text + len;
    s.error.record = NO_RECORD;
    s.error.field = FIELD_UNKNOWN;
    s.pause = NEVER;
    s.stop = s.end;
    return s;
}

/* The next rest comes a turn's bytes after p, if there is work that rests. */
void rest_from(struct scan *s, const uint8_t *p);
/* Rests now, at p. */
void take_rest(struct scan *s, const uint8_t *p) __attribute__((cold));

/* Notes why the text is refused, and where; NULL. */
static inline const uint8_t *fail(struct scan *s, uint32_t code, const uint8_t *at)
{
    s->error.code = code;
    s->error.at = (uint32_t)(at - s->start);
    return NULL;
}

static inline int is_blank(uint8_t c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }
static inline int is_digit(uint8_t c) { return (uint8_t)(c - '0') < 10; }

/* Where blanks end that begin at p, far behind it perhaps. */
const uint8_t *blanks_end(const uint8_t *p, const uint8_t *end);

/* Where the next token is, or the end; counts the blanks before it. */
static inline const uint8_t *skip_blanks(struct scan *s, const uint8_t *p)
{
    if (p < s->end && *p > ' ') return p;
    const uint8_t *from = p;
    while (p < s->end && is_blank(*p))
        if (++p - from == FEW_BLANKS) p = blanks_end(p, s->end);
    s->white += (uint64_t)(p - from);
    return p;
}

/* The kind of the value whose first character is c. */
static inline uint32_t kind_at(uint8_t c)
{
    switch (c) {
    case '"': return KIND_STRING;
    case '{': return KIND_OBJECT;
    case '[': return KIND_ARRAY;
    case 't': return KIND_TRUE;
    case 'f': return KIND_FALSE;
    case 'n': return KIND_NULL;
    default: return KIND_NUMBER;
    }
}

/* The end of true, false or null at p. */
static inline const uint8_t *skip_literal(struct scan *s, const uint8_t *p)
{
    const char *word = *p == 't' ? "true" : *p == 'f' ? "false" : "null";
    size_t size = *p == 'f' ? 5 : 4;
    size_t left = (size_t)(s->end - p);
    if (memcmp(p, word, left < size ? left : size)) return fail(s, E_LITERAL, p);
    return left < size ? fail(s, E_END, s->end) : p + size;
}

/* The closing quote; p just after the opening one. Sets s->escaped. */
const uint8_t *string_end(struct scan *s, const uint8_t *p);
/* The end of the value at p; `open` containers are already around it. p may be the end. */
const uint8_t *skip_value(struct scan *s, const uint8_t *p, unsigned open);
/* The first character of the text, or NULL for one that cannot be JSON. */
const uint8_t *first_character(struct scan *s);
/* 0 when nothing but blanks follows p. */
int trailing(struct scan *s, const uint8_t *p);

/* The character at *p of a valid string's inside, escapes read; moves *p behind it. */
uint32_t next_character(const uint8_t **p);
/* The inside of a valid string as UTF-8; out NULL: only counted. Returns the bytes. */
uint64_t decode(const uint8_t *p, const uint8_t *end, uint8_t *out);
/* The keyed hash of the key between the quotes, decoded when it has escapes; room: for its decoded bytes, NULL = little.
 * 0: it is too long for that. */
int hash_key(const uint8_t *p, const uint8_t *end, int escaped, const uint64_t *secret, uint8_t *room, uint64_t *hash);

#endif
