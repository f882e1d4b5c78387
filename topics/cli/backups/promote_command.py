"""`topics promote`: a data directory that is made of a mirror, once."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import typer

from topics.cli.backups.given_paths import check_directory_path, check_new_path
from topics.cli.backups.mirror_lock import locked_mirror
from topics.cli.backups.mirror_status import STATUS_NAME
from topics.cli.exit_codes import options_named, undone_if_terminated
from topics.cli.output.printer import count_text, left_out_text
from topics.clock import SystemClock
from topics.common.values.backup_result import SKIPPED_SEQS, SKIPPED_SEQS_MAX
from topics.common.values.time_texts import time_text
from topics.errors import UsageError
from topics.store.archive.joint_timeline import core_place
from topics.store.backup.free_places import FOLLOWED_NAME
from topics.store.disk.disk_space import room_at
from topics.store.mirror.followed_log import read_followed
from topics.store.mirror.mirror import check_not_promoted, newest_timeline
from topics.store.mirror.promotion import Promotion, note_promotion

if TYPE_CHECKING:
    from topics.embedded.restore_call import Restored


def promote(
    source: Annotated[str, typer.Option("--from", help="The directory of the mirror, which is stopped.")],
    to: Annotated[str, typer.Option(help="The new data directory: a path where nothing is.")],
    skip: Annotated[
        int,
        typer.Option(
            min=1, max=SKIPPED_SEQS_MAX, help="Seqs that each topic leaves out, for those that the mirror did not get."
        ),
    ] = SKIPPED_SEQS,
) -> None:
    """Make a data directory of a mirror, so that a server continues where the mirror ends."""
    check_directory_path("--from", source)
    check_new_path("--to", to)
    if (of_core := core_place(os.path.realpath(source))) is not None:
        raise UsageError(f"--from is {source!r}, a part of {of_core.archive}, which has all cores: name that")
    is_mirror = os.path.isfile(f"{source}/{FOLLOWED_NAME}")
    if not is_mirror and os.path.isfile(f"{source}/{STATUS_NAME}"):
        why = f"`topics mirror --status --to {source}` prints why"
        raise UsageError(f"--from is {source!r}, a mirror that has nothing of its server yet: {why}")
    if not is_mirror:
        raise UsageError(
            f"--from is {source!r}, and there is no mirror in it: name the directory of `topics mirror --to`"
        )
    if os.path.lexists(to):
        raise UsageError(f"--to is {to!r}, which exists: promote to a path where nothing is, and move it there then")
    with locked_mirror(source, "--from") as loop:
        loop.run_task(check_not_promoted(loop, source))
        newest = loop.run_task(newest_timeline(loop, source))
        followed = loop.run_task(read_followed(loop.files, source))
        begun = Promotion(os.path.realpath(to), SystemClock().now_ms())
        with room_at(source, f"make room there, or use `topics restore --from {source}`, which notes nothing there"):
            loop.run_task(note_promotion(loop, source, begun))
        try:
            with options_named({"to": "--to", "skipped_seqs": "--skip"}), undone_if_terminated():
                made = _restored(newest, to, skip)
        except BaseException:
            if not os.path.lexists(to):
                loop.run_task(note_promotion(loop, source, None))
            raise
        loop.run_task(note_promotion(loop, source, Promotion(made.path, begun.began_ms, is_made=True)))
    print(
        f"{made.path}: {count_text(made.topics, 'topic')}, {count_text(made.records, 'record')} of "
        f"{time_text(made.taken_ms)}; {left_out_text(made.skipped_seqs, 'mirror')}"
    )
    if followed is None or newest != f"{source}/{followed.timeline}":
        print("the log that the mirror follows now was not there as a whole: this is the one that it followed before")
    if made.damage:
        print(f"damage that the mirror has, and that was not needed: {made.damage}")


def _restored(newest: str, to: str, skip: int) -> Restored:
    """Restore the end of what is followed.

    Raises: as `topics.restore`, with a remedy for its time.
    """
    import topics  # noqa: PLC0415 - `topics --help` should not load the engine

    try:
        return topics.restore(newest, to, skipped_seqs=skip)
    except UsageError as error:
        if error.argument != "at":
            raise
        raise UsageError(f"the newest time {error.said}, by `topics restore --from {newest} --at TIME`") from error
