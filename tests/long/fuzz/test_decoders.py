"""R-DUR-2, 2.1, 2.3: no decoder trips over any bytes."""

from __future__ import annotations

import contextlib
import functools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.amount import examples
from tests.long.fuzz.__main__ import kept
from tests.long.fuzz.decoders import Decoder, decoders

NAMES = (
    "log",
    "frames",
    "segment header",
    "segment footer",
    "end of a segment",
    "segment index",
    "pack",
    "pack header",
    "pack index",
    "extension",
    "reader frame",
    "compressed segment",
    "snapshot",
    "HTTP/1.1 by httptools",
    "HTTP/1.1 by h11",
    "HTTP/1.1 by both",
    "HTTP/2",
    "WebSocket frames",
    "WebSocket message",
    "query",
    "write body",
    "lane",
    "server",
)


@functools.cache
def by_name() -> dict[str, Decoder]:
    return {decoder.name: decoder for decoder in decoders()}


@pytest.mark.parametrize("name", NAMES)
def test_examples_and_what_the_fuzzer_kept_decode(name: str) -> None:
    decoder = by_name()[name]
    kept_inputs = {f"line {number} of the corpus": data for number, data in enumerate(kept(name), 1)}
    for what, data in (decoder.examples | kept_inputs).items():
        try:
            decoder.decode(data)
        except decoder.errors:
            pass
        except Exception as error:
            error.add_note(f"{name}: {what}")
            raise


@pytest.mark.parametrize("name", NAMES[: NAMES.index("snapshot") + 1])
def test_what_is_whole_is_taken(name: str) -> None:
    """The input is valid, so damage to it is damage to something."""
    by_name()[name].decode(by_name()[name].examples["whole"])


@pytest.mark.parametrize("name", NAMES)
def test_a_decoder_has_examples_and_a_small_corpus(name: str) -> None:
    assert len(by_name()[name].examples) >= 4
    assert kept(name), f"make fuzz ARGS='--only \"{name}\"', then the same with --keep"
    assert sum(map(len, kept(name))) < 48 << 10


@pytest.mark.parametrize("name", NAMES)
@examples(30)
@given(st.data())
def test_damage_gives_a_value_or_a_documented_error(name: str, data: st.DataObject) -> None:
    decoder = by_name()[name]
    raw = bytearray(data.draw(st.sampled_from([*decoder.examples.values(), *kept(name)])))
    for _ in range(data.draw(st.integers(0, 4))):
        at = data.draw(st.integers(0, len(raw)))
        raw[at : at + data.draw(st.integers(0, 8))] = data.draw(st.binary(max_size=8))
    if data.draw(st.booleans()):
        raw = raw[: data.draw(st.integers(0, len(raw)))]
    with contextlib.suppress(*decoder.errors):
        decoder.decode(bytes(raw))


def test_all_decoders_are_tried() -> None:
    assert list(by_name()) == list(NAMES)
