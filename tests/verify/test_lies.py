"""The verifier accepts no lie and no damage that changes a meaning, and calls nothing honest false."""

import json
import random
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from functools import partial
from operator import itemgetter
from pathlib import Path
from shutil import copy
from typing import Any

import numpy as np
import pytest

from darrm import PrivacyLedger, release_debited
from darrm.account.accountant import PrivacyAccountant
from darrm.aggregator import CLAIMS, load_release
from darrm.errors import TableError
from darrm.verify.audit import Audit, audit, judge_file
from darrm.verify.chain import judge_history, judge_receipt, read_ledger, read_public_key, read_receipt
from darrm.verify.files import read_labels, read_pieces
from darrm.verify.ledger import judge_labels
from darrm.verify.verdicts import ASSUMED, CONSISTENT, FALSE, UNKNOWN, Verdict
from tests.doors import validated
from tests.relinked import relink
from tests.verify.folders import FOLDERS, RESAMPLED
from tests.verify.lies import (
    PLANS,
    Change,
    Json,
    Lie,
    change_fields,
    drop_receipts,
    edit_lines,
    list_lies,
    store_waiting_label,
    update_checksum,
)

QUICK_FOLDERS = {"majority", "gnmax", "plan", "models", "exponential", "parquet", "nested", "drawn", "signed"}
CHEAP_FOLDERS = {"figures", "card"}
Folders = Callable[[str], Path]


def mark_lies(lies: Sequence[Lie]) -> Iterator[Any]:
    """Mark all lies as slow except the first of each claim and each name in quick folders, and cheap ones."""
    seen = set[object]()
    for lie in lies:
        keys = {(lie.folder, lie.claim)} if lie.folder == "parquet" else {(lie.folder, lie.claim), lie.name}
        is_quick = lie.folder in CHEAP_FOLDERS or (lie.folder in QUICK_FOLDERS and not keys <= seen)
        seen |= keys if is_quick else set()
        yield pytest.param(lie, id=str(lie), marks=[] if is_quick else pytest.mark.slow)


@pytest.mark.parametrize("lie", list(mark_lies(list_lies())))
def test_no_lie_is_accepted(lie: Lie, copied: Folders) -> None:
    folder = copied(lie.folder)
    lie.change(folder)
    public_key = folder / ".signer.key.pub"
    verdicts = audit([folder], keys=[read_public_key(public_key)] if public_key.exists() else ()).verdicts
    false_texts = [str(verdict) for verdict in verdicts if verdict.verdict == FALSE]
    if lie.is_refutable:
        assert any(lie.claim in text for text in false_texts)
    else:
        is_open = any(verdict.verdict in {UNKNOWN, ASSUMED} and lie.claim in verdict.claim for verdict in verdicts)
        assert is_open or false_texts


# ------------------------------------------------------------------------------------------------ honest variations


def rewrite(name: str, write: Callable[[bytes], bytes], folder: Path) -> None:
    (folder / name).write_bytes(write((folder / name).read_bytes()))


def rename(old: str, new: str, folder: Path) -> None:
    (folder / old).rename(folder / new)


def copy_file(old: str, new: str, folder: Path) -> None:
    copy(folder / old, folder / new)


def delete(pattern: str, folder: Path) -> None:
    for path in folder.glob(pattern):
        path.unlink()


def dump_json(**settings: Any) -> Callable[[bytes], bytes]:
    return lambda old: json.dumps(json.loads(old), **settings).encode()


def debit_again(folder: Path) -> None:
    """Release once more, after the receipts were written."""
    votes = np.random.default_rng(9).integers(0, 2, (5, 3))
    ledger = PrivacyLedger(folder / "ledger.sqlite")
    release_debited(load_release(folder / "table.json"), votes, ledger=ledger, output=folder / "third.csv")


