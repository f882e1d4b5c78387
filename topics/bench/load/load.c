/* See load.h. */
#define _GNU_SOURCE
#include "load.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#ifndef SYS_epoll_pwait2
#define SYS_epoll_pwait2 441
#endif

enum { HEAD_ROOM = 4096, CARRY_ROOM = 64, RECEIVE_ROOM = 1 << 20, EVENTS = 256, SPARE_MS = 100, OPENING_SECONDS = 20, STALL_NS = 500000 };
#define LABEL_TEXT "\"n\":1000000000000000,\"t\":1000000000000000000"
static const uint64_t number_base = 1000000000000000ull, stamp_base = 1000000000000000000ull;

/*
 * A message that can be filled in: a copy of its head, and where labels and the topic's number are.
 */
struct filled {
    const struct tp_message *message;
    char *head, *topic;
    char **labels;
    int64_t label_count;
};

struct conn {
    struct tp_load_group *group;
    struct filled *messages; /* those of its steps */
    int64_t first_message;   /* the number of the first of them in its group */
    int fd, busy, stopped;
    int again;                            /* the next request has the numbers of the last, which was throttled */
    int64_t step, number, first_number; /* first_number: of the request in flight */
    uint64_t due, sent_at;
    size_t head_len;         /* bytes of the head of an answer so far */
    int64_t left;            /* of the answer: bytes or line feeds; -1: in the head */
    char head[HEAD_ROOM];
    char *text;              /* the answer so far, where the next request takes something of it */
    size_t text_len, text_room;
    char carry[CARRY_ROOM];  /* the end of what was received, and from where in it labels and patterns may begin */
    size_t carried, label_from, answer_from;
    uint64_t heard, heard_sum, wrote, wrote_sum;
    int64_t awaited;         /* number of the record that the answer has next, where its request asks for some; else -1 */
    int misread;             /* another one came */
    int64_t rest;            /* bytes after the label of the record that arrives, so far; -1: of none */
    int refused;             /* a line of the answer is an error */
};

/* The state of a run beside its plan. */
struct run {
    struct tp_load *load;
    struct conn **idle;      /* of each group a ring of its free connections, at `first` */
    int64_t *idle_first, *idle_count, *at;
    uint64_t *issued;
    uint64_t start, measured, end;
    int ep, schedstat, failed;
    char *buffer, *scratch;
    size_t scratch_room;
};

static uint64_t clock_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000ull + (uint64_t)ts.tv_nsec;
}

static uint64_t thread_cpu_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
    return (uint64_t)ts.tv_sec * 1000000000ull + (uint64_t)ts.tv_nsec;
}

/*
 * How long this thread has been ready to run without a core, ns; 0 where the kernel does not say.
 */
static uint64_t thread_without_core_ns(int schedstat)
{
    char text[64] = "";
    unsigned long long ran, waited = 0;
    if (pread(schedstat, text, sizeof text - 1, 0) > 0) sscanf(text, "%llu %llu", &ran, &waited);
    return waited;
}

/* Notes the first thing that went wrong. Returns -1. */
static int fail(struct run *run, const char *format, ...)
{
    va_list arguments;
    run->failed = 1;
    if (run->load->error[0]) return -1;
    va_start(arguments, format);
    vsnprintf(run->load->error, sizeof run->load->error, format, arguments);
    va_end(arguments);
    return -1;
}

uint64_t tp_due_ns(uint64_t start, uint64_t number, double rate)
{
    return start + (uint64_t)((double)number * 1e9 / rate);
}

int64_t tp_hdr_slot(uint64_t value)
{
    if (value < 1) value = 1;
    if (value > TP_HDR_HIGHEST) value = TP_HDR_HIGHEST;
    int bucket = 53 - __builtin_clzll(value | 2047);
    return ((int64_t)(bucket + 1) << 10) + (int64_t)(value >> bucket) - 1024;
}

static uint64_t digits(const char *text, int count)
{
    uint64_t value = 0;
    for (int i = 0; i < count; i++) value = value * 10 + (uint64_t)(text[i] - '0');
    return value;
}

static void put_digits(char *text, int count, uint64_t value)
{
    for (int i = count; i-- > 0; value /= 10) text[i] = (char)('0' + value % 10);
}

/*
 * Numbers of records as sums: two sets of the same size and sum are the same, for all that could
 * happen by chance.
 */
static uint64_t mixed(uint64_t number)
{
    number = (number ^ (number >> 31)) * 0x9E3779B97F4A7C15ull;
    return number ^ (number >> 29);
}

