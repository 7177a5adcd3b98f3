"""Measure the accuracy of released labels for every aggregator and allowance m, over draws of the queries."""

from dataclasses import dataclass
from functools import partial
from itertools import product

import numpy as np
from numpy.typing import NDArray

from darrm import priors
from darrm.account.accountant import PrivacyAccountant
from darrm.loss.composition import compose_general
from darrm.loss.gaussian import analytic_sigma, renyi_sigma
from darrm.majority import baselines
from darrm.noisy_max.mechanisms import GNMax
from darrm.optimize.optimizer import optimize_table
from darrm.privacy import PrivacyParams
from darrm.problem import Problem, Voters
from darrm.table.release import Release, describe_cost
from darrm.table.table import certify
from darrm.training.teachers import majority
from darrm.votes import Votes
from experiments.composition_tables import DELTA_PRIME, PRINTED_TOTALS, K
from experiments.knowledge_transfer import settings
from experiments.knowledge_transfer.settings import Setup
from experiments.pages import Row
from experiments.teachers import TeacherVotes

Labels = NDArray[np.int64]


@dataclass(frozen=True)
class Method:
    """A way to label images: an aggregator, or the plain majority, of private or non-private teachers."""

    name: str  # as in the tables
    aggregator: Release | GNMax | None  # None for the majority without noise
    facts: Row  # σ, or γ, for the report
    private_teachers: bool  # whether it uses the votes of the private teachers

    def votes(self, votes: TeacherVotes) -> NDArray[np.int8]:
        """Select the votes of its teachers: (T, n, K)."""
        return votes.private if self.private_teachers else votes.plain

    def label(self, votes: NDArray[np.int8], rng: np.random.Generator) -> Labels:
        """Turn votes (Q, K) into labels (Q,)."""
        if self.aggregator is None:
            return majority(votes)
        return np.asarray(self.aggregator.release(Votes.from_labels(votes, classes=2), rng=rng), dtype=np.int64)


def compute_query_cost(each: PrivacyParams, m: int) -> PrivacyParams:
    """Return (mε, mΔ), the cost of one label in the paper [D, Section 6.2].

    >>> compute_query_cost(PrivacyParams(0.0892, 1e-4), 3)
    PrivacyParams(epsilon=0.2676, delta=0.0003)
    """
    return PrivacyParams(m * each.exact_epsilon, m * each.exact_delta)


def make_methods(each: PrivacyParams, m: int) -> list[Method]:
    """Make the paper's three aggregators, each (mε, mΔ)-private for a query, and our further methods."""
    target = compute_query_cost(each, m)
    problem = Problem(Voters(K, each), target)
    subsampling = Release(certify(problem, baselines.subsampling(problem)))
    optimal = Release(optimize_table(problem, prior=priors.Independent(*settings.PRIOR)))
    renyi = renyi_sigma(target)
    gnmax = GNMax(renyi.value, noise="continuous")
    tight = GNMax(analytic_sigma(target).value, noise="continuous")
    gammas = [{"gamma": release.table.gamma.half.tolist()} for release in (subsampling, optimal)]
    gnmax_facts = {"sigma": gnmax.sigma, "order": renyi.settings["order"]}
    return [
        Method(settings.GNMAX, gnmax, gnmax_facts, private_teachers=False),
        Method(settings.SUBSAMPLING, subsampling, gammas[0], private_teachers=True),
        Method(settings.OPTIMAL, optimal, gammas[1], private_teachers=True),
        Method(settings.GNMAX_TIGHT, tight, {"sigma": tight.sigma}, private_teachers=False),
        Method(settings.PRIVATE_MAJORITY, None, {}, private_teachers=True),
        Method(settings.PLAIN_MAJORITY, None, {}, private_teachers=False),
    ]


