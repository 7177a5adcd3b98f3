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
from darrm.laws.open_law import OpenLaw, largest_others, largest_total, places
from darrm.laws.partitions import partitions_of
from darrm.laws.plurality_law import ONE
from darrm.laws.priors import Ewens
from darrm.mechanisms.release import Release
from darrm.optimize.open_answers import best_open_law
from darrm.problem import OPEN
from darrm.proof.open_rows import Move, OpenRows, prove
from darrm.proof.share_bound import most_of_one_string
from darrm.verify.plurality import ExactPlurality
from lp_models.options import SolveOptions
from tests import open_answers

SCHEMA = Path(__file__).parents[2] / "darrm" / "schemas" / "open_table.json"


def problem_of(K: int, epsilon: str, delta: str, overlap: int = 1) -> Problem:
    return Problem(Voters(K, PrivacyParams("inf"), overlap=overlap), PrivacyParams(epsilon, delta), OPEN)


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
    for part in partitions_of(K, OPEN).parts:
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
        for is_without, sums in enumerate(group.sums):
            at = int(np.argmax(sums))
            move = Move(group.giver, group.taker, int(group.largest[at]), int(group.second[at]), bool(is_without))
            value = sum(factor * x[place] for place, factor in rows.coefficients(move).items())
            assert value == pytest.approx(float(sums[at]), abs=1e-12)


def test_the_largest_total_is_that_of_all_histograms() -> None:
    x = proposal(8, 3)
    totals = [1.0 - told(x, part[:-1])[-1] for part in partitions_of(8, OPEN).parts]
    assert largest_total(x, -math.inf) == pytest.approx(max(totals), abs=1e-12)
    assert largest_others(np.array([[2, 5, 5], [4, 1, 0]])).tolist() == [[5, 5, 5], [1, 4, 4]]


@pytest.mark.parametrize("theta", [0.4, 1.0, 3.0])
def test_ewens_law_of_strings_and_their_rivals(theta: float) -> None:
    listed = partitions_of(7, OPEN)
    expected = np.zeros((8, 8))
    for part, probability in zip(listed.parts, listed.probabilities(Ewens(theta)), strict=True):
        for place, votes in enumerate(part[:-1]):
            expected[votes, max(part[:place] + part[place + 1 :])] += probability
    assert Ewens(theta).strings(7) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("K", "epsilon", "delta", "theta", "share"),
    [
        (13, "1.2", "1e-3", 0.5, 0.91072),
        (14, "1", "1e-5", 1.0, 0.25580),
        (15, "0.7", "1e-2", 1.0, 0.82584),
        (16, "2", "1e-3", 1.0, 0.96057),
        (18, "2", "1e-5", 1.0, 0.92852),
    ],
)
def test_known_values(K: int, epsilon: str, delta: str, theta: float, share: float) -> None:
    problem = problem_of(K, epsilon, delta)
    law, _ = best_open_law(problem, Ewens(theta), SolveOptions())
    table = certify(problem, law)
    assert table.law.share_right(Ewens(theta)) == pytest.approx(share, abs=6e-6)
    best = optimize_table(problem, prior=Ewens(theta))
    assert best.share_right is not None
    assert law.share_right(Ewens(theta)) <= best.share_right + 1e-9


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
    assert result.bound >= law.share_right(Ewens(0.5))
    table.save(tmp_path / "table.json")
    document = json.loads((tmp_path / "table.json").read_text())
    jsonschema.validate(document, json.loads(SCHEMA.read_text()))
    again = Table.load(tmp_path / "table.json")
    assert again.digest == table.digest
    stored = again.law
    assert isinstance(stored, OpenLaw)
    enclosures = ExactPlurality(again).certain_deltas([Fraction(1)])
    assert enclosures is not None
    assert float(enclosures[0].upper) == pytest.approx(worst_by_hand(stored.each, math.e), abs=1e-14)
    assert table.certificate.worst_cost - 1e-12 <= float(enclosures[0].upper) <= table.certificate.worst_cost
    document["weights"][3][1] += ONE // 4
    with pytest.raises(TableError, match="checksum"):
        Table.from_json(document)


def test_a_law_that_tells_too_much_is_not_proved() -> None:
    problem = problem_of(6, "1", "1e-3")
    honest = certify(problem, OpenLaw.of_probabilities(6, proposal(6, 1)))
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
    votes = Votes.of_answers([list("aaabb")] * 20_000 + [list("abcde")])
    labels = Release(table).release(votes, rng=np.random.default_rng(7))[:-1]
    expected = table.law.probabilities([[3, 2]])[0]
    shares = np.array([np.mean(labels == "a"), np.mean(labels == "b"), np.mean([label is None for label in labels])])
    # three outcomes, each within 5.1 standard deviations but for 1e-6 altogether
    assert np.all(np.abs(shares - expected) <= 5.1 * np.sqrt(expected * (1.0 - expected) / 20_000) + 1e-12)


def test_what_is_not_planned_is_refused_in_a_line() -> None:
    with pytest.raises(ValueError, match="at most 80"):
        optimize_table(problem_of(81, "1", "1e-5"))
    with pytest.raises(ValueError, match="overlap"):
        optimize_table(problem_of(30, "1", "1e-5", overlap=2))