/* Whether a label, of a text from `text` on, is as labelled_json makes it, its number left out. */
static int is_sound(const char *label, const char *text)
{
    if (label == text || label[-1] != '{' || memcmp(label + 20, ",\"t\":1", 6)) return 0;
    for (int i = 26; i < TP_LABEL; i++)
        if (label[i] < '0' || label[i] > '9') return 0;
    return 1;
}

static const char *skip_x(const char *at, const char *end)
{
    static const char block[] = "xxxxxxxxxxxxxxxx";
    while (end - at >= 16 && !memcmp(at, block, 16)) at += 16;
    while (at < end && *at == 'x') at++;
    return at;
}

/*
 * Compares what is here of a record after its label with what labelled_json makes: `}`, or
 * `,"x":"xx"}` with any number of x. rest: how many of these bytes there were before; 0 and more:
 * it continues in what arrives next; -1: this is all of it, and its size is in `size`, 0 for
 * another text. Returns the end of what was compared.
 */
static const char *compare_rest(const char *at, const char *end, int64_t *rest, int64_t *size)
{
    static const char before[] = ",\"x\":\"";
    const int64_t room = sizeof before - 1, quoted = (int64_t)1 << 40; /* quoted: the end of the x was there */
    *size = 0;
    while (at < end) {
        if (!*rest && *at == '}') {
            *rest = -1, *size = TP_LABEL + 2;
            return at + 1;
        }
        if (*rest >= quoted) {
            *size = *at == '}' ? TP_LABEL + 2 + *rest - quoted : 0;
            *rest = -1;
            return at + 1;
        }
        if (*rest < room) {
            if (*at != before[*rest]) break;
            at++, ++*rest;
            continue;
        }
        const char *from = at;
        at = skip_x(at, end);
        *rest += at - from;
        if (at == end) return at;
        if (*at != '"') break;
        at++, *rest += 1 + quoted;
    }
    if (at < end) *rest = -1;
    return at;
}

static int is_size(const int64_t *sizes, int64_t count, int64_t size)
{
    for (int64_t i = 0; i < count; i++)
        if (sizes[i] == size) return 1;
    return 0;
}

int64_t tp_labels(const char *text, int64_t len, uint8_t *seen, int64_t numbers_max, const int64_t *sizes, int64_t size_count,
                  int64_t *altered)
{
    int64_t found = 0;
    const char *at = text, *end = text + len;
    while ((at = memmem(at, (size_t)(end - at), "\"n\":1", 5)) && end - at >= TP_LABEL) {
        uint64_t number = digits(at + 4, 16) - number_base;
        if (number >= (uint64_t)numbers_max) return -1;
        int64_t rest = 0, size = 0;
        int sound = is_sound(at, text);
        at = compare_rest(at + TP_LABEL, end, &rest, &size);
        *altered += !sound || rest >= 0 || !is_size(sizes, size_count, size);
        seen[number] += seen[number] < 255;
        found++;
    }
    return found;
}

/* --- time ------------------------------------------------------------------------------------- */
static int is_measured(const struct run *run, uint64_t at)
{
    return at >= run->measured && at < run->end;
}

static void note_time(struct run *run, struct tp_load_group *group, uint64_t *histogram, int column, uint64_t due,
                      uint64_t now)
{
    uint64_t took = now > due ? now - due : 0;
    if (histogram && is_measured(run, due)) histogram[tp_hdr_slot(took)]++;
    uint64_t slot = (now - run->start) / run->load->slot_ns;
    if (!group->slots || slot >= (uint64_t)run->load->slot_count) return;
    uint64_t *row = group->slots + slot * 3;
    row[column]++;
    if (took > row[2]) row[2] = took;
}

/* --- requests --------------------------------------------------------------------------------- */
static int send_all(struct run *run, int fd, const char *bytes, size_t len)
{
    while (len > 0) {
        ssize_t n = send(fd, bytes, len, MSG_NOSIGNAL);
        if (n > 0) { bytes += n; len -= (size_t)n; }
        else if (n < 0 && errno != EAGAIN && errno != EINTR) return fail(run, "send: %s", strerror(errno));
        else if (run->load->stop) return fail(run, "stopped");
    }
    return 0;
}

/* The numbers after each `key` and its colon of a text, as a list of at most `most`. Returns the
 * end. */
static char *put_numbers(char *out, const char *text, const char *key, int most)
{
    size_t len = strlen(key);
    int count = 0;
    for (const char *at = text; count < most && (at = strstr(at, key)); at += len)
        out += sprintf(out, "%s%llu", count++ ? "," : "", strtoull(at + len + 1, NULL, 10));
    return out;
}

