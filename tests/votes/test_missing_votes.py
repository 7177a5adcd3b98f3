"""Missing votes: how they are spelled, the law of the labels with coins in their places, and what plans say of it."""

import json
import math
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from darrm import priors
from darrm.commands.command_line import run
from darrm.ledger.ledger import PrivacyLedger
from darrm.majority.noise_function import NoiseFunction
from darrm.noisy_max.noisy_maximum import NoisyMaximum
from darrm.noisy_max.selection import ExponentialMechanism
from darrm.optimize.plurality import optimize_plurality
from darrm.plan import __main__ as plan_command
from darrm.plan import accuracy as accuracy_module
from darrm.plan.accuracy import Measure
from darrm.plan.planner import find_mechanism
from darrm.plan.tables import Exponential
from darrm.priors import RecordedVotes
from darrm.privacy import PrivacyParams
from darrm.problem import Problem, Voters, Workload
from darrm.table.release import Release
from darrm.table.table import certify
from darrm.verify import __main__ as verify
from darrm.votes import Votes, to_counts
from darrm.votes import votes as votes_module
from tests.doors import one_error, refused, releasing, validated
from tests.planned import accuracy_of
from tests.votes.support import NO_YES, check_refusal, list_missing, read_csv, write_parquet

NAN = math.nan
TABLE = certify(Problem.from_allowance(Voters(5, PrivacyParams("0.3", "1e-3")), 3), NoiseFunction(5, [0.3, 0.1, 0.9]))
RELEASE = Release(TABLE)


class Missing:
    """Compares like pandas' NA: with nothing, and without a truth value."""

    def __repr__(self) -> str:
        return "<NA>"

    def __eq__(self, other: object) -> Any:
        return self

    def __bool__(self) -> bool:
        raise TypeError("boolean value of NA is ambiguous")

    __hash__ = None  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        ([[1, None, 0], [1, 1, 0]], 2),
        ([[1, NAN, 0], [1, 1, 0]], 2),
        (np.array([[True, NAN, False], [True, True, False]], dtype=object), 2),
        (np.array([[1, Missing(), 0], [1, 1, 0]], dtype=object), 2),
        ([["yes", None, "no"], ["yes", "yes", "no"]], NO_YES),
        ([["yes", "", "no"], ["yes", "yes", "no"]], NO_YES),
        ([["yes", "NA", "no"], ["yes", "yes", "no"]], NO_YES),
    ],
    ids=["None", "NaN", "NaN, booleans", "NA", "None, text", "empty text", "the text NA"],
)
def test_a_missing_vote_is_refused_or_counted(labels: Any, classes: Any) -> None:
    message = r"from voter 1 to query 0: it is missing, .*--missing coin"
    check_refusal(lambda: Votes.from_labels(labels, classes), message)
    votes = Votes.from_labels(labels, classes, missing="coin")
    assert (votes.counts.tolist(), list_missing(votes), votes.voters) == ([[1, 1], [1, 2]], [1, 0], 3)
    assert Votes.from_labels(labels[1:], classes, missing="coin").missing is None
    assert repr(votes).endswith("from labels, 1 missing)")


@pytest.mark.parametrize(
    ("labels", "classes", "message"),
    [
        ([[0, -1]], 2, "got -1 from voter 1 to query 0: a vote that is missing is NaN or None"),
        ([[NAN, 0.5]], 2, "got 0.5 from voter 1 to query 0: a probability"),
        ([[0, 1], [None, 7]], 2, "got 7 from voter 1 to query 1"),
        ([["no", "nan"]], NO_YES, "got 'nan' from voter 1"),
    ],
)
def test_what_is_no_vote_is_not_missing(labels: Any, classes: Any, message: str) -> None:
    check_refusal(lambda: Votes.from_labels(labels, classes, missing="coin"), message)


def test_a_class_may_be_called_na_or_nothing() -> None:
    votes = Votes.from_labels([["NA", "yes", ""]], classes=("NA", "yes"), missing="coin")
    assert (votes.counts.tolist(), list_missing(votes)) == ([[1, 1]], [1])
    assert Votes.from_labels([["", "no"]], classes=("", "no"), missing="coin").missing is None


