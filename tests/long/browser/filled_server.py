"""A server with something of everything that `/ui` shows, some of it hostile."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from tests.contract.world.live_world import LiveWorld

TOPICS = 1000
MARKUP = "<img src=x onerror=document.title='broken'><script>document.title='broken'</script>"
"""Markup that must stay text: in a payload, a tag, a node, a key of an object, and the reason of a nack."""
HOSTILE: list[dict[str, Any]] = [
    {"data": MARKUP, "tag": "<b>tag</b>", "node": '"><svg onload=document.title="broken">'},
    {"data": {"</script><script>document.title='broken'</script>": "\u202egnp.exe"}, "meta": {"__proto__": MARKUP}},
    {"data": 9007199254740993},
    {"data_base64": "AAECAwQ="},
    {"data": "long " * 400},
]

MIRRORS = (MARKUP, 'quo"ted\\', "n" * 200)
"""Names of mirrors that follow the server with keys."""


def follow(world: LiveWorld, key: str) -> None:
    """Ask for the archive as mirrors that have nothing do."""
    for name in MIRRORS:
        query = urlencode({"mirror": name, "upto_ms": 0})
        answer = world.request("GET", f"/v0/archive?{query}", headers={"Authorization": f"Bearer {key}"})
        assert answer.status == 200, answer.text


def fill(world: LiveWorld, key: str = "", topics: int = TOPICS) -> None:
    """Make topics, a queue with dead letters, routers, and named readers."""
    headers = {"Authorization": f"Bearer {key}"} if key else {}

    def ask(method: str, path: str, body: Any = None) -> Any:
        answer = world.request(method, f"/v0/{path}", body, headers)
        assert answer.status < 300, (method, path, answer.text)
        return answer.json

    def write(topic: str, records: list[dict[str, Any]]) -> None:
        ask("POST", f"topics/{topic}", {"records": records})

    for n in range(topics):
        write(f"svc-{n % 20:02d}.events.{n:04d}", [{"data": {"n": k}} for k in range(1 + n % 7)])
    ask("PUT", "topics/orders", {"cap_records": 200, "durability": "fsync"})
    for name, begins in (("billing", 0), ("search", 0)):
        ask("PUT", f"topics/orders/readers/{name}", {"from_seq": begins})
    sold = [{"data": {"sku": n, "price": 9.5}, "tag": ("eu", "us")[n % 2], "node": f"till-{n % 3}"} for n in range(150)]
    routed = ("orders-eu", "orders", "orders-eu"), ("orders-us", "orders", "orders-us"), ("audit", "orders-eu", "audit")
    for name, source, dest in routed:
        ask("PUT", f"routers/{name}", {"source": source, "dest": dest})
    write("orders", sold)
    write("orders", sold)
    write("hostile", HOSTILE)
    ask("PUT", "topics/jobs", {"type": "queue", "max_deliveries": 1, "dead_letter": "jobs.dead"})
    write("jobs", [{"data": {"resize": n, "why": MARKUP}} for n in range(30)])
    claimed = ask("POST", "topics/jobs/claim", {"node": "w1", "max": 9})["claimed"]
    seqs = [job["$seq"] for job in claimed[:6]]
    ask("POST", "topics/jobs/nack", {"node": "w1", "seqs": seqs, "reason": MARKUP})
    assert ask("POST", "topics/jobs/claim", {"node": "w2", "max": 2})["count"] == 2
    ask("PUT", "topics/mail", {"type": "queue"})
    write("mail", [{"data": n} for n in range(4)])
    nacked = [job["$seq"] for job in ask("POST", "topics/mail/claim", {"node": "<i>w</i>", "max": 2})["claimed"]]
    ask("POST", "topics/mail/nack", {"node": "<i>w</i>", "seqs": nacked, "reason": MARKUP})


LISTED = 1100
"""Topics of a server whose metrics name fewer."""


def fill_long_lists(world: LiveWorld) -> None:
    """Make more topics, readers and routers than a page lists at once, and a queue after all of them."""
    connection = world.connect()

    def ask(method: str, path: str, body: Any) -> None:
        answer = connection.request(method, f"/v0/{path}", body)
        assert answer.status < 300, (method, path, answer.text)

    ask("POST", "topics/orders", {"records": [{"data": n} for n in range(100)]})
    for n in range(LISTED):
        ask("POST", f"topics/a{n:05d}", {"records": [{"data": n}], "config": {"durability": "memory"}})
    ask("PUT", "topics/zqueue", {"type": "queue"})
    for n in range(250):
        ask("PUT", f"topics/a{n:05d}/readers/r", {})
    for n in range(450):
        ask("PUT", f"routers/r{n:03d}", {"source": f"a{n:05d}", "dest": f"a{n + 500:05d}"})
