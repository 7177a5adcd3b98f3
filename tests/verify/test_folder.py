"""A whole folder in one audit: what each file is, claims between files, what is not judged, and files of anything.

Bombs, small files that ask for much memory, are judged in a process that may have one gigabyte, within ten seconds of
its processor.
"""

import hashlib
import io
import json
import os
import random
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from darrm import NoiseFunction, PrivacyLedger, PrivacyParams, Problem, Voters, Votes, certify, release_debited
from darrm.commands.command_line import run
from darrm.noisy_max.mechanisms import GNMax
from darrm.noisy_max.noisy_maximum import NoisyMaximum
from darrm.noisy_max.selection import ExponentialMechanism
from darrm.table.release import Release
from darrm.verify.__main__ import main
from darrm.verify.audit import Audit, audit, html_report, json_report, text_report
from darrm.verify.files import read_parquet_labels
from darrm.verify.verdicts import ASSUMED, FALSE, PROVED, UNKNOWN
from darrm.votes.parquet_file import record_batches
from tests.doors import refused

LIMITED = (
    "import resource, runpy, sys; resource.setrlimit(resource.RLIMIT_AS, (2**30, 2**30)); "
    "resource.setrlimit(resource.RLIMIT_CPU, (120, 120)); runpy.run_module(sys.argv.pop(1), run_name='__main__')"
)
TABLE = certify(Problem(Voters(3, PrivacyParams("0.2")), PrivacyParams("0.3")), NoiseFunction(3, [0.3, 0.5]))


