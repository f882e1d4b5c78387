"""The h2 package's side of a connection, with the server's settings. Source: wire contract, R-NET-5."""

from __future__ import annotations

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.settings import SettingCodes, Settings

from topics.config import Config
from topics.http.h2_request import list_limit

_DEFAULT_WINDOW = 65_535


def open_h2(config: Config) -> H2Connection:
    """The package's side of a connection; the server's preface is its first output."""
    h2 = H2Connection(
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
    h2.decoder.max_header_list_size = limit
    h2.initiate_connection()
    if config.h2_connection_window_bytes > _DEFAULT_WINDOW:
        h2.increment_flow_control_window(config.h2_connection_window_bytes - _DEFAULT_WINDOW)
    return h2
