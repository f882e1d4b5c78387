/* The strict scan of a JSON value: see json_strict.h. */
#if defined(__SSE2__) && defined(__x86_64__) && !defined(TP_NO_AVX2)
#define HAS_AVX2_BUILD
#include <immintrin.h>
#endif

#include "json_strict.h"

enum {
    PAIRWISE_KEYS = 24,
    SPREAD_KEYS = 1024,
    FEW_DIGITS = 6,
    FAR_BYTES = 64, /* so many plain characters into a string, 32 at a time pay */
    SCAN_BYTES_MAX = 1 << 16, /* of one token, scanned between two places to rest */
};

void rest_from(struct scan *s, const uint8_t *p)
{
    uint64_t left = (uint64_t)(s->end - p);
    int rests = s->work && s->work->bytes < left;
    s->stop = rests ? p + s->work->bytes : s->end;
    s->pause = rests ? s->stop : NEVER;
}

void take_rest(struct scan *s, const uint8_t *p)
{
    rest(s->work);
    rest_from(s, p);
}

/* ---- characters ------------------------------------------------------------------------------------------------- */

const uint8_t *blanks_end(const uint8_t *p, const uint8_t *end)
{
#ifdef SIXTEEN_AT_ONCE
    for (; end - p >= 16; p += 16) {
        sixteen chunk = load16(p);
        marks others = unmarked(either16(either16(equal16(chunk, ' '), equal16(chunk, '\t')),
                                         either16(equal16(chunk, '\n'), equal16(chunk, '\r'))));
        if (others) return p + first_mark(others);
    }
#endif
    while (p < end && is_blank(*p)) p++;
    return p;
}

static inline uint64_t load8(const uint8_t *p) { uint64_t v; memcpy(&v, p, 8); return v; }

/* digits_end of a long row of digits. It is apart so that the loop over short ones stays small. */
static __attribute__((noinline)) const uint8_t *many_digits_end(const uint8_t *p, const uint8_t *stop)
{
#ifdef SIXTEEN_AT_ONCE
    for (; stop - p >= 16; p += 16) {
        marks others = unmarked(digits16(load16(p)));
        if (others) return p + first_mark(others);
    }
#else
    for (; stop - p >= 8; p += 8) {
        /* The high bit of each byte that is no digit; carries only reach bytes after the first. */
        uint64_t v = load8(p) ^ 0x3030303030303030u, others = (v | (v + 0x7676767676767676u)) & 0x8080808080808080u;
        if (others) return p + (__builtin_ctzll(others) >> 3);
    }
#endif
    while (p < stop && is_digit(*p)) p++;
    return p;
}

/* Return the end of the digits that begin at p, at most `stop`. */
static inline const uint8_t *digits_end(const uint8_t *p, const uint8_t *stop)
{
    for (int i = 0; i < FEW_DIGITS; i++, p++) /* most numbers are short */
        if (p >= stop || !is_digit(*p)) return p;
    return many_digits_end(p, stop);
}

static inline const uint8_t *skip_digits(struct scan *s, const uint8_t *p)
{
    for (;;) {
        const uint8_t *stop = s->stop;
        p = digits_end(p, stop);
        if (p < stop || p == s->end) return p;
        take_rest(s, p);
    }
}

/* Skip a run of characters beyond ASCII, or a large part of it; p is at the first of them. */
static const uint8_t *skip_utf8(struct scan *s, const uint8_t *p)
{
    const uint8_t *stop = s->end - p > SCAN_BYTES_MAX ? p + SCAN_BYTES_MAX : s->end;
    do {
        uint8_t c = *p;
        long left = s->end - p;
        if (c < 0xC2 || c > 0xF4) return fail(s, E_UTF8, p);
        if (left < 2 || (p[1] & 0xC0) != 0x80) return fail(s, E_UTF8, p);
        if (c < 0xE0) {
            p += 2;
            continue;
        }
        if (left < 3 || (p[2] & 0xC0) != 0x80) return fail(s, E_UTF8, p);
        if (c < 0xF0) {
            if ((c == 0xE0 && p[1] < 0xA0) || (c == 0xED && p[1] > 0x9F)) return fail(s, E_UTF8, p);
            p += 3;
            continue;
        }
        if (left < 4 || (p[3] & 0xC0) != 0x80) return fail(s, E_UTF8, p);
        if ((c == 0xF0 && p[1] < 0x90) || (c == 0xF4 && p[1] > 0x8F)) return fail(s, E_UTF8, p);
        p += 4;
    } while (p < stop && *p >= 0x80);
    return p;
}