/*
 * The bytes of a request that takes something of the last answer, in the scratch memory; 0: there
 * is nothing to take.
 */
static size_t spliced(struct run *run, struct conn *c, const struct tp_message *m)
{
    size_t need = (size_t)(m->head_len + m->body_len + m->rest_len) + c->text_len + HEAD_ROOM;
    if (need * 2 > run->scratch_room) {
        free(run->scratch);
        run->scratch = malloc(run->scratch_room = need * 4);
        if (!run->scratch) { fail(run, "no memory"); return 0; }
    }
    char *taken = run->scratch + run->scratch_room / 2, *end = taken;
    if (c->text) end = m->take == TP_TAKE_SEQS ? put_numbers(taken, c->text, "\"$seq\"", 1 << 20)
                                               : put_numbers(taken, c->text, "\"next_from_seq\"", 1);
    size_t len = (size_t)(end - taken);
    if (!len && !m->first) return 0;
    if (!len) len = (size_t)(stpcpy(taken, m->first) - taken);
    char *out = run->scratch;
    memcpy(out, m->head, (size_t)m->head_len);
    out += m->head_len;
    out += sprintf(out, "%zu\r\n\r\n", (size_t)(m->body_len + m->rest_len) + len);
    memcpy(out, m->body, (size_t)m->body_len);
    out += m->body_len;
    memmove(out, taken, len);
    out += len;
    memcpy(out, m->rest, (size_t)m->rest_len);
    return (size_t)(out + m->rest_len - run->scratch);
}

static void make_idle(struct run *run, struct conn *c)
{
    int64_t g = c->group - run->load->groups;
    run->idle[run->at[g] + (run->idle_first[g] + run->idle_count[g]++) % c->group->connections] = c;
}

static int send_request(struct run *run, struct conn *c, uint64_t due)
{
    struct tp_load *load = run->load;
    struct tp_load_group *group = c->group;
    struct filled *f = &c->messages[c->step];
    const struct tp_message *m = f->message;
    const char *bytes = f->head;
    size_t len = (size_t)m->head_len;
    if (group->most_requests && group->sent >= (uint64_t)group->most_requests) {
        c->stopped = 1;
        return 0;
    }
    if (m->take != TP_TAKE_NOTHING) {
        len = spliced(run, c, m);
        if (run->failed) return -1;
        if (!len && group->stops_empty) { c->stopped = 1; return 0; }
        if (!len && group->rate > 0) { /* nothing to take: the next cycle begins when it is due */
            c->step = 0;
            make_idle(run, c);
            return 0;
        }
        if (!len && clock_ns() >= run->end) { c->step = 0; return 0; }
        if (!len) {
            c->step = 0;
            f = &c->messages[0];
            m = f->message;
            bytes = f->head;
            len = (size_t)m->head_len;
        } else {
            bytes = run->scratch;
        }
    }
    if (f->topic) put_digits(f->topic, 8, (uint64_t)(group->next_topic++ % group->topics));
    if (!c->again) { /* else no server has its records */
        c->first_number = load->next_number;
        load->next_number += f->label_count;
    }
    c->again = 0;
    if (load->next_number > load->numbers_max) return fail(run, "more records than a run may have");
    for (int64_t i = 0; i < f->label_count; i++) {
        put_digits(f->labels[i] + 4, 16, number_base + (uint64_t)(c->first_number + i));
        put_digits(f->labels[i] + 25, 19, stamp_base + due);
    }
    c->head_len = 0;
    c->left = group->end == TP_END_HTTP ? -1 : group->size;
    c->text_len = 0;
    c->refused = 0;
    c->awaited = m->asks ? m->asks_from : -1;
    c->misread = 0;
    c->due = due;
    c->busy = 1;
    group->sent++;
    c->sent_at = group->samples ? clock_ns() : due;
    return send_all(run, c->fd, bytes, len);
}

/* Sends what is due now; returns how long until the next request is due, ns, at most SPARE_MS. */
static uint64_t send_due(struct run *run, uint64_t now)
{
    uint64_t spare = (uint64_t)SPARE_MS * 1000000;
    if (run->end - now < spare) spare = run->end - now;
    for (int64_t g = 0; g < run->load->group_count && !run->failed; g++) {
        struct tp_load_group *group = &run->load->groups[g];
        if (!(group->rate > 0)) continue;
        while (run->idle_count[g]) {
            uint64_t due = tp_due_ns(run->start, run->issued[g], group->rate);
            if (due >= run->end) break;
            if (due > now) {
                if (due - now < spare) spare = due - now;
                break;
            }
            struct conn *c = run->idle[run->at[g] + run->idle_first[g]];
            run->idle_first[g] = (run->idle_first[g] + 1) % group->connections;
            run->idle_count[g]--;
            run->issued[g]++;
            if (send_request(run, c, due)) return 0;
        }
    }
    return spare;
}

