/* Runs every function of records.h but tp_scan_writes over a file of cases, each copied to a block of exactly its size so that
 * the address sanitizer sees one byte too many. A case: u32 length, bytes. Prints two characters a case: value and write,
 * 1 = accepted. Built and compared with the model by test_records_sanitized.py. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../../topics/engine/json/records.h"

/* Ends the program, and names the line, if the condition holds. */
#define REFUSE(condition) ((condition) ? (fprintf(stderr, "line %d: %s\n", __LINE__, #condition), abort()) : (void)0)

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
    REFUSE(status && out.error.at > len);
    if (!status) {
        uint8_t *compact = malloc(len);
        uint64_t size = tp_compact(text, len, compact), most = colons(compact, size) - 1;
        uint8_t *kept = malloc(2 * size); /* the text, and room for as much behind it */
        memcpy(kept, compact, size);
        void *work = malloc(most * KEY_WORK_BYTES + KEY_WORK_LEAST);
        size = tp_keep_last(kept, size, work, most, secret);
        REFUSE(!size || tp_scan_value(&out, kept, size, 0, keys, room, secret) || out.maybe_twice);
        free(work), free(kept), free(compact);
    }
    for (uint32_t kind = KIND_ARRAY; kind <= KIND_OBJECT; kind++) {
        struct tp_error error;
        struct tp_span *spans = malloc(sizeof *spans);
        int64_t n = tp_members(text, len, kind, spans, 1, UINT64_MAX, &error);
        if (n > 1) {
            spans = realloc(spans, (size_t)n * sizeof *spans);
            REFUSE(tp_members(text, len, kind, spans, (uint64_t)n, (uint64_t)n, &error) != n);
            REFUSE(tp_members(text, len, kind, spans, (uint64_t)n, (uint64_t)n - 1, &error) != n);
        }
        REFUSE(n >= 0 && status);
        free(spans);
    }
    free(keys);
    return !status;
}

/* One body in short turns: must say what the whole call said. `status`: that. */
static void in_turns(struct tp_writer *w, const uint8_t *text, uint64_t len, int status, uint64_t bytes)
{
    tp_work *work = tp_scan_work(w, text, len);
    uint64_t turns = 0;
    while (tp_work_on(work, bytes)) turns++;
    REFUSE(tp_work_result(work) != status || turns > len / bytes + 1 + len);
    tp_work_free(work);
    work = tp_scan_work(w, text, len);
    tp_work_on(work, bytes);
    tp_work_free(work); /* dropped at its first rest */
}

/* Stands for tp_frame_next: whether the rows are in the buffer. */
static int64_t frame(struct tp_next_batch *next, const char *buffer, uint64_t bytes, const char *rows, uint32_t count,
                     uint64_t size, uint64_t now_ms, char *placed)
{
    (void)next, (void)buffer, (void)size, (void)now_ms, (void)placed;
    for (const struct tp_row *row = (const struct tp_row *)rows; count; row++, count--)
        REFUSE((uint64_t)row->data_off + row->data_len > bytes || (uint64_t)row->meta_off + row->meta_len > bytes);
    return 1;
}

