/* Runs every function of records.c over a file of cases, each copied to a block of exactly its size so that the address
 * sanitizer sees one byte too many. A case: u32 length, bytes. Prints two characters a case: value and write,
 * 1 = accepted. Built and compared with the model by test_records_sanitized.py. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include "../../../topics/engine/json/records.c"

static uint64_t colons(const uint8_t *text, uint64_t len)
{
    uint64_t n = 1;
    for (uint64_t i = 0; i < len; i++) n += text[i] == ':';
    return n;
}

static int value(const uint8_t *text, uint64_t len, const uint64_t *secret)
{
    struct tp_value out;
    uint64_t room = 2, *keys = malloc(room * 8);
    int status = tp_scan_value(&out, text, len, 0, keys, room, secret);
    if (status && out.error.code == E_ROOM) {
        room = colons(text, len);
        keys = realloc(keys, room * 8);
        status = tp_scan_value(&out, text, len, 0, keys, room, secret);
    }
    if (status && out.error.at > len) abort();
    if (!status) {
        uint8_t *compact = malloc(len), *kept = malloc(len), *exact;
        uint64_t size = tp_compact(text, len, compact);
        exact = malloc(size);
        memcpy(exact, compact, size);
        room = colons(exact, size) - 1;
        void *work = malloc(room * 24);
        size = tp_keep_last(exact, size, kept, work, room, secret);
        if (tp_scan_value(&out, kept, size, 0, keys, 0, secret) && out.error.code != E_ROOM) abort();
        free(work), free(exact), free(kept), free(compact);
    }
    for (uint32_t kind = KIND_ARRAY; kind <= KIND_OBJECT; kind++) {
        struct tp_error error;
        struct tp_span *spans = malloc(sizeof *spans);
        int64_t n = tp_members(text, len, kind, spans, 1, UINT64_MAX, &error);
        if (n > 1) {
            spans = realloc(spans, (size_t)n * sizeof *spans);
            if (tp_members(text, len, kind, spans, (uint64_t)n, (uint64_t)n, &error) != n) abort();
            if (tp_members(text, len, kind, spans, (uint64_t)n, (uint64_t)n - 1, &error) != n) abort();
        }
        if (n >= 0 && status) abort();
        free(spans);
    }
    free(keys);
    return !status;
}

static int write_body(const uint8_t *text, uint64_t len, const uint64_t *secret)
{
    struct tp_writer w = {.limits = {2, 100, 50, 4, 20, 20, 1000}, .secret = {secret[0], secret[1]}};
    w.rows = malloc(2 * sizeof(struct tp_row));
    w.key_room = 2;
    w.keys = malloc(16);
    uint64_t end = len;
    int status = tp_scan_texts(&w, text, &end, 1);
    status = tp_scan_write(&w, text, len);
    if (status < 0 && w.error.code == E_ROOM) {
        w.key_room = colons(text, len);
        w.keys = realloc(w.keys, w.key_room * 8);
        status = tp_scan_write(&w, text, len);
    }
    if (status < 0 && w.error.at > len) abort();
    if (status >= 0) {
        uint8_t *out = malloc(len);
        if (tp_clean_rows(&w, text, out) > len) abort();
        tp_check_rows(&w, out);
        free(out);
    }
    free(w.keys), free(w.rows);
    return status >= 0;
}

int main(int argc, char **argv)
{
    const uint64_t secret[2] = {0x9E3779B97F4A7C15u, 0xC2B2AE3D27D4EB4Fu};
    FILE *cases = argc > 1 ? fopen(argv[1], "rb") : NULL;
    uint32_t len;
    if (!cases) return 2;
    while (fread(&len, sizeof len, 1, cases) == 1) {
        uint8_t *text = malloc(len ? len : 1), *exact = malloc(len);
        if (fread(text, 1, len, cases) != len) return 2;
        if (len) memcpy(exact, text, len);
        putchar('0' + value(len ? exact : text, len, secret));
        putchar('0' + write_body(len ? exact : text, len, secret));
        free(exact), free(text);
    }
    fclose(cases);
    return 0;
}
