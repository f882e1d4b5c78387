"""The public surface as a program uses it, for strict type checkers (`make check`, `make pyright`). It is not run.

A comment that ignores an error stands where a checker has to find one: both report a comment that ignores none.
"""

from __future__ import annotations

from collections.abc import Iterator

import topics
from topics import GapError, Job, Record


def use(log: topics.AnyLog) -> None:
    """Use records and readers, in a directory as in a server."""
    wrote = log.append("orders", [{"sku": 1}], key="k", timeout=1.0)
    seqs: list[int] = [wrote.first_seq, wrote.last_seq]
    seqs.append(log.append_many("orders", [b"{}"]).count)
    seqs.append(log.append_soon("orders", {"sku": 2}).result(timeout=1))
    made: topics.PutResult = log.put_topic("jobs", type="queue", lease_ms=1000)
    kind: str = made.config.type
    print(kind, seqs, log.patch_topic("jobs", ttl_ms=5).after.ttl_ms)
    for record in log.read("orders", limit=5, on_gap="skip"):
        seq, tag = record.seq, record.tag
        print(seq, tag)
    tail: Iterator[Record] = log.tail("orders", reader="billing", on_gap=note)
    print(next(tail).ts)
    for topic, record in log.tail_many({"orders": 0, "jobs": {"last": 2}}):
        print(topic.upper(), record.node)
    page = log.page("orders", wait_ms=5)
    if page.tombstone is not None:
        print(page.tombstone.reason, page.next_from_seq)
    found = log.get("orders", 1)
    print(found.seq if found is not None else 0)
    heads = log.wait({"orders": 1}, wait_ms=5)
    print([head.incarnation for head in heads.values() if head is not None])
    with log.reader("orders", "billing", commit_every=10, delivery="at-most-once") as reader:
        print([record.seq for record in reader.read(limit=1)], reader.commit(), reader.lag.records)
    print([state.name for state in log.readers("orders")], log.delete_reader("orders", "billing"))


def work(log: topics.AnyLog) -> None:
    """Use queues and routers."""
    for job in log.work("jobs", node="w", max=8, start_ms=1000):
        with job:
            print(job.seq, job.is_lost)
    jobs: list[Job] = log.claim("jobs", "w", wait_ms=5)
    print(log.ack("jobs", "w", jobs).done, log.nack("jobs", "w", jobs, reason="r").skipped)
    print(log.extend("jobs", "w", jobs, lease_ms=5).deadlines)
    print([letter.meta is None for letter in log.dead("jobs")], log.redrive("jobs").redriven)
    print(
        log.put_router("r", "a", "b", guarantee="exactly_once").config.source,
        log.router("r").forwarded,
        log.delete_router("r").deleted,
    )
    state = log.state("jobs")
    print(state.head_seq, state.config.durability, state.queue.ready if state.queue is not None else 0)
    print(
        [each.name for each in log.topics()], log.delete("jobs", before_seq=5).deleted, log.delete_topic("jobs").deleted
    )


def note(gap: GapError) -> None:
    print(gap.topic, gap.tombstone.gap_to, gap.resume_from)


def both() -> None:
    """Use both."""
    with topics.open("data", durability="fsync") as log:
        use(log)
        pending = log.append_nowait("orders", [1])
        print(pending.result().first_seq, log.flush("orders"), log.stats())
    with topics.connect("http://localhost:4000", key="k", timeout=5) as client:
        use(client)
        work(client)


async def use_awaited(log: topics.AnyAsyncLog) -> None:
    """Use records, readers and jobs with asyncio, in a directory as in a server."""
    seqs: list[int] = [(await log.append("orders", [{"sku": 1}])).first_seq]
    async for record in log.tail("orders", reader="billing", on_gap="skip"):
        print(record.seq, record.data, seqs)
    async for topic, record in log.tail_many({"orders": 0}, prefixes={"jobs.": "now"}):
        print(topic.upper(), record.tag)
    async for job in log.work("jobs", node="w", max=8):
        async with job:
            print(job.seq, job.is_lost)
    async with log.reader("orders", "billing", delivery="at-least-once") as reader:
        print([record.seq for record in await reader.read()], await reader.position, reader.closed)
    print((await log.reader("orders", "billing")).name, [letter.seq async for letter in log.dead("jobs")])
    print([state.name for state in await log.topics()], (await log.patch_topic("jobs", ttl_ms=5)).after.ttl_ms)


async def awaited() -> None:
    """Use asyncio."""
    async with await topics.connect_async("http://localhost:4000") as client:
        await use_awaited(client)
    async with topics.open("data").aio as log_of_files:
        await use_awaited(log_of_files)
    async with await topics.connect_async("http://localhost:4000") as log:
        wrote = await log.append("orders", [{"sku": 1}])
        print(wrote.first_seq, (await log.state("orders")).head_seq)
        async for record in log.tail("orders", 0, on_gap="skip"):
            print(record.seq)
        async for job in log.work("jobs", node="w"):
            async with job:
                print(job.seq)
        async with log.reader("orders", "billing") as reader:
            print([record.seq for record in await reader.read()], await reader.position, (await reader.lag).ms)
        print([letter.seq async for letter in log.dead("jobs")], (await log.redrive("jobs")).skipped)
    async with topics.open("data") as directory:
        print((await directory.aio.append("orders", [1])).count)
    async with topics.open("data").aio as log_of_directory:
        async for job in log_of_directory.work("jobs", node="w"):
            async with job:
                print(job.seq, [state.name for state in await log_of_directory.topics()])


def mistake(log: topics.AnyLog, client: topics.Client, directory: topics.Log) -> None:
    """Misspell settings, values and arguments, in a directory and in a server."""
    topics.open("data", durabilty="fsync")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    topics.open("data", durability="strong")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    topics.connect("http://localhost:4000", timout=5)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    log.put_topic("jobs", typ="queue")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    log.put_topic("jobs", type="que")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    log.put_topic("jobs", durability="strong")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    client.put_topic("jobs", cap_record=1)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    directory.patch_topic("jobs", ttl=1)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    log.append("orders", [1], ky="k")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    log.tail("orders", on_gap="ignore")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    log.page("orders", from_="frst")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    log.page("orders", from_={"lst": 1})  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    log.put_router("r", "a", "b", fitler="x")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    log.put_router("r", "a", "b", guarantee="exactly-once")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    log.reader("a", "r", delivery="at_most_once")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    settings: topics.LogSettings = {"sync_every": 1}  # type: ignore[typeddict-unknown-key]  # pyright: ignore[reportAssignmentType]
    config: topics.TopicSettings = {"cap_record": 1}  # type: ignore[typeddict-unknown-key]  # pyright: ignore[reportAssignmentType]
    print(settings, config)


async def mistake_awaited(client: topics.AsyncClient, directory: topics.AsyncLog) -> None:
    """Misspell settings where calls are awaited."""
    await client.put_topic("jobs", typ="queue")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    await directory.patch_topic("jobs", ttl=1)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    client.tail("orders", on_gap="ignore")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
