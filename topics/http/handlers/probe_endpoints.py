"""Health, readiness and metrics, answered in every state of the server.

Source: wire contract, section 12.
"""

from __future__ import annotations

from topics import __version__
from topics.http.plan.call import Call

_METRICS_TEXT = b"text/plain; version=0.0.4"


def health(call: Call) -> None:
    """Answer that the process runs."""
    body = b'{"status":"ok","version":"%b","uptime_ms":%d}'
    call.reply(body % (__version__.encode(), call.service.probes.uptime_ms()))


def ready(call: Call) -> None:
    """Answer whether the server should get traffic."""
    probes = call.service.probes
    refusal = probes.not_ready()
    if refusal is not None:
        call.fail(refusal)
        return
    call.reply(b'{"status":"ready","wal_replay_complete":true,"topics":%d}' % probes.topic_count())


def metrics(call: Call) -> None:
    """Answer the metrics, with the topics of the key.

    The format is JSON if `Accept` names it, else the Prometheus text format.
    """
    scrapes = call.service.probes.scrapes
    if b"application/json" in call.plan.request.headers.get(b"accept", b""):
        scrapes.json(lambda page: call.fail(page) if isinstance(page, Exception) else call.reply(page))
        return

    def done(page: bytes | Exception) -> None:
        if isinstance(page, Exception):
            call.fail(page)
        else:
            call.respond(200, page, _METRICS_TEXT, b"")

    scrapes.text(call.principal.prefixes, done)