/* A text as the message of a frame, whole, cut, and as the bytes of one. */
static void publish(struct tp_writer *w, const uint8_t *text, uint64_t len)
{
    static const uint8_t mask[] = {1, 0x80, 0xff, 0};
    uint64_t most = len < 65535 ? len : 65535;
    uint32_t head = most < 126 ? 6 : 8;
    uint8_t *out = malloc(most ? most : 1), *scratch = malloc(most ? most : 1), *data = malloc(head + most), placed[1];
    struct tp_publish asked = {.text = out, .most = (uint32_t)most, .topic_len = 3, .topic = "\"t\""};
    data[0] = 0x81, data[1] = (uint8_t)(0x80 | (most < 126 ? most : 126));
    if (head == 8) data[2] = (uint8_t)(most >> 8), data[3] = (uint8_t)most;
    memcpy(data + head - 4, mask, 4);
    for (uint64_t i = 0; i < most; i++) data[head + i] = text[i] ^ mask[i & 3];
    w->command = 1;
    for (uint64_t cut = 0; cut <= head + most; cut += cut < 9 ? 1 : most + 1) {
        uint8_t *exact = malloc(cut ? cut : 1);
        memcpy(exact, data, cut);
        tp_publish_next(w, scratch, most, &asked, (uint64_t)(uintptr_t)frame, NULL, placed, 2, exact, cut, 0);
        free(exact);
    }
    int64_t framed = tp_publish_next(w, scratch, most, &asked, (uint64_t)(uintptr_t)frame, NULL, placed, 2, data, head + most, 0);
    REFUSE(framed && (memcmp(out, text, most) || (uint64_t)asked.id_off + asked.id_len > most));
    tp_publish_next(w, scratch, most, &asked, (uint64_t)(uintptr_t)frame, NULL, placed, 2, text, len, 0);
    w->command = 0;
    free(out), free(scratch), free(data);
}

static int write_body(const uint8_t *text, uint64_t len, const uint64_t *secret)
{
    struct tp_writer w = {.limits = {2, 100, 50, 4, 20, 20, 1000}, .secret = {secret[0], secret[1]}};
    w.rows = malloc(2 * sizeof(struct tp_row));
    w.key_room = 2;
    w.keys = malloc(16);
    uint64_t end = len;
    int status = tp_scan_texts(&w, text, &end, 1);
    tp_scan_lines(&w, text, len, 1);
    status = tp_scan_write(&w, text, len);
    if (status < 0 && w.error.code == E_ROOM) {
        w.key_room = colons(text, len);
        w.keys = realloc(w.keys, w.key_room * 8);
        status = tp_scan_write(&w, text, len);
    }
    REFUSE(status < 0 && w.error.at > len);
    for (uint64_t bytes = 1; bytes < 40; bytes += 13) in_turns(&w, text, len, status, bytes);
    REFUSE(tp_scan_write(&w, text, len) != status);
    /* By itself, as a part of its buffer, which stays as it is. */
    struct tp_request request = {.off = 3, .len = (uint32_t)len};
    uint8_t *buffer = malloc(3 + len), *scratch = malloc(len ? len : 1);
    memcpy(buffer + 3, text, len);
    int single = tp_scan_single_write(&w, scratch, len, buffer, &request);
    REFUSE(memcmp(buffer + 3, text, len) || (single == 0) != (status == 0));
    for (uint32_t i = 0; single >= 0 && i < w.count; i++) {
        const struct tp_row *row = w.rows + i;
        REFUSE((uint64_t)row->data_off + row->data_len > len + (single ? 0 : 3));
    }
    free(buffer), free(scratch);
    publish(&w, text, len);
    tp_scan_write(&w, text, len);
    if (status >= 0) {
        uint64_t room = w.marks & MARK_TWICE ? 2 * len : len, keys = colons(text, len);
        uint8_t *out = malloc(room), *again = malloc(room);
        void *work = malloc(keys * KEY_WORK_BYTES + KEY_WORK_LEAST);
        tp_work *turns = tp_clean_work(&w, text, len, again, work, keys);
        while (tp_work_on(turns, 7)) {}
        uint64_t size = (uint64_t)tp_work_result(turns);
        tp_work_free(turns);
        tp_scan_write(&w, text, len);
        REFUSE(tp_clean_rows(&w, text, len, out, work, keys) != size || size > len || memcmp(out, again, size));
        for (uint32_t i = 0; i < w.count && i < w.limits.records && !w.violation; i++) {
            const struct tp_row *row = w.rows + i;
            REFUSE((uint64_t)row->data_off + row->data_len > size || (uint64_t)row->meta_off + row->meta_len > size);
            REFUSE((uint64_t)row->tag_off + row->tag_len > size || (uint64_t)row->node_off + row->node_len > size);
        }
        free(work), free(again), free(out);
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
