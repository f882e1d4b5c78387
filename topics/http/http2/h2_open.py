"""The h2 package's side of a connection, with the server's settings and additional bounds.

Source: wire contract, R-NET-5.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.settings import SettingCodes, Settings
from hpack import Decoder, HeaderTuple, OversizedHeaderListError

from topics.config import Config
from topics.http.wire.h2_request import list_limit, with_one_authority

_DEFAULT_WINDOW = 65_535
_PSEUDO_FIELDS = 4
_KNOWN_SETTINGS: Final = frozenset(map(int, SettingCodes))


class ServedH2(H2Connection):
    """The package's connection, with fewer ended streams remembered.

    The package remembers how streams ended, for frames sent before the peer knew. For 65,536
    streams that would take 8 MiB.
    """

    MAX_CLOSED_STREAMS = 4096

    def let_go(self) -> None:
        """Break the reference cycle: a table of the connection's own methods."""
        self._frame_dispatch_table.clear()


class _PeerSettings(Settings):
    """The settings of the peer, without unknown ones, which are ignored (RFC 9113 6.5.2).

    Stored, they could take 50 MiB, and would be searched at each frame.
    """

    def __setitem__(self, key: SettingCodes | int, value: int) -> None:
        if int(key) in _KNOWN_SETTINGS:
            super().__setitem__(key, value)


class _FieldDecoder(Decoder):
    """A decoder that also bounds the number of fields, and leaves one host.

    Each field may be one byte on the wire, and costs more than that.
    """

    def __init__(self, list_bytes_max: int, fields_max: int) -> None:
        super().__init__(list_bytes_max)
        self._fields_max = fields_max

    def decode(self, data: bytes, raw: bool = False) -> Iterable[HeaderTuple]:
        fields = list(super().decode(data, raw))
        if len(fields) > self._fields_max:
            raise OversizedHeaderListError(f"a header list of more than {self._fields_max} fields")
        return with_one_authority(fields)


def open_h2(config: Config) -> ServedH2:
    """Return the package's side of a connection. Its first output is the server's preface."""
    h2 = ServedH2(
        H2Configuration(
            client_side=False,
            header_encoding=None,
            validate_outbound_headers=False,
            normalize_outbound_headers=False,
        )
    )
    limit = list_limit(config.max_head_bytes, config.max_head_fields)
    h2.local_settings = Settings(
        client=False,
        initial_values={
            SettingCodes.MAX_CONCURRENT_STREAMS: config.h2_max_streams,
            SettingCodes.INITIAL_WINDOW_SIZE: config.h2_stream_window_bytes,
            SettingCodes.MAX_HEADER_LIST_SIZE: limit,
        },
    )
    h2.remote_settings = _PeerSettings(client=True)
    h2.decoder = _FieldDecoder(limit, 2 * config.max_head_fields + _PSEUDO_FIELDS)
    h2.initiate_connection()
    if config.h2_connection_window_bytes > _DEFAULT_WINDOW:
        h2.increment_flow_control_window(config.h2_connection_window_bytes - _DEFAULT_WINDOW)
    return h2