/* Moves a connection on by as many cycles of its group's messages. */
static void take_messages(struct conn *c, int64_t cycles)
{
    int64_t next = (c->first_message + cycles * c->group->steps) % c->group->message_count;
    c->messages += next - c->first_message;
    c->first_message = next;
}

enum { ANSWER_TAKEN, ANSWER_REFUSED, ANSWER_THROTTLED };

static int answered(struct run *run, struct conn *c, int refused, const char *text, size_t len)
{
    struct tp_load *load = run->load;
    struct tp_load_group *group = c->group;
    struct filled *f = &c->messages[c->step];
    uint64_t now = clock_ns();
    uint64_t *histogram = group->answered ? group->answered + c->step * TP_HDR_SLOTS : NULL;
    c->busy = 0;
    group->all_requests++;
    if (refused == ANSWER_THROTTLED) {
        group->throttled++;
        c->again = group->steps == 1;
    } else if (refused) {
        if (group->errors++ == 0 && !load->error[0])
            snprintf(load->error, sizeof load->error, "an answer that is an error: %.*s", (int)(len < 300 ? len : 300), text);
    } else {
        for (int64_t i = 0; i < f->label_count; i++) {
            load->acked[c->first_number + i] = 1;
            c->wrote_sum += mixed((uint64_t)(c->first_number + i));
        }
        group->misread += f->message->asks && (c->misread || c->awaited != f->message->asks_from + f->message->asks);
        c->wrote += (uint64_t)f->label_count;
        group->all_records += (uint64_t)f->label_count;
        if (is_measured(run, now)) {
            group->requests++;
            group->records += (uint64_t)f->label_count;
        }
    }
    if (refused != ANSWER_THROTTLED) note_time(run, group, histogram, 0, c->due, now);
    if (is_measured(run, c->due) && group->samples && group->sample_count < group->sample_room) {
        uint64_t *row = group->samples + 3 * group->sample_count++;
        row[0] = c->due; row[1] = c->sent_at; row[2] = now;
    }
    c->step = (c->step + 1) % group->steps;
    if (!c->step) take_messages(c, group->connections);
    if (c->text) c->text[c->text_len] = 0;
    if (group->rate > 0 && !c->step) { make_idle(run, c); return 0; }
    /*
     * after the end a reader continues until it has all that was written, and a worker until its
     * cycle is complete
     */
    return (now < run->end || group->waits || c->step) && !load->stop ? send_request(run, c, now) : 0;
}

/* --- answers ---------------------------------------------------------------------------------- */
static int keep_text(struct run *run, struct conn *c, const char *data, size_t len)
{
    if (c->text_len + len + 1 > c->text_room) {
        c->text = realloc(c->text, c->text_room = (c->text_len + len + 1) * 2);
        if (!c->text) return fail(run, "no memory");
    }
    memcpy(c->text + c->text_len, data, len);
    c->text_len += len;
    return 0;
}

static int takes(const struct conn *c)
{
    for (int64_t i = 0; i < c->group->steps; i++)
        if (c->messages[i].message->take != TP_TAKE_NOTHING) return 1;
    return 0;
}

/* The length of the body that a head states; -1: none, or no number. end: of its last field. */
static int64_t stated_length(const char *head, const char *end)
{
    static const char name[] = "\r\ncontent-length:";
    const char *at = strcasestr(head, name);
    if (!at || at >= end) return -1;
    at += sizeof name - 1;
    at += strspn(at, " \t");
    char *after;
    errno = 0;
    int64_t length = *at >= '0' && *at <= '9' ? strtoll(at, &after, 10) : -1;
    return length < 0 || errno || after[strspn(after, " \t")] != '\r' ? -1 : length;
}

