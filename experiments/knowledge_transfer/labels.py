"""The accuracy of released labels: every aggregator, every allowance m, over draws of the queries."""

from dataclasses import dataclass

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
from darrm.table.release import Release, charge_of
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
class Way:
    name: str  # as in the tables
    aggregator: Release | GNMax | None  # it knows its charge; None for a bare majority
    facts: Row  # σ, or γ, for the report
    private_teachers: bool  # whether it takes the private teachers' votes, or those of the teachers without privacy

    def votes(self, votes: TeacherVotes) -> NDArray[np.int8]:
        """Return the votes that it takes: (T, n, K)."""
        return votes.private if self.private_teachers else votes.plain

    def label(self, votes: NDArray[np.int8], rng: np.random.Generator) -> Labels:
        """Label (Q, K) votes → (Q,)."""
        if self.aggregator is None:
            return majority(votes)
        return np.asarray(self.aggregator.release(Votes.of_labels(votes, classes=2), rng=rng), dtype=np.int64)


def per_query(each: PrivacyParams, m: int) -> PrivacyParams:
    """Return (mε, mΔ), the cost of one label in the paper [D, Section 6.2].

    >>> per_query(PrivacyParams(0.0892, 1e-4), 3)
    PrivacyParams(epsilon=0.2676, delta=0.0003)
    """
    return PrivacyParams(m * each.exact_epsilon, m * each.exact_delta)


def ways(each: PrivacyParams, m: int) -> list[Way]:
    """Make the paper's three aggregators, all (mε, mΔ)-private a query, and the columns that the paper lacks."""
    target = per_query(each, m)
    problem = Problem(Voters(K, each), target)
    subsampling = Release(certify(problem, baselines.subsampling(problem)))
    optimal = Release(optimize_table(problem, prior=priors.Independent(*settings.PRIOR)))
    papers = renyi_sigma(target)
    gnmax = GNMax(papers.value, noise="continuous")
    tight = GNMax(analytic_sigma(target).value, noise="continuous")
    gammas = [{"gamma": release.table.gamma.half.tolist()} for release in (subsampling, optimal)]
    return [
        Way(settings.GNMAX, gnmax, {"sigma": gnmax.sigma, "order": papers.settings["order"]}, private_teachers=False),
        Way(settings.SUBSAMPLING, subsampling, gammas[0], private_teachers=True),
        Way(settings.OPTIMAL, optimal, gammas[1], private_teachers=True),
        Way(settings.GNMAX_TIGHT, tight, {"sigma": tight.sigma}, private_teachers=False),
        Way(settings.PRIVATE_MAJORITY, None, {}, private_teachers=True),
        Way(settings.PLAIN_MAJORITY, None, {}, private_teachers=False),
    ]


