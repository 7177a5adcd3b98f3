"""Every release of a plurality of ten classes at one budget a label: how often it is right, counted from kept votes."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations_with_replacement, product
from pathlib import Path
from typing import cast

import numpy as np
from numpy.typing import NDArray

from darrm.loss.composition import compose_general, compose_optimal
from darrm.optimize.optimizer import optimize_table
from darrm.plan.accuracy import Law
from darrm.plan.calibration import calibrate
from darrm.plan.mechanisms import named
from darrm.plurality.plurality_law import PluralityLaw
from darrm.priors import Dirichlet
from darrm.privacy import PrivacyParams
from darrm.problem import Problem, Voters, Workload
from darrm.util.files import replacing
from darrm.votes import Votes
from experiments.aggregators.settings import NAMES
from experiments.composition_tables import DELTA_PRIME
from experiments.pages import Row

K, CLASSES = 11, 10
DELTA = "1e-5"  # δ of one teacher
ALLOWANCES = (1, 2, 3, 5)  # m: one label may cost what m teachers cost
DRAWN = {2: 5, 3: 5}  # m: voters that the best law is found for; six did not end in ten minutes
QUERIES = (20, 50, 100)  # at which sums are shown
TRAININGS = 3
BELIEF = Dirichlet(0.1)  # about the votes, settled before any were counted: most voters agree
SAMPLING_RATE, STEPS, CLIP = 0.125, 40, 1.0  # of DP-SGD; 682 images a step, few enough for sums that are exact enough
TRIED_EPSILONS = ("0.1", "0.125", "0.15", "0.2")
TRIED_RATES = (2.0, 4.0, 8.0)
ENOUGH = 0.7  # share of right answers of one teacher on held-out training images, from which on it counts as useful


@dataclass(frozen=True)
class Setup:
    """What differs between data sets: the least ε of `TRIED_EPSILONS` with which teachers are useful, and the rate."""

    epsilon: str
    rate: float

    @property
    def each(self) -> PrivacyParams:
        """What every private teacher satisfies."""
        return PrivacyParams(self.epsilon, DELTA)

    @property
    def voters(self) -> Voters:
        """The private teachers; one person may influence all of them, as in the paper."""
        return Voters(K, self.each)

    def target(self, m: int) -> PrivacyParams:
        """Return the target of one label: the cost of m teachers together."""
        return Problem.from_allowance(self.voters, m).target


SETUPS = {
    "mnist": Setup("0.15", 8.0),
    "fashion-mnist": Setup("0.2", 8.0),
    "digits": Setup("4", 4.0),  # 130 images a teacher: a demonstration that needs no download
}


Labels = NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class KeptVotes:
    """Votes of the teachers of T trainings on n test images, with and without DP-SGD: (T, n, K) each."""

    private: Labels
    plain: Labels
    truth: Labels  # (n,) true classes, for measuring alone

    def save(self, path: Path) -> None:
        """Write them to one compressed file."""
        with replacing(path) as temporary:
            np.savez_compressed(temporary, private=self.private, plain=self.plain, truth=self.truth)

    @classmethod
    def load(cls, path: Path) -> "KeptVotes":
        """Read what `save` wrote."""
        with np.load(path) as arrays:
            return cls(arrays["private"], arrays["plain"], arrays["truth"])


def plurality(counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Answer with a class that has the most votes, one of several at random: a law without noise, (n, C) → (n, C).

    >>> plurality(np.array([[5, 5, 1]])).tolist()
    [[0.5, 0.5, 0.0]]
    """
    leads = counts == counts.max(axis=1, keepdims=True)
    return np.asarray(leads / leads.sum(axis=1, keepdims=True))


def shares_right(votes: Labels, truth: Labels, law: Law) -> list[float]:
    """Compute how often a law that treats classes alike answers with the true class, for each of T trainings.

    The law is asked about sorted histograms; its probabilities are averaged, and nothing is drawn.

    >>> votes = np.array([[[2, 2, 2], [0, 0, 1]]], dtype=np.uint8)
    >>> shares_right(votes, np.array([2, 1], dtype=np.uint8), lambda counts: counts / 3)
    [0.6666666666666666]
    """
    return [_share_right(Votes.of_labels(labels, CLASSES).counts, truth, law) for labels in votes]


def _share_right(counts: NDArray[np.int64], truth: Labels, law: Law) -> float:
    """Average the probability of the true class over the questions of one training."""
    questions = np.arange(len(counts))
    histograms, which = np.unique(-np.sort(-counts, axis=1), axis=0, return_inverse=True)
    votes_for_truth = counts[questions, truth]
    place = np.argmax(histograms[which] == votes_for_truth[:, None], axis=1)  # the first with as many votes
    return float(np.mean(law(histograms)[which, place]))


