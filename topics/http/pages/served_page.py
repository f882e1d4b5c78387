"""A page of HTML with its scripts and styles inside, and the headers that allow nothing else.

Source: wire contract, section 12.4.
"""

from __future__ import annotations

import gzip
import re
from base64 import b64encode
from functools import cache, cached_property
from hashlib import sha256
from html import escape
from importlib.resources import files

HTML = b"text/html; charset=utf-8"
_PIECES = re.compile(r"<(style|script)>(.*?)</\1>", re.DOTALL)
_INCLUDED = re.compile(r"<!-- include (style|script) (\S+) -->")
_FOR_READERS = re.compile(r"^[ \t]*(?:(?://|/\*\*|\*[ /]).*)?\n|^[ \t]+", re.MULTILINE)
"""Comments, empty lines and indentation of a script, which are not sent."""
_STYLE_BLANKS = re.compile(r"\s*([{};])\s*|([:,])\s+")
"""Blanks of a style beside these, which are not sent."""
_OF_ALL = b"X-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\nCache-Control: no-cache\r\n"


class ServedPage:
    """One page, whole and compressed, with its header lines.

    html: its scripts and styles are in `<script>` and `<style>` elements without attributes.
    """

    def __init__(self, html: str) -> None:
        self.body = html.encode()
        self.etag = f'W/"{sha256(self.body).hexdigest()[:32]}"'.encode()
        self.headers = _OF_ALL + b"ETag: %b\r\n%b" % (self.etag, policy(html))

    @cached_property
    def compressed(self) -> bytes:
        return gzip.compress(self.body, 6, mtime=0)

    def is_known(self, if_none_match: bytes) -> bool:
        """Return whether a client that sends this `If-None-Match` has the page."""
        tags = [tag.strip() for tag in if_none_match.split(b",")]
        return b"*" in tags or self.etag in tags or self.etag.removeprefix(b"W/") in tags


def policy(html: str) -> bytes:
    """Return the header line that allows a page its own scripts and styles, and its own origin."""
    found: dict[str, list[str]] = {"style": [], "script": []}
    for kind, text in _PIECES.findall(html):
        found[kind].append(f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'")
    rules = ["default-src 'none'"]
    rules += [f"{kind}-src {' '.join(hashes)}" for kind, hashes in found.items() if hashes]
    if found["script"]:
        rules += ["connect-src 'self'", "require-trusted-types-for 'script'", "trusted-types 'none'"]
    rules += ["img-src data:", "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'"]
    return f"Content-Security-Policy: {'; '.join(rules)}\r\n".encode()


@cache
def _template(name: str) -> str:
    """Return a page of this folder, with the styles and scripts that it includes.

    A script has no statement that begins with `*`, and no text of several lines. A style has no
    text with one of `{};:,` beside a blank.
    """
    folder = files(__package__)

    def included(match: re.Match[str]) -> str:
        text = folder.joinpath(match[2]).read_text()
        text = _FOR_READERS.sub("", text) if match[1] == "script" else _STYLE_BLANKS.sub(r"\1\2", text)
        return f"<{match[1]}>\n{text}</{match[1]}>"

    return _INCLUDED.sub(included, folder.joinpath(name).read_text())


def read_page(name: str, keys: str = "", *, title: str = "", main: str = "") -> ServedPage:
    """Return a page of this folder.

    keys: an attribute of its `<html>` element. title, main: text, and HTML, of a page that has
    places for them.
    """
    html = _template(name).replace("<!-- title -->", escape(title), 1).replace("<!-- main -->", main, 1)
    return ServedPage(html.replace("<html", f'<html data-keys="{keys}"', 1) if keys else html)


_template("docs/docs.html")  # now, because a running server reads no file outside of its ring
