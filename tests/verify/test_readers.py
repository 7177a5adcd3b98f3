"""Each reader of the verifier accepts the ends of its ranges, and refuses what is next to them."""

import json
import math
from collections.abc import Callable
from typing import Any

import pytest

from darrm import PrivacyParams, Voters
from darrm.noisy_max.mechanisms import GNMax
from darrm.noisy_max.noisy_maximum import NoisyMaximum
from darrm.problem import OPEN
from darrm.verify.formats import (
    parse_exact,
    parse_json,
    read_charge,
    read_plan,
    read_release,
    read_sampling,
    read_voters,
)
from tests.verify.files import TABLE

Json = dict[str, Any]
ONE, INFINITE = {"epsilon": "1", "delta": "0"}, {"epsilon": "inf", "delta": "0"}
SAMPLING: Json = {"rate": "1/10", "scheme": "poisson"}
VOTERS: Json = {"K": 5, "each": ONE}
NON_PRIVATE: Json = {"K": 5, "each": INFINITE, "overlap": 1}
CHARGE: Json = {"guarantee": ["1", "0"], "renyi": None, "profile": None}
TEACHERS = Voters(5, PrivacyParams("inf"), overlap=2)
NOISY: Json = NoisyMaximum(GNMax(3.0, reached=2), TEACHERS, 3).to_json()
OPEN_SET: Json = NoisyMaximum(GNMax(3.0, reached=2), TEACHERS, OPEN, 7).to_json()
LONG = f"{'1' * 4000}/{'1' * 3999}"
SPENT: Json = {"epsilon": 1.0, "delta": 0.0}
RUN: Json = {"format": "darrm tested run", "version": 1, "answer": NOISY, "check": None, "queries": 9, "order": "2"}
RUN |= {"budget": {"epsilon": "1", "delta": "1e-5"}, "otherwise": None}
PLAN: Json = {"workload": {**VOTERS, "queries": 9, "total": ONE}, "spent": SPENT}


def make_kinds(*kinds: tuple[int, str]) -> list[Json]:
    return [{"voters": count, "epsilon": epsilon, "delta": "0"} for count, epsilon in kinds]


