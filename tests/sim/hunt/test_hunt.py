"""R-DUR-1: the hunt, by itself: genomes, the lives that are stored, aimed ones, and how a failure
is made small.
"""

from __future__ import annotations

import errno
import os
import random
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.amount import amount
from tests.sim.genome import Choices, Genome
from tests.sim.hunt import __main__ as hunt_main
from tests.sim.hunt.blocks import Blocks, Function
from tests.sim.hunt.corpus import Corpus, Stored, Told, by_what_they_ran
from tests.sim.hunt.hunting import Failure, Hunt, Outcome, kind_of, smaller
from tests.sim.hunt.life_changes import Shape, aimed, changed
from tests.sim.whole.genes import AIMS, LIFE_GENES
from tests.sim.whole.machine import Machine
from tests.sim.whole.run_seed import run, run_genome
from tests.sim.whole.seed_plan import SHORT, WHOLE

ROOT = Path(__file__).resolve().parents[3]
SHAPE = Shape(("plan", "client 0", "1:ring"), 3, 200, {"sync /srv/topics/wal": 3})


def test_a_genome_is_one_line_of_text() -> None:
    genome = Genome(42, {"1.kill": 17, "client 0": 7, "@120": 5, "2.clock": -70_000})
    assert str(genome) == "42;1.kill=17;client 0=7;@120=5;2.clock=-70000"
    assert Genome.parse(str(genome)) == genome


def test_a_genome_without_genes_is_the_run_of_its_seed() -> None:
    traces: list[list[str]] = [[], []]
    run(7, traces[0].append, length=SHORT)
    run_genome(Genome(7), traces[1].append, length=SHORT)
    assert traces[0] == traces[1] != []


def test_another_second_half_leaves_the_first_as_it_was() -> None:
    traces: list[list[str]] = [[], []]
    run_genome(Genome(7), traces[0].append, length=SHORT)
    run_genome(Genome(7, {"@20": 1}), traces[1].append, length=SHORT)
    same = next(at for at, pair in enumerate(zip(*traces, strict=False)) if pair[0] != pair[1])
    assert 20 <= same < min(map(len, traces)) - 1


def test_a_stream_of_another_seed_leaves_the_others_alone() -> None:
    usual, other = Choices(Genome(1)), Choices(Genome(1, {"plan": 2}))
    assert usual.stream("clock").random() == other.stream("clock").random()
    assert usual.stream("plan").random() != other.stream("plan").random()


def test_a_life_ends_with_the_operation_that_its_gene_names() -> None:
    trace: list[str] = []
    run_genome(Genome(7, {"0.end rename /srv/topics/snapshots/snapshot-#": 1}), trace.append)
    at = next(number for number, line in enumerate(trace) if "FAULT in wait" in line and "ends=True" in line)
    renames = [number for number, line in enumerate(trace) if "RENAME" in line and "/snapshots/" in line]
    assert "POWER CUT" in trace[next(number for number in renames if number > at) + 1]


def test_an_operation_fails_that_a_gene_names() -> None:
    struck: list[tuple[str, int, str]] = []

    def watch(machine: Machine, _choices: Choices) -> None:
        machine.ring.faults.on_struck = lambda *fault: struck.append(fault)

    run_genome(Genome(3, {"0.faults": 0, "0.start": 0, "0.fail sync /srv/topics/snapshots": 1}), watch=watch)
    assert ("sync", errno.EIO, "/srv/topics/snapshots") in struck


def test_new_lives_end_and_fail_where_others_had_operations() -> None:
    moments = {"sync /srv/topics/wal": 3, "rename /srv/topics/session": 1}
    names: Counter[str] = Counter()
    for seed in range(100):
        genes = aimed(Genome(seed), moments, 3, random.Random(seed)).genes
        assert all(1 <= nth <= moments[name.partition(" ")[2]] for name, nth in genes.items())
        names.update(name.partition(".")[2] for name in genes)
    assert names.keys() == {f"{aim} {moment}" for aim in AIMS for moment in moments}
    assert aimed(Genome(1), {}, 3, random.Random(1)) == Genome(1)


def test_whatever_is_changed_can_be_said_and_run() -> None:
    rng, genome = random.Random(1), Genome(3, {"cast": 1})
    names: set[str] = set()
    for _ in range(300):
        genome = changed(genome, SHAPE, [Genome(5, {"0.kill": 1})], rng)
        assert Genome.parse(str(genome)) == genome
        assert genome.genes["cast"] == 1
        names |= genome.genes.keys()
    assert {name.partition(".")[2] for name in names if "." in name} == LIFE_GENES.keys()


