"""Each tutorial runs by itself, in an interpreter and a folder of its own, without a warning, and leaves nothing."""

import re
import sys
from pathlib import Path

import pytest

from tests.test_how_to import ROOT, run_script

TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("*.py"))
FIRST_LINES = ("| **For whom:** ", "| **At the end:** ", "| **How long:** ", "| **It needs:** ")
EXTRAS = {"sklearn": "sklearn", "matplotlib": "plot"}  # the extra that brings what a tutorial imports


def test_there_are_six() -> None:
    assert len(TUTORIALS) == 6


@pytest.mark.parametrize("tutorial", TUTORIALS, ids=lambda path: path.stem)
def test_a_tutorial_begins_with_four_lines(tutorial: Path) -> None:
    _, title, underline, _, *text = tutorial.read_text(encoding="utf-8").splitlines()
    assert underline == "=" * len(title)
    head = [line for line in text[: text.index("")] if not line.startswith("  ")]  # one that goes on is indented
    assert len(head) == len(FIRST_LINES)
    assert all(line.startswith(first) for line, first in zip(head, FIRST_LINES, strict=True))


@pytest.mark.parametrize("tutorial", TUTORIALS, ids=lambda path: path.stem)
def test_a_tutorial_names_the_extras_that_it_needs(tutorial: Path) -> None:
    text = tutorial.read_text(encoding="utf-8")
    imported = set(re.findall(r"^(?:import|from) (\w+)", text, re.MULTILINE)) - sys.stdlib_module_names
    needed = [EXTRAS[name] for name in EXTRAS if name in imported]
    assert imported - set(EXTRAS) <= {"darrm", "numpy", "scipy"}
    assert f"pip install -e '.[{','.join(needed)}]'" in text


@pytest.mark.slow
@pytest.mark.parametrize("tutorial", TUTORIALS, ids=lambda path: path.stem)
def test_a_tutorial_runs(tutorial: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("TMPDIR", "TEMP", "TMP"):
        monkeypatch.setenv(variable, str(tmp_path))
    found = run_script(tutorial, tmp_path)
    assert found.returncode == 0, found.stderr
    assert found.stdout.count("\n") >= 5
    assert list(tmp_path.iterdir()) == []
