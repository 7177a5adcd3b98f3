"""Public names exist, are loaded when first used, and have docstrings."""

import inspect
import re
import subprocess
import sys
from functools import cached_property
from importlib import import_module
from operator import attrgetter
from pathlib import Path

import pytest

import darrm

PUBLIC = {
    "darrm": ("priors",),
    "darrm.majority": ("baselines",),
    "darrm.plurality": ("baselines",),
    "darrm.loss": ("compose_simple", "compose_general", "compose_optimal", "RenyiCurve", "PrivacyProfile"),
    "darrm.plan": ("plan", "Plan"),
    "darrm.pate": ("LNMax", "GNMax", "ConfidentGNMax", "InteractiveGNMax", "analyze", "sanitize"),
    "darrm.random_dp": ("sample_size", "SensitivitySampler"),
}


def test_every_public_name_exists() -> None:
    assert set(darrm.__all__) <= set(dir(darrm))
    for name in darrm.__all__:
        assert getattr(darrm, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        darrm.nonsense  # noqa: B018 (the access is the test)


@pytest.mark.parametrize(("package", "names"), PUBLIC.items())
def test_packages_export_their_names(package: str, names: tuple[str, ...]) -> None:
    for name in names:
        exec(f"from {package} import {name}", {})  # noqa: S102 (a name may be a module that is not imported yet)
    assert import_module(package).__doc__


NOT_LOADED = {  # modules, imported in this order, and libraries that they do not import
    "darrm": "numpy scipy flint highspy sqlite3",
    "darrm.pate": "torch cvxpy dp_accounting matplotlib scipy.stats",
    "darrm.account.__main__": "pyarrow distributed dask torch matplotlib",
    "darrm.release.__main__": "pyarrow distributed dask torch matplotlib",
    "darrm.serve.__main__": "starlette uvicorn httpx pydantic",
}


def test_imports_load_no_optional_library() -> None:
    script = "import sys\n" + "\n".join(
        f"import {module}; print({set(libraries.split())} & set(sys.modules))"
        for module, libraries in NOT_LOADED.items()
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["set()"] * len(NOT_LOADED)


REFERENCE = Path(__file__).parents[1] / "docs/reference"


def list_documented() -> list[tuple[str, str]]:
    """Return the classes and functions of the reference, and the public methods that these classes define."""
    pairs = set[tuple[str, str]]()
    for page in REFERENCE.glob("*.md"):
        for module in re.findall(r"automodule:: (\S+)", page.read_text()):
            for name in list_names(module):
                pairs.add((module, name))
                thing = getattr(import_module(module), name)
                if isinstance(thing, type) and thing.__module__.startswith("darrm"):
                    pairs |= {(module, f"{name}.{part}") for part in vars(thing) if is_public_method(thing, part)}
    return sorted(pairs)


def list_names(module: str) -> list[str]:
    exported: list[str] = getattr(import_module(module), "__all__", [])
    things = vars(import_module(module)).items()
    defined = [name for name, thing in things if getattr(thing, "__module__", "") == module]
    return exported or [name for name in defined if not name.startswith("_")]


def is_public_method(owner: type, name: str) -> bool:
    part = inspect.getattr_static(owner, name)
    method = inspect.isfunction(part) or isinstance(part, (property, classmethod, cached_property))
    return method and not name.startswith("_") and not any(hasattr(base, name) for base in owner.__mro__[1:])


def test_every_name_of_the_reference_has_a_docstring() -> None:
    names = list_documented()
    assert len(names) > 500
    things = [(module, name, attrgetter(name)(import_module(module))) for module, name in names]
    without = [
        f"{module}.{name}"
        for module, name, thing in things
        if (callable(thing) or isinstance(thing, (property, cached_property))) and not inspect.getdoc(thing)
    ]
    assert without == []
