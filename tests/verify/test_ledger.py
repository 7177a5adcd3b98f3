"""A ledger: the releases that answered, totals within its budget, other ledgers, and the labels that it paid for."""

import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from darrm import (
    NoiseFunction,
    PrivacyAccountant,
    PrivacyLedger,
    PrivacyParams,
    Problem,
    Release,
    Table,
    Voters,
    Votes,
    certify,
    open_release,
    release_debited,
)
from darrm.aggregator import load_release
from darrm.loss.privacy_cost import PrivacyCost
from darrm.table.release import describe_cost
from darrm.verify.audit import audit
from darrm.verify.chain import Entry, Ledger
from darrm.verify.files import LabelsFile, read_labels
from darrm.verify.formats import Charge
from darrm.verify.ledger import LedgerAudit, judge_labels, judge_ledger, judge_populations
from darrm.verify.verdicts import ASSUMED, CONSISTENT, FALSE, PROVED, UNKNOWN, Verdict
from darrm.votes.labels_file import labels_digest
from tests.verify.support import answering_of, audit_of, false_claims, ledger_of

QUERY = PrivacyCost("majority of 11", guarantee=PrivacyParams("0.1", "1e-6"), table="ab" * 32)
BUDGET = PrivacyParams(9, "1e-2")
WRONG_DEBIT = "they are the labels of a debit"
Folders = Callable[[str], Path]


