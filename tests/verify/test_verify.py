"""Planted lies, an honest trio, damaged bytes: what an audit finds, and what it says."""

import json
import os
import re
import shutil
import sqlite3
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from darrm import (
    NoiseFunction,
    PrivacyLedger,
    PrivacyParams,
    Problem,
    Table,
    Voters,
    Votes,
    certify,
    open_release,
    optimize_table,
    priors,
    release_debited,
)
from darrm.commands.command_line import run
from darrm.loss.privacy_cost import PrivacyCost
from darrm.loss.profile import PrivacyProfile
from darrm.loss.renyi import RenyiCurve
from darrm.priors import Dirichlet, Independent, Point, Spread
from darrm.table.release import Release, describe_cost
from darrm.verify import costs
from darrm.verify.__main__ import main
from darrm.verify.audit import audit, judge_file, list_answers, list_assumptions, text_report
from darrm.verify.chain import Entry, Ledger
from darrm.verify.files import LabelsFile, read_labels
from darrm.verify.formats import Answering, Charge
from darrm.verify.ledger import LedgerAudit, judge_labels, judge_ledger
from darrm.verify.verdicts import ASSUMED, CONSISTENT, FALSE, PROVED, UNKNOWN, LedgerFaultError, Verdict
from darrm.votes.labels_file import labels_digest
from tests.doors import refused, validated
from tests.verify.support import answering_of, audit_of, false_claims, ledger_of

BUDGET = PrivacyParams(20, "1e-2")


@dataclass(frozen=True)
class Trio:
    """Honest files, made as a release makes them."""

    folder: Path

    table_path = property(lambda self: self.folder / "table.json")
    ledger_path = property(lambda self: self.folder / "ledger.sqlite")
    labels_path = property(lambda self: self.folder / "labels.csv")

    @property
    def table(self) -> Table:
        return Table.load(self.table_path)

    more_path = property(lambda self: self.folder / "more.npy")

    def arguments(self) -> list[str]:
        return [str(self.table_path), str(self.ledger_path), str(self.labels_path)]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trio")
    problem = Problem.from_allowance(Voters(3, PrivacyParams("0.2", "1e-5")), "1.5")
    table = optimize_table(problem, prior=Dirichlet())
    table.save(folder / "table.json")
    ledger = PrivacyLedger.create(folder / "ledger.sqlite", BUDGET)
    rng = np.random.default_rng(3)
    for name, queries in (("labels.csv", 20), ("more.npy", 12)):
        release_debited(
            Release(table), rng.integers(0, 2, (queries, 3)), ledger=ledger, note=name, output=folder / name
        )
    return folder


@pytest.fixture
def trio(made: Path, tmp_path: Path) -> Trio:
    shutil.copytree(made, tmp_path / "trio")
    return Trio(tmp_path / "trio")


def rewritten(trio: Trio, change: Callable[[dict[str, Any]], object]) -> bytes:
    """Change what a table's file says, and sign it anew, as a forger would."""
    data = json.loads(trio.table_path.read_text())
    change(data)
    text = json.dumps(
        {name: data[name] for name in ("problem", "gamma")}, sort_keys=True, ensure_ascii=False, separators=(",", ":")
    )
    data["checksum"] = sha256(text.encode()).hexdigest()
    return json.dumps(data).encode()