static int consume_http(struct run *run, struct conn *c, const char *data, size_t len)
{
    while (len > 0 && !run->failed) {
        size_t used = len;
        if (!c->busy) return fail(run, "bytes that answer no request: %.*s", (int)(len < 200 ? len : 200), data);
        if (c->left < 0) {
            size_t room = HEAD_ROOM - 1 - c->head_len, take = len < room ? len : room, before = c->head_len;
            memcpy(c->head + before, data, take);
            c->head_len += take;
            c->head[c->head_len] = 0;
            char *end = strstr(c->head, "\r\n\r\n");
            if (!end && c->head_len == HEAD_ROOM - 1) return fail(run, "the head of an answer is too long");
            if (!end) return 0;
            if (strncmp(c->head, "HTTP/1.", 7) || c->head[8] != ' ') return fail(run, "an answer that is no HTTP: %.200s", c->head);
            c->left = stated_length(c->head, end);
            if (c->left < 0) return fail(run, "an answer without Content-Length: %.200s", c->head);
            used = (size_t)(end - c->head) + 4 - before;
        } else {
            if ((int64_t)used > c->left) used = (size_t)c->left;
            if (takes(c) && keep_text(run, c, data, used)) return -1;
            c->left -= (int64_t)used;
        }
        data += used;
        len -= used;
        if (c->left) continue;
        int refused = c->head[9] != '2' ? ANSWER_REFUSED : ANSWER_TAKEN;
        if (refused && c->group->may_be_throttled && !strncmp(c->head + 9, "429", 3)) refused = ANSWER_THROTTLED;
        if (answered(run, c, refused, c->head, c->head_len)) return -1;
    }
    return 0;
}

/* Compares what arrives of a record with what was sent. Returns the end of it. */
static const char *compare(struct conn *c, const char *at, const char *end)
{
    struct tp_load_group *group = c->group;
    int64_t size;
    at = compare_rest(at, end, &c->rest, &size);
    if (c->rest < 0) group->altered += !is_size(group->sizes, group->size_count, size);
    return at;
}

/*
 * Records that arrived, within [at, end), of a text from `begin` on; returns from where on a label
 * may begin that is not whole.
 */
static const char *hear(struct run *run, struct conn *c, const char *begin, const char *at, const char *end, uint64_t now)
{
    struct tp_load_group *group = c->group;
    const char *found;
    if (c->rest >= 0) at = compare(c, at, end);
    while ((found = memmem(at, (size_t)(end - at), "\"n\":1", 5)) && end - found >= TP_LABEL) {
        uint64_t number = digits(found + 4, 16) - number_base, due = digits(found + 25, 19) - stamp_base;
        at = found + TP_LABEL;
        if (group->size_count) {
            c->rest = 0;
            if (is_sound(found, begin)) at = compare(c, at, end);
            else group->altered++, c->rest = -1;
        }
        c->heard++;
        c->heard_sum += mixed(number);
        if (c->awaited >= 0) c->misread |= number != (uint64_t)c->awaited++;
        if (group->seen && number < (uint64_t)run->load->numbers_max) group->seen[number] += group->seen[number] < 255;
        group->all_deliveries++;
        if (is_measured(run, now)) group->deliveries++;
        /* a queue's jobs were written before: only their number says something */
        if (!group->shares) note_time(run, group, group->delivered, 1, due, now);
    }
    if (found) return found;
    return end - at > 4 ? end - 4 : at;
}

/*
 * Takes the lines of an answer, of which a reply for each label has its share: one that is an error
 * is a line. begins: whether a line begins with the data. Returns the first error; NULL: none.
 */
static const char *take_lines(struct conn *c, const char *data, const char *end, int begins)
{
    const char *pattern = c->group->refused, *error = NULL;
    size_t size = pattern ? strlen(pattern) : 0;
    int64_t labels = c->messages[c->step].label_count, lines = c->group->size / (labels ? labels : 1);
    while (data < end) {
        if (size && begins && (size_t)(end - data) >= size && !memcmp(data, pattern, size)) {
            if (!error) error = data;
            c->refused = 1;
            c->left -= lines - 1;
        }
        if (!(data = memchr(data, '\n', (size_t)(end - data)))) break;
        data++;
        begins = 1;
        c->left--;
    }
    return error;
}