def test_votes_hold_a_read_only_copy_of_the_numbers_of_missing_votes() -> None:
    missing = np.array([1, 0])
    votes = Votes(np.array([[1, 1], [1, 2]]), 3, (0, 1), "labels", missing)
    missing[0] = 9
    assert (list_missing(votes), list_missing(votes[:1]), votes[1:].missing) == ([1, 0], [1], None)
    assert votes[np.array([False, True])].ones.tolist() == [2]
    with pytest.raises(ValueError, match="read-only"):
        votes.missing[0] = 2  # type: ignore[index]


@pytest.mark.parametrize(
    ("missing", "source_format", "message"),
    [
        ([1], "labels", "missing must be 2 whole numbers"),
        ([1.0, 0.0], "labels", "missing must be 2 whole numbers"),
        ([2, -1], "labels", "missing must be 2 whole numbers"),
        ([2, 0], "labels", "the sum of row 0 of the vote counts must be K = 3, got 4"),
        ([1, 0], "counts", "missing must be None"),
    ],
)
def test_votes_refuse_wrong_numbers_of_missing_votes(missing: list[float], source_format: Any, message: str) -> None:
    counts = np.array([[1, 1], [1, 2]])
    check_refusal(lambda: Votes(counts, 3, (0, 1), source_format, np.array(missing)), message)


@pytest.mark.parametrize("use", [lambda votes: votes.ones, to_counts, partial(RecordedVotes, "mine")])
def test_incomplete_votes_are_refused_where_complete_ones_are_needed(use: Callable[[Votes], object]) -> None:
    votes = Votes.from_labels([[0, NAN, 1]], missing="coin")
    check_refusal(lambda: use(votes), "votes must be complete, got 1 missing")


@pytest.mark.parametrize(
    ("content", "classes", "counts", "missing"),
    [
        (b"0,,1\n1,NA,1\n", 2, [[1, 1], [0, 2]], [1, 1]),
        (b'"",0,1\r\n NA ,\t,1', 2, [[1, 1], [0, 1]], [1, 2]),
        (b",0,1\n0,1,1\n", 2, [[1, 1], [1, 2]], [1, 0]),  # no header of a data frame
        (b"no,,yes\nNA,no,no\n", NO_YES, [[1, 1], [2, 0]], [1, 1]),
        (b" NA ,,yes\n", ("NA", "yes"), [[1, 1]], [1]),
        (b"\xef\xbb\xbf,1\n1,1\n", 2, [[0, 1], [0, 2]], [1, 0]),
    ],
)
def test_a_text_may_lack_votes(
    content: bytes, classes: Any, counts: list[list[int]], missing: list[int], tmp_path: Path
) -> None:
    message = r"line 1, field [12]: the vote is missing .*--missing coin"
    check_refusal(lambda: read_csv(tmp_path, content, classes=classes, layout="labels"), message)
    votes = read_csv(tmp_path, content, classes=classes, missing="coin")
    assert (votes.counts.tolist(), list_missing(votes), votes.source_format) == (counts, missing, "labels")


MATRICES = st.integers(1, 6).flatmap(
    lambda K: st.lists(st.lists(st.sampled_from([0, 1, NAN]), min_size=K, max_size=K), min_size=1, max_size=8)
)


