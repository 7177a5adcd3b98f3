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
    release_debited,
)
from darrm.account.bounds import Bound
from darrm.account.ledger_rows import Entry
from darrm.errors import LedgerError
from darrm.laws.priors import Dirichlet, Independent, Point, Prior, Spread
from darrm.losses.charges import Charge
from darrm.losses.profile import PrivacyProfile
from darrm.losses.renyi import RenyiCurve
from darrm.mechanisms.release import Release
from darrm.proof import certify as prover
from darrm.proof.charge import charge_of
from darrm.system.command_line import run
from darrm.system.votes_file import LabelsFile, labels_digest, read_labels, save_labels
from darrm.verify import majority
from darrm.verify import table as table_claims
from darrm.verify.__main__ import main
from darrm.verify.audit import audit
from darrm.verify.labels import judge_labels
from darrm.verify.ledger import LedgerCopy, judge_ledger, read_ledger
from darrm.verify.plain_words import to_quote, who_may_know
from darrm.verify.table import exact_of, judge_optimality, judge_table
from darrm.verify.verdicts import CLAIMED, CONSISTENT, FALSE, PROVED, UNKNOWN, Verdict
from tests.doors import refused, validated

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


def false_claims(verdicts: list[Verdict]) -> str:
    return "\n".join(str(verdict) for verdict in verdicts if verdict.verdict == FALSE)


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
    def test_it_passes(self, trio: Trio, capsys: pytest.CaptureFixture[str]) -> None:
        before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in trio.folder.iterdir()}
        assert run(lambda: main(trio.arguments())) == 0
        shown = capsys.readouterr()
        assert shown.err == ""
        assert "\nproved here           table: one label is (0.3, 1.5e-05)-differentially private" in shown.out
        assert " 0 false\nTo quote: all 32 labels of the ledger together are (" in shown.out
        assert {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in trio.folder.iterdir()} == before

    def test_each_kind_of_claim_has_its_word(self, trio: Trio) -> None:
        found = audit([trio.table_path, trio.ledger_path, trio.labels_path])

        def word(about: str, start: str) -> str:
            (one,) = [
                verdict
                for verdict in found.verdicts
                if (verdict.about, True) == (about, verdict.claim.startswith(start))
            ]
            return one.verdict

        assert word("table", "one label is (0.3, 1.5e-05)-differentially private") == PROVED
        assert word("table", "the cost of no pair of neighbors exceeds") == PROVED
        assert word("table", "the budget is no less than") == PROVED
        assert word("table", "the expected error is") == PROVED
        assert word("table", "no private γ of the free shape has an expected error below") in {PROVED, CONSISTENT}
        assert word("table", "each of the 3 voters is (0.2, 1e-05)-differentially private") == CLAIMED
        assert word("ledger", "the privacy profile of a query is at least what it costs") == PROVED
        assert word("ledger", "the Rényi curve of a query is at least what it costs") == PROVED
        assert word("ledger", "all queries together are (9.6, 0.01)-private by the bound 'simple'") == PROVED
        (total,) = [verdict for verdict in found.verdicts if verdict.claim.startswith("the total stays")]
        assert total.verdict == PROVED
        assert total.reason.endswith('; proved by the bound "this audit\'s own sum"')  # not by the smallest, in floats
        assert word("labels", "as many were paid for as there are") in {PROVED, CONSISTENT}

    def test_copies_that_cannot_be_written_are_enough(self, trio: Trio) -> None:
        for path in trio.folder.iterdir():
            path.chmod(0o444)
        trio.folder.chmod(0o555)
        names = sorted(trio.folder.iterdir())
        assert run(lambda: main([*trio.arguments(), "--quiet"])) == 0
        assert sorted(trio.folder.iterdir()) == names
        trio.folder.chmod(0o755)

    def test_a_cut_short_debit_is_rolled_back_in_the_copy_only(self, trio: Trio) -> None:
        before = read_ledger(trio.ledger_path)
        child = os.fork()
        if not child:
            connection = sqlite3.connect(trio.ledger_path, isolation_level=None)
            connection.execute("PRAGMA cache_size = 1")
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("UPDATE charges SET count = 1, note = hex(zeroblob(100000))")
            os._exit(0)  # pages are in the file, and nothing was committed
        os.waitpid(child, 0)
        journal = trio.ledger_path.with_name("ledger.sqlite-journal")
        link = trio.folder / "link.sqlite"
        link.symlink_to(trio.ledger_path)  # SQLite finds the journal beside the file itself
        assert read_ledger(link) == before
        held = {path: sha256(path.read_bytes()).hexdigest() for path in (trio.ledger_path, journal)}
        listed = {file.path: file.sha256 for file in audit([trio.table_path, trio.ledger_path]).files}
        assert {path: listed[str(path)] for path in held} == held
        assert journal.read_bytes()
        assert read_ledger(trio.ledger_path) == before
        assert {path: sha256(path.read_bytes()).hexdigest() for path in held} == held
        journal.unlink()
        with pytest.raises(LedgerError):
            read_ledger(trio.ledger_path)

    def test_the_digest_is_that_of_what_was_judged(self, trio: Trio, monkeypatch: pytest.MonkeyPatch) -> None:
        judge, before = table_claims.judge_release, trio.ledger_path.read_bytes()

        def overtaken(content: bytes) -> tuple[table_claims.Answering | None, list[Verdict]]:
            PrivacyLedger(trio.ledger_path).debit(Release(trio.table).charge(1))  # while the table is being proved
            return judge(content)

        monkeypatch.setattr("darrm.verify.audit.judge_release", overtaken)
        found = audit([trio.table_path, trio.ledger_path])
        (ledger,) = found.ledgers.values()
        assert [entry.count for entry in ledger.entries] == [20, 12]
        assert found.files[1].sha256 == sha256(before).hexdigest()

    def test_the_larger_family_is_left_to_the_prover(self, trio: Trio, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("darrm.verify.exact.MOST_WORK", 0)
        table, verdicts = judge_table(trio.table_path.read_bytes())
        assert false_claims(verdicts) == ""
        assert table is not None
        private = next(verdict for verdict in verdicts if verdict.claim.startswith("one label"))
        assert "too large for the checker that shares nothing with the prover" in private.reason


class OwnPrior(Prior):
    """A prior that a file cannot keep."""

    text = "own"
    has_closed_form = True

    def weights(self, K: int) -> np.ndarray:
        return Point(0.7).weights(K)

    def probabilities(self, K: int, count: int, *, rng: np.random.Generator) -> np.ndarray:  # noqa: ARG002 (as the protocol)
        return np.full((count, K), 0.7)


def allowed(K: int, m: str, delta: str = "1e-5", **more: Any) -> Problem:
    return Problem.from_allowance(Voters(K, PrivacyParams("0.1", delta), **more), m)


PLAIN = Problem(Voters(30, PrivacyParams("inf"), overlap=1), PrivacyParams("0.3", "1e-6"))
HONEST = {
    "a prior of one's own": lambda: optimize_table(allowed(5, "2"), prior=OwnPrior()),
    "a sampled objective": lambda: optimize_table(allowed(5, "2"), objective="expected-error", draws=200),
    "a monotone shape": lambda: optimize_table(allowed(7, "2"), prior=Independent(0.6, 0.9), shape="monotone"),
    "an even number": lambda: optimize_table(allowed(6, "4/3", "0"), prior=Point(0.2)),
    "an overlap": lambda: optimize_table(allowed(9, "2", overlap=2), prior=Dirichlet()),
    "models": lambda: optimize_table(allowed(5, "2", models=True), prior=Dirichlet()),
    "plain voters": lambda: optimize_table(PLAIN, prior=Dirichlet()),
    "a tiny epsilon": lambda: optimize_table(
        Problem.from_allowance(Voters(3, PrivacyParams("1e-6")), 1), prior=Dirichlet()
    ),
    "no truth at all": lambda: certify(allowed(4, "2"), NoiseFunction(4, [0.0, 0.0])),
}


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("name", HONEST)
def test_honest_tables_of_every_kind_pass(tmp_path: Path, name: str) -> None:
    table = HONEST[name]()
    table.save(tmp_path / "table.json")
    read, verdicts = judge_table((tmp_path / "table.json").read_bytes())
    assert read is not None
    assert false_claims(verdicts) == ""
    ledger = PrivacyLedger.create(tmp_path / "ledger.sqlite", PrivacyParams(9, "1e-2"), kinds="adaptive")
    ledger.debit(Release(table).charge(1))
    assert false_claims(list(judge_ledger(read_ledger(tmp_path / "ledger.sqlite").answered_by([table])))) == ""


def test_other_tables_may_have_paid_from_the_same_ledger(tmp_path: Path) -> None:
    table, other = (certify(allowed(K, "2"), NoiseFunction(K, [0.2, 0.3])) for K in (3, 4))
    ledger = PrivacyLedger.create(tmp_path / "ledger.sqlite", PrivacyParams(9, "1e-2"), kinds="planned")
    ledger.debit(Release(table).charge(2))
    ledger.debit(Release(other).charge(5))
    found = list(judge_ledger(read_ledger(tmp_path / "ledger.sqlite").answered_by([table])))
    assert false_claims(found) == ""
    assert [verdict.claim for verdict in found if verdict.verdict == UNKNOWN] == [
        "5 queries cost what the ledger says, entry 2"
    ]
    third = certify(allowed(5, "2"), NoiseFunction(5, [0.1, 0.2, 0.3]))
    assert "queries were answered with this table" in false_claims(
        list(judge_ledger(read_ledger(tmp_path / "ledger.sqlite").answered_by([third])))
    )


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("classes", [("no", "yes"), ("a,b", 'say "c"'), (" x", "x\n"), (-5, 70_000)])
@pytest.mark.parametrize("suffix", ["csv", pytest.param("npy", marks=pytest.mark.slow)])
def test_labels_of_any_name_are_those_of_their_debit(trio: Trio, classes: tuple[Any, Any], suffix: str) -> None:
    path = trio.folder / f"named.{suffix}"
    votes = Votes.of_labels(np.asarray(classes)[[[0, 0, 1], [1, 1, 1], [1, 0, 1]]], classes)
    release_debited(Release(trio.table), votes, ledger=PrivacyLedger(trio.ledger_path), output=path)
    found = audit([trio.table_path, trio.ledger_path, path])
    assert false_claims(list(found.verdicts)) == ""
    (labels,) = found.labels.values()
    assert set(labels.labels.tolist()) <= set(classes)


def test_what_holds_no_digest_is_judged_by_its_count(trio: Trio) -> None:
    table = trio.table
    PrivacyLedger(trio.ledger_path).debit(replace(Release(table).charge(5), table=""))
    for count, false in ((5, ""), (6, "as many were paid for as there are")):
        save_labels(trio.folder / "own.npy", np.arange(count) % 2)
        labels = read_labels(trio.folder / "own.npy")
        assert false in false_claims(
            list(judge_labels(labels, {"t": table}, {"l": read_ledger(trio.ledger_path)}, None))
        )
        assert bool(false) == bool(
            false_claims(list(judge_labels(labels, {"t": table}, {"l": read_ledger(trio.ledger_path)}, None)))
        )
    other = certify(allowed(4, "2"), NoiseFunction(4, [0.2, 0.3]))
    ledger = PrivacyLedger.create(trio.folder / "planned.sqlite", BUDGET, kinds="planned")
    ledger.debit(replace(Release(table).charge(5), table=""))
    ledger.debit(Release(other).charge(5))
    found = list(judge_ledger(read_ledger(trio.folder / "planned.sqlite").answered_by([table])))
    assert false_claims(found) == ""
    assert [verdict.verdict for verdict in found if verdict.claim == "queries were answered with this table"] == [
        CLAIMED
    ]


@pytest.mark.slow
def test_declared_models_are_named(tmp_path: Path) -> None:
    table = certify(allowed(3, "2"), NoiseFunction(3, [0.2, 0.3]))
    ledger = PrivacyLedger.create(tmp_path / "l.sqlite", BUDGET)
    models = Voters(3, PrivacyParams("0.1", "1e-5"), overlap=1, models=True)
    ledger.debit(charge_of(table, 5, voters=models))
    found = list(judge_ledger(read_ledger(tmp_path / "l.sqlite").answered_by([table])))
    assert false_claims(found) == ""
    assert (f"5 queries were about {models}", CLAIMED) in [(verdict.claim, verdict.verdict) for verdict in found]
    # those models are less private than the table asks
    weaker = certify(Problem.from_allowance(Voters(3, PrivacyParams("0.05")), 2), table.gamma)
    assert "queries were answered with this table" in false_claims(
        list(judge_ledger(read_ledger(tmp_path / "l.sqlite").answered_by([weaker])))
    )


def test_the_last_line_is_the_one_to_quote(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What was proved stands first and is rounded up; it is about the ledger, not about the audited file."""
    table, path, name = certify(allowed(3, "1", "1e-5"), NoiseFunction(3, [0.1, 0.2])), tmp_path / "t.json", "l.sqlite"
    table.save(path)
    ledger = PrivacyLedger.create(tmp_path / name, PrivacyParams(9, "0.0123456789"))

    def last(*more: str) -> str:
        assert run(lambda: main([str(path), *more])) == 0
        return capsys.readouterr().out.splitlines()[-1]

    assert last().startswith(f"To quote: one label is {table.problem.target}-private, proved here, if the 3 claims of")
    files = (str(tmp_path / name),)
    assert last(*files) == "To quote: nothing, for the ledger has paid for no label."
    ledger.debit(Release(table).charge(1))
    assert last(*files).startswith("To quote: the one label of the ledger is (")
    assert "1 query is called" in "".join(
        v.claim for v in judge_ledger(read_ledger(tmp_path / name).answered_by([table]))
    )
    ledger.debit(Release(table).charge(30))
    copy = read_ledger(tmp_path / name).answered_by([table])
    quoted = re.fullmatch(
        r"To quote: all 31 labels of the ledger together are \((\S+), 0\.0123456789\)-private, proved here by "
        r"\"([^\"]+)\", if the \d+ claims of the maker and the 1 claim that cannot be known hold\.",
        last(*files),
    )
    assert quoted is not None
    assert copy.proved is not None
    assert copy.proved.epsilon <= float(quoted[1]) <= copy.proved.epsilon * 1.001
    assert quoted[2] == copy.proved.name


def test_who_may_know_what(tmp_path: Path) -> None:
    plain = certify(PLAIN, NoiseFunction(30, np.linspace(0.0, 0.01, 15)))
    plain.save(tmp_path / "table.json")
    text = "\n".join(who_may_know(audit([tmp_path / "table.json"])))
    assert "Protected is every person whose data reach at most 1 of the 30 voters; others are not" in text
    assert "Any event of one label is at most e^0.3 = 1.35 times as likely, plus 1e-06, as with other" in text
    assert "Nothing is asked of the voters" in text
    certify(allowed(4, "2", "0", models=True), NoiseFunction(4, [0.1, 0.2])).save(tmp_path / "table.json")
    text = "\n".join(who_may_know(audit([tmp_path / "table.json"])))
    assert "reach any number of the 4 voters" in text
    assert "changes the odds of a belief about this person by at most e^0.2 = 1.221; a guess" in text
    assert "costs of single labels do not add up" in text


class TestLiesInATable:
    def lie(self, trio: Trio, change: Callable[[dict[str, Any]], object]) -> str:
        content = rewritten(trio, change)
        trio.table_path.write_bytes(content)
        assert run(lambda: main([str(trio.table_path), "--quiet"])) == 1
        return false_claims(judge_table(content)[1])

    def test_numbers_that_were_changed(self, trio: Trio) -> None:
        data = json.loads(trio.table_path.read_text())
        data["gamma"][0] *= 0.5
        assert "its numbers are as they were saved" in false_claims(judge_table(json.dumps(data).encode())[1])

    def test_privacy(self, trio: Trio) -> None:
        assert "worst privacy cost" in self.lie(trio, lambda data: data.update(gamma=[1.0, 1.0]))

    def test_privacy_where_the_prover_is_broken(self, trio: Trio, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(prover, "bound_worst_cost", lambda *_: (0.0, prover.BALLS))
        # a relative 1e-11 too much

        def change(data: dict[str, Any]) -> None:
            data.update(gamma=[min(1.0, value * (1 + 1e-11)) for value in data["gamma"]], optimality=None)

        content = rewritten(trio, change)
        assert "a cost of 0.34988" in false_claims(judge_table(content)[1])

    @pytest.mark.parametrize(
        ("name", "factor", "claim"),
        [
            ("worst_cost", 1 - 1e-12, "the cost of no pair"),
            ("worst_cost", 1.01, "the cost of no pair"),
            ("budget", 1 + 1e-12, "the budget is"),
            ("rows", 2, "the proof covers"),
            ("scale", 3.0, "scale"),
        ],
    )
    def test_a_figure_of_the_certificate(self, trio: Trio, name: str, factor: float, claim: str) -> None:
        def change(data: dict[str, Any]) -> None:
            data["certificate"][name] *= factor

        assert claim in self.lie(trio, change)

    def test_the_expected_error(self, trio: Trio) -> None:
        def change(data: dict[str, Any]) -> None:
            data["optimality"]["value"] -= 1e-9
            data["optimality"]["bound"] -= 1e-9

        assert "expected error" in self.lie(trio, change)

    def test_the_expected_error_where_the_loader_is_broken(self, trio: Trio) -> None:
        table = trio.table
        assert table.optimality is not None
        lying = table.with_optimality(None, {})
        object.__setattr__(
            lying, "optimality", replace(table.optimality, value=table.optimality.value - 1e-9, bound=0.0)
        )
        assert "exact rational arithmetic gives" in false_claims(list(judge_optimality(exact_of(lying))))

    @pytest.mark.parametrize("prior", [Spread(), Dirichlet(0.1)])
    def test_a_prior_that_the_file_holds_is_not_said_to_be_missing(self, trio: Trio, prior: Prior) -> None:
        assert trio.table.optimality is not None
        table = trio.table.with_optimality(None, {})
        object.__setattr__(table, "optimality", replace(trio.table.optimality, prior=prior))
        told = next(judge_optimality(exact_of(table)))
        assert (told.verdict, "does not hold" in told.reason, prior.text in told.reason) == (CLAIMED, False, True)

    def test_optimality(self, trio: Trio) -> None:
        def change(data: dict[str, Any]) -> None:
            data["gamma"] = [0.05, 0.05]
            error = NoiseFunction(3, [0.05, 0.05]).expected_error(Dirichlet())
            data["optimality"].update(value=error, bound=error)
            if "multipliers" in data["optimality"]:
                data["optimality"]["multipliers"] = None  # nothing to recompute the bound from
            data["certificate"]["worst_cost"] = prover.prove(
                trio.table.problem, NoiseFunction(3, [0.05, 0.05])
            ).worst_cost

        assert "this release found a γ with 0.0267" in self.lie(trio, change)

    def test_its_shape(self, trio: Trio) -> None:
        gamma = NoiseFunction(3, [0.3, 0.2])

        def change(data: dict[str, Any]) -> None:
            error = gamma.expected_error(Dirichlet())
            data["gamma"] = gamma.half.tolist()
            data["optimality"].update(value=error, bound=0.0, shape="monotone")
            data["certificate"]["worst_cost"] = prover.prove(trio.table.problem, gamma).worst_cost

        assert "falls" in self.lie(trio, change) or "shape" in self.lie(trio, change)

    def test_a_field_that_went_by_another_name(self, trio: Trio) -> None:
        assert "optimality" in self.lie(trio, lambda data: data.update(optimalitz=data.pop("optimality")))


class TestLiesInALedger:
    def lie(self, trio: Trio, charge: Charge) -> str:
        trio.ledger_path.unlink()
        PrivacyLedger.create(trio.ledger_path, BUDGET).debit(charge)
        assert run(lambda: main([str(trio.table_path), str(trio.ledger_path), "--quiet"])) == 1
        return false_claims(list(judge_ledger(read_ledger(trio.ledger_path).answered_by([trio.table]))))

    def test_the_cost_of_a_query(self, trio: Trio) -> None:
        charge = replace(Release(trio.table).charge(20), guarantee=PrivacyParams("0.2", "1e-5"))
        assert "costs what one with this table costs" in self.lie(trio, charge)

    def test_the_profile_of_a_query(self, trio: Trio) -> None:
        charge = Release(trio.table).charge(20)
        assert charge.profile is not None
        profile = PrivacyProfile(charge.profile.epsilons, tuple(0.9 * delta for delta in charge.profile.deltas))
        assert "costs what one with this table costs" in self.lie(trio, replace(charge, profile=profile))

    def test_the_renyi_curve_of_a_query(self, trio: Trio) -> None:
        charge = Release(trio.table).charge(20)
        assert charge.renyi is not None
        curve = RenyiCurve(charge.renyi.orders, 0.99 * charge.renyi.values)
        assert "costs what one with this table costs" in self.lie(trio, replace(charge, renyi=curve))

    def test_a_profile_that_the_prover_gets_wrong(self, trio: Trio, monkeypatch: pytest.MonkeyPatch) -> None:
        copy, table = read_ledger(trio.ledger_path), trio.table
        (charge,) = copy.charges
        assert charge.profile is not None
        profile = PrivacyProfile(charge.profile.epsilons, tuple((1 - 1e-9) * delta for delta in charge.profile.deltas))
        wrong = replace(charge, profile=profile)
        monkeypatch.setattr(majority.ExactMajority, "cost", lambda *_, **__: wrong)
        assert "profile" in false_claims(
            list(judge_ledger(replace(copy, charges=(wrong,), costs={1: wrong}).answered_by([table])))
        )

    def test_the_budget(self, trio: Trio) -> None:
        copy = replace(read_ledger(trio.ledger_path), budget=PrivacyParams("0.5", "1e-2"))
        found = list(judge_ledger(copy.answered_by([trio.table])))
        assert "the total stays within the budget (0.5, 0.01)" in false_claims(found)
        assert not any("within the budget" in verdict.reason for verdict in found if "by the bound" in verdict.claim)

    def test_a_sum_for_models(self, trio: Trio) -> None:
        # 32 · 0.3 is within 20, but no sum bounds several answers of trained models
        copy = read_ledger(trio.ledger_path)
        cap = Bound("private models", 21.0, "their post-processing")
        copy = copy.answered_by([trio.table])
        copy.__dict__["spent"] = replace(copy.spent, epsilon=21.0, bound=cap.name, bounds=(cap,))
        assert "the total stays within the budget" in false_claims(list(judge_ledger(copy)))

    def test_the_sum(self, trio: Trio) -> None:
        copy = read_ledger(trio.ledger_path)
        for name in ("simple", "optimal"):
            bounds = tuple(
                replace(bound, epsilon=bound.epsilon * (0.999 if bound.name == name else 1))
                for bound in copy.spent.bounds
            )
            lying = copy.answered_by([trio.table])
            lying.__dict__["spent"] = replace(copy.spent, bounds=bounds)
            false = false_claims(list(judge_ledger(lying)))
            assert f"by the bound {name!r}" in false
            assert false.count("\n") == 0

    def test_the_log_and_the_totals(self, trio: Trio) -> None:
        copy = read_ledger(trio.ledger_path)
        lying = replace(copy, entries=copy.entries[:1])
        assert "its log adds up to its totals" in false_claims(list(judge_ledger(lying.answered_by([trio.table]))))

    def test_the_table(self, trio: Trio) -> None:
        copy = read_ledger(trio.ledger_path)
        other = certify(trio.table.problem, NoiseFunction(3, [0.1, 0.2]))
        assert "queries were answered with this table" in false_claims(list(judge_ledger(copy.answered_by([other]))))
        assert false_claims(list(judge_ledger(copy.answered_by([trio.table])))) == ""

    @pytest.mark.parametrize(
        "statements",
        [
            ("PRAGMA user_version = 1",),  # no digests, no seals
            ("DELETE FROM charges WHERE id = 2", "UPDATE kinds SET total = 20"),
            ("UPDATE charges SET note = 'x' WHERE id = 1",),
            ("UPDATE charges SET id = 3 WHERE id = 1",),
            ("UPDATE budget SET identity = 'x'",),
            ("PRAGMA application_id = 0",),
            ("PRAGMA user_version = 3",),
            ("CREATE TRIGGER undo AFTER UPDATE ON kinds BEGIN UPDATE kinds SET total = 0; END",),
            ("CREATE VIEW sums AS SELECT * FROM kinds",),
        ],
    )
    def test_its_rows_and_words(self, trio: Trio, statements: tuple[str, ...]) -> None:
        connection = sqlite3.connect(trio.ledger_path, isolation_level=None)
        for statement in statements:
            connection.execute(statement)
        connection.close()
        found = audit([trio.table_path, trio.ledger_path, trio.labels_path])
        assert "it is a whole ledger" in false_claims(list(found.verdicts))

    def test_a_table_that_was_charged_at_less(self, trio: Trio) -> None:
        copy = read_ledger(trio.ledger_path)
        cheap = Charge("DaRRM", guarantee=PrivacyParams("0.1", 0), count=12)
        costs = {1: copy.charges[0].kind.repeated(20), 2: cheap}
        entries = (copy.entries[0], replace(copy.entries[1], kind=2))
        lying = replace(copy, charges=tuple(costs.values()), costs=costs, entries=entries, kinds="planned")
        false = list(judge_ledger(lying.answered_by([trio.table])))
        assert "a query of its entries costs what one with this table costs (entry 2 cost" in false_claims(false)

    def test_who_the_voters_are(self, trio: Trio) -> None:
        # the same γ, said to be for models: the ledger knows better
        content = rewritten(trio, lambda data: data["problem"].update(models=True))
        table, _ = judge_table(content)
        assert table is not None
        assert false_claims(list(judge_ledger(read_ledger(trio.ledger_path).answered_by([table])))) != ""


class TestLiesInLabels:
    def judged(self, trio: Trio, content: bytes, **more: Any) -> str:
        trio.labels_path.write_bytes(content)
        labels = read_labels(trio.labels_path)
        return false_claims(
            list(judge_labels(labels, {"t": trio.table}, {"l": read_ledger(trio.ledger_path)}, more.get("classes")))
        )

    def test_the_honest_ones(self, trio: Trio) -> None:
        assert self.judged(trio, trio.labels_path.read_bytes()) == ""
        assert self.judged(trio, trio.labels_path.read_bytes(), classes=("0", "1")) == ""

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
        log = tuple(Entry("", "DaRRM", b - a, "", labels=labels_digest(labels[a:b]), output="-s") for a, b in sizes)

        def claims(given: Any) -> list[tuple[str, str]]:
            found = judge_labels(LabelsFile(given), {}, {"l": LedgerCopy(BUDGET, "one", (), log)}, None)
            return [(each.verdict, each.reason) for each in found if each.claim == "they are the labels of a debit"]

        assert claims(labels[:7]) == [
            (CLAIMED, "the first 4 are; the other 3 are fewer than the next debit has: give all")
        ]
        assert claims(labels)[0][0] == claims(labels[4:])[0][0] == PROVED
        for wrong in (labels[:3], 1 - labels[:7], labels[1:8]):
            assert claims(wrong)[0][0] == FALSE
        log = tuple(replace(entry, output="/a/file.csv") for entry in log)
        assert claims(labels[:7])[0][0] == FALSE

    def test_one_stream_is_the_whole_log_and_paid_for_once(self) -> None:
        labels = np.array([0, 1, 1])
        parts = labels[:2], labels[2:]
        log = tuple(Entry("", "DaRRM", part.size, "", labels=labels_digest(part), output="s") for part in parts)
        found = list(judge_labels(LabelsFile(labels), {}, {"l": LedgerCopy(BUDGET, "one", (), log)}, None))
        assert [each.reason for each in found if each.claim.startswith("as many")] == ["3 labels, 3 paid"]

    def test_streams_that_take_turns_in_one_ledger(self, trio: Trio) -> None:
        """The entries of one stream follow each other in its own log, and not in that of the ledger."""
        ledger = PrivacyLedger(trio.ledger_path)
        turns, rng = {"day": [2, 1, 3], "night": [1, 2, 2]}, np.random.default_rng(5)
        streams = {name: open_release(trio.table, ledger, stream=name) for name in turns}
        answers: dict[str, list[int]] = {name: [] for name in turns}
        for place in range(3):
            for name, counts in turns.items():
                votes = Votes.of_labels(rng.integers(0, 2, (counts[place], 3)), 2)
                answers[name] += streams[name].answer_together(votes)
        for name, given in answers.items():
            streams[name].close()
            for part in (given, given[turns[name][0] :]):
                assert self.judged(trio, b"".join(b"%d\n" % label for label in part)) == ""

    def test_each_debit_of_a_file_is_of_the_table(self, trio: Trio) -> None:
        """Labels of two debits are of both tables; labels that two debits have alike are of either."""
        labels = np.array([0, 1, 1, 0, 1])
        parts = [(labels[:2], "other"), (labels[2:], trio.table.digest)]
        entries = [Entry("", "DaRRM", part.size, "", table=name, labels=labels_digest(part)) for part, name in parts]
        whole = [Entry("", "DaRRM", 5, "", table=name, labels=labels_digest(labels)) for _, name in parts]

        def judged(*log: Entry) -> str:
            return false_claims(
                list(
                    judge_labels(LabelsFile(labels), {"t": trio.table}, {"l": LedgerCopy(BUDGET, "one", (), log)}, None)
                )
            )

        assert "they were drawn with this table" in judged(*entries)
        assert "they were drawn with this table" in judged(whole[0])
        assert judged(*(replace(entry, table=trio.table.digest) for entry in entries)) == ""
        assert judged(*whole) == judged(*whole[::-1]) == ""

    def test_labels_of_debits_that_keep_no_digest(self, trio: Trio) -> None:
        """As many as one debit, or all of them, paid for is all that can be asked of them."""
        log = tuple(Entry("", "DaRRM", count, "", table=trio.table.digest) for count in (3, 4, 5))
        found = {
            count: false_claims(
                list(
                    judge_labels(LabelsFile(np.zeros(count, int)), {}, {"l": LedgerCopy(BUDGET, "one", (), log)}, None)
                )
            )
            for count in range(1, 14)
        }
        assert [count for count, false in found.items() if not false] == [3, 4, 5, 12]

    def test_what_may_begin_anywhere_is_not_looked_for_without_end(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("darrm.verify.labels._DIGESTS", 2_000)
        one = labels_digest(np.array([1]))
        entries = [Entry(str(n), "DaRRM", 1, "", labels=one, output="stream") for n in range(200)]
        ledger = LedgerCopy(BUDGET, "one", (), tuple(entries))
        verdicts = list(judge_labels(LabelsFile(np.array([1] * 99 + [0])), {}, {"l": ledger}, None))
        assert [verdict.verdict for verdict in verdicts] == [UNKNOWN, CLAIMED]
        assert "takes too long" in verdicts[1].reason
        assert PROVED in {
            verdict.verdict for verdict in judge_labels(LabelsFile(np.array([1] * 99)), {}, {"l": ledger}, None)
        }

    def test_a_third_class(self, trio: Trio) -> None:
        content = trio.labels_path.read_bytes()
        assert "of 2 classes" in self.judged(trio, content + b"2\n")
        assert "of the classes no, yes" in self.judged(trio, content, classes=("no", "yes"))

    @pytest.mark.parametrize(
        ("name", "content"),
        [
            ("l.csv", b"0\n1\n\n"),
            ("l.csv", b"0\n\xff\n"),
            ("l.npy", b"\x93NUMPY\x01\x00v\x00((((("),
            ("l.npy", b""),
            ("l.txt", b"0\n"),
        ],
    )
    def test_no_labels_at_all(self, trio: Trio, name: str, content: bytes, capsys: pytest.CaptureFixture[str]) -> None:
        path = trio.folder / name
        path.write_bytes(content)
        refused(main, [str(trio.table_path), str(path)], name, capsys)


class TestWhatCannotBeRead:
    @pytest.mark.parametrize("content", [b"", b"[]", b"{", b'{"K": 1, "K": 2}', b"[" * 100_000, b"\xff"])
    def test_no_table(self, tmp_path: Path, content: bytes, capsys: pytest.CaptureFixture[str]) -> None:
        path = tmp_path / "table.json"
        path.write_bytes(content)
        assert run(lambda: main([str(path)])) == 2
        assert capsys.readouterr().err.startswith("error: ")

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
        PrivacyLedger(trio.ledger_path).debit(Release(trio.table).charge(1), note=note)
        trio.table_path.write_bytes(rewritten(trio, lambda data: data["provenance"].update(solver=note)))
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
        assert f"Nothing false was found in {len(found.verdicts)} claims" in page.words
        assert "at most e^0.3 = 1.35 times as likely, plus 1.5e-05, as with other data" in page.words
        ledger = read_ledger(trio.ledger_path).answered_by([trio.table])
        proved = ledger.proved
        assert proved is not None
        assert proved.epsilon == pytest.approx(ledger.spent.epsilon, rel=1e-3)
        assert f"Any event of all 33 labels of the ledger together is at most e^{proved.epsilon:.4g}" in page.words
        assert (
            "The ledger paid for 33 labels in all (the audited files hold 20), and what follows is about all"
            in page.words
        )
        assert to_quote(found) in page.words
        assert page.tags["table"] == 6  # claims of three files, what one label costs, log, files
        profile = trio.table.profile
        assert profile is not None
        assert f"{profile.deltas[0]:.4g}" in page.words
        assert "total epsilon at delta = 0.01:" in page.words

    def test_a_false_claim_is_seen_first(self, trio: Trio) -> None:
        trio.table_path.write_bytes(rewritten(trio, lambda data: data.update(gamma=[1.0, 1.0])))
        path = trio.folder / "report.html"
        assert run(lambda: main([*trio.arguments(), "--report", str(path), "--quiet"])) == 1
        page = Page(path.read_text(encoding="utf-8"))
        assert "claims are false. Do not rely" in page.words or "claims is false. Do not rely" in page.words
        assert "The table cannot be trusted" in page.words

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
        def judge(aggregator: Release, draws: int, report: Callable[[str], None]) -> tuple[dict[str, float], Verdict]:
            report("drawing")
            assert (aggregator.table.digest, draws) == (trio.table.digest, 1000)
            return {"refuted_epsilon": 0.21}, Verdict("attack", "it stands", verdict, "refuted 0.21")

        monkeypatch.setattr("darrm.verify.attack.judge_attack", judge)
        arguments = [str(trio.table_path), "--attack", "1000", "--format", "json"]
        assert run(lambda: main(arguments)) == (verdict == FALSE)
        data = json.loads(capsys.readouterr().out)
        assert data["verdicts"][-1] == {
            "file": str(trio.table_path),
            "about": "attack",
            "claim": "it stands",
            "verdict": verdict,
            "reason": "refuted 0.21",
        }
        assert data["attacks"] == [{"file": str(trio.table_path), "refuted_epsilon": 0.21}]

    def test_a_table_that_cannot_be_used_is_not_attacked(self, trio: Trio, capsys: pytest.CaptureFixture[str]) -> None:
        trio.table_path.write_bytes(rewritten(trio, lambda data: data.update(gamma=[1.0, 1.0])))
        assert run(lambda: main([str(trio.table_path), "--attack", "1000"])) == 1
        assert "without a table no label was drawn" in capsys.readouterr().out