class TestAnHonestTrio:
    def test_it_passes_and_nothing_is_written(self, trio: Trio, capsys: pytest.CaptureFixture[str]) -> None:
        for path in (*trio.folder.iterdir(), trio.folder):
            path.chmod(0o555 if path.is_dir() else 0o444)
        before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in trio.folder.iterdir()}
        assert run(lambda: main(trio.arguments())) == 0
        shown = capsys.readouterr()
        assert shown.err == ""
        lines = shown.out.splitlines()
        assert re.fullmatch(r"PASS  32 labels are \(\d\.\d+, 0\.01\)-DP, within the budget \(20, 0\.01\)", lines[0])
        assert lines[1] == "assuming"
        assert re.fullmatch(r"  A1 +each voter is \(0\.2, 1e-05\)-DP +no file can show this", lines[2])
        assert len(lines) <= 15
        assert max(map(len, lines)) <= 100
        assert "unknown 0   false 0" in shown.out
        assert {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in trio.folder.iterdir()} == before
        trio.folder.chmod(0o755)

    def test_each_kind_of_claim_has_its_word(self, trio: Trio) -> None:
        found = audit([trio.table_path, trio.ledger_path, trio.labels_path])

        def word(about: str, start: str) -> str:
            (one,) = [one for one in found.verdicts if one.about == about and one.claim.startswith(start)]
            return one.verdict

        assert word("cost of a label", "one label is (0.3, 1.5e-05)-DP") == PROVED
        assert word("cost of a label", "no pair of neighbors costs more than") == PROVED
        assert word("cost of a label", "the budget of a label is at least") == PROVED
        assert word("optimality", "the expected error is") == PROVED
        assert word("optimality", "no private γ has a smaller expected error than") == PROVED
        assert word("cost of a label", "each voter is (0.2, 1e-05)-DP") == ASSUMED
        assert word("cost of a label", "the privacy profile of a query is at least what it costs") == PROVED
        assert word("cost of a label", "the Rényi curve of a query is at least what it costs") == PROVED
        assert word("composition", "32 labels are (") == PROVED
        assert word("composition", "the number of queries did not depend on the answers") == ASSUMED
        assert word("history", "the ledger was not truncated") == ASSUMED
        assert word("ledger", "it is whole") == CONSISTENT
        assert word("labels match their debit", "as many were paid for as there are") == PROVED

    def test_a_cut_short_debit_is_rolled_back_in_the_copy_only(self, trio: Trio) -> None:
        before = ledger_of(trio.ledger_path).hashes
        child = os.fork()
        if not child:
            connection = sqlite3.connect(trio.ledger_path, isolation_level=None)
            connection.execute("PRAGMA cache_size = 1")
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("UPDATE budget SET epsilon = '99'")
            connection.execute("UPDATE entries SET count = 1, note = hex(zeroblob(100000))")
            os._exit(0)  # pages are in the file, and nothing was committed
        os.waitpid(child, 0)
        journal = trio.ledger_path.with_name("ledger.sqlite-journal")
        link = trio.folder / "link.sqlite"
        link.symlink_to(trio.ledger_path)  # SQLite finds the journal beside the file itself
        assert ledger_of(link).hashes == before
        held = {path: sha256(path.read_bytes()).hexdigest() for path in (trio.ledger_path, journal)}
        listed = {file.path: file.sha256 for file in audit([trio.table_path, trio.ledger_path]).files}
        assert {path: listed[str(path)] for path in held} == held
        assert journal.read_bytes()
        assert ledger_of(trio.ledger_path).hashes == before
        assert {path: sha256(path.read_bytes()).hexdigest() for path in held} == held
        journal.unlink()
        with pytest.raises(LedgerFaultError):
            ledger_of(trio.ledger_path)

    def test_the_digest_is_that_of_what_was_judged(self, trio: Trio, monkeypatch: pytest.MonkeyPatch) -> None:
        judge, before = judge_file, trio.ledger_path.read_bytes()

        def overtaken(content: bytes) -> tuple[Answering | None, list[Verdict]]:
            PrivacyLedger(trio.ledger_path).debit(
                Release(trio.table).privacy_cost(1)
            )  # while the table is being proved
            return judge(content)

        monkeypatch.setattr("darrm.verify.audit.judge_file", overtaken)
        found = audit([trio.table_path, trio.ledger_path])
        (ledger,) = found.ledgers.values()
        assert [entry.count for entry in ledger.ledger.entries] == [20, 12]
        assert found.files[1].sha256 == sha256(before).hexdigest()

    @pytest.mark.parametrize("kinds", ["one", "planned", "adaptive"])
    def test_what_is_too_large_is_unknown_and_nothing_that_rests_on_it_is_proved(
        self, kinds: str, trio: Trio, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ledger = PrivacyLedger.create(trio.folder / "own.sqlite", PrivacyParams(9, "1e-2"), composition=kinds)
        ledger.debit(Release(trio.table).privacy_cost(20))
        monkeypatch.setattr("darrm.verify.gamma.MAX_WORK", 0)
        for cached in (costs._enclose_deltas, costs._enclose_renyi):
            cached.cache_clear()
        found = audit([trio.table_path, trio.folder / "own.sqlite"])
        for cached in (costs._enclose_deltas, costs._enclose_renyi):
            cached.cache_clear()
        assert found.status == 0
        (label,) = [one for one in found.verdicts if one.claim.startswith("one label is")]
        assert label.verdict == UNKNOWN
        assert "K = 3 is beyond the independent checker" in label.reason
        assert [
            one.claim
            for one in found.verdicts
            if one.verdict == PROVED and one.about in {"cost of a label", "composition"}
        ] == ["the budget of a label is at least 0.34988880750100293"]
        assert text_report(found).startswith("OPEN  20 labels ")


def allowed(K: int, m: str, delta: str = "1e-5", **more: Any) -> Problem:
    return Problem.from_allowance(Voters(K, PrivacyParams("0.1", delta), **more), m)


HONEST = {
    "a sampled objective": lambda: optimize_table(allowed(5, "2"), prior="uniform", draws=200),
    "a monotone shape": lambda: optimize_table(allowed(7, "2"), prior=Independent(0.6, 0.9), shape="monotone"),
    "an even number": lambda: optimize_table(allowed(6, "4/3", "0"), prior=Point(0.2)),
    "an overlap": lambda: optimize_table(allowed(9, "2", overlap=2), prior=Dirichlet()),
    "a tiny epsilon": lambda: optimize_table(
        Problem.from_allowance(Voters(3, PrivacyParams("1e-6")), 1), prior=Dirichlet()
    ),
    "no truth at all": lambda: certify(allowed(4, "2"), NoiseFunction(4, [0.0, 0.0])),
}


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name == "a sampled objective")) for name in HONEST]
)
def test_honest_tables_of_every_kind_pass(tmp_path: Path, name: str) -> None:
    table = HONEST[name]()
    table.save(tmp_path / "table.json")
    read, verdicts = judge_file((tmp_path / "table.json").read_bytes())
    assert read is not None
    assert false_claims(verdicts) == ""
    assert [one.verdict for one in verdicts if one.claim.startswith("one label is")] == [PROVED]
    ledger = PrivacyLedger.create(tmp_path / "ledger.sqlite", PrivacyParams(9, "1e-2"), composition="adaptive")
    ledger.debit(Release(table).privacy_cost(1))
    assert false_claims(judge_ledger(audit_of(tmp_path / "ledger.sqlite", table))) == ""


