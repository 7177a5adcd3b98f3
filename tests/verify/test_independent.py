"""The verifier imports nothing of the rest of darrm, and judges the same without it."""

import ast
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from darrm import verify

FOLDER = Path(verify.__file__).parent
ATTACK = "attack.py"  # it draws labels through the release itself; only --attack imports it
LIBRARIES = {"numpy", "flint", "click", "darrm"}


def list_imports(path: Path) -> set[str]:
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    return names | {str(node.module) for node in nodes if isinstance(node, ast.ImportFrom)}


@pytest.mark.parametrize("path", sorted(set(FOLDER.glob("*.py")) - {FOLDER / ATTACK}), ids=lambda path: path.name)
def test_a_module_imports_only_the_verifier_and_three_libraries(path: Path) -> None:
    names = list_imports(path)
    assert {name for name in names if name.startswith("darrm") and not name.startswith("darrm.verify")} == set()
    assert "darrm.verify.attack" not in names
    assert {name.partition(".")[0] for name in names} - LIBRARIES <= set(sys.stdlib_module_names)


# run with the paths of libraries only, and one folder that holds the package
ISOLATED = """
import runpy, sys
sys.path[:] = [{package!r}, *(path for path in sys.path if "lib" in path)]
sys.meta_path[:] = [finder for finder in sys.meta_path if "editable" not in str(finder).lower()]
sys.argv = ["darrm.verify", {folder!r}, "--format", "json"]
runpy.run_module("darrm.verify", run_name="__main__")
"""


def verify_in_process(package: Path, folder: Path) -> Any:
    command = [sys.executable, "-P", "-c", ISOLATED.format(package=str(package), folder=str(folder))]
    process = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout)


@pytest.mark.parametrize("name", ["plurality", pytest.param("exponential", marks=pytest.mark.slow)])
def test_the_verifier_judges_the_same_without_the_rest(
    name: str, copied: Callable[[str], Path], tmp_path: Path
) -> None:
    package = tmp_path / "isolated" / "darrm"
    shutil.copytree(FOLDER, package / "verify", ignore=shutil.ignore_patterns(ATTACK, "__pycache__"))
    (package / "__init__.py").write_text("")
    folder = copied(name)
    isolated, whole = (verify_in_process(path, folder) for path in (package.parent, FOLDER.parents[1]))
    assert isolated["answers"][0]["answer"] == "PASS"
    assert isolated["verdicts"] == whole["verdicts"]
