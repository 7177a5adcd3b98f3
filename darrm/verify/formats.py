"""Read the files of a release strictly, as docs/reference/formats.md describes each format.

`read` follows a description of each format. A value out of its range, a missing or an unknown field raise `ValueError`.
"""

import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from inspect import isfunction
from typing import Any

from darrm.verify.verdicts import MAX_EPSILON, Point

Json = Any  # any JSON value
MALFORMED = (KeyError, TypeError, AttributeError, ArithmeticError, IndexError, RecursionError)  # of data in a file
GAMMA, PLURALITY, OPEN_TABLE = TABLES = "darrm gamma table", "darrm plurality table", "darrm open table"
RELEASE, RUN = "darrm release", "darrm tested run"
RECEIPT_FORMAT, DIGEST_PREFIX = "darrm-receipt 1", "darrm-digest:1:"
OPEN = 0  # the number of classes of open-set answers
NO_GUARANTEE = (Fraction(10**400), Fraction(1))  # more than any (ε, δ)
WEIGHT_ONE = 2**53  # the sum of the weights of a law on histograms
_MAX_VALUES, _MAX_DEPTH, _MAX_DIGITS = 2**19, 32, 1000  # of JSON: values, levels, digits
_COUNT, _QUERIES = range(1, 10**6 + 1), range(1, 10**12 + 1)  # of voters or classes
_NUMBER = re.compile(r"[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]{1,3})?|[0-9]+/[0-9]+")
_MAX_CHARACTERS = 8000  # of a decimal


@dataclass(frozen=True)
class Sampling:
    record_rate: Fraction
    scheme: str = "poisson"
    records: int = 1  # of one person, at most

    @property
    def rate(self) -> Fraction:
        """The probability that a person is drawn, at most."""
        if self.scheme == "fixed":
            return min(Fraction(1), self.records * self.record_rate)
        return 1 - (1 - self.record_rate) ** self.records

    @property
    def is_directed(self) -> bool:
        return self.scheme == "poisson"

    @property
    def neighbors(self) -> str:
        return "add or remove one person" if self.is_directed else "replace one person"


@dataclass(frozen=True)
class Voters:
    K: int
    kinds: tuple[tuple[int, Point | None], ...]  # number of voters, and their (ε, Δ) or None for no guarantee
    reached: int
    models: bool = False
    sampled: Sampling | None = None

    @property
    def are_private(self) -> bool:
        return any(guarantee is not None for _, guarantee in self.kinds)

    @property
    def pairs(self) -> list[Point]:
        """The (ε, δ) of each voter, the least private first."""
        return sorted((pair or NO_GUARANTEE for count, pair in self.kinds for _ in range(count)), reverse=True)

    @property
    def are_private_models(self) -> bool:
        return self.models and self.are_private

    def without_guarantee(self, reached: int) -> "Voters":
        return Voters(self.K, ((self.K, None),), reached)

    def __str__(self) -> str:
        texts = ["without a guarantee" if pair is None else f"({float(pair[0]):.12g}, {float(pair[1]):.12g})-DP"
                for _, pair in self.kinds]  # fmt: skip
        counts = [f"{count} of them {pair}" for (count, _), pair in zip(self.kinds, texts, strict=True)]
        kinds = ", ".join(counts) if len(texts) > 1 else f"each {texts[0]}"
        return f"{self.K:,} voters, {kinds}{', models trained once' if self.models else ''}, overlap {self.reached:,}"


@dataclass(frozen=True, eq=False)
class Table:
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
    kind: str
    parameters: tuple[float, ...]
    reached: int  # votes that a person moves at most
    voters: Voters
    classes: int
    threshold: int | None
    digest: str
    what, labels = "mechanism", 1  # of one query

    @property
    def has_two_classes(self) -> bool:
        return self.classes == 2


@dataclass(frozen=True)
class Run:
    """A propose-test-release run: labels are released only if a private test passes, for one cost."""

    voters: Voters
    classes: int
    labels: int  # at most
    budget: Point
    may_be_none: bool  # whether a query may have no label
    digest: str
    what = "run"