@pytest.mark.slow
def test_a_thousand_voters_are_decided() -> None:
    table = certify(allowed(1001, "2"), NoiseFunction(1001, np.linspace(0.0, 0.02, 501)))
    (label,) = [one for one in judge_file(json.dumps(table.to_json()).encode())[1] if "one label is" in one.claim]
    assert label.verdict == PROVED


def test_a_proof_may_cover_any_number_of_rows(trio: Trio) -> None:
    found = judge_file(rewritten(trio, lambda data: data["certificate"].update(rows=10**18)))
    assert false_claims(found[1]) == ""


def test_other_tables_may_have_paid_from_the_same_ledger(tmp_path: Path) -> None:
    table, other = (certify(allowed(K, "2"), NoiseFunction(K, [0.2, 0.3])) for K in (3, 4))
    ledger = PrivacyLedger.create(tmp_path / "ledger.sqlite", PrivacyParams(9, "1e-2"), composition="planned")
    ledger.debit(Release(table).privacy_cost(2))
    ledger.debit(Release(other).privacy_cost(5))
    found = list(judge_ledger(audit_of(tmp_path / "ledger.sqlite", table)))
    assert false_claims(found) == ""
    assert [verdict.claim for verdict in found if verdict.verdict == UNKNOWN] == [
        "5 queries cost as much as the ledger states, entry 2"
    ]
    third = certify(allowed(5, "2"), NoiseFunction(5, [0.1, 0.2, 0.3]))
    assert "queries were answered with this table" in false_claims(
        list(judge_ledger(audit_of(tmp_path / "ledger.sqlite", third)))
    )


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("classes", [("no", "yes"), ("a,b", 'say "c"'), (" x", "x\n"), (-5, 70_000)])
@pytest.mark.parametrize("suffix", ["csv", pytest.param("npy", marks=pytest.mark.slow)])
def test_labels_of_any_name_are_those_of_their_debit(trio: Trio, classes: tuple[Any, Any], suffix: str) -> None:
    path = trio.folder / f"named.{suffix}"
    votes = Votes.from_labels(np.asarray(classes)[[[0, 0, 1], [1, 1, 1], [1, 0, 1]]], classes)
    release_debited(Release(trio.table), votes, ledger=PrivacyLedger(trio.ledger_path), output=path)
    found = audit([trio.table_path, trio.ledger_path, path])
    assert false_claims(list(found.verdicts)) == ""
    (labels,) = found.labels.values()
    assert set(labels.names) <= set(map(str, classes))


