"""Every aggregator on one workload, at one budget: its accuracy, and the margins at which ours is worse."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from darrm.commands.command_line import spread
from darrm.loss.privacy_cost import PrivacyCost
from darrm.loss.renyi import RenyiCurve
from darrm.numerics.bisection import bisect_safe
from darrm.plan import MECHANISMS, CalibratedMechanism, Mechanism, Plan, plan
from darrm.plan.accuracy import MOST_LISTED, histograms
from darrm.plan.mechanism import account_of
from darrm.plan.planner import named
from darrm.plurality.accuracy_bound import accuracy_at_most
from darrm.priors import Dirichlet, Prior
from darrm.privacy import PrivacyParams
from darrm.problem import Voters, Workload
from darrm.util.figures import BLACK, saved_figure, style
from experiments.aggregators.settings import OPTIMA, RELEASED_FIRST, name_of
from experiments.pages import Claim, Row, read_json

MOST_LEVELS = 32  # kept of a long curve in the JSON
SAME = 1e-9  # lies of 2⁻³⁶ and the searches' last digits are no difference
BY_COUNTS, BY_LABEL, SHAPED = "GNMax, tight σ", "GNMax by label", "shaped noise"
LESS_NOISE = (0.75, 0.85)  # of σ: what "about a fifth smaller" means
LEAST_SIGMA, MOST_SIGMA = 1e-2, 1e6


class Ours(Mechanism):
    slug = name = "ours"
    about = "`darrm.plan.plan`, its total as the accountant reports it."
    color, linewidth = BLACK, 2.4


Lead = tuple[float, str]  # by how much, before whom


@dataclass(frozen=True)
class Comparison:
    """One workload's results under one belief, as plain data.

    ``options`` hold one entry for each aggregator, this library's first choice first: name, right (its share of
    right labels), standard_error, settings, epsilon, bound, released (whether this library draws it); for two classes
    also accuracy and truth, the latter at the numbers of votes that ``levels`` lists, and for all but the first
    worst_margin and worst_difference: the smallest difference of the first's truth and theirs, and its margin.
    ``absent`` (name, reason) lists those that do not apply; ``coin`` is the share of right labels of a guess. For more
    classes ``at_most`` bounds every private release, and ``sigma_by_counts`` is the least σ of GNMax that the
    accountant admits by the Rényi curve of its noisy counts.
    """

    workload: Row
    options: list[Row]
    absent: list[tuple[str, str]]
    seconds: float
    prior: str = "common"
    levels: list[int] = field(default_factory=list)
    coin: float | None = None
    at_most: float | None = None
    sigma_by_counts: float | None = None

    @classmethod
    def read(cls, path: Path) -> "list[Comparison]":
        return [cls(**entry) for entry in read_json(path)]

    @property
    def classes(self) -> int:
        return int(self.workload.get("classes", 2))

    @property
    def title(self) -> str:
        w = self.workload
        if self.classes > 2:
            return f"C = {w['classes']}, K = {w['K']:,}, Q = {w['queries']:,}, {self.prior}"
        reach = "all" if w["overlap"] is None else w["overlap"]
        voters = w["voters"] if self.is_plain else f"{w['voters']}-private"
        return f"K = {w['K']}, {voters}, overlap {reach}, Q = {w['queries']}, ({w['epsilon']}, {w['delta']})"

    @property
    def is_plain(self) -> bool:
        """Whether the voters are not private."""
        return bool(self.workload.get("voters", "plain") == "plain")

    @property
    def best(self) -> Row:
        return max(self.options, key=lambda option: float(option["right"]))

    def of(self, name: str) -> Row | None:
        return next((option for option in self.options if option["name"] == name), None)

    def all_of(self, key: str) -> dict[str, float]:
        """Return one number of every aggregator that has it, by its name."""
        return {option["name"]: option[key] for option in self.options if key in option}


Mechanisms = Sequence[type[Mechanism]]


def listed(mechanisms: Mechanisms | None = None) -> list[type[Mechanism]]:
    """List the compared aggregators: ours, and every mechanism but the optima, by default of `MECHANISMS`."""
    return [Ours, *(one for one in (MECHANISMS if mechanisms is None else mechanisms) if one.slug not in OPTIMA)]


def compare(
    work: Workload, prior: Prior | None = None, *, mechanisms: Mechanisms | None = None
) -> tuple[Comparison, list[CalibratedMechanism]]:
    """Run every mechanism, by default `MECHANISMS`; also return the calibrated ones, ours first.

    Two classes are compared by the expected error of [D], under the prior that every histogram is equally likely.
    """
    asked = MECHANISMS if mechanisms is None else mechanisms
    ours_are = [one for one in MECHANISMS if one.slug in RELEASED_FIRST]
    two = work.has_noise_function
    started = time.perf_counter()
    made = plan(
        work,
        prior=Dirichlet() if two and prior is None else prior,
        mechanisms=[*ours_are, *(one for one in asked if one not in ours_are)],
        objective="error" if two else "accuracy",
        complete=True,
    )
    seconds = time.perf_counter() - started
    ours = next(row for row in made.rows if row.is_released and row.slug in RELEASED_FIRST)
    rivals = [row for row in made.rows if row is not ours]
    if two:  # whichever of its optima and laws it is
        rivals = [row for row in made.rows if row.slug in {one.slug for one in listed(asked)}]
        ours = replace(ours, slug=Ours.slug, name=Ours.name)
    rows = [ours, *rivals]
    entries = [_entry(row) for row in rows]
    workload = {
        "K": work.voters.K,
        "classes": work.classes,
        "voters": str(work.voters.each) if work.voters.each.is_private else "plain",
        "overlap": work.voters.overlap,
        "queries": work.queries,
        "epsilon": work.total.epsilon,
        "delta": work.total.delta,
    }
    more: Row = {"levels": _add_curves(rows, entries)} if two else _limits(made)
    guess = made.measure.guessing
    coin = None if guess is None else guess.value
    absent = [(name_of(one), reason) for slug, reason in made.left_out for one in asked if one.slug == slug]
    return Comparison(workload, entries, absent, seconds, made.prior.text, coin=coin, **more), rows


def _entry(row: CalibratedMechanism) -> Row:
    return {
        "name": name_of(row),
        "right": row.accuracy,
        "standard_error": 0.0 if row.estimate is None else row.estimate.standard_error,
        "settings": dict(row.settings),
        "epsilon": row.spent.epsilon,
        "bound": row.spent.bound,
        "released": row.is_released,
    }


def _add_curves(rows: Sequence[CalibratedMechanism], entries: Sequence[Row]) -> list[int]:
    """Note accuracy and curve of two classes, and the first's worst margin; return the numbers of votes."""
    ours, voters = rows[0], rows[0].workload.voters
    kept = spread(ours.curve.size, MOST_LEVELS)
    for row, entry in zip(rows, entries, strict=True):
        error = row.expected_error
        entry |= {"accuracy": None if error is None else 1.0 - error, "truth": row.curve[kept].round(6).tolist()}
        if row is not ours:
            difference = ours.curve - row.curve
            worst = int(np.argmin(difference))
            entry["worst_margin"] = 2 * (voters.first_majority + worst) - voters.K
            entry["worst_difference"] = float(difference[worst])
    return [voters.first_majority + place for place in kept]


