"""The shape of a result's document: which members it has, and of which kind."""

from __future__ import annotations

import sys
from typing import Any

NUMBER, MAYBE_NUMBER, ABOVE_0 = "a number", "a number or null", "a number above 0"
TEXT, TRUTH, ANY = "a text", "true or false", "a value"

_LATENCY = {"p50_ns": NUMBER, "p90_ns": NUMBER, "p99_ns": NUMBER, "p999_ns": NUMBER, "max_ns": NUMBER}
_LOAD = {"rate": NUMBER, "unit": TEXT, "latencies": {"*": _LATENCY}}
_ROUND = {
    "seconds": ABOVE_0,
    "loads": {"*": _LOAD},
    "server": {"cpu_seconds": MAYBE_NUMBER, "rss_bytes_before": MAYBE_NUMBER, "usage": [[NUMBER]]},
    "client": {"cpu_seconds": MAYBE_NUMBER},
    "figures": {"*": NUMBER},
    "checks": [{"name": TEXT, "ok": TRUTH, "detail": TEXT}],
    "warnings": [TEXT],
}
_RESULT = {
    "workload": {"name": TEXT, "text": TEXT, "run": {"seconds": NUMBER, "warmup": NUMBER, "rounds": NUMBER}},
    "machine": {"*": ANY},
    "settings": {"*": TEXT},
    "sides": [{"name": TEXT, "version": TEXT}],
    "left_out": [TEXT],
    "warnings": [TEXT],
    "errors": [TEXT],
    "cases": [{"label": TEXT, "value": ANY, "sides": [{"name": TEXT, "rounds": [_ROUND]}]}],
}
"""`*` stands for any name. A list has one shape, of each of its values."""


def shape_fault(document: dict[str, Any]) -> str:
    """Return the first member that is missing or of another kind; empty if the shape is right."""
    if fault := _fault(document, _RESULT, ""):
        return fault
    for at, case in enumerate(document["cases"]):
        for number, side in enumerate(case["sides"]):
            for one, each in enumerate(side["rounds"]):
                path = f"cases[{at}].sides[{number}].rounds[{one}]"
                if not each["loads"]:
                    return f"{path}.loads is empty"
                if any(len(row) != 3 for row in each["server"]["usage"]):
                    return f"{path}.server.usage has a row without time, CPU and memory"
    return ""


def _fault(value: Any, shape: Any, path: str) -> str:
    if isinstance(shape, str):
        return "" if _is(value, shape) else f"{path} is {_short(value)}, and not {shape}"
    if isinstance(shape, list):
        if not isinstance(value, list):
            return f"{path} is {_short(value)}, and not a list"
        return _first(_fault(each, shape[0], f"{path}[{at}]") for at, each in enumerate(value))
    if not isinstance(value, dict):
        return f"{path} is {_short(value)}, and not an object"
    place = f"{path}." if path else ""
    if "*" in shape:
        return _first(_fault(each, shape["*"], place + name) for name, each in value.items())
    if missing := [name for name in shape if name not in value]:
        return f"{place}{missing[0]} is missing"
    return _first(_fault(value[name], each, place + name) for name, each in shape.items())


def _first(faults: Any) -> str:
    return next(filter(None, faults), "")


def _is(value: Any, kind: str) -> bool:
    if kind == ANY:
        return True
    if kind == TEXT:
        return isinstance(value, str)
    if kind == TRUTH:
        return isinstance(value, bool)
    if value is None:
        return kind == MAYBE_NUMBER
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    # an int may be larger than any float
    return abs(value) <= sys.float_info.max and (kind != ABOVE_0 or value > 0)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:40]}..."
