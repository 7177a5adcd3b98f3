"""Laws in own votes and the largest other, against every histogram, fractions, and programs over partitions."""

import json
import math
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import jsonschema
import numpy as np
import pytest

from darrm import PrivacyParams, Problem, Table, Voters, Votes, certify, optimize_table
from darrm.errors import CertificationError, TableError
from darrm.open_set.open_law import OpenLaw, largest_others, largest_total, places
from darrm.open_set.open_rows import OpenRows, bound_rounding, number_of_rows, prove
from darrm.open_set.optimum import best_open_law
from darrm.plurality.accuracy_bound import most_of_one_string, upper_bound
from darrm.plurality.partitions import list_partitions
from darrm.plurality.plurality_law import ONE
from darrm.priors import Ewens
from darrm.problem import OPEN
from darrm.subsampling import Subsampling
from darrm.table.release import Release
from lp_models.options import SolveOptions
from tests import open_answers
from tests.open_answers import problem_of
from tests.verify.support import cost_of

SCHEMA = Path(__file__).parents[2] / "darrm" / "schemas" / "open_table.json"


def proposal(K: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.where(places(K), rng.random((K + 1, K + 1)) * rng.integers(0, 2, (K + 1, K + 1)) / K, 0.0)


def told(x: np.ndarray, counts: tuple[int, ...]) -> list[float]:
    others = [max(counts[:place] + counts[place + 1 :], default=0) for place in range(len(counts))]
    shares = [x[votes, other] if votes else 0.0 for votes, other in zip(counts, others, strict=True)]
    return [*shares, 1.0 - sum(shares)]


def worst_by_hand(x: np.ndarray, ratio: float) -> float:
    """The left side of (1) for all pairs of histograms on K + 1 strings."""
    K, worst = len(x) - 1, 0.0
    for part in list_partitions(K, OPEN).parts:
        counts = part[:-1] + (0,) * (K + 2 - len(part))
        for other in open_answers.neighbors_of(counts, 1):
            pairs = zip(told(x, counts), told(x, other), strict=True)
            worst = max(worst, sum(max(0.0, p - ratio * q) for p, q in pairs))
    return worst


@pytest.mark.parametrize(("K", "seed"), [(1, 0), (2, 1), (4, 2), (5, 3), (6, 4), (7, 5), (7, 6)])
def test_four_counts_and_the_dearest_rest_are_all_histograms(K: int, seed: int) -> None:
    x, ratio = proposal(K, seed), math.exp(0.2 * seed)
    rows = OpenRows(x, ratio)
    kept, without = rows.worst()
    assert max(0.0, kept, without + 1.0 - ratio) == pytest.approx(worst_by_hand(x, ratio), abs=1e-12)
    for group in rows.groups():
        for move, value in group.worst_moves():
            row = sum(factor * x[place] for place, factor in rows.coefficients(move).items())
            assert row == pytest.approx(value, abs=1e-12)


@pytest.mark.parametrize(("K", "seed"), [(2, 1), (4, 2), (6, 4), (7, 5)])
def test_a_certificate_holds_the_worst_of_all_histograms(K: int, seed: int) -> None:
    law = OpenLaw.from_probabilities(K, proposal(K, seed))
    for epsilon in ("0.01", "0.3", "2"):
        worst = prove(problem_of(K, epsilon, "0.999999"), law).worst_cost
        assert worst == pytest.approx(worst_by_hand(law.each, math.exp(float(epsilon))), abs=1e-12)


def test_what_no_answer_tells_counts() -> None:
    # of two votes for two strings both come out with 0.45, of two for one it does: from the one to the other a string
    # with 0.45 vanishes, and with 0.1 no answer
    law = OpenLaw.from_probabilities(2, [[0.0, 0.0, 0.0], [0.0, 0.45, 0.0], [1.0, 0.0, 0.0]])
    assert prove(problem_of(2, "1", "0.56"), law).worst_cost == pytest.approx(0.55, abs=1e-12)
    with pytest.raises(CertificationError, match=r"differ by 0\.55"):
        prove(problem_of(2, "1", "0.54"), law)


def test_rounding_is_bounded_by_what_one_of_every_term_and_sum_may_be() -> None:
    for K, ratio in [(1, 1.0), (30, 3.0), (200, 60_000.0)]:
        # a product, a difference and a sum for each of K + 3 strings, relative to sums of at most 1 + c
        assert bound_rounding(K, ratio) >= (K + 3 + 2) * 2.0**-53 * (1.0 + ratio)


def test_the_bound_of_many_strings_counts_ties() -> None:
    problem = problem_of(2, "1", "0.01")
    one, two = (float(most.mid()) for most in most_of_one_string(problem)[1:])
    # half of the time both say the same; else there are two strings with the most votes
    assert upper_bound(problem, Ewens(), ()) == pytest.approx(2 * 0.5 * one + 0.5 * two, rel=1e-12)


def test_the_largest_total_is_that_of_all_histograms() -> None:
    x = proposal(8, 3)
    totals = [1.0 - told(x, part[:-1])[-1] for part in list_partitions(8, OPEN).parts]
    assert largest_total(x, -math.inf) == pytest.approx(max(totals), abs=1e-12)
    assert largest_others(np.array([[2, 5, 5], [4, 1, 0]])).tolist() == [[5, 5, 5], [1, 4, 4]]


@pytest.mark.parametrize("theta", [0.4, 1.0, 3.0])
def test_ewens_law_of_strings_and_their_rivals(theta: float) -> None:
    listed = list_partitions(7, OPEN)
    expected = np.zeros((8, 8))
    for part, probability in zip(listed.parts, listed.probabilities(Ewens(theta)), strict=True):
        for place, votes in enumerate(part[:-1]):
            expected[votes, max(part[:place] + part[place + 1 :])] += probability
    assert Ewens(theta).strings(7) == pytest.approx(expected)


@pytest.mark.slow
def test_where_no_two_strings_can_be_likely_nothing_is_better() -> None:
    problem = problem_of(26, "0.3", "1e-5")
    table = optimize_table(problem, prior=Ewens())
    assert table.optimality is not None
    assert not table.optimality.claimed
    assert table.optimality.gap < 1e-7
    most = np.array([float(value.mid()) for value in most_of_one_string(problem)])
    ratio = math.exp(0.3)
    assert all(after == pytest.approx(ratio * before + 1e-5) for before, after in pairwise(most))  # the first branch
    assert table.law.probabilities([[20, 6]])[0, 0] == pytest.approx(most[20], abs=1e-8)
    strings = np.tril(Ewens().strings(26)).sum(axis=1)  # no other string has more votes
    assert strings @ most == pytest.approx(table.optimality.value, rel=1e-7)


@pytest.mark.parametrize(("theta", "strings"), [(1e300, 30.0), (1e12, 30.0), (1e-300, 1.0)])
def test_the_ends_of_ewens_law_are_known_to_all_digits(theta: float, strings: float) -> None:
    expected = Ewens(theta).strings(30)
    assert np.arange(31) @ expected.sum(axis=1) == pytest.approx(30.0, rel=1e-10)
    assert expected.sum() == pytest.approx(strings, rel=1e-8)  # each says something of his own, or all say the same


def test_a_prior_that_expects_other_strings_is_refused() -> None:
    class Nothing(Ewens):
        def strings(self, K: int) -> np.ndarray:
            return np.full((K + 1, K + 1), np.nan)

    law = certify(problem_of(4, "1", "0.1"), OpenLaw.from_probabilities(4, proposal(4, 2))).law
    with pytest.raises(ValueError, match="of 4 votes together"):
        law.accuracy(Nothing())


@pytest.mark.slow
def test_voters_that_draw_their_examples_have_the_optimum_of_those_who_take_part() -> None:
    voters = Voters(26, PrivacyParams("inf"), overlap=1, sampled=Subsampling(Fraction(1, 10)))
    problem = Problem(voters, PrivacyParams("0.05", "1e-6"), OPEN)
    table, certain = optimize_table(problem), optimize_table(problem.conditional_on_inclusion)
    assert table.problem == problem
    assert table.accuracy == pytest.approx(certain.accuracy, abs=1e-9)


def test_what_no_rounding_can_tell_from_nothing_is_told_never() -> None:
    table = certify(problem_of(6, "1", "1e-300"), OpenLaw.from_probabilities(6, proposal(6, 1)))
    assert table.certificate.worst_cost == table.certificate.scale == 0.0
    assert table.law.probabilities([[6]]).tolist() == [[0.0, 1.0]]


def test_where_answers_cost_little_a_smaller_target_is_proved() -> None:
    problem = problem_of(7, "25", "1e-5")
    law, _ = best_open_law(problem, Ewens(), SolveOptions())
    table = certify(problem, law)
    assert law.accuracy(Ewens()) > 0.9
    stored_law = table.law
    assert isinstance(stored_law, OpenLaw)
    assert worst_by_hand(stored_law.each, 2.0**16) <= 1e-5


def test_rows_are_counted_without_their_sums() -> None:
    for K in (1, 2, 5, 8):
        assert number_of_rows(K) == sum(
            group.largest.size for group in OpenRows(np.zeros((K + 1, K + 1)), 1.0).groups()
        )


def test_no_optimum_is_above_what_a_string_can_have() -> None:
    for K, epsilon, delta in [(6, "1", "0.01"), (9, "2", "1e-3"), (12, "1", "1e-2")]:
        problem = problem_of(K, epsilon, delta)
        law = optimize_table(problem).plurality
        most = [float(value.mid()) for value in most_of_one_string(problem)]
        votes = law.partitions.votes
        assert np.all((law.each <= np.array(most)[votes] + 1e-12)[votes > 0])


def test_a_table_is_saved_proved_again_drawn_and_audited(tmp_path: Path) -> None:
    problem = problem_of(8, "1", "1e-3")
    law, result = best_open_law(problem, Ewens(0.5), SolveOptions())
    table = certify(problem, law)
    assert result.bound >= law.accuracy(Ewens(0.5))
    table.save(tmp_path / "table.json")
    document = json.loads((tmp_path / "table.json").read_text())
    jsonschema.validate(document, json.loads(SCHEMA.read_text()))
    again = Table.load(tmp_path / "table.json")
    assert again.digest == table.digest
    stored_law = again.law
    assert isinstance(stored_law, OpenLaw)
    enclosures = cost_of(again).deltas([Fraction(1)])
    assert enclosures is not None
    assert float(enclosures[0].upper) == pytest.approx(worst_by_hand(stored_law.each, math.e), abs=1e-14)
    assert table.certificate.worst_cost - 1e-12 <= float(enclosures[0].upper) <= table.certificate.worst_cost
    document["weights"][3][1] += ONE // 4
    with pytest.raises(TableError, match="checksum"):
        Table.from_json(document)


def test_a_law_that_tells_too_much_is_not_proved() -> None:
    problem = problem_of(6, "1", "1e-3")
    honest = certify(problem, OpenLaw.from_probabilities(6, proposal(6, 1)))
    weights = np.array(honest.law.weights if isinstance(honest.law, OpenLaw) else [])
    weights[1, 5] = ONE // 100  # one person's own string, which is not there without him
    with pytest.raises(CertificationError, match="neighbors differ"):
        prove(problem, OpenLaw(6, weights))
    with pytest.raises(ValueError, match="at most 9007199254740992 together"):
        OpenLaw(2, np.where(places(2), ONE, 0))


def test_strings_are_drawn_for_as_many_numbers_as_their_weight() -> None:
    problem = problem_of(5, "3", "0.05")
    law, _ = best_open_law(problem, Ewens(), SolveOptions())
    table = certify(problem, law)
    votes = Votes.from_answers([list("aaabb")] * 20_000 + [list("abcde")])
    labels = Release(table).release(votes, rng=np.random.default_rng(7))[:-1]
    expected = table.law.probabilities([[3, 2]])[0]
    shares = np.array([np.mean(labels == "a"), np.mean(labels == "b"), np.mean([label is None for label in labels])])
    # three outcomes, each within 5.1 standard deviations but for 1e-6 altogether
    assert np.all(np.abs(shares - expected) <= 5.1 * np.sqrt(expected * (1.0 - expected) / 20_000) + 1e-12)


def test_every_string_has_the_numbers_of_its_weight() -> None:
    law = OpenLaw.from_probabilities(5, proposal(5, 2) + 0.01 * places(5))
    table = certify(problem_of(5, "9", "0.9"), law)
    stored_law = table.law
    assert isinstance(stored_law, OpenLaw)
    sampler, line = vars(Release(table))["_sampler"], np.array([[1, 2, 2, 0]])  # the last place is no answer's
    a, others = int(stored_law.weights[1, 2]), int(stored_law.weights[2, 2])
    assert min(a, others) > 0
    ends = [(0, 0), (0, a - 1), (1, a), (1, a + others - 1), (2, a + others), (2, a + 2 * others - 1)]
    for expected, number in [*ends, (3, a + 2 * others), (3, ONE - 1)]:
        assert sampler._draw_block(line, lambda limits, n=number: np.minimum(limits - 1, n)).tolist() == [expected]


def test_what_is_not_planned_is_refused_in_a_line() -> None:
    with pytest.raises(ValueError, match="at most 80"):
        optimize_table(problem_of(81, "1", "1e-5"))
    with pytest.raises(ValueError, match="overlap"):
        optimize_table(problem_of(30, "1", "1e-5", overlap=2))
    with pytest.raises(ValueError, match="at least 1e-10"):
        optimize_table(problem_of(30, "1", "0"))
    listed = Problem(Voters(4, PrivacyParams("inf"), overlap=1), PrivacyParams(1, "0.1"), 3)
    with pytest.raises(ValueError, match="about 4 votes, 3 classes"):
        certify(listed, OpenLaw.from_probabilities(4, proposal(4, 2)))