# a reader, a document, a field, the values that it may have, and others
RANGES: list[tuple[Callable[[Any], object], Json, str, list[Any], list[Any]]] = [
    (read_sampling, SAMPLING, "rate", ["1", "1e-300"], ["0", "11/10", 0.1, "0.1 ", ".1", "-0.1", "inf"]),
    (read_sampling, SAMPLING, "scheme", ["fixed"], ["Fixed", None]),
    (read_sampling, SAMPLING, "records", [1, 100], [0, 101, 1.0, True, "1"]),
    (read_sampling, SAMPLING, "note", [], ["x"]),
    (read_voters, VOTERS, "K", [1, 10**6], [0, 10**6 + 1, 5.0, True]),
    (
        read_voters,
        VOTERS,
        "each",
        [INFINITE, {"epsilon": "1e308", "delta": "0.999"}],
        [{**ONE, "delta": "1"}, {**ONE, "epsilon": "0"}, {**INFINITE, "delta": "1e-5"}, {"epsilon": "1"}],
    ),
    (read_voters, VOTERS, "overlap", [1, 4], [0, 5]),
    (read_voters, VOTERS, "models", [True], [False, 1]),
    (
        read_voters,
        VOTERS,
        "own",
        [make_kinds((2, "1"), (3, "2"))],
        [make_kinds(*kinds) for kinds in ([(5, "1")], [(2, "1"), (2, "2")], [(2, "1"), (3, "1")])],
    ),
    (read_voters, VOTERS, "sampled", [], [SAMPLING]),
    (read_voters, NON_PRIVATE, "sampled", [SAMPLING], [{**SAMPLING, "records": 2}]),
    (read_charge, CHARGE, "guarantee", [["0", "1"]], [None, ["1"], [1, 0]]),
    (
        read_charge,
        CHARGE,
        "renyi",
        [[[1.5, 2.0], [0.0, math.inf]]],
        [[[1.0], [0.1]], [[2.0], [0.1, 0.2]], [[2.0], [-0.1]], [[math.inf], [0.1]]],
    ),
    (
        read_charge,
        CHARGE,
        "profile",
        [[[0.0], [1.0]], [[0.0], [0.1], [0.2]]],
        [[[0.0]], [[0.0], [0.1, 0.2]], [[0.0]] * 4, [[-0.1], [0.1]]],
    ),
    (read_charge, CHARGE, "labels", [1, 10**12], [0, 10**12 + 1]),
    (read_charge, CHARGE, "vanishing", [0.0, 1], [-0.1, 1.1]),
    (read_charge, CHARGE, "estimate", [[None, "x"], [1.0, "x"]], [[1.1, "x"], [0.5]]),
    (read_charge, CHARGE, "sample", [[3, 0.5]], [[0, 0.5], [3, math.nan]]),
    (read_charge, CHARGE, "plain", [[[1, CHARGE]]], [[[1, {}]]]),
    (read_release, NOISY, "classes", [2, 10**6], [1, 10**6 + 1, "open"]),
    (read_release, NOISY, "threshold", [], [7]),
    (read_release, OPEN_SET, "threshold", [1, 2**40], [0, 2**40 + 1]),
    (
        read_release,
        NOISY,
        "mechanism",
        [{**NOISY["mechanism"], "reached": 3}],
        [{**NOISY["mechanism"], "reached": 1}, {**NOISY["mechanism"], "sigma": "3"}, {"kind": "GNMax", "reached": 2}],
    ),
    (read_release, json.loads(json.dumps(TABLE.to_json())), "checksum", [], ["ab" * 32]),
    (read_release, RUN, "queries", [1, 10**7], [0, 10**7 + 1]),
    (read_release, RUN, "order", ["1.1"], ["1", 2]),
    (read_release, RUN, "budget", [], [ONE]),
    (read_release, RUN, "otherwise", [NOISY], [{**NOISY, "classes": 4}]),
    (read_release, RUN, "check", [{"threshold": 3, "sigma": "2"}], [{"threshold": 3, "sigma": 2}]),
    (read_plan, PLAN, "spent", [{"epsilon": 0, "delta": 0}], [{**SPENT, "epsilon": -1.0}, {**SPENT, "delta": True}]),
    (
        read_plan,
        PLAN,
        "workload",
        [{**PLAN["workload"], "queries": number} for number in (1, 10**12)],
        [{**PLAN["workload"], "queries": number} for number in (0, 10**12 + 1)],
    ),
    (parse_exact, {}, "", ["1/3", "1e308", LONG], ["1e309", f"{LONG}1", "1e1000", "1/", "-1", 1]),
]


def read_with(read: Callable[[Any], object], document: Json, field: str, value: Any) -> object:
    return read({**document, field: value} if field else value)


@pytest.mark.parametrize(("read", "document", "field", "accepted", "refused"), RANGES)
def test_a_field_has_the_range_of_its_format(
    read: Callable[[Any], object], document: Json, field: str, accepted: list[Any], refused: list[Any]
) -> None:
    for value in accepted:
        read_with(read, document, field, value)
    for value in refused:
        with pytest.raises(ValueError, match=r"\w"):
            read_with(read, document, field, value)
    if field in document:  # a required field
        with pytest.raises((ValueError, KeyError)):
            read({name: value for name, value in document.items() if name != field})


@pytest.mark.parametrize(
    ("accepted", "refused"),
    [
        ("[" * 33 + "]" * 33, "[" * 34 + "]" * 34),
        ("1" * 1000, "1" * 1001),
        ("[" + "1," * (2**19 - 2) + "1]", "[" + "1," * (2**19) + "1]"),
        ('{"a": 1, "b": 1}', '{"a": 1, "a": 1}'),
        ('"\\u00e9"', '"\\ud800"'),
        ("1e308", "1e309"),
        ("\ufeff[]", "NaN"),
    ],
)
def test_json_is_refused_beyond_its_limits(accepted: str, refused: str) -> None:
    parse_json(accepted.encode())
    with pytest.raises(ValueError, match=r"\w"):
        parse_json(refused.encode())
