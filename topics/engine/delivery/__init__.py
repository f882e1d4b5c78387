"""Delivery of records to lasting readers: watch streams and WebSockets.

Source: wire contract 10.4, 11.5.

A connection opens a `Feed` (`Engine.open_feed`), subscribes it to topics and gets `Burst`s of
frames through its `Sink`. It never polls: a topic that changes delivers at the end of the pass in
which it changed.

    feed = engine.open_feed(sink)
    feed.subscribe("jobs", DiffQuery(node filter, limit, ...), from_seq=41)
    feed.resume()                       # reads; delivers readable records before it returns
    ... sink.deliver(subscription, burst) ...
    feed.close()

Readers that have caught up with a topic and have equal options form one `Cohort`: new records are
read and rendered once, and each member gets the same `Burst`, which also holds the bytes that the
protocols made of it (`Burst.renderings`). A reader whose sink is full leaves its cohort with its
cursor, and continues from there when it is resumed.
"""
