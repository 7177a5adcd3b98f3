"""Who votes and what is to be released: `Voters`; `Problem`, one release; `Workload`, many of them.

Everything above this module takes one of these three, never a bare ε together with K, m or a δ.

====================  =================  ==========================================================================
here                  [D]                meaning
====================  =================  ==========================================================================
``voters.each``       (ε, Δ)             what every voter satisfies
``target``            (mε, δ)            what the released majority must satisfy
``m``                 m                  the privacy allowance, ``target.epsilon / each.epsilon``
``budget``            e^{mε} − 1 + 2δ    the right-hand side of Lemma 3.4
====================  =================  ==========================================================================

Where voters draw their examples anew for every question (`darrm.sampling`), what a release must satisfy is about a
person who is rarely drawn, and `Problem.for_certain` is the same for one who certainly takes part: what is proved.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_DOWN, Context, Decimal, localcontext
from fractions import Fraction
from itertools import accumulate, groupby, pairwise
from typing import Any

from darrm.errors import checks
from darrm.privacy import LARGEST_EXPONENT, Number, PrivacyParams, exact_number
from darrm.sampling import Sampling

# γ is a number for each possible majority and its proof looks at all of them: a million voters take minutes and a table
# of 10 MB. Numbers of queries are multiplied as floats, to which all whole numbers up to 2^53 are known.
MOST_VOTERS, MOST_QUERIES, MOST_CLASSES = 10**6, 10**12, 10**6
_NO_PRIVACY = 1e6
_ROUNDING = Fraction(1, 2**50)  # of what was computed in floats: m·ε, and 1 − (1 − Δ)^m
_MOST_CUTS = 200  # between kinds of voters that are rounded up: the work is its square
_SAY_PRIVACY = "say PrivacyParams(epsilon, delta)"
_M_EPSILON = "the release is m*epsilon-private, at least as one voter is and at most as all are"
_NO_ALLOWANCE = "voters that are not private have no allowance m: state the target, Problem(voters, target)"


class Open(int):
    """How many classes are listed where voters answer with any string: none, and not by a slip.

    >>> OPEN, OPEN == 0, Problem(Voters(9, PrivacyParams("inf"), overlap=1), PrivacyParams(1), "open").classes
    (open, True, open)
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return "open"

    __str__ = __repr__


OPEN = Open()