BYTE_ORDER_MARK = b"\xef\xbb\xbf"
LABEL_FORMATS: dict[str, Callable[[bytes], bytes]] = {
    "a byte order mark": lambda old: BYTE_ORDER_MARK + old,
    "a spreadsheet's line ends": lambda old: old.replace(b"\n", b"\r\n"),
    "no last line end": lambda old: old.removesuffix(b"\n"),
}
JSON_FORMATS = {
    "no indent": dump_json(),
    "a large indent": dump_json(indent=7),
    "sorted keys": dump_json(sort_keys=True),
    "letters beyond ASCII": dump_json(ensure_ascii=False),
    "a byte order mark and line ends": lambda old: BYTE_ORDER_MARK + old.replace(b"\n", b"\r\n"),
}
LABEL_FILES = [
    ("majority", "labels.csv"),
    ("majority", "answers.csv"),
    ("gnmax", "labels.csv"),
    ("differing", "labels.csv"),
]
JSON_FILES = [
    *[(folder, "plan.json") for folder in ("plan", "plurality", "shaped", "flip")],
    ("majority", "table.json"),
    ("majority", "labels.csv.receipt.json"),
]
ANY_ROWS: list[Callable[[list[str]], list[str]]] = [
    *map(itemgetter, (slice(0, 9), slice(5, 24), slice(23, 24))),
    lambda old: old[::-1],
    lambda old: [*old, old[3]],
]
VARIATIONS: list[tuple[str, str, Change]] = [
    *[(folder, "unchanged", lambda _: None) for folder in FOLDERS],
    *[
        (folder, f"{file} with {name}", partial(rewrite, file, write))
        for files, formats in ((LABEL_FILES, LABEL_FORMATS), (JSON_FILES, JSON_FORMATS))
        for folder, file in files
        for name, write in formats.items()
    ],
    *[
        ("majority", f"rows of a stream {n}", partial(edit_lines, "answers.csv", edit))
        for n, edit in enumerate(ANY_ROWS)
    ],
    ("majority", "a renamed table", partial(rename, "table.json", "law.json")),
    ("majority", "a renamed ledger", partial(rename, "ledger.sqlite", "paid.db")),
    ("majority", "a renamed stream", partial(rename, "answers.csv", "b.csv")),
    ("gnmax", "renamed labels", partial(rename, "more.csv", "second.csv")),
    ("parquet", "a renamed folder", partial(rename, "labels", "drawn")),
    ("majority", "a copy of the ledger", partial(copy_file, "ledger.sqlite", "backup.sqlite")),
    ("gnmax", "a copy of the plan", partial(copy_file, "plan.json", "plan (1).json")),
    ("majority", "a copy of labels", partial(copy_file, "labels.csv", "labels (1).csv")),
    ("majority", "no labels", partial(delete, "*.csv")),
    ("majority", "no ledger", partial(delete, "ledger.sqlite")),
    ("gnmax", "no plan", partial(delete, "plan.json")),
    ("lnmax", "no second file of labels", partial(delete, "more.csv")),
    ("plan", "no receipts", drop_receipts()),
    ("plan", "no claims of the plan", partial(change_fields, "plan.json", {"plan": None})),
    ("majority", "another number of proved rows", partial(change_fields, "table.json", {"certificate/rows": 10**18})),
    ("majority", "notes", lambda folder: (folder / "notes.txt").write_text("ask Ada\n")),
    ("majority", "a waiting label", partial(store_waiting_label, 1)),
    ("majority", "a second debit after the receipts", debit_again),
]


def mark_slow_folders(names: Iterable[str]) -> Iterator[Any]:
    yield from (pytest.param(name, marks=[] if name in QUICK_FOLDERS else pytest.mark.slow) for name in names)


def mark_variations() -> Iterator[Any]:
    """Mark all variations as slow except every fourth of a quick folder."""
    numbers = dict.fromkeys(FOLDERS, 0)
    for folder, name, change in VARIATIONS:
        is_quick = folder in QUICK_FOLDERS and numbers[folder] % 4 == 0
        numbers[folder] += 1
        yield pytest.param(folder, change, id=f"{folder}: {name}", marks=[] if is_quick else pytest.mark.slow)


