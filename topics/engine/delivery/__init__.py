"""Records to readers that stay: what watch streams and WebSockets send, as values. Source: wire contract 10.4, 11.5.

A connection opens a `Feed` (`Engine.open_feed`), subscribes it to topics and gets `Burst`s of frames through its
`Sink`. It never asks for anything: a topic that changes delivers by itself, at the end of the pass in which it changed.

    feed = engine.open_feed(sink)
    feed.subscribe("jobs", DiffQuery(node filter, limit, ...), from_seq=41)
    feed.resume()                       # begins to read; what is readable is delivered before this returns
    ... sink.deliver(subscription, burst) ...
    feed.close()

Readers that have caught up with a topic and asked the same stand in one `Cohort`: whatever comes is read and rendered
once, and each member gets the same `Burst`, which also holds what the protocols made of it (`Burst.renderings`).
A reader whose sink is full leaves its cohort with a number, its cursor, and reads on from there when it is resumed.
"""
