"""HTTP/2 frame by frame: where they end, a GOAWAY among others, frames that the package does not report."""

import struct

import pytest
from h2.errors import ErrorCodes
from h2.settings import SettingCodes
from hypothesis import given
from hypothesis import strategies as st

from tests.http.byte_stream import Echo, make_service
from tests.http.http2.h2_peer import H2Peer, frame
from topics.http.http2.h2_connection import PREFACE
from topics.http.http2.h2_frames import PART, PREFACE_END, FrameCutter

DATA, HEADERS, RST_STREAM, GOAWAY, WINDOW_UPDATE, CONTINUATION = 0, 1, 3, 7, 8, 9


def goaway(code: int = 0) -> bytes:
    return frame(GOAWAY, 0, 0, struct.pack(">II", 0, code))


@pytest.fixture
def echo() -> Echo:
    return Echo()


@pytest.fixture
def h2(echo: Echo) -> H2Peer:
    return H2Peer(make_service(echo.routes()))


# --- where frames end ------------------------------------------------------------------------------------------------
@given(
    st.lists(st.builds(frame, st.integers(0, 11), st.sampled_from([4, 5, 255]), st.just(1), st.binary(max_size=30))),
    st.lists(st.integers(1, 40), min_size=1),
)
def test_frames_are_cut_out_however_they_come(frames: list[bytes], sizes: list[int]) -> None:
    cutter, data = FrameCutter(len(PREFACE), 30, 30), PREFACE + b"".join(frames)
    whole, piece_of, kinds, at, turn = [], b"", [], 0, 0
    while at < len(data):
        received = data[at : at + sizes[turn % len(sizes)]]
        at += len(received)
        turn += 1
        for piece, kind in cutter.cut(received):
            piece_of += piece
            if kind != PART:
                whole.append(piece_of)
                kinds.append(kind)
                piece_of = b""
    assert whole == [PREFACE, *frames]
    assert kinds[1:] == [each[3] for each in frames]
    assert piece_of == b""


def test_a_head_in_many_frames_is_one_piece_of_work() -> None:
    cutter = FrameCutter(0, 1, 30)
    head = frame(HEADERS, 1, 1, b"a") + frame(CONTINUATION, 0, 1, b"b") + frame(CONTINUATION, 4, 1, b"c")
    assert [kind for _, kind in cutter.cut(frame(DATA, 0, 1) + head)] == [PREFACE_END, DATA, PART, PART, CONTINUATION]


def test_a_frame_over_the_limit_ends_the_connection_before_it_has_come(h2: H2Peer) -> None:
    """RFC 9113 4.2: 16 KiB, since the settings say nothing else; the package would wait for up to 16 MiB of it."""
    h2.raw(frame(DATA, 0, 1, bytes(16_385))[:9])
    assert h2.client.goaways[-1][0] == ErrorCodes.FRAME_SIZE_ERROR
    assert h2.wire.closed


def test_a_head_that_does_not_end_is_held_up_to_its_limit_and_counted(h2: H2Peer) -> None:
    part = frame(CONTINUATION, 0, 1, bytes(16_000))
    h2.raw(frame(HEADERS, 0, 1, bytes(16_000)) + part[:1000])
    assert h2.server.held_bytes == 17_009
    h2.raw(part[1000:] + part * 6)
    assert not h2.wire.closed
    h2.raw(part)
    assert h2.client.goaways[-1][0] == ErrorCodes.ENHANCE_YOUR_CALM
    assert h2.wire.closed


def test_of_what_has_come_whole_nothing_is_held(h2: H2Peer) -> None:
    h2.begin("GET", "/v0/topics/a", None, x="x" * 60_000)
    assert h2.server.held_bytes == 0


# --- a GOAWAY among other frames -------------------------------------------------------------------------------------
def test_a_request_is_answered_when_a_goaway_comes_right_behind_it(h2: H2Peer) -> None:
    """R-NET-1: on a new connection, whose settings are still to be sent, too."""
    stream = h2.client.begin("GET", "/healthz")
    h2.server.receive(h2.client.take() + goaway())
    assert h2.seen(stream).response.status == 200
    assert h2.client.server_settings
    assert h2.wire.closed


def test_behind_a_goaway_the_client_may_go_on_taking_its_answer(h2: H2Peer, echo: Echo) -> None:
    stream = h2.begin("GET", "/park")
    h2.raw(goaway() + frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", 100)))
    assert not h2.wire.closed
    echo.parked[0].reply(b"1")
    assert h2.seen(stream).response.json == 1
    assert h2.wire.closed


@pytest.mark.parametrize(("code", "closed"), [(0, False), (2, True)])
def test_a_goaway_behind_an_expected_continue_is_no_fault_of_ours(h2: H2Peer, code: int, *, closed: bool) -> None:
    h2.flush()
    headers = {"content-type": "application/json", "expect": "100-continue"}
    stream = h2.client.begin("POST", "/v0/topics/a", None, headers, end=False)
    h2.raw(h2.client.take() + goaway(code))
    assert (h2.wire.closed, h2.client.seen[stream].informational) == (closed, [] if closed else [100])
    if not closed:
        h2.client.send_body(stream, b"{}")
        assert h2.seen(stream).response.status == 200
        assert h2.wire.closed


# --- frames without an event -----------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("kind", "payload"),
    [(DATA, b""), (DATA, b"x"), (WINDOW_UPDATE, struct.pack(">I", 1)), (RST_STREAM, struct.pack(">I", 8))],
    ids=["empty data", "data", "window update", "reset"],
)
def test_a_flood_of_frames_of_a_stream_that_is_over_ends_the_connection(echo: Echo, kind: int, payload: bytes) -> None:
    h2 = H2Peer(make_service(echo.routes(), h2_control_burst=100, h2_controls_per_s=1))
    streams = [h2.begin("GET", "/healthz") for _ in range(2)]
    h2.raw(frame(kind, 0, streams[0], payload) * 90)
    assert not h2.wire.closed
    h2.server.receive(frame(kind, 0, streams[0], payload) * 90)
    assert h2.wire.closed


def test_a_flood_of_requests_on_a_stream_that_was_reset_ends_the_connection(echo: Echo) -> None:
    h2 = H2Peer(make_service(echo.routes(), h2_control_burst=100, h2_controls_per_s=1, h2_resets_per_s=1))
    stream = h2.begin("GET", "/wait")
    h2.client.h2.reset_stream(stream, ErrorCodes.CANCEL)
    h2.flush()
    head = b"\x82\x86\x84\x41\x01a"
    for count in (90, 90):
        assert not h2.wire.closed
        h2.server.receive(frame(HEADERS, 5, stream, head) * count)
    assert h2.wire.closed


def test_a_head_in_many_frames_is_no_flood(echo: Echo) -> None:
    h2 = H2Peer(make_service(echo.routes(), h2_control_burst=5, h2_controls_per_s=1, max_head_bytes=1 << 20))
    h2.client.h2.remote_settings[SettingCodes.MAX_FRAME_SIZE] = 16_384
    for _ in range(3):
        assert h2.ask("GET", "/healthz", x="y" * 60_000).status == 200