def test_a_failure_is_made_small() -> None:
    def run_it(genome: Genome) -> Outcome:
        fails = genome.genes.get("1.cut") == 1 and genome.genes.get("operations", 200) >= 50
        text = f"Wrong: lost {len(genome.genes)}" if fails else ""
        return Outcome(genome, SHAPE, Told(set(), set()), text, 0.0)

    found = Genome(9, {"plan": 4, "1.cut": 1, "@7": 3})
    small = smaller(Failure(found, "Wrong: lost 3", 1), WHOLE, run_it)
    assert small == Genome(9, {"1.cut": 1, "operations": 50, "crashes": 1})


def test_one_sentence_of_an_oracle_counts_once() -> None:
    hunt = Hunt(Corpus(None), random.Random(0))
    outcomes = [Outcome(Genome(1), SHAPE, Told({1}, set()), f"Wrong: lost ['~{n}~'] at {n}", 0.0) for n in (1, 22)]
    assert [hunt.took(outcome) is None for outcome in outcomes] == [False, True]
    assert [*hunt.again.values()] == [2]
    assert kind_of("Wrong: a head below 7") != kind_of("Wrong: a seq below 7")


def test_a_life_that_shows_nothing_new_is_not_kept() -> None:
    corpus = Corpus(None)
    assert corpus.add(Genome(1), SHAPE, Told({1, 2}, set())) == 2
    assert corpus.add(Genome(2), SHAPE, Told({1, 2}, set())) == 0
    assert corpus.add(Genome(3), SHAPE, Told({2, 3}, set())) == 1
    assert [kept.genome.seed for kept in corpus.kept] == [1, 3]


def test_lives_that_ran_what_has_changed_come_first(tmp_path: Path) -> None:
    blocks = Blocks()
    blocks.functions = {"store/a.py:f": Function(1, range(2)), "store/a.py:g": Function(2, range(2, 4))}
    corpus = Corpus(tmp_path, blocks)
    serve = 3 << 3
    for seed, block in enumerate((0, 0, 3, 1)):
        corpus.add(Genome(seed), SHAPE, Told({block << 5 | serve, (1 << 32) + seed}, set()))
    corpus.add(Genome(9), SHAPE, Told({1 << 33}, {"kill store/a.py:g:4"}))
    corpus.write()
    assert [genome.seed for genome in Corpus(tmp_path, blocks).read()[0]] == [0, 1, 2, 3, 9]
    blocks.functions["store/a.py:g"] = Function(77, range(2, 4))
    genomes, is_aimed = Corpus(tmp_path, blocks).read()
    assert is_aimed
    assert {genome.seed for genome in genomes[:2]} == {2, 9}


def test_each_life_comes_next_that_ran_most_of_what_few_have_run() -> None:
    rng = random.Random(1)
    lives = [Stored(str(seed), [f"{rng.getrandbits(12) & rng.getrandbits(12):x}"] * 3, []) for seed in range(60)]
    ran = [
        {f"{phase} {block}" for block in range(12) if int(life.phases[0], 16) >> block & 1 for phase in range(3)}
        for life in lives
    ]
    weight = {feature: 1 / number for feature, number in Counter(name for names in ran for name in names).items()}
    ordered = []
    left = set(range(60))
    while left:
        best = max(left, key=lambda index: (sum(weight[feature] for feature in ran[index]), -index))
        left.remove(best)
        ordered.append(lives[best])
        weight |= {feature: weight[feature] / 2 for feature in ran[best]}
    assert by_what_they_ran(lives, {"store/a.py:f"}, {"store/a.py:f": (1, 0, 12)}) == ordered


def test_the_same_hunt_is_the_same_hunt(tmp_path: Path) -> None:
    """Runs a few lives in a process of its own, since the code of the server is exchanged there.

    `make test` runs one hunt, and `make many` the second one, which is compared with it.
    """
    told = [_hunt(tmp_path / str(number)) for number in range(amount(2))]
    assert told[0] == told[-1]
    lives, kept, features = re.findall(r"(\d+) lives, (\d+) kept, (\d+) features", told[0][0])[-1]
    assert (int(lives), int(kept) > 1, int(features) > 5000) == (3, True, True)


def _hunt(corpus: Path) -> tuple[str, bytes]:
    options = ["--runs", "3", "--seed", "1", "--jobs", "0", "--short", "--corpus", str(corpus)]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.sim.hunt", *options],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return re.sub(r"[\d.]+ s of CPU|^\d+ min", "", done.stdout, flags=re.MULTILINE), (
        corpus / "lives.jsonl"
    ).read_bytes()


def test_the_cpu_of_a_hunt_is_that_of_its_pool_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was that of the process that hands out lives: 0.3 s for a minute."""
    monkeypatch.setattr(hunt_main.os, "times", lambda: os.times_result((1, 2, 40, 80, 10_000)))
    assert hunt_main._cpu_s() == 123