def test_what_holds_no_digest_is_judged_by_its_count(trio: Trio) -> None:
    table = trio.table
    PrivacyLedger(trio.ledger_path).debit(replace(Release(table).privacy_cost(5), table=""))
    for count, false in ((5, ""), (6, "as many were paid for as there are")):
        labels = LabelsFile.of(np.arange(count) % 2)
        told = false_claims(judge_labels(labels, {"t": answering_of(table)}, [ledger_of(trio.ledger_path)], None))
        assert bool(told) == bool(false)
        assert false in told
    other = certify(allowed(4, "2"), NoiseFunction(4, [0.2, 0.3]))
    ledger = PrivacyLedger.create(trio.folder / "planned.sqlite", BUDGET, composition="planned")
    ledger.debit(replace(Release(table).privacy_cost(5), table=""))
    ledger.debit(Release(other).privacy_cost(5))
    found = list(judge_ledger(audit_of(trio.folder / "planned.sqlite", table)))
    assert false_claims(found) == ""
    assert [verdict.verdict for verdict in found if verdict.claim == "queries were answered with this table"] == [
        ASSUMED
    ]


@pytest.mark.slow
def test_declared_models_are_named(tmp_path: Path) -> None:
    table = certify(allowed(3, "2"), NoiseFunction(3, [0.2, 0.3]))
    ledger = PrivacyLedger.create(tmp_path / "l.sqlite", BUDGET)
    models = Voters(3, PrivacyParams("0.1", "1e-5"), overlap=1, models=True)
    ledger.debit(describe_cost(table, 5, voters=models))
    found = list(judge_ledger(audit_of(tmp_path / "l.sqlite", table)))
    assert false_claims(found) == ""
    # those models are less private than the table asks
    weaker = certify(Problem.from_allowance(Voters(3, PrivacyParams("0.05")), 2), table.gamma)
    assert "queries were answered with this table" in false_claims(
        list(judge_ledger(audit_of(tmp_path / "l.sqlite", weaker)))
    )


def less_error(data: dict[str, Any]) -> None:
    for name in ("value", "bound"):
        data["optimality"][name] -= 1e-9


def falling(data: dict[str, Any]) -> None:
    gamma = NoiseFunction(3, [0.3, 0.2])
    data["gamma"] = gamma.half.tolist()
    data["optimality"].update(value=gamma.expected_error(Dirichlet()), bound=0.0, shape="monotone")


def slightly_more(data: dict[str, Any]) -> None:
    data.update(gamma=[min(1.0, value * (1 + 1e-11)) for value in data["gamma"]], optimality=None)


LIES_IN_A_TABLE: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "a relative 1e-11 too much": (slightly_more, "one label is (0.3, 1.5e-05)-DP"),
    "its error": (less_error, "the expected error is"),
    "a prior from 0.9 to 0.6": (
        lambda data: data["optimality"].update(prior={"kind": "uniform", "low": "0.9", "high": "0.6"}),
        "0.9 to 0.6",
    ),
    "a row of four of three voters": (
        lambda data: data["optimality"]["multipliers"][0].__setitem__(1, 4),
        "a row has other voters",
    ),
    "its shape": (falling, "γ never falls"),
}


