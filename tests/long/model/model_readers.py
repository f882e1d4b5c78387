"""Named readers as the wire contract states them, in the plainest way. Source: R-READER, 7.10 to 7.16."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tests.long.model.model_topic import Topic
    from topics.engine.values.results import Tombstone


@dataclass
class Page:
    """Records above `after` and up to `upto`, which one client has until its deadline."""

    after: int
    upto: int
    deadline: int


class Next(NamedTuple):
    """The page that comes next. late: the page of before that it begins with; None: it is new."""

    seqs: list[int]
    next_from_seq: int
    tombstone: Tombstone | None
    late: tuple[int, int] | None


@dataclass
class NamedReader:
    delivery: str = "at-least-once"
    holds: bool = False
    trims: bool = False
    position: int = 0
    committed: int = 0
    out: dict[str, Page] = field(default_factory=dict)
    """Pages that clients have, by token."""
    late: list[tuple[int, int]] = field(default_factory=list)
    """Pages that come again before anything new, ascending (R-READER-5)."""

    def look(self, now: int) -> None:
        for token in [token for token, page in self.out.items() if now > page.deadline]:
            page = self.out.pop(token)
            self.late.append((page.after, page.upto))
        self.late.sort()

    def next(self, topic: Topic, limit: int, most_bytes: int, *, moves: bool) -> Next:
        """moves: what is there no more is passed (R-READER-6), and a look at what comes passes nothing."""
        late, position = list(self.late), self.position
        found = None
        while late and found is None:
            after, upto = late.pop(0)
            seqs, next_from_seq, tombstone = topic.read(after, limit, None, most_bytes, upto)
            if seqs or tombstone is not None:
                found = Next(seqs, next_from_seq, tombstone, (after, upto))
            if found is not None or next_from_seq < upto:
                late.insert(0, (after if found is not None else next_from_seq, upto))
        while found is None:
            seqs, next_from_seq, tombstone = topic.read(position, limit, None, most_bytes)
            if seqs or tombstone is not None or next_from_seq == topic.head:
                found = Next(seqs, next_from_seq, tombstone, None)
            if not seqs and tombstone is None:
                position = next_from_seq
        if moves:
            self.late, self.position = late, position
        return found

    def take(self, page: Next, token: str | None, deadline: int) -> None:
        """token: of a page that is out; None: it is delivered at most once, and committed (R-READER-7)."""
        if page.late is None:
            after, upto = self.position, page.next_from_seq
            self.position = upto
        else:
            self.late.remove(page.late)
            after, upto = page.late[0], min(page.late[1], page.next_from_seq)
            if upto < page.late[1]:
                self.late.insert(0, (upto, page.late[1]))
        if token is None:
            self.commit()
        else:
            self.out[token] = Page(after, upto, deadline)

    def finish(self, token: str, seq: int | None, *, gives_back: bool) -> None:
        """gives_back: what is above `seq` comes again, and without `seq` all of it (R-READER-10)."""
        page = self.out[token]
        page.after = max(page.after, seq or 0) if gives_back or seq is not None else page.upto
        if gives_back or page.after >= page.upto:
            del self.out[token]
        if gives_back and page.after < page.upto:
            self.late = sorted([*self.late, (page.after, page.upto)])
        self.commit()

    def commit(self) -> None:
        """R-READER-4: below the lowest page that is out, or comes again."""
        begins = [page.after for page in self.out.values()] + [after for after, _ in self.late]
        self.committed = min([self.position, *begins])

    def seek(self, seq: int) -> None:
        self.out, self.late = {}, []
        self.position = self.committed = seq