def _limits(made: Plan) -> Row:
    """Compute the bound on every private release, and σ by noisy counts."""
    work = made.workload
    listed = histograms(made.prior, work.voters.K, work.classes, MOST_LISTED)
    return {"at_most": accuracy_at_most(work, *listed), "sigma_by_counts": _sigma_by_counts(work)}


def _sigma_by_counts(work: Workload) -> float:
    """Bisect for the least σ of GNMax that the accountant admits by the Rényi curve λ/σ² of its noisy counts."""

    def admitted(sigma: float) -> bool:
        curve = RenyiCurve.of(lambda orders: orders / sigma**2)
        return account_of(work, PrivacyCost("GNMax by counts", renyi=curve, reached=1)).admits(work.total)

    return bisect_safe(admitted, MOST_SIGMA, LEAST_SIGMA, tolerance=1e-6, geometric=True)


def decide(comparisons: Sequence[Comparison]) -> list[Claim]:
    """Decide the claims: for two classes by the voters, then for each larger number of classes."""
    claims: list[Claim | None] = []
    for voters, is_plain in (("voters that are not private, overlap 1", True), ("private voters", False)):
        two = [item for item in comparisons if item.classes == 2 and item.is_plain == is_plain]
        one = [item for item in two if item.workload["queries"] == 1]
        many = [item for item in two if item.workload["queries"] > 1]
        margin, accuracy = "ours is at least as good at every margin", "ours has at least the expected accuracy"
        claims += [
            _claim(f"one query, {voters}: {margin}", one, _by_margin),
            _claim(f"one query, {voters}: {accuracy}", one, _by_accuracy),
            _claim(f"many queries, {voters}: {accuracy}", many, _by_accuracy),
            _claim(f"many queries, {voters}: {margin}", many, _by_margin),
        ]
    for classes in sorted({item.classes for item in comparisons} - {2}):
        more = [item for item in comparisons if item.classes == classes]
        who = f"{classes} classes"
        claims += [
            _claim(f"{who}: ours is right at least as often as every release that is only compared", more, _lead),
            _claim(f"{who}: shaped noise is right at least as often as Gaussian noise by label", more, _shaped_lead),
            _claim(f"{who}: no release exceeds the proved bound", more, _room),
        ]
    return [claim for claim in (*claims, *_less_noise(comparisons)) if claim is not None]


def _claim(
    statement: str, chosen: Sequence[Comparison], leads_of: Callable[[Comparison], Sequence[Lead]]
) -> Claim | None:
    leads = [(value, f"{before}{item.title}") for item in chosen for value, before in leads_of(item)]
    if not leads:
        return None
    least, where = min(leads)
    broken = sum(value < -SAME for value, _ in leads)
    compared = "comparisons" if chosen[0].classes == 2 else "workloads"
    measured = f"{len(leads) - broken} of {len(leads)} {compared}; least lead {least:.3g} ({where})"
    return Claim(statement, measured, broken == 0)


