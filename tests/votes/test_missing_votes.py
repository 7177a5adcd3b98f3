"""Missing votes: what is one, the law of the labels where coins stand for them, and what is paid."""

import json
import math
import re
from collections import Counter
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
from darrm.votes import ROWS_AT_ONCE, Votes, to_counts
from darrm.votes import votes as votes_module
from tests.doors import one_error, releasing, validated
from tests.planned import accuracy_of

NAN = math.nan
NO_YES = ("no", "yes")
TABLE = certify(Problem.from_allowance(Voters(5, PrivacyParams("0.3", "1e-3")), 3), NoiseFunction(5, [0.3, 0.1, 0.9]))


class Missing:
    """As pandas' NA: it compares with nothing, and has no truth."""

    def __repr__(self) -> str:
        return "<NA>"

    def __eq__(self, other: object) -> Any:
        return self

    def __bool__(self) -> bool:
        raise TypeError("boolean value of NA is ambiguous")

    __hash__ = None  # type: ignore[assignment]


SPELLINGS: dict[str, tuple[Any, Any]] = {
    "None": ([[1, None, 0], [1, 1, 0]], 2),
    "NaN": ([[1, NAN, 0], [1, 1, 0]], 2),
    "NaN beside booleans": (np.array([[True, NAN, False], [True, True, False]], dtype=object), 2),
    "NA": (np.array([[1, Missing(), 0], [1, 1, 0]], dtype=object), 2),
    "None beside words": ([["yes", None, "no"], ["yes", "yes", "no"]], NO_YES),
    "an empty word": ([["yes", "", "no"], ["yes", "yes", "no"]], NO_YES),
    "the word NA": ([["yes", "NA", "no"], ["yes", "yes", "no"]], NO_YES),
}


@pytest.mark.parametrize("name", SPELLINGS)
def test_what_is_missing_is_refused_or_counted(name: str) -> None:
    labels, classes = SPELLINGS[name]
    with pytest.raises(ValueError, match=r"from voter 1 to query 0: it is missing, .*--missing coin") as caught:
        Votes.from_labels(labels, classes)
    assert "\n" not in str(caught.value)
    votes = Votes.from_labels(labels, classes, missing="coin")
    assert votes.missing is not None
    assert (votes.counts.tolist(), votes.missing.tolist(), votes.voters) == ([[1, 1], [1, 2]], [1, 0], 3)
    assert Votes.from_labels(labels[1:], classes, missing="coin").missing is None
    assert repr(votes).endswith("from labels, 1 missing)")


