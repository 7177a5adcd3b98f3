"""Errors and frozen objects cross between processes: a pickle and a copy of each are what it is."""

import copy
import inspect
import pickle
from collections.abc import Callable
from dataclasses import is_dataclass
from fractions import Fraction
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from typing import Any

import numpy as np
import pytest

import darrm
from darrm import NoiseFunction, Problem, Votes, Workload, certify
from darrm.loss.renyi import RenyiCurve
from darrm.noisy_max.mechanisms import GNMax
from darrm.noisy_max.noisy_maximum import NoisyMaximum
from darrm.open_set.open_law import OpenLaw
from darrm.plan import plan
from darrm.privacy import PrivacyParams
from darrm.problem import Voters
from darrm.random_dp.bernstein import BernsteinFunction
from darrm.subsampling import Subsampling
from darrm.table.release import Release
from darrm.verify.audit import audit

COPIES: list[Callable[[Any], Any]] = [
    *(lambda one, protocol=protocol: pickle.loads(pickle.dumps(one, protocol)) for protocol in range(2, 6)),  # noqa: S301
    copy.copy,
    copy.deepcopy,
]
VALUES = {"int": 3, "int | None": 4, "float": 0.5, "str": "x", "dict[str, Json]": {"left": 0}}


def classes() -> list[type]:
    """Every class of the package, found by walking it; a module whose extra is not installed is left out."""
    found = []
    for module in walk_packages(darrm.__path__, "darrm."):
        try:
            names = vars(import_module(module.name)) if not module.name.endswith("__main__") else {}
        except ImportError:
            continue
        found += [one for one in names.values() if inspect.isclass(one) and one.__module__ == module.name]
    return found


ERRORS = [one for one in classes() if issubclass(one, BaseException)]


def made(error: type[BaseException]) -> BaseException:
    if not inspect.isfunction(error.__init__):  # that of a class of Python's own
        return error("said", 3)
    arguments, options = [], {}
    for name, parameter in list(inspect.signature(error.__init__).parameters.items())[1:]:
        value = VALUES.get(getattr(parameter.annotation, "__name__", str(parameter.annotation)), "x")
        if parameter.kind in {parameter.KEYWORD_ONLY, parameter.VAR_KEYWORD}:
            options["more" if parameter.kind is parameter.VAR_KEYWORD else name] = value
        else:
            arguments.append(value)
    return error(*arguments, **options)


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: f"{error.__module__}.{error.__name__}")
def test_an_error_survives_a_process(error: type[BaseException]) -> None:
    one = made(error)
    assert len(ERRORS) > 20
    one.add_note("in the third of five processes")
    for copied in COPIES:
        again = copied(one)
        assert (type(again), str(again), again.args, vars(again)) == (error, str(one), one.args, vars(one))


def public_objects(folder: Path) -> list[Any]:
    """Objects of the face: what is made by hand, what it leads to, and what an audit finds in files of it."""
    table = certify(Problem(Voters(3, PrivacyParams("0.2")), PrivacyParams("0.3")), NoiseFunction(3, [0.3, 0.5]))
    ledger = darrm.PrivacyLedger.create(folder / "ledger.sqlite", PrivacyParams(9, "1e-5"))
    darrm.release_debited(Release(table), np.array([[0, 1, 1]]), ledger=ledger, output=folder / "labels.csv")
    table.save(folder / "table.json")
    plain = Voters(20, PrivacyParams("inf"), overlap=1)
    return [
        *(table, Release(table), ledger.entries()[0], ledger.accountant().spent_under("one", 1e-5)),
        *(plain, Workload(plain, 10, PrivacyParams(3, "1e-5")), NoisyMaximum(GNMax(12.0), plain, 3), GNMax(12.0)),
        *(Votes.from_labels([[0, 1, 1]]), Votes.from_counts([[2, 1]]), Votes.from_answers([["flu", "cold", "flu"]])),
        *(RenyiCurve(np.array([2.0, 3.0]), np.array([0.1, 0.2])), Subsampling(Fraction(1, 100))),
        BernsteinFunction(np.array([1.0, 2.0])),
        OpenLaw(1, np.zeros((2, 2), dtype=np.int64)),
        plan(Workload(plain, 10, PrivacyParams(3, "1e-5"))),
        *audit([folder]).verdicts,
    ]


def parts(one: Any, seen: set[int]) -> list[Any]:
    if id(one) in seen:
        return []
    seen.add(id(one))
    if isinstance(one, tuple | list):
        return [part for entry in one for part in parts(entry, seen)]
    if not is_dataclass(one) or not type(one).__module__.startswith("darrm"):
        return []
    state: dict[str, Any] = one.__getstate__()  # type: ignore[call-arg,assignment]
    return [one, *(part for value in state.values() for part in parts(value, seen))]


def test_frozen_objects_survive_a_process(tmp_path: Path) -> None:
    seen = set[int]()
    found = [part for one in public_objects(tmp_path) for part in parts(one, seen)]
    assert len({type(one) for one in found}) > 20
    for one in found:
        for copied in COPIES:
            again = copied(one)
            assert type(again) is type(one)
            if "__eq__" in vars(type(one)):
                assert again == one
            for name, value in vars(one).items():
                if isinstance(value, np.ndarray):
                    same = vars(again)[name]
                    assert np.array_equal(same, value), (one, name)
                    assert same.flags.writeable <= value.flags.writeable, (one, name)
