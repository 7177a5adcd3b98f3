"""The problem: `Voters`, `Problem` (one release) and `Workload` (many releases).

====================  =================  ==========================================================================
name                  [D]                meaning
====================  =================  ==========================================================================
``voters.each``       (ε, Δ)             the guarantee of every voter
``target``            (mε, δ)            the required guarantee of the release
``m``                 m                  the privacy allowance, ``target.epsilon / each.epsilon``
``budget``            e^{mε} − 1 + 2δ    the right-hand side of Lemma 3.4
====================  =================  ==========================================================================

When voters resample examples per query (`darrm.subsampling`), proofs are about `Problem.conditional_on_inclusion`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_DOWN, Context, Decimal, localcontext
from fractions import Fraction
from itertools import accumulate, groupby, pairwise
from typing import TYPE_CHECKING

from darrm.privacy import LARGEST_EXPONENT, Number, PrivacyPair, PrivacyParams, exact_number
from darrm.subsampling import Subsampling
from darrm.util import checks
from darrm.util.files import Json

# a proof covers γ(l) for all l: a million voters take minutes and a table of 10 MB. Numbers of queries are multiplied
# as floats, which are exact for integers up to 2^53
MOST_VOTERS, MOST_QUERIES, MOST_CLASSES = 10**6, 10**12, 10**6
_LARGE_EPSILON = 1e6  # ε of non-private voters in sums
_ROUNDING = Fraction(1, 2**50)  # tolerance for a caller's floats: m·ε, and 1 − (1 − Δ)^m
_MAX_CUTS = 200  # candidate cuts in `Voters.round_up_to`, whose work is quadratic in their number
_M_EPSILON = "the release is m*epsilon-private, at least as one voter is and at most as all are"
_NO_ALLOWANCE = "voters that are not private have no allowance m: state the target, Problem(voters, target)"


class Open(int):
    """The number of classes of open-set answers, equal to 0: voters answer with any string."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "open"

    __str__ = __repr__


OPEN = Open()