@pytest.mark.parametrize(
    ("labels", "classes", "message"),
    [
        ([[0, -1]], 2, "got -1 from voter 1 to query 0: a vote that is missing is NaN or None"),
        ([[NAN, 0.5]], 2, "got 0.5 from voter 1 to query 0: a probability"),
        ([[0, 1], [None, 7]], 2, "got 7 from voter 1 to query 1"),
        ([["no", "nan"]], NO_YES, "got 'nan' from voter 1"),
        ([[0, 1]], ("a", NAN), "classes must be text or numbers"),
        (np.ma.masked_equal([[0, 7]], 7), 2, "masked entries: .* None"),
    ],
)
def test_what_is_no_vote_stays_none(labels: object, classes: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Votes.from_labels(labels, classes, missing="coin")  # type: ignore[arg-type]


def test_a_class_may_be_called_na_or_nothing() -> None:
    votes = Votes.from_labels([["NA", "yes", ""]], classes=("NA", "yes"), missing="coin")
    assert votes.missing is not None
    assert (votes.counts.tolist(), votes.missing.tolist()) == ([[1, 1]], [1])
    assert Votes.from_labels([["", "no"]], classes=("", "no"), missing="coin").missing is None


def test_votes_by_hand_say_how_many_are_missing() -> None:
    absent = np.array([1, 0])
    votes = Votes(np.array([[1, 1], [1, 2]]), 3, (0, 1), "labels", absent)
    absent[0] = 9
    assert votes.missing is not None
    assert votes.missing.tolist() == [1, 0]
    assert votes[:1].missing is not None
    assert votes[1:].missing is None
    assert votes[np.array([False, True])].ones.tolist() == [2]
    with pytest.raises(ValueError, match="read-only"):
        votes.missing[0] = 2
    for missing, origin, message in (
        ([1], "labels", "missing must be 2 whole numbers"),
        ([1.0, 0.0], "labels", "missing must be 2 whole numbers"),
        ([2, -1], "labels", "missing must be 2 whole numbers"),
        ([2, 0], "labels", "the sum of row 0 of the vote counts must be K = 3, got 4"),
        ([1, 0], "counts", "missing must be None"),
    ):
        with pytest.raises(ValueError, match=message):
            Votes(np.array([[1, 1], [1, 2]]), 3, (0, 1), origin, np.array(missing))  # type: ignore[arg-type]


def test_incomplete_votes_are_not_taken_for_complete_ones() -> None:
    votes = Votes.from_labels([[0, NAN, 1]], missing="coin")
    calls: tuple[Callable[[], object], ...] = (
        lambda: votes.ones,
        lambda: to_counts(votes),
        lambda: RecordedVotes("mine", votes),
    )
    for call in calls:
        with pytest.raises(ValueError, match="votes must be complete, got 1 missing"):
            call()


# files


@pytest.mark.parametrize(
    ("content", "classes", "counts", "missing"),
    [
        (b"0,,1\n1,NA,1\n", 2, [[1, 1], [0, 2]], [1, 1]),
        (b'"",0,1\r\n NA ,\t,1', 2, [[1, 1], [0, 1]], [1, 2]),
        (b",0,1\n0,1,1\n", 2, [[1, 1], [1, 2]], [1, 0]),  # not the header of a frame
        (b"no,,yes\nNA,no,no\n", NO_YES, [[1, 1], [2, 0]], [1, 1]),
        (b" NA ,,yes\n", ("NA", "yes"), [[1, 1]], [1]),
        (b"\xef\xbb\xbf,1\n1,1\n", 2, [[0, 1], [0, 2]], [1, 0]),
    ],
)
def test_missing_votes_of_csv_files(
    content: bytes, classes: Any, counts: list[list[int]], missing: list[int], tmp_path: Path
) -> None:
    path = tmp_path / "votes.csv"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"line 1, field [12]: the vote is missing .*--missing coin"):
        Votes.read(path, classes=classes, layout="labels")
    votes = Votes.read(path, classes=classes, missing="coin")
    assert votes.missing is not None
    assert (votes.counts.tolist(), votes.missing.tolist(), votes.source_format) == (counts, missing, "labels")


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        (b"0,?\n1,1\n", {}, r"line 1, field 2: '\?' is no vote, and a missing one is '' or 'NA'"),
        (b"yes,null\n", {"classes": NO_YES}, "'null' is no vote, and a missing one is '' or 'NA'"),
        (b"NA,null\n", {"classes": ("NA", "yes")}, "'null' is no vote, and a missing one is ''$"),
        (b"0,\n\n1,1\n", {}, "line 2 is blank"),
        (b",north,south\n0,1,0\n", {}, "line 1, field 2: 'north' is no number"),
        (b"0,,1\n", {"voters": 5}, "of K = 5 voters, got 3 columns"),
        (b"a,,d\n", {"classes": ("a", "b", "c")}, "'d' is none of the classes 'a', 'b', 'c'"),
        (b"3,1\n", {"layout": "counts"}, "must be 'refuse' for counts"),
        (b"3,1\n", {"voters": 4}, "line 1, field 1: '3' is none of the classes '0', '1'"),
    ],
)
def test_csv_files_that_stay_refused(content: bytes, options: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = tmp_path / "votes.csv"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message) as caught:
        Votes.read(path, missing="coin", **options)
    assert "\n" not in str(caught.value)


MATRICES = st.integers(1, 6).flatmap(
    lambda K: st.lists(st.lists(st.sampled_from([0, 1, NAN]), min_size=K, max_size=K), min_size=1, max_size=8)
)


