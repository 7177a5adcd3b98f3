"""The accountant: adds up charges and says what was spent, by which bound, and why.

A `PrivacyAccountant` keeps charges; `PrivacyAccountant.spent` evaluates every bound that applies and returns the
smallest with its name. Several answers of private *models* share the randomness of their training, which every theorem
on composition excludes: their costs do not add up, and no bound here adds them. Four bounds are proved for them,
whatever their queries and however these depend on earlier answers:

* **private models**: the answers are post-processing of the models that a person reaches;
* **subsampling**: answers that look at few models each, `darrm.proof.sample`, are post-processing of these;
* **plain voters**: given the models that a person does not reach, all queries are about votes of which the person moves
  at most t, and each tosses coins of its own; so the queries' costs for plain voters add up, by every bound there is;
* **both ends**: the two together, `darrm.losses.both_ends`.

Which models these are, the account is told, or its charges say. Where these are about different models, or some do not
say about which, nothing is proved here and nothing is reported. Models are known by what they promise: ensembles with
equal `Voters` count as one, so another ensemble, or the same one trained anew, needs an account of its own.

Where the kinds of queries were chosen after earlier answers, one course of answers may end under one bound and another
course under another. Each bounds P(S) − e^ε·P'(S) for the sets S of courses that end under it, so their δ add up: those
that depend on the charges get an equal share of δ each. The first does not depend on them and keeps all of it.

What strings of one person may tell where answers are open (`darrm.losses.vanishing`) is paid from δ first, and every
bound holds of the rest; only `darrm.account.filters` counts it among the queries' own δ instead.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial

from darrm.account.bounds import (
    CLOSED_FORMS,
    Bound,
    BoundRule,
    both_ends_bound,
    exact_sum,
    models_bound,
    plain_bound,
    profile_bound,
    subsampling_bound,
)
from darrm.account.filters import HALF, filter_bound
from darrm.account.pld import discretized_bound
from darrm.errors import BudgetExceededError, PrivateFigureError, checks
from darrm.losses.both_ends import release_within, smallest_whole
from darrm.losses.charges import Charge
from darrm.privacy import PrivacyParams
from darrm.probability.bisection import last_allowed_integer
from darrm.problem import Voters
from darrm.sampling import Sampling
from darrm.system.files import Document

# of kinds that are chosen on the way: the share of δ for the queries' own, see `darrm.account.filters`
SET_ASIDE = {"adaptive": HALF, "renyi": Fraction(0)}
KINDS = ("one", "planned", *SET_ASIDE)  # of queries that a budget admits, see `darrm.account.ledger`
MOST_QUERIES = 2**53  # in a charge and in a ledger: beyond it neither floats nor SQLite's sums count exactly
_WAYS = 4  # bounds on models that depend on the charges: subsampling, plain voters, and both ends in two ways
SHARED_RANDOMNESS = (
    "answers of trained models share the randomness of their training, so the costs of single queries do not add up: "
    "only models that are declared, the same for all queries, with their overlap, are bounded, at a delta that they or "
    "the release allow"
)


@dataclass(frozen=True)
class Spent:
    """What an account has spent at one δ: it is (epsilon, delta)-private."""

    epsilon: float  # ∞ where no bound holds at this δ
    delta: float
    bound: str  # the name of the bound that gave ε
    explanation: str  # the reason in words
    bounds: tuple[Bound, ...]  # all that applied, smallest first
    queries: int  # how many the account holds
    understated: float | None = None  # of published estimates in it, at most the probability that one is too small
    neighbors: str = ""  # by what they differ, where voters draw their examples anew for every question

    def __str__(self) -> str:
        if not self.queries:
            return f"nothing spent yet (delta = {self.delta:g})"
        asked = "1 query" if self.queries == 1 else f"{self.queries} queries"
        if math.isinf(self.epsilon):
            return f"{asked}: no finite epsilon at delta = {self.delta:g}; {self.explanation}"
        about = f" for neighbors that {self.neighbors}," if self.neighbors else ""
        by = f"{about} by {self.bound}: {self.explanation}"
        spent = f"{asked}: ({self.epsilon:.4f}, {self.delta:g}){by}"
        return spent if self.understated is None else f"{spent}; {estimated(self.understated)}"

    def to_json(self) -> Document:
        """Write what was spent as plain data; ε is null where no bound holds."""
        return {
            "epsilon": self.epsilon if math.isfinite(self.epsilon) else None,
            "delta": self.delta,
            "bound": self.bound,
            "explanation": self.explanation,
            "queries": self.queries,
            "bounds": {bound.name: bound.epsilon for bound in self.bounds},
            **({} if self.understated is None else {"understated": self.understated}),
            **({"neighbors": self.neighbors} if self.neighbors else {}),
        }


def estimated(understated: float) -> str:
    """Say what a sum is that holds published estimates.

    >>> estimated(0.5)
    'no guarantee: it holds published estimates about the data at hand, too small with probability up to 0.5'
    """
    holds = "it holds published estimates about the data at hand"
    return f"no guarantee: {holds}, too small with probability up to {understated:.3g}"


class PrivacyAccountant:
    """Adds charges and bounds their sum.

    Parameters
    ----------
    voters
        Who votes; None leaves it to the charges, which say about which models they are.
    charges
        Charges to start with.
    set_aside
        Where the kinds of queries are chosen after earlier answers, the share of δ for those without a Rényi curve,
        fixed beforehand: see `darrm.account.filters`.

    Examples
    --------
    >>> from darrm.privacy import PrivacyParams
    >>> accountant = PrivacyAccountant()
    >>> accountant.add(Charge("majority of 11", guarantee=PrivacyParams(0.2676, 0.0003), count=100))
    >>> spent = accountant.spent(0.0297)
    >>> spent.bound, round(spent.epsilon, 2)
    ('optimal', 12.29)
    """

    def __init__(
        self, voters: Voters | None = None, charges: Iterable[Charge] = (), *, set_aside: Fraction = HALF
    ) -> None:
        if voters is not None:
            checks.instance(Voters, voters=voters, advice="charges are given as charges=[…]")
        if isinstance(charges, Charge) or not isinstance(charges, Iterable):
            checks.fail("charges", charges, "a list of charges", "say charges=[aggregator.charge(queries)]")
        self._voters, self._set_aside = voters, set_aside
        self._counts: dict[Charge, int] = {}
        for charge in charges:
            self.add(charge)

    def add(self, charge: Charge, *, consent: str | None = None) -> None:
        """Add a charge; equal kinds are counted together, so n charges equal one charge repeated n times.

        Parameters
        ----------
        charge
            What was answered.
        consent
            Word for word, where the charge itself does not bear it: `PRIVATE_TOTAL` admits a cost that is private data,
            and the total then is, too; `ESTIMATED_TOTAL` a published estimate, and the total then is one.

        Raises
        ------
        PrivateFigureError
            If the charge's cost depends on the data, and nothing admits it.
        ValueError
            If the charge does not hold for the voters: it is for another number of them, for more private ones, or for
            a person who reaches fewer; if they are private models, and the charge is for other models, or one of
            several queries that was proved for fresh randomness at every query.
        """
        checks.instance(Charge, charge=charge, advice="say aggregator.charge(queries)")
        if charge.reached is not None and self._voters is not None and charge.reached < self._voters.reached:
            raise ValueError(
                f"{charge.what} is private where a person reaches at most {charge.reached} of the voters, and of these "
                f"voters a person reaches {self._voters.reached}: charge a release for that overlap"
            )
        proved = charge.voters
        if proved is not None and self._voters is not None and not proved.cover(self._voters):
            raise ValueError(
                f"{charge.what} is charged for other {'models' if charge.models else 'voters'} ({proved}) than those "
                f"declared ({self._voters}): "
                "charge a release for voters that are as many, and no more private"
            )
        self._check_neighbors(charge)
        if charge.consent_needed not in {"", consent, charge.consent}:
            why = "was computed from the private data and is private itself"
            if charge.understated is not None:
                about = "is a published estimate about the data at hand and no guarantee"
                why = f"{about}, too small with probability {charge.understated:.3g}"
            advice = f"charge the data-independent cost, or say consent={charge.consent_needed!r}"
            raise PrivateFigureError(charge.what, f"this cost {why}: {advice}")
        charge = replace(charge, consent=charge.consent_needed)
        kind = charge.kind
        # equal costs may hold for different voters: of all of them is known what the one says that says least
        known = next((other for other in self._counts if other == kind), kind)
        least = min(known, kind, key=lambda other: other.promise)
        counts = {least if other == kind else other: count for other, count in self._counts.items()}
        counts[least] = counts.get(least, 0) + charge.count
        if self._voters is not None and self._voters.are_private_models:
            _check_models(self._voters, counts)
        self._counts = counts

    def _check_neighbors(self, charge: Charge) -> None:
        # what is charged without a word on votes, by hand, is taken as it is
        others = [(kind.what, kind.sampling) for kind in self._counts if _is_about_votes(kind)]
        if self._voters is not None:
            others.append(("the voters declared", self._voters.sampled))
        for what, sampling in others if _is_about_votes(charge) else ():
            if _neighbors_of(charge.sampling) != _neighbors_of(sampling):
                raise ValueError(
                    f"{charge.what} is charged for neighbors that {_neighbors_of(charge.sampling)}, and {what} for "
                    f"neighbors that {_neighbors_of(sampling)}: these are not added up; keep an account of its own"
                )

    def plus(self, charge: Charge) -> PrivacyAccountant:
        """Return an accountant that holds this charge, too; raises as `add`."""
        account = PrivacyAccountant(self._voters, set_aside=self._set_aside)
        account._counts = self._counts
        account.add(charge)
        return account

    def as_held(self, charge: Charge) -> Charge:
        """Return a charge as its kind is held: without a curve that was not known when that was charged."""
        bare = charge if charge.guarantee is None else replace(charge, renyi=None)
        return bare if charge.kind not in self._counts and bare.kind in self._counts else charge

    def is_part_of(self, other: PrivacyAccountant) -> bool:
        """Whether the other one holds as many queries of every kind, or more."""
        return all(count <= other._counts.get(kind, 0) for kind, count in self._counts.items())

    @property
    def charges(self) -> tuple[Charge, ...]:
        """One charge for each kind, with its count."""
        return tuple(replace(kind, count=count) for kind, count in self._counts.items())

    @property
    def queries(self) -> int:
        """How many queries were charged."""
        return sum(self._counts.values())

    @property
    def understated(self) -> float | None:
        """At most the probability that a published estimate in it is too small; None if it holds none."""
        known = [kind.understated * count for kind, count in self._counts.items() if kind.understated is not None]
        return min(1.0, sum(known)) if known else None

    @property
    def models(self) -> Voters | None:
        """The private models that all queries are about; None if there are none, or more than one kind of them."""
        if self._voters is not None and self._voters.are_private_models:
            return self._voters
        kinds = {kind.models for kind in self._counts}
        return kinds.pop() if len(kinds) == 1 else None

    @property
    def composes(self) -> bool:
        """Whether costs add up: not for several queries where one of them, or the voters, are private models."""
        if self.queries <= 1:
            return True
        declared = self._voters is not None and self._voters.are_private_models
        return not declared and not any(kind.alone for kind in self._counts)

    def spent(self, delta: float) -> Spent:
        """Bound what was spent at ``delta`` in [0, 1) by every bound that applies, and name the smallest.

        Raises
        ------
        ValueError
            If ``delta`` lies outside its range.
        """
        applied = (*CLOSED_FORMS, profile_bound, discretized_bound)
        return self._smallest(applied, delta, otherwise="the queries fail with more than this delta")

    def spent_adaptively(self, delta: float) -> Spent:
        """Bound what was spent where even the kinds of queries may have been chosen after earlier answers.

        Only the filter of `darrm.account.filters` is used: the other bounds assume kinds that were fixed beforehand.
        """
        reason = "the queries' own deltas pass what is set aside for them, and one of them has no Rényi curve"
        bound = partial(filter_bound, set_aside=self._set_aside)
        return self._smallest([bound], delta, otherwise=reason, adaptive=True)

    def spent_under(self, kinds: str, delta: float) -> Spent:
        """Bound what was spent under a budget of one of `KINDS`."""
        return self.spent_adaptively(delta) if kinds in SET_ASIDE else self.spent(delta)

    def admits(self, budget: PrivacyParams, *, adaptive: bool = False) -> bool:
        """Return whether everything charged so far stays within ``budget``; stops at the first bound that shows it.

        ``adaptive`` uses only the bound that holds where the kinds of queries were chosen after earlier answers.
        """
        checks.instance(PrivacyParams, budget=budget, advice="say PrivacyParams(epsilon, delta)")
        if self._vanishing and not adaptive:
            return self._lasting_within(budget)
        if not self._counts or self._models_admit(budget, adaptive=adaptive):
            return True
        if not self.composes:
            return False
        # compared as fractions: two queries of 0.3 fit into 0.6, whatever the floats nearest to them say
        total = exact_sum(self.charges)
        allowed_delta = budget.exact_delta * (self._set_aside if adaptive else 1)
        if total is not None and total[0] <= budget.exact_epsilon and total[1] <= allowed_delta:
            return True
        if adaptive:
            return self.spent_adaptively(budget.delta).epsilon <= budget.epsilon
        return any(bound.epsilon <= budget.epsilon for bound in filter(None, self._deciding_bounds(budget.delta)))

    def smallest_epsilon(self, delta: float, *, adaptive: bool = False) -> float:
        """Return the ε of `spent` without the bounds that cannot be the smallest: fast enough for every debit."""
        if not self._counts:
            return 0.0
        if self._vanishing and not adaptive:
            left = self._left_of(delta)
            return self._of_lasting().smallest_epsilon(left) if left > 0.0 else math.inf
        bounds = [*self._models_bounds(delta, adaptive=adaptive, named=False)]
        if self.composes:
            bounds += [filter_bound(self.charges, delta, self._set_aside)] if adaptive else self._deciding_bounds(delta)
        return min((bound.epsilon for bound in filter(None, bounds)), default=math.inf)

    def queries_that_fit(self, charge: Charge, budget: PrivacyParams, *, most: int, adaptive: bool = False) -> int:
        """Count how many queries of the kind of ``charge``, up to ``most``, could still be added within ``budget``."""
        checks.integer_at_least(0, most=most)

        def fits(queries: int) -> bool:
            return self.plus(charge.kind.repeated(queries)).admits(budget, adaptive=adaptive)

        beyond = 1  # no more than twice what fits: far beyond a budget no grid holds the losses
        while beyond <= most and fits(beyond):
            beyond *= 2
        return last_allowed_integer(fits, inside=beyond // 2, outside=min(beyond, most + 1))

    def _smallest(self, applied: Iterable[BoundRule], delta: float, *, otherwise: str, adaptive: bool = False) -> Spent:
        checks.probability_below_one(delta=delta)
        if not self._counts:
            return Spent(0.0, delta, "nothing", "no query was charged", (), 0)
        if self._vanishing and not adaptive:
            if (left := self._left_of(delta)) <= 0.0:
                why = "strings that one person alone says may be told with more than this delta"
                return Spent(math.inf, delta, "none", why, (), self.queries)
            rest = self._of_lasting()._smallest(applied, left, otherwise=otherwise)  # noqa: SLF001 (of its own class)
            shared = f"{rest.explanation}; {float(self._vanishing):.3g} of delta is for strings of one person alone"
            return replace(rest, delta=delta, explanation=shared)
        applying = [*self._models_bounds(delta, adaptive=adaptive, named=True)]
        if self.composes:
            applying += [bound(self.charges, delta) for bound in applied]
        else:
            otherwise = SHARED_RANDOMNESS
        bounds = tuple(sorted(filter(None, applying), key=lambda bound: bound.epsilon))
        best = bounds[0] if bounds else Bound("none", math.inf, otherwise)
        total = Spent(best.epsilon, delta, best.name, best.explanation, bounds, self.queries, self.understated)
        drawn = {_neighbors_of(kind.sampling) for kind in self._counts if kind.sampling is not None}
        return replace(total, neighbors=", ".join(drawn))

    @property
    def _vanishing(self) -> Fraction:
        return sum((kind_count * Fraction(kind.vanishing) for kind, kind_count in self._counts.items()), Fraction(0))

    def _of_lasting(self) -> PrivacyAccountant:
        """Account for the same queries without what strings of one person tell."""
        lasting = (replace(charge, vanishing=0.0) for charge in self.charges)
        return PrivacyAccountant(self._voters, lasting, set_aside=self._set_aside)

    def _lasting_within(self, budget: PrivacyParams) -> bool:
        left = budget.exact_delta - self._vanishing
        return left > 0 and self._of_lasting().admits(PrivacyParams(budget.exact_epsilon, left))

    def _left_of(self, delta: float) -> float:
        left = PrivacyParams(0, delta).exact_delta - self._vanishing
        return math.nextafter(float(left), 0.0) if left > 0 else 0.0

    def _models_bounds(self, delta: float, *, adaptive: bool, named: bool) -> Iterator[Bound | None]:
        # With ``named`` the one for plain voters says by which bound it is: it is never the smallest.
        models = self.models
        if models is None:
            return
        yield models_bound(models, delta)
        delta = delta / _WAYS if adaptive else delta
        yield subsampling_bound(models, self.charges, delta)
        wholes = [math.inf, math.inf]
        for one_by_one, release in self._releases(models):

            def epsilon_at(left: float, release: PrivacyAccountant = release) -> float:
                return release.smallest_epsilon(left, adaptive=adaptive)

            wholes[one_by_one] = smallest_whole(models, delta, epsilon_at, one_by_one=one_by_one)
            if named and not one_by_one:
                alone = release.spent_adaptively(delta) if adaptive else release.spent(delta)
                yield plain_bound(models, alone.epsilon, alone.bound)
        yield both_ends_bound(models, (wholes[0], wholes[1]))

    def _models_admit(self, budget: PrivacyParams, *, adaptive: bool) -> bool:
        models = self.models
        if models is None:
            return False
        cap = models_bound(models, budget.delta)
        if adaptive:
            budget = PrivacyParams(budget.exact_epsilon, budget.exact_delta / _WAYS)
        quick = (cap, subsampling_bound(models, self.charges, budget.delta))
        if any(bound.epsilon <= budget.epsilon for bound in filter(None, quick)):
            return True
        for one_by_one, release in self._releases(models):
            # a release that is as private as the whole is to be, needs nothing of the models
            left = release_within(models, budget, one_by_one=one_by_one)
            if left is None or release.admits(left, adaptive=adaptive):
                return True
            if not one_by_one and release.admits(budget, adaptive=adaptive):
                return True
        return False

    def _releases(self, models: Voters) -> Iterator[tuple[bool, PrivacyAccountant]]:
        """Account for the same queries for plain voters: a person reaches as many of them as models, and one."""
        for one_by_one in (False, True) if models.reached > 1 else (False,):
            overlap = 1 if one_by_one else models.reached
            charges = [charge.as_for_plain_voters(overlap) for charge in self.charges]
            if all(charge is not None for charge in charges):
                yield one_by_one, PrivacyAccountant(charges=filter(None, charges), set_aside=self._set_aside)

    def _deciding_bounds(self, delta: float) -> Iterator[Bound | None]:
        """Evaluate one bound after another, the cheap ones first, leaving out those that cannot be the smallest."""
        account = self.charges
        yield from (bound(account, delta) for bound in CLOSED_FORMS)
        # without a profile the grid only rounds up what the optimal bound computes exactly
        if any(charge.profile is not None for charge in account):
            # a single point of the profile cannot beat all of it
            yield discretized_bound(account, delta) or profile_bound(account, delta)


class Admission:
    """Which accounts stay within a budget: one is bounded with room for further queries, smaller ones are compared.

    An account is private if a larger one of the same kinds is: dropping answers is post-processing, and the sums of the
    filter only shrink. The account that was found within the budget is replaced as a whole and read once, so that the
    counts of two accounts are never mixed.

    Parameters
    ----------
    budget
        What all queries together must satisfy.
    kinds
        One of `KINDS`: queries of one kind only, of several, or, counted in two ways, of several that are chosen after
        earlier answers.
    """

    def __init__(self, budget: PrivacyParams, kinds: str) -> None:
        self._budget = budget
        self._kinds = kinds
        self._adaptive = kinds in SET_ASIDE
        self._within = PrivacyAccountant()
        self._room, self._growing = 0, True

    def admits(self, account: PrivacyAccountant, charge: Charge, *, decide: bool = False) -> bool:
        """Return whether an account is known to admit a charge, at the cost of comparing counts.

        With ``decide`` it is bounded now if it is not known.

        Raises
        ------
        ValueError
            If the charge is of a second kind where there may be one only, or there are too many queries.
        BudgetExceededError
            If the charge was bounded and does not fit.
        """
        if self._is_second_kind(account, charge):
            raise ValueError(
                f"this ledger accounts for queries of one kind, {account.charges[0].what!r}, and "
                f"{charge.what!r} costs something else: keep to the first (a voter that left keeps an empty column, "
                "--missing coin), or make a ledger --kinds planned, or renyi for a stream, before the first answer "
                "(kinds= in Python); another ledger is another budget of the same people, and both add up"
            )
        _check_count("the number of queries in a charge", charge.count)
        _check_count("the number of queries in a ledger", account.queries + charge.count)
        total = account.plus(charge)
        if total.is_part_of(self._within):
            return True
        if decide and not self._fits(total):
            raise self._refusal(account, charge)
        return decide

    def queries_that_fit(self, account: PrivacyAccountant, charge: Charge, *, most: int) -> int:
        """Count how many queries of the kind of a charge, up to ``most``, an account still has room for."""
        if self._is_second_kind(account, charge):
            return 0
        most = min(most, MOST_QUERIES - account.queries)
        return account.queries_that_fit(charge, self._budget, most=most, adaptive=self._adaptive)

    def _is_second_kind(self, account: PrivacyAccountant, charge: Charge) -> bool:
        return self._kinds == "one" and any(other.kind != charge.kind for other in account.charges)

    def make_room(self, account: PrivacyAccountant, charge: Charge) -> None:
        """Bound an account with a charge and with room for more, twice as much each time until it no longer fits.

        Raises
        ------
        BudgetExceededError
            If the charge does not fit, without any room: what was asked, what is left, how many queries still fit.
        """
        total = account.plus(charge)
        if self._room:
            if self._fits(total.plus(charge.kind.repeated(self._room))):
                self._room *= 2 if self._growing else 1
                return
            self._room, self._growing = self._room // 2, False
        if not self._fits(total):
            raise self._refusal(account, charge)
        if self._growing:
            self._room = charge.count

    def _fits(self, account: PrivacyAccountant) -> bool:
        if not account.admits(self._budget, adaptive=self._adaptive):
            return False
        self._within = account
        return True

    def _refusal(self, account: PrivacyAccountant, charge: Charge) -> BudgetExceededError:
        budget, adaptive = self._budget, self._adaptive
        fit = account.queries_that_fit(charge, budget, most=charge.count - 1, adaptive=adaptive)
        asked = f"{charge.count} {'query' if charge.count == 1 else 'queries'} of {charge.what}"
        left = max(0.0, budget.epsilon - account.smallest_epsilon(budget.delta, adaptive=adaptive))
        remaining = f"epsilon {left:.6g} of {budget.epsilon:.6g} at delta {budget.delta:g}"
        one_more = account.plus(charge.kind).smallest_epsilon(budget.delta, adaptive=adaptive)
        reason = "; one more would fail with more than that delta, whatever epsilon is" if math.isinf(one_more) else ""
        if math.isinf(one_more) and self._kinds == "renyi":
            reason = "; it needs a Rényi curve, or delta 0, on a ledger of kinds 'renyi': --kinds adaptive takes any"
        if not account.plus(charge).composes:  # a ledger knows no voters, so it has no cap to fall back on
            reason = (
                "; answers of trained models share the randomness of their training, and what is proved for several "
                "of them does not fit: plan further queries with --voters plain"
            )
        return BudgetExceededError(
            f"the budget {budget} does not admit {asked}: {fit} still {'fits' if fit == 1 else 'fit'}, "
            f"{remaining} is left{reason}; nothing was debited",
            requested=asked,
            remaining=remaining,
            queries_that_fit=fit,
        )


def _is_about_votes(charge: Charge) -> bool:
    return charge.reached is not None or charge.sampling is not None or bool(charge.table)


def _neighbors_of(sampling: Sampling | None) -> str:
    return "change one person's answers" if sampling is None else sampling.neighbors + ", drawn anew for each question"


def _check_count(name: str, count: int) -> None:
    if count > MOST_QUERIES:
        checks.fail(name, count, f"at most 2**53 = {MOST_QUERIES}", "larger numbers are not counted exactly")


def _check_models(models: Voters, counts: dict[Charge, int]) -> None:
    for kind in counts:
        proved = kind.voters
        if proved is None or proved.are_plain:
            continue
        if kind.models is not None and replace(kind.models, overlap=models.overlap) != models:
            raise ValueError(f"{kind.what} is charged for other models ({proved}) than those declared ({models})")
        if kind.models is None and sum(counts.values()) > 1:
            raise ValueError(
                f"{kind.what} was proved for voters that draw fresh randomness at every query, and several answers of "
                "trained models share that of their training: make the table for models (--models), or charge it for "
                "them with charge_of(table, queries, voters=models)"
            )