Answering = Table | Mechanism | Run  # a release that answers queries


@dataclass(frozen=True)
class Plan:
    voters: Voters
    classes: int
    queries: int
    total: Point
    epsilon: float  # spent
    delta: float


@dataclass(frozen=True, eq=False)
class Charge:
    """The cost of each of ``count`` queries."""

    count: int = 1
    guarantee: Point | None = None
    orders: tuple[float, ...] = ()  # of the Rényi curve
    divergences: tuple[float, ...] = ()
    profile: tuple[tuple[float, ...], ...] | None = None  # ε, δ, and δ of the other direction if it differs
    estimate: float | None = None  # of a published estimate: the probability that it is too small
    models: Voters | None = None
    plain: tuple[tuple[int, "Charge"], ...] = ()  # the same query for voters without a guarantee, by overlap
    sample: tuple[int, float] | None = None  # a label is a majority of this number of voters, up to this distance
    shares_randomness: bool = False  # costs of several queries do not add up
    labels: int = 1  # of one query, at most
    sampled: Sampling | None = None
    vanishing: float = 0.0

    @property
    def curve(self) -> list[Point]:
        pairs = zip(self.orders, self.divergences, strict=True)
        return [(Fraction(order), Fraction(value)) for order, value in pairs if value < math.inf]

    def points(self, side: int = 1) -> list[Point]:
        if self.profile is None:
            return []
        return [(Fraction(e), Fraction(d)) for e, d in zip(self.profile[0], self.profile[side], strict=True)]


def parse_json(content: bytes, *, may_be_infinite: bool = False) -> Json:
    """Parse JSON of bounded size; no message quotes it."""
    text = content.decode("utf-8-sig")
    if sum(map(text.count, ",[{")) > _MAX_VALUES:
        raise ValueError(f"it holds more than {_MAX_VALUES:,} values")
    constant = float if may_be_infinite else _parse_float
    try:
        value = json.loads(
            text,
            object_pairs_hook=_read_object,
            parse_int=_parse_int,
            parse_float=_parse_float,
            parse_constant=constant,
        )
        if "\\u" in text:  # the only way to write a surrogate
            json.dumps(value, ensure_ascii=False).encode()
        is_deep = _measure_depth(value) > _MAX_DEPTH + 1
    except RecursionError:
        is_deep = True
    except UnicodeEncodeError:
        raise ValueError("it holds half a surrogate pair, which is no text") from None
    if is_deep:
        raise ValueError(f"it is nested more than {_MAX_DEPTH} levels deep")
    return value


def _measure_depth(value: Json) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + max((_measure_depth(child) for child in inner if type(child) in {dict, list}), default=0)


