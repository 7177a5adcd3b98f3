"""Audit of files and folders: a verdict on each claim, for any content, and reports for people and programs."""

import json
import os
import random
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache, partial
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from darrm import PrivacyLedger, PrivacyParams, Release, Table, Voters, release_debited
from darrm.commands.command_line import run
from darrm.noisy_max.mechanisms import GNMax, LNMax
from darrm.noisy_max.noisy_maximum import NoisyMaximum
from darrm.noisy_max.selection import ExponentialMechanism
from darrm.verify import costs
from darrm.verify.__main__ import main
from darrm.verify.audit import (
    Audit,
    audit,
    html_report,
    json_report,
    judge_file,
    list_answers,
    list_assumptions,
    text_report,
)
from darrm.verify.formats import Answering
from darrm.verify.verdicts import ASSUMED, CONSISTENT, FALSE, PROVED, UNKNOWN, Verdict
from tests.doors import refused, validated
from tests.verify.files import TABLE, write_parquet, write_zip
from tests.verify.lies import change_fields

Folders = Callable[[str], Path]
NON_PRIVATE = Voters(20, PrivacyParams("inf"), overlap=1)


@pytest.fixture
def files(copied: Folders) -> list[Path]:
    """Copy a table, its ledger and its labels."""
    folder = copied("majority")
    return [folder / name for name in ("table.json", "ledger.sqlite", "labels.csv")]


def list_claims(result: Audit, verdict: str) -> list[str]:
    return [f"{Path(one.file).name}: {one.claim}" for one in result.verdicts if one.verdict == verdict]


# ------------------------------------------------------------------------------------------------ honest files


def test_an_audit_passes_honest_files_and_writes_nothing(files: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    folder = files[0].parent
    for path in (*folder.glob("[!.]*"), folder):
        path.chmod(0o555 if path.is_dir() else 0o444)
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.iterdir()}
    assert run(lambda: main(list(map(str, files)))) == 0
    output = capsys.readouterr()
    assert output.err == ""
    lines = output.out.splitlines()
    assert re.fullmatch(r"PASS  64 labels are \(\d+\.\d+, 0\.01\)-DP, within the budget \(20, 0\.01\)", lines[0])
    assert lines[1] == "assuming"
    assert re.fullmatch(r"  A1 +each voter is \(0\.2, 1e-05\)-DP +no file can show this", lines[2])
    assert len(lines) <= 15
    assert max(map(len, lines)) <= 100
    assert "unknown 0   false 0" in output.out
    assert {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.iterdir()} == before
    folder.chmod(0o755)


@pytest.mark.parametrize(
    ("about", "claim", "verdict"),
    [
        ("cost of a label", "one label is (0.3, 1.5e-05)-DP", PROVED),
        ("cost of a label", "no pair of neighbors costs more than", PROVED),
        ("cost of a label", "the budget of a label is at least", PROVED),
        ("cost of a label", "the privacy profile of a query is at least what it costs", PROVED),
        ("cost of a label", "the Rényi curve of a query is at least what it costs", PROVED),
        ("cost of a label", "each voter is (0.2, 1e-05)-DP", ASSUMED),
        ("optimality", "the expected error is", PROVED),
        ("optimality", "no private γ has a smaller expected error than", PROVED),
        ("composition", "64 labels are (", PROVED),
        ("composition", "the number of queries did not depend on the answers", ASSUMED),
        ("history", "the ledger was not truncated", ASSUMED),
        ("ledger", "it is whole", CONSISTENT),
        ("labels match their debit", "as many were paid for as there are", PROVED),
    ],
)
def test_each_claim_of_honest_files_has_its_verdict(about: str, claim: str, verdict: str, honest: Folders) -> None:
    verdicts = _audit_honest(honest("majority")).verdicts
    assert [one.verdict for one in verdicts if one.about == about and one.claim.startswith(claim)] == [verdict]


@cache
def _audit_honest(folder: Path) -> Audit:
    return audit([folder / name for name in ("table.json", "ledger.sqlite", "labels.csv")])


def clear_caches() -> None:
    costs._enclose_deltas.cache_clear()
    costs._enclose_renyi.cache_clear()


