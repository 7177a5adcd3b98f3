"""Errors and frozen objects survive pickling and copying."""

import copy
import inspect
import pickle
from collections.abc import Callable
from contextlib import suppress
from dataclasses import is_dataclass
from fractions import Fraction
from importlib import import_module
from itertools import product
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
    *(lambda value, protocol=n: pickle.loads(pickle.dumps(value, protocol)) for n in range(2, 6)),  # noqa: S301
    copy.copy,
    copy.deepcopy,
]
VALUES = {"int": 3, "int | None": 4, "float": 0.5, "str": "x", "dict[str, Json]": {"left": 0}}


def list_errors() -> list[type[BaseException]]:
    """Return every error of the package; modules whose extra is not installed are left out."""
    errors: list[type[BaseException]] = []
    for module in walk_packages(darrm.__path__, "darrm."):
        if not module.name.endswith("__main__"):
            with suppress(ImportError):
                classes = filter(inspect.isclass, vars(import_module(module.name)).values())
                errors += [c for c in classes if issubclass(c, BaseException) and c.__module__ == module.name]
    return errors


def make_error(error: type[BaseException]) -> BaseException:
    if not inspect.isfunction(error.__init__):  # inherited from Python
        return error("message", 3)
    arguments, options = [], {}
    for name, parameter in list(inspect.signature(error.__init__).parameters.items())[1:]:
        value = VALUES.get(getattr(parameter.annotation, "__name__", str(parameter.annotation)), "x")
        if parameter.kind in {parameter.KEYWORD_ONLY, parameter.VAR_KEYWORD}:
            options["more" if parameter.kind is parameter.VAR_KEYWORD else name] = value
        else:
            arguments.append(value)
    return error(*arguments, **options)


ERRORS = list_errors()


def test_many_errors_are_listed() -> None:
    assert len(ERRORS) > 20


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: f"{error.__module__}.{error.__name__}")
def test_an_error_survives_pickling_and_copying(error: type[BaseException]) -> None:
    original = make_error(error)
    original.add_note("in the third of five processes")
    for copy_object in COPIES:
        result = copy_object(original)
        assert (type(result), str(result), result.args) == (error, str(original), original.args)
        assert vars(result) == vars(original)


def make_public_objects(folder: Path) -> list[Any]:
    """Make objects that users make, get from these, or get from an audit of their files."""
    table = certify(Problem(Voters(3, PrivacyParams("0.2")), PrivacyParams("0.3")), NoiseFunction(3, [0.3, 0.5]))
    ledger = darrm.PrivacyLedger.create(folder / "ledger.sqlite", PrivacyParams(9, "1e-5"))
    darrm.release_debited(Release(table), np.array([[0, 1, 1]]), ledger=ledger, output=folder / "labels.csv")
    table.save(folder / "table.json")
    teachers = Voters(20, PrivacyParams("inf"), overlap=1)
    return [
        *(table, Release(table), ledger.entries()[0], ledger.accountant().spent_under("one", 1e-5)),
        *(teachers, Workload(teachers, 10, PrivacyParams(3, "1e-5"))),
        *(NoisyMaximum(GNMax(12.0), teachers, 3), GNMax(12.0)),
        *(Votes.from_labels([[0, 1, 1]]), Votes.from_counts([[2, 1]]), Votes.from_answers([["flu", "cold", "flu"]])),
        *(RenyiCurve(np.array([2.0, 3.0]), np.array([0.1, 0.2])), Subsampling(Fraction(1, 100))),
        BernsteinFunction(np.array([1.0, 2.0])),
        OpenLaw(1, np.zeros((2, 2), dtype=np.int64)),
        plan(Workload(teachers, 10, PrivacyParams(3, "1e-5"))),
        *audit([folder]).verdicts,
    ]


def list_parts(value: Any, seen: set[int]) -> list[Any]:
    """Return all dataclasses of darrm within a value."""
    if id(value) in seen:
        return []
    seen.add(id(value))
    if isinstance(value, tuple | list):
        return [part for entry in value for part in list_parts(entry, seen)]
    if not is_dataclass(value) or not type(value).__module__.startswith("darrm"):
        return []
    state: dict[str, Any] = value.__getstate__()  # type: ignore[call-arg,assignment]
    return [value, *(part for entry in state.values() for part in list_parts(entry, seen))]


def test_frozen_objects_survive_pickling_and_copying(tmp_path: Path) -> None:
    originals = list_parts(make_public_objects(tmp_path), set())
    assert len({type(original) for original in originals}) > 20
    for original, copy_object in product(originals, COPIES):
        result = copy_object(original)
        assert type(result) is type(original)
        if "__eq__" in vars(type(original)):
            assert result == original
        for name, value in vars(original).items():
            if isinstance(value, np.ndarray):
                array = vars(result)[name]
                assert np.array_equal(array, value), (original, name)
                assert array.flags.writeable <= value.flags.writeable, (original, name)
