"""The log of a server on standard error: lines of text, or an object of JSON on each line."""

from __future__ import annotations

import json
import logging
import sys
import time


def log_to_stderr(level: str, form: str, by: str = "") -> None:
    """Log what has at least this level.

    form: `text` or `json`. by: names the process in each line, where several write to one stderr.
    """
    handler = logging.StreamHandler(sys.stderr)
    text = f"%(asctime)s %(levelname)s {f'{by} ' if by else ''}%(name)s: %(message)s"
    handler.setFormatter(JsonLines(by) if form == "json" else logging.Formatter(text))
    logging.basicConfig(level=level.upper(), handlers=[handler])


class JsonLines(logging.Formatter):
    """An object on each line: `time` (RFC 3339, UTC), `level`, `logger`, `message`, `exception`.

    by: the value of a further one, `by`; "": there is none.
    """

    def __init__(self, by: str = "") -> None:
        super().__init__()
        self._by = {"by": by} if by else {}

    def format(self, record: logging.LogRecord) -> str:
        seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line = {
            "time": f"{seconds}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **self._by,
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line)