@dataclass(frozen=True)
class Voters:
    """K voters, the guarantee of each, and the number of voters that one person's data can influence.

    Parameters
    ----------
    K
        1 … 10^6. For even K a fair coin answers a tie.
    each
        The guarantee (ε, Δ) of every voter, ε > 0; see `Voters.non_private` for voters without one.
    overlap
        The largest number of voters that one person's data can influence, 1 … K; None is K, as in the paper.
    models
        True: voters are trained once and answer all queries, so their guarantees per query do not add up. Equal
        `Voters` are the same models: give retrained ones another account and ledger. False: voters draw fresh
        randomness for every query, which votes cannot show.
    per_voter
        The guarantee of each voter if they differ, see `Voters.of`; ``each`` is then the weakest of them.
    sampled
        For non-private voters that resample examples per query: the probability that a person is among the examples, or
        a `Subsampling`. ``overlap`` counts the voters that one person influences when included, usually 1.

    Examples
    --------
    >>> teachers = Voters.non_private(250, overlap=1)
    >>> teachers.reached, teachers.each.is_private, Voters(11, (0.1, 0)).reached
    (1, False, 11)
    """

    K: int
    each: PrivacyParams = None  # type: ignore[assignment]  # left out, it is refused: nothing is promised by default
    overlap: int | None = None
    models: bool = False
    per_voter: tuple[PrivacyParams, ...] | None = None
    sampled: Subsampling | None = None

    if TYPE_CHECKING:  # what `__post_init__` converts

        def __init__(
            self,
            K: int,
            each: PrivacyPair,
            overlap: int | None = None,
            models: bool = False,
            per_voter: tuple[PrivacyParams, ...] | None = None,
            sampled: Subsampling | Number | None = None,
        ) -> None: ...

    @classmethod
    def of(cls, per_voter: Sequence[PrivacyPair], overlap: int | None = None, *, models: bool = False) -> Voters:
        """Return voters with different guarantees; their order is irrelevant.

        >>> Voters.of([PrivacyParams("0.1"), PrivacyParams("0.5"), PrivacyParams("0.1", "1e-6")]).each
        PrivacyParams(epsilon=0.5, delta=0.000001)
        """
        if isinstance(per_voter, PrivacyParams | str) or not isinstance(per_voter, Sequence) or not per_voter:
            checks.fail("per_voter", per_voter, "a list of pairs (epsilon, delta), one for each voter")
        pairs = tuple(PrivacyParams.of(each, "per_voter") for each in per_voter)
        return cls(len(pairs), _find_common_guarantee(pairs), overlap, models=models, per_voter=pairs)

    @classmethod
    def non_private(cls, K: int, overlap: int | None = None, sampled: Subsampling | Number | None = None) -> Voters:
        """Return voters without a guarantee, such as teachers on disjoint shards."""
        return cls(K, PrivacyParams("inf"), overlap, sampled=sampled)

    def __post_init__(self) -> None:
        checks.integer_at_least(1, most=MOST_VOTERS, K=self.K, advice="K is the number of voters: say Voters(K, each)")
        if not isinstance(self.each, PrivacyParams | tuple | list):
            advice = f"say (0.1, 1e-5), or Voters.non_private({self.K}) for voters without a guarantee"
            checks.fail("each", self.each, "a pair (epsilon, delta)", advice)
        object.__setattr__(self, "each", PrivacyParams.of(self.each, "each"))
        if self.each.is_private and self.each.exact_epsilon <= 0:
            checks.fail("each.epsilon", self.each.epsilon, "positive", "voters with epsilon = 0 carry no information")
        if self.overlap is not None:
            checks.integer_at_least(1, overlap=self.overlap, advice="how many voters one person's data can reach")
            if self.overlap > self.K:
                checks.fail("overlap", self.overlap, f"at most K = {self.K}", "there are no more voters to reach")
        if not isinstance(self.models, bool):
            checks.fail("models", self.models, "True or False", "True declares models that were trained once")
        object.__setattr__(self, "K", int(self.K))
        if self.sampled is not None:
            self._check_sampled(self.sampled)
        # overlap K, the paper's analysis, is always stored as None
        object.__setattr__(self, "overlap", None if self.overlap in {None, self.K} else int(self.overlap))
        if self.per_voter is not None:
            self._check_per_voter(self.per_voter)

    def _check_sampled(self, sampled: Subsampling | Number) -> None:
        sampling = Subsampling.of(sampled)
        object.__setattr__(self, "sampled", sampling)
        if self.each.is_private or self.per_voter is not None or self.models:
            advice = 'say Voters(K, PrivacyParams("inf"), overlap=1, sampled=rate)'
            raise ValueError(f"voters that resample examples are not private themselves, and no models: {advice}")
        records = min(self.K, sampling.records)
        if self.reached < records:
            advice = "each record of a person may reach another voter"
            checks.fail("overlap", self.overlap, f"at least {records}", advice)

    def _check_per_voter(self, per_voter: tuple[PrivacyParams, ...]) -> None:
        if len(per_voter) != self.K or self.each != _find_common_guarantee(per_voter):
            allowed = f"what each of K = {self.K} voters satisfies"
            checks.fail("per_voter", len(per_voter), allowed, "say Voters.of(per_voter)")
        for each in per_voter:
            if each.is_private and each.exact_epsilon <= 0:
                checks.fail("epsilon of a voter", 0, "positive", "voters with epsilon = 0 carry no information")
        ordered = tuple(sorted(per_voter, key=_sort_key, reverse=True))
        object.__setattr__(self, "per_voter", None if len(set(ordered)) == 1 else ordered)

    @property
    def groups(self) -> tuple[tuple[int, PrivacyParams], ...]:
        """Guarantees with their numbers of voters, from the largest ε and Δ down."""
        if self.per_voter is None:
            return ((self.K, self.each),)
        return tuple((count, each) for each, count in Counter(self.per_voter).items())

    def largest(self, count: int) -> list[tuple[PrivacyParams, int]]:
        """Return the ``count`` largest ε and Δ, paired by rank, each pair with its number of voters.

        Composition depends on the ε_i and Π(1 − Δ_i) alone, and no ``count`` voters have larger ones.

        >>> Voters.of([PrivacyParams("0.2", "0.01"), PrivacyParams(2), PrivacyParams("0.2")]).largest(2)
        [(PrivacyParams(epsilon=2, delta=0.01), 1), (PrivacyParams(epsilon=0.2, delta=0), 1)]
        """
        if self.per_voter is None:
            return [(self.each, count)]
        epsilons = sorted((each.exact_epsilon for each in self.per_voter), reverse=True)
        deltas = sorted((each.exact_delta for each in self.per_voter), reverse=True)
        ranked = zip(epsilons[:count], deltas[:count], strict=True)
        return [(PrivacyParams(*pair), n) for pair, n in Counter(ranked).items()]

    @property
    def private_groups(self) -> list[tuple[int, PrivacyParams]]:
        """The groups with a guarantee, each as a number of voters and their (ε, δ)."""
        return [(n, each) for n, each in self.groups if each.is_private]

    @property
    def are_non_private(self) -> bool:
        """Whether no voter has a guarantee."""
        return self.per_voter is None and not self.each.is_private  # equal guarantees are stored in `each` alone

    @property
    def conditional_on_inclusion(self) -> Voters:
        """The voters for a person among the examples."""
        return self if self.sampled is None else replace(self, sampled=None)

    @property
    def reached(self) -> int:
        """The overlap t, or K."""
        return self.K if self.overlap is None else self.overlap

    @property
    def are_private_models(self) -> bool:
        """Whether the voters are private models, whose costs per answer do not add up."""
        return self.models and not self.are_non_private

    @property
    def first_majority(self) -> int:
        """floor(K/2) + 1."""
        return self.K // 2 + 1

    @property
    def num_upper_levels(self) -> int:
        """K − floor(K/2), the number of free values of γ."""
        return self.K - self.K // 2

    def round_up_to(self, groups: int) -> Voters:
        """Round ε and Δ up to at most ``groups`` groups, with the smallest growth of the sum of all ε."""
        checks.integer_at_least(1, groups=groups)
        if len(self.groups) <= groups:
            return self
        per_voter = self.per_voter or (self.each,) * self.K
        ends = [0, *accumulate(len(list(each)) for _, each in groupby(per_voter))]
        non_private = sum(not each.is_private for each in per_voter)
        ends = sorted({*ends[:: -(-len(ends) // _MAX_CUTS)], non_private, self.K})
        sizes = [min(each.epsilon, _LARGE_EPSILON) if each.is_private else _LARGE_EPSILON for each in per_voter]
        sums = [0.0, *accumulate(sizes)]
        # growths[i] is the growth of the first i groups, and cuts[i] lists the starts of their parts
        growths, cuts = [0.0] + [math.inf] * (len(ends) - 1), [list[int]() for _ in ends]
        for _ in range(groups):
            previous, previous_cuts = growths, cuts
            growths, cuts = list(previous), list(previous_cuts)
            for last, end in enumerate(ends):
                for first, start in enumerate(ends[:last]):
                    growth = previous[first] + sizes[start] * (end - start) - (sums[end] - sums[start])
                    if growth < growths[last]:
                        growths[last], cuts[last] = growth, [*previous_cuts[first], start]
        parts = pairwise([*cuts[-1], self.K])
        pairs = [(end - start, _find_common_guarantee(per_voter[start:end])) for start, end in parts]
        return Voters.of([each for n, each in pairs for _ in range(n)], self.overlap, models=self.models)

    def cover(self, others: Voters) -> bool:
        """Whether a proof for these voters holds for others: equal K, and no larger guarantees or overlap."""
        if self.K != others.K or self.reached < others.reached:
            return False
        if self.sampled is not None or others.sampled is not None:
            return self.sampled is not None and others.sampled is not None and self.sampled.covers(others.sampled)
        if self.per_voter is None:
            return _implies(self.each, others.each)
        # pairing by rank is sufficient, though not necessary
        return all(map(_implies, self.per_voter, others.per_voter or (others.each,) * others.K))

    def __str__(self) -> str:
        each = f"each {self.each}-differentially private" if self.each.is_private else "not private themselves"
        if self.per_voter is not None:
            each = f"each as private as it says, from {self.per_voter[-1]} to {self.per_voter[0]}"
        models = ", models trained once" if self.models else ""
        overlap = "all" if self.overlap is None else f"at most {self.overlap}"
        resampling = "" if self.sampled is None else f"; {self.sampled}"
        noun = "voter" if self.K == 1 else "voters"
        return f"{self.K:,} {noun}, {each}{models}; one person's data reach {overlap} of them{resampling}"

    def to_json(self) -> dict[str, Json]:
        """Write ε and Δ as exact decimals; defaults are omitted."""
        overlap = {} if self.overlap is None else {"overlap": self.overlap}
        is_mixed = self.per_voter is not None
        per_voter = {"own": [{"voters": n, **each.to_json()} for n, each in self.groups]} if is_mixed else {}
        models = {"models": True} if self.models else {}
        sampled = {} if self.sampled is None else {"sampled": self.sampled.to_json()}
        return {"K": self.K, "each": self.each.to_json(), **per_voter, **overlap, **models, **sampled}

    @classmethod
    def from_json(cls, data: dict[str, Json]) -> Voters:
        """`KeyError`, `TypeError` or `ValueError` if the data is malformed."""
        each, per_voter = PrivacyParams.from_json(data["each"]), None
        if "own" in data:
            numbers = [entry["voters"] for entry in data["own"]]
            checks.integer_at_least(1, most=MOST_VOTERS, **{f"voters {n}": number for n, number in enumerate(numbers)})
            if sum(numbers) != data["K"]:
                checks.fail("voters in own", sum(numbers), f"K = {data['K']} together")
            pairs = [(entry["voters"], PrivacyParams.from_json(entry)) for entry in data["own"]]
            per_voter = tuple(pair for n, pair in pairs for _ in range(n))
        sampled = Subsampling.from_json(data["sampled"]) if "sampled" in data else None
        models = data.get("models", False)
        return cls(data["K"], each, data.get("overlap"), models=models, per_voter=per_voter, sampled=sampled)


@dataclass(frozen=True)
class Problem:
    """Release the class with the most votes once, with a given privacy [D, Problem 1.1].

    Parameters
    ----------
    voters
        Who votes.
    target
        The required (ε, δ) of the release, ε finite. Private voters with equal guarantees need m = target.epsilon /
        each.epsilon in [1, K] and target.delta ≥ each.delta; other voters allow any ε > 0 and any δ.
    classes
        The number C ≥ 2 of classes; or ``"open"``, stored as `OPEN`, for non-private voters: they answer with any
        string, and the release is one of these strings or no answer.

    Examples
    --------
    >>> problem = Problem(Voters(11, PrivacyParams(0.1, 1e-5)), PrivacyParams(0.3, 3e-5))
    >>> problem.m, problem.voters.num_upper_levels
    (3.0, 6)
    >>> round(problem.budget, 6)
    0.349919
    """

    voters: Voters
    target: PrivacyParams
    classes: int = 2

    if TYPE_CHECKING:  # what `__post_init__` converts

        def __init__(self, voters: Voters, target: PrivacyPair, classes: int | str = 2) -> None: ...

    def __post_init__(self) -> None:
        checks.instance(Voters, voters=self.voters, advice="say Voters(K, each)")
        object.__setattr__(self, "target", PrivacyParams.of(self.target, "target"))
        object.__setattr__(self, "classes", check_classes(self.classes, self.voters))
        if self.target.exact_epsilon > LARGEST_EXPONENT:
            advice = "e^(m*epsilon) would overflow, and such a target protects nobody"
            checks.fail("target.epsilon (m * epsilon)", self.target.epsilon, f"at most {LARGEST_EXPONENT}", advice)
        if not self.voters.each.is_private or self.voters.per_voter is not None:
            if self.target.exact_epsilon == 0:  # noise can make the release more private than the weakest voter
                checks.fail("target.epsilon", 0, "positive")
            return
        if not 1 - _ROUNDING <= self.exact_m <= self.voters.K * (1 + _ROUNDING):  # m·ε of floats is rounded
            allowed = f"in [1, K] = [1, {self.voters.K}]"
            checks.fail("m", float(self.exact_m), allowed, f"m = target.epsilon / each.epsilon; {_M_EPSILON}")
        # rounding may put 1 − (1 − Δ)^m below Δ; the proof uses the exact target
        if self.voters.each.exact_delta - self.target.exact_delta > _ROUNDING:
            advice = "a majority cannot fail less often than one voter"
            checks.fail("target.delta", self.target.delta, f"at least each.delta = {self.voters.each.delta}", advice)

    @property
    def has_noise_function(self) -> bool:
        """Whether there are two classes."""
        return is_law_a_gamma(self.classes)

    @property
    def conditional_on_inclusion(self) -> Problem:
        """The problem for a person among the examples, which proofs cover."""
        voters = self.voters
        if voters.sampled is None:
            return self
        return replace(
            self, voters=voters.conditional_on_inclusion, target=voters.sampled.conditional_on_inclusion(self.target)
        )

    @classmethod
    def from_allowance(cls, voters: Voters, m: Number, delta: Number | None = None, classes: int = 2) -> Problem:
        """State the problem as in the paper: the target of private voters is (m·ε, δ), m in [1, K].

        If voters differ, m is relative to the largest ε and Δ. By default δ is 1 − (1 − Δ)^m, rounded down to 15
        significant digits.

        >>> Problem.from_allowance(Voters(11, PrivacyParams(0.1, 1e-5)), m=3).target
        PrivacyParams(epsilon=0.3, delta=0.000029999700001)
        """
        checks.instance(Voters, voters=voters, advice="say Voters(K, each)")
        if not voters.each.is_private:
            raise ValueError(_NO_ALLOWANCE)
        allowance, each = exact_number("m", m), voters.each
        if not 1 <= allowance <= voters.K:
            checks.fail("m", m, f"in [1, K] = [1, {voters.K}]", _M_EPSILON)
        target_delta = _default_delta(allowance, each.exact_delta) if delta is None else exact_number("delta", delta)
        return cls(voters, PrivacyParams(allowance * each.exact_epsilon, target_delta), classes)

    @property
    def exact_m(self) -> Fraction:
        """The allowance m relative to the largest ε; `ValueError` for non-private voters."""
        if not self.voters.each.is_private:
            raise ValueError(_NO_ALLOWANCE)
        return self.target.exact_epsilon / self.voters.each.exact_epsilon

    @property
    def m(self) -> float:
        """The allowance as a float."""
        return float(self.exact_m)

    @property
    def cost_ratio(self) -> float:
        """The factor c = e^{mε} of the second term of the privacy cost."""
        return math.exp(self.target.epsilon)

    @property
    def budget(self) -> float:
        """B = e^{mε} − 1 + 2δ, the largest allowed privacy cost [D, Lemma 3.4]."""
        return math.expm1(self.target.epsilon) + 2.0 * self.target.delta

    def __str__(self) -> str:
        allowance = f" (m = {self.m:.6g})" if self.voters.each.is_private else ""
        answer, tie = describe_answer(self.classes), ""
        if self.has_noise_function and self.voters.K % 2 == 0:
            tie = "; a tie is answered by a fair coin"
        private = f"{self.target}-differentially private"
        return f"{self.voters}. The released {answer} must be {private}{allowance}{tie}."

    def to_json(self) -> dict[str, Json]:
        """Write plain data; `darrm/schemas/gamma_table.json` describes it."""
        return {**self.voters.to_json(), **_write_classes(self.classes), "target": self.target.to_json()}

    @classmethod
    def from_json(cls, data: dict[str, Json]) -> Problem:
        """`KeyError`, `TypeError` or `ValueError` if the data is malformed."""
        return cls(Voters.from_json(data), PrivacyParams.from_json(data["target"]), data.get("classes", 2))


@dataclass(frozen=True)
class Workload:
    """Many votes of the same voters, released within one total budget.

    Parameters
    ----------
    voters
        Who votes.
    queries
        The number Q of releases, 1 … 10^12.
    total
        The budget (ε, δ) of all Q answers together, ε > 0.
    classes
        As for `Problem`. Plans for more than two classes need non-private voters or private models.
    missing
        The usual number of missing votes, 0 … K − 1: the majority is then taken over the others.
    """

    voters: Voters
    queries: int
    total: PrivacyParams
    classes: int = 2
    missing: int = 0

    if TYPE_CHECKING:  # what `__post_init__` converts

        def __init__(
            self, voters: Voters, queries: int, total: PrivacyPair, classes: int | str = 2, missing: int = 0
        ) -> None: ...

    def __post_init__(self) -> None:
        checks.instance(Voters, voters=self.voters, advice="say Voters(K, each)")
        advice = "without a vote nothing is right"
        checks.integer_at_least(0, most=self.voters.K - 1, missing=self.missing, advice=advice)
        object.__setattr__(self, "missing", int(self.missing))
        object.__setattr__(self, "total", PrivacyParams.of(self.total, "total"))
        advice = "how many votes are to be released"
        checks.integer_at_least(1, most=MOST_QUERIES, queries=self.queries, advice=advice)
        object.__setattr__(self, "queries", int(self.queries))
        if not 0 < self.total.exact_epsilon <= LARGEST_EXPONENT:
            advice = "the total (epsilon, delta) is what all queries together may cost"
            checks.fail("the epsilon of the total", self.total.epsilon, f"in (0, {LARGEST_EXPONENT}]", advice)
        object.__setattr__(self, "classes", check_classes(self.classes, self.voters))
        if is_open(self.classes) and self.missing:
            checks.fail("missing", self.missing, "0 where answers are open", "a voter who says nothing has no vote")

    @property
    def has_noise_function(self) -> bool:
        """Whether there are two classes."""
        return is_law_a_gamma(self.classes)

    def problem(self, target: PrivacyParams) -> Problem:
        """Return the problem of one ``target``-private query."""
        return Problem(self.voters, target, self.classes)

    def to_json(self) -> dict[str, Json]:
        """Write plain data."""
        missing = {"missing": self.missing} if self.missing else {}
        request = {**_write_classes(self.classes), "queries": self.queries, **missing, "total": self.total.to_json()}
        return {**self.voters.to_json(), **request}


def is_law_a_gamma(classes: int) -> bool:
    return classes == 2


def is_open(classes: object) -> bool:
    """Whether classes are `OPEN` or the word "open"; the number 0 is not."""
    return isinstance(classes, Open) or (isinstance(classes, str) and classes == repr(OPEN))


def check_classes(classes: int | str, voters: Voters) -> int:
    """Return the number of classes; `ValueError` for open-set answers of private voters."""
    if not is_open(classes):
        checks.integer_at_least(2, most=MOST_CLASSES, classes=classes, advice="how many answers there are, or 'open'")
        return int(classes)
    if not voters.are_non_private:
        advice = "of private voters or models list the classes"
        checks.fail("voters of open answers", str(voters.each), "plain, PrivacyParams('inf')", advice)
    return OPEN


def classes_to_json(classes: int) -> int | str:
    return repr(OPEN) if is_open(classes) else classes


def describe_classes(classes: int) -> str:
    return "open answers" if is_open(classes) else f"{classes:,} classes"


def describe_answer(classes: int) -> str:
    return "majority" if is_law_a_gamma(classes) else f"plurality of {describe_classes(classes)}"


def _write_classes(classes: int) -> dict[str, int | str]:
    return {} if is_law_a_gamma(classes) else {"classes": classes_to_json(classes)}


def _sort_key(each: PrivacyParams) -> tuple[bool, Fraction, Fraction]:
    return not each.is_private, each.finite_epsilon or Fraction(0), each.exact_delta


def _find_common_guarantee(guarantees: Sequence[PrivacyParams]) -> PrivacyParams:
    if not all(each.is_private for each in guarantees):
        return PrivacyParams("inf")
    return PrivacyParams(max(each.exact_epsilon for each in guarantees), max(each.exact_delta for each in guarantees))


def _implies(weak: PrivacyParams, strong: PrivacyParams) -> bool:
    if not (weak.is_private and strong.is_private):
        return not weak.is_private
    return weak.exact_epsilon >= strong.exact_epsilon and weak.exact_delta >= strong.exact_delta


def _default_delta(m: Fraction, each_delta: Fraction) -> Fraction:
    """Compute the paper's δ = 1 − (1 − Δ)^m, rounded down to 15 significant digits but never below Δ."""
    # rounding down is the safe side: a release private with the smaller δ is private with the larger one
    if each_delta == 0:
        return Fraction(0)
    fifteen_digits = Context(prec=15, rounding=ROUND_DOWN)
    if m.denominator == 1:
        value = 1 - (1 - each_delta) ** m.numerator
        return max(each_delta, Fraction(fifteen_digits.divide(Decimal(value.numerator), Decimal(value.denominator))))
    magnitude = max(0, -math.floor(math.log10(each_delta)))
    with localcontext(Context(prec=60 + magnitude)):
        base = Decimal((1 - each_delta).numerator) / each_delta.denominator
        power = base ** (Decimal(m.numerator) / m.denominator)
        # at 60 digits the relative rounding error is below 1e-50; the margin covers it
        value_below = (1 - power) * (1 - Decimal("1e-40"))
    return max(each_delta, Fraction(fifteen_digits.plus(value_below)))