/* Return the value of four hex digits, or -1. */
static int hex4(const uint8_t *p)
{
    int value = 0;
    for (int i = 0; i < 4; i++) {
        uint8_t c = p[i];
        int digit = is_digit(c) ? c - '0' : (uint8_t)((c | 32) - 'a') < 6 ? (c | 32) - 'a' + 10 : -1;
        if (digit < 0) return -1;
        value = value << 4 | digit;
    }
    return value;
}

/* Skip one escape; p is at the backslash. Counts the bytes that the shortest spelling would
 * save. */
static const uint8_t *skip_escape(struct scan *s, const uint8_t *p)
{
    s->escaped = 1;
    if (s->end - p < 2) return fail(s, E_END, s->end);
    switch (p[1]) {
    case '/':
        s->saved++;
        return p + 2;
    case '"': case '\\': case 'b': case 'f': case 'n': case 'r': case 't':
        return p + 2;
    case 'u':
        break;
    default:
        return fail(s, E_ESCAPE, p);
    }
    int code = s->end - p < 6 ? -1 : hex4(p + 2);
    if (code < 0) return fail(s, s->end - p < 6 ? E_END : E_ESCAPE, p);
    if (code >= 0xD800 && code < 0xE000) {
        int low = s->end - p < 12 || p[6] != '\\' || p[7] != 'u' ? -1 : hex4(p + 8);
        if (code >= 0xDC00 || low < 0xDC00 || low > 0xDFFF) return fail(s, E_SURROGATE, p);
        s->saved += 8;
        return p + 12;
    }
    if (code == '"' || code == '\\' || (code >= 8 && code <= 13 && code != 11)) s->saved += 4;
    else if (code >= 0x800) s->saved += 3;
    else if (code >= 0x80) s->saved += 4;
    else if (code >= 0x20) s->saved += 5;
    return p + 6;
}

#ifdef HAS_AVX2_BUILD
static int has_avx2; /* whether this machine can do it */

__attribute__((constructor)) static void find_avx2(void)
{
    __builtin_cpu_init();
    has_avx2 = __builtin_cpu_supports("avx2");
}

/* Return the first character from p on that is not plain, or a place less than 32 before `end`. */
__attribute__((target("avx2"))) static const uint8_t *plain_end(const uint8_t *p, const uint8_t *end)
{
    const __m256i space = _mm256_set1_epi8(0x20), quote = _mm256_set1_epi8('"'), backslash = _mm256_set1_epi8('\\');
    for (; end - p >= 32; p += 32) {
        __m256i chunk = _mm256_loadu_si256((const __m256i *)p);
        /* A signed comparison: bytes from 0x80 on are below 0x20, too. */
        __m256i special = _mm256_or_si256(_mm256_cmpeq_epi8(chunk, quote), _mm256_cmpeq_epi8(chunk, backslash));
        special = _mm256_or_si256(special, _mm256_cmpgt_epi8(space, chunk));
        unsigned mask = (unsigned)_mm256_movemask_epi8(special);
        if (mask) return p + __builtin_ctz(mask);
    }
    return p;
}
#endif

const uint8_t *any_string_end(struct scan *s, const uint8_t *p)
{
    const uint8_t *end = s->end;
    s->escaped = 0;
    for (;;) {
#ifdef SIXTEEN_AT_ONCE
#ifdef HAS_AVX2_BUILD
        const uint8_t *far = has_avx2 && end - p > FAR_BYTES ? p + FAR_BYTES : NULL;
#endif
        while (end - p >= 16) {
            marks found = special_among(p);
            if (found) {
                p += first_mark(found);
                goto special_byte;
            }
            p += 16;
#ifdef HAS_AVX2_BUILD
            if (p == far) p = plain_end(p, end);
#endif
        }
#endif
        while (p < end && *p >= 0x20 && *p < 0x80 && *p != '"' && *p != '\\') p++;
        if (p == end) return fail(s, E_END, p);
#ifdef SIXTEEN_AT_ONCE
    special_byte:
#endif
        if (*p == '"') return p;
        if (*p == '\\') p = skip_escape(s, p);
        else if (*p >= 0x80) p = skip_utf8(s, p);
        else return fail(s, E_CONTROL, p);
        if (!p) return NULL;
        MAY_REST(s, p);
    }
}