def accuracies(
    way: Way, votes: TeacherVotes, queries: int, *, trainings: int, draws: int, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Draw the queries from the test images and measure the share of right labels: (trainings, draws)."""
    shares = np.empty((trainings, draws))
    for training, theirs in enumerate(way.votes(votes)[:trainings]):
        for draw in range(draws):
            chosen = rng.choice(len(votes.truth), size=min(queries, len(votes.truth)), replace=False)
            shares[training, draw] = (way.label(theirs[chosen], rng) == votes.truth[chosen]).mean()
    return shares


def exact_rows(setup: Setup, allowances: tuple[int, ...], votes: TeacherVotes) -> list[Row]:
    """Compute the share of right labels on all test images, without draws, of the paper's γ and the best constant."""
    rows, right = [], (votes.private == votes.truth[:, None]).sum(axis=2)
    for m in allowances:
        problem = Problem(Voters(K, setup.each), per_query(setup.each, m))
        tables = {
            settings.OPTIMAL: optimize_table(problem, prior=priors.Independent(*settings.PRIOR)),
            settings.FLAT: certify(problem, baselines.truth(problem)),
            settings.SUBSAMPLING: certify(problem, baselines.subsampling(problem)),
        }
        for name, table in tables.items():
            of_trainings = (0.5 + 0.5 * table.gamma.signed)[right].mean(axis=1)
            rows.append({"m": m, "aggregator": name, "mean": round(float(of_trainings.mean()), 12)})
            if len(of_trainings) > 1:  # of all images: all that varies is the training
                rows[-1] |= summary(of_trainings[:, None])
    return rows


def summary(shares: NDArray[np.float64]) -> dict[str, float]:
    """Sum up (trainings, draws) accuracies.

    ``std`` is the spread of single draws over all trainings; ``standard_error`` is that of the mean, from the spread
    between trainings, since draws from one training share their teachers. A single training has none.

    >>> summary(np.array([[0.5, 0.7], [0.7, 0.9]]))
    {'mean': 0.7, 'std': 0.163299316186, 'standard_error': 0.1}
    """
    result = {"mean": round(float(shares.mean()), 12), "std": round(float(shares.std(ddof=1)), 12)}
    if len(shares) > 1:
        result["standard_error"] = round(float(shares.mean(axis=1).std(ddof=1)) / len(shares) ** 0.5, 12)
    return result


def label_rows(data: str, setup: Setup, allowances: tuple[int, ...], votes: TeacherVotes, *, draws: int) -> list[Row]:
    """Measure every way, m and Q: 10 draws from the first training as in the paper, and ours."""
    rows = []
    for m in allowances:
        query = per_query(setup.each, m)
        cost = {"epsilon": query.epsilon, "delta": query.delta}
        for way in ways(setup.each, m):
            for queries in setup.queries:
                rng = np.random.default_rng([0, m, queries, settings.AGGREGATORS.index(way.name)])
                papers = accuracies(way, votes, queries, trainings=1, draws=settings.PAPER_DRAWS, rng=rng)
                ours = accuracies(way, votes, queries, trainings=len(votes.private), draws=draws, rng=rng)
                row = {"m": m, "queries": queries, "aggregator": way.name, "per_query": cost}
                row["printed"] = printed(data, m, queries, way.name)
                rows.append(row | {"ten_draws": summary(papers), "all_draws": summary(ours), "facts": way.facts})
    return rows


def printed(data: str, m: int, queries: int, name: str) -> dict[str, float] | None:
    """Look up the paper's number, or None.

    >>> printed("mnist", 3, 100, "gamma_opt")
    {'mean': 0.8, 'std': 0.04}
    """
    row = settings.PRINTED_ACCURACY.get((data, m, queries))
    if row is None or name not in settings.PAPERS_AGGREGATORS:
        return None
    mean, std = row[settings.PAPERS_AGGREGATORS.index(name)]
    return {"mean": mean, "std": std}


def total_rows(data: str, setup: Setup, allowances: tuple[int, ...]) -> list[Row]:
    """Compute Tables 2, 5, 7 and 9 of [D], with the best sum and the best proved bound at the same δ."""
    rows = []
    for m in allowances:
        query = per_query(setup.each, m)
        every = ways(setup.each, m)
        for queries in setup.queries:
            general = compose_general(query, queries, DELTA_PRIME)
            known = PRINTED_TOTALS.get(data, {}).get(m, {}).get(queries)
            rows.append(
                {
                    "m": m,
                    "queries": queries,
                    "per_query": {"epsilon": query.epsilon, "delta": query.delta},
                    "printed": None if known is None else {"epsilon": known[0], "delta": known[1]},
                    "general": {"epsilon": general.epsilon, "delta": general.delta},
                    "best": {way.name: best_bound(way, setup.each, queries, general.delta) for way in every},
                }
            )
    return rows


def best_bound(way: Way, each: PrivacyParams, queries: int, delta: float) -> Row:
    """Ask the accountant for the smallest ε at ``delta``.

    Private teachers are models trained once on disjoint shards. For labels by DaRRM ``epsilon`` is a sum, which holds
    for voters with fresh randomness and not for these; ``with_private_models`` is the proved bound.
    """
    if way.name == settings.PLAIN_MAJORITY:
        return {"epsilon": None, "delta": delta, "bound": "no privacy"}
    if way.aggregator is None:
        return {"epsilon": each.epsilon, "delta": each.delta, "bound": "private models, disjoint shards"}
    charge = way.aggregator.privacy_cost(queries)
    alone = PrivacyAccountant(charges=[charge]).spent(delta)
    result = {"epsilon": alone.epsilon, "delta": delta, "bound": alone.bound}
    if isinstance(way.aggregator, Release):  # of the private teachers' votes
        voters = Voters(K, each, overlap=1, models=True)
        capped = PrivacyAccountant(charges=[charge_of(way.aggregator.table, queries, voters=voters)]).spent(delta)
        result["with_private_models"] = {"epsilon": capped.epsilon, "bound": capped.bound}
    return result
