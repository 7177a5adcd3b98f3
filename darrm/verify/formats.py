"""Read the files of a release strictly, as docs/reference/formats.md describes each format.

A missing field, an unknown field or a number out of its range raises `ValueError`. Other modules judge the claims.
"""

import hashlib
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, NoReturn

from darrm.verify.numbers import MOST_EPSILON, Point

Json = Any  # any JSON value
MALFORMED = (KeyError, TypeError, AttributeError, ArithmeticError, IndexError, RecursionError)  # of data in a file
GAMMA, PLURALITY, OPEN_TABLE, RELEASE, RUN = (
    *("darrm gamma table", "darrm plurality table", "darrm open table"),
    *("darrm release", "darrm tested run"),
)
RECEIPT_FORMAT, DIGEST_PREFIX = "darrm-receipt 1", "darrm-digest:1:"
TABLES = (GAMMA, PLURALITY, OPEN_TABLE)
OPEN = 0  # the number of classes of open-set answers
WEIGHT_ONE = 2**53  # the sum of the weights of a law on histograms
_MOST_DEPTH, _MOST_VALUES, _MOST_DIGITS = 32, 2**19, 1000  # of JSON: levels, values, digits of a number
_MOST_VOTERS, _MOST_CLASSES, _MOST_QUERIES, _MOST_RECORDS, _MOST_THRESHOLD = 10**6, 10**6, 10**12, 100, 2**40
_NUMBER = re.compile(r"[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]{1,3})?|[0-9]+/[0-9]+")
_MOST_CHARACTERS = 8000  # of a decimal
_PARAMETERS = {
    "GNMax": ("sigma",),
    "LNMax": ("gamma",),
    "ExponentialMechanism": ("epsilon",),
    "PermuteAndFlip": ("epsilon",),
    "AsymmetricMax": ("right", "left", "right_power", "left_power"),
}
_SHAPES = ("free", "monotone")


@dataclass(frozen=True)
class Sampling:
    """The probability that a person's record is drawn for a query."""

    record_rate: Fraction
    scheme: str = "poisson"
    records: int = 1  # of one person, at most

    @property
    def rate(self) -> Fraction:
        """The probability that a person is drawn; for a fixed sample the most that it can be."""
        if self.scheme == "fixed":
            return min(Fraction(1), self.records * self.record_rate)
        return 1 - (1 - self.record_rate) ** self.records

    @property
    def is_directed(self) -> bool:
        """Whether the two directions cost differently."""
        return self.scheme == "poisson"

    @property
    def neighbors(self) -> str:
        """The difference between neighboring data sets."""
        return "add or remove one person" if self.is_directed else "replace one person"


@dataclass(frozen=True)
class Voters:
    """K voters, what each of them satisfies, and how many of them one person's data can influence."""

    K: int
    kinds: tuple[tuple[int, Point | None], ...]  # number of voters, and their (ε, Δ) or None for no guarantee
    reached: int
    models: bool = False
    sampled: Sampling | None = None

    @property
    def are_private(self) -> bool:
        """Whether some voter has a guarantee."""
        return any(each is not None for _, each in self.kinds)

    @property
    def are_private_models(self) -> bool:
        """Whether costs of single queries do not add up."""
        return self.models and self.are_private

    def without_guarantee(self, reached: int) -> "Voters":
        """Return the same number of voters without a guarantee, with overlap ``reached``."""
        return Voters(self.K, ((self.K, None),), reached)

    def __str__(self) -> str:
        kinds = ", ".join(f"{count} of them {_guarantee(each)}" for count, each in self.kinds)
        if len(self.kinds) == 1:
            kinds = f"each {_guarantee(self.kinds[0][1])}"
        return f"{self.K:,} voters, {kinds}{', models trained once' if self.models else ''}, overlap {self.reached:,}"


def _guarantee(each: Point | None) -> str:
    return "without a guarantee" if each is None else f"({float(each[0]):.12g}, {float(each[1]):.12g})-DP"


@dataclass(frozen=True, eq=False)
class Table:
    """A law with claims of its privacy and of its optimality."""

    format: str
    voters: Voters
    target: Point  # of one label
    classes: int
    law: Json  # γ(l) for l > K/2, or weights
    certificate: Mapping[str, Json]
    optimality: Mapping[str, Json] | None
    digest: str
    what, labels = "table", 1  # of one query