uint32_t next_character(const uint8_t **p)
{
    const uint8_t *q = *p;
    uint8_t c = *q;
    if (c < 0x80 && c != '\\') return *p = q + 1, c;
    if (c >= 0x80) {
        int more = c < 0xE0 ? 1 : c < 0xF0 ? 2 : 3;
        uint32_t code = c & (0x3F >> more);
        for (int i = 1; i <= more; i++) code = code << 6 | (q[i] & 0x3F);
        return *p = q + 1 + more, code;
    }
    *p = q + 2;
    switch (q[1]) {
    case 'b': return '\b';
    case 'f': return '\f';
    case 'n': return '\n';
    case 'r': return '\r';
    case 't': return '\t';
    case 'u': break;
    default: return q[1];
    }
    uint32_t code = (uint32_t)hex4(q + 2);
    *p = q + 6;
    if (code >= 0xD800 && code < 0xDC00) {
        code = 0x10000 + ((code - 0xD800) << 10) + ((uint32_t)hex4(q + 8) - 0xDC00);
        *p = q + 12;
    }
    return code;
}

uint64_t decode(const uint8_t *p, const uint8_t *end, uint8_t *out)
{
    uint64_t n = 0;
    while (p < end) {
        uint32_t c = next_character(&p);
        uint8_t utf8[4];
        int size = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
        utf8[0] = (uint8_t)(size == 1 ? c : (0xF00u >> size & 0xFF) | c >> 6 * (size - 1));
        for (int i = 1; i < size; i++) utf8[i] = 0x80 | (c >> 6 * (size - 1 - i) & 0x3F);
        if (out) memcpy(out + n, utf8, (size_t)size);
        n += (uint64_t)size;
    }
    return n;
}

/* ---- numbers ---------------------------------------------------------------------------------------------------- */

/* 2^1024 - 2^970: the least number that a double rounds to infinity. 309 digits. */
static const char OVERFLOW_DIGITS[] =
    "17976931348623158079372897140530341507993413271003782693617377898044496829276475094664901797758720709633028641"
    "66928879109465555478519404026306574886715058206819089020007083836762738548458177115317644757302700698555713669"
    "59622842914819860834936475292719074168444365510704342711559699508093042880177904174497792";

/* Return whether 0.d1d2d3... * 10^point overflows, with the digits between p and end (a point
 * among them is skipped). */
static int overflows(const uint8_t *p, const uint8_t *end, int64_t point)
{
    int compared = 0;
    for (; p < end && (is_digit(*p) || *p == '.'); p++) {
        if (*p == '.') continue;
        if (!compared && *p == '0') {
            for (; end - p > 16 && !memcmp(p, "0000000000000000", 16); p += 16) point -= 16;
            if (*p != '0') {
                p--;
                continue;
            }
            point--;
            continue;
        }
        if (!compared && point != 309) return point > 309;
        if (*p != OVERFLOW_DIGITS[compared]) return *p > OVERFLOW_DIGITS[compared];
        if (++compared == 309) return 1;
    }
    while (compared && compared < 309)
        if (OVERFLOW_DIGITS[compared++] != '0') return 0;
    return compared == 309;
}

static const uint8_t *skip_number(struct scan *s, const uint8_t *p)
{
    const uint8_t *end = s->end, *from = p;
    if (*p == '-') p++;
    if (p == end) return fail(s, E_END, p);
    const uint8_t *digits = p;
    if (*p == '0') {
        p++;
        if (p < end && is_digit(*p)) return fail(s, E_NUMBER, from);
    } else if (is_digit(*p)) {
        p = skip_digits(s, p + 1);
    } else {
        return fail(s, *p == 'I' ? E_LITERAL : E_NUMBER, from);
    }
    int64_t point = p - digits, exponent = 0;
    if (p < end && *p == '.') {
        p++;
        if (p == end) return fail(s, E_END, p);
        if (!is_digit(*p)) return fail(s, E_NUMBER, from);
        p = skip_digits(s, p + 1);
    }
    const uint8_t *digits_end = p;
    if (p < end && (*p | 32) == 'e') {
        int minus = 0;
        p++;
        if (p < end && (*p == '+' || *p == '-')) minus = *p++ == '-';
        if (p == end) return fail(s, E_END, p);
        if (!is_digit(*p)) return fail(s, E_NUMBER, from);
        const uint8_t *power = p;
        p = skip_digits(s, p);
        for (; power < p && exponent < (int64_t)1 << 40; power++) exponent = exponent * 10 + (*power - '0');
        if (minus) exponent = -exponent;
    }
    if (point + exponent > 308 && overflows(digits, digits_end, point + exponent)) return fail(s, E_RANGE, from);
    return p;
}