@given(matrix=MATRICES, classes=st.sampled_from([2, NO_YES]), suffix=st.sampled_from([".npy", ".csv"]))
def test_a_file_has_the_votes_of_its_matrix(
    matrix: list[list[float]], classes: Any, suffix: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    array, path = np.array(matrix), tmp_path_factory.mktemp("files") / f"votes{suffix}"
    names: dict[float, str] = dict(enumerate("01" if classes == 2 else NO_YES))
    blank = "NA" if classes == NO_YES or array.shape[1] == 1 else ""  # a blank line is no query
    words = np.array([[names.get(vote, blank) for vote in row] for row in matrix])
    if suffix == ".npy":
        np.save(path, array if classes == 2 else words)
    else:
        np.savetxt(path, words, fmt="%s", delimiter=",")
    votes = Votes.read(path, classes=classes, voters=array.shape[1], missing="coin")
    assert votes.counts.tolist() == [[int((row == vote).sum()) for vote in (0, 1)] for row in array]
    assert list_missing(votes) == np.isnan(array).sum(axis=1).tolist()


# coins and dice


@pytest.mark.parametrize("at_once", [1, 2, 3, 2**20])
def test_every_coin_is_one_vote_and_all_patterns_are_equally_likely(
    at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(votes_module, "_COINS_AT_ONCE", at_once)
    labels = np.array([[1, NAN, NAN, 0], [0, 0, 1, 1], [NAN] * 4, [1, 1, NAN, 1]])
    votes = Votes.from_labels(labels, missing="coin")
    missing = np.isnan(labels).sum(axis=1)
    for pattern in product((False, True), repeat=int(missing.sum())):
        coins = iter([0 if is_head else 255 for is_head in pattern])  # one byte each
        rng: Any = SimpleNamespace(bytes=lambda size, coins=coins: bytes(next(coins) for _ in range(size)))
        heads = [sum(part) for part in np.split(np.array(pattern), np.cumsum(missing)[:-1])]
        complete = votes.impute_missing(rng=rng)
        assert complete.ones.tolist() == (np.nansum(labels, axis=1) + heads).tolist()
        assert (complete.missing, complete.voters, complete.source_format) == (None, 4, "labels")


def test_every_die_is_one_vote_and_all_rolls_are_equally_likely(monkeypatch: pytest.MonkeyPatch) -> None:
    labels = np.array([["a", None, None], ["c", "b", None], [None] * 3])
    votes = Votes.from_labels(labels, classes=("a", "b", "c"), missing="coin")
    assert (votes.counts.tolist(), list_missing(votes)) == ([[1, 0, 0], [0, 1, 1], [0, 0, 0]], [2, 1, 3])
    for roll in product(range(3), repeat=6):

        def draw_below(limits: Any, roll: tuple[int, ...] = roll) -> Any:
            assert limits.tolist() == [3] * 6
            return np.array(roll)

        monkeypatch.setattr(votes_module, "uniform_below", lambda _, draw=draw_below: draw)
        complete = votes.impute_missing()
        dice = np.array([np.bincount(part, minlength=3) for part in (roll[:2], roll[2:3], roll[3:])])
        assert np.array_equal(complete.counts, votes.counts + dice)
        assert (complete.missing, complete.voters, complete.source_format) == (None, 3, "labels")


def test_each_release_tosses_new_coins() -> None:
    votes = Votes.from_labels(np.full((200, 5), NAN), missing="coin")
    assert len({tuple(votes.impute_missing().ones.tolist()) for _ in range(3)}) == 3  # equal with probability 2^-300
    assert list_missing(votes) == [5] * 200
    first, second = (RELEASE.release(votes, rng=np.random.default_rng(1)) for _ in range(2))
    assert first.tolist() == second.tolist()  # an experiment's coins come from its generator
    check_refusal(lambda: votes.impute_missing(rng=1), "rng must be a generator")  # type: ignore[arg-type]


def probability_of_one(ones: int, missing: int) -> Fraction:
    """Compute Pr[the label is 1] by listing the coins."""
    listed = [RELEASE.probability_of_one(ones + sum(coins)) for coins in product((0, 1), repeat=missing)]
    return sum(listed, Fraction(0)) / 2**missing


@pytest.mark.statistical
@pytest.mark.parametrize("missing", [1, 2, 4, 5])
def test_labels_have_the_law_of_all_coins(missing: int) -> None:
    n, rng = 40_000, np.random.default_rng(missing)
    for ones in range(5 - missing + 1):
        row = [1.0] * ones + [0.0] * (5 - missing - ones) + [NAN] * missing
        votes = Votes.from_labels(np.tile(row, (n, 1)), missing="coin")
        p = float(probability_of_one(ones, missing))
        # 5.5 standard deviations: a false alarm of 4e-8 each, 4e-7 in all
        assert abs(RELEASE.release(votes, rng=rng).mean() - p) <= 5.5 * math.sqrt(p * (1 - p) / n)


@pytest.mark.statistical
@pytest.mark.parametrize("kind", ["table", "noise"])
def test_labels_of_three_classes_have_the_law_of_all_rolls(kind: str) -> None:
    n, teachers = 40_000, Voters(4, PrivacyParams("inf"), overlap=1)
    aggregator: Any = NoisyMaximum(ExponentialMechanism(2.0, reached=1), teachers, 3)
    law: Any = partial(Exponential.law, 1.0)
    if kind == "table":
        table = optimize_plurality(Problem(teachers, PrivacyParams(1), classes=3))
        aggregator, law = Release(table), table.law.probabilities
    votes = Votes.from_labels(np.tile([2.0, 2.0, 0.0, NAN], (n, 1)), classes=3, missing="coin")
    frequencies = np.bincount(aggregator.release(votes, rng=np.random.default_rng(3)), minlength=3) / n
    true = law(np.array([[2, 0, 2], [1, 1, 2], [1, 0, 3]])).mean(axis=0)
    # 5.5 standard deviations: a false alarm of 4e-8 each
    assert np.all(np.abs(frequencies - true) <= 5.5 * np.sqrt(true * (1 - true) / n))


def test_with_missing_is_the_law_of_all_coins() -> None:
    assert probability_of_one(0, 5) == Fraction(1, 2)
    effective = TABLE.gamma.with_missing(2)
    for ones in range(4):
        assert float(probability_of_one(ones, 2)) == pytest.approx((1 + effective.signed[ones]) / 2, abs=1e-15)


@pytest.mark.parametrize("missing", [0, 1, 2, 3, 4])
def test_the_release_with_coins_stays_private(missing: int) -> None:
    """Try all corners of the voters who answer, with all coins."""
    problem, there = TABLE.problem, 5 - missing
    epsilon, delta = problem.voters.each.epsilon, problem.voters.each.delta
    ratio, allowed = math.exp(problem.target.epsilon), problem.target.delta
    hi = (math.exp(epsilon) + delta) / (math.exp(epsilon) + 1)
    corners = [(0, 0), (1, 1), (hi, 1 - hi), (1 - hi, hi), (0, delta), (delta, 0), (1 - delta, 1), (1, 1 - delta)]
    law = np.array([float(probability_of_one(ones, missing)) for ones in range(there + 1)])
    worst = -1.0
    for assignment in product(corners, repeat=there):
        if list(assignment) != sorted(assignment):
            continue
        p, q = np.ones(1), np.ones(1)
        for first, second in assignment:
            p, q = np.convolve(p, [1 - first, first]), np.convolve(q, [1 - second, second])
        worst = max(worst, p @ law - ratio * (q @ law), p @ (1 - law) - ratio * (q @ (1 - law)))
    assert worst <= allowed + 1e-12


# expected errors, and plans


def error_and_accuracy(gamma: NoiseFunction, p: Fraction, missing: int) -> tuple[Fraction, Fraction]:
    """Compute both for one p over all votes and all coins."""
    there, signed = gamma.K - missing, [Fraction(float(value)) for value in gamma.signed]
    label, majority, accuracy = Fraction(0), Fraction(0), Fraction(0)
    for votes in product((0, 1), repeat=there):
        chance = math.prod((p if vote else 1 - p for vote in votes), start=Fraction(1))
        coins = product((0, 1), repeat=missing)
        one = sum(((1 + signed[sum(votes) + sum(toss)]) / 2 for toss in coins), Fraction(0)) / 2**missing
        lead = 2 * sum(votes) - there
        label += chance * one
        majority += chance * (Fraction(1, 2) if lead == 0 else int(lead > 0))
        accuracy += chance * (1 if lead == 0 else one if lead > 0 else 1 - one)
    return abs(label - majority), accuracy


GAMMAS = ([1.0], [0.7], [0.2, 0.9], [0.9, 0.1], [0.8, 0.3, 0.9], [0.0, 1.0, 0.0])


@pytest.mark.parametrize(
    ("half", "K", "missing"),
    [(half, K, t) for half in GAMMAS for K in (2 * len(half) - 1, 2 * len(half)) if K <= 5 for t in range(K)],
)
def test_the_expected_error_with_missing_votes_by_brute_force(half: list[float], K: int, missing: int) -> None:
    gamma = NoiseFunction(K, half)
    effective = gamma.with_missing(missing)
    assert K - missing == effective.K
    for p in (Fraction(3, 4), Fraction(1, 8)):
        error, accuracy = error_and_accuracy(gamma, p, missing)
        assert effective.expected_error(priors.Point(float(p))) == pytest.approx(float(error), abs=1e-14)
        assert effective.accuracy(priors.Point(float(p))) == pytest.approx(float(accuracy), abs=1e-14)
    # for a common p the error is a polynomial of a degree below 2·8 on each side of 1/2
    nodes, weights = np.polynomial.legendre.leggauss(8)
    values = [error_and_accuracy(gamma, Fraction(float(node)), missing) for node in (3.0 + nodes) / 4.0]
    error, accuracy = weights @ np.array(values, dtype=float) / 2.0
    assert effective.expected_error(priors.Dirichlet()) == pytest.approx(error, abs=1e-13)
    assert effective.accuracy(priors.Dirichlet()) == pytest.approx(accuracy, abs=1e-13)


def test_fewer_votes_may_be_missing_than_there_are_voters() -> None:
    gamma = NoiseFunction(5, [0.8, 0.3, 0.9])
    assert gamma.with_missing(0).half.tolist() == gamma.half.tolist()
    assert gamma.with_missing(2).with_missing(1).half.tolist() == gamma.with_missing(3).half.tolist()
    for missing in (5, -1, 1.0):
        check_refusal(lambda t=missing: gamma.with_missing(t), "missing must be an integer of at")  # type: ignore[misc]


@pytest.mark.parametrize("missing", range(5))
def test_a_plan_measures_the_votes_that_are_there(missing: int) -> None:
    workload = Workload(Voters(5, PrivacyParams("0.3", "1e-3")), 3, PrivacyParams(3, "0.01"), missing=missing)
    measure, law = Measure(workload, priors.Dirichlet()), TABLE.gamma.probabilities
    gamma = TABLE.gamma.with_missing(missing)
    accuracy = measure.accuracy(law)
    assert accuracy is not None
    assert accuracy.value == pytest.approx(gamma.accuracy(priors.Dirichlet()), abs=1e-15)
    assert measure.expected_error(law) == pytest.approx(gamma.expected_error(priors.Dirichlet()), abs=1e-15)
    assert measure.curve(law) == pytest.approx(0.5 + 0.5 * gamma.half)
    assert measure.levels.tolist() == gamma.levels.tolist()


@pytest.mark.parametrize(("missing", "is_sampled"), [(1, False), (2, False), (3, False), (2, True)])
def test_the_accuracy_for_three_classes_is_that_of_all_labels_and_rolls(
    missing: int, is_sampled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    K, law = 5, partial(Exponential.law, 0.75)
    total = weight = 0.0
    for votes in product(range(3), repeat=K - missing):
        counts = np.bincount(votes, minlength=3)
        # all histograms are equally likely: divide by the number of tuples of labels with the same one
        chance = math.prod(map(math.factorial, counts.tolist())) / math.factorial(K - missing)
        rolls = np.array([counts + np.bincount(roll, minlength=3) for roll in product(range(3), repeat=missing)])
        total += chance * float(law(rolls).mean(axis=0)[counts == counts.max()].sum())
        weight += chance
    if is_sampled:
        monkeypatch.setattr(accuracy_module, "MOST_ROLLED", 20_000)
        monkeypatch.setattr(accuracy_module, "number_of_rolls", lambda *_: 10**9)
    accuracy_module.make_sample.cache_clear()
    accuracy = accuracy_of(law, K, 3, priors.Dirichlet(), missing=missing)
    accuracy_module.make_sample.cache_clear()
    assert (accuracy.standard_error > 0.0) == is_sampled
    assert accuracy.value == pytest.approx(total / weight, abs=6.0 * accuracy.standard_error + 1e-12)


@pytest.mark.slow
def test_the_plan_command_ranks_by_the_votes_that_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    mechanisms = [find_mechanism(name) for name in ("optimal", "exponential", "permute-and-flip")]
    monkeypatch.setattr("darrm.plan.planner.MECHANISMS", mechanisms)
    flags = ["--epsilon", "0.1,0.2,0.3,0.4,0.5,0.7,1", "--each-delta", "0", "--queries", "30", "--total", "8,0.01"]

    def show_plan(*more: str) -> str:
        assert run(partial(plan_command.main, [*flags, *more])) == 0
        return capsys.readouterr().out

    by_error = ["--objective", "error", "--prior", "dirichlet", "--format", "json", "--missing"]
    reports = [validated(show_plan(*by_error, missing), "plan_report") for missing in "02"]
    assert [report["best"] for report in reports] == ["optimal", "exponential"]  # the latter errs less on five votes
    errors = [row["expected_error"] for row in reports[1]["mechanisms"]]
    assert errors == sorted(errors)
    assert (reports[1]["workload"]["missing"], reports[1]["levels"]) == (2, [3, 4, 5])
    assert "--missing 2" in show_plan("--missing", "2")
    text = show_plan("--missing", "2", "--output", "plan.json")
    assert "2 of 7 votes are missing: a fair coin replaces each" in text
    assert "--missing coin" in text
    refused(plan_command.main, [*flags, "--missing", "7"], "--missing must be below K = 7", capsys)


# releases


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    TABLE.save(tmp_path / "table.json")
    PrivacyLedger.create(tmp_path / "l.sqlite", PrivacyParams(200, "0.5"))
    (tmp_path / "votes.csv").write_text("1,1,,1,1\n0,0,0,0,\n,,,,1\n1,0,1,0,1\n", encoding="utf-8")
    np.save(tmp_path / "votes.npy", np.array([[1, NAN, 1, 1, 1], [0, 0, 0, 0, NAN], [NAN] * 4 + [1], [1, 0, 1, 0, 1]]))
    return tmp_path


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("votes", ["votes.csv", "votes.npy"])
def test_incomplete_votes_are_released_paid_for_and_audited(
    votes: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert releasing(folder, votes) == 2
    one_error("--missing coin", capsys)
    assert not (folder / "labels.npy").exists()
    assert releasing(folder, votes, "--missing", "coin", "--format", "json") == 0
    output = capsys.readouterr()
    assert output.err == "note: 6 of 20 votes are missing, and a fair coin stands for each\n"
    assert json.loads(output.out)["labels"] == 4
    assert PrivacyLedger(folder / "l.sqlite").spent.queries == 4
    files = [str(folder / name) for name in ("table.json", "l.sqlite", "labels.npy")]
    assert run(lambda: verify.main(files)) == 0
    assert "labels match their debit" in capsys.readouterr().out
    assert releasing(folder, votes, "--missing", "coin", "--quiet", output="more.npy") == 0
    assert capsys.readouterr() == ("", "")


def test_nulls_of_parquet_files_are_missing_votes(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    columns: dict[str, list[Any]] = {f"v{i}": [1, None, 0] for i in range(2)}
    columns |= {"v2": [1.0, NAN, 0.0], "v3": ["1", "NA", ""], "v4": [True, True, None]}
    write_parquet(folder / "votes.parquet", columns)
    assert releasing(folder, "votes.parquet", output="labels.parquet") == 2
    assert "--missing coin" in one_error("row 1, column 'v0': the vote is missing", capsys)
    assert PrivacyLedger(folder / "l.sqlite").entries() == ()
    votes = Votes.read(folder / "votes.parquet", voters=5, missing="coin")
    assert (votes.counts.tolist(), list_missing(votes)) == ([[0, 5], [0, 1], [3, 0]], [0, 4, 2])
    assert releasing(folder, "votes.parquet", "--missing", "coin", output="labels.parquet") == 0
    labels = pytest.importorskip("pyarrow.parquet").read_table(folder / "labels.parquet")["label"]
    assert (len(labels), labels.null_count) == (3, 0)
