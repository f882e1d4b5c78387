/* Rewriting of valid JSON: see keep_last.h. The search for repeated keys takes linear time:
 *
 * One pass collects all members in their order, hashed, each with the one before it in its
 * object. When an object closes, its members are visited from the last to the first; one whose
 * key is in the table already is dead. A dead member is removed from its key to the next
 * member's key. It is never the last of its object, so the commas stay right. */
#include <string.h>

#include "keep_last.h"

struct member {
    uint64_t hash;
    uint32_t off, next; /* offsets of its key and of the next member's key, in the text */
    uint32_t before;    /* the member before it in its object, counted from 1; 0 = none */
    uint32_t dead;
};
enum { FEW_MEMBERS = 8 }; /* so few are compared with each other */

_Static_assert(sizeof(struct member) + 4 * sizeof(uint32_t) == KEY_WORK_BYTES &&
                   4 * FEW_MEMBERS * sizeof(uint32_t) == KEY_WORK_LEAST,
               "a member a key, and a table of twice as many numbers, rounded up to a power of two");

/* Return the closing quote of a valid string; p is after the opening one. */
static const uint8_t *valid_string_end(struct scan *s, const uint8_t *p, int *escaped)
{
    for (*escaped = 0;;) {
#ifdef SIXTEEN_AT_ONCE
        for (; s->end - p >= 16; p += 16) {
            sixteen chunk = load16(p);
            marks found = marked(either16(equal16(chunk, '"'), equal16(chunk, '\\')));
            if (found) {
                p += first_mark(found);
                break;
            }
        }
#endif
        while (*p != '"' && *p != '\\') p++;
        if (*p == '"') return p;
        *escaped = 1;
        p += 2;
        MAY_REST(s, p);
    }
}

static int same_key(const uint8_t *a, const uint8_t *b)
{
    for (a++, b++; *a != '"' && *b != '"';)
        if (next_character(&a) != next_character(&b)) return 0;
    return *a == *b;
}

static int equal_members(const uint8_t *text, const struct member *a, const struct member *b)
{
    return a->hash == b->hash && same_key(text + a->off, text + b->off);
}

/* Mark the members whose key is repeated later, of the `count` that end with number `last`.
 * table: room for twice as many numbers, rounded up to a power of two. */
static void mark_dead(struct scan *s, struct member *members, uint32_t last, uint64_t count, uint32_t *table)
{
    const uint8_t *text = s->start;
    if (count <= FEW_MEMBERS) {
        for (uint32_t later = last; later; later = members[later - 1].before)
            for (uint32_t i = members[later - 1].before; i; i = members[i - 1].before)
                if (equal_members(text, &members[i - 1], &members[later - 1])) members[i - 1].dead = 1;
        return;
    }
    uint64_t size = 4 * FEW_MEMBERS;
    while (size < 2 * count) size *= 2;
    memset(table, 0, size * sizeof *table);
    for (uint32_t i = last; i; i = members[i - 1].before) {
        struct member *member = &members[i - 1];
        uint64_t slot = member->hash & (size - 1);
        while (table[slot] && !equal_members(text, member, &members[table[slot] - 1])) slot = (slot + 1) & (size - 1);
        if (table[slot]) member->dead = 1;
        else table[slot] = i;
    }
}

uint64_t keep_last(struct scan *s, uint8_t *text, uint8_t *after, void *work, uint64_t keys)
{
    struct member *members = work;
    uint32_t *table = (uint32_t *)(members + keys), last[DEPTH_MAX + 1];
    uint64_t own[DEPTH_MAX + 1], count = 0;
    uint8_t is_object[DEPTH_MAX + 1];
    unsigned depth = 0;
    const uint8_t *p = text, *end = s->end;
    int escaped;
    is_object[0] = 0;
    while (p < end) {
        int key = 0;
        MAY_REST(s, p);
        switch (*p) {
        case '"':
            p = valid_string_end(s, p + 1, &escaped);
            break;
        case '{':
        case '[':
            depth++;
            is_object[depth] = *p == '{';
            last[depth] = 0;
            own[depth] = 0;
            key = *p == '{' && p[1] != '}';
            break;
        case ',':
            key = is_object[depth];
            break;
        case '}':
            mark_dead(s, members, last[depth], own[depth], table);
            depth--;
            break;
        case ']':
            depth--;
            break;
        default:
            break;
        }
        p++;
        if (key) {
            uint32_t off = (uint32_t)(p - text), before = last[depth];
            const uint8_t *close = valid_string_end(s, p + 1, &escaped);
            if (count == keys) return 0;
            if (before) members[before - 1].next = off;
            members[count] = (struct member){0, off, off, before, 0};
            hash_key(p + 1, close, escaped, s->secret, after, &members[count].hash);
            last[depth] = (uint32_t)++count;
            own[depth]++;
            p = close + 1;
        }
    }
    uint64_t to = 0, from = 0;
    for (const struct member *member = members; member < members + count; member++) {
        if (!member->dead || member->off < from) continue; /* alive, or inside a dead one */
        memmove(text + to, text + from, member->off - from);
        to += member->off - from;
        from = member->next;
    }
    memmove(text + to, text + from, (uint64_t)(end - text) - from);
    return to + (uint64_t)(end - text) - from;
}

uint64_t tp_keep_last(unsigned char *text, uint64_t len, void *work, uint64_t keys, const uint64_t *secret)
{
    struct scan s = start_scan(text, len);
    s.secret = secret;
    return keep_last(&s, text, text + len, work, keys);
}

void copy_in_turns(struct scan *s, uint8_t *to, const uint8_t *from, uint64_t len)
{
    while (__builtin_expect(s->work != NULL, 0) && len > s->work->bytes) {
        uint64_t turn = s->work->bytes;
        memcpy(to, from, turn);
        to += turn, from += turn, len -= turn;
        rest(s->work);
    }
    memcpy(to, from, len);
}

uint64_t compact(struct scan *s, uint8_t *out)
{
    const uint8_t *p = s->start, *end = s->end, *from = p;
    uint8_t *to = out;
    while (p < end) {
        if (*p == '"') {
            MAY_REST(s, p);
            do p += *p == '\\' ? 2 : 1; while (*p != '"');
            p++;
        } else if (is_blank(*p)) {
            MAY_REST(s, p);
            copy_in_turns(s, to, from, (uint64_t)(p - from));
            to += p - from;
            p++;
            if (p < end && is_blank(*p)) p = blanks_end(p, end);
            from = p;
        } else {
            p++;
        }
    }
    copy_in_turns(s, to, from, (uint64_t)(p - from));
    return (uint64_t)(to + (p - from) - out);
}

uint64_t tp_compact(const unsigned char *text, uint64_t len, unsigned char *out)
{
    struct scan s = start_scan(text, len);
    return compact(&s, out);
}
