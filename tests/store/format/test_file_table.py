"""The table of files."""

from __future__ import annotations

from topics.store.format.file_table import FileKind, FileTable


def test_files_of_the_log_are_found_in_order_among_all_others() -> None:
    table = FileTable()
    added = [table.add(kind, str(number)) for number, kind in enumerate([*FileKind] * 3)]
    logs = [file for file in added if file.kind is FileKind.WAL]
    assert table.of_log() == logs
    table.remove(logs[1])
    assert table.of_log() == [logs[0], logs[2]]
    assert len(table) == len(added) - 1
