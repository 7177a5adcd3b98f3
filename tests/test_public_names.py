"""The public names: all there, loaded when first used, and nothing loaded before."""

import subprocess
import sys
from importlib import import_module

import pytest

import darrm

PUBLIC = {
    "darrm": ("priors",),
    "darrm.majority": ("baselines",),
    "darrm.plurality": ("baselines",),
    "darrm.loss": ("compose_simple", "compose_general", "compose_optimal", "RenyiCurve", "PrivacyProfile"),
    "darrm.plan": ("plan", "Plan"),
    "darrm.pate": (
        "LNMax",
        "GNMax",
        "ConfidentGNMax",
        "InteractiveGNMax",
        "analyze",
        "sanitize",
    ),
    "darrm.random_dp": ("sample_size", "SensitivitySampler"),
}


def test_every_name_of_the_face_is_found() -> None:
    assert set(darrm.__all__) <= set(dir(darrm))
    for name in darrm.__all__:
        assert getattr(darrm, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        darrm.nonsense  # noqa: B018 (the access is the test)


@pytest.mark.parametrize(("package", "names"), PUBLIC.items())
def test_the_rooms_hand_their_names_out(package: str, names: tuple[str, ...]) -> None:
    for name in names:
        exec(f"from {package} import {name}", {})  # noqa: S102 (a name may be a module that nobody imported yet)
    assert import_module(package).__doc__


LOADED = {  # what is imported, one after the other, and what it leaves to those who use it
    "darrm": "numpy scipy flint highspy sqlite3",
    "darrm.pate": "torch cvxpy dp_accounting matplotlib scipy.stats",
    "darrm.account.__main__": "pyarrow distributed dask torch matplotlib",
    "darrm.release.__main__": "pyarrow distributed dask torch matplotlib",
}


def test_what_is_imported_loads_no_more_than_it_needs() -> None:
    script = "import sys\n" + "\n".join(
        f"import {module}; print({set(left.split())} & set(sys.modules))" for module, left in LOADED.items()
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["set()"] * len(LOADED)