PLAIN = Voters(K, PrivacyParams("inf"), overlap=1)
BEST_OF_PLAIN, BEST_OF_PRIVATE = "best law for plain voters", "best law for drawn private voters"
SUBSAMPLING, BARE, ONE_TEACHER = "sub-sampling", "no noise", "one teacher"
NEED_PRIVATE = {SUBSAMPLING, BEST_OF_PRIVATE}  # their guarantee rests on the teachers' own privacy
SLUGS = ("permute-and-flip", "exponential", "gnmax", "gnmax-analytic")
FAMILIES = tuple(NAMES.get(slug, slug) for slug in SLUGS)


def laws(setup: Setup, m: int, drawn: Row | None) -> Iterator[tuple[str, Law, Row]]:
    """Make every release whose label may cost as much as m teachers: its name, its law and its numbers.

    ``drawn`` has the number of teachers that the best law for private voters asks, and ε and δ of each; None without
    such a law.
    """
    target = setup.target(m)
    yield SUBSAMPLING, of_sample(plurality, m), {}
    if drawn is not None:
        law = best_for_private(target, drawn)
        yield BEST_OF_PRIVATE, of_sample(law.probabilities, law.K), {**drawn, "weights": law.to_json()}
    best = optimize_table(Problem(PLAIN, target, CLASSES), prior=BELIEF)
    yield BEST_OF_PLAIN, best.law.probabilities, {}
    for slug in SLUGS:
        found = calibrate(Workload(PLAIN, 1, target, CLASSES), named(slug))
        yield NAMES.get(slug, slug), cast("Law", found.law), dict(found.settings)


def best_for_private(target: PrivacyParams, drawn: Row) -> PluralityLaw:
    """Find and prove the best law for a few private voters of ten classes, of those that lose no δ themselves.

    An (ε, Δ)-private voter is ε-private with probability 1 − Δ, whatever it does else [KOV15]: so the label loses the
    δ with which one of the voters is not.
    """
    voters = Voters(drawn["voters"], PrivacyParams(str(drawn["epsilon"])))
    table = optimize_table(Problem(voters, PrivacyParams(target.exact_epsilon), CLASSES), prior=BELIEF)
    return cast("PluralityLaw", table.law)


def of_sample(law: Law, m: int) -> Law:
    """Apply a law to the votes of m voters drawn without replacement: the label is as private as that of any m voters.

    The divergence of a mixture is at most the mixture of the divergences (joint convexity).

    >>> of_sample(plurality, 1)(np.array([[3, 1, 0]])).tolist(), of_sample(plurality, 3)(np.array([[2, 1, 0]])).tolist()
    ([[0.75, 0.25, 0.0]], [[1.0, 0.0, 0.0]])
    """

    def probabilities(counts: NDArray[np.int64]) -> NDArray[np.float64]:
        voters, classes = int(counts[0].sum()), counts.shape[1]
        labels = combinations_with_replacement(range(classes), m)
        samples = np.array([np.bincount(sample, minlength=classes) for sample in labels])
        answers = law(samples)
        choose = np.array([[math.comb(of, some) for some in range(m + 1)] for of in range(voters + 1)], dtype=float)
        chances = [choose[row, samples].prod(axis=1) @ answers for row in counts]
        return np.asarray(chances) / math.comb(voters, m)

    return probabilities


def rows(votes: KeptVotes, setup: Setup, drawn: dict[int, Row]) -> Iterator[Row]:
    """Count how often every release is right: first what needs no budget, then for each m."""
    yield _counted(votes, None, ONE_TEACHER, of_sample(plurality, 1))
    yield _counted(votes, None, BARE, plurality)
    for m in ALLOWANCES:
        for name, law, facts in laws(setup, m, drawn.get(m)):
            yield _counted(votes, m, name, law) | {"facts": facts}


def _counted(votes: KeptVotes, m: int | None, name: str, law: Law) -> Row:
    """Count a release on the private teachers' votes, and on the others' unless it rests on the former's privacy."""
    private = summary(shares_right(votes.private, votes.truth, law))
    plain = None if name in NEED_PRIVATE else summary(shares_right(votes.plain, votes.truth, law))
    return {"m": m, "name": name, "private": private, "plain": plain}


def summary(shares: list[float]) -> Row:
    """Return the mean over trainings and its standard error.

    >>> summary([0.5, 0.7])
    {'mean': 0.6, 'standard_error': 0.1}
    """
    error = float(np.std(shares, ddof=1)) / math.sqrt(len(shares)) if len(shares) > 1 else None
    return {"mean": round(float(np.mean(shares)), 9), "standard_error": None if error is None else round(error, 9)}


def sums(setup: Setup) -> Iterator[Row]:
    """Compare the sums over questions with the caps for models, at the δ of the sums."""
    for m, queries in product(ALLOWANCES, QUERIES):
        label = setup.target(m)
        delta = compose_general(label, queries, DELTA_PRIME).delta
        yield {
            "m": m,
            "queries": queries,
            "delta": delta,
            "sum": compose_optimal(label, queries, delta).epsilon,
            "cap": compose_optimal(setup.each, K, delta).epsilon,
        }