@pytest.mark.parametrize("lie", LIES_IN_A_TABLE)
def test_a_lie_in_a_table_is_false(lie: str, trio: Trio) -> None:
    change, claim = LIES_IN_A_TABLE[lie]
    content = rewritten(trio, change)
    trio.table_path.write_bytes(content)
    assert run(lambda: main([str(trio.table_path), "--quiet"])) == 1
    assert claim in false_claims(judge_file(content)[1])
    unsigned = json.loads(content) | {"checksum": "ab" * 32}
    assert "it was changed" in false_claims(judge_file(json.dumps(unsigned).encode())[1])


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"multipliers": None}, [PROVED, UNKNOWN]),
        ({"prior": priors.to_json(Spread(), 3)}, [UNKNOWN, UNKNOWN]),
        ({"prior": priors.to_json(Dirichlet(0.1), 3)}, [UNKNOWN, UNKNOWN]),
        ({"held_out": {"mean": 0.1, "standard_error": 0.01, "draws": 9}}, [UNKNOWN, UNKNOWN]),
        ({"multipliers": "weaker"}, [PROVED, UNKNOWN]),
    ],
)
def test_an_optimum_that_the_file_does_not_prove_is_unknown(
    change: dict[str, Any], expected: list[str], trio: Trio
) -> None:
    """Without strong multipliers, without its draws, or under a prior without a rational error."""

    def tell(data: dict[str, Any]) -> None:
        rows = data["optimality"]["multipliers"]
        data["optimality"].update(change)
        if change.get("multipliers"):
            data["optimality"]["multipliers"] = [[0.9 * y, *row] for y, *row in rows]

    verdicts = judge_file(rewritten(trio, tell))[1]
    assert [one.verdict for one in verdicts if one.about == "optimality"] == expected


class TestLiesInALedger:
    def lie(self, trio: Trio, charge: PrivacyCost, budget: PrivacyParams = BUDGET) -> str:
        trio.ledger_path.unlink()
        PrivacyLedger.create(trio.ledger_path, budget).debit(charge)
        assert run(lambda: main([str(trio.table_path), str(trio.ledger_path), "--quiet"])) == 1
        return false_claims(judge_ledger(audit_of(trio.ledger_path, trio.table)))

    @pytest.mark.parametrize("factor", [0.9, 1 - 1e-9])
    def test_the_cost_of_a_query(self, trio: Trio, factor: float) -> None:
        charge = Release(trio.table).privacy_cost(20)
        assert charge.profile is not None
        assert charge.renyi is not None
        profile = PrivacyProfile(charge.profile.epsilons, tuple(factor * delta for delta in charge.profile.deltas))
        assert "the privacy profile of a query" in self.lie(trio, replace(charge, profile=profile))
        curve = RenyiCurve(charge.renyi.orders, 0.99 * charge.renyi.values)
        assert "the Rényi curve of a query" in self.lie(trio, replace(charge, renyi=curve))
        false = self.lie(trio, replace(charge, guarantee=PrivacyParams("0.2", "1e-5")))
        assert "one query costs at most (0.2, 1e-05)" in false

    @pytest.mark.parametrize("composition", ["one", "adaptive", "renyi"])
    def test_the_budget(self, trio: Trio, composition: str) -> None:
        audited = audit_of(trio.ledger_path, trio.table)
        ledger = replace(audited.ledger, epsilon="0.5", composition=composition)
        false = false_claims(judge_ledger(LedgerAudit("l", ledger, audited.answerings)))
        assert "32 labels keep to the budget (0.5, 0.01)" in false

    def test_no_sum_is_made_for_models(self, trio: Trio) -> None:
        # 32 · 0.3 is within 20, but no sum bounds several answers of trained models
        audited = audit_of(trio.ledger_path)
        charges = {n: replace(charge, shares_randomness=True) for n, charge in audited.ledger.charges.items()}
        verdict, total = LedgerAudit("l", replace(audited.ledger, charges=charges)).total
        assert (verdict.verdict, total) == (UNKNOWN, None)

    @pytest.mark.parametrize(
        "statements",
        [
            ("DELETE FROM entries WHERE id = 2", "UPDATE costs SET total = 20"),
            ("UPDATE entries SET note = 'x' WHERE id = 1",),
            ("UPDATE entries SET id = 3 WHERE id = 1",),
            ("UPDATE budget SET identity = 'x'",),
            ("PRAGMA application_id = 0",),
            ("CREATE TRIGGER undo AFTER UPDATE ON costs BEGIN UPDATE costs SET total = 0; END",),
            ("CREATE VIEW sums AS SELECT * FROM costs",),
        ],
    )
    def test_its_rows_and_words(self, trio: Trio, statements: tuple[str, ...]) -> None:
        connection = sqlite3.connect(trio.ledger_path, isolation_level=None)
        for statement in statements:
            connection.execute(statement)
        connection.close()
        found = audit([trio.table_path, trio.ledger_path, trio.labels_path])
        assert "it is a whole ledger" in false_claims(found.verdicts)


