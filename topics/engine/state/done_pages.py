"""Pages of a named reader that are done, and above its committed position. Source: R-READER-13."""

from __future__ import annotations

from collections import OrderedDict

_MOST = 1000
"""The pages that are remembered: the latest ones."""


class DonePages:
    """Tokens of pages whose commit is answered again if its answer was lost.

    A client can see by the committed position that a page below it is done. What is done above a
    page of another client shows in no position.
    """

    __slots__ = ("_upto",)

    def __init__(self) -> None:
        self._upto: OrderedDict[int, int] = OrderedDict()
        """The end of each page, by token."""

    def knows(self, token: int, committed: int) -> bool:
        """Return whether this page is done above the committed position."""
        return self._upto.get(token, 0) > committed

    def note(self, token: int, upto: int, committed: int) -> None:
        """Remember a page that is done up to here, and forget those that are committed."""
        self._upto[token] = upto
        while len(self._upto) > _MOST or next(iter(self._upto.values()), committed + 1) <= committed:
            self._upto.popitem(last=False)

    def forget(self, token: int) -> None:
        """Note that the page is not done after all."""
        self._upto.pop(token, None)

    def clear(self) -> None:
        self._upto.clear()