/* ---- keys ------------------------------------------------------------------------------------------------------- */

static inline uint64_t load4(const uint8_t *p) { uint32_t v; memcpy(&v, p, 4); return v; }
static inline uint64_t mix(uint64_t a, uint64_t b)
{
    unsigned __int128 product = (unsigned __int128)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

/* The hash is keyed: without the secret no client can make two keys collide on purpose. */
static inline uint64_t hash_bytes(const uint8_t *p, uint64_t n, const uint64_t *secret)
{
    uint64_t a, b, seed = secret[0] ^ n;
    const uint8_t *last = p + n;
    if (n <= 8) { /* most keys; no two of one length are equal then */
        if (n >= 4) a = load4(p) | load4(last - 4) << 32;
        else a = n ? (uint64_t)p[0] << 16 | (uint64_t)p[n >> 1] << 8 | p[n - 1] : 0;
        return (a ^ secret[0]) * (secret[1] | 1) + n * 0x9E3779B97F4A7C15u;
    }
    for (; last - p > 16; p += 16) seed = mix(load8(p) ^ secret[1], load8(p + 8) ^ seed);
    n = (uint64_t)(last - p);
    if (n >= 8) a = load8(p), b = load8(last - 8);
    else if (n >= 4) a = load4(p), b = load4(last - 4);
    else if (n) a = (uint64_t)p[0] << 16 | (uint64_t)p[n >> 1] << 8 | p[n - 1], b = 0;
    else a = b = 0;
    return mix(secret[1] ^ 0x9E3779B97F4A7C15u, mix(a ^ secret[1], b ^ seed));
}

int hash_key(const uint8_t *p, const uint8_t *end, int escaped, const uint64_t *secret, uint8_t *room,
                    uint64_t *hash)
{
    uint8_t little[ESCAPED_KEY_BYTES];
    if (!escaped) {
        *hash = hash_bytes(p, (uint64_t)(end - p), secret);
        return 1;
    }
    if (!room) {
        if (end - p > 6 * ESCAPED_KEY_BYTES || decode(p, end, NULL) > sizeof little) return 0;
        room = little;
    }
    *hash = hash_bytes(room, decode(p, end, room), secret);
    return 1;
}

/* An in-place quicksort. A stack of 64 ranges suffices, because the smaller part is sorted
 * first. */
#define DEFINE_SORT(name, type, LESS)                                                                                  \
    static void name(type *a, uint64_t n)                                                                              \
    {                                                                                                                  \
        struct { uint64_t from, to; } todo[64];                                                                        \
        int depth = 0;                                                                                                 \
        uint64_t from = 0, to = n; /* [from, to) */                                                                    \
        for (;;) {                                                                                                     \
            while (to - from > 16) {                                                                                   \
                type pivot = a[from + (to - from) / 2], swap;                                                          \
                uint64_t i = from, j = to - 1;                                                                         \
                for (;; i++, j--) {                                                                                    \
                    while (LESS(a[i], pivot)) i++;                                                                     \
                    while (LESS(pivot, a[j])) j--;                                                                     \
                    if (i >= j) break;                                                                                 \
                    swap = a[i], a[i] = a[j], a[j] = swap;                                                             \
                }                                                                                                      \
                /* a[from..j] <= pivot <= a[j+1..to); both parts are shorter than the whole */                         \
                uint64_t middle = j + 1;                                                                               \
                if (middle - from < to - middle) {                                                                     \
                    todo[depth].from = middle, todo[depth++].to = to, to = middle;                                     \
                } else {                                                                                               \
                    todo[depth].from = from, todo[depth++].to = middle, from = middle;                                 \
                }                                                                                                      \
            }                                                                                                          \
            for (uint64_t i = from + 1; i < to; i++) {                                                                 \
                type moving = a[i];                                                                                    \
                uint64_t j = i;                                                                                        \
                for (; j > from && LESS(moving, a[j - 1]); j--) a[j] = a[j - 1];                                       \
                a[j] = moving;                                                                                         \
            }                                                                                                          \
            if (!depth) return;                                                                                        \
            from = todo[--depth].from, to = todo[depth].to;                                                            \
        }                                                                                                              \
    }

#define LESS_NUMBER(a, b) ((a) < (b))
DEFINE_SORT(sort_hashes, uint64_t, LESS_NUMBER)

/* Order the hashes by their eight bits from `shift` on; ends[b] becomes the end of those whose
 * bits are b. */
static void spread(uint64_t *hashes, uint64_t n, unsigned shift, uint32_t *ends)
{
    uint32_t next[256];
    memset(ends, 0, 256 * sizeof *ends);
    for (uint64_t i = 0; i < n; i++) ends[hashes[i] >> shift & 255]++;
    for (uint32_t b = 0, sum = 0; b < 256; b++) {
        next[b] = sum;
        sum += ends[b];
        ends[b] = sum;
    }
    for (uint32_t b = 0; b < 256; b++)
        while (next[b] < ends[b]) {
            uint64_t hash = hashes[next[b]];
            for (uint32_t to; (to = hash >> shift & 255) != b;) {
                uint64_t swap = hashes[next[to]];
                hashes[next[to]++] = hash;
                hash = swap;
            }
            hashes[next[b]++] = hash;
        }
}

static int equal_pair(const uint64_t *hashes, uint64_t n)
{
    for (uint64_t i = 1; i < n; i++)
        for (uint64_t j = 0; j < i; j++)
            if (hashes[i] == hashes[j]) return 1;
    return 0;
}

/* Return whether two of them are equal; changes their order. */
static int has_equal(uint64_t *hashes, uint64_t n)
{
    if (n <= PAIRWISE_KEYS) return equal_pair(hashes, n);
    sort_hashes(hashes, n);
    for (uint64_t i = 1; i < n; i++)
        if (hashes[i] == hashes[i - 1]) return 1;
    return 0;
}

/* has_equal for any number: many hashes are spread by eight of their bits, twice, so that few
 * are left to compare in each group. A record has room for a quarter of a million keys, which
 * leaves four a group. */
static int has_equal_among_many(uint64_t *hashes, uint64_t n)
{
    if (n <= SPREAD_KEYS) return has_equal(hashes, n);
    if (equal_pair(hashes, PAIRWISE_KEYS)) return 1;
    uint32_t ends[256], inner[256];
    spread(hashes, n, 56, ends);
    for (uint32_t b = 0, from = 0; b < 256; from = ends[b++]) {
        uint64_t *some = hashes + from;
        uint32_t count = ends[b] - from;
        if (count <= SPREAD_KEYS / 4) {
            if (has_equal(some, count)) return 1;
            continue;
        }
        spread(some, count, 48, inner);
        for (uint32_t c = 0, at = 0; c < 256; at = inner[c++])
            if (has_equal(some + at, inner[c] - at)) return 1;
    }
    return 0;
}

/* Return whether the text at p begins with an expected key, which stands before it in the same
 * buffer. From p on there are EXPECTED_KEY_BYTES to load. */
static inline int is_expected(const uint8_t *p, const struct expected_key *key)
{
    if (key->size < 8) return !((load8(p) ^ load8(key->text)) << (64 - 8 * key->size));
    return load8(p) == load8(key->text) && load8(p + key->size - 8) == load8(key->text + key->size - 8);
}

/* Expect the key from p to its closing quote in the next value; at: its place there. */
static void expect(struct scan *s, uint32_t at, const uint8_t *p, const uint8_t *close, uint64_t hash)
{
    if (at > s->keys_known || at >= EXPECTED_KEYS) return;
    uint32_t size = (uint32_t)(close + 2 - p);
    int is_short = !s->escaped && size <= EXPECTED_KEY_BYTES && close + 1 < s->end && close[1] == ':';
    s->expected[at] = (struct expected_key){p, hash, is_short ? size : 0};
    if (at == s->keys_known) s->keys_known++;
}

/* ---- values ----------------------------------------------------------------------------------------------------- */

/* Return the place of the value after the key at p, the nth of its text from 0 on. */
static __attribute__((noinline)) const uint8_t *skip_key(struct scan *s, const uint8_t *p, uint32_t nth)
{
    if (p == s->end) return fail(s, E_END, p);
    if (*p != '"') return fail(s, E_SYNTAX, p);
    const uint8_t *close = string_end(s, p + 1);
    if (!close) return NULL;
    if (s->keys) {
        if (s->key_count == s->key_room) return fail(s, E_ROOM, p);
        uint64_t *hash = s->keys + s->key_count;
        if (hash_key(p + 1, close, (int)s->escaped, s->secret, NULL, hash)) {
            s->key_count++;
            expect(s, nth, p, close, *hash);
        } else {
            s->twice = 1;
        }
    }
    p = skip_blanks(s, close + 1);
    if (p == s->end) return fail(s, E_END, p);
    if (*p != ':') return fail(s, E_SYNTAX, p);
    return skip_blanks(s, p + 1);
}

const uint8_t *skip_value(struct scan *s, const uint8_t *p, unsigned open)
{
    const uint8_t *end = s->end;
    uint8_t is_object[DEPTH_MAX + 1];
    uint64_t base[DEPTH_MAX + 1]; /* start of each container's keys on the stack */
    unsigned depth = 0;
    uint32_t nth = 0; /* number of keys so far, at any depth */
    s->outer_keys = 0;
value:
    if (p == end) return fail(s, E_END, p);
    switch (*p) {
    case '"':
        p = string_end(s, p + 1);
        if (!p) return NULL;
        p++;
        break;
    case '{':
    case '[':
        if (open + depth >= DEPTH_MAX) return fail(s, E_DEPTH, p);
        depth++;
        is_object[depth] = *p == '{';
        base[depth] = s->key_count;
        p = skip_blanks(s, p + 1);
        if (p < end && *p == (is_object[depth] ? '}' : ']')) {
            p++;
            depth--;
            break;
        }
        if (is_object[depth]) goto key;
        goto value;
    case '-': case '0': case '1': case '2': case '3': case '4': case '5': case '6': case '7': case '8': case '9':
        p = skip_number(s, p);
        if (!p) return NULL;
        break;
    case 't': case 'f': case 'n':
        p = skip_literal(s, p);
        if (!p) return NULL;
        break;
    case 'N': case 'I': case 'T': case 'F':
        return fail(s, E_LITERAL, p);
    default:
        return fail(s, E_SYNTAX, p);
    }
after:
    if (!depth) return p;
    MAY_REST(s, p);
    p = skip_blanks(s, p);
    if (p == end) return fail(s, E_END, p);
    if (*p == ',') {
        p = skip_blanks(s, p + 1);
        if (is_object[depth]) goto key;
        goto value;
    }
    if (*p != (is_object[depth] ? '}' : ']')) return fail(s, E_SYNTAX, p);
    if (is_object[depth] && s->keys) {
        if (!s->twice && has_equal_among_many(s->keys + base[depth], s->key_count - base[depth])) s->twice = 1;
        s->key_count = base[depth];
    }
    p++;
    depth--;
    goto after;
key:
    s->outer_keys += depth == 1;
    if (s->keys) {
        const struct expected_key *key = s->expected + nth;
        if (nth < s->keys_known && key->size && end - p >= EXPECTED_KEY_BYTES && is_expected(p, key) &&
            s->key_count < s->key_room) {
            s->keys[s->key_count++] = key->hash;
            nth++;
            p = skip_blanks(s, p + key->size);
            goto value;
        }
    }
    p = skip_key(s, p, nth++);
    if (!p) return NULL;
    goto value;
}

const uint8_t *first_character(struct scan *s)
{
    const uint8_t *p = s->start;
    if ((uint64_t)(s->end - p) > 0xffffffffu) return fail(s, E_LONG, p);
    if (s->end - p >= 3 && !memcmp(p, "\xEF\xBB\xBF", 3)) return fail(s, E_BOM, p);
    p = skip_blanks(s, p);
    return p == s->end ? fail(s, E_END, p) : p;
}

int trailing(struct scan *s, const uint8_t *p)
{
    p = skip_blanks(s, p);
    if (p == s->end) return 0;
    fail(s, E_TRAILING, p);
    return -1;
}
