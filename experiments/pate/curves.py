"""Compute Figures 1, 4 and 5 from the votes of one ensemble; ε is by Theorem 6 with the tight conversion."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from darrm.loss.renyi import DEFAULT_ORDERS, RenyiCurve
from darrm.noisy_max.mechanisms import GNMax, LNMax
from darrm.pate.analysis import AnswersByTheorem6
from darrm.pate.confident import ConfidentGNMax
from darrm.pate.theorem_6 import gaussian_renyi, log_q
from darrm.votes import ABSTAIN, Votes
from experiments.pages import Row
from experiments.pate.recorded import LABEL_SEED, Labels, Recorded

POINTS = 40  # of a cumulative curve
BINS = 25
COST_ORDER = 20.0  # λ of the costs in Figure 5
SCALES = (0.02, 0.04, 0.08, 0.12, 0.16, 0.24, 0.32)  # of the noise, ÷ number of teachers
SIZES = (0.1, 0.2, 0.5, 1.0)  # of the ensembles of Figure 4, ÷ number of teachers
# T and σ₁ ÷ number of teachers: [P, Figure 5] has T = 3500 and 5000, σ₁ = 1500 and σ₂ = 100 for 5,000 teachers
CHECKS = {"moderate": (0.7, 0.3), "aggressive": (1.0, 0.3)}

Answer = LNMax | GNMax


def accumulate_costs(
    aggregator: LNMax | ConfidentGNMax, counts: NDArray[np.int64], answered: NDArray[np.bool_], delta: float
) -> dict[str, list[float]]:
    """Accumulate answers and ε over the queries; ``check`` is the check's share of ε, in proportion to Rényi cost."""
    answer: Answer = aggregator.answer if isinstance(aggregator, ConfidentGNMax) else aggregator
    per_check = np.zeros_like(DEFAULT_ORDERS)
    if isinstance(aggregator, ConfidentGNMax):
        per_check = aggregator.check.independent(DEFAULT_ORDERS)
    stops = np.unique(np.linspace(1, len(counts), min(POINTS, len(counts))).astype(np.int64))
    answers, weights = AnswersByTheorem6(answer, counts, DEFAULT_ORDERS), answered.astype(np.float64)
    total = np.zeros_like(DEFAULT_ORDERS)
    points: dict[str, list[float]] = {"queries": [], "answered": [], "epsilon": [], "check": []}
    for start, stop in zip(np.append(0, stops[:-1]), stops, strict=True):
        total = total + answers.total(weights, slice(start, stop))
        curve = RenyiCurve(DEFAULT_ORDERS, total + stop * per_check)
        best = curve.best(delta)
        place = int(np.argmin(np.abs(DEFAULT_ORDERS - best.order)))
        share = float(stop * per_check[place] / curve.values[place]) if curve.values[place] else 0.0
        points["queries"].append(int(stop))
        points["answered"].append(int(answered[:stop].sum()))
        points["epsilon"].append(best.epsilon)
        points["check"].append(share * best.epsilon)
    return points


def compute_figure_1(recorded: Recorded, lnmax: LNMax, confident: ConfidentGNMax, labels: Labels, delta: float) -> Row:
    """Compare ε and agreement of LNMax on all queries with Confident-GNMax on its answers (``labels``)."""
    counts = recorded.votes.counts[: len(labels)]
    answered = labels != ABSTAIN
    all_answered = np.ones(len(labels), dtype=bool)
    edges = np.linspace(0.0, 1.0, 11)
    plurality_shares = counts.max(axis=1) / recorded.votes.voters
    return {
        "lnmax": accumulate_costs(lnmax, counts, all_answered, delta),
        "confident": accumulate_costs(confident, counts, answered, delta),
        "agreement": {
            "edges": [float(edge) for edge in edges],
            "lnmax": _compute_shares(plurality_shares, edges),
            "confident": _compute_shares(plurality_shares[answered], edges),
        },
    }


