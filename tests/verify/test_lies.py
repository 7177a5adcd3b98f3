"""A careful forger, who signs every row anew, and honest people whose files went through other programs."""
# ruff: noqa: S608 (statements are a test's own words)

import json
import re
import shutil
import sqlite3
from collections.abc import Callable
from fractions import Fraction
from hashlib import sha256
from itertools import product
from math import comb, exp
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from darrm import PrivacyLedger, PrivacyParams, Problem, Table, Voters, open_release, optimize_table, release_debited
from darrm.laws.priors import Dirichlet
from darrm.mechanisms.release import Release
from darrm.verify.audit import Audit, audit
from darrm.verify.plain_words import power_of_test
from darrm.verify.verdicts import FALSE
from tests.relinked import relink

OLD = Path(__file__).parents[1] / "files" / "old"
CHEAP = '{"guarantee":["0.000001","0"],"profile":null,"renyi":null}'


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two files of labels and a stream of answers, drawn with one table and paid by one ledger."""
    folder = tmp_path_factory.mktemp("honest")
    problem = Problem.from_allowance(Voters(3, PrivacyParams("0.2", "1e-5")), "1.5")
    table = optimize_table(problem, prior=Dirichlet())
    table.save(folder / "table.json")
    ledger = PrivacyLedger.create(folder / "ledger.sqlite", PrivacyParams(20, "1e-2"))
    rng = np.random.default_rng(3)
    for name, queries in (("labels.csv", 20), ("more.csv", 9)):
        votes = rng.integers(0, 2, (queries, 3))
        release_debited(Release(table), votes, ledger=ledger, note=name, output=folder / name)
    with open_release(table, ledger) as release:
        answers = [release.answer(row) for row in rng.integers(0, 2, (24, 3))]
    (folder / "answers.csv").write_text("".join(f"{n},{label}\n" for n, label in enumerate(answers, 1)))
    open_release(table, ledger).answer([1, 1, 0])  # waits in the ledger
    return folder


@pytest.fixture
def files(made: Path, tmp_path: Path) -> Path:
    shutil.copytree(made, tmp_path / "files")
    return tmp_path / "files"


def judged(files: Path, labels: str = "labels.csv") -> Audit:
    return audit([files / "table.json", files / "ledger.sqlite", files / labels])


def false_claims(found: Audit) -> list[str]:
    return [str(verdict) for verdict in found.verdicts if verdict.verdict == FALSE]


def forge(files: Path, *statements: str) -> None:
    """Change a ledger, make its totals fit its log, and seal all of it anew."""
    relink(files / "ledger.sqlite", *statements)


def cheaper(number: int) -> tuple[str, str]:
    add = f"INSERT INTO kinds VALUES (9, '{CHEAP}', 'DaRRM over 3 voters', 0, '')"
    return add, f"UPDATE charges SET kind = 9 WHERE id = {number}"


IN_A_LEDGER = {
    **{f"entry {n} costs nearly nothing": cheaper(n) for n in range(1, 27)},
    **{f"of {kinds} kinds, the same": (*cheaper(1), f"UPDATE budget SET kinds = '{kinds}'") for kinds in
       ("planned", "adaptive")},
    **{f"it is called {words}": (f"UPDATE kinds SET what = '{words}'",) for words in
       ("DaRRM over 99 voters", "99 voters", "GNMax", "a survey", " ")},
    **{f"entry {n} has the time {time!r}": (f"UPDATE charges SET time = '{time}' WHERE id = {n}",) for n, time in
       product((1, 2, 9), ("1999-01-01T00:00:00.000+00:00", "soon", "2026-02-30T00:00:00.000+00:00", "",
                           "2026-11-23T08:00:00.000"))},
    **{f"{count} of 20 labels were counted": (f"UPDATE charges SET count = {count} WHERE id = 1",)
       for count in (1, 2, 19, 21)},
    "a small entry beside an equal one": (
        "UPDATE charges SET digest = (SELECT digest FROM charges WHERE id = 1), count = 2 WHERE id = 2",
    ),
    "other labels wait": ("UPDATE charges SET labels = x'00' WHERE id = 27",),
    "no labels wait": ("UPDATE charges SET labels = x'' WHERE id = 27",),
    "more labels wait": ("UPDATE charges SET count = 2 WHERE id = 27",),
    "the labels' own entry names another table": ("UPDATE charges SET proof = 'ab' WHERE id = 1",),
    "the labels' own entry has other labels": ("UPDATE charges SET digest = 'ab' WHERE id = 1",),
}  # fmt: skip


# of files' and the stream's entries the first and the last; the others are read by the same lines
SLOW = re.compile(r"entry ([2-9]|1\d|2[0-5]) costs .*|entry [29] has the time .*")


@pytest.mark.parametrize(
    "statements",
    [
        pytest.param(statements, id=name, marks=[pytest.mark.slow] if SLOW.fullmatch(name) else [])
        for name, statements in IN_A_LEDGER.items()
    ],
)
def test_a_lie_in_a_ledger_is_false(files: Path, statements: tuple[str, ...]) -> None:
    forge(files, *statements)
    assert false_claims(judged(files))


@pytest.mark.parametrize("first", [0, 2, 25, *(pytest.param(n, marks=pytest.mark.slow) for n in (-7, 3, 24, 1000))])
def test_answers_under_other_numbers_are_false(files: Path, first: int) -> None:
    answers = [line.split(",")[1] for line in (files / "answers.csv").read_text().splitlines()]
    (files / "answers.csv").write_text("".join(f"{first + n},{label}\n" for n, label in enumerate(answers)))
    assert any("they are the labels of a debit" in claim for claim in false_claims(judged(files, "answers.csv")))


def signed(data: dict[str, Any]) -> str:
    numbers = {name: data[name] for name in ("problem", "gamma")}
    text = json.dumps(numbers, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return json.dumps({**data, "checksum": sha256(text.encode()).hexdigest()})


NOTE = "(0.001, 0)-private, proved in Lean"
IN_A_TABLE: list[tuple[str, str, object]] = [
    *((place, "note", NOTE) for place in ("", "certificate", "optimality", "problem")),
    *(("certificate", name, None) for name in ("worst_cost", "budget", "rows", "method")),  # taken out
    *(("certificate", name, 0.001) for name in ("worst_cost", "budget")),
    *(("optimality", name, 0.001) for name in ("value", "bound")),
]


@pytest.mark.parametrize(("place", "name", "value"), IN_A_TABLE)
def test_a_lie_in_a_table_is_false(files: Path, place: str, name: str, value: object) -> None:
    data = json.loads((files / "table.json").read_text())
    inside = data[place] if place else data
    inside[name] = value
    if value is None:
        del inside[name]
    (files / "table.json").write_text(signed(data))
    assert false_claims(audit([files / "table.json"]))


@pytest.mark.parametrize("version", ["1", "1-plain", "2-monotone"])
@pytest.mark.parametrize("lie", ["note", "value", "both", "rows"])
def test_a_lie_in_an_old_table_is_false(tmp_path: Path, version: str, lie: str) -> None:
    data = json.loads((OLD / f"table-version-{version}.json").read_text(encoding="utf-8"))
    changes: dict[str, dict[str, Any]] = {
        "note": {"certificate": {"note": "proved in Lean"}},
        "value": {"optimality": {"value": 0.001}},
        "both": {"optimality": {"value": 0.001, "bound": 0.001}},
        "rows": {"certificate": {"rows": 3}},
    }
    for place, change in changes[lie].items():
        data[place].update(change)
    (tmp_path / "table.json").write_text(signed(data))
    assert false_claims(audit([tmp_path / "table.json"]))


MARK = b"\xef\xbb\xbf"


def crlf(content: bytes) -> bytes:
    return content.replace(b"\n", b"\r\n")


SPELLINGS: dict[str, Callable[[bytes], bytes]] = {
    "as it is": bytes,
    "a spreadsheet's line ends": crlf,
    "a byte order mark": lambda content: MARK + content,
    "no last line break": lambda content: content[:-1],
    "all of it": lambda content: MARK + crlf(content)[:-2],
}


@pytest.mark.parametrize("spelling", SPELLINGS.values(), ids=SPELLINGS)
@pytest.mark.parametrize("name", ["labels.csv", "answers.csv"])
def test_another_program_may_have_written_the_labels(
    files: Path, name: str, spelling: Callable[[bytes], bytes]
) -> None:
    path = files / name
    path.write_bytes(spelling(path.read_bytes()))
    path.rename(files / "renamed.csv")
    found = judged(files, "renamed.csv")
    assert false_claims(found) == []
    changed = spelling(b"0\n") != b"0\n" and name != "answers.csv"  # numbered lines stand in any order anyway
    assert changed == any("another program wrote it" in verdict.reason for verdict in found.verdicts)


def test_another_program_may_have_written_the_table(files: Path) -> None:
    path = files / "table.json"
    digest = Table.load(path).digest
    path.write_bytes(MARK + crlf(json.dumps(json.loads(path.read_text()), indent=1).encode()))
    assert Table.load(path).digest == digest
    found = judged(files)
    assert false_claims(found) == []
    assert any(verdict.claim == "the file has a byte order mark" for verdict in found.verdicts)


@pytest.mark.parametrize("part", [slice(0, 9), slice(5, 24), slice(23, 24)])
def test_a_part_of_a_stream_has_its_numbers(files: Path, part: slice) -> None:
    lines = (files / "answers.csv").read_text().splitlines(keepends=True)
    (files / "answers.csv").write_text("".join(lines[part]))
    assert false_claims(judged(files, "answers.csv")) == []


def test_clocks_of_two_machines_may_differ_by_seconds(files: Path) -> None:
    connection = sqlite3.connect(files / "ledger.sqlite")
    time = connection.execute("SELECT time FROM charges WHERE id = 2").fetchone()[0]
    connection.close()
    earlier = np.datetime64(time[:-6]) - np.timedelta64(20, "s")
    forge(files, f"UPDATE charges SET time = '{earlier}+00:00' WHERE id = 2")
    assert false_claims(judged(files)) == []


def most_powerful(first: list[float], second: list[float], level: float) -> float:
    """Compute by Neyman and Pearson what a test can reach: events in the order of their ratios, the last one cut."""
    order = sorted(range(len(first)), key=lambda n: -first[n] / second[n])
    power = 0.0
    for n in order:
        part = min(1.0, level / second[n])
        power, level = power + part * first[n], level - part * second[n]
        if level <= 0.0:
            break
    return power


@pytest.mark.parametrize("queries", [1, 20])
def test_nobody_guesses_better_than_the_report_says(files: Path, queries: int) -> None:
    """All neighbors with probabilities of a grid: of so many labels only the number of ones matters."""
    table, level = Table.load(files / "table.json"), 0.05
    target, high = table.problem.target, exp(0.2) / (1 + exp(0.2))
    allowed = power_of_test(queries * target.epsilon, queries * target.delta)
    corners = [(0.0, 0.0), (1.0, 1.0), (0.0, 1e-5), (1e-5, 0.0), (high, 1 - high), (1 - high, high)]
    reached = 0.0
    for pairs in product(corners, repeat=3):
        one, other = (_probability(table, [pair[side] for pair in pairs]) for side in range(2))
        laws = [[comb(queries, n) * p**n * (1 - p) ** (queries - n) for n in range(queries + 1)] for p in (one, other)]
        reached = max(reached, most_powerful(laws[0], laws[1], level))
    assert level < reached <= allowed
    if queries == 1:
        assert reached > 0.999 * allowed  # the released law attains it


def _probability(table: Table, p: list[float]) -> float:
    """Compute Pr[label 1] by listing all votes."""
    total = 0.0
    for votes in product((0, 1), repeat=3):
        chance = np.prod([q if vote else 1 - q for vote, q in zip(votes, p, strict=True)])
        total += float(chance) * float((1 + Fraction(float(table.gamma.signed[sum(votes)]))) / 2)
    return total