@dataclass(frozen=True)
class Mechanism:
    """A noisy maximum, or a selection by exponential weights."""

    kind: str
    parameters: tuple[float, ...]
    reached: int  # votes that a person moves at most
    voters: Voters
    classes: int
    threshold: int | None
    digest: str
    what, labels = "mechanism", 1  # of one query


@dataclass(frozen=True)
class Run:
    """A propose-test-release run: its labels are released only if a private test passes, for one cost."""

    answer: Mechanism
    queries: int
    budget: Point
    digest: str
    may_be_none: bool  # whether a query may have no label
    what = "run"

    @property
    def voters(self) -> Voters:
        """The voters of the run."""
        return self.answer.voters

    @property
    def classes(self) -> int:
        """How many different labels there can be."""
        return self.answer.classes

    @property
    def labels(self) -> int:
        """How many labels the run has at most."""
        return self.queries


Answering = Table | Mechanism | Run  # a release that answers queries


@dataclass(frozen=True)
class Plan:
    """The claims of a plan about all its answers."""

    voters: Voters
    classes: int
    queries: int
    total: Point
    epsilon: float  # spent
    delta: float


@dataclass(frozen=True, eq=False)
class Charge:
    """The cost of each of ``count`` queries in a ledger."""

    count: int = 1
    guarantee: Point | None = None
    orders: tuple[float, ...] = ()  # of the Rényi curve
    divergences: tuple[float, ...] = ()
    profile: tuple[tuple[float, ...], ...] | None = None  # ε, δ, and δ of the other direction if it differs
    estimate: float | None = None  # of a published estimate: the probability that it is too small
    models: Voters | None = None
    plain: tuple[tuple[int, "Charge"], ...] = ()  # the same query for voters without a guarantee, by overlap
    sample: tuple[int, float] | None = None  # a label is a majority of this number of voters, up to this distance
    alone: bool = False  # costs of several queries do not add up
    labels: int = 1  # of one query, at most
    sampled: Sampling | None = None
    vanishing: float = 0.0

    def repeated(self, count: int) -> "Charge":
        """Return the same cost for ``count`` queries."""
        return replace(self, count=count)

    @property
    def curve(self) -> list[Point]:
        """The orders with a finite Rényi divergence, and these divergences, as fractions."""
        pairs = zip(self.orders, self.divergences, strict=True)
        return [(Fraction(order), Fraction(value)) for order, value in pairs if value < math.inf]

    def points(self, side: int = 1) -> list[Point]:
        """Return the points of its profile, as fractions."""
        if self.profile is None:
            return []
        return [(Fraction(e), Fraction(d)) for e, d in zip(self.profile[0], self.profile[side], strict=True)]


def parse_json(content: bytes) -> Json:
    """Parse JSON of bounded size, depth and length of numbers; `ValueError` for anything else."""
    text = content.decode("utf-8-sig")
    if sum(map(text.count, ",[{")) > _MOST_VALUES:
        raise ValueError(f"it holds more than {_MOST_VALUES:,} values")
    try:
        value = json.loads(
            text,
            object_pairs_hook=_object,
            parse_int=lambda digits: int(_bounded(digits)),
            parse_float=lambda digits: float(_bounded(digits)),
            parse_constant=_refuse,
        )
        _check_value(value, 0)
    except RecursionError:
        raise ValueError(f"it is nested more than {_MOST_DEPTH} levels deep") from None
    return value