def compute_figure_4(recorded: Recorded, queries: int, delta: float, smaller: Sequence[Votes] = ()) -> Row:
    """Measure label accuracy and ε over the scale of the noise, for LNMax, GNMax, and GNMax of smaller ensembles.

    Without ``smaller``, a smaller ensemble is a random subset of the teachers, drawn for every query from the counts.
    The comparison then shows the effect of more teachers, but not of smaller shards.
    """
    votes, truth = recorded.votes[:queries], recorded.pool_y[:queries]
    scales = [scale * votes.voters for scale in SCALES]
    kinds: dict[str, list[Answer]] = {  # with equal standard deviations: Laplace noise has √2/γ
        "LNMax": [LNMax(math.sqrt(2.0) / scale) for scale in scales],
        "GNMax": [GNMax(scale) for scale in scales],
    }
    noise_curves = [
        {"name": name, "points": _measure_points(votes, truth, answers, delta)} for name, answers in kinds.items()
    ]
    size_curves = []
    sampled = [sample_teachers(votes, round(size * votes.voters)) for size in SIZES] if not smaller else []
    for ensemble in [*smaller, votes] if smaller else sampled:
        teachers = ensemble.voters
        answers = [GNMax(scale * teachers) for scale in SCALES if scale * teachers >= 0.5]
        points = _measure_points(ensemble, truth, answers, delta)
        extra = {"least": min(points, key=lambda point: point["epsilon"])} if smaller else {}
        size_curves.append({"name": f"{teachers} teachers", "points": points, **extra})
    return {"queries": queries, "retrained": bool(smaller), "left": noise_curves, "right": size_curves}


def sample_teachers(votes: Votes, teachers: int) -> Votes:
    if teachers == votes.voters:
        return votes
    rng = np.random.default_rng([LABEL_SEED, teachers])
    rows = [rng.multivariate_hypergeometric(row, teachers, method="marginals") for row in votes.counts]
    return Votes.from_counts(np.array(rows), teachers)


def compute_figure_5(recorded: Recorded, lnmax: LNMax, sigma: float, queries: int, delta: float) -> Row:
    """Count plurality votes of all queries and of those that pass each check; accumulate ε over the answers."""
    votes = recorded.votes[:queries]
    counts, voters = votes.counts, votes.voters
    edges = np.linspace(0.0, voters, min(BINS, voters) + 1)
    plurality = counts.max(axis=1)
    all_answered = np.ones(len(counts), dtype=bool)
    total = np.histogram(plurality, edges)[0]
    query_costs = gaussian_renyi(log_q(counts, sigma, noise="discrete"), sigma, [COST_ORDER])[:, 0]
    cost = np.histogram(plurality, edges, weights=query_costs)[0] / np.maximum(total, 1)
    curves = {"LNMax": accumulate_costs(lnmax, counts, all_answered, delta)}
    passed_counts = {}
    for name, (threshold, scale) in CHECKS.items():
        aggregator = ConfidentGNMax(threshold * voters, scale * voters, sigma)
        answered = aggregator.check.release(plurality, np.random.default_rng([LABEL_SEED, queries, 5]))
        passed_counts[name] = [int(value) for value in np.histogram(plurality[answered], edges)[0]]
        curves[name] = accumulate_costs(aggregator, counts, answered, delta)
    return {
        "queries": queries,
        "order": COST_ORDER,
        "edges": [float(edge) for edge in edges],
        "all": [int(value) for value in total],
        "passed": passed_counts,
        "cost": [float(value) if count else None for value, count in zip(cost, total, strict=True)],
        "curves": curves,
    }


def _measure_points(votes: Votes, truth: Labels, answers: Sequence[Answer], delta: float) -> list[dict[str, float]]:
    """Measure label accuracy and ε of every aggregator."""
    weights, points = np.ones(votes.queries), []
    for answer in answers:
        labels = answer.release(votes, rng=np.random.default_rng([LABEL_SEED, 4]))
        curve = RenyiCurve(DEFAULT_ORDERS, AnswersByTheorem6(answer, votes.counts, DEFAULT_ORDERS).total(weights))
        scale = answer.sigma if isinstance(answer, GNMax) else math.sqrt(2.0) / answer.gamma
        accuracy = float(np.mean(labels == truth))
        points.append({"scale": scale, "accuracy": accuracy, "epsilon": curve.best(delta).epsilon})
    return points


def _compute_shares(values: NDArray[np.float64], edges: NDArray[np.float64]) -> list[float]:
    return [float(count) for count in np.histogram(values, edges)[0] / max(1, values.size)]