def _by_margin(item: Comparison) -> list[Lead]:
    return [
        (rival["worst_difference"], f"{rival['name']} at margin {rival['worst_margin']}; ")
        for rival in item.options[1:]
    ]


def _by_accuracy(item: Comparison) -> list[Lead]:
    ours, *rivals = item.options
    return [(ours["accuracy"] - rival["accuracy"], f"{rival['name']}; ") for rival in rivals]


def _lead(item: Comparison) -> list[Lead]:
    """Ours, the best that this library draws, minus the best that is only compared."""
    ours = [option["right"] for option in item.options if option["released"]]
    others = [option["right"] for option in item.options if not option["released"]]
    return [(max(ours) - max(others), "")] if ours and others else []


def _shaped_lead(item: Comparison) -> list[Lead]:
    shaped, gaussian = item.of(SHAPED), item.of(BY_LABEL)
    return [] if shaped is None or gaussian is None else [(shaped["right"] - gaussian["right"], "")]


def _room(item: Comparison) -> list[Lead]:
    return [] if item.at_most is None else [(item.at_most - float(item.best["right"]), "")]


def _less_noise(comparisons: Sequence[Comparison]) -> list[Claim]:
    """Compare σ of GNMax by label with what its noisy counts need, for many queries on more than two classes."""
    sigmas = [
        (by_label["settings"]["sigma"], item.sigma_by_counts, by_counts["settings"]["sigma"], item.title)
        for item in comparisons
        if item.sigma_by_counts is not None and item.workload["queries"] > 1
        if (by_label := item.of(BY_LABEL)) and (by_counts := item.of(BY_COUNTS))
    ]
    claims = []
    for place, statement, (least, most) in (
        (1, "by the same accountant the label lets GNMax use about a fifth less noise", LESS_NOISE),
        (2, "the label lets GNMax use less noise than any accounting of its counts", (0.0, 1.0)),
    ):
        ratios = [(row[0] / row[place], row[3]) for row in sigmas]
        if ratios:
            (low, first), (high, last) = min(ratios), max(ratios)
            measured = f"σ is {low:.3f} ({first}) to {high:.3f} ({last}) of that by counts, {len(ratios)} workloads"
            claims.append(Claim(f"many queries: {statement}", measured, least <= low and high <= most))
    return claims


# (K, C): as many voters of more classes as are solved in seconds
SIZES = ((7, 2), (7, 3), (7, 5), (4, 10))
EACH, ALLOWANCES = "0.1", (1, 2, 3)
SLUGS = (
    "optimal",
    "randomized-response",
    "double-subsampling",
    "subsampling",
    "permute-and-flip",
    "exponential",
    "lnmax",
)
SHOWN = tuple(name_of(named(slug)) for slug in SLUGS)


def compare_private(*, quick: bool) -> list[Row]:
    """Compute the share of right labels of every release, where each histogram is equally likely."""
    return [_compared(K, C, m) for K, C in (SIZES[1:2] if quick else SIZES) for m in ALLOWANCES]


def _compared(K: int, C: int, m: int) -> Row:
    target = PrivacyParams(m * PrivacyParams(EACH).exact_epsilon)
    work = Workload(Voters(K, PrivacyParams(EACH)), 1, target, C)
    made = plan(work, prior=Dirichlet(), mechanisms=list(map(named, SLUGS)), complete=True)
    shares = {name_of(row): row.accuracy for row in made.rows}
    print(f"K = {K}, C = {C}, m = {m}: {shares['per query']:.4f}", flush=True)
    return {"voters": K, "classes": C, "m": m, "epsilon": EACH, "right": shares}


def save_private(path: Path, rows: Sequence[Row]) -> None:
    """Draw the shares over the allowance, one panel for each number of classes."""
    drawn = {name_of(named(slug)): replace(style(place), color=named(slug).color) for place, slug in enumerate(SLUGS)}
    numbers = list(dict.fromkeys(row["classes"] for row in rows))
    with saved_figure(path, width=3.4 * len(numbers), height=3.8, dpi=110) as figure:
        axes = figure.subplots(1, len(numbers), squeeze=False)[0]
        lines: dict[str, object] = {}
        for axis, classes in zip(axes, numbers, strict=True):
            chosen = [row for row in rows if row["classes"] == classes]
            for name in SHOWN:
                points = [(row["m"], row["right"][name]) for row in chosen if name in row["right"]]
                if points:
                    (lines[name],) = axis.plot(*zip(*points, strict=True), **drawn[name].line(len(points)))
            axis.set_title(f"C = {classes}, K = {chosen[0]['voters']}", fontsize=9)
            axis.set_xticks(ALLOWANCES)
            axis.set_ylim(0.0, 1.03)
            axis.set_xlabel("m, each voter 0.1-private", fontsize=9)
            axis.grid(alpha=0.3)
        axes[0].set_ylabel("share of right labels", fontsize=9)
        figure.legend(list(lines.values()), list(lines), loc="outside lower center", ncols=4, fontsize=9)
