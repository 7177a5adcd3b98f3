"""Compare every aggregator on one workload at one budget: accuracies, and the margins at which ours is worse."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import product

import numpy as np

from darrm.commands.command_line import spread
from darrm.loss.privacy_cost import PrivacyCost
from darrm.loss.renyi import RenyiCurve
from darrm.numerics.bisection import bisect_safe
from darrm.plan import MECHANISMS, CalibratedMechanism, Mechanism, Plan, plan
from darrm.plan.accuracy import MOST_LISTED, list_histograms
from darrm.plan.mechanism import make_accountant
from darrm.plan.planner import find_mechanism
from darrm.plurality.accuracy_bound import accuracy_at_most
from darrm.priors import Dirichlet, Prior
from darrm.privacy import PrivacyParams
from darrm.problem import Voters, Workload
from darrm.util.figures import BLACK
from experiments.aggregators.settings import OPTIMA, RELEASED_FIRST, name_mechanism
from experiments.pages import Claim, Row

MAX_LEVELS = 32  # points of a curve in the JSON
TOLERANCE = 1e-9  # above rounding by 2⁻³⁶ and the last digits of the searches
BY_COUNTS, BY_LABEL, ASYMMETRIC = "GNMax, tight σ", "GNMax by label", "shaped noise"
SIGMA_RATIO_RANGE = (0.75, 0.85)  # the meaning of "about a fifth less noise"
MIN_SIGMA, MAX_SIGMA = 1e-2, 1e6


class FirstChoice(Mechanism):
    """The mechanism that `darrm.plan.plan` ranks first."""

    slug = name = "ours"
    about = "`darrm.plan.plan`, its total as the accountant reports it."
    color, linewidth = BLACK, 2.4


Lead = tuple[float, str]  # the difference, and the name of the other mechanism


@dataclass(frozen=True)
class Comparison:
    """The results of one workload under one prior, as plain data.

    ``options`` has one entry for each aggregator, this library's first choice first. Its keys are name, right (the
    accuracy), standard_error, settings, epsilon, bound, and released (whether this library can release it). For two
    classes, accuracy is 1 − the expected error of [D], and truth lists Pr[majority] at each number of votes in
    ``levels``. All options but the first have worst_difference, the least lead of the first option's truth over theirs,
    and worst_margin, the margin where it occurs. ``absent`` has the name of each mechanism that does not apply, and the
    reason. ``coin`` is the accuracy of random guessing. For more classes, ``at_most`` bounds the accuracy of every
    private release, and ``sigma_by_counts`` is GNMax's least σ by the Rényi curve of its noisy counts.
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

    @property
    def classes(self) -> int:
        return int(self.workload.get("classes", 2))

    @property
    def title(self) -> str:
        work = self.workload
        if self.classes > 2:
            return f"C = {work['classes']}, K = {work['K']:,}, Q = {work['queries']:,}, {self.prior}"
        overlap = "all" if work["overlap"] is None else work["overlap"]
        voters = work["voters"] if self.is_plain else f"{work['voters']}-private"
        return (
            f"K = {work['K']}, {voters}, overlap {overlap}, Q = {work['queries']}, ({work['epsilon']}, {work['delta']})"
        )

    @property
    def is_plain(self) -> bool:
        """Whether the voters are not private."""
        return bool(self.workload.get("voters", "plain") == "plain")

    @property
    def best(self) -> Row:
        return max(self.options, key=lambda option: float(option["right"]))

    def find_option(self, name: str) -> Row | None:
        return next((option for option in self.options if option["name"] == name), None)

    def collect_values(self, key: str) -> dict[str, float]:
        """Map the name of each aggregator that has this key to its value."""
        return {option["name"]: option[key] for option in self.options if key in option}


Mechanisms = Sequence[type[Mechanism]]


def list_aggregators(mechanisms: Mechanisms | None = None) -> list[type[Mechanism]]:
    """List our first choice and every other mechanism (default: `MECHANISMS`) except the optima."""
    compared = MECHANISMS if mechanisms is None else mechanisms
    return [FirstChoice, *(kind for kind in compared if kind.slug not in OPTIMA)]