@given(matrix=MATRICES, has_names=st.booleans(), suffix=st.sampled_from([".npy", ".csv"]))
def test_a_file_says_what_the_array_says(
    matrix: list[list[float]], has_names: bool, suffix: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path, array = tmp_path_factory.mktemp("files") / f"votes{suffix}", np.array(matrix)
    blank = "NA" if has_names or len(matrix[0]) == 1 else ""  # a line with nothing in it is no query
    words = np.where(
        np.isnan(array), blank, np.where(array == 1, "yes", "no") if has_names else np.char.mod("%g", array)
    )
    if suffix == ".npy":
        np.save(path, words if has_names else array)
    else:
        np.savetxt(path, words, fmt="%s", delimiter=",")
    read = Votes.read(path, classes=NO_YES if has_names else 2, voters=len(matrix[0]), missing="coin")
    assert read.counts.tolist() == [[int((row == vote).sum()) for vote in (0, 1)] for row in array]
    absent = np.isnan(array).sum(axis=1).tolist()
    assert ([0] * len(array) if read.missing is None else read.missing.tolist()) == absent


def test_missing_votes_of_many_rows() -> None:  # more than one block, and more voters than a byte counts
    generator = np.random.default_rng(5)
    for shape in ((ROWS_AT_ONCE + 7, 3), (4, 700)):
        labels = generator.choice([0.0, 1.0, NAN], shape)
        votes = Votes.from_labels(labels, missing="coin")
        assert votes.missing is not None
        assert np.array_equal(votes.missing, np.isnan(labels).sum(axis=1))
        assert np.array_equal(votes.counts[:, 1], (labels == 1).sum(axis=1))


# the coins


def tossing(heads: list[bool]) -> Any:
    """What stands where a generator would: coins that fall as they are told, one byte each."""
    left = [0 if head else 255 for head in heads]

    def draw(size: int) -> bytes:
        taken, left[:] = left[:size], left[size:]
        return bytes(taken)

    return SimpleNamespace(bytes=draw)


@pytest.mark.parametrize("at_once", [1, 2, 3, 2**20])
def test_every_coin_is_one_vote_and_all_patterns_are_equally_likely(
    at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(votes_module, "_COINS_AT_ONCE", at_once)
    labels = np.array([[1, NAN, NAN, 0], [0, 0, 1, 1], [NAN] * 4, [1, 1, NAN, 1]])
    votes = Votes.from_labels(labels, missing="coin")
    missing = np.isnan(labels).sum(axis=1)
    for pattern in product((False, True), repeat=int(missing.sum())):
        heads = [sum(part) for part in np.split(np.array(pattern), np.cumsum(missing)[:-1])]
        full = votes.impute_missing(rng=tossing(list(pattern)))
        assert full.ones.tolist() == [int(np.nansum(row)) + add for row, add in zip(labels, heads, strict=True)]
        assert full.missing is None
        assert (full.voters, full.classes, full.source_format) == (4, (0, 1), "labels")


def law_of_one(ones: int, missing: int) -> Fraction:
    """Pr[the label is 1 | so many ones, so many coins], by listing the coins."""
    aggregator = Release(TABLE)
    listed = [aggregator.probability_of_one(ones + sum(coins)) for coins in product((0, 1), repeat=missing)]
    return sum(listed, Fraction(0)) / 2**missing


@pytest.mark.statistical
@pytest.mark.parametrize("missing", [1, 2, 4, 5])
def test_released_frequencies(missing: int) -> None:
    n = 40_000
    rng = np.random.default_rng(missing)
    for ones in range(5 - missing + 1):
        row = [1.0] * ones + [0.0] * (5 - missing - ones) + [NAN] * missing
        votes = Votes.from_labels(np.tile(row, (n, 1)), missing="coin")
        share, p = Release(TABLE).release(votes, rng=rng).mean(), float(law_of_one(ones, missing))
        # 5.5 standard deviations: a false alarm of 4e-8 each, 4e-7 in all
        assert abs(share - p) <= 5.5 * math.sqrt(p * (1 - p) / n)


def test_all_missing_is_a_fair_coin() -> None:
    assert law_of_one(0, 5) == Fraction(1, 2)
    effective = TABLE.gamma.with_missing(2)
    for ones in range(4):  # the law is that of the γ that a report speaks of
        assert float(law_of_one(ones, 2)) == pytest.approx((1 + effective.signed[ones]) / 2, abs=1e-15)


def test_each_release_tosses_its_own_coins() -> None:
    votes = Votes.from_labels(np.full((200, 5), NAN), missing="coin")
    assert len({tuple(votes.impute_missing().ones.tolist()) for _ in range(3)}) == 3  # equal with probability 2^-300
    assert votes.missing is not None
    assert votes.missing.tolist() == [5] * 200
    first, again = (Release(TABLE).release(votes, rng=np.random.default_rng(1)) for _ in range(2))
    assert first.tolist() == again.tolist()  # the coins of an experiment come from its generator
    with pytest.raises(ValueError, match="rng must be a generator"):
        votes.impute_missing(rng=1)  # type: ignore[arg-type]


@pytest.mark.parametrize("missing", [0, 1, 2, 3, 4])
def test_the_release_stays_private(missing: int) -> None:
    # all corners of the voters that are there, the coins by listing
    problem = TABLE.problem
    epsilon, delta = problem.voters.each.epsilon, problem.voters.each.delta
    c, allowed = math.exp(problem.target.epsilon), problem.target.delta
    hi = (math.exp(epsilon) + delta) / (math.exp(epsilon) + 1)
    corners = [(0, 0), (1, 1), (hi, 1 - hi), (1 - hi, hi), (0, delta), (delta, 0), (1 - delta, 1), (1, 1 - delta)]
    there = 5 - missing
    law = np.array([float(law_of_one(ones, missing)) for ones in range(there + 1)])
    worst = -1.0
    for at in product(corners, repeat=there):
        if list(at) != sorted(at):
            continue
        p, q = np.ones(1), np.ones(1)
        for first, second in at:
            p, q = np.convolve(p, [1 - first, first]), np.convolve(q, [1 - second, second])
        worst = max(worst, p @ law - c * (q @ law), p @ (1 - law) - c * (q @ (1 - law)))
    assert worst <= allowed + 1e-12


# the dice of more classes


def test_every_die_is_one_vote_and_all_rolls_are_equally_likely(monkeypatch: pytest.MonkeyPatch) -> None:
    labels = np.array([["a", None, None], ["c", "b", None], [None] * 3])
    votes = Votes.from_labels(labels, classes=("a", "b", "c"), missing="coin")
    assert votes.missing is not None
    assert (votes.counts.tolist(), votes.missing.tolist()) == ([[1, 0, 0], [0, 1, 1], [0, 0, 0]], [2, 1, 3])
    asked: list[int] = []
    for roll in product(range(3), repeat=6):

        def below(limits: Any, roll: tuple[int, ...] = roll) -> Any:
            asked.extend(limits.tolist())
            return np.array(roll[: limits.size])

        monkeypatch.setattr(votes_module, "uniform_below", lambda _, below=below: below)
        full = votes.impute_missing()
        dealt = [Counter(roll[:2]), Counter(roll[2:3]), Counter(roll[3:])]
        assert full.counts.tolist() == [
            [count + die[c] for c, count in enumerate(row)]
            for row, die in zip(votes.counts.tolist(), dealt, strict=True)
        ]
        assert (full.missing, full.voters, full.source_format) == (None, 3, "labels")
    assert set(asked) == {3}


@pytest.mark.statistical
def test_released_frequencies_of_three_classes() -> None:
    n, plain = 40_000, Voters(4, PrivacyParams("inf"), overlap=1)
    table = optimize_plurality(Problem(plain, PrivacyParams(1), classes=3))
    mechanism = NoisyMaximum(ExponentialMechanism(2.0, reached=1), plain, 3)
    for aggregator, law in (
        (Release(table), table.law.probabilities),
        (mechanism, partial(Exponential.law, 1.0)),
    ):
        votes = Votes.from_labels(np.tile([2.0, 2.0, 0.0, NAN], (n, 1)), classes=3, missing="coin")
        found = np.bincount(aggregator.release(votes, rng=np.random.default_rng(3)), minlength=3) / n
        true = law(np.array([[2, 0, 2], [1, 1, 2], [1, 0, 3]])).mean(axis=0)
        # 5.5 standard deviations: a false alarm of 4e-8 each
        assert np.all(np.abs(found - true) <= 5.5 * np.sqrt(true * (1 - true) / n))


# what plans say


def test_a_plan_is_about_the_votes_that_are_there() -> None:
    """The figures of the table that a plan finds, with coins, by listing all labels and all rolls."""
    voters = Voters(5, PrivacyParams("0.3", "1e-3"))
    for missing in range(5):
        work = Workload(voters, 3, PrivacyParams(3, "0.01"), missing=missing)
        measure, law = Measure(work, priors.Dirichlet()), TABLE.gamma.probabilities
        gamma = TABLE.gamma.with_missing(missing)
        assert measure.expected_error(law) == pytest.approx(gamma.expected_error(priors.Dirichlet()), abs=1e-15)
        share = measure.accuracy(law)
        assert share is not None
        assert share.value == pytest.approx(gamma.accuracy(priors.Dirichlet()), abs=1e-15)
        assert measure.curve(law) == pytest.approx(0.5 + 0.5 * gamma.half)
        assert measure.levels.tolist() == gamma.levels.tolist()


@pytest.mark.parametrize(("missing", "drawn"), [(1, False), (2, False), (3, False), (2, True)])
def test_shares_of_three_classes_are_those_of_all_labels_and_rolls(
    missing: int, drawn: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    K, law = 5, partial(Exponential.law, 0.75)
    total = weight = 0.0
    for votes in product(range(3), repeat=K - missing):
        counts = np.bincount(votes, minlength=3)
        # every histogram is equally likely: a label tuple by the number of those that have its histogram
        chance = math.prod(map(math.factorial, counts.tolist())) / math.factorial(K - missing)
        rolls = np.array([counts + np.bincount(roll, minlength=3) for roll in product(range(3), repeat=missing)])
        total += chance * float(law(rolls).mean(axis=0)[counts == counts.max()].sum())
        weight += chance
    if drawn:
        monkeypatch.setattr(accuracy_module, "MOST_ROLLED", 20_000)
        accuracy_module.make_sample.cache_clear()
        monkeypatch.setattr(accuracy_module, "number_of_rolls", lambda *_: 10**9)
    found = accuracy_of(law, K, 3, priors.Dirichlet(), missing=missing)
    accuracy_module.make_sample.cache_clear()
    assert (found.standard_error > 0.0) == drawn
    assert found.value == pytest.approx(total / weight, abs=6.0 * found.standard_error + 1e-12)


@pytest.mark.slow
def test_a_plan_ranks_by_the_votes_that_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    few = [find_mechanism(name) for name in ("optimal", "exponential", "permute-and-flip")]
    monkeypatch.setattr("darrm.plan.planner.MECHANISMS", few)
    asked = ["--epsilon", "0.1,0.2,0.3,0.4,0.5,0.7,1", "--each-delta", "0", "--queries", "30", "--total", "8,0.01"]
    by_error = ["--objective", "error", "--prior", "dirichlet"]
    reports = []
    for missing in ("0", "2"):
        words = [*asked, *by_error, "--missing", missing, "--format", "json"]
        assert run(partial(plan_command.main, words)) == 0
        reports.append(json.loads(capsys.readouterr().out))
        validated(reports[-1], "plan_report")
    all_there, two_late = reports
    assert all_there["best"] == "optimal"
    assert two_late["best"] == "exponential"  # it errs less than that
    assert two_late["workload"]["missing"] == 2
    errors = [row["expected_error"] for row in two_late["mechanisms"]]
    assert errors == sorted(errors)
    assert two_late["levels"] == [3, 4, 5]
    assert run(lambda: plan_command.main([*asked, "--missing", "2"])) == 0
    assert "--missing 2" in capsys.readouterr().out
    assert run(lambda: plan_command.main([*asked, "--missing", "2", "--output", str(tmp_path / "plan.json")])) == 0
    text = capsys.readouterr().out
    assert "2 of 7 votes are missing: a fair coin replaces each" in text
    assert "--missing coin" in text
    assert run(lambda: plan_command.main([*asked, "--missing", "7"])) == 2
    assert "--missing must be below K = 7" in capsys.readouterr().err


# what is paid


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    TABLE.save(tmp_path / "table.json")
    PrivacyLedger.create(tmp_path / "l.sqlite", PrivacyParams(200, "0.5"))
    (tmp_path / "votes.csv").write_text("1,1,,1,1\n0,0,0,0,\n,,,,1\n1,0,1,0,1\n", encoding="utf-8")
    np.save(tmp_path / "votes.npy", np.array([[1, NAN, 1, 1, 1], [0, 0, 0, 0, NAN], [NAN] * 4 + [1], [1, 0, 1, 0, 1]]))
    np.save(tmp_path / "counts.npy", np.array([[1, 4], [5, 0]]))
    return tmp_path


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("votes", ["votes.csv", "votes.npy"])
def test_a_file_is_released_paid_for_and_audited(votes: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert releasing(folder, votes) == 2
    assert "--missing coin" in capsys.readouterr().err
    assert not (folder / "labels.npy").exists()
    assert releasing(folder, votes, "--missing", "coin", "--format", "json") == 0
    shown = capsys.readouterr()
    assert shown.err == "note: 6 of 20 votes are missing, and a fair coin stands for each\n"
    assert json.loads(shown.out)["labels"] == 4
    assert PrivacyLedger(folder / "l.sqlite").spent.queries == 4
    audited = [str(folder / "table.json"), str(folder / "l.sqlite"), str(folder / "labels.npy")]
    assert run(lambda: verify.main(audited)) == 0
    assert "labels match their debit" in capsys.readouterr().out
    assert releasing(folder, votes, "--missing", "coin", "--quiet", output="more.npy") == 0
    assert capsys.readouterr() == ("", "")


def test_what_has_no_coins_is_refused_and_free(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for votes, more, message in (
        ("counts.npy", (), "got 4 from voter 1 to query 0"),
        ("counts.npy", ("--layout", "counts"), "must be 'refuse' for counts"),
        ("votes.csv", ("--classes", "a,b,c"), "table.json is for 2 classes"),
    ):
        assert releasing(folder, votes, "--missing", "coin", *more) == 2
        one_error(message, capsys)
    assert PrivacyLedger(folder / "l.sqlite").entries() == ()


def test_nulls_of_parquet_files_are_missing_votes(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    columns: dict[str, list[Any]] = {f"v{i}": [1, None, 0] for i in range(2)}
    columns |= {"v2": [1.0, NAN, 0.0], "v3": ["1", "NA", ""], "v4": [True, True, None]}
    parquet.write_table(arrow.table(columns), folder / "votes.parquet")
    assert releasing(folder, "votes.parquet", output="labels.parquet") == 2
    assert re.search("row 1, column 'v0': the vote is missing .*--missing coin", capsys.readouterr().err)
    assert PrivacyLedger(folder / "l.sqlite").entries() == ()
    votes = Votes.read(folder / "votes.parquet", voters=5, missing="coin")
    assert votes.missing is not None
    assert (votes.counts.tolist(), votes.missing.tolist()) == ([[0, 5], [0, 1], [3, 0]], [0, 4, 2])
    assert releasing(folder, "votes.parquet", "--missing", "coin", output="labels.parquet") == 0
    assert parquet.read_table(folder / "labels.parquet")["label"].null_count == 0


# the expected error


GAMMAS = ([1.0], [0.7], [0.2, 0.9], [0.9, 0.1], [0.8, 0.3, 0.9], [0.0, 1.0, 0.0])


def brute_force(gamma: NoiseFunction, p: Fraction, missing: int) -> tuple[Fraction, Fraction]:
    """The error and the accuracy for one p, over all votes and all coins."""
    there, g = gamma.K - missing, [Fraction(float(value)) for value in gamma.signed]
    released, majority, right = Fraction(0), Fraction(0), Fraction(0)
    for votes in product((0, 1), repeat=there):
        chance = math.prod((p if vote else 1 - p for vote in votes), start=Fraction(1))
        coins = product((0, 1), repeat=missing)
        one = sum(((1 + g[sum(votes) + sum(each)]) / 2 for each in coins), Fraction(0)) / 2**missing
        lead = 2 * sum(votes) - there
        released += chance * one
        majority += chance * (Fraction(1, 2) if lead == 0 else int(lead > 0))
        right += chance * (1 if lead == 0 else one if lead > 0 else 1 - one)
    return abs(released - majority), right


CASES = [
    (half, K, missing) for half in GAMMAS for K in (2 * len(half) - 1, 2 * len(half)) if K <= 5 for missing in range(K)
]


@pytest.mark.parametrize(("half", "K", "missing"), CASES)
def test_the_expected_error_by_brute_force(half: list[float], K: int, missing: int) -> None:
    gamma = NoiseFunction(K, half)
    found = gamma.with_missing(missing)
    assert K - missing == found.K
    for p in (Fraction(3, 4), Fraction(1, 8)):
        error, right = brute_force(gamma, p, missing)
        assert found.expected_error(priors.Point(float(p))) == pytest.approx(float(error), abs=1e-14)
        assert found.accuracy(priors.Point(float(p))) == pytest.approx(float(right), abs=1e-14)
    # a common p: on each side of 1/2 the error is a polynomial in p of a degree below 2·8
    nodes, weights = np.polynomial.legendre.leggauss(8)
    halves = [Fraction(float(node)) for node in (3.0 + nodes) / 4.0]
    known = [brute_force(gamma, p, missing) for p in halves]
    mean = weights @ np.array(known, dtype=float) / 2.0
    assert found.expected_error(priors.Dirichlet()) == pytest.approx(mean[0], abs=1e-13)
    assert found.accuracy(priors.Dirichlet()) == pytest.approx(mean[1], abs=1e-13)


def test_how_many_may_be_missing() -> None:
    gamma = NoiseFunction(5, [0.8, 0.3, 0.9])
    assert gamma.with_missing(0).half.tolist() == gamma.half.tolist()
    assert gamma.with_missing(2).with_missing(1).half.tolist() == gamma.with_missing(3).half.tolist()
    for missing in (5, -1, 1.0):
        with pytest.raises(ValueError, match="missing must be an integer of at"):
            gamma.with_missing(missing)  # type: ignore[arg-type]