static int consume(struct run *run, struct conn *c, size_t len)
{
    struct tp_load_group *group = c->group;
    const char *data = run->buffer + CARRY_ROOM, *begin = data - c->carried, *end = data + len;
    const char *labels = begin + c->label_from, *answers = begin + c->answer_from;
    memcpy(run->buffer + CARRY_ROOM - c->carried, c->carry, c->carried);
    group->bytes += len;
    if (group->hears) labels = hear(run, c, begin, labels, end, clock_ns());
    if (group->end == TP_END_HTTP) {
        if (group->message_count && consume_http(run, c, data, len)) return -1;
    } else if (group->end == TP_END_PATTERN) {
        size_t size = strlen(group->answer);
        const char *refused = NULL, *found;
        if (group->ping && memmem(data, len, group->ping, strlen(group->ping)) &&
            send_all(run, c->fd, group->pong, strlen(group->pong)))
            return -1;
        if (group->refused) refused = memmem(begin, (size_t)(end - begin), group->refused, strlen(group->refused));
        if (refused && c->busy && answered(run, c, ANSWER_REFUSED, refused, (size_t)(end - refused))) return -1;
        while (c->busy && (found = memmem(answers, (size_t)(end - answers), group->answer, size))) {
            answers = found + size;
            if (answered(run, c, ANSWER_TAKEN, found, size)) return -1;
        }
    } else if (group->message_count) {
        const char *error = NULL;
        if (group->end == TP_END_BYTES) c->left -= (int64_t)len;
        else error = take_lines(c, data, end, data == begin || data[-1] == '\n');
        if (!error) error = data;
        if (c->busy && c->left <= 0 && answered(run, c, c->refused ? ANSWER_REFUSED : ANSWER_TAKEN, error, (size_t)(end - error)))
            return -1;
    }
    c->carried = (size_t)(end - begin) < CARRY_ROOM ? (size_t)(end - begin) : CARRY_ROOM;
    memcpy(c->carry, end - c->carried, c->carried);
    c->label_from = labels > end - c->carried ? c->carried - (size_t)(end - labels) : 0;
    c->answer_from = answers > end - c->carried ? c->carried - (size_t)(end - answers) : 0;
    return 0;
}

/* --- a run ------------------------------------------------------------------------------------ */
static int dial(struct run *run)
{
    int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons((uint16_t)run->load->port) };
    if (fd < 0) return fail(run, "a socket: %s", strerror(errno));
    if (inet_pton(AF_INET, run->load->host, &address.sin_addr) != 1) {
        close(fd);
        return fail(run, "%s is no IPv4 address", run->load->host);
    }
    if (connect(fd, (struct sockaddr *)&address, sizeof address)) {
        close(fd);
        return fail(run, "connect to %s:%d: %s", run->load->host, (int)run->load->port, strerror(errno));
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return fd;
}

