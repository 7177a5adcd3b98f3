"""Hundreds of lies are false or cannot be known, honest files never are false, and damage never goes through."""
# ruff: noqa: S608 (statements are a test's own words)

import json
import random
import shutil
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from darrm.account.accountant import PrivacyAccountant
from darrm.aggregator import load_release
from darrm.errors import TableError
from darrm.verify.audit import audit, judge_file
from darrm.verify.chain import judge_history, judge_receipt, read_ledger, read_receipt
from darrm.verify.files import read_labels, read_pieces
from darrm.verify.ledger import judge_labels
from darrm.verify.verdicts import ASSUMED, CONSISTENT, FALSE, UNKNOWN, LedgerFaultError, ReceiptFaultError, Verdict
from tests.relinked import relink
from tests.verify.lies import FOLDERS, Case, audit_copy, list_honest_variations, list_lies, update_checksum

LIES, VARIATIONS = list_lies(), list_honest_variations()
Made = Callable[[str], Path]
EXTRAS = {"parquet": "pyarrow", "nested": "pyarrow"}
QUICK_FOLDERS = {"majority", "gnmax", "plan", "models", "exponential", "parquet", "nested", "drawn"}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """Make an honest folder, once."""
    root = tmp_path_factory.mktemp("honest")

    def make(name: str) -> Path:
        if name in EXTRAS:
            pytest.importorskip(EXTRAS[name])
        if not (root / name).exists():
            (root / name).mkdir()
            FOLDERS[name](root / name)
        return root / name

    return make


def marked(cases: Sequence[Case], one_in: int) -> list[Any]:
    """Mark all but some cases of each quick folder as slow."""
    parameters, seen = [], Counter[str]()
    for one in cases:
        is_quick = one.folder in QUICK_FOLDERS and seen[one.folder] % one_in == 0
        seen[one.folder] += 1
        parameters.append(pytest.param(one, id=str(one), marks=[] if is_quick else pytest.mark.slow))
    return parameters


@pytest.mark.quick_cases(8)
@pytest.mark.parametrize("lie", marked(LIES, 6))
def test_no_lie_is_missed(lie: Case, made: Made, tmp_path: Path) -> None:
    found = audit_copy(made(lie.folder), tmp_path / "folder", lie.change).verdicts
    is_unknown = lie.unknown and any(one.verdict in {UNKNOWN, ASSUMED} and lie.unknown in one.claim for one in found)
    assert is_unknown or FALSE in {one.verdict for one in found}


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("honest", marked(VARIATIONS, 4))
def test_nothing_honest_is_false(honest: Case, made: Made, tmp_path: Path) -> None:
    found = audit_copy(made(honest.folder), tmp_path / "folder", honest.change)
    assert [str(one) for one in found.verdicts if one.verdict == FALSE] == []
    assert [str(one) for one in found.verdicts if "judgement failed" in one.reason] == []
    totals = [one.verdict for one in found.verdicts if "answers as planned are" in one.claim]
    assert UNKNOWN not in totals or honest.folder == "fixed"  # every other total is proved, by the tightest bound


@pytest.mark.parametrize(("seconds", "verdict"), [(20, CONSISTENT), (300, UNKNOWN)])
def test_a_clock_may_have_been_set_back(made: Made, tmp_path: Path, seconds: int, verdict: str) -> None:
    files = Path(shutil.copytree(made("majority"), tmp_path / "files"))
    with closing(sqlite3.connect(files / "ledger.sqlite")) as connection:
        time = connection.execute("SELECT time FROM entries WHERE id = 2").fetchone()[0]
    earlier = np.datetime64(time[:-6]) - np.timedelta64(seconds, "s")
    relink(files / "ledger.sqlite", f"UPDATE entries SET time = '{earlier}+00:00' WHERE id = 2")
    found = audit([files / "table.json", files / "ledger.sqlite"])
    assert found.status == 0
    assert [one.verdict for one in found.verdicts if one.claim.startswith("it was debited from")] == [verdict]


# ------------------------------------------------------------------------------------------------ fields and bytes