@pytest.mark.parametrize(("folder", "change"), list(mark_variations()))
def test_no_honest_folder_is_called_false(folder: str, change: Change, copied: Folders) -> None:
    path = copied(folder)
    change(path)
    verdicts = audit([path]).verdicts
    assert [str(v) for v in verdicts if v.verdict == FALSE or "judgement failed" in v.reason] == []
    totals = [verdict.verdict for verdict in verdicts if "answers as planned are" in verdict.claim]
    assert UNKNOWN not in totals or folder == "fixed"  # every other total is proved, by the tightest bound


@pytest.mark.parametrize("name", list(mark_slow_folders([*PLANS, *RESAMPLED])))
def test_a_plan_fits_its_schema_and_costs_as_much_without_its_claims(
    name: str, honest: Folders, tmp_path: Path
) -> None:
    path, bare = honest(name) / "plan.json", tmp_path / "bare.json"
    data = json.loads(path.read_text())
    schema = "gamma_table" if "gamma" in data else "plurality_table" if "weights" in data else "release"
    claims = validated(data, schema).pop(CLAIMS)
    assert claims["spent"]["epsilon"] > 0.0
    bare.write_text(json.dumps(data))
    assert load_release(bare).privacy_cost() == load_release(path).privacy_cost()


@pytest.mark.parametrize(("seconds", "verdict"), [(20, CONSISTENT), (300, UNKNOWN)])
def test_times_may_decrease_by_a_minute_and_are_unknown_beyond(seconds: int, verdict: str, copied: Folders) -> None:
    ledger = copied("majority") / "ledger.sqlite"
    with closing(sqlite3.connect(ledger)) as connection:
        time = connection.execute("SELECT time FROM entries WHERE id = 2").fetchone()[0]
    earlier = np.datetime64(time[:-6]) - np.timedelta64(seconds, "s")
    relink(ledger, f"UPDATE entries SET time = '{earlier}+00:00' WHERE id = 2")  # noqa: S608 (a time)
    result = audit([ledger.with_name("table.json"), ledger])
    assert result.status == 0
    assert [one.verdict for one in result.verdicts if one.claim.startswith("it was debited from")] == [verdict]


# ------------------------------------------------------------------------------------------------ fields and bytes

# changes that make no statement untrue: a larger budget, another proof of the same bound, statements of the maker, and
# how the prover worked
HARMLESS = (
    "/plan/workload/total/epsilon",
    *("/optimality/multipliers", "/optimality/status", "/optimality/prior/note", "/provenance", "/certificate"),
)
NOT_CLAIMED = {"/plan", "/optimality"}  # without the whole field nothing is claimed
JUDGED = ("/plan/workload", "/plan/spent/epsilon", "/plan/spent/delta")  # of a plan; accuracy is not
# the prover must load the file, and agree with its total
RECOMPUTED = (
    *("/mechanism/", "/gamma/", "/weights/", "/problem/target/"),
    *("/checksum", "/plan/workload/queries", "/plan/spent/epsilon"),
)
CLOSE = 1e-5  # relative: numbers that are closer have the same meaning
KINDS = {
    "table": ("majority", "table.json"),
    "mechanism": ("exponential", "plan.json"),
    "plan of a table": ("plan", "plan.json"),
    "plurality": ("plurality", "unused.json"),
    "plan of three classes": ("plurality", "plan.json"),
    "Gaussian mechanism": ("gnmax", "plan.json"),
    "receipt": ("majority", "labels.csv.receipt.json"),
    "ledger": ("gnmax", "ledger.sqlite"),
    "labels": ("majority", "labels.csv"),
    "stream": ("majority", "answers.csv"),
    "array": ("majority", "more.npy"),
    "Parquet": ("parquet", "labels/a.parquet"),
}


