"""Sections of the wire contract as pages of HTML.

The package holds docs/contract.md, from which they are made.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from html import escape
from importlib.resources import files

from markdown_it import MarkdownIt
from markdown_it.token import Token

from topics.http.pages.served_page import ServedPage, read_page

_TEXT = files(__package__).joinpath("contract.md").read_text()
_HEADING = re.compile(r"^##(#?) (\d+(?:\.\d+)?)\.? (.*)$", re.MULTILINE)
_FILE_LINK = re.compile(r"\[([^\]]+)\]\([^)]*\)")
_REFERENCE = re.compile(r"(R-[A-Z]+(?:-\d+)?|\b\d{1,2}\.\d{1,2}\b)")
PATH = "/docs/contract/"


def _sections() -> dict[str, str]:
    """Return the text of each section by its number.

    A chapter's ends where its first part begins.
    """
    found = list(_HEADING.finditer(_TEXT))
    ends = [heading.start() for heading in found[1:]] + [len(_TEXT)]
    return {heading[2]: _TEXT[heading.start() : end] for heading, end in zip(found, ends, strict=True)}


SECTIONS = _sections()
_RULES = {rule: number for number, text in SECTIONS.items() for rule in re.findall(r"\*\*(R-[A-Z]+-\d+)\*\*", text)}
"""The section of each rule."""
_MARKDOWN = MarkdownIt("commonmark", {"html": False}).enable("table")


@cache
def section_page(number: str) -> ServedPage | None:
    """Return the page of a section; None for one that does not exist."""
    text = SECTIONS.get(number)
    if text is None:
        return None
    tokens = [_with_links(token, number) for token in _MARKDOWN.parse(_FILE_LINK.sub(r"\1", text))]
    numbers = list(SECTIONS)
    at = numbers.index(number)
    around = [
        f'<a href="{PATH}{numbers[to]}">{word} {numbers[to]}</a>'
        for to, word in ((at - 1, "before:"), (at + 1, "next:"))
        if 0 <= to < len(numbers)
    ]
    shown = _MARKDOWN.renderer.render(tokens, _MARKDOWN.options, {})
    shown = re.sub(r"<strong>(R-[A-Z]+-\d+)</strong>", r'<strong id="\1">\1</strong>', shown)
    main = f'<p class="hint"><a href="/docs">The interface</a> · {" · ".join(around)}</p>{shown}'
    return read_page("docs/docs.html", "", title=f"Contract {number}", main=main)


def section_link(number: str) -> str:
    """Return a link to a section, in HTML."""
    return f'<a href="{PATH}{number}">Section {escape(number)} of the contract</a>. ' if number in SECTIONS else ""


def _with_links(token: Token, here: str) -> Token:
    if token.type != "inline":
        return token
    return token.copy(children=[piece for child in token.children or () for piece in _linked(child, here)])


def _linked(token: Token, here: str) -> Sequence[Token]:
    """Return a text with links in the place of its references to sections and rules."""
    if token.type != "text":
        return [token]
    pieces: list[Token] = []
    for at, text in enumerate(_REFERENCE.split(token.content)):
        target = _target(text) if at % 2 else ""
        if target and target.partition("#")[0] != here:
            pieces += [
                Token("link_open", "a", 1, attrs={"href": PATH + target}),
                Token("text", "", 0, content=text),
                Token("link_close", "a", -1),
            ]
        elif text:
            pieces.append(Token("text", "", 0, content=text))
    return pieces


def _target(reference: str) -> str:
    if reference in SECTIONS:
        return reference
    rule = next((rule for rule in _RULES if rule == reference or rule.startswith(f"{reference}-")), "")
    return f"{_RULES[rule]}#{rule}" if rule else ""