# changes that make no statement untrue, and why
HARMLESS = {
    "/plan/workload/total/epsilon": "a larger budget",
    "/optimality/multipliers": "others may prove the same bound",
    "/optimality/status": "how the prover worked",
    "/optimality/prior/note": "no prior has such a field, and none is used",
    "/provenance": "a statement of the maker",
    "/certificate": "a cost below the true one is false; how the prover worked is not used",
}
NOT_CLAIMED = {"/plan", "/optimality"}  # whole: then nothing is claimed
JUDGED = ("/plan/workload", "/plan/spent/epsilon", "/plan/spent/delta")  # of a plan; accuracy is not
# the prover must load the file, and agree with its total
RECOMPUTED = (
    *("/mechanism/", "/gamma/", "/weights/", "/problem/target/"),
    *("/checksum", "/plan/workload/queries", "/plan/spent/epsilon"),
)
CLOSE = 1e-5  # relative: figures that agree are no other meaning


def meanings(first: Any, second: Any, path: str = "") -> Iterator[str]:
    """Yield where two JSON values differ in what they mean."""
    if isinstance(first, dict) and isinstance(second, dict):
        for name in sorted(first.keys() | second.keys()):
            if name not in first or name not in second:
                yield f"{path}/{name}"
            else:
                yield from meanings(first[name], second[name], f"{path}/{name}")
    elif isinstance(first, list) and isinstance(second, list) and len(first) == len(second):
        for place, pair in enumerate(zip(first, second, strict=True)):
            yield from meanings(*pair, f"{path}/{place}")
    elif first != second and not (isinstance(first, float) and second == pytest.approx(first, rel=CLOSE)):
        yield path


class Damage:
    """A file of one kind: what judges its bytes, and what they mean."""

    def __init__(self, folder: Path, scratch: Path) -> None:
        self.folder, self.scratch = folder, scratch
        honest = audit([folder])
        self.releases, self.ledgers, self.labels = (
            honest.releases,
            [one.ledger for one in honest.ledgers.values()],
            honest.labels,
        )

    def verdicts(self, content: bytes) -> list[Verdict] | None:
        """Judge it; None where it is refused."""
        raise NotImplementedError

    def same(self, honest: bytes, content: bytes) -> bool:
        """Whether two files mean the same."""
        raise NotImplementedError


class OfRelease(Damage):
    def verdicts(self, content: bytes) -> list[Verdict] | None:
        try:
            return judge_file(content)[1]
        except ValueError:  # no JSON
            return None

    def same(self, honest: bytes, content: bytes) -> bool:
        before, after = json.loads(honest), json.loads(content)
        return all(
            path.startswith(tuple(HARMLESS))
            or path in NOT_CLAIMED
            or (path.startswith("/plan/") and not path.startswith(JUDGED))
            or (path.startswith("/optimality/") and "gamma" not in before)  # accuracy: not judged, see formats.md
            or (path == "/optimality/bound" and is_weaker(before["optimality"], after["optimality"]))
            or (path.startswith(RECOMPUTED) and self._agrees(after, content))
            for path in meanings(before, after)
        )

    def _agrees(self, document: dict[str, Any], content: bytes) -> bool:
        """Whether the prover loads it, and its total of the plan is the stated one within a thousandth."""
        path = self.scratch / "release.json"
        path.write_bytes(content)
        try:
            release = load_release(path)
        except TableError:
            return False
        if "plan" not in document:
            return True
        stated, queries = document["plan"]["spent"], document["plan"]["workload"]["queries"]
        account = PrivacyAccountant(costs=[release.privacy_cost(queries)])
        return account.smallest_epsilon(stated["delta"]) <= 1.001 * stated["epsilon"]


def is_weaker(before: dict[str, float], after: dict[str, float]) -> bool:
    """Whether a bound on the optimum is farther from the value than before, on the same side."""
    return (after["bound"] - before["bound"]) * (before["bound"] - before["value"]) >= 0.0


