"""Keys, which no result has: results are shown to others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from topics.config import SECRET

HIDDEN = "***"
_KEY, _SET = "--key", "--set"


def hidden_words(words: Sequence[str]) -> list[str]:
    """Return the words of a command with each key replaced."""
    found = []
    for at, word in enumerate(words):
        option = words[at - 1] if at else ""
        name, equals, value = word.partition("=")
        if option == _KEY:
            found.append(HIDDEN)
        elif option == _SET:
            found.append(_hidden_pair(word))
        elif equals and name == _KEY:
            found.append(f"{_KEY}={HIDDEN}")
        elif equals and name == _SET:
            found.append(f"{_SET}={_hidden_pair(value)}")
        else:
            found.append(word)
    return found


def _hidden_pair(pair: str) -> str:
    name, equals, _ = pair.partition("=")
    return f"{name}={HIDDEN}" if equals and _is_secret(name) else pair


def _is_secret(name: str) -> bool:
    return name.lower().removeprefix("topics_") in SECRET


def hidden_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """Return TOPICS_* variables with each key replaced."""
    return {name: HIDDEN if _is_secret(name) and value else value for name, value in settings.items()}


def hidden_text(text: str, settings: Mapping[str, str]) -> str:
    """Return the text of a workload's file with the keys of its settings replaced."""
    for name, value in settings.items():
        if _is_secret(name) and value:
            text = text.replace(value, HIDDEN)
    return text