def compare(
    work: Workload, prior: Prior | None = None, *, mechanisms: Mechanisms | None = None
) -> tuple[Comparison, list[CalibratedMechanism]]:
    """Calibrate every mechanism (default: `MECHANISMS`); also return the calibrated ones, ours first.

    For two classes, the objective is the expected error of [D], by default under the uniform prior on histograms.
    """
    compared = MECHANISMS if mechanisms is None else mechanisms
    candidates = [kind for kind in MECHANISMS if kind.slug in RELEASED_FIRST]
    is_binary = work.has_noise_function
    started = time.perf_counter()
    result = plan(
        work,
        prior=Dirichlet() if is_binary and prior is None else prior,
        mechanisms=[*candidates, *(kind for kind in compared if kind not in candidates)],
        objective="error" if is_binary else "accuracy",
        complete=True,
    )
    seconds = time.perf_counter() - started
    first = next(row for row in result.rows if row.is_released and row.slug in RELEASED_FIRST)
    others = [row for row in result.rows if row is not first]
    if is_binary:  # the page calls it "ours", whichever mechanism it is
        others = [row for row in result.rows if row.slug in {kind.slug for kind in list_aggregators(compared)}]
        first = replace(first, slug=FirstChoice.slug, name=FirstChoice.name)
    rows = [first, *others]
    entries: list[Row] = [
        {
            "name": name_mechanism(row),
            "right": row.accuracy,
            "standard_error": 0.0 if row.estimate is None else row.estimate.standard_error,
            "settings": dict(row.settings),
            "epsilon": row.spent.epsilon,
            "bound": row.spent.bound,
            "released": row.is_released,
        }
        for row in rows
    ]
    workload = {
        "K": work.voters.K,
        "classes": work.classes,
        "voters": str(work.voters.each) if work.voters.each.is_private else "plain",
        "overlap": work.voters.overlap,
        "queries": work.queries,
        "epsilon": work.total.epsilon,
        "delta": work.total.delta,
    }
    details: Row = {"levels": _add_curves(rows, entries)} if is_binary else _compute_limits(result)
    guess = result.measure.guessing
    guess_accuracy = None if guess is None else guess.value
    absent = [
        (name_mechanism(kind), reason) for slug, reason in result.left_out for kind in compared if kind.slug == slug
    ]
    return Comparison(workload, entries, absent, seconds, result.prior.text, coin=guess_accuracy, **details), rows


def _add_curves(rows: Sequence[CalibratedMechanism], entries: Sequence[Row]) -> list[int]:
    """Add accuracies, curves and worst margins to the entries; return the numbers of votes of the curves."""
    first, voters = rows[0], rows[0].workload.voters
    places = spread(first.curve.size, MAX_LEVELS)
    for row, entry in zip(rows, entries, strict=True):
        error = row.expected_error
        entry |= {"accuracy": None if error is None else 1.0 - error, "truth": row.curve[places].round(6).tolist()}
        if row is not first:
            difference = first.curve - row.curve
            worst_place = int(np.argmin(difference))
            entry["worst_margin"] = 2 * (voters.first_majority + worst_place) - voters.K
            entry["worst_difference"] = float(difference[worst_place])
    return [voters.first_majority + place for place in places]


def _compute_limits(result: Plan) -> Row:
    """Bound the accuracy of every private release, and find σ by noisy counts."""
    work = result.workload
    prior_histograms = list_histograms(result.prior, work.voters.K, work.classes, MOST_LISTED)
    return {"at_most": accuracy_at_most(work, *prior_histograms), "sigma_by_counts": _find_sigma_by_counts(work)}


def _find_sigma_by_counts(work: Workload) -> float:
    """Find the least σ of GNMax that the accountant admits by the Rényi curve λ/σ² of its noisy counts."""

    def is_admitted(sigma: float) -> bool:
        curve = RenyiCurve.of(lambda orders: orders / sigma**2)
        return make_accountant(work, PrivacyCost("GNMax by counts", renyi=curve, reached=1)).admits(work.total)

    return bisect_safe(is_admitted, MAX_SIGMA, MIN_SIGMA, tolerance=1e-6, geometric=True)


def decide_claims(comparisons: Sequence[Comparison]) -> list[Claim]:
    """Decide the claims for two classes, by kind of voters, and for each larger number of classes."""
    claims: list[Claim | None] = []
    margin, accuracy = "ours is at least as good at every margin", "ours has at least the expected accuracy"
    for voters, is_plain in (("voters that are not private, overlap 1", True), ("private voters", False)):
        binary = [item for item in comparisons if item.classes == 2 and item.is_plain == is_plain]
        one_query = [item for item in binary if item.workload["queries"] == 1]
        many_queries = [item for item in binary if item.workload["queries"] > 1]
        claims += [
            _make_claim(f"one query, {voters}: {margin}", one_query, _list_margin_leads),
            _make_claim(f"one query, {voters}: {accuracy}", one_query, _list_accuracy_leads),
            _make_claim(f"many queries, {voters}: {accuracy}", many_queries, _list_accuracy_leads),
            _make_claim(f"many queries, {voters}: {margin}", many_queries, _list_margin_leads),
        ]
    for classes in sorted({item.classes for item in comparisons} - {2}):
        group = [item for item in comparisons if item.classes == classes]
        claims += [
            _make_claim(f"{classes} classes: {statement}", group, list_leads)
            for statement, list_leads in (
                ("ours is right at least as often as every release that is only compared", _list_release_leads),
                ("shaped noise is right at least as often as Gaussian noise by label", _list_asymmetric_leads),
                ("no release exceeds the proved bound", _list_bound_leads),
            )
        ]
    return [claim for claim in (*claims, *_compare_sigmas(comparisons)) if claim is not None]


