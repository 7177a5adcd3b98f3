"""A careful forger, who signs every row anew, and honest people whose files went through other programs."""
# ruff: noqa: S608 (statements are a test's own words)

import json
import shutil
import sqlite3
from collections.abc import Callable
from fractions import Fraction
from itertools import product
from math import comb, exp
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from darrm import Table
from darrm.account.meaning import power_of_test
from darrm.verify.audit import Audit, audit
from darrm.verify.verdicts import CONSISTENT, FALSE, UNKNOWN
from tests.relinked import relink
from tests.verify.lies import made_majority, signed


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("honest")
    made_majority(folder)
    return folder


@pytest.fixture
def files(made: Path, tmp_path: Path) -> Path:
    shutil.copytree(made, tmp_path / "files")
    return tmp_path / "files"


def judged(files: Path, labels: str = "labels.csv") -> Audit:
    return audit([files / "table.json", files / "ledger.sqlite", files / labels])


def false_claims(found: Audit) -> list[str]:
    return [str(verdict) for verdict in found.verdicts if verdict.verdict == FALSE]


@pytest.mark.parametrize("lie", ["note", "value", "both"])
def test_a_lie_in_a_table_is_false(made: Path, tmp_path: Path, lie: str) -> None:
    data = json.loads((made / "table.json").read_text(encoding="utf-8"))
    changes: dict[str, dict[str, Any]] = {
        "note": {"certificate": {"note": "proved in Lean"}},
        "value": {"optimality": {"value": 0.001}},
        "both": {"optimality": {"value": 0.001, "bound": 0.001}},
    }
    for place, change in changes[lie].items():
        data[place].update(change)
    (tmp_path / "table.json").write_text(json.dumps(signed(data)))
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


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    ("name", "spelling"),
    [
        *(pytest.param("labels.csv", one, id=f"labels, {name}") for name, one in SPELLINGS.items()),
        pytest.param("answers.csv", SPELLINGS["all of it"], id="answers, all of it"),
    ],
)
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


@pytest.mark.parametrize(("seconds", "verdict"), [(20, CONSISTENT), (300, UNKNOWN), (10**9, UNKNOWN)])
def test_a_clock_may_have_been_set_back(files: Path, seconds: int, verdict: str) -> None:
    connection = sqlite3.connect(files / "ledger.sqlite")
    time = connection.execute("SELECT time FROM entries WHERE id = 2").fetchone()[0]
    connection.close()
    earlier = np.datetime64(time[:-6]) - np.timedelta64(seconds, "s")
    relink(files / "ledger.sqlite", f"UPDATE entries SET time = '{earlier}+00:00' WHERE id = 2")
    found = judged(files)
    assert false_claims(found) == []
    assert [one.verdict for one in found.verdicts if one.claim.startswith("it was debited from")] == [verdict]


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
