"""Health, readiness and metrics: answered in every state of the server. Source: wire contract, section 12."""

from __future__ import annotations

from topics import __version__
from topics.http.call import Call

_METRICS_TEXT = b"text/plain; version=0.0.4"


def health(call: Call) -> None:
    """The process answers."""
    body = b'{"status":"ok","version":"%b","uptime_ms":%d}'
    call.reply(body % (__version__.encode(), call.service.probes.uptime_ms()))


def ready(call: Call) -> None:
    """Whether traffic should come here."""
    probes = call.service.probes
    refusal = probes.not_ready()
    if refusal is not None:
        call.fail(refusal)
        return
    call.reply(b'{"status":"ready","wal_replay_complete":true,"topics":%d}' % probes.topic_count())


def metrics(call: Call) -> None:
    """JSON when `Accept` names it, else the Prometheus text format."""
    probes = call.service.probes
    if b"application/json" in call.plan.request.headers.get(b"accept", b""):
        call.reply(probes.metrics_json())
    else:
        call.respond(200, probes.metrics_text(), _METRICS_TEXT, b"")
