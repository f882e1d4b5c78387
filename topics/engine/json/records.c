/* Strict JSON in bulk: one value, and the members of one. Bodies of writes: write_scan.c.
 *
 * Equal keys of an object inside a payload are found by a keyed 64-bit hash of each key (the
 * keys of all open objects are on one stack). The rare text that has some is rewritten by
 * keep_last.c, which compares the keys themselves. */
#include <string.h>

#include "json_strict.h"

int tp_scan_value(struct tp_value *out, const unsigned char *text, uint64_t len, uint32_t open,
                  uint64_t *keys, uint64_t key_room, const uint64_t *secret)
{
    struct scan s = start_scan(text, len);
    memset(out, 0, sizeof *out);
    s.keys = keys, s.key_room = key_room, s.secret = secret;
    const uint8_t *p = first_character(&s), *from = p;
    uint64_t before = s.white;
    if (p) p = skip_value(&s, p, open);
    if (p) {
        out->kind = kind_at(*from);
        out->keys = s.outer_keys;
        out->compact = (uint64_t)(p - from) - (s.white - before) - s.saved;
        out->maybe_twice = s.twice;
        trailing(&s, p);
    }
    out->error = s.error;
    return s.error.code ? -1 : 0;
}

int64_t tp_members(const unsigned char *text, uint64_t len, uint32_t kind, struct tp_span *spans, uint64_t room,
                   uint64_t most, struct tp_error *error)
{
    struct scan s = start_scan(text, len);
    int64_t n = 0;
    const uint8_t *p = first_character(&s);
    if (!p) goto refused;
    uint8_t close = kind == KIND_OBJECT ? '}' : ']';
    if (kind_at(*p) != kind) {
        const uint8_t *from = p;
        p = skip_value(&s, p, 0);
        if (p && !trailing(&s, p)) {
            fail(&s, E_TYPE, from);
            s.error.kind = kind_at(*from);
            s.error.field = FIELD_BODY;
        }
        goto refused;
    }
    p = skip_blanks(&s, p + 1);
    if (p < s.end && *p == close) {
        p++;
    } else {
        for (;;) {
            const uint8_t *from = p;
            if (kind == KIND_OBJECT) {
                if (p == s.end || *p != '"') {
                    fail(&s, p == s.end ? E_END : E_SYNTAX, p);
                    goto refused;
                }
                p = string_end(&s, p + 1);
                if (!p) goto refused;
                p++;
                if ((uint64_t)n < room)
                    spans[n] = (struct tp_span){(uint32_t)(from - text), (uint32_t)(p - from), KIND_STRING};
                n++;
                p = skip_blanks(&s, p);
                if (p == s.end || *p != ':') {
                    fail(&s, p == s.end ? E_END : E_SYNTAX, p);
                    goto refused;
                }
                p = from = skip_blanks(&s, p + 1);
            }
            p = skip_value(&s, p, 1);
            if (!p) goto refused;
            if ((uint64_t)n < room)
                spans[n] = (struct tp_span){(uint32_t)(from - text), (uint32_t)(p - from), kind_at(*from)};
            n++;
            if ((uint64_t)n > most) return n;
            p = skip_blanks(&s, p);
            if (p < s.end && *p == ',') {
                p = skip_blanks(&s, p + 1);
                continue;
            }
            if (p < s.end && *p == close) {
                p++;
                break;
            }
            fail(&s, p == s.end ? E_END : E_SYNTAX, p);
            goto refused;
        }
    }
    if (!trailing(&s, p)) return n;
refused:
    *error = s.error;
    return -1;
}