class OfLedger(Damage):
    def verdicts(self, content: bytes) -> list[Verdict] | None:
        try:
            return list(judge_history(read_ledger({"": content}), [], []))
        except LedgerFaultError:
            return None

    def same(self, honest: bytes, content: bytes) -> bool:
        return self._rows(honest) == self._rows(content)

    @staticmethod
    def _rows(content: bytes) -> list[Any]:
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "copy").write_bytes(content)
            return OfLedger._tables(Path(folder) / "copy")

    @staticmethod
    def _tables(copy: Path) -> list[Any]:
        with closing(sqlite3.connect(copy)) as connection:
            budget = "epsilon, delta, composition, created, identity, population FROM budget"
            tables = (budget, "* FROM costs", "* FROM entries")
            return [connection.execute(f"SELECT {table}").fetchall() for table in tables]


class OfLabels(Damage):
    suffix = ".csv"

    def verdicts(self, content: bytes) -> list[Verdict] | None:
        path = self.scratch / f"labels{self.suffix}"
        path.write_bytes(content)
        try:
            read = next(read_pieces([path]))
        except (ValueError, OSError):
            return None
        assert read.labels is not None
        return list(judge_labels(read.labels, self.releases, self.ledgers, None))

    def same(self, honest: bytes, content: bytes) -> bool:
        found = []
        for one in (honest, content):
            path = self.scratch / f"same{self.suffix}"
            path.write_bytes(one)
            found.append(read_labels(path))
        if found[0].first is None or found[1].first is None:
            return found[0].first == found[1].first and [*map(found[0].names.__getitem__, found[0].places)] == [
                *map(found[1].names.__getitem__, found[1].places)
            ]
        # some of a stream's answers by their numbers are as true as all of them
        all_answers, answers = (dict(enumerate(one.labels.tolist(), one.first or 0)) for one in found)
        return answers.items() <= all_answers.items()


class OfArrays(OfLabels):
    suffix = ".npy"


class OfParquet(Damage):
    def verdicts(self, content: bytes) -> list[Verdict] | None:
        (self.folder / "labels" / "a.parquet").write_bytes(content)
        try:
            (found,) = read_pieces([self.folder / "labels"])
        except (ValueError, OSError):
            return None
        if found.labels is None:
            return None
        digests = [digest for _, _, digest in found.digests]
        return list(judge_labels(found.labels, self.releases, self.ledgers, None, digests))

    def same(self, honest: bytes, content: bytes) -> bool:
        parquet = pytest.importorskip("pyarrow.parquet")  # the ledger pays for labels; a receipt knows the bytes
        before, after = (parquet.read_table(BytesIO(one)).column(0).to_pylist() for one in (honest, content))
        return bool(before == after)


class OfReceipts(Damage):
    def verdicts(self, content: bytes) -> list[Verdict] | None:
        path = str(self.folder / "labels.csv.receipt.json")
        try:
            receipt = read_receipt(path, content)
        except ReceiptFaultError:
            return None
        heads = list(judge_history(self.ledgers[0], [receipt.digest], []))
        return [*heads, *judge_receipt(receipt, self.ledgers, self.labels, {})]

    def same(self, honest: bytes, content: bytes) -> bool:
        return list(meanings(json.loads(honest), json.loads(content))) in ([], ["/format"])


KINDS: dict[str, tuple[type[Damage], str, str]] = {
    "table": (OfRelease, "majority", "table.json"),
    "mechanism": (OfRelease, "exponential", "plan.json"),
    "receipt": (OfReceipts, "majority", "labels.csv.receipt.json"),
    "plan of a table": (OfRelease, "plan", "plan.json"),
    "plurality": (OfRelease, "plurality", "unused.json"),
    "plan of three classes": (OfRelease, "plurality", "plan.json"),
    "Gaussian mechanism": (OfRelease, "gnmax", "plan.json"),
    "ledger": (OfLedger, "gnmax", "ledger.sqlite"),
    "labels": (OfLabels, "majority", "labels.csv"),
    "stream": (OfLabels, "majority", "answers.csv"),
    "array": (OfArrays, "majority", "more.npy"),
    "Parquet": (OfParquet, "parquet", "labels/a.parquet"),
}


