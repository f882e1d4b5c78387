"""The topics that the lane knows, by the number that the scanner has given them."""

from __future__ import annotations

from topics.http.access.principal import Principal
from topics.http.lane._scan import lib
from topics.http.lane.scan_table import ScanTable
from topics.http.plan.service import FarTopic


class LaneTopics:
    """Columns over the learnt targets of plain requests; a number is valid until all are forgotten.

    names: of the topics; "" of one that another core owns, which no engine knows. names_json: the
    same as JSON. principals: those that count the requests; None without a cap. fars: topics of
    other cores, by number.
    """

    __slots__ = ("_scanned", "are_counted", "fars", "names", "names_json", "principals")

    def __init__(self, scanned: ScanTable) -> None:
        self._scanned = scanned
        self.names: list[str] = []
        self.names_json: list[bytes] = []
        self.principals: list[Principal | None] = []
        self.fars: dict[int, FarTopic] = {}
        self.are_counted = False
        """Whether any principal counts its requests."""

    def learn(
        self, name: str, target: bytes, name_json: bytes, principal: Principal | None, far: FarTopic | None = None
    ) -> None:
        """Learn a target of plain requests: its bytes after the common part of the path.

        If there is no room for another, all are forgotten. far: the topic, if another core owns it.
        """
        key = lib.TP_NO_KEY if principal is None or principal.key_id is None else principal.key_id
        number = lib.tp_learn_topic(self._scanned.scanner, target, len(target), key)
        if number < 0:
            self.forget_all()
        elif number == len(self.names):
            if far is not None:
                self.fars[number] = far
            self.names.append(name if far is None else "")
            self.names_json.append(name_json)
            self.principals.append(principal)
            self.are_counted |= principal is not None

    def forget(self, number: int) -> None:
        """Forget one target, which may be learnt again; nothing of one that another core owns."""
        if number not in self.fars:
            lib.tp_forget_topic(self._scanned.scanner, number)

    def forget_all(self) -> None:
        lib.tp_forget_topics(self._scanned.scanner)
        self.names.clear()
        self.names_json.clear()
        self.principals.clear()
        self.fars.clear()
        self.are_counted = False
