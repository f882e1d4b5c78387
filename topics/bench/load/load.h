/*
 * The load client of `topics bench`: connections in groups, one thread, epoll.
 *
 * A group's connections send requests and read answers, or hear what others write, or both. A
 * request that writes carries a label of TP_LABEL bytes for each record, `"n":1<15 digits>,"t":1<18
 * digits>`: its number, and when it was due. So a record that arrives on any connection shows which
 * one it is and how long it took, and all that was acknowledged can be looked for afterwards.
 *
 * Times are CLOCK_MONOTONIC, ns. A closed group (rate 0) sends the next request when the last one
 * is answered. In an open one request i is due at start + i / rate, whatever the answers do; it is
 * sent on the connection that has been free for longest, and its latency counts from when it was
 * due. Of several steps the first one is due, and the others follow the answers. Requests that were
 * due and never sent until the end count in `unsent`, and in the histogram with the time that they
 * had waited by then. Those that have no answer after the wait for what is in flight count in
 * `unanswered`, and in the histogram likewise.
 *
 * Histograms have the layout of HdrHistogram: 3 significant digits, values from 1 ns to an hour.
 */
#ifndef TOPICS_BENCH_LOAD_H
#define TOPICS_BENCH_LOAD_H

#include <stdint.h>

#define TP_LABEL 44
#define TP_HDR_SLOTS 33792
#define TP_HDR_HIGHEST 3600000000000

/*
 * How an answer ends: HTTP by Content-Length, after `size` line feeds, after `size` bytes, with the
 * pattern `answer`.
 */
enum { TP_END_HTTP, TP_END_LINES, TP_END_BYTES, TP_END_PATTERN };
/* A request takes of the answer before it: nothing, each `$seq` as a list, or `next_from_seq`. */
enum { TP_TAKE_NOTHING, TP_TAKE_SEQS, TP_TAKE_NEXT };

/*
 * One request. Labels in `head` are filled in, and "########" becomes a topic's number. With
 * `take`, head ends at the value of Content-Length, and the body is `body`, what is taken, and
 * `rest`.
 */
struct tp_message {
    const char *head, *body, *rest;
    int64_t head_len, body_len, rest_len, take;
    const char *first; /* taken before there is an answer; NULL: nothing is */
    int64_t asks_from, asks; /* its answer has the records of these numbers, `asks` of them; 0: of any */
};

struct tp_load_group {
    /*
     * requests: connection i takes messages[i * steps % message_count] and the steps - 1 after it;
     * in the next cycle those that follow the ones of all other connections, by turns
     */
    const struct tp_message *messages;
    int64_t message_count, steps, connections;
    double rate;               /* requests a second over all connections; 0: closed */
    int64_t topics;            /* "########" becomes a number below that, all of them by turns from next_topic on */
    int64_t next_topic;
    /*
     * sent after connecting by connection i: openings[i % opening_count]; it is ready once `ready`
     * has come
     */
    const struct tp_message *openings;
    int64_t opening_count;
    const char *ready;
    int64_t end, size;
    const char *answer, *refused; /* refused: an answer with it (lines: a line that begins so) is an error; NULL: none */
    const char *ping, *pong;   /* what is received that asks for an answer, and that answer; NULL: nothing asks */
    int64_t channel;           /* what is written here is heard by the groups of the same channel */
    int64_t hears, hears_itself; /* labels that arrive are deliveries; of records of its own connection, too */
    int64_t shares;            /* its connections share the records: each arrives once, at one of them */
    int64_t waits;             /* its requests wait for records: the last ones are not waited for */
    int64_t may_be_throttled;  /* an HTTP answer 429 is no error: a limit of the server */
    int64_t most_requests;     /* it stops after so many; 0: it does not */
    int64_t stops_empty;       /* a connection stops when an answer has nothing to take for the next step */
    const int64_t *sizes;      /* of the records that it hears, as labelled_json makes them; none: they are not compared */
    int64_t size_count;
    uint8_t *seen;             /* of a group that shares: how often each number has arrived, numbers_max of them */
    /* measured: histograms and samples of what was due in the measured time; arrays may be NULL */
    uint64_t *answered;        /* histograms of answers, a step each: steps x TP_HDR_SLOTS */
    uint64_t *delivered;       /* histogram of deliveries */
    uint64_t *slots;           /* by time since the start: answers, deliveries, the slowest of either in ns; slot_count x 3 */
    uint64_t *samples;         /* due, sent, answered; sample_room x 3 */
    int64_t sample_room, sample_count;
    uint64_t sent;
    uint64_t requests, records, deliveries; /* that came in the measured time: answers, records in them, deliveries */
    uint64_t bytes;            /* received, with the warm-up and the end */
    uint64_t all_requests, all_records, all_deliveries; /* with the warm-up and the end */
    uint64_t errors, throttled, unsent, unanswered;
    uint64_t altered;          /* records that arrived and are not, byte for byte, as they were sent */
    uint64_t misread;          /* answers without exactly the records that were asked for */
    uint64_t fewest, most;     /* records that one connection wrote or received */
    uint64_t wrong;            /* connections that did not hear exactly what was acknowledged on their channel */
};

struct tp_load {
    struct tp_load_group *groups;
    int64_t group_count;
    const char *host;
    int64_t port;
    uint64_t warmup_ns, measured_ns, drain_ns, slot_ns;
    int64_t slot_count;
    uint8_t *acked;            /* by number: whether the request with this record was acknowledged */
    int64_t numbers_max, next_number;
    uint64_t *stalls;          /* times without a core of half a millisecond or more: from, to; stall_room x 2 */
    int64_t stall_room, stall_count;
    volatile int64_t stop;     /* set by another thread: end now */
    volatile int64_t phase;    /* 0 connecting, 1 running, 2 waiting for what is in flight, 3 over */
    uint64_t started_ns, cpu_ns, without_core_ns, took_ns; /* of the client's thread in the measured time */
    char error[512];           /* the first thing that went wrong */
};

/*
 * Runs it, and blocks. 0: finished; -1: `error` says why it could not. An answer that is an error
 * is counted.
 */
int tp_load_run(struct tp_load *load);

/* Asks a run for its end, from another thread. */
void tp_load_stop(struct tp_load *load);

/* Lets this process end when its parent does, in whichever way: for a child before its exec. */
void tp_end_with_parent(void);

/* When request `number` of an open group is due. */
uint64_t tp_due_ns(uint64_t start, uint64_t number, double rate);

/* The slot of a value in a histogram; below 1 and above the highest, that of those. */
int64_t tp_hdr_slot(uint64_t value);

/*
 * Counts each label of a text in seen[number], and in `altered` each whose record is not, byte for
 * byte, one that labelled_json makes of one of these sizes. Returns how many labels there are, -1
 * for a number above numbers_max.
 */
int64_t tp_labels(const char *text, int64_t len, uint8_t *seen, int64_t numbers_max, const int64_t *sizes, int64_t size_count,
                  int64_t *altered);

#endif