def make_table(K: int, epsilon: str = "0.1", delta: str = "1e-5") -> Table:
    half = [0.2, 0.3, 0.3][: (K + 1) // 2]
    return certify(Problem.from_allowance(Voters(K, PrivacyParams(epsilon, delta)), "2"), NoiseFunction(K, half))


TABLE, OTHER = make_table(3), make_table(4)


def make_ledger(path: Path, *charges: PrivacyCost, budget: PrivacyParams = BUDGET, **settings: Any) -> PrivacyLedger:
    ledger = PrivacyLedger.create(path, budget, **settings)
    for charge in charges:
        ledger.debit(charge)
    return ledger


def judge(path: Path | str, *releases: Any) -> list[Verdict]:
    return list(judge_ledger(audit_of(path, *releases)))


def test_each_entry_belongs_to_a_release_of_the_files_or_is_unknown(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    make_ledger(path, Release(TABLE).privacy_cost(2), Release(OTHER).privacy_cost(5), composition="planned")
    verdicts = judge(path, TABLE)
    assert false_claims(verdicts) == ""
    unknown = [verdict.claim for verdict in verdicts if verdict.verdict == UNKNOWN]
    assert unknown == ["5 queries cost as much as the ledger states, entry 2"]
    assert "queries were answered with this table" in false_claims(judge(path, make_table(5)))


def test_an_entry_without_a_release_is_assumed_to_be_of_the_table(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    unnamed = replace(Release(TABLE).privacy_cost(5), table="")
    make_ledger(path, unnamed, Release(OTHER).privacy_cost(5), composition="planned")
    verdicts = judge(path, TABLE)
    assert false_claims(verdicts) == ""
    claim = "queries were answered with this table"
    assert [verdict.verdict for verdict in verdicts if verdict.claim == claim] == [ASSUMED]


@pytest.mark.slow
def test_models_must_be_as_private_as_the_voters_of_the_table(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    models = Voters(3, PrivacyParams("0.1", "1e-5"), overlap=1, models=True)
    make_ledger(path, describe_cost(TABLE, 5, voters=models))
    assert false_claims(judge(path, TABLE)) == ""
    weaker = certify(Problem.from_allowance(Voters(3, PrivacyParams("0.05")), 2), TABLE.gamma)
    assert "queries were answered with this table" in false_claims(judge(path, weaker))


@pytest.mark.parametrize(("composition", "how"), [("planned", "privacy losses"), ("adaptive", "Rényi filter")])
def test_mechanisms_chosen_on_the_way_are_summed_by_the_filter_only(composition: str, how: str, tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    ninety = PrivacyCost("answers", guarantee=PrivacyParams("0.1")).repeat(90)
    make_ledger(path, ninety, budget=PrivacyParams("8.9", "1e-5"), composition=composition)
    verdict, total = audit_of(path).total
    assert total is not None
    assert how in verdict.reason


def test_no_sum_bounds_several_answers_of_trained_models(honest: Folders) -> None:
    # 64 · 0.3 is within 20
    ledger = ledger_of(honest("majority") / "ledger.sqlite")
    charges = {n: replace(charge, shares_randomness=True) for n, charge in ledger.charges.items()}
    verdict, total = LedgerAudit("l", replace(ledger, charges=charges)).total
    assert (verdict.verdict, total) == (UNKNOWN, None)


def test_costs_about_different_neighbors_do_not_add_up(
    honest: Folders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    charge = load_release(honest("drawn") / "plan.json").privacy_cost(2)
    ledger = make_ledger(tmp_path / "ledger.sqlite", charge, composition="planned")
    (verdict,) = [one for one in judge(ledger.path) if "all its costs are about the same neighbors" in one.claim]
    assert (verdict.verdict, verdict.reason) == (CONSISTENT, "data sets that add or remove one person")
    monkeypatch.setattr(PrivacyAccountant, "_check_neighbors", lambda *_: None)  # a release that admitted both
    ledger.debit(QUERY)
    assert "about the same neighbors" in false_claims(judge(ledger.path))


# ------------------------------------------------------------------------------------------------ several ledgers


def test_budgets_of_ledgers_of_one_population_add_up(tmp_path: Path) -> None:
    for name, epsilon, population in (("a", "1.5", "ward 7"), ("b", "2", "ward 7"), ("c", "9", "")):
        PrivacyLedger.create(tmp_path / name, PrivacyParams(epsilon, "1e-5"), population=population)
    shutil.copy(tmp_path / "b", tmp_path / "copy of b")
    first, second, unnamed = (audit_of(tmp_path / name) for name in "abc")
    verdict, *_ = judge_populations([first, second, audit_of(tmp_path / "copy of b")])
    assert verdict.verdict == ASSUMED
    assert verdict.claim.endswith("are about one population, 'ward 7': (3.5, 2e-05) together")
    assert list(judge_populations([first])) == []
    assert [one.verdict for one in judge_populations([first, second, unnamed])] == [ASSUMED, ASSUMED]


def test_two_histories_of_one_ledger_contradict_each_other_and_copies_do_not(tmp_path: Path) -> None:
    ledger = make_ledger(tmp_path / "a", QUERY, QUERY)
    for name in "bc":
        shutil.copy(tmp_path / "a", tmp_path / name)
    ledger.debit(QUERY)
    PrivacyLedger(tmp_path / "c").debit(QUERY.repeat(2))
    first, older, other = (audit_of(tmp_path / name) for name in "abc")
    assert [one.verdict for one in judge_populations([first, older])][-1] == CONSISTENT
    (verdict,) = [one for one in judge_populations([first, other]) if one.about == "ledger"]
    assert verdict.verdict == FALSE
    assert "entry 3" in verdict.reason


# ------------------------------------------------------------------------------------------------ labels


def make_entry(labels: Any, table: str = "", output: str = "", count: int = 0) -> Entry:
    digest = "" if count else labels_digest(np.asarray(labels))
    return Entry(1, "", 1, count or len(labels), "", table, digest, output, (), {}, "", None)


def judge_log(labels: Any, *log: Entry) -> list[Verdict]:
    """Judge labels that a ledger with these entries paid for."""
    entries = tuple(replace(entry, number=number) for number, entry in enumerate(log, 1))
    ledger = Ledger("", "20", "0.01", "one", "", "", {1: Charge()}, {}, entries, (), ())
    return list(judge_labels(LabelsFile.of(labels), {"t": answering_of(TABLE)}, [ledger], None))


def judge_lines(folder: Path, lines: Sequence[bytes], **settings: Any) -> str:
    """Judge lines of labels against the table and the ledger of a folder; return what is false."""
    path = folder / "lines.csv"
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    releases = {"t": answering_of(Table.load(folder / "table.json"))}
    ledgers = [ledger_of(folder / "ledger.sqlite")]
    return false_claims(judge_labels(read_labels(path), releases, ledgers, settings.get("classes")))


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("classes", [("no", "yes"), ("a,b", 'say "c"'), (" x", "x\n"), (-5, 70_000)])
@pytest.mark.parametrize("suffix", ["csv", pytest.param("npy", marks=pytest.mark.slow)])
def test_labels_of_any_name_are_found_in_their_debit(classes: tuple[Any, Any], suffix: str, copied: Folders) -> None:
    folder = copied("majority")
    path, ledger = folder / f"named.{suffix}", PrivacyLedger(folder / "ledger.sqlite")
    votes = Votes.from_labels(np.asarray(classes)[[[0, 0, 1], [1, 1, 1], [1, 0, 1]]], classes)
    release_debited(Release(Table.load(folder / "table.json")), votes, ledger=ledger, output=path)
    result = audit([folder / "table.json", ledger.path, path])
    assert result.status == 0
    (labels,) = result.labels.values()
    assert set(labels.names) <= set(map(str, classes))


def test_labels_of_several_debits_may_be_in_one_file(copied: Folders) -> None:
    folder = copied("majority")
    first = (folder / "labels.csv").read_bytes().split()
    lines = [*first, *(b"%d" % label for label in np.load(folder / "more.npy"))]
    assert judge_lines(folder, lines) == ""
    numbered = [b"%d,%s" % pair for pair in enumerate(lines, 1)]
    assert judge_lines(folder, [*reversed(numbered), numbered[3]]) == ""
    changed = [*lines[:-1], b"0" if lines[-1] == b"1" else b"1"]
    for wrong in (changed, lines[1:], lines[:-1], lines + lines):
        assert WRONG_DEBIT in judge_lines(folder, wrong)
    assert "one of no, yes" in judge_lines(folder, first, classes=("no", "yes"))


def test_labels_that_end_within_a_debit_of_a_stream_are_unknown() -> None:
    labels = np.arange(9) % 2
    log = [make_entry(labels[start:stop], output="-s") for start, stop in ((0, 4), (4, 9))]

    def judge_part(part: Any, *entries: Entry) -> tuple[str, str]:
        (verdict,) = [one for one in judge_log(part, *entries) if one.claim == WRONG_DEBIT]
        return verdict.verdict, verdict.reason

    reason = "the first 4 are; the other 3 are fewer than the next debit has: give all"
    assert judge_part(labels[:7], *log) == (UNKNOWN, reason)
    assert {judge_part(part, *log)[0] for part in (labels, labels[:4], labels[4:])} == {PROVED}
    for wrong in (labels[:3], 1 - labels[:7], labels[1:8]):
        assert judge_part(wrong, *log)[0] == FALSE
    files = [replace(entry, output="/a/file.csv") for entry in log]
    assert judge_part(labels[:7], *files)[0] == FALSE


def test_a_stream_is_counted_once() -> None:
    labels = np.array([0, 1, 1])
    verdicts = judge_log(labels, *(make_entry(part, output="s") for part in (labels[:2], labels[2:])))
    assert [one.reason for one in verdicts if one.claim.startswith("as many")] == ["3 labels, 3 paid"]


def test_streams_that_take_turns_in_one_ledger_are_judged_each_for_itself(copied: Folders) -> None:
    folder = copied("majority")
    table, ledger = Table.load(folder / "table.json"), PrivacyLedger(folder / "ledger.sqlite")
    turns, rng = {"day": [2, 1, 3], "night": [1, 2, 2]}, np.random.default_rng(5)
    streams = {name: open_release(table, ledger, stream=name) for name in turns}
    answers: dict[str, list[int]] = {name: [] for name in turns}
    for place in range(3):
        for name, counts in turns.items():
            votes = Votes.from_labels(rng.integers(0, 2, (counts[place], 3)), 2)
            answers[name] += streams[name].answer_together(votes)
    for name, labels in answers.items():
        streams[name].close()
        for part in (labels, labels[turns[name][0] :]):
            assert judge_lines(folder, [b"%d" % label for label in part]) == ""


def test_labels_are_of_the_table_of_each_of_their_debits() -> None:
    claim, labels = "they were drawn with this table", np.array([0, 1, 1, 0, 1])
    parts = [make_entry(labels[:2], "other"), make_entry(labels[2:], TABLE.digest)]
    assert claim in false_claims(judge_log(labels, *parts))
    assert false_claims(judge_log(labels, *(replace(entry, table=TABLE.digest) for entry in parts))) == ""
    whole = [make_entry(labels, name) for name in ("other", TABLE.digest)]  # equal labels are of either
    assert claim in false_claims(judge_log(labels, whole[0]))
    assert false_claims(judge_log(labels, *whole)) == false_claims(judge_log(labels, *whole[::-1])) == ""


def test_labels_without_digests_are_as_many_as_one_or_all_debits_paid_for() -> None:
    log = [make_entry([], TABLE.digest, count=count) for count in (3, 4, 5)]
    accepted = [number for number in range(1, 14) if not false_claims(judge_log([0] * number, *log))]
    assert accepted == [3, 4, 5, 12]


def test_a_search_that_takes_too_long_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("darrm.verify.ledger._MAX_DIGESTS", 2_000)
    log = [make_entry([1], output="stream")] * 200
    (verdict,) = [one for one in judge_log([1] * 99 + [0], *log) if one.claim == WRONG_DEBIT]
    assert verdict.verdict == UNKNOWN
    assert "takes too long" in verdict.reason
    assert PROVED in {one.verdict for one in judge_log([1] * 99, *log)}
