/* The scan of one JSON text: find the end of a value and check it strictly. Internal to the C
 * files of this folder.
 *
 * Strict: RFC 8259, valid UTF-8, no lone surrogates, numbers below a double's overflow, at most
 * DEPTH_MAX nested containers. Nothing is allocated and nothing recurses: the caller provides
 * the room, nesting is a small array. Input needs no terminator and is never read beyond its
 * end. Functions that return a place return NULL after `fail`. */
#ifndef TOPICS_ENGINE_JSON_STRICT_H
#define TOPICS_ENGINE_JSON_STRICT_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "records.h"
#include "sixteen.h"
#include "work.h"

enum {
    ESCAPED_KEY_BYTES = 256, FEW_BLANKS = 32,
    EXPECTED_KEYS = 16,       /* of a value */
    EXPECTED_KEY_BYTES = 16,  /* with quotes and colon */
};

/* A key as it stood in the value before, at the same place in the order of its keys. Records of a
 * batch mostly have the same keys, and a key that is where it is expected need not be scanned. */
struct expected_key {
    const uint8_t *text;    /* from its first quote on */
    uint64_t hash;
    uint32_t size;          /* with quotes and colon; 0: none is known */
};

struct scan {
    const uint8_t *start, *end;
    uint64_t white, saved;  /* blanks outside strings; bytes that shorter escapes would save */
    uint64_t *keys;         /* stack of key hashes; NULL: keys are not compared */
    uint64_t key_room, key_count;
    const uint64_t *secret;
    uint32_t outer_keys;    /* keys of the outermost object of the last value */
    uint32_t escaped;       /* whether the last string had an escape */
    uint32_t twice;         /* whether some object may have a key twice */
    const uint8_t *pause;   /* the place from which on to rest */
    const uint8_t *stop;    /* `pause` or the end, the earlier one */
    struct tp_work *work;   /* the work that rests; NULL: no rests */
    struct tp_error error;
    uint32_t keys_known;    /* the number of `expected` that are filled */
    struct expected_key expected[EXPECTED_KEYS]; /* not initialised */
};

#define NEVER ((const uint8_t *)UINTPTR_MAX)
/* A place where a long call may rest; it costs a short call one comparison. */
#define MAY_REST(s, p) do { if (__builtin_expect((p) >= (s)->pause, 0)) take_rest(s, p); } while (0)

/* Start a scan of a text. */
static inline struct scan start_scan(const uint8_t *text, uint64_t len)
{
    struct scan s;
    memset(&s, 0, offsetof(struct scan, expected));
    s.start = text;
    s.end = text + len;
    s.error.record = NO_RECORD;
    s.error.field = FIELD_UNKNOWN;
    s.pause = NEVER;
    s.stop = s.end;
    return s;
}

/* Set the next rest to a turn's bytes after p, if there is work that rests. */
void rest_from(struct scan *s, const uint8_t *p);
/* Rest now, at p. */
void take_rest(struct scan *s, const uint8_t *p) __attribute__((cold));

/* Note the reason and the place of a refusal. Returns NULL. */
static inline const uint8_t *fail(struct scan *s, uint32_t code, const uint8_t *at)
{
    s->error.code = code;
    s->error.at = (uint32_t)(at - s->start);
    return NULL;
}

static inline int is_blank(uint8_t c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }
static inline int is_digit(uint8_t c) { return (uint8_t)(c - '0') < 10; }

/* Return the end of the blanks that begin at p, even if there are very many. */
const uint8_t *blanks_end(const uint8_t *p, const uint8_t *end);

/* Return the place of the next token, or the end; count the blanks before it. */
static inline const uint8_t *skip_blanks(struct scan *s, const uint8_t *p)
{
    if (p < s->end && *p > ' ') return p;
    const uint8_t *from = p;
    while (p < s->end && is_blank(*p))
        if (++p - from == FEW_BLANKS) p = blanks_end(p, s->end);
    s->white += (uint64_t)(p - from);
    return p;
}

/* Return the kind of the value whose first character is c. */
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

/* Return the end of true, false or null at p. */
static inline const uint8_t *skip_literal(struct scan *s, const uint8_t *p)
{
    const char *word = *p == 't' ? "true" : *p == 'f' ? "false" : "null";
    size_t size = *p == 'f' ? 5 : 4;
    size_t left = (size_t)(s->end - p);
    if (memcmp(p, word, left < size ? left : size)) return fail(s, E_LITERAL, p);
    return left < size ? fail(s, E_END, s->end) : p + size;
}

#ifdef SIXTEEN_AT_ONCE
/* Return a mark for each of 16 characters that is not plain: a quote, a backslash, a control
 * character or one beyond ASCII. */
static inline marks special_among(const uint8_t *p)
{
    sixteen chunk = load16(p);
    return marked(either16(either16(equal16(chunk, '"'), equal16(chunk, '\\')), below16(chunk, ' ')));
}
#endif

/* string_end of any string. */
const uint8_t *any_string_end(struct scan *s, const uint8_t *p);
/* Return the place of the closing quote; p is just after the opening one. Sets s->escaped. */
static inline const uint8_t *string_end(struct scan *s, const uint8_t *p)
{
#ifdef SIXTEEN_AT_ONCE
    if (s->end - p >= 32) { /* most strings are short and plain: no call for these */
        marks found = special_among(p);
        const uint8_t *from = p;
        if (!found) found = special_among(from += 16);
        if (found && *(from += first_mark(found)) == '"') return s->escaped = 0, from;
    }
#endif
    return any_string_end(s, p);
}
/* Return the end of the value at p, inside `open` containers. p may be the end. */
const uint8_t *skip_value(struct scan *s, const uint8_t *p, unsigned open);
/* Return the first character of the text, or NULL if the text cannot be JSON. */
const uint8_t *first_character(struct scan *s);
/* Return 0 if only blanks follow p. */
int trailing(struct scan *s, const uint8_t *p);

/* Return the character at *p of a valid string's inside, with escapes decoded; move *p after it. */
uint32_t next_character(const uint8_t **p);
/* Decode the inside of a valid string to UTF-8; out NULL: only count. Returns the bytes. */
uint64_t decode(const uint8_t *p, const uint8_t *end, uint8_t *out);
/* Compute the keyed hash of the key between the quotes, decoded if it has escapes. room: for its
 * decoded bytes, NULL for a short array. Returns 0 if the key is too long for that array. */
int hash_key(const uint8_t *p, const uint8_t *end, int escaped, const uint64_t *secret, uint8_t *room, uint64_t *hash);

#endif
