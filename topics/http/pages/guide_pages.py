"""The guides as pages of HTML, made of the files in docs/ that the package holds.

Source: wire contract, section 12.4.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from importlib.resources import files
from posixpath import join, normpath
from typing import NamedTuple
from urllib.parse import urlsplit

from markdown_it import MarkdownIt
from markdown_it.token import Token

from topics.http.pages.served_page import ServedPage, read_page

PATH = "/docs/guides/"
INDEX = "index"
_AROUND = (("/", "topics"), (PATH + INDEX, "All guides"), ("/docs", "The interface"))
_CONTRACT = "contract.md"
_PIECES = re.compile(r"^(?=## )", re.MULTILINE)
_NOT_IN_SLUGS = re.compile(r"[^\w\- ]")
_MARKDOWN = MarkdownIt("commonmark", {"html": False}).enable("table")


class _GuideFile(NamedTuple):
    """folder: that of the file below docs/, to which its links are relative."""

    folder: str
    text: str


def _sources() -> dict[str, _GuideFile]:
    """Return the files by the names of their pages."""
    found = {}
    top = files(__package__).joinpath("user_docs")
    for folder in ("", "guides"):
        for file in (top.joinpath(folder) if folder else top).iterdir():
            if file.name.endswith(".md") and file.name != _CONTRACT:
                found[file.name.removesuffix(".md")] = _GuideFile(folder, file.read_text())
    return found


_SOURCES = _sources()  # now, because a running server reads no file outside of its ring
NAMES = tuple(sorted(_SOURCES))


def guide_page(name: str) -> Generator[None, None, ServedPage | None]:
    """Render a guide, in steps of a few milliseconds. Return None for one that does not exist."""
    source = _SOURCES.get(name)
    if source is None:
        return None
    shown, title, taken = [], name, set[str]()
    for text in _PIECES.split(source.text):
        tokens: list[Token] = []
        for token in _MARKDOWN.parse(text):
            if token.type == "inline":
                if tokens[-1].type == "heading_open":
                    heading = "".join(child.content for child in token.children or ())
                    tokens[-1].attrSet("id", _slug(heading, taken))
                    title = heading if tokens[-1].tag == "h1" else title
                tokens.append(token.copy(children=_with_links(token.children or [], source.folder)))
            else:
                tokens.append(token)
        shown.append(_MARKDOWN.renderer.render(tokens, _MARKDOWN.options, {}))
        yield
    around = " · ".join(f'<a href="{link}">{text}</a>' for link, text in _AROUND)
    return read_page("docs/docs.html", title=title, main=f'<p class="hint">{around}</p>{"".join(shown)}')


def _slug(heading: str, taken: set[str]) -> str:
    """Return the id of a heading, as other programs that show the files make it."""
    slug = _NOT_IN_SLUGS.sub("", heading.lower()).replace(" ", "-")
    number = 0
    while (found := f"{slug}-{number}" if number else slug) in taken:
        number += 1
    taken.add(found)
    return found


def _with_links(tokens: list[Token], folder: str) -> list[Token]:
    """Return the pieces of a text with links to pages that are served.

    Of a link to another file, and of an image, the text stays.
    """
    kept: list[Token] = []
    dropped = 0
    for token in tokens:
        if token.type == "link_open":
            target = _target(str(token.attrGet("href") or ""), folder)
            if target:
                token.attrSet("href", target)
                kept.append(token)
            else:
                dropped += 1
        elif token.type == "link_close" and dropped:
            dropped -= 1
        elif token.type == "image":
            kept.append(Token("text", "", 0, content=token.content))
        else:
            kept.append(token)
    return kept


def _target(link: str, folder: str) -> str:
    """Return where a link of a file in this folder leads; "" for a file that is not served."""
    parts = urlsplit(link)
    if parts.scheme or not parts.path:
        return link
    path = normpath(join(folder, parts.path))
    if path == _CONTRACT:
        return "/docs/contract/1"
    name = path.rpartition("/")[2].removesuffix(".md")
    if name not in _SOURCES or path != join(_SOURCES[name].folder, f"{name}.md"):
        return ""
    return f"{PATH}{name}#{parts.fragment}" if parts.fragment else PATH + name