@dataclass(frozen=True)
class Voters:
    """K voters: what each of them satisfies, and how many of them one person's data can reach.

    Parameters
    ----------
    K
        Number of voters, from 1 to a million. For even K a tie is answered by a fair coin.
    each
        What every voter satisfies, ε > 0; ``PrivacyParams("inf")`` for voters about whom nothing is promised, such as
        PATE's teachers.
    overlap
        How many voters one person's data can reach at most, 1 … K; K (the paper's analysis) if None.
    models
        True declares that every voter is a model, trained once, that answers all questions. Its answers share the
        randomness of its training, so guarantees of single questions do not add up. Models trained anew are others and
        need an account and a ledger of their own: equal `Voters` count as the same models. False says that voters draw
        fresh randomness for every question; nothing in the votes shows which is the case.
    own
        What each voter satisfies where they differ, see `Voters.of`; ``each`` is then what all of them satisfy, and
        whatever looks at it alone holds, but asks for more than it has to.
    sampled
        Of voters that draw their examples anew for every question, such as prompted language models: with which
        probability a person is among the examples of one, a number or a `darrm.sampling.Sampling`. They are not private
        themselves, and no models; ``overlap`` is how many of them one person then reaches, mostly 1.

    Examples
    --------
    >>> teachers = Voters(250, PrivacyParams("inf"), overlap=1)
    >>> teachers.reached, teachers.each.is_private, Voters(11, PrivacyParams(0.1)).reached
    (1, False, 11)
    """

    K: int
    each: PrivacyParams
    overlap: int | None = None
    models: bool = False
    own: tuple[PrivacyParams, ...] | None = None
    sampled: Sampling | None = None

    @classmethod
    def of(cls, own: Sequence[PrivacyParams], overlap: int | None = None, *, models: bool = False) -> Voters:
        """Return voters each of which satisfies something else; their order says nothing.

        >>> hospitals = Voters.of([PrivacyParams("0.1"), PrivacyParams("0.5"), PrivacyParams("0.1", "1e-6")])
        >>> hospitals.K, hospitals.each, Voters.of([PrivacyParams(1)] * 3) == Voters(3, PrivacyParams(1))
        (3, PrivacyParams(epsilon=0.5, delta=0.000001), True)
        """
        if isinstance(own, PrivacyParams) or not isinstance(own, Sequence) or not own:
            checks.fail("own", own, "a list of PrivacyParams, one for each voter")
        for each in own:
            checks.instance(PrivacyParams, own=each, advice="say what each voter satisfies")
        return cls(len(own), _satisfied_by_all(own), overlap, models=models, own=tuple(own))

    def __post_init__(self) -> None:
        checks.integer_at_least(1, most=MOST_VOTERS, K=self.K, advice="K is the number of voters: say Voters(K, each)")
        if not isinstance(self.each, PrivacyParams):
            advice = 'say PrivacyParams(0.1, 1e-5), or PrivacyParams("inf") for voters that are not private'
            checks.fail("each", self.each, "PrivacyParams(epsilon, delta)", advice)
        if self.each.is_private and self.each.exact_epsilon <= 0:
            checks.fail("each.epsilon", self.each.epsilon, "positive", "voters with epsilon = 0 carry no information")
        if self.overlap is not None:
            checks.integer_at_least(1, overlap=self.overlap, advice="how many voters one person's data can reach")
            if self.overlap > self.K:
                checks.fail("overlap", self.overlap, f"at most K = {self.K}", "nobody reaches more voters than exist")
        if not isinstance(self.models, bool):
            checks.fail("models", self.models, "True or False", "True declares models that were trained once")
        object.__setattr__(self, "K", int(self.K))
        if self.sampled is not None:
            self._check_sampled(self.sampled)
        # all K voters, the paper's analysis, is written one way only
        object.__setattr__(self, "overlap", None if self.overlap in {None, self.K} else int(self.overlap))
        if self.own is not None:
            self._check_own(self.own)

    def _check_sampled(self, sampled: Sampling | Number) -> None:
        sampling = Sampling.of(sampled)
        object.__setattr__(self, "sampled", sampling)
        if self.each.is_private or self.own is not None or self.models:
            raise ValueError(
                "voters that draw their examples anew for every question (sampled) are not private themselves, and no "
                'models: say Voters(K, PrivacyParams("inf"), overlap=1, sampled=rate)'
            )
        records = min(self.K, sampling.records)
        if self.reached < records:
            checks.fail(
                "overlap", self.overlap, f"at least {records}", "each record of a person may reach another voter"
            )

    def _check_own(self, own: tuple[PrivacyParams, ...]) -> None:
        if len(own) != self.K or self.each != _satisfied_by_all(own):
            checks.fail("own", len(own), f"what each of K = {self.K} voters satisfies", "say Voters.of(own)")
        for each in own:
            if each.is_private and each.exact_epsilon <= 0:
                checks.fail("epsilon of a voter", 0, "positive", "voters with epsilon = 0 carry no information")
        ordered = tuple(sorted(own, key=_strength, reverse=True))
        object.__setattr__(self, "own", None if len(set(ordered)) == 1 else ordered)

    @property
    def kinds(self) -> tuple[tuple[int, PrivacyParams], ...]:
        """How many voters satisfy what, from the largest ε and Δ down."""
        if self.own is None:
            return ((self.K, self.each),)
        return tuple((count, each) for each, count in Counter(self.own).items())

    def largest(self, count: int) -> list[tuple[PrivacyParams, int]]:
        """Return the largest ε and Δ of so many voters, however paired, with how many voters have them.

        A composition depends on the ε and on Π(1 − Δ_i) alone, and no choice of so many voters has larger ones.

        >>> Voters.of([PrivacyParams("0.2", "0.01"), PrivacyParams(2), PrivacyParams("0.2")]).largest(2)
        [(PrivacyParams(epsilon=2, delta=0.01), 1), (PrivacyParams(epsilon=0.2, delta=0), 1)]
        """
        if self.own is None:
            return [(self.each, count)]
        epsilons = sorted((each.exact_epsilon for each in self.own), reverse=True)
        deltas = sorted((each.exact_delta for each in self.own), reverse=True)
        most = zip(epsilons[:count], deltas[:count], strict=True)
        return [(PrivacyParams(*pair), n) for pair, n in Counter(most).items()]

    @property
    def private_kinds(self) -> list[tuple[int, PrivacyParams]]:
        """Those of the kinds about which something is promised."""
        return [(n, each) for n, each in self.kinds if each.is_private]

    @property
    def are_plain(self) -> bool:
        """Whether nothing is promised about any of them, so that what is proved holds for all that they may answer."""
        return self.own is None and not self.each.is_private  # all alike are written so

    @property
    def for_certain(self) -> Voters:
        """The same voters for a person who certainly is among the examples of a question."""
        return self if self.sampled is None else replace(self, sampled=None)

    @property
    def reached(self) -> int:
        """How many voters one person's data can reach at most: the overlap t of `darrm.proof.corners`."""
        return self.K if self.overlap is None else self.overlap

    @property
    def are_private_models(self) -> bool:
        """Whether they are models, trained once, that are private themselves: costs of their answers do not add up."""
        return self.models and not self.are_plain

    @property
    def first_majority(self) -> int:
        """The smallest number of ones that is a strict majority, floor(K/2) + 1."""
        return self.K // 2 + 1

    @property
    def half_size(self) -> int:
        """Number of free values of γ: those at l = floor(K/2) + 1 … K."""
        return self.K - self.K // 2

    def rounded(self, kinds: int) -> Voters:
        """Return voters of at most so many kinds, their ε and Δ rounded up so that the sum of all ε grows least.

        Of more than `_MOST_CUTS` kinds only so many places to cut between them, evenly spread, are tried, and the one
        between voters with and without privacy.

        >>> hospitals = Voters.of([PrivacyParams(epsilon) for epsilon in ("0.1", "0.11", "0.5", "0.45", "0.4")])
        >>> [(n, each.epsilon) for n, each in hospitals.rounded(2).kinds]
        [(3, 0.5), (2, 0.11)]
        """
        checks.integer_at_least(1, kinds=kinds)
        if len(self.kinds) <= kinds:
            return self
        own = self.own or (self.each,) * self.K
        ends = [0, *accumulate(len(list(each)) for _, each in groupby(own))]
        plain = sum(not each.is_private for each in own)
        ends = sorted({*ends[:: -(-len(ends) // _MOST_CUTS)], plain, self.K})
        sizes = [_size(each) for each in own]
        sums = [0.0, *accumulate(sizes)]
        # grown[i] is how much the first i kinds grow in so many parts, and cuts[i] where the parts begin
        grown, cuts = [0.0] + [math.inf] * (len(ends) - 1), [list[int]() for _ in ends]
        for _ in range(kinds):
            before, cuts_before = grown, cuts
            grown, cuts = list(before), list(cuts_before)
            for last, end in enumerate(ends):
                for first, start in enumerate(ends[:last]):
                    growth = before[first] + sizes[start] * (end - start) - (sums[end] - sums[start])
                    if growth < grown[last]:
                        grown[last], cuts[last] = growth, [*cuts_before[first], start]
        parts = pairwise([*cuts[-1], self.K])
        pairs = [(end - start, _satisfied_by_all(own[start:end])) for start, end in parts]
        return Voters.of([each for n, each in pairs for _ in range(n)], self.overlap, models=self.models)

    def cover(self, others: Voters) -> bool:
        """Whether what is proved for these voters holds for others: as many, as private, and reached as little."""
        if self.K != others.K or self.reached < others.reached:
            return False
        if self.sampled is not None or others.sampled is not None:
            return self.sampled is not None and others.sampled is not None and self.sampled.covers(others.sampled)
        if self.own is None:
            return _covers(self.each, others.each)
        # the weakest beside the weakest: that is enough, though another order might do as well
        return all(map(_covers, self.own, others.own or (others.each,) * others.K))

    def __str__(self) -> str:
        each = f"each {self.each}-differentially private" if self.each.is_private else "not private themselves"
        if self.own is not None:
            each = f"each as private as it says, from {self.own[-1]} to {self.own[0]}"
        models = ", models trained once" if self.models else ""
        reach = "all" if self.overlap is None else f"at most {self.overlap}"
        anew = "" if self.sampled is None else f"; {self.sampled}"
        return f"{self.K:,} voters, {each}{models}; one person's data reach {reach} of them{anew}"

    def to_json(self) -> dict[str, Any]:
        """Write the voters as plain data, ε and Δ as the decimals that were typed; defaults are left out."""
        overlap = {} if self.overlap is None else {"overlap": self.overlap}
        own = {} if self.own is None else {"own": [{"voters": n, **each.to_json()} for n, each in self.kinds]}
        models = {"models": True} if self.models else {}
        sampled = {} if self.sampled is None else {"sampled": self.sampled.to_json()}
        return {"K": self.K, "each": self.each.to_json(), **own, **overlap, **models, **sampled}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Voters:
        """Read what `to_json` wrote; `KeyError`, `TypeError` or `ValueError` if it is malformed."""
        each, own = PrivacyParams.from_json(data["each"]), None
        if "own" in data:
            numbers = [entry["voters"] for entry in data["own"]]
            checks.integer_at_least(1, most=MOST_VOTERS, **{f"voters {n}": number for n, number in enumerate(numbers)})
            if sum(numbers) != data["K"]:
                checks.fail("voters in own", sum(numbers), f"K = {data['K']} together")
            pairs = [(entry["voters"], PrivacyParams.from_json(entry)) for entry in data["own"]]
            own = tuple(pair for n, pair in pairs for _ in range(n))
        sampled = Sampling.from_json(data["sampled"]) if "sampled" in data else None
        return cls(data["K"], each, data.get("overlap"), models=data.get("models", False), own=own, sampled=sampled)


@dataclass(frozen=True)
class Problem:
    """The class with the most votes is to be released once, with a given privacy [D, Problem 1.1].

    Parameters
    ----------
    voters
        Who votes.
    target
        What the release must satisfy, a finite ε. Of private voters that are all alike m = target.epsilon /
        each.epsilon lies in [1, K] and target.delta ≥ each.delta; of others any ε > 0 and any δ.
    classes
        C ≥ 2, how many answers a voter chooses from; or ``"open"``, kept as `OPEN`: a voter answers with any string,
        and the release is one that was said, or no answer. Open answers are those of plain voters.

    Raises
    ------
    ValueError
        If a value lies outside its range, or e^{mε} overflows.

    Examples
    --------
    >>> problem = Problem(Voters(11, PrivacyParams(0.1, 1e-5)), PrivacyParams(0.3, 3e-5))
    >>> problem.m, problem.voters.half_size
    (3.0, 6)
    >>> round(problem.budget, 6)
    0.349919
    >>> teachers = Voters(30, PrivacyParams("inf"), overlap=1)
    >>> print(Problem(teachers, PrivacyParams(0.5, 1e-5), classes=3))
    30 voters, not private themselves; one person's data reach at most 1 of them. The released plurality of 3 classes \
must be (0.5, 1e-05)-differentially private.
    """

    voters: Voters
    target: PrivacyParams
    classes: int = 2

    def __post_init__(self) -> None:
        checks.instance(Voters, voters=self.voters, advice="say Voters(K, each)")
        checks.instance(PrivacyParams, target=self.target, advice=_SAY_PRIVACY)
        object.__setattr__(self, "classes", checked_classes(self.classes, self.voters))
        if self.target.exact_epsilon > LARGEST_EXPONENT:
            advice = "e^(m*epsilon) would overflow, and such a target protects nobody"
            checks.fail("target.epsilon (m * epsilon)", self.target.epsilon, f"at most {LARGEST_EXPONENT}", advice)
        if self._are_private_alike:
            self._check_allowance()
        elif self.target.exact_epsilon == 0:  # noise can make the release more private than the weakest voter
            checks.fail("target.epsilon", 0, "positive")

    @property
    def _are_private_alike(self) -> bool:
        return self.voters.each.is_private and self.voters.own is None

    @property
    def has_noise_function(self) -> bool:
        """Whether there are two classes, whose law is a γ: a number for each number of ones."""
        return is_law_a_gamma(self.classes)

    @property
    def for_certain(self) -> Problem:
        """The same for a person who certainly is among the examples of a question: what a proof is about."""
        voters = self.voters
        if voters.sampled is None:
            return self
        return replace(self, voters=voters.for_certain, target=voters.sampled.for_certain(self.target))

    def _check_allowance(self) -> None:
        if not 1 - _ROUNDING <= self.exact_m <= self.voters.K * (1 + _ROUNDING):  # m·ε of floats is a rounding off
            allowed = f"in [1, K] = [1, {self.voters.K}]"
            checks.fail("m", float(self.exact_m), allowed, f"m = target.epsilon / each.epsilon; {_M_EPSILON}")
        # 1 − (1 − Δ)^m of floats may fall short of Δ by a rounding; what is proved is the target as it stands
        if self.voters.each.exact_delta - self.target.exact_delta > _ROUNDING:
            advice = "a majority cannot fail less often than one voter"
            checks.fail("target.delta", self.target.delta, f"at least each.delta = {self.voters.each.delta}", advice)

    @classmethod
    def from_allowance(cls, voters: Voters, m: Number, delta: Number | None = None, classes: int = 2) -> Problem:
        """State the problem in the paper's way: the target is (m·ε, δ).

        Parameters
        ----------
        voters
            Who votes; they must be private.
        m
            The privacy allowance, a real number in [1, K]; of the largest ε and Δ where voters differ.
        delta
            δ of the target; by default 1 − (1 − Δ)^m, rounded down to 15 significant digits.
        classes
            C, how many answers a voter chooses from.

        Examples
        --------
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
        """The privacy allowance m of the largest ε, as a fraction; `ValueError` for voters that are not private."""
        if not self.voters.each.is_private:
            raise ValueError(_NO_ALLOWANCE)
        return self.target.exact_epsilon / self.voters.each.exact_epsilon

    @property
    def m(self) -> float:
        """The privacy allowance, target.epsilon / each.epsilon."""
        return float(self.exact_m)

    @property
    def cost_ratio(self) -> float:
        """The factor c = e^{mε} of the second term of the privacy cost."""
        return math.exp(self.target.epsilon)

    @property
    def budget(self) -> float:
        """B = e^{mε} − 1 + 2δ, what the privacy cost may be [D, Lemma 3.4]."""
        return math.expm1(self.target.epsilon) + 2.0 * self.target.delta

    def __str__(self) -> str:
        allowance = f" (m = {self.m:.6g})" if self.voters.each.is_private else ""
        what, tie = answer_in_words(self.classes), ""
        if self.has_noise_function and self.voters.K % 2 == 0:
            tie = "; a tie is answered by a fair coin"
        private = f"{self.target}-differentially private"
        return f"{self.voters}. The released {what} must be {private}{allowance}{tie}."

    def to_json(self) -> dict[str, Any]:
        """Write the problem as plain data; `darrm/schemas/gamma_table.json` describes it."""
        return {**self.voters.to_json(), **_named(self.classes), "target": self.target.to_json()}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Problem:
        """Read what `to_json` wrote; `KeyError`, `TypeError` or `ValueError` if it is malformed."""
        return cls(Voters.from_json(data), PrivacyParams.from_json(data["target"]), data.get("classes", 2))


@dataclass(frozen=True)
class Workload:
    """Many votes of the same voters, released within one total budget.

    Parameters
    ----------
    voters
        Who votes.
    queries
        Q, how many votes are released, from 1 to a million millions.
    total
        The budget of all Q answers together, ε > 0.
    classes
        C ≥ 2, how many answers a voter chooses from, or ``"open"``, as for `Problem`. With more than two only votes of
        voters that are not private, and of private models, are planned.
    missing
        How many of the K votes are usually missing, 0 … K − 1: what is right is what most of the others say. The budget
        is that of K votes.

    Examples
    --------
    >>> work = Workload(Voters(250, PrivacyParams("inf"), overlap=1), 1000, PrivacyParams(2, 1e-5))
    >>> work.voters.reached, work.queries
    (1, 1000)
    """

    voters: Voters
    queries: int
    total: PrivacyParams
    classes: int = 2
    missing: int = 0

    def __post_init__(self) -> None:
        checks.instance(Voters, voters=self.voters, advice="say Voters(K, each)")
        advice = "without a vote nothing is right"
        checks.integer_at_least(0, most=self.voters.K - 1, missing=self.missing, advice=advice)
        object.__setattr__(self, "missing", int(self.missing))
        checks.instance(PrivacyParams, total=self.total, advice=_SAY_PRIVACY)
        advice = "how many votes are to be released"
        checks.integer_at_least(1, most=MOST_QUERIES, queries=self.queries, advice=advice)
        object.__setattr__(self, "queries", int(self.queries))
        if not 0 < self.total.exact_epsilon <= LARGEST_EXPONENT:
            advice = "say PrivacyParams(epsilon, delta), what all queries together may cost"
            checks.fail("the epsilon of the total", self.total.epsilon, f"in (0, {LARGEST_EXPONENT}]", advice)
        object.__setattr__(self, "classes", checked_classes(self.classes, self.voters))
        if is_open(self.classes) and self.missing:
            checks.fail("missing", self.missing, "0 where answers are open", "a voter who says nothing has no vote")

    @property
    def has_noise_function(self) -> bool:
        """Whether there are two classes, as `Problem.has_noise_function`."""
        return is_law_a_gamma(self.classes)

    def problem(self, target: PrivacyParams) -> Problem:
        """State the problem of one query that is to be ``target``-private; `ValueError` where there is none."""
        return Problem(self.voters, target, self.classes)

    def to_json(self) -> dict[str, Any]:
        """Write the workload as plain data."""
        missing = {"missing": self.missing} if self.missing else {}
        asked = {**_named(self.classes), "queries": self.queries, **missing, "total": self.total.to_json()}
        return {**self.voters.to_json(), **asked}


def is_law_a_gamma(classes: int) -> bool:
    """Whether a law for so many classes is a γ: of two a number for each number of ones, of more for each histogram.

    >>> is_law_a_gamma(2), is_law_a_gamma(3)
    (True, False)
    """
    return classes == 2


def is_open(classes: object) -> bool:
    """Whether classes are those that nobody listed, `OPEN` or the word "open".

    >>> is_open(OPEN), is_open("open"), is_open(0)
    (True, True, False)
    """
    return isinstance(classes, Open) or (isinstance(classes, str) and classes == repr(OPEN))


def checked_classes(classes: int | str, voters: Voters) -> int:
    """Check how many classes there are, and for open answers that nothing is promised about the voters."""
    if not is_open(classes):
        checks.integer_at_least(2, most=MOST_CLASSES, classes=classes, advice="how many answers there are, or 'open'")
        return int(classes)
    if not voters.are_plain:
        advice = "of private voters or models list the classes"
        checks.fail("voters of open answers", str(voters.each), "plain, PrivacyParams('inf')", advice)
    return OPEN


def classes_to_json(classes: int) -> int | str:
    """Write how many classes there are as plain data.

    >>> classes_to_json(3), classes_to_json(OPEN)
    (3, 'open')
    """
    return repr(OPEN) if is_open(classes) else classes


def classes_in_words(classes: int) -> str:
    """Say how many classes there are.

    >>> classes_in_words(1000), classes_in_words(OPEN)
    ('1,000 classes', 'open answers')
    """
    return "open answers" if is_open(classes) else f"{classes:,} classes"


def answer_in_words(classes: int) -> str:
    """Return what the most votes make: a majority of two classes, a plurality of more.

    >>> answer_in_words(2), answer_in_words(10), answer_in_words(OPEN)
    ('majority', 'plurality of 10 classes', 'plurality of open answers')
    """
    return "majority" if is_law_a_gamma(classes) else f"plurality of {classes_in_words(classes)}"


def _named(classes: int) -> dict[str, int | str]:
    return {} if is_law_a_gamma(classes) else {"classes": classes_to_json(classes)}


def _strength(each: PrivacyParams) -> tuple[bool, Fraction, Fraction]:
    return not each.is_private, each.finite_epsilon or Fraction(0), each.exact_delta


def _size(each: PrivacyParams) -> float:
    """Return what is summed where voters are rounded up: ε, and for voters without privacy more than any that helps."""
    return min(each.epsilon, _NO_PRIVACY) if each.is_private else _NO_PRIVACY


def _satisfied_by_all(own: Sequence[PrivacyParams]) -> PrivacyParams:
    if not all(each.is_private for each in own):
        return PrivacyParams("inf")
    return PrivacyParams(max(each.exact_epsilon for each in own), max(each.exact_delta for each in own))


def _covers(most: PrivacyParams, each: PrivacyParams) -> bool:
    if not (most.is_private and each.is_private):
        return not most.is_private
    return most.exact_epsilon >= each.exact_epsilon and most.exact_delta >= each.exact_delta


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
        # at 60 digits the rounding errors so far are below 1e-50 relative; the margin covers them
        below = (1 - power) * (1 - Decimal("1e-40"))
    return max(each_delta, Fraction(fifteen_digits.plus(below)))