def _read_object(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    if len(dict(pairs)) < len(pairs):
        raise ValueError("a name appears twice in one object")
    return dict(pairs)


def _parse_int(digits: str) -> int:
    if len(digits) > _MAX_DIGITS:
        raise ValueError(f"it holds a number of {len(digits):,} characters")
    return int(digits)


def _parse_float(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError("it holds a number beyond all floats")
    return value


def hash_json(data: Json) -> str:
    text = json.dumps(data, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def hash_fields(*fields: object) -> str:
    return hashlib.sha256("\x1f".join(map(str, fields)).encode()).hexdigest()


def read(data: Json, form: Json) -> Json:
    """Read JSON as ``form`` describes it; `ValueError` if it does not fit.

    A form is a type (`float`: finite), a range, a set of words, a list of one form or of one for each value, an object
    of forms by name (``name?`` may be missing), a pair of None and a form, or a function.

    >>> read({"K": 3, "scheme": "fixed"}, {"K": range(1, 9), "scheme": {"fixed"}, "records?": range(1, 9)})
    {'K': 3, 'scheme': 'fixed'}
    """
    if isinstance(form, dict):
        forms = {name.removesuffix("?"): value for name, value in form.items()}
        names = data.keys() if isinstance(data, dict) else set()
        missing, unknown = form.keys() - {f"{name}?" for name in forms} - names, names - forms.keys()
        if missing or unknown:
            faults = f"missing ({', '.join(sorted(missing))}) or unknown ({', '.join(unknown)[:80]!r})"
            raise ValueError(f"fields are {faults}")
        return {name: read(value, forms[name]) for name, value in data.items()}
    if isinstance(form, list) and isinstance(data, list):
        if len(form) > 1:
            return tuple(read(value, item_form) for value, item_form in zip(data, form, strict=True))
        item_form = form[0]
        return tuple(map(item_form, data)) if isfunction(item_form) else tuple(read(value, item_form) for value in data)
    if isinstance(form, tuple):
        return None if data is None else read(data, form[1])
    if isfunction(form):
        return form(data)
    if not _has_form(data, form):
        expected = f"whole number from {form[0]:,} to {form[-1]:,}" if isinstance(form, range) else str(form)
        raise ValueError(f"{str(data)[:40]!r} is no {expected}")
    return float(data) if form is float else data


def _has_form(data: Json, form: Json) -> bool:
    if isinstance(form, range):
        return type(data) is int and data in form
    if isinstance(form, set):
        return isinstance(data, str | bool) and data in form
    if form is float:
        return isinstance(data, int | float) and not isinstance(data, bool) and math.isfinite(data)
    return isinstance(data, form)


def parse_exact(text: Json) -> Fraction:
    """Read a decimal or p/q exactly."""
    if not isinstance(text, str) or len(text) > _MAX_CHARACTERS or not _NUMBER.fullmatch(text):
        raise ValueError(f"{str(text)[:40]!r} is no decimal in text")
    value = Fraction(text)
    if value > 10**308:
        raise ValueError("a number is beyond all floats")
    return value


def _read_nonnegative(data: Json, maximum: float = math.inf) -> float:
    if not _has_form(data, float) or not 0.0 <= data <= maximum:
        raise ValueError(f"{str(data)[:40]} is no number from 0 to {maximum:g}")
    return float(data)


def _read_share(data: Json) -> float:
    return _read_nonnegative(data, 1.0)


def read_texts(data: Json) -> Json:
    return read(data, dict.fromkeys(data, str))


def read_pair(data: Json) -> Point:
    pair = read(data, {"epsilon": parse_exact, "delta": parse_exact})
    if pair["delta"] >= 1:
        raise ValueError("δ is at least 1")
    return pair["epsilon"], pair["delta"]


def _read_guarantee(data: Json) -> Point | None:
    if data == {"epsilon": "inf", "delta": "0"}:
        return None
    epsilon, delta = read_pair(data)
    if not epsilon:
        raise ValueError("voters with ε = 0 carry no information")
    return epsilon, delta


def _read_kind(data: Json) -> tuple[int, Point | None]:
    return read(data["voters"], _COUNT), _read_guarantee({name: data[name] for name in data if name != "voters"})


def _read_classes(data: Json) -> int:
    return OPEN if data == "open" else int(read(data, _COUNT[1:]))


def _read_parameter(stored: Json) -> float:
    value = float(parse_exact(stored))
    if value <= 0.0 or repr(value) != stored:
        raise ValueError("a parameter is not positive, or not the shortest decimal of a float")
    return value


def read_sampling(data: Json) -> Sampling:
    fields = read(data, {"rate": parse_exact, "scheme": {"poisson", "fixed"}, "records?": range(1, 101)})
    if not 0 < fields["rate"] <= 1:
        raise ValueError("a rate lies in (0, 1]")
    return Sampling(fields["rate"], fields["scheme"], fields.get("records", 1))


_VOTERS = {"K": _COUNT, "each": _read_guarantee, "own?": [_read_kind], "overlap?": _COUNT, "models?": {True},
           "sampled?": read_sampling}  # fmt: skip
_VERSION = {"format": str, "version": range(1, 2)}
_CERTIFICATE = {"worst_cost": float, "budget": float, "rows": range(10**40), "method": object, "scale": _read_share}
_OPTIMALITY = {"prior": read_texts, "value": float, "bound": float, "status": str, "multipliers": object}
_OPTIMALITY_OF_GAMMA = {
    **_OPTIMALITY,
    "shape": {"free", "monotone"},
    "objective": {"linear", "expected-error"},
    "held_out": (None, {"mean": object, "standard_error": object, "draws": object}),
}
_PARAMETERS = {
    "GNMax": ("sigma",),
    "LNMax": ("gamma",),
    "ExponentialMechanism": ("epsilon",),
    "PermuteAndFlip": ("epsilon",),
    "AsymmetricMax": ("right", "left", "right_power", "left_power"),
}


def read_voters(data: Json) -> Voters:
    return _make_voters(read(data, _VOTERS))


def _make_voters(fields: Mapping[str, Json]) -> Voters:
    K, sampled = fields["K"], fields.get("sampled")
    kinds, overlap = fields.get("own", ((K, fields["each"]),)), fields.get("overlap", K)
    if sum(count for count, _ in kinds) != K or len({pair for _, pair in kinds}) < len(kinds):
        raise ValueError("the kinds of voters are not K together, or not different")
    if ("own" in fields and len(kinds) < 2) or ("overlap" in fields and overlap >= K):
        raise ValueError("kinds of voters, or an overlap, are written where all voters are the same")
    are_non_private = kinds == ((K, None),) and "models" not in fields
    if sampled is not None and (not are_non_private or overlap < min(K, sampled.records)):
        raise ValueError("voters with resampled examples have no own guarantee, and an overlap for each record")
    return Voters(K, kinds, overlap, "models" in fields, sampled)


def read_release(data: Json) -> Answering:
    try:
        data = {name: value for name, value in data.items() if name != "plan"}
        kind = data.get("format")
        if kind in TABLES:
            return _read_table(data, kind)
        if kind in {RELEASE, RUN}:
            return _read_mechanism(data) if kind == RELEASE else _read_run(data)
    except MALFORMED as error:
        raise ValueError(f"it is malformed ({type(error).__name__}: {error})") from error
    raise ValueError(f"its format is none of {', '.join((*TABLES, RELEASE, RUN))}")


def _read_table(data: Json, kind: str) -> Table:
    law = "gamma" if kind == GAMMA else "weights"
    digest = hash_json({"problem": data["problem"], law: data[law]})
    if data["checksum"] != digest:
        raise ValueError(f"it was changed: the SHA-256 of problem and {law} is {digest}, not its checksum")
    form = {
        **_VERSION,
        "problem": {**_VOTERS, "target": read_pair, "classes?": _read_classes},
        law: [_read_share] if kind == GAMMA else [[range(WEIGHT_ONE + 1)]],
        "checksum": str,
        "certificate": _CERTIFICATE,
        "optimality": (None, _OPTIMALITY_OF_GAMMA if kind == GAMMA else _OPTIMALITY),
        "provenance": read_texts,
    }
    fields = read(data, form)
    problem, numbers = fields["problem"], fields[law]
    voters, target, classes = _make_voters(problem), problem["target"], problem.get("classes", 2)
    if target[0] > MAX_EPSILON or (kind == GAMMA) != (classes == 2) or (kind == OPEN_TABLE and classes != OPEN):
        raise ValueError("its target or its classes are not those of such a table")
    K, lengths = voters.K, [1 if kind == GAMMA else len(part) for part in numbers]
    expected = {GAMMA: [1] * (K - K // 2), OPEN_TABLE: [*range(K, 0, -1)], PLURALITY: lengths}
    if lengths != expected[kind]:
        raise ValueError(f"{law} has not the numbers that K = {K} needs")
    if kind == PLURALITY and any(sum(part) != WEIGHT_ONE for part in numbers):
        raise ValueError("weights of a partition do not sum to 2^53")
    numbers = tuple(map(Fraction, numbers)) if kind == GAMMA else numbers
    return Table(kind, voters, target, classes, numbers, fields["certificate"], fields["optimality"], digest)


def _read_mechanism(data: Json) -> Mechanism:
    kind = data["mechanism"]["kind"]
    parameters = dict.fromkeys(_PARAMETERS[kind], _read_parameter)
    mechanism_form = {"kind": str, **parameters, "reached": _COUNT}
    form = {"voters": read_voters, "classes": _read_classes, "mechanism": mechanism_form}
    fields = read(data, {**_VERSION, **form, "threshold?": range(1, 2**40 + 1)})
    voters, mechanism, threshold = fields["voters"], fields["mechanism"], fields.get("threshold")
    if mechanism["reached"] < voters.reached:
        raise ValueError(f"a person moves {voters.reached} votes, and the mechanism is for {mechanism['reached']}")
    if (fields["classes"] == OPEN) != (threshold is not None):
        raise ValueError("a threshold belongs to open answers, and to no others")
    values = tuple(mechanism[name] for name in parameters)
    return Mechanism(kind, values, mechanism["reached"], voters, fields["classes"], threshold, hash_json(data))


def _read_run(data: Json) -> Run:
    form = {
        **_VERSION,
        "answer": _read_mechanism,
        "check": (None, {"threshold": object, "sigma": parse_exact}),
        "queries": range(1, 10**7 + 1),
        "budget": read_pair,
        "order": parse_exact,
        "otherwise": (None, _read_mechanism),
    }
    fields = read(data, form)
    answer, fallback, budget = fields["answer"], fields["otherwise"], fields["budget"]
    if fallback is not None and (fallback.voters, fallback.classes) != (answer.voters, answer.classes):
        raise ValueError("what answers otherwise is for other voters or classes")
    if not budget[1] or fields["order"] <= 1:
        raise ValueError("its budget or its order is out of range")
    may_be_none = fields["check"] is not None or fallback is None
    return Run(answer.voters, answer.classes, fields["queries"], budget, may_be_none, hash_json(data))


def read_plan(claims: Json) -> Plan:
    form = {**_VOTERS, "queries": _QUERIES, "missing?": object, "classes?": _read_classes, "total": read_pair}
    fields, spent = read(claims["workload"], form), claims["spent"]
    epsilon, delta = _read_nonnegative(spent["epsilon"]), _read_nonnegative(spent["delta"])
    return Plan(_make_voters(fields), fields.get("classes", 2), fields["queries"], fields["total"], epsilon, delta)


def _read_divergence(data: Json) -> float:
    return math.inf if data == math.inf else _read_nonnegative(data)


def read_charge(data: Json) -> Charge:
    form = {
        "guarantee": (None, [parse_exact, parse_exact]),
        "renyi": (None, [[float], [_read_divergence]]),
        "profile": (None, [[_read_nonnegative]]),
        "estimate?": [(None, _read_share), object],
        "composes?": {True, False},
        "labels?": _QUERIES,
        "sampled?": read_sampling,
        "vanishing?": _read_share,
        "voters?": read_voters,
        "sample?": [_COUNT, float],
        "plain?": [[_COUNT, read_charge]],
    }
    fields = read(data, form)
    (orders, divergences), models = fields.pop("renyi") or ((), ()), fields.pop("voters", None)
    shares_randomness = not fields.pop("composes", True) or (models is not None and models.are_private_models)
    if "estimate" in fields:
        fields["estimate"] = 1.0 if fields["estimate"][0] is None else fields["estimate"][0]
    charge = Charge(
        orders=orders, divergences=divergences, models=models, shares_randomness=shares_randomness, **fields
    )
    if charge.guarantee is None and not orders and charge.profile is None:
        raise ValueError("nothing bounds the cost of a query")
    sizes = {len(part) for part in charge.profile or ()}
    if len(orders) != len(divergences) or len(sizes) > 1 or len(charge.profile or (1, 2)) not in {2, 3}:
        raise ValueError("a curve or a profile has lists of different lengths")
    if any(order <= 1.0 for order in orders):
        raise ValueError("an order of a curve is at most 1")
    return charge