def _object(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    if len(dict(pairs)) < len(pairs):
        raise ValueError("a name appears twice in one object")
    return dict(pairs)


def _bounded(digits: str) -> str:
    if len(digits) > _MOST_DIGITS:
        raise ValueError(f"it holds a number of {len(digits):,} characters")
    return digits


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")


def _check_value(value: Json, depth: int) -> None:
    if depth > _MOST_DEPTH:
        raise RecursionError
    if isinstance(value, dict | list):
        for entry in (*value, *value.values()) if isinstance(value, dict) else value:
            _check_value(entry, depth + 1)
    elif isinstance(value, str) and not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise ValueError("it holds half a surrogate pair, which is no text") from None
    elif isinstance(value, float) and math.isinf(value):
        raise ValueError("it holds a number beyond all floats")


def hash_json(data: Json) -> str:
    """Compute the SHA-256 of data as canonical JSON."""
    text = json.dumps(data, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def join(*fields: object) -> str:
    """Compute the SHA-256 of texts that are joined by U+001F."""
    return hashlib.sha256("\x1f".join(map(str, fields)).encode()).hexdigest()


def read_release(data: Json) -> Answering:
    """Read a table, a mechanism or a run from the JSON of a file; `ValueError` for any other content."""
    with _strict("it"):
        data = {name: value for name, value in data.items() if name != "plan"}
        kind = data.get("format")
        if kind in TABLES:
            return _table(data, kind)
        if kind == RELEASE:
            return _mechanism(data)
        if kind == RUN:
            return _run(data)
    raise ValueError(f"its format is none of {', '.join((*TABLES, RELEASE, RUN))}")


@contextmanager
def _strict(what: str) -> Iterator[None]:
    """Raise `ValueError` for any data that cannot be read."""
    try:
        yield
    except MALFORMED as error:
        raise ValueError(f"{what} is malformed ({type(error).__name__}: {error})") from error


def _table(data: dict[str, Json], kind: str) -> Table:
    law = "gamma" if kind == GAMMA else "weights"
    _fields(data, ("format", "version", "problem", law, "checksum", "certificate", "optimality", "provenance"))
    _version(data)
    digest = hash_json({"problem": data["problem"], law: data[law]})
    if data["checksum"] != digest:
        raise ValueError(f"it was changed: the SHA-256 of problem and {law} is {digest}, not its checksum")
    problem = data["problem"]
    voters = read_voters(problem, ("target", "classes"))
    target, classes = _pair(problem["target"]), _classes(problem.get("classes", 2))
    if target is None or target[0] > MOST_EPSILON or (kind == GAMMA) != (classes == 2):
        raise ValueError("its target or its classes are not those of such a table")
    numbers = _gamma(data[law], voters.K) if kind == GAMMA else _weights(data[law], kind, voters, classes)
    certificate, optimality = data["certificate"], data["optimality"]
    _fields(certificate, ("worst_cost", "budget", "rows", "method", "scale"))
    for name in ("worst_cost", "budget", "scale"):
        _floating(certificate[name])
    if not 0 <= certificate["scale"] <= 1 or type(certificate["rows"]) is not int:
        raise ValueError("its certificate holds numbers out of their range")
    if optimality is not None:
        _check_optimality(optimality, kind)
    for text in (*data["provenance"], *data["provenance"].values()):
        _text(text)
    return Table(kind, voters, target, classes, numbers, certificate, optimality, digest)


def _check_optimality(optimality: Json, kind: str) -> None:
    more = ("shape", "objective", "held_out") if kind == GAMMA else ()
    _fields(optimality, ("prior", "value", "bound", "status", "multipliers", *more))
    for name in ("value", "bound"):
        _floating(optimality[name])
    if more and (optimality["shape"] not in _SHAPES or optimality["objective"] not in {"linear", "expected-error"}):
        raise ValueError("its shape or its objective is none")
    if more and optimality["held_out"] is not None:
        _fields(optimality["held_out"], ("mean", "standard_error", "draws"))
    for text in (*optimality["prior"], *optimality["prior"].values(), optimality["status"]):
        _text(text)


def _gamma(values: Json, K: int) -> tuple[Fraction, ...]:
    if not isinstance(values, list) or len(values) != K - K // 2:
        raise ValueError(f"γ has not the {K - K // 2} values that K = {K} needs")
    half = tuple(Fraction(_floating(value)) for value in values)
    if not all(0 <= value <= 1 for value in half):
        raise ValueError("a value of γ is no probability")
    return half


def _weights(weights: Json, kind: str, voters: Voters, classes: int) -> list[list[int]]:
    K, lists = voters.K, weights
    if not isinstance(lists, list) or not all(isinstance(part, list) for part in lists):
        raise ValueError("weights are no lists")
    if any(type(weight) is not int or not 0 <= weight <= WEIGHT_ONE for part in lists for weight in part):
        raise ValueError("a weight is no whole number from 0 to 2^53")
    if kind == OPEN_TABLE:
        if classes != OPEN or [len(part) for part in lists] != [K - n + 1 for n in range(1, K + 1)]:
            raise ValueError("weights are not as many as there are votes")
    elif classes == 2 or any(sum(part) != WEIGHT_ONE for part in lists):
        raise ValueError("weights of a partition do not sum to 2^53")
    return lists


def _mechanism(data: dict[str, Json]) -> Mechanism:
    _fields(data, ("format", "version", "voters", "classes", "mechanism"), ("threshold",))
    _version(data)
    stored, classes = data["mechanism"], _classes(data["classes"])
    names = _PARAMETERS[stored["kind"]]
    _fields(stored, ("kind", *names, "reached"))
    values = tuple(float(exact_number(stored[name])) for name in names)
    voters, threshold = read_voters(data["voters"]), data.get("threshold")
    if min(values) <= 0.0 or [repr(value) for value in values] != [stored[name] for name in names]:
        raise ValueError("a parameter is not positive, or not the shortest decimal of a float")
    reached = _whole(stored["reached"], 1, _MOST_VOTERS)
    if reached < voters.reached:
        raise ValueError(f"a person moves {voters.reached} votes, and the mechanism is for {reached}")
    if (classes == OPEN) != (threshold is not None) or (threshold is not None and "e" in stored["kind"][:1]):
        raise ValueError("a threshold belongs to open answers, and to no others")
    if threshold is not None:
        _whole(threshold, 1, _MOST_THRESHOLD)
    return Mechanism(stored["kind"], values, reached, voters, classes, threshold, hash_json(data))


def _run(data: dict[str, Json]) -> Run:
    _fields(data, ("format", "version", "answer", "check", "queries", "budget", "order", "otherwise"))
    _version(data)
    answer, other, check = _mechanism(data["answer"]), data["otherwise"], data["check"]
    if other is not None and (_mechanism(other).voters, _mechanism(other).classes) != (answer.voters, answer.classes):
        raise ValueError("what answers otherwise is for other voters or classes")
    if check is not None:
        _fields(check, ("threshold", "sigma"))
        exact_number(check["sigma"])
    budget, queries = _pair(data["budget"]), _whole(data["queries"], 1, 10**7)
    if budget is None or not budget[1] or exact_number(data["order"]) <= 1:
        raise ValueError("its budget or its order is out of range")
    return Run(answer, queries, budget, hash_json(data), check is not None or other is None)


def read_plan(claims: Json) -> Plan:
    """Read the privacy claims of a plan; `ValueError` if they are malformed."""
    with _strict("it"):
        workload, spent = claims["workload"], claims["spent"]
        voters = read_voters(workload, ("queries", "missing", "classes", "total"))
        total, classes = _pair(workload["total"]), _classes(workload.get("classes", 2))
        queries = _whole(workload["queries"], 1, _MOST_QUERIES)
        epsilon, delta = _floating(spent["epsilon"]), _floating(spent["delta"])
        if total is None or min(epsilon, delta) < 0.0:
            raise ValueError("what it spends, or its total, is out of range")
        return Plan(voters, classes, queries, total, epsilon, delta)


def read_voters(data: Json, more: Iterable[str] = ()) -> Voters:
    """Read voters; ``more`` names further fields of the same object."""
    _fields(data, ("K", "each"), ("own", "overlap", "models", "sampled", *more))
    K, each = _whole(data["K"], 1, _MOST_VOTERS), _pair(data["each"])
    kinds: tuple[tuple[int, Point | None], ...] = ((K, each),)
    if "own" in data:
        kinds = tuple((_whole(kind["voters"], 1, K), _pair(kind)) for kind in data["own"])
        if sum(count for count, _ in kinds) != K or len(kinds) < 2 or len({pair for _, pair in kinds}) < len(kinds):
            raise ValueError("the kinds of voters are not K together, or not different")
    if any(pair is not None and pair[0] <= 0 for _, pair in kinds):
        raise ValueError("voters with ε = 0 carry no information")
    overlap = _whole(data["overlap"], 1, K - 1) if "overlap" in data else K
    if data.get("models", True) is not True:
        raise ValueError("'models' is written where it is true only")
    sampled = read_sampling(data["sampled"]) if "sampled" in data else None
    if sampled is not None and (kinds != ((K, None),) or "models" in data or overlap < min(K, sampled.records)):
        raise ValueError(
            "voters with resampled examples have no guarantee of their own, and an overlap for each record"
        )
    return Voters(K, kinds, overlap, "models" in data, sampled)


def read_sampling(data: Json) -> Sampling:
    """Read the subsampling scheme."""
    _fields(data, ("rate", "scheme"), ("records",))
    rate, records = exact_number(data["rate"]), _whole(data.get("records", 1), 1, _MOST_RECORDS)
    if not 0 < rate <= 1 or data["scheme"] not in {"poisson", "fixed"}:
        raise ValueError("a rate lies in (0, 1], and a scheme is poisson or fixed")
    return Sampling(rate, data["scheme"], records)


def read_charge(text: str) -> Charge:
    """Read the cost of one query from a ledger; `ValueError` if it is malformed."""
    with _strict("the cost of a query"):
        return _charge(parse_json(text.encode()) if "Infinity" not in text else json.loads(text))


def _charge(data: Json) -> Charge:
    more = ("estimate", "composes", "labels", "sampled", "vanishing", "voters", "sample", "plain")
    _fields(data, ("guarantee", "renyi", "profile"), more)
    pair, curve, profile = data["guarantee"], data["renyi"], data["profile"]
    models = read_voters(data["voters"]) if "voters" in data else None
    charge = Charge(
        guarantee=None if pair is None else (exact_number(pair[0]), exact_number(pair[1])),
        orders=() if curve is None else tuple(map(_floating, curve[0])),
        divergences=() if curve is None else tuple(float(value) for value in curve[1]),
        profile=None if profile is None else tuple(tuple(map(_floating, part)) for part in profile),
        estimate=None
        if "estimate" not in data
        else float(data["estimate"][0])
        if data["estimate"][0] is not None
        else 1.0,
        models=models,
        plain=tuple((_whole(reached, 1, _MOST_VOTERS), _charge(inner)) for reached, inner in data.get("plain", ())),
        sample=(_whole(data["sample"][0], 1, _MOST_VOTERS), _floating(data["sample"][1])) if "sample" in data else None,
        alone=data.get("composes", True) is False or (models is not None and models.are_private_models),
        labels=_whole(data.get("labels", 1), 1, _MOST_QUERIES),
        sampled=read_sampling(data["sampled"]) if "sampled" in data else None,
        vanishing=_floating(data.get("vanishing", 0.0)),
    )
    sizes = {len(part) for part in charge.profile or ()}
    if charge.guarantee is None and not charge.orders and charge.profile is None:
        raise ValueError("nothing bounds the cost of a query")
    if len(charge.orders) != len(charge.divergences) or len(sizes) > 1 or len(charge.profile or (1, 2)) not in {2, 3}:
        raise ValueError("a curve or a profile has lists of different lengths")
    if any(order <= 1.0 for order in charge.orders) or any(
        math.isnan(value) or value < 0 for value in charge.divergences
    ):
        raise ValueError("an order is at most 1, or a divergence is negative")
    if any(value < 0.0 for part in charge.profile or () for value in part) or not 0 <= charge.vanishing <= 1:
        raise ValueError("a profile or a probability is out of range")
    return charge


def exact_number(text: Json) -> Fraction:
    """Read a decimal or a fraction p/q from text, exactly."""
    if not isinstance(text, str) or len(text) > _MOST_CHARACTERS or not _NUMBER.fullmatch(text):
        raise ValueError(f"{str(text)[:40]!r} is no decimal in text")
    value = Fraction(text)
    if value > 10**308:
        raise ValueError("a number is beyond all floats")
    return value


def _pair(data: Json) -> Point | None:
    if data["epsilon"] == "inf":
        if exact_number(data["delta"]):
            raise ValueError("without a guarantee δ is 0")
        return None
    pair = exact_number(data["epsilon"]), exact_number(data["delta"])
    if pair[1] >= 1:
        raise ValueError("δ is at least 1")
    return pair


def _fields(data: Json, required: Iterable[str], optional: Iterable[str] = ()) -> None:
    required = set(required)
    if not isinstance(data, dict) or not required <= data.keys() <= required | set(optional):
        missing = sorted(required - data.keys()) if isinstance(data, dict) else ["all"]
        unknown = sorted(data.keys() - required - set(optional)) if isinstance(data, dict) else []
        raise ValueError(f"fields are missing ({', '.join(missing)}) or unknown ({', '.join(map(repr, unknown))[:80]})")


def _version(data: Mapping[str, Json]) -> None:
    if type(data["version"]) is not int or data["version"] != 1:
        raise ValueError("its version must be 1")


def _classes(data: Json) -> int:
    return OPEN if data == "open" else _whole(data, 2, _MOST_CLASSES)


def _whole(value: Json, least: int, most: int) -> int:
    if type(value) is not int or not least <= value <= most:
        raise ValueError(f"{str(value)[:40]} is no whole number from {least:,} to {most:,}")
    return value


def _floating(value: Json) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{str(value)[:40]} is no finite number")
    return float(value)


def _text(value: Json) -> None:
    if not isinstance(value, str):
        raise ValueError(f"{str(value)[:40]} is no text")  # noqa: TRY004 (a bad file, not a bad type)