def judge_again(result: Audit, path: Path) -> Iterable[Verdict]:
    """Judge a file that was changed after the audit of its folder."""
    ledgers = [item.ledger for item in result.ledgers.values()]
    if path.suffix == ".sqlite":
        return judge_history(read_ledger({"": path.read_bytes()}), [], [])
    if path.name.endswith(".receipt.json"):
        receipt = read_receipt(str(path), path.read_bytes())
        return [*judge_history(ledgers[0], [receipt.digest], []), *judge_receipt(receipt, ledgers, result.labels, {})]
    if path.suffix == ".json":
        return judge_file(path.read_bytes())[1]
    (piece,) = read_pieces([path.parent if path.suffix == ".parquet" else path])
    if piece.labels is None:
        raise ValueError(piece.reason)
    digests = [digest for _, _, digest in piece.digests] if piece.is_parquet else ()
    return judge_labels(piece.labels, result.releases, ledgers, None, digests)


def read_meaning(path: Path) -> Any:
    """Read what a file states, in a form that can be compared."""
    if path.suffix == ".sqlite":
        with closing(sqlite3.connect(path)) as connection:
            budget = "epsilon, delta, composition, created, identity, population FROM budget"
            queries = [f"SELECT {columns}" for columns in (budget, "* FROM costs", "* FROM entries")]
            return [connection.execute(query).fetchall() for query in queries]
    if path.suffix == ".parquet":  # the ledger pays for labels; a receipt knows the bytes
        return pytest.importorskip("pyarrow.parquet").read_table(path).column(0).to_pylist()
    if path.suffix == ".json":
        return json.loads(path.read_bytes())
    labels = read_labels(path)
    return labels.labels.tolist() if labels.first is None else dict(enumerate(labels.labels.tolist(), labels.first))


def is_same(before: Any, after: Any, path: Path) -> bool:
    if path.name.endswith(".receipt.json"):
        return list(list_differences(before, after)) in ([], ["/format"])
    if path.suffix != ".json":
        # some numbered answers of a stream are as true as all of them
        return bool(before == after or (isinstance(before, dict) and before.items() >= after.items()))
    return all(
        field.startswith(HARMLESS)
        or field in NOT_CLAIMED
        or (field.startswith("/plan/") and not field.startswith(JUDGED))
        or (field.startswith("/optimality/") and "gamma" not in before)  # accuracy: not judged, see formats.md
        or (field == "/optimality/bound" and is_weaker(before["optimality"], after["optimality"]))
        or (field.startswith(RECOMPUTED) and does_prover_agree(after, path))
        for field in list_differences(before, after)
    )


def list_differences(first: Any, second: Any, path: str = "") -> Iterator[str]:
    """Yield the paths where two JSON values have different meanings."""
    if isinstance(first, dict) and isinstance(second, dict):
        for name in sorted(first.keys() | second.keys()):
            if name not in first or name not in second:
                yield f"{path}/{name}"
            else:
                yield from list_differences(first[name], second[name], f"{path}/{name}")
    elif isinstance(first, list) and isinstance(second, list) and len(first) == len(second):
        for place, pair in enumerate(zip(first, second, strict=True)):
            yield from list_differences(*pair, f"{path}/{place}")
    elif first != second and not (isinstance(first, float) and second == pytest.approx(first, rel=CLOSE)):
        yield path


def is_weaker(before: dict[str, float], after: dict[str, float]) -> bool:
    """Whether a bound on the optimum is farther from the value than before, on the same side."""
    return (after["bound"] - before["bound"]) * (before["bound"] - before["value"]) >= 0.0


