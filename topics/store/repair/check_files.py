"""A check of the files of one directory: of one core, or of one of several; and its rebuild."""

from __future__ import annotations

import msgspec

from topics.config import Config
from topics.errors import FormatError
from topics.loop.loop import Loop
from topics.store.disk.data_directory import refuse_links
from topics.store.repair.newer_files import refuse_newer
from topics.store.repair.owned_topics import OwnedTopics
from topics.store.repair.rebuild import Rebuilt, rebuild
from topics.store.repair.verify_directory import Damage, VerifyReport, verify
from topics.store.segments.tiers import Tiers


class FsckReport(msgspec.Struct):
    """The last check of a directory, and the rebuild before it, if any."""

    data_dir: str
    report: VerifyReport
    rebuilt: Rebuilt | None = None
    damage: list[Damage] = []
    """Findings of the first check, if a rebuild followed it."""
    newer: str = ""
    """Why a rebuild of the damaged directory would refuse: the file of a newer version."""
    cores: list[FsckReport] = []
    """The reports of core directories, if there are several; `report` has all of their findings."""
    by_hand: int = 0
    """Number of findings between core directories, which a rebuild leaves: each says what helps."""

    @property
    def sound(self) -> bool:
        """Whether the last check found no damage."""
        return self.report.sound

    @property
    def findings(self) -> list[Damage]:
        """The damage that the last check found, place by place."""
        return self.report.findings


def verified(loop: Loop, config: Config, owned: OwnedTopics) -> VerifyReport:
    """Verify a directory, whose lock the caller holds."""
    return loop.run_task(verify(loop, config.data_dir, config.cold_dir, core=owned.core, number=owned.number))


def found_in(loop: Loop, config: Config, owned: OwnedTopics, first: VerifyReport) -> FsckReport:
    """Return the report of a check that no rebuild follows."""
    newer = "" if first.sound else newer_file(loop, config, owned)
    return FsckReport(config.data_dir, first, newer=newer)


def rebuilt(loop: Loop, config: Config, owned: OwnedTopics, first: VerifyReport) -> FsckReport:
    """Rebuild a directory in which a check has found damage, and check it again."""
    for directory in filter(None, (config.data_dir, config.cold_dir)):
        refuse_links(directory)
    result = loop.run_task(rebuild(loop, config.data_dir, config.cold_dir, owned))
    return FsckReport(config.data_dir, verified(loop, config, owned), result, first.findings)


def newer_file(loop: Loop, config: Config, owned: OwnedTopics) -> str:
    """Return why a rebuild would refuse the directory; "" if it would not."""
    try:
        loop.run_task(refuse_newer(loop.files, Tiers.of(config), owned.core, owned.number))
    except FormatError as error:
        return str(error)
    return ""