def measure_accuracies(
    method: Method, votes: TeacherVotes, queries: int, *, trainings: int, draws: int, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Draw queries from the test images and measure the accuracy of their labels: (trainings, draws)."""
    shares = np.empty((trainings, draws))
    for training, training_votes in enumerate(method.votes(votes)[:trainings]):
        for draw in range(draws):
            images = rng.choice(len(votes.truth), size=min(queries, len(votes.truth)), replace=False)
            shares[training, draw] = (method.label(training_votes[images], rng) == votes.truth[images]).mean()
    return shares


def compute_exact_rows(setup: Setup, allowances: tuple[int, ...], votes: TeacherVotes) -> list[Row]:
    """Compute exact accuracies on all test images: of γ_opt, γ_Sub and the best constant."""
    rows, right_votes = [], (votes.private == votes.truth[:, None]).sum(axis=2)
    for m in allowances:
        problem = Problem(Voters(K, setup.each), compute_query_cost(setup.each, m))
        tables = {
            settings.OPTIMAL: optimize_table(problem, prior=priors.Independent(*settings.PRIOR)),
            settings.FLAT: certify(problem, baselines.truth(problem)),
            settings.SUBSAMPLING: certify(problem, baselines.subsampling(problem)),
        }
        for name, table in tables.items():
            shares = (0.5 + 0.5 * table.gamma.signed)[right_votes].mean(axis=1)
            rows.append({"m": m, "aggregator": name, "mean": round(float(shares.mean()), 12)})
            if len(shares) > 1:  # all images are labeled: only the training varies
                rows[-1] |= summarize(shares[:, None])
    return rows


def summarize(shares: NDArray[np.float64]) -> dict[str, float]:
    """Summarize accuracies (trainings, draws).

    ``std`` is the standard deviation of all draws. ``standard_error`` is that of the mean over trainings, because draws
    from one training share their teachers. A single training has no standard error.

    >>> summarize(np.array([[0.5, 0.7], [0.7, 0.9]]))
    {'mean': 0.7, 'std': 0.163299316186, 'standard_error': 0.1}
    """
    result = {"mean": round(float(shares.mean()), 12), "std": round(float(shares.std(ddof=1)), 12)}
    if len(shares) > 1:
        result["standard_error"] = round(float(shares.mean(axis=1).std(ddof=1)) / len(shares) ** 0.5, 12)
    return result


def measure_label_rows(
    data: str, setup: Setup, allowances: tuple[int, ...], votes: TeacherVotes, *, draws: int
) -> list[Row]:
    """Measure every method, m and Q: 10 draws from the first training as in the paper, and ``draws`` from each."""
    rows: list[Row] = []
    for m in allowances:
        query = compute_query_cost(setup.each, m)
        for method, queries in product(make_methods(setup.each, m), setup.queries):
            rng = np.random.default_rng([0, m, queries, settings.AGGREGATORS.index(method.name)])
            measure = partial(measure_accuracies, method, votes, queries, rng=rng)
            row = {
                "m": m,
                "queries": queries,
                "aggregator": method.name,
                "per_query": {"epsilon": query.epsilon, "delta": query.delta},
                "printed": find_printed(data, m, queries, method.name),
                "ten_draws": summarize(measure(trainings=1, draws=settings.PAPER_DRAWS)),
                "all_draws": summarize(measure(trainings=len(votes.private), draws=draws)),
                "facts": method.facts,
            }
            rows.append(row)
    return rows


def find_printed(data: str, m: int, queries: int, name: str) -> dict[str, float] | None:
    """Look up the paper's accuracy; None if it has none.

    >>> find_printed("mnist", 3, 100, "gamma_opt")
    {'mean': 0.8, 'std': 0.04}
    """
    row = settings.PRINTED_ACCURACY.get((data, m, queries))
    if row is None or name not in settings.PAPERS_AGGREGATORS:
        return None
    mean, std = row[settings.PAPERS_AGGREGATORS.index(name)]
    return {"mean": mean, "std": std}


def compute_total_rows(data: str, setup: Setup, allowances: tuple[int, ...]) -> list[Row]:
    """Compute Tables 2, 5, 7 and 9 of [D], with the accountant's best bounds at the same δ."""
    rows: list[Row] = []
    for m in allowances:
        query, methods = compute_query_cost(setup.each, m), make_methods(setup.each, m)
        for queries in setup.queries:
            general = compose_general(query, queries, DELTA_PRIME)
            printed = PRINTED_TOTALS.get(data, {}).get(m, {}).get(queries)
            best = {method.name: find_best_bound(method, setup.each, queries, general.delta) for method in methods}
            row = {
                "m": m,
                "queries": queries,
                "per_query": {"epsilon": query.epsilon, "delta": query.delta},
                "printed": printed and {"epsilon": printed[0], "delta": printed[1]},
                "general": {"epsilon": general.epsilon, "delta": general.delta},
                "best": best,
            }
            rows.append(row)
    return rows


def find_best_bound(method: Method, each: PrivacyParams, queries: int, delta: float) -> Row:
    """Return the accountant's smallest ε at ``delta``.

    Private teachers are models, trained once on disjoint shards. For labels by DaRRM, ``epsilon`` holds only for voters
    with fresh randomness, not for models; ``with_private_models`` is the proved bound for models.
    """
    if method.name == settings.PLAIN_MAJORITY:
        return {"epsilon": None, "delta": delta, "bound": "no privacy"}
    if method.aggregator is None:
        return {"epsilon": each.epsilon, "delta": each.delta, "bound": "private models, disjoint shards"}
    cost = method.aggregator.privacy_cost(queries)
    spent = PrivacyAccountant(costs=[cost]).spent(delta)
    result = {"epsilon": spent.epsilon, "delta": delta, "bound": spent.bound}
    if isinstance(method.aggregator, Release):  # votes of private teachers
        voters = Voters(K, each, overlap=1, models=True)
        models_cost = describe_cost(method.aggregator.table, queries, voters=voters)
        models_spent = PrivacyAccountant(costs=[models_cost]).spent(delta)
        result["with_private_models"] = {"epsilon": models_spent.epsilon, "bound": models_spent.bound}
    return result