def limited(module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", LIMITED, module, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def zipped(path: Path, content: bytes) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("schema.json", content)


def parquet(path: Path, column: Any, **how: Any) -> None:
    arrow, files = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    files.write_table(arrow.table({"label": column}), path, compression="zstd", **how)


def equal_rows(path: Path, rows: int, text: str) -> None:
    arrow = pytest.importorskip("pyarrow")
    column = arrow.DictionaryArray.from_arrays(arrow.array(np.zeros(rows, np.int8)), arrow.array([text]))
    parquet(path, column, row_group_size=rows)


def test_the_refusal_of_a_parquet_file_without_its_rows_is_a_sentence(tmp_path: Path) -> None:
    arrow, files = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "labels.parquet"
    files.write_table(arrow.table({"label": np.arange(30) % 2}), path, use_dictionary=False, compression="none")
    content = bytearray(path.read_bytes())
    content[5] = 0x39  # another kind of page, which pyarrow skips in silence
    path.write_bytes(content)
    with pytest.raises(ValueError, match="holds no labels: it lacks 30 of its rows"):
        read_parquet_labels([path])


def sparse(path: Path, start: bytes) -> None:
    path.write_bytes(start)
    os.truncate(path, 2**30)


def long_gamma(path: Path) -> None:
    """A table whose proof takes the prover minutes."""
    data: dict[str, Any] = json.loads(json.dumps(TABLE.to_json()))
    data["problem"]["K"], data["gamma"] = 20_001, [1e-9, 0.0] * 5000 + [1e-9]
    text = json.dumps({name: data[name] for name in ("problem", "gamma")}, sort_keys=True, separators=(",", ":"))
    path.write_text(json.dumps({**data, "checksum": hashlib.sha256(text.encode()).hexdigest()}))


BOMBS: dict[str, Callable[[Path], object]] = {
    "unknown.bin": lambda path: sparse(path, b""),
    "ledger.sqlite": lambda path: sparse(path, b"SQLite format 3\0"),
    "zeros.npy": lambda path: sparse(path, npy_header(2**30 - 128)),
    "gamma.json": long_gamma,
    "lists.json": lambda path: path.write_bytes(b"[" + b"[]," * 5_000_000 + b"[]]"),
    "large.json": lambda path: path.write_bytes(b"[" + b"1.5," * 5_000_000 + b"1]"),
    "large.skops": lambda path: zipped(path, b'"' + b"x" * 200_000_000 + b'"'),
    "rows.parquet": lambda path: equal_rows(path, 2**27 + 1, "a"),
    "unfolds.parquet": lambda path: equal_rows(path, 60_000, "x" * 1_000_000),
    "page.parquet": lambda path: parquet(path, ["x" * 300_000_000]),
    "different.csv": lambda path: path.write_text("".join(f"w{number}\n" for number in range(600_000))),
    "numbers.csv": lambda path: path.write_text("".join(f"{number},1\n" for number in range(4_200_000))),
    "one-long.csv": lambda path: path.write_bytes(b"a\n" * 1_000_000 + b"b" * 200 + b"\n"),
    "line.csv": lambda path: path.write_bytes(b"a" * 50_000_000),
    "quotes.csv": lambda path: path.write_bytes(b'"' + b'""' * 5_000_000),
}
LABELS: dict[str, Callable[[Path], object]] = {
    "digits.csv": lambda path: path.write_bytes(b"0\n" * 50_000_000),
    "words.csv": lambda path: path.write_bytes(b"yes\nno\n" * 14_000_000),
    "rows.parquet": lambda path: equal_rows(path, 100_000_000, "a"),
}


def npy_header(count: int) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": "|i1", "fortran_order": False, "shape": (count,)})
    return file.getvalue()


@pytest.mark.slow
@pytest.mark.parametrize("name", BOMBS)
def test_no_bomb_of_a_folder_fills_the_memory(name: str, tmp_path: Path) -> None:
    BOMBS[name](tmp_path / name)
    TABLE.save(tmp_path / "table.json")
    done = limited("darrm.verify", str(tmp_path), "--quiet", "--format", "json")
    assert done.returncode == 0, done.stderr
    verdicts = json.loads(done.stdout)["verdicts"]
    assert any(Path(one["file"]).name == name for one in verdicts) or name.endswith(".parquet")
    assert any(one["file"].endswith("table.json") and one["verdict"] == PROVED for one in verdicts)


@pytest.mark.slow
@pytest.mark.parametrize("name", LABELS)
def test_many_labels_are_streamed(name: str, tmp_path: Path) -> None:
    LABELS[name](tmp_path / name)
    done = limited("darrm.verify", str(tmp_path / name), "--quiet", "--format", "json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["labels"][0]["labels"] >= 28_000_000


@pytest.mark.slow
@pytest.mark.parametrize("bomb", ["page", "unfolds"])
def test_no_bomb_of_votes_fills_the_memory(bomb: str, tmp_path: Path) -> None:
    arrow, files = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    column = arrow.array(["x" * 100_000_000])
    if bomb == "unfolds":
        places = arrow.array(np.zeros(60_000, np.int8))
        column = arrow.DictionaryArray.from_arrays(places, arrow.array(["x" * 1_000_000]))
    files.write_table(arrow.table(dict.fromkeys("abc", column)), tmp_path / "votes.parquet", compression="zstd")
    TABLE.save(tmp_path / "table.json")
    budget = ["--ledger", str(tmp_path / "ledger.sqlite"), "--create-budget", "9,1e-5", "--classes", "no,yes"]
    where = ["--table", str(tmp_path / "table.json"), "--output", str(tmp_path / "out.parquet")]
    done = limited("darrm.release", str(tmp_path / "votes.parquet"), *where, *budget)
    assert done.returncode == 2, done.stderr
    assert ("unfold" if bomb == "page" else "is none of the classes") in done.stderr


def test_pages_are_measured_as_they_were_written(tmp_path: Path) -> None:
    files = pytest.importorskip("pyarrow.parquet")
    from darrm.votes import parquet_file

    rng = np.random.default_rng(0)
    for version, size in (("1.0", 2**10), ("2.0", 2**14)):
        numbers = rng.integers(0, 2**60, 50_000)
        parquet(tmp_path / "a.parquet", numbers, use_dictionary=False, data_page_size=size, data_page_version=version)
        with (tmp_path / "a.parquet").open("rb") as raw:
            [chunk] = parquet_file._read_chunks(raw)
            found = parquet_file._find_largest_page(raw, chunk)
        column = files.read_metadata(tmp_path / "a.parquet").row_group(0).column(0)
        assert (chunk[7], chunk[9], chunk[5]) == (column.total_compressed_size, column.data_page_offset, 50_000)
        assert size <= found <= 2 * size + 2**13


def varint(value: int) -> bytes:
    """Write a number as Thrift does in a page's header."""
    value *= 2
    parts = [value >> shift & 127 | 128 for shift in range(0, max(1, value.bit_length()), 7)]
    return bytes([*parts[:-1], parts[-1] & 127])


@pytest.mark.slow
def test_a_page_that_claims_two_gigabytes_gets_one_line(tmp_path: Path) -> None:
    own, size = tmp_path / "page.parquet", 2**24
    parquet(own, ["x" * size], use_dictionary=False, write_statistics=False)
    content, told = own.read_bytes(), varint(size + 10)  # with the levels of its row
    assert content.count(told) == 1
    for claimed in (size + 10, 2**31 - 1):
        own.write_bytes(content.replace(told, varint(claimed)))
        done = limited("darrm.verify", str(own))
        assert (done.returncode, done.stderr.count("\n")) == (2, 1)
        assert done.stderr.startswith(f"error: '{own}' ")


@pytest.mark.parametrize("rows", [0, 1, 5000])
def test_parquet_files_that_were_damaged_are_refused_in_words(rows: int, tmp_path: Path) -> None:
    parquet(tmp_path / "a.parquet", [f"word {row % 9}" for row in range(rows)], data_page_size=2**9)
    content, rng = (tmp_path / "a.parquet").read_bytes(), np.random.default_rng(rows)
    assert sum(batch.num_rows for batch in record_batches(tmp_path / "a.parquet", ["label"])) == rows
    for _ in range(150):
        damaged = bytearray(content)
        damaged[rng.integers(len(damaged))] ^= 1 << int(rng.integers(8))
        (tmp_path / "a.parquet").write_bytes(damaged)
        try:
            list(record_batches(tmp_path / "a.parquet", ["label"]))
        except ValueError as error:
            assert "\n" not in str(error)  # noqa: PT017 (one line)


SECRET = "db.example:5432:*:admin:correct horse battery"  # noqa: S105 (of nobody)


@pytest.mark.parametrize("name", ["labels.csv", "plan.json", "notes.txt", "key", "labels.npy", "e.skops"])
@pytest.mark.parametrize("how", ["link", "copy"])
def test_no_report_quotes_a_file_that_is_not_what_it_seems(name: str, how: str, tmp_path: Path) -> None:
    own, folder = tmp_path / "pgpass", tmp_path / "folder"
    folder.mkdir()
    own.write_text(f"{SECRET}\n")
    TABLE.save(folder / "table.json")
    if how == "link":
        (folder / name).symlink_to(own)
        (folder / "table.sqlite-journal").symlink_to(own)
    else:
        shutil.copy(own, folder / name)
    found = audit([folder])
    shown = text_report(found) + html_report(found) + json.dumps(json_report(found))
    assert not [part for part in SECRET.split() if part in shown]
    assert any(Path(one.file).name == name for one in found.verdicts)
    if how == "link":
        reasons = [one.reason for one in found.verdicts if Path(one.file).name == name]
        assert reasons == ["it is a link that leaves the folder: name its target"]
        assert name not in {Path(file.path).name for file in found.files}


def test_a_link_within_the_folder_is_followed_and_a_journal_is_none(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    TABLE.save(folder / ".table.json")
    (folder / "table.json").symlink_to(".table.json")
    PrivacyLedger.create(folder / "ledger.sqlite", PrivacyParams(1, "1e-5"))
    (folder / "ledger.sqlite-journal").symlink_to("/dev/zero")
    found = audit([folder])
    assert len(found.releases) == 1
    assert not found.ledgers


@pytest.fixture(scope="module")
def one_of_each(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of each kind."""
    folder = tmp_path_factory.mktemp("kinds")
    TABLE.save(folder / "table.json")
    ledger = PrivacyLedger.create(folder / "ledger.sqlite", PrivacyParams(9, "1e-5"))
    votes = np.random.default_rng(0).integers(0, 2, (9, 3))
    for name in ("labels.csv", "labels.npy"):
        release_debited(Release(TABLE), votes, ledger=ledger, output=folder / name)
    parquet(folder / "labels.parquet", [0, 1, 1])
    node = {"__class__": "dict", "content": {"kind": {"__class__": "str", "content": '"X"'}}}
    zipped(folder / "e.skops", json.dumps(node).encode())
    (folder / "card.md").write_text(f"# Model card: PATEClassifier\n{ledger.digest().to_text()}\n")
    (folder / "figure.json").write_text(json.dumps({"format": "darrm sanitized figure", "version": 1}))
    return folder


ODD: list[Any] = [None, [], {}, "", "x", -1, 1e308, True, [[]], {"format": []}, 10**400]


def mutations(content: bytes, rng: random.Random) -> list[bytes]:
    """Bytes that are gone, doubled, flipped or others, and JSON in which any value is any other."""
    found = [b"", content[: len(content) // 2], content * 2, b"[" * 100_000, b"\xff" + content]
    for _ in range(12):
        damaged = bytearray(content or b"x")
        damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
        found.append(bytes(damaged))
    try:
        data = json.loads(content)
    except ValueError:
        return found
    places = [(data, name) for name in data] if isinstance(data, dict) else []
    for holder, name in list(places):
        inner = holder[name]
        keys = list(inner) if isinstance(inner, dict) else range(min(2, len(inner))) if isinstance(inner, list) else []
        places += [(inner, key) for key in keys]
    for holder, name in places:
        kept = holder[name]
        for odd in rng.sample(ODD, 4):
            holder[name] = odd
            found.append(json.dumps(data).encode())
        holder[name] = kept
    return found


KINDS = [
    *("table.json", "ledger.sqlite", "labels.csv", "labels.npy", "e.skops", "card.md"),
    *("figure.json", "labels.csv.receipt.json", pytest.param("labels.parquet", marks=pytest.mark.slow)),
]


@pytest.mark.parametrize("name", KINDS)
def test_each_file_gets_a_verdict_whatever_is_in_it(name: str, one_of_each: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(one_of_each, tmp_path / "folder"))
    others = {"labels.npy"} - {name}
    for path in folder.iterdir():  # two files are quicker than nine
        if path.name not in {name, *others}:
            path.unlink()
    rng = random.Random(name)  # noqa: S311 (chosen for a test)
    for content in mutations((one_of_each / name).read_bytes(), rng):
        (folder / name).write_bytes(content)
        found = audit([folder])
        about = {Path(one.file).name for one in found.verdicts}
        assert {name, *others} <= about or (name.endswith(".parquet") and "folder" in about), content[:200]
        text_report(found)


def two_labels(path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    pytest.importorskip("pyarrow.parquet").write_table(arrow.Table.from_arrays([[1], [0]], names=["label"] * 2), path)


def test_columns_that_are_no_labels_are_named(tmp_path: Path) -> None:
    parquet(tmp_path / "odd.parquet", [1, None, 2])
    with pytest.raises(ValueError, match=r"odd\.parquet"):
        audit([tmp_path / "odd.parquet"])


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("a.json", lambda path: path.write_text('{"format": []}')),
        ("b.json", lambda path: path.write_text('{"format": {"a": 1}, "checksum": 1}')),
        ("c.parquet", two_labels),
        pytest.param("list.parquet", lambda path: parquet(path, [[1], [2]]), marks=pytest.mark.slow),
        ("d.skops", lambda path: path.write_bytes(b"PK\x03\x04" + bytes(5000))),
        ("f.json", lambda path: path.write_text('{"a":' * 50_000)),
        ("h.json", lambda path: path.write_text('{"format": ' + "[" * 33 + "]" * 33 + "}")),
        ("g.json", lambda path: path.write_text('{"format": "darrm-receipt 1", "ledger_digest": ' + "[" * 50_000)),
    ],
)
def test_what_stopped_an_audit_once_is_a_verdict(name: str, write: Callable[[Path], None], tmp_path: Path) -> None:
    write(tmp_path / name)
    TABLE.save(tmp_path / "table.json")
    found = audit([tmp_path])
    assert len(found.releases) == 1
    assert any(Path(one.file).name in {name, tmp_path.name} for one in found.verdicts)
    assert found.status == (FALSE in {one.verdict for one in found.verdicts})


@pytest.mark.parametrize(
    "text",
    [
        '{"ledger_digest":' * 50_000,
        '{"ledger_digest":' * 50_000 + "1" + "}" * 50_000,
        '{"ledger_digest": []}',
        "no digest",
    ],
)
def test_what_is_no_digest_is_refused(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    TABLE.save(tmp_path / "table.json")
    (tmp_path / "digest").write_text(text)
    refused(main, [str(tmp_path / "table.json"), "--digest", str(tmp_path / "digest")], "digest", capsys)


PLAIN = Voters(20, PrivacyParams("inf"), overlap=1)
NOISY = NoisyMaximum(GNMax(12.0), PLAIN, 3)


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("honest") / "folder"
    (folder / "deeper").mkdir(parents=True)
    NOISY.save(folder / "plan.json")
    NoisyMaximum(GNMax(6.0), PLAIN, 3).save(folder / "never used.json")
    TABLE.save(folder / "deeper" / "table.json")
    rng = np.random.default_rng(2)
    noisy = PrivacyLedger.create(folder / "noisy.sqlite", PrivacyParams(9, "1e-5"), population="ward 7")
    votes = Votes.from_counts(rng.multinomial(20, [0.5, 0.3, 0.2], 15))
    release_debited(NOISY, votes, ledger=noisy, output=folder / "classes.csv")
    two = PrivacyLedger.create(folder / "deeper" / "two.sqlite", PrivacyParams(9, "1e-5"), population="ward 7")
    for name in ("first.npy", "second.csv"):
        release_debited(Release(TABLE), rng.integers(0, 2, (8, 3)), ledger=two, output=folder / "deeper" / name)
        if name == "first.npy":
            shutil.copy(two.path, folder / "deeper" / ".older")
    (folder / "notes.txt").write_text("ask Ada about the shards\n")
    (folder / "plan report.json").write_text(json.dumps({"format": "darrm plan report", "version": 1}))
    (folder / ".hidden").write_text("nobody's business")
    return folder


@pytest.fixture
def folder(honest: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(honest, tmp_path / "folder"))


def claims(found: Audit, verdict: str) -> list[str]:
    return [f"{Path(one.file).name}: {one.claim}" for one in found.verdicts if one.verdict == verdict]


@pytest.mark.slow
def test_an_honest_folder_is_whole(folder: Path) -> None:
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    found = audit([folder])
    assert claims(found, FALSE) == []
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
    roles = {Path(file.path).name: file.role for file in found.files}
    assert (roles["plan.json"], roles["two.sqlite"], roles["first.npy"]) == ("release", "ledger", "labels")
    assert roles["second.csv.receipt.json"] == "receipt"
    assert ".hidden" not in roles
    left = [Path(one.file).name for one in found.verdicts if one.claim == "it is not judged"]
    assert left == ["notes.txt", "plan report.json"]
    assert "never used.json: it has answered queries that were paid for" in claims(found, UNKNOWN)
    paid = [one for one in found.verdicts if one.claim == "they are the labels of a debit"]
    assert [one.verdict for one in paid] == [PROVED] * 3
    together = [one for one in found.verdicts if "one population, 'ward 7'" in one.claim]
    assert len(together) == 1
    totals = [one for one in found.verdicts if one.about == "composition" and "within the budget" in one.claim]
    assert [one.verdict for one in totals] == [PROVED] * 2


def test_files_that_are_named_twice_are_judged_once(folder: Path) -> None:
    whole = audit([folder])
    again = audit([folder, folder / "plan.json", folder / "deeper"])
    assert [str(one) for one in again.verdicts] == [str(one) for one in whole.verdicts]


def older(path: Path) -> None:
    """Put a copy from before the second release in its place."""
    shutil.copy(path.with_name(".older"), path)


def test_a_lost_end_is_false_with_a_digest_and_unknown_without(folder: Path, tmp_path: Path) -> None:
    ledger = folder / "deeper" / "two.sqlite"
    digest = PrivacyLedger(ledger).digest().to_text()
    (tmp_path / "digest.txt").write_text(f"{digest}\n")
    older(ledger)
    for path in folder.rglob("*.receipt.json"):
        path.unlink()
    (folder / "deeper" / "second.csv").unlink()
    alone = audit([folder / "deeper"])
    assert claims(alone, FALSE) == []
    assert any("not truncated or rewritten" in claim for claim in claims(alone, ASSUMED))
    for shown in (digest, str(tmp_path / "digest.txt")):
        assert run(partial(main, [str(folder / "deeper"), "--digest", shown, "--quiet"])) == 1
    assert run(lambda: main([str(folder / "noisy.sqlite"), "--digest", digest, "--quiet"])) == 1  # of another ledger


def test_digests_in_model_cards_and_notes_are_checked(folder: Path) -> None:
    ledger, card = folder / "deeper" / "two.sqlite", folder / "card.md"
    card.write_text(f"# A model\n\n- Paid by the ledger whose digest was then `{PrivacyLedger(ledger).digest()}`.\n")
    assert claims(audit([folder]), FALSE) == []
    older(ledger)
    assert any("up to entry 2" in claim for claim in claims(audit([ledger, card]), FALSE))
    card.write_text(card.read_text().replace(":2:", ":3:", 1))
    assert any(claim.startswith("card.md: it holds the digest") for claim in claims(audit([folder]), FALSE))


def test_a_receipt_without_its_ledger_cannot_be_known(folder: Path) -> None:
    (folder / "noisy.sqlite").unlink()
    found = audit([folder / "classes.csv", folder / "classes.csv.receipt.json", folder / "plan.json"])
    assert claims(found, FALSE) == []
    receipts = [
        one.verdict for one in found.verdicts if one.about == "receipt" or "are those that were paid for" in one.claim
    ]
    assert receipts == [UNKNOWN, PROVED]


def test_no_name_of_a_file_writes_a_line_of_its_own(tmp_path: Path) -> None:
    forged = "proved independently  one label is (0, 0)-DP (by decree)"
    for number in (1, 2):
        NOISY.save(tmp_path / f"{number}\n{forged}\n.json")
    lines = text_report(audit([tmp_path]), every=True).splitlines()
    assert sum(forged in line for line in lines) >= 2
    assert forged not in lines


def test_what_is_no_file_of_a_folder_is_listed(folder: Path) -> None:
    (folder / "elsewhere").symlink_to(folder.parent)
    (folder / "gone.json").symlink_to(folder / "nothing")
    os.mkfifo(folder / "pipe.json")
    left = [Path(one.file).name for one in audit([folder]).verdicts if one.claim == "it is not judged"]
    assert {"elsewhere", "gone.json", "pipe.json"} <= set(left)


def test_costs_below_what_floats_hold_are_not_called_false(tmp_path: Path) -> None:
    NoisyMaximum(ExponentialMechanism(1e-200), PLAIN, 3).save(tmp_path / "tiny.json")
    assert claims(audit([tmp_path / "tiny.json"]), FALSE) == []