@pytest.mark.parametrize("composition", ["one", "planned", "adaptive"])
def test_a_table_too_large_to_check_is_unknown_and_so_is_its_total(
    composition: str, files: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = files[0].parent / "other.sqlite"
    ledger = PrivacyLedger.create(path, PrivacyParams(9, "1e-2"), composition=composition)
    ledger.debit(Release(Table.load(files[0])).privacy_cost(20))
    monkeypatch.setattr("darrm.verify.gamma.MAX_WORK", 0)
    clear_caches()
    result = audit([files[0], path])
    clear_caches()
    assert result.status == 0
    (label,) = [one for one in result.verdicts if one.claim.startswith("one label is")]
    assert label.verdict == UNKNOWN
    assert "K = 3 is beyond the independent checker" in label.reason
    proved = [one.claim for one in result.verdicts if one.verdict == PROVED]
    assert [claim for claim in proved if "budget of a label" not in claim and "error" not in claim] == []
    assert text_report(result).startswith("OPEN  20 labels ")


def test_the_listed_digest_is_that_of_the_judged_bytes(files: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    before, judge = files[1].read_bytes(), judge_file

    def judge_slowly(content: bytes) -> tuple[Answering | None, list[Verdict]]:
        PrivacyLedger(files[1]).debit(Release(Table.load(files[0])).privacy_cost(1))
        return judge(content)

    monkeypatch.setattr("darrm.verify.audit.judge_file", judge_slowly)
    result = audit(files[:2])
    (ledger,) = result.ledgers.values()
    assert sum(entry.count for entry in ledger.ledger.entries) == 64
    assert result.files[1].sha256 == sha256(before).hexdigest()


# ------------------------------------------------------------------------------------------------ folders


@pytest.fixture
def folder(copied: Folders) -> Path:
    """Make a folder with two ledgers of one population, an unused release, and files that are no claims."""
    folder = copied("gnmax")
    shutil.copytree(copied("majority"), folder / "deeper")
    NoisyMaximum(GNMax(6.0), NON_PRIVATE, 3).save(folder / "unused.json")
    (folder / "notes.txt").write_text("ask Ada about the shards\n")
    (folder / "plan report.json").write_text(json.dumps({"format": "darrm plan report", "version": 1}))
    (folder / "pate.json").write_text(json.dumps({"warning": "private", "table_1": {}, "table_2": None}))
    (folder / ".hidden").write_text("nobody's business")
    return folder


def test_a_folder_is_judged_as_a_whole(folder: Path) -> None:
    result = audit([folder])
    assert list_claims(result, FALSE) == []
    roles = {Path(file.path).name: file.role for file in result.files}
    expected = {"plan.json": "release", "ledger.sqlite": "ledger", "more.npy": "labels"}
    assert roles.items() >= {**expected, "more.csv.receipt.json": "receipt"}.items()
    assert ".hidden" not in roles
    reasons = {Path(one.file).name: one.reason for one in result.verdicts if one.claim == "it is not judged"}
    assert reasons.keys() == {"notes.txt", "plan report.json", "pate.json"}
    assert "private data" in reasons["pate.json"]
    assert "unused.json: it has answered queries that were paid for" in list_claims(result, UNKNOWN)
    claims = [one for one in result.verdicts if one.claim == "they are the labels of a debit"]
    assert [one.verdict for one in claims] == [PROVED] * 5
    assert len([one for one in result.verdicts if "one population, 'ward 7'" in one.claim]) == 1
    totals = [one for one in result.verdicts if one.about == "composition" and "the budget" in one.claim]
    assert [one.verdict for one in totals if one.file.endswith("sqlite")] == [PROVED] * 2
    again = audit([folder, folder / "plan.json", folder / "deeper"])  # named twice, judged once
    assert [str(one) for one in again.verdicts] == [str(one) for one in result.verdicts]


def test_links_and_pipes_are_listed_and_links_within_the_folder_are_followed(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    TABLE.save(folder / ".table.json")
    (folder / "table.json").symlink_to(".table.json")
    PrivacyLedger.create(folder / "ledger.sqlite", PrivacyParams(1, "1e-5"))
    (folder / "ledger.sqlite-journal").symlink_to("/dev/zero")
    (folder / "elsewhere").symlink_to(tmp_path)
    (folder / "gone.json").symlink_to(folder / "nothing")
    os.mkfifo(folder / "pipe.json")
    result = audit([folder])
    assert (len(result.releases), len(result.ledgers)) == (1, 0)
    unjudged = {Path(one.file).name for one in result.verdicts if one.claim == "it is not judged"}
    assert unjudged >= {"elsewhere", "gone.json", "pipe.json", "ledger.sqlite"}


SECRET = "db.example:5432:*:admin:correct horse battery"  # noqa: S105 (of nobody)


@pytest.mark.parametrize("name", ["labels.csv", "plan.json", "notes.txt", "key", "labels.npy", "e.skops"])
@pytest.mark.parametrize("is_link", [True, False])
def test_no_report_quotes_a_file_of_another_kind(name: str, *, is_link: bool, tmp_path: Path) -> None:
    target, folder = tmp_path / "pgpass", tmp_path / "folder"
    folder.mkdir()
    target.write_text(f"{SECRET}\n")
    TABLE.save(folder / "table.json")
    if is_link:
        (folder / name).symlink_to(target)
        (folder / "table.sqlite-journal").symlink_to(target)
    else:
        shutil.copy(target, folder / name)
    result = audit([folder])
    reports = text_report(result) + html_report(result) + json.dumps(json_report(result))
    assert not [part for part in SECRET.split() if part in reports]
    reasons = [one.reason for one in result.verdicts if Path(one.file).name == name]
    assert reasons
    if is_link:
        assert reasons == ["it is a link that leaves the folder: name its target"]
        assert name not in {Path(file.path).name for file in result.files}


def test_a_file_name_writes_no_line_of_its_own(tmp_path: Path) -> None:
    forged = "proved independently  one label is (0, 0)-DP (by decree)"
    for number in (1, 2):
        TABLE.save(tmp_path / f"{number}\n{forged}\n.json")
    lines = text_report(audit([tmp_path]), every=True).splitlines()
    assert sum(forged in line for line in lines) >= 2
    assert forged not in lines


@pytest.mark.parametrize("mechanism", [LNMax(400.0), LNMax(1e6), ExponentialMechanism(1e-200)])
def test_extreme_mechanisms_are_judged_and_not_called_false(mechanism: Any, tmp_path: Path) -> None:
    NoisyMaximum(mechanism, NON_PRIVATE, 3).save(tmp_path / "extreme.json")
    result = audit([tmp_path])
    assert (result.status, len(result.releases)) == (0, 1)


# ------------------------------------------------------------------------------------------------ any content

ODD_VALUES: list[Any] = [None, [], {}, "", "x", -1, 1e308, True, [[]], {"format": []}, 10**400]


def list_damage(content: bytes, rng: random.Random) -> Iterator[bytes]:
    """Yield damaged bytes, and JSON with odd values."""
    yield from (b"", content[: len(content) // 2], content * 2, b"\xff" + content, b"PK\x03\x04" + bytes(5000))
    yield from (b"[" * 100_000, b'{"a":' * 50_000, b'{"format": []}', b'{"format": ' + b"[" * 33 + b"]" * 33 + b"}")
    yield from (
        b'{"format": {"a": 1}, "checksum": 1}',
        b'{"format": "darrm-receipt 1", "ledger_digest": ' + b"[" * 50_000,
    )
    for _ in range(12):
        damaged = bytearray(content or b"x")
        damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
        yield bytes(damaged)
    try:
        data = json.loads(content)
    except ValueError:
        return
    places = [(data, name) for name in data] if isinstance(data, dict) else []
    for container, name in list(places):
        inner = container[name]
        keys = list(inner) if isinstance(inner, dict) else range(min(2, len(inner))) if isinstance(inner, list) else []
        places += [(inner, key) for key in keys]
    for container, name in places:
        value = container[name]
        for odd_value in rng.sample(ODD_VALUES, 4):
            container[name] = odd_value
            yield json.dumps(data).encode()
        container[name] = value


@pytest.fixture(scope="module")
def one_of_each(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a file of each kind."""
    folder = tmp_path_factory.mktemp("kinds")
    TABLE.save(folder / "table.json")
    ledger = PrivacyLedger.create(folder / "ledger.sqlite", PrivacyParams(9, "1e-5"))
    votes = np.random.default_rng(0).integers(0, 2, (9, 3))
    for name in ("labels.csv", "labels.npy"):
        release_debited(Release(TABLE), votes, ledger=ledger, output=folder / name)
    write_parquet(folder / "labels.parquet", [0, 1, 1])
    node = {"__class__": "dict", "content": {"kind": {"__class__": "str", "content": '"X"'}}}
    write_zip(folder / "e.skops", json.dumps(node).encode())
    (folder / "card.md").write_text(f"# Model card: PATEClassifier\n{ledger.digest().to_text()}\n")
    (folder / "figure.json").write_text(json.dumps({"format": "darrm sanitized figure", "version": 1}))
    return folder


@pytest.mark.parametrize(
    "name",
    [
        *("table.json", "ledger.sqlite", "labels.csv", "labels.npy", "e.skops", "card.md", "figure.json"),
        "labels.csv.receipt.json",
        pytest.param("labels.parquet", marks=pytest.mark.slow),
    ],
)
def test_each_file_gets_a_verdict_for_any_content(name: str, one_of_each: Path, tmp_path: Path) -> None:
    kept = {name, "labels.npy"}
    for file in kept:
        shutil.copy(one_of_each / file, tmp_path / file)
    rng = random.Random(name)  # noqa: S311 (chosen for a test)
    for content in list_damage((one_of_each / name).read_bytes(), rng):
        (tmp_path / name).write_bytes(content)
        result = audit([tmp_path])
        judged = {Path(one.file).name for one in result.verdicts}
        assert kept <= judged or (name.endswith(".parquet") and tmp_path.name in judged), content[:200]
        text_report(result)


# ------------------------------------------------------------------------------------------------ the command


@pytest.mark.parametrize(
    ("name", "content"),
    [
        *(("t.json", content) for content in (b"", b"[]", b"{", b'{"K": 1, "K": 2}', b"[" * 100_000, b"\xff")),
        ("l.csv", b"0\n1\n\n"),
        ("l.csv", b"0\n\xff\n"),
        ("l.npy", b"\x93NUMPY\x01\x00v\x00((((("),
        ("l.npy", b""),
        ("l.txt", b"0\n"),
        ("empty", None),
        ("missing", None),
        ("/dev/zero", None),
    ],
)
def test_a_named_file_without_claims_is_refused(
    name: str, content: bytes | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    TABLE.save(tmp_path / "table.json")
    (tmp_path / "empty").mkdir()
    if content is not None:
        (tmp_path / name).write_bytes(content)
    refused(main, [str(tmp_path / "table.json"), str(tmp_path / name)], name, capsys)


def test_a_report_overwrites_no_input(files: list[Path]) -> None:
    before = files[1].read_bytes()
    for path in (*files, files[0].parent / "no" / "page.html"):
        assert run(partial(main, [*map(str, files), "--report", str(path), "--force"])) == 2
    assert files[1].read_bytes() == before


class Page(HTMLParser):
    """Collect the text and the tags of a page, and whether every tag is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.words, self.tags, self.open_tags = "", Counter[str](), list[str]()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        assert not {"src", "href", "onload", "onclick"} & {name for name, _ in attrs}
        if tag not in {"meta", "br"}:
            self.open_tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open_tags.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words += data


def test_the_page_holds_answer_assumptions_checks_and_digests_and_no_script(files: list[Path]) -> None:
    note = "<script>alert('x')</script>"
    PrivacyLedger(files[1]).debit(Release(Table.load(files[0])).privacy_cost(1), note=note)
    path = files[0].parent / "report.html"
    assert run(lambda: main([*map(str, files), "--report", str(path), "--quiet"])) == 0
    page = Page(path.read_text(encoding="utf-8"))
    assert page.open_tags == []
    assert page.tags["script"] == page.tags["link"] == page.tags["img"] == 0
    assert note in page.words
    assert all(sha256(file.read_bytes()).hexdigest() in page.words for file in files)
    result = audit(files)
    assert all(verdict.claim in page.words and verdict.reason in page.words for verdict in result.verdicts)
    answer, text = list_answers(result)[0]
    assert answer == "PASS"
    assert page.words.index(f"{answer}: {text}") < page.words.index("Assumptions") < page.words.index("Checks")
    assert f"I accept the {len(list_assumptions(result))} assumptions" in page.words
    assert page.tags["table"] == 5  # checks of three files, entries, files


@pytest.mark.parametrize(
    ("name", "files", "answer"),
    [
        ("majority", ["table.json"], "PASS  one label is (0.3, 1.5e-05)-DP\n"),
        ("majority", ["table.json", "labels.csv"], "PASS  one label is (0.3, 1.5e-05)-DP\n"),
        ("majority", ["labels.csv"], "OPEN  nothing that answers or pays is among the files\n"),
        ("plan", ["plan.json"], "PASS  all 20 answers as planned are (3, 0.0001)-DP\n"),
        ("plan", ["plan.json", "ledger.sqlite"], "PASS  20 labels are ("),
    ],
)
def test_the_answer_is_about_the_total_or_else_the_plan_or_else_a_label(
    name: str, files: list[str], answer: str, honest: Folders
) -> None:
    assert text_report(audit([honest(name) / file for file in files])).startswith(answer)


@pytest.mark.parametrize(("assumptions", "listed"), [(6, 6), (7, 5)])
def test_the_text_lists_few_answers_assumptions_and_unknown_claims(assumptions: int, listed: int) -> None:
    totals = [Verdict("composition", "3 labels are private", PROVED, "sum", file) for file in "abc"]
    others = [Verdict("history", f"{n}", ASSUMED, "reason") for n in range(assumptions)]
    others += [Verdict("history", f"open {n}", UNKNOWN, "reason") for n in range(4)]
    result = Audit(verdicts=[*totals, *others, others[0]], ledgers=dict.fromkeys("abc"))  # type: ignore[arg-type]
    lines = [f"PASS  {file}: 3 labels are private" for file in "ab"] + ["      and 1 more answers", "assuming"]
    lines += [f"  A{n + 1:<3}{n:<52} reason" for n in range(listed)]
    lines += [f"  and {assumptions - listed} more"] * (listed < assumptions)
    lines += [f"unknown: open {n} (reason)" for n in range(3)] + ["proved independently   composition"]
    lines += [
        "consistent             0 checks of files   unknown 4   false 0",
        "(every check: --all; a page: --report)",
    ]
    assert text_report(result).splitlines() == lines
    assert set(map(str, result.verdicts)) <= set(text_report(result, every=True).splitlines())
    result.add("d\ne", [Verdict("file", "it is whole", FALSE, "a long reason " * 99)])
    lines = text_report(result).splitlines()
    assert lines[0].startswith("FAIL  d\\ne: it is false that it is whole (a long reason ")
    assert (lines[2][-2:], lines[3]) == (" …", "assuming")
    assert max(map(len, lines)) <= 100


def test_json_holds_verdicts_entries_labels_and_releases(files: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(lambda: main([*map(str, files), "--format", "json"])) == 0
    data = validated(capsys.readouterr().out, "verify_report")
    assert sum(data["counts"].values()) == len(data["verdicts"])
    assert [entry["count"] for entry in data["ledgers"][0]["entries"]] == [20, 20, *[1] * 24]
    assert data["labels"] == [{"file": str(files[2]), "labels": 20}]
    assert data["releases"][0]["digest"] == Table.load(files[0]).digest


@pytest.mark.parametrize("verdict", [CONSISTENT, FALSE])
def test_the_verdict_of_an_attack_is_reported(
    verdict: str, files: list[Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def judge(content: bytes, draws: int, report: Callable[[str], None]) -> tuple[dict[str, float], str, str]:
        report("drawing")
        assert (content, draws) == (files[0].read_bytes(), 1000)
        return {"refuted_epsilon": 0.21}, verdict, "refuted 0.21"

    monkeypatch.setattr("darrm.verify.attack.judge_attack", judge)
    path = str(files[0])
    assert run(lambda: main([path, "--attack", "1000", "--format", "json"])) == (verdict == FALSE)
    data = json.loads(capsys.readouterr().out)
    claim = {"file": path, "about": "attack", "claim": "labels do not refute it", "reason": "refuted 0.21"}
    assert data["verdicts"][-1] == {**claim, "verdict": verdict}
    assert data["attacks"] == [{"file": path, "refuted_epsilon": 0.21}]


def test_a_table_that_is_refused_is_not_attacked(files: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    change_fields("table.json", {"gamma": [1.0, 3.0]}, files[0].parent)
    assert run(lambda: main([str(files[0]), "--attack", "1000"])) == 1
    assert "without a table no label was drawn" in capsys.readouterr().out