def does_prover_agree(document: Json, path: Path) -> bool:
    """Whether the prover loads a release, and its total of the plan is the stated one within a thousandth."""
    try:
        release = load_release(path)
    except TableError:
        return False
    if "plan" not in document:
        return True
    spent, queries = document["plan"]["spent"], document["plan"]["workload"]["queries"]
    account = PrivacyAccountant(costs=[release.privacy_cost(queries)])
    return account.smallest_epsilon(spent["delta"]) <= 1.001 * spent["epsilon"]


def list_accepted(path: Path, result: Audit, change: Callable[[bytes], Iterable[tuple[str, bytes]]]) -> list[str]:
    """Return the changes of a file that are accepted although it means something else."""
    honest, meaning, accepted = path.read_bytes(), read_meaning(path), list[str]()
    open_claims = {(verdict.verdict, verdict.claim) for verdict in judge_again(result, path)}
    for name, content in change(honest):
        path.write_bytes(content)
        try:
            verdicts = list(judge_again(result, path))
        except (ValueError, OSError):  # it is refused
            continue
        is_doubted = any(
            verdict.verdict == FALSE
            or (verdict.verdict in {UNKNOWN, ASSUMED} and (verdict.verdict, verdict.claim) not in open_claims)
            for verdict in verdicts
        )
        if not is_doubted and not is_same(meaning, read_meaning(path), path):
            accepted.append(name)
    return accepted


def list_other_values(value: Any) -> Iterator[Any]:
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


def change_each_field(data: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield paths and JSON with another value or none at this path; of a list the first and the last are changed."""
    is_judged = any(path.startswith(judged) or judged.startswith(path) for judged in JUDGED)
    if path.startswith(HARMLESS) or (path.startswith("/plan/") and not is_judged):
        return
    yield from ((f"{path} = {str(value)[:60]}", value) for value in list_other_values(data))
    for key in list(data) if isinstance(data, dict) else {0, len(data) - 1} if isinstance(data, list) and data else ():
        if isinstance(data, dict) and (key, data[key]) != ("classes", 2):  # the default
            yield f"{path}/{key} is missing", {name: value for name, value in data.items() if name != key}
        for where, value in change_each_field(data[key], f"{path}/{key}"):
            changed = data.copy()
            changed[key] = value
            yield where, changed


def change_fields_of_file(content: bytes) -> Iterator[tuple[str, bytes]]:
    for path, data in change_each_field(json.loads(content)):
        is_table = isinstance(data, dict) and {"problem", "checksum"} <= data.keys()
        yield path, json.dumps(update_checksum(data) if is_table else data).encode()


def change_bytes(times: int, content: bytes) -> Iterator[tuple[str, bytes]]:
    """Change one byte, half of the times to one that may be in such a file."""
    rng = random.Random(31)  # noqa: S311 (damage is no secret)
    for _ in range(times):
        place = rng.randrange(len(content))
        candidates = b"0123456789.,\n" if rng.random() < 0.5 else range(256)
        byte = bytes([rng.choice([byte for byte in candidates if byte != content[place]])])
        start, end = content[:place], content[place + 1 :]
        yield f"at {place}: {start[-30:]!r} {byte!r} {end[:20]!r}", start + byte + end


@pytest.mark.parametrize("kind", ["table", "mechanism", "receipt"])
def test_no_changed_field_is_accepted(kind: str, copied: Folders) -> None:
    name, file = KINDS[kind]
    folder = copied(name)
    assert list_accepted(folder / file, audit([folder]), change_fields_of_file) == []


@pytest.mark.parametrize(
    ("kind", "times"),
    [
        ("labels", 100),
        ("receipt", 100),
        # each Parquet file is read in a process of its own
        *[pytest.param(kind, 300 if kind == "Parquet" else 10_000, marks=pytest.mark.slow) for kind in KINDS],
    ],
)
def test_no_changed_byte_is_accepted(kind: str, times: int, copied: Folders) -> None:
    name, file = KINDS[kind]
    folder = copied(name)
    assert list_accepted(folder / file, audit([folder]), partial(change_bytes, times)) == []