def other_values(value: Any) -> Iterator[Any]:
    """Yield values of the same type, and one of another."""
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, int | float):
        yield from (2 * value, 0.5 * value, 0.99 * value, value + 1, -value - 1)
    elif isinstance(value, str):
        with suppress(ValueError):
            yield from (repr(factor * float(value)) for factor in (0.5, 0.999, 2.0))
        yield "ab" * 32
    elif isinstance(value, list):
        yield from (value[:-1], [*value, *value[:1]])
    elif isinstance(value, dict):
        yield {**value, "note": "proved in Lean"}
    yield None if value is not None else {}


def changed_fields(data: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield paths and JSON in which this value is another or is missing; of a list the first and the last are tried."""
    is_judged = any(path.startswith(one) or one.startswith(path) for one in JUDGED)
    if path.startswith(tuple(HARMLESS)) or (path.startswith("/plan/") and not is_judged):
        return
    yield from ((f"{path} = {str(value)[:60]}", value) for value in other_values(data))
    for key in list(data) if isinstance(data, dict) else {0, len(data) - 1} if isinstance(data, list) and data else ():
        if isinstance(data, dict) and (key, data[key]) != ("classes", 2):  # the default
            yield f"{path}/{key} is missing", {name: value for name, value in data.items() if name != key}
        for where, value in changed_fields(data[key], f"{path}/{key}"):
            copy = data.copy()
            copy[key] = value
            yield where, copy


def mutated(content: bytes, rng: random.Random) -> tuple[str, bytes]:
    """Change one byte, half of the times to one that may be in such a file."""
    place = rng.randrange(len(content))
    now = content[place]
    others = [byte for byte in (b"0123456789.,\n" if rng.random() < 0.5 else range(256)) if byte != now]
    byte = bytes([rng.choice(others)])
    start, end = content[:place], content[place + 1 :]
    return f"at {place}: {start[-30:]!r} {byte!r} {end[:20]!r}", start + byte + end


def accepted(kind: str, made: Made, scratch: Path, change: Callable[[bytes], Iterable[tuple[str, bytes]]]) -> list[str]:
    """Return changes of a file that is accepted though it means something else."""
    judge, folder, name = KINDS[kind]
    damage, honest, wrong = judge(made(folder), scratch), (made(folder) / name).read_bytes(), list[str]()
    doubted = {(one.verdict, one.claim) for one in damage.verdicts(honest) or []}
    for what, content in change(honest):
        verdicts = damage.verdicts(content)
        if verdicts is None or any(one.verdict == FALSE for one in verdicts):
            continue
        if any(one.verdict in {UNKNOWN, ASSUMED} and (one.verdict, one.claim) not in doubted for one in verdicts):
            continue
        if not damage.same(honest, content):
            wrong.append(what)
    (made(folder) / name).write_bytes(honest)
    return wrong


def fields(content: bytes) -> Iterator[tuple[str, bytes]]:
    for path, data in changed_fields(json.loads(content)):
        is_table = isinstance(data, dict) and {"problem", "checksum"} <= data.keys()
        yield path, json.dumps(update_checksum(data) if is_table else data).encode()


@pytest.mark.parametrize("kind", ["table", "mechanism", "receipt"])
def test_no_changed_field_is_accepted(kind: str, made: Made, tmp_path: Path) -> None:
    assert "\n".join(accepted(kind, made, tmp_path, fields)) == ""


def bytes_of(times: int) -> Callable[[bytes], Iterator[tuple[str, bytes]]]:
    rng = random.Random(31)  # noqa: S311 (damage is no secret)
    return lambda content: (mutated(content, rng) for _ in range(times))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_no_changed_byte_is_accepted(kind: str, made: Made, tmp_path: Path) -> None:
    times = 300 if kind == "Parquet" else 10_000  # Parquet: a process a file
    assert accepted(kind, made, tmp_path, bytes_of(times)) == []


@pytest.mark.parametrize("kind", ["labels", "receipt"])
def test_few_changed_bytes_are_not_accepted(kind: str, made: Made, tmp_path: Path) -> None:
    assert accepted(kind, made, tmp_path, bytes_of(100)) == []