/* Sends a connection's opening and waits until it is ready. */
static int open_conn(struct run *run, struct conn *c)
{
    struct tp_load_group *group = c->group;
    struct timeval patience = { OPENING_SECONDS, 0 };
    if ((c->fd = dial(run)) < 0) return -1;
    setsockopt(c->fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    if (group->opening_count) {
        const struct tp_message *opening = &group->openings[c->number % group->opening_count];
        if (send_all(run, c->fd, opening->head, (size_t)opening->head_len)) return -1;
    }
    for (size_t have = 0; group->ready;) {
        if (have >= RECEIVE_ROOM - 1) return fail(run, "a connection does not get ready");
        ssize_t got = recv(c->fd, run->buffer + have, RECEIVE_ROOM - have, 0);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return fail(run, "a connection was not accepted, %s: %.*s", got ? strerror(errno) : "it was closed", (int)(have < 300 ? have : 300), run->buffer);
        have += (size_t)got;
        if (memmem(run->buffer, have, group->ready, strlen(group->ready))) break;
        if (have >= 12 && !memcmp(run->buffer, "HTTP/1.1 ", 9) && run->buffer[9] > '2')
            return fail(run, "a connection was refused: %.*s", (int)(have < 300 ? have : 300), run->buffer);
    }
    fcntl(c->fd, F_SETFL, O_NONBLOCK);
    struct epoll_event event = { .events = EPOLLIN, .data.ptr = c };
    epoll_ctl(run->ep, EPOLL_CTL_ADD, c->fd, &event);
    return 0;
}

static struct filled fill(struct run *run, const struct tp_message *m)
{
    struct filled f = { .message = m, .head = malloc((size_t)m->head_len + 1) };
    if (!f.head) { fail(run, "no memory"); return f; }
    memcpy(f.head, m->head, (size_t)m->head_len);
    f.head[m->head_len] = 0;
    f.topic = memmem(f.head, (size_t)m->head_len, "########", 8);
    for (int pass = 0; pass < 2; pass++) {
        char *at = f.head, *end = f.head + m->head_len;
        int64_t count = 0;
        while ((at = memmem(at, (size_t)(end - at), LABEL_TEXT, TP_LABEL))) {
            if (pass) f.labels[count] = at;
            count++;
            at += TP_LABEL;
        }
        if (!pass && count && !(f.labels = calloc((size_t)count, sizeof *f.labels))) { fail(run, "no memory"); return f; }
        f.label_count = f.labels ? count : 0;
    }
    return f;
}

static int wait_for(struct run *run, uint64_t ns)
{
    static int without; /* an old kernel */
    struct epoll_event events[EVENTS];
    struct timespec timeout = { (time_t)(ns / 1000000000ull), (long)(ns % 1000000000ull) };
    long n = without ? -1 : syscall(SYS_epoll_pwait2, run->ep, events, EVENTS, &timeout, NULL, 0);
    if (without || (n < 0 && errno == ENOSYS)) {
        without = 1;
        n = epoll_wait(run->ep, events, EVENTS, (int)(ns / 1000000));
    }
    if (n < 0 && errno != EINTR) return fail(run, "epoll: %s", strerror(errno));
    for (long i = 0; i < n; i++) {
        struct conn *c = events[i].data.ptr;
        ssize_t got = recv(c->fd, run->buffer + CARRY_ROOM, RECEIVE_ROOM, 0);
        if (got == 0) return fail(run, "the server closed a connection");
        if (got < 0 && errno != EAGAIN && errno != EINTR) return fail(run, "receive: %s", strerror(errno));
        if (got > 0 && consume(run, c, (size_t)got)) return -1;
    }
    return 0;
}

/* All that was written on a channel: what each connection that hears it should have. */
static void expected(const struct conn *conns, int64_t count, int64_t channel, uint64_t *number, uint64_t *sum)
{
    *number = *sum = 0;
    for (int64_t i = 0; i < count; i++) {
        if (conns[i].group->channel != channel) continue;
        *number += conns[i].wrote;
        *sum += conns[i].wrote_sum;
    }
}

/*
 * Counts connections that did not hear what they should; returns their number, or that of those
 * that still wait.
 */
static uint64_t look(struct run *run, struct conn *conns, int64_t count)
{
    uint64_t wrong = 0;
    for (int64_t g = 0; g < run->load->group_count; g++) {
        struct tp_load_group *group = &run->load->groups[g];
        uint64_t number, sum;
        expected(conns, count, group->channel, &number, &sum);
        group->wrong = group->most = 0;
        group->fewest = UINT64_MAX;
        for (int64_t i = 0; i < count; i++) {
            struct conn *c = &conns[i];
            if (c->group != group) continue;
            uint64_t own = c->heard + c->wrote;
            if (own < group->fewest) group->fewest = own;
            if (own > group->most) group->most = own;
            if ((!group->waits && c->busy) || c->rest >= 0) wrong++;
            if (!group->hears || group->shares) continue;
            uint64_t mine = group->hears_itself ? 0 : c->wrote, mine_sum = group->hears_itself ? 0 : c->wrote_sum;
            group->wrong += c->heard != number - mine || c->heard_sum != sum - mine_sum;
        }
        wrong += group->wrong;
    }
    return wrong;
}

/*
 * Counts requests without an answer, each with the time that it has waited by now, and records of
 * which a part has arrived.
 */
static void count_unanswered(struct run *run, const struct conn *conns, int64_t count)
{
    uint64_t now = clock_ns();
    for (int64_t i = 0; i < count; i++) {
        const struct conn *c = &conns[i];
        struct tp_load_group *group = c->group;
        group->altered += c->rest >= 0;
        if (!c->busy || group->waits) continue;
        group->unanswered++;
        if (group->answered && is_measured(run, c->due))
            group->answered[c->step * TP_HDR_SLOTS + tp_hdr_slot(now - c->due)]++;
    }
}

static int may_stop(const struct tp_load_group *group)
{
    return group->stops_empty || group->most_requests;
}

static int all_stopped(const struct conn *conns, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        if (may_stop(conns[i].group) && !conns[i].stopped) return 0;
    return 1;
}

/* before: how long the thread had been without a core when it was looked at last. */
static void note_stall(struct run *run, uint64_t since, uint64_t *before)
{
    struct tp_load *load = run->load;
    uint64_t without = thread_without_core_ns(run->schedstat);
    if (without > *before + STALL_NS && load->stall_count < load->stall_room) {
        load->stalls[2 * load->stall_count] = since;
        load->stalls[2 * load->stall_count++ + 1] = clock_ns();
    }
    *before = without;
}

static int measure(struct run *run, struct conn *conns, int64_t count)
{
    struct tp_load *load = run->load;
    uint64_t cpu = 0, without = 0, stalled = load->stall_room ? thread_without_core_ns(run->schedstat) : 0;
    int began = 0, stops = 0;
    for (int64_t g = 0; g < load->group_count; g++) stops |= may_stop(&load->groups[g]);
    prctl(PR_SET_TIMERSLACK, 1); /* ns, so that requests leave when they are due */
    load->started_ns = run->start = clock_ns();
    run->measured = run->start + load->warmup_ns;
    run->end = run->measured + load->measured_ns;
    load->phase = 1;
    for (int64_t i = 0; i < count && !run->failed; i++) {
        if (!conns[i].group->message_count) continue;
        if (conns[i].group->rate > 0) make_idle(run, &conns[i]);
        else send_request(run, &conns[i], clock_ns());
    }
    uint64_t now;
    while ((now = clock_ns()) < run->end && !load->stop && !run->failed) {
        if (!began && now >= run->measured) {
            began = 1;
            cpu = thread_cpu_ns();
            without = thread_without_core_ns(run->schedstat);
        }
        uint64_t spare = send_due(run, now);
        if (run->failed || wait_for(run, spare)) return -1;
        if (load->stall_room) note_stall(run, now, &stalled);
        if (stops && all_stopped(conns, count)) break;
    }
    if (run->failed) return -1;
    if (now < run->end) run->end = now;
    load->cpu_ns = began ? thread_cpu_ns() - cpu : 0;
    load->without_core_ns = began ? thread_without_core_ns(run->schedstat) - without : 0;
    load->took_ns = now > run->measured ? now - run->measured : 0;
    load->phase = 2;
    for (int64_t g = 0; g < load->group_count; g++) {
        struct tp_load_group *group = &load->groups[g];
        if (!(group->rate > 0)) continue;
        for (uint64_t due; (due = tp_due_ns(run->start, run->issued[g], group->rate)) < run->end; run->issued[g]++) {
            group->unsent++;
            if (group->answered && due >= run->measured) group->answered[tp_hdr_slot(now - due)]++;
        }
    }
    while (look(run, conns, count) && clock_ns() < now + load->drain_ns && !load->stop)
        if (wait_for(run, 10000000)) return -1;
    count_unanswered(run, conns, count);
    load->phase = 3;
    return 0;
}

int tp_load_run(struct tp_load *load)
{
    struct run run = { .load = load };
    int64_t count = 0;
    load->error[0] = 0;
    for (int64_t g = 0; g < load->group_count; g++) count += load->groups[g].connections;
    size_t groups = (size_t)load->group_count;
    struct conn *conns = calloc((size_t)count + 1, sizeof *conns);
    struct filled **filled = calloc(groups, sizeof *filled);
    run.idle = calloc((size_t)count + 1, sizeof *run.idle);
    run.idle_first = calloc(groups, sizeof *run.idle_first);
    run.idle_count = calloc(groups, sizeof *run.idle_count);
    run.at = calloc(groups, sizeof *run.at);
    run.issued = calloc(groups, sizeof *run.issued);
    run.buffer = malloc(CARRY_ROOM + RECEIVE_ROOM);
    run.ep = epoll_create1(EPOLL_CLOEXEC);
    run.schedstat = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
    if (!conns || !filled || !run.idle || !run.idle_first || !run.idle_count || !run.at || !run.issued || !run.buffer)
        fail(&run, "no memory");
    int64_t next = 0, opened = 0;
    for (int64_t g = 0; g < load->group_count && !run.failed; g++) {
        struct tp_load_group *group = &load->groups[g];
        filled[g] = calloc((size_t)group->message_count + 1, sizeof **filled);
        for (int64_t i = 0; i < group->message_count && filled[g]; i++) filled[g][i] = fill(&run, &group->messages[i]);
        run.at[g] = next;
        for (int64_t i = 0; i < group->connections && !run.failed; i++) {
            struct conn *c = &conns[next++];
            c->group = group;
            c->number = i;
            c->rest = -1;
            c->messages = filled[g];
            if (group->message_count) take_messages(c, i);
            opened = next;
            if (open_conn(&run, c)) opened -= c->fd < 0;
            if (load->stop) fail(&run, "stopped");
        }
    }
    if (!run.failed) measure(&run, conns, count);
    for (int64_t i = 0; i < opened; i++) {
        close(conns[i].fd);
        free(conns[i].text);
    }
    for (int64_t g = 0; filled && g < load->group_count; g++) {
        for (int64_t i = 0; filled[g] && i < load->groups[g].message_count; i++) {
            free(filled[g][i].head);
            free(filled[g][i].labels);
        }
        free(filled[g]);
    }
    if (run.schedstat >= 0) close(run.schedstat);
    if (run.ep >= 0) close(run.ep);
    free(run.scratch);
    free(run.buffer);
    free(run.issued);
    free(run.at);
    free(run.idle_count);
    free(run.idle_first);
    free(run.idle);
    free(filled);
    free(conns);
    return run.failed ? -1 : 0;
}

void tp_end_with_parent(void)
{
    prctl(PR_SET_PDEATHSIG, SIGTERM);
}

void tp_load_stop(struct tp_load *load)
{
    load->stop = 1;
}
