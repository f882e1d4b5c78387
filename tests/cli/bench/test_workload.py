"""Workload files: those of the package, and what is said about a wrong one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from topics.bench.workload import KINDS, Workload, field_names, parse_workload
from topics.bench.workload_files import built_in, find_workload
from topics.config import DURABILITIES, Config
from topics.errors import UsageError

ROOT = Path(__file__).resolve().parents[3]
LOAD = '[[load]]\nkind = "write"\n'
APPEND = '[[load]]\nkind = "append"\n'
WATCHED = LOAD + '[[load]]\nkind = "watch"\n'
WORK = '[topic]\ntype = "queue"\n[[load]]\nkind = "work"\n'
READ = '[fill]\nrecords = 9\n[[load]]\nkind = "read"\n'


def workload(text: str) -> Workload:
    return parse_workload(text, "mine.toml")


def error_of(text: str) -> str:
    with pytest.raises(UsageError) as caught:
        workload(text)
    return str(caught.value)


def test_every_file_of_the_package_is_a_workload_with_a_title_a_question_and_a_family() -> None:
    found = built_in()
    assert len(found) == len(list((ROOT / "topics/bench/workloads").glob("*.toml"))) > 5
    for one in found:
        assert one.title
        assert one.question.endswith("?"), one.name
        assert one.family, one.name
        assert one.cases()
        for setting in one.server:
            assert hasattr(Config(), setting.removeprefix("TOPICS_").lower()), f"{one.name}: {setting}"


def test_writes_and_calls_of_the_library_are_measured_in_every_class() -> None:
    found = {one.name: one for one in built_in()}
    for name in ("write-lone", "write-64", "write-batch", "embedded-append", "embedded-batch"):
        assert [case.value for case in found[name].cases()] == list(DURABILITIES), name
    assert {found[f"write-open-{name}"].topic.durability for name in DURABILITIES[1:]} == set(DURABILITIES[1:])


def test_a_workload_is_found_by_its_name_or_by_a_path(tmp_path: Path) -> None:
    mine = tmp_path / "mine.toml"
    mine.write_text(LOAD)
    assert find_workload(str(mine)).loads[0].kind == "write"
    assert find_workload("write-lone").name == "write-lone"


@pytest.mark.parametrize("name", ["wirte-lone", "/nowhere/x.toml"])
def test_a_name_without_a_workload_says_how_to_find_one(name: str) -> None:
    with pytest.raises(UsageError, match=f"{name}.*topics bench list"):
        find_workload(name)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = [", "mine.toml: this is no TOML"),
        ("title = 'x'", "mine.toml: there is no load: add a table [[load]] with a kind"),
        (LOAD + "conections = 3", "load[0].conections is no field of a workload: did you mean connections?"),
        ("colour = 1\n" + LOAD, "colour is no field of a workload: use one of"),
        (LOAD + "connections = 0", "load[0].connections is 0: use a whole number from 1 to 100,000 (connections)"),
        (LOAD + "connections = 1.5", "load[0].connections is 1.5: use a whole number"),
        (LOAD + "connections = true", "load[0].connections is True: use a whole number"),
        (LOAD + "rate = -1", "load[0].rate is -1: use a number from 0 to 10,000,000"),
        (LOAD + 'over = "udp"', "load[0].over is 'udp': use one of sse, ws"),
        ('[[load]]\nkind = "wirte"', "load[0].kind is 'wirte': use one of write, read"),
        (LOAD + "[topic]\ndurability = 'paper'", "topic.durability is 'paper': use one of ephemeral, memory"),
        ("run = 3\n" + LOAD, "mine.toml: run is no table: write [run]"),
        (LOAD + "[run]\nrounds = 0", "run.rounds is 0: use a whole number from 1 to 1,000"),
        ("title = 3\n" + LOAD, "title is 3: use a few words for the list"),
        ("peers = 'redis'\n" + LOAD, "peers is 'redis': use a list of names"),
        (LOAD + "[server]\nx = [1]", "server.x is [1]: use a number, a text, true or false"),
        ('[[load]]\nkind = "watch"', "no load writes, so load[0] receives nothing: add a [[load]] of kind write"),
        (APPEND + "connections = 8", "load[0].connections is 8: calls of the library are one thread's"),
        (APPEND + "limit = 8", "load[0].limit is 8: calls of the library are one thread's"),
        (APPEND + "[topic]\ntype = 'queue'", "topic.type is not for kind append, which writes to a new, plain log"),
        (APPEND + "[topic]\ncap_records = 10", "topic.cap_records is not for kind append"),
        (APPEND + "[sweep]\nfield = 'fill.records'\nvalues = [0, 5]", "fill.records is not for kind append"),
        ("destinations = 1\n" + APPEND, "destinations is not for kind append"),
        (LOAD + "[server]\nfoo = 1", "server.foo is not a setting: docs/settings.md lists them"),
        (LOAD + "[server]\nmax_topic = 1", "server.max_topic is not a setting: did you mean max_topics?"),
        (LOAD + "[server]\nspin_us = 'zzz'", "server.spin_us is 'zzz': use auto, or a number"),
        (LOAD + "[server]\nmax_topics = 'a'", "server.max_topics is 'a': use a whole number"),
        (WATCHED + "[sweep]\nfield = 'load.watch.topics'\nvalues = [3]", "only a workload of writes has many topics"),
        (WORK + "[sweep]\nfield = 'topic.type'\nvalues = ['queue', 'log']", 'set topic.type = "queue"'),
        (READ + "[sweep]\nfield = 'fill.records'\nvalues = [9, 0]", "fill.records is 0, and there is nothing to read"),
        (LOAD + "[sweep]\nfield = 'topic.durability'", "sweep has two fields: field"),
        (LOAD + "[sweep]\nfield = 'topic.durability'\nvalues = []", "sweep.values is []"),
        (LOAD + "[sweep]\nfield = 'topic.durability'\nvalues = ['paper']", "topic.durability is 'paper'"),
        (LOAD + "[sweep]\nfield = 'topic.cap_records'\nvalues = [1, 2, 1]", "sweep.values has 1 twice: give each"),
        (LOAD + "[sweep]\nfield = 'load.write.rate'\nvalues = [300, 300.0]", "sweep.values has 300.0 twice"),
        (LOAD + "[sweep]\nfield = 'load.read.rate'\nvalues = [1]", "use load.NAME.FIELD, with a name of write"),
        (LOAD + "[sweep]\nfield = 'load.write.name'\nvalues = ['a']", "and a field that changes what is measured"),
        (LOAD + "[sweep]\nfield = 'destinations.foo'\nvalues = [1]", "sweep.field is 'destinations.foo': use topic"),
        ('title = "a\\u001b[2Jb"\n' + LOAD, "title is 'a\\x1b[2Jb': leave out the character '\\x1b', which no table"),
        ('question = "a\\nb"\n' + LOAD, "question is 'a\\nb': leave out the character '\\n'"),
        (LOAD + 'name = "a\\u202eb"', "load[0].name is 'a\\u202eb': leave out the character '\\u202e'"),
        (LOAD + "[sweep]\nfield = 'name'\nvalues = [1]", "sweep.field is 'name': use topic.FIELD"),
        (LOAD + "name = ''", "load[0].name is empty: give it a name, or leave it out"),
        (LOAD + "bytes = 1000000\nbatch = 269", "load[0].batch is 269, of load[0].bytes 1,000,000 each: use at"),
        (APPEND + "bytes = 1000000\nbatch = 10000", "load[0].batch is 10,000, of load[0].bytes 1,000,000 each"),
        (LOAD + LOAD, "load[1].name is 'write', as of another load: give each a name of its own"),
        ('[[load]]\nkind = "restart"\n[fill]\nrecords = 1\n' + LOAD, "a load of kind restart is the only one"),
        ('[[load]]\nkind = "work"', 'set topic.type = "queue"'),
        ('[[load]]\nkind = "read"', "fill.records is 0, and there is nothing to read"),
        (READ + "limit = 10", "load[0].limit is 10, and the topic has 9 records: use at most"),
        (READ + "[topic]\ncap_records = 3\n[sweep]\nfield = 'load.read.limit'\nvalues = [3, 4]", "limit is 4, and the"),
        ('[[load]]\nkind = "watch"\ntopic = "destination"', "load[0].topic is the destination of a router"),
        ('[[load]]\nkind = "tail"\ntopics = 5', "only a workload of writes has many topics"),
    ],
)  # fmt: skip
def test_a_wrong_file_is_refused_by_file_field_and_remedy(text: str, said: str) -> None:
    message = error_of(text)
    assert message.startswith("mine.toml: ")
    assert said in message


def test_a_file_whose_name_no_table_can_show_is_refused() -> None:
    with pytest.raises(UsageError, match=r"'a\\x1bb.toml': the file's name has the character '\\x1b'.*: rename it"):
        parse_workload(LOAD, "a\x1bb.toml")


def test_a_sweep_makes_a_case_of_each_value() -> None:
    one = workload(LOAD + '[sweep]\nfield = "load.write.connections"\nvalues = [1, 64]')
    assert [case.workload.loads[0].connections for case in one.cases()] == [1, 64]
    assert [case.label for case in one.cases()] == ["connections 1", "connections 64"]
    assert [case.label for case in workload(LOAD).cases()] == [""]


def test_settings_of_the_server_become_variables() -> None:
    assert workload(LOAD + "[server]\nmax_topics = 5\nverify = false").server == {
        "TOPICS_MAX_TOPICS": "5",
        "TOPICS_VERIFY": "false",
    }


def test_the_guide_lists_every_field_and_every_kind() -> None:
    page = (ROOT / "docs/guides/bench.md").read_text()
    listed = set(re.findall(r"^\| `([\w.\[\]]+)` \|", page, re.M))
    fields = {f"{section}.{name}".lstrip(".") for section, names in field_names().items() for name in names}
    assert fields | {"sweep.field", "sweep.values", "server.NAME", "peers"} <= listed | {"server.NAME"}
    assert set(KINDS) <= set(re.findall(r"^\| `(\w+)` \|", page, re.M))
