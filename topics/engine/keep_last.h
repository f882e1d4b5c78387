/* Included by records.c alone: drops the members of an object whose key comes again.
 *
 * One pass collects the keys of the objects that are open, hashed; when one closes, its keys are sorted, so that equal
 * ones lie together in their order, and all but the last die. A member dies from its key to the next member's key: a
 * dead one is never the last of its object, so the commas stay right. Linear but for the sorting.
 */
struct member {
    uint64_t hash;
    uint32_t off, next; /* of its key and of the next member's key, in the text */
};
struct range {
    uint32_t from, to;
};
#define LESS_MEMBER(a, b) ((a).hash < (b).hash || ((a).hash == (b).hash && (a).off < (b).off))
DEFINE_SORT(sort_members, struct member, LESS_MEMBER)
#define LESS_RANGE(a, b) ((a).from < (b).from || ((a).from == (b).from && (a).to > (b).to))
DEFINE_SORT(sort_ranges, struct range, LESS_RANGE)

/* The closing quote of a valid string; p after the opening one. */
static const uint8_t *valid_string_end(const uint8_t *p, int *escaped)
{
    for (*escaped = 0; *p != '"'; p++)
        if (*p == '\\') *escaped = 1, p++;
    return p;
}

static int same_key(const uint8_t *a, const uint8_t *b)
{
    for (a++, b++; *a != '"' && *b != '"';)
        if (next_character(&a) != next_character(&b)) return 0;
    return *a == *b;
}

uint64_t tp_keep_last(const unsigned char *text, uint64_t len, unsigned char *out, void *work, uint64_t keys,
                      const uint64_t *secret)
{
    struct member *members = work;                       /* of the objects that are open, from the left */
    struct range *dead = (struct range *)(members + keys); /* members that are dropped */
    uint64_t base[DEPTH_MAX + 1], count = 0, n = 0;
    uint8_t is_object[DEPTH_MAX + 1];
    unsigned depth = 0;
    const uint8_t *p = text, *end = text + len;
    int escaped;
    is_object[0] = 0;
    while (p < end) {
        int key = 0;
        switch (*p) {
        case '"':
            p = valid_string_end(p + 1, &escaped);
            break;
        case '{':
        case '[':
            depth++;
            is_object[depth] = *p == '{';
            base[depth] = count;
            key = *p == '{' && p[1] != '}';
            break;
        case ',':
            key = is_object[depth];
            break;
        case '}': {
            uint64_t first = base[depth], own = count - first;
            count = first;
            sort_members(members + first, own);
            for (uint64_t i = 1; i < own; i++) {
                struct member earlier = members[first + i - 1], later = members[first + i];
                if (earlier.hash == later.hash && same_key(text + earlier.off, text + later.off))
                    dead[n++] = (struct range){earlier.off, earlier.next};
            }
            depth--;
            break;
        }
        case ']':
            depth--;
            break;
        default:
            break;
        }
        p++;
        if (key) {
            uint32_t off = (uint32_t)(p - text);
            const uint8_t *close = valid_string_end(p + 1, &escaped);
            if (count > base[depth]) members[count - 1].next = off;
            members[count].off = off;
            members[count].next = off;
            hash_key(p + 1, close, escaped, secret, out, &members[count].hash);
            count++;
            p = close + 1;
        }
    }
    sort_ranges(dead, n);
    uint64_t to = 0, from = 0;
    for (uint64_t i = 0; i < n; i++) {
        if (dead[i].from < from) continue; /* inside a dead one */
        memcpy(out + to, text + from, dead[i].from - from);
        to += dead[i].from - from;
        from = dead[i].to;
    }
    memcpy(out + to, text + from, len - from);
    return to + (len - from);
}
