"""The verifier imports nothing of the rest of darrm, and judges the same where the rest is not there."""

import ast
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from darrm import verify
from tests.verify.lies import make_mechanism, make_plurality

FOLDER = Path(verify.__file__).parent
# an attack draws labels through the release itself: it alone may import that, and nothing but --attack imports it
ATTACK = {"attack.py"}
LIBRARIES = {"numpy", "flint", "click", "darrm"}


def imported(path: Path) -> set[str]:
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    return names | {str(node.module) for node in nodes if isinstance(node, ast.ImportFrom)}


@pytest.mark.parametrize("path", sorted(set(FOLDER.glob("*.py")), key=str), ids=lambda path: path.name)
def test_no_module_imports_the_rest(path: Path) -> None:
    names = imported(path)
    if path.name in ATTACK:
        return
    assert {name for name in names if name.startswith("darrm") and not name.startswith("darrm.verify")} == set()
    assert {f"darrm.verify.{name.removesuffix('.py')}" for name in ATTACK} & names == set()
    roots = {name.partition(".")[0] for name in names}
    assert roots - LIBRARIES <= set(sys.stdlib_module_names)


# run with the paths of libraries only, and one folder that holds the package
ALONE = """
import runpy, sys
sys.path[:] = [{where!r}, *(path for path in sys.path if "lib" in path)]
sys.meta_path[:] = [finder for finder in sys.meta_path if "editable" not in str(finder).lower()]
sys.argv = ["darrm.verify", {folder!r}, "--format", "json"]
runpy.run_module("darrm.verify", run_name="__main__")
"""


def judged(where: Path, folder: Path) -> dict[str, Any]:
    command = [sys.executable, "-P", "-c", ALONE.format(where=str(where), folder=str(folder))]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize(
    "make",
    [make_plurality, pytest.param(partial(make_mechanism, "exponential", "adaptive"), marks=pytest.mark.slow)],
    ids=["plurality", "exponential"],
)
def test_it_runs_where_the_rest_is_not_there(make: Callable[[Path], None], tmp_path: Path) -> None:
    alone, folder = tmp_path / "alone" / "darrm", tmp_path / "folder"
    shutil.copytree(FOLDER, alone / "verify", ignore=shutil.ignore_patterns(*ATTACK, "__pycache__"))
    (alone / "__init__.py").write_text("")
    folder.mkdir()
    make(folder)
    own, whole = judged(alone.parent, folder), judged(FOLDER.parents[1], folder)
    assert own["answers"][0]["answer"] == "PASS"
    assert own["verdicts"] == whole["verdicts"]