def entry(number: int, count: int, labels: str = "", table: str = "", output: str = "") -> Entry:
    return Entry(number, "", 1, count, "", table, labels, output, (), {}, "", None)


def paid_by(*entries: Entry) -> list[Ledger]:
    numbered = tuple(replace(one, number=number) for number, one in enumerate(entries, 1))
    return [Ledger("", "20", "0.01", "one", "", "", {1: Charge()}, {}, numbered, (), ())]


class TestLiesInLabels:
    def judged(self, trio: Trio, content: bytes, **more: Any) -> str:
        trio.labels_path.write_bytes(content)
        labels = read_labels(trio.labels_path)
        return false_claims(
            judge_labels(labels, {"t": answering_of(trio.table)}, [ledger_of(trio.ledger_path)], more.get("classes"))
        )

    def test_several_debits_in_one_file(self, trio: Trio) -> None:
        """As a stream of answers has them, and who put two files together."""
        both = trio.labels_path.read_bytes() + b"".join(b"%d\n" % label for label in np.load(trio.more_path))
        assert self.judged(trio, both) == ""
        lines = both.split()
        numbered = [b"%d,%s\n" % pair for pair in enumerate(lines, 1)]
        assert self.judged(trio, b"".join(reversed(numbered)) + numbered[3]) == ""
        changed = b"\n".join([*lines[:-1], b"0" if lines[-1] == b"1" else b"1"]) + b"\n"
        for wrong in (changed, b"\n".join(lines[1:]) + b"\n", b"\n".join(lines[:-1]) + b"\n", both + both):
            assert "they are the labels of a debit" in self.judged(trio, wrong)
        with open_release(trio.table, PrivacyLedger(trio.ledger_path), stream="day") as release:
            answers = [release.answer(votes) for votes in ([0, 1, 1], [1, 1, 1], [0, 0, 0])]
        for part in (answers, answers[1:], answers[:2]):
            assert self.judged(trio, b"".join(b"%d\n" % label for label in part)) == ""

    def test_labels_that_end_within_a_debit(self) -> None:
        """As a reader has them that died: what is there of the last debit can be judged with all of it only."""
        labels = np.arange(9) % 2
        sizes = ((0, 4), (4, 9))
        log = tuple(entry(1, b - a, labels_digest(labels[a:b]), output="-s") for a, b in sizes)

        def claims(given: Any) -> list[tuple[str, str]]:
            found = judge_labels(LabelsFile.of(given), {}, paid_by(*log), None)
            return [(each.verdict, each.reason) for each in found if each.claim == "they are the labels of a debit"]

        assert claims(labels[:7]) == [
            (UNKNOWN, "the first 4 are; the other 3 are fewer than the next debit has: give all")
        ]
        assert claims(labels)[0][0] == claims(labels[4:])[0][0] == PROVED
        for wrong in (labels[:3], 1 - labels[:7], labels[1:8]):
            assert claims(wrong)[0][0] == FALSE
        log = tuple(replace(one, output="/a/file.csv") for one in log)
        assert claims(labels[:7])[0][0] == FALSE

    def test_one_stream_is_the_whole_log_and_paid_for_once(self) -> None:
        labels = np.array([0, 1, 1])
        parts = labels[:2], labels[2:]
        log = tuple(entry(1, part.size, labels_digest(part), output="s") for part in parts)
        found = list(judge_labels(LabelsFile.of(labels), {}, paid_by(*log), None))
        assert [each.reason for each in found if each.claim.startswith("as many")] == ["3 labels, 3 paid"]

    def test_streams_that_take_turns_in_one_ledger(self, trio: Trio) -> None:
        """The entries of one stream follow each other in its own log, and not in that of the ledger."""
        ledger = PrivacyLedger(trio.ledger_path)
        turns, rng = {"day": [2, 1, 3], "night": [1, 2, 2]}, np.random.default_rng(5)
        streams = {name: open_release(trio.table, ledger, stream=name) for name in turns}
        answers: dict[str, list[int]] = {name: [] for name in turns}
        for place in range(3):
            for name, counts in turns.items():
                votes = Votes.from_labels(rng.integers(0, 2, (counts[place], 3)), 2)
                answers[name] += streams[name].answer_together(votes)
        for name, given in answers.items():
            streams[name].close()
            for part in (given, given[turns[name][0] :]):
                assert self.judged(trio, b"".join(b"%d\n" % label for label in part)) == ""

    def test_each_debit_of_a_file_is_of_the_table(self, trio: Trio) -> None:
        """Labels of two debits are of both tables; labels that two debits have alike are of either."""
        labels = np.array([0, 1, 1, 0, 1])
        parts = [(labels[:2], "other"), (labels[2:], trio.table.digest)]
        entries = [entry(1, part.size, labels_digest(part), name) for part, name in parts]
        whole = [entry(1, 5, labels_digest(labels), name) for _, name in parts]

        def judged(*log: Entry) -> str:
            return false_claims(
                judge_labels(LabelsFile.of(labels), {"t": answering_of(trio.table)}, paid_by(*log), None)
            )

        assert "they were drawn with this table" in judged(*entries)
        assert "they were drawn with this table" in judged(whole[0])
        assert judged(*(replace(one, table=trio.table.digest) for one in entries)) == ""
        assert judged(*whole) == judged(*whole[::-1]) == ""

    def test_labels_of_debits_that_keep_no_digest(self, trio: Trio) -> None:
        """As many as one debit, or all of them, paid for is all that can be asked of them."""
        log = tuple(entry(1, count, table=trio.table.digest) for count in (3, 4, 5))
        held = [
            n for n in range(1, 14) if not false_claims(judge_labels(LabelsFile.of([0] * n), {}, paid_by(*log), None))
        ]
        assert held == [3, 4, 5, 12]

    def test_what_may_begin_anywhere_is_not_looked_for_without_end(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("darrm.verify.ledger._MAX_DIGESTS", 2_000)
        one = labels_digest(np.array([1]))
        ledgers = paid_by(*(entry(1, 1, one, output="stream") for _ in range(200)))
        verdicts = list(judge_labels(LabelsFile.of(np.array([1] * 99 + [0])), {}, ledgers, None))
        assert [verdict.verdict for verdict in verdicts] == [UNKNOWN, UNKNOWN]
        assert "takes too long" in verdicts[1].reason
        assert PROVED in {
            verdict.verdict for verdict in judge_labels(LabelsFile.of(np.array([1] * 99)), {}, ledgers, None)
        }

    def test_a_third_class(self, trio: Trio) -> None:
        content = trio.labels_path.read_bytes()
        assert "one of 2 classes" in self.judged(trio, content + b"2\n")
        assert "one of no, yes" in self.judged(trio, content, classes=("no", "yes"))

    @pytest.mark.parametrize(
        ("name", "content"),
        [
            *(("t.json", content) for content in (b"", b"[]", b"{", b'{"K": 1, "K": 2}', b"[" * 100_000, b"\xff")),
            ("l.csv", b"0\n1\n\n"),
            ("l.csv", b"0\n\xff\n"),
            ("l.npy", b"\x93NUMPY\x01\x00v\x00((((("),
            ("l.npy", b""),
            ("l.txt", b"0\n"),
        ],
    )
    def test_what_is_no_table_and_no_labels(
        self, trio: Trio, name: str, content: bytes, capsys: pytest.CaptureFixture[str]
    ) -> None:
        path = trio.folder / name
        path.write_bytes(content)
        refused(main, [str(trio.table_path), str(path)], name, capsys)


class TestWhatCannotBeRead:
    def test_files_that_are_not_there_or_no_files(self, trio: Trio, capsys: pytest.CaptureFixture[str]) -> None:
        missing = str(trio.folder / "missing")
        for words in ([missing], [str(trio.table_path), missing], ["/dev/zero"], [str(trio.folder / "nothing")]):
            (trio.folder / "nothing").mkdir(exist_ok=True)
            refused(main, words, words[-1], capsys)

    def test_a_report_never_overwrites_what_it_is_about(self, trio: Trio) -> None:
        before = trio.ledger_path.read_bytes()
        for path in (trio.table_path, trio.ledger_path, trio.labels_path, trio.folder / "no" / "where.html"):
            assert run(partial(main, [*trio.arguments(), "--report", str(path)])) == 2
        assert trio.ledger_path.read_bytes() == before


class Page(HTMLParser):
    """Collect the text and the tags of a page, and whether every tag is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.words, self.tags, self.open = "", Counter[str](), list[str]()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        assert not {"src", "href", "onload", "onclick"} & {name for name, _ in attrs}
        if tag not in {"meta", "br"}:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words += data


class TestTheReport:
    def test_a_page_to_read_and_sign(self, trio: Trio) -> None:
        note = "<script>alert('x')</script>"
        PrivacyLedger(trio.ledger_path).debit(Release(trio.table).privacy_cost(1), note=note)
        path = trio.folder / "report.html"
        assert run(lambda: main([*trio.arguments(), "--report", str(path), "--quiet"])) == 0
        page = Page(path.read_text(encoding="utf-8"))
        assert page.open == []
        assert page.tags["script"] == page.tags["link"] == page.tags["img"] == 0
        assert note in page.words
        for file in (trio.table_path, trio.ledger_path, trio.labels_path):
            assert sha256(file.read_bytes()).hexdigest() in page.words
        found = audit([trio.table_path, trio.ledger_path, trio.labels_path])
        assert all(verdict.claim in page.words and verdict.reason in page.words for verdict in found.verdicts)
        (first, *_), rests = list_answers(found), list_assumptions(found)
        assert f"{first[0]}: {first[1]}" in page.words
        assert first[0] == "PASS"
        assert page.words.index(first[1]) < page.words.index("Assumptions") < page.words.index("Checks")
        assert f"I accept the {len(rests)} assumptions" in page.words
        assert page.tags["table"] == 5  # checks of three files, entries, files

    def test_plain_data(self, trio: Trio, capsys: pytest.CaptureFixture[str]) -> None:
        assert run(lambda: main([*trio.arguments(), "--format", "json"])) == 0
        data = validated(capsys.readouterr().out, "verify_report")
        assert sum(data["counts"].values()) == len(data["verdicts"])
        assert [entry["count"] for entry in data["ledgers"][0]["entries"]] == [20, 12]
        assert data["labels"] == [{"file": str(trio.labels_path), "labels": 20}]
        assert data["releases"][0]["digest"] == trio.table.digest


class TestTheAttack:
    @pytest.mark.parametrize("verdict", [CONSISTENT, FALSE])
    def test_its_verdict_is_shown(
        self, verdict: str, trio: Trio, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        def judge(content: bytes, draws: int, report: Callable[[str], None]) -> tuple[dict[str, float], str, str]:
            report("drawing")
            assert (content, draws) == (trio.table_path.read_bytes(), 1000)
            return {"refuted_epsilon": 0.21}, verdict, "refuted 0.21"

        monkeypatch.setattr("darrm.verify.attack.judge_attack", judge)
        arguments = [str(trio.table_path), "--attack", "1000", "--format", "json"]
        assert run(lambda: main(arguments)) == (verdict == FALSE)
        data = json.loads(capsys.readouterr().out)
        assert data["verdicts"][-1] == {
            "file": str(trio.table_path),
            "about": "attack",
            "claim": "labels do not refute it",
            "verdict": verdict,
            "reason": "refuted 0.21",
        }
        assert data["attacks"] == [{"file": str(trio.table_path), "refuted_epsilon": 0.21}]

    def test_a_table_that_cannot_be_used_is_not_attacked(self, trio: Trio, capsys: pytest.CaptureFixture[str]) -> None:
        trio.table_path.write_bytes(rewritten(trio, lambda data: data.update(gamma=[1.0, 3.0])))
        assert run(lambda: main([str(trio.table_path), "--attack", "1000"])) == 1
        assert "without a table no label was drawn" in capsys.readouterr().out