def _make_claim(
    statement: str, group: Sequence[Comparison], list_leads: Callable[[Comparison], Sequence[Lead]]
) -> Claim | None:
    leads = [(value, f"{prefix}{item.title}") for item in group for value, prefix in list_leads(item)]
    if not leads:
        return None
    least_lead, title = min(leads)
    num_broken = sum(value < -TOLERANCE for value, _ in leads)
    compared = "comparisons" if group[0].classes == 2 else "workloads"
    measurement = f"{len(leads) - num_broken} of {len(leads)} {compared}; least lead {least_lead:.3g} ({title})"
    return Claim(statement, measurement, num_broken == 0)


def _list_margin_leads(item: Comparison) -> list[Lead]:
    rivals = item.options[1:]
    return [(rival["worst_difference"], f"{rival['name']} at margin {rival['worst_margin']}; ") for rival in rivals]


def _list_accuracy_leads(item: Comparison) -> list[Lead]:
    first, *rivals = item.options
    return [(first["accuracy"] - rival["accuracy"], f"{rival['name']}; ") for rival in rivals]


def _list_release_leads(item: Comparison) -> list[Lead]:
    """Subtract the accuracy of the best compared mechanism from that of the best released one."""
    released, compared = ([row["right"] for row in item.options if row["released"] == kind] for kind in (True, False))
    return [(max(released) - max(compared), "")] if released and compared else []


def _list_asymmetric_leads(item: Comparison) -> list[Lead]:
    asymmetric, gaussian = item.find_option(ASYMMETRIC), item.find_option(BY_LABEL)
    return [] if asymmetric is None or gaussian is None else [(asymmetric["right"] - gaussian["right"], "")]


def _list_bound_leads(item: Comparison) -> list[Lead]:
    return [] if item.at_most is None else [(item.at_most - float(item.best["right"]), "")]


def _compare_sigmas(comparisons: Sequence[Comparison]) -> list[Claim]:
    """Compare σ by label with σ by noisy counts, for many queries on more than two classes."""
    sigmas = [
        (by_label["settings"]["sigma"], item.sigma_by_counts, by_counts["settings"]["sigma"], item.title)
        for item in comparisons
        if item.sigma_by_counts is not None and item.workload["queries"] > 1
        if (by_label := item.find_option(BY_LABEL)) and (by_counts := item.find_option(BY_COUNTS))
    ]
    claims = []
    for place, statement, (lower, upper) in (
        (1, "by the same accountant the label lets GNMax use about a fifth less noise", SIGMA_RATIO_RANGE),
        (2, "the label lets GNMax use less noise than any accounting of its counts", (0.0, 1.0)),
    ):
        ratios = [(row[0] / row[place], row[3]) for row in sigmas]
        if ratios:
            (low, low_title), (high, high_title) = min(ratios), max(ratios)
            extremes = f"{low:.3f} ({low_title}) to {high:.3f} ({high_title})"
            measurement = f"σ is {extremes} of that by counts, {len(ratios)} workloads"
            claims.append(Claim(f"many queries: {statement}", measurement, lower <= low and high <= upper))
    return claims


# (K, C) of private voters: sizes that are solved in seconds
SIZES, EACH, ALLOWANCES = ((7, 2), (7, 3), (7, 5), (4, 10)), PrivacyParams("0.1"), (1, 2, 3)
OTHER_SLUGS = ("randomized-response", "double-subsampling", "subsampling", "permute-and-flip", "exponential", "lnmax")
SLUGS = ("optimal", *OTHER_SLUGS)
SHOWN_NAMES = tuple(name_mechanism(find_mechanism(slug)) for slug in SLUGS)


def compare_private(*, quick: bool) -> list[Row]:
    """Compute the accuracy of every mechanism for private voters, under the uniform prior on histograms."""
    rows: list[Row] = []
    for (K, C), m in product(SIZES[1:2] if quick else SIZES, ALLOWANCES):
        work = Workload(Voters(K, EACH), 1, PrivacyParams(m * EACH.exact_epsilon), C)
        result = plan(work, prior=Dirichlet(), mechanisms=list(map(find_mechanism, SLUGS)), complete=True)
        shares = {name_mechanism(row): row.accuracy for row in result.rows}
        print(f"K = {K}, C = {C}, m = {m}: {shares['per query']:.4f}", flush=True)
        rows.append({"voters": K, "classes": C, "m": m, "epsilon": EACH.epsilon_text, "right": shares})
    return rows
