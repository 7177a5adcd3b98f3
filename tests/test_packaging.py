"""What goes out besides code: one version, metadata, what shells complete."""

import os
import re
import subprocess
import sys
import tomllib
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

import darrm
from darrm import __main__ as front

ROOT = Path(__file__).parent.parent
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_one_version_everywhere(capsys: pytest.CaptureFixture[str]) -> None:
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert re.findall(r"^version: (.*)$", citation, re.MULTILINE) == [PROJECT["version"]]
    citing, changes = ((ROOT / name).read_text(encoding="utf-8") for name in ("docs/citing.md", "CHANGELOG.md"))
    (day,) = re.findall(r"^date-released: (.*)$", citation, re.MULTILINE)
    year, month, _ = day.split("-")
    for entry in (f"version = {{{PROJECT['version']}}}", f"year    = {{{year}}}", f"month   = {{{int(month)}}}"):
        assert entry in citing
    assert re.search(r"^## (.*?):", changes, re.MULTILINE).group(1) == f"{PROJECT['version']}, {day}"  # type: ignore[union-attr]
    assert darrm.__version__ == PROJECT["version"]
    assert front.main(["--version"]) == 0
    assert capsys.readouterr().out == f"darrm {PROJECT['version']}\n"


def test_the_citation_is_of_this_project() -> None:
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    (author,) = PROJECT["authors"]
    assert f"  - name: {author['name']}\n" in citation
    assert f"license: {PROJECT['license']}\n" in citation
    links = set(re.findall(r'url: "([^"]*)"', citation))
    assert links == set(re.findall(r"https://[^)\s]*", (ROOT / "README.md").read_text(encoding="utf-8")))


def test_every_extra_that_dev_needs_is_there_and_every_lowest_version_is_one() -> None:
    extras = PROJECT["optional-dependencies"]
    for name in re.findall(r"darrm\[([\w,]+)\]", " ".join(chain.from_iterable(extras.values()))):
        assert set(name.split(",")) <= set(extras)
    for dependency in PROJECT["dependencies"]:  # what .ci/wheel turns into the lowest versions
        assert re.fullmatch(r"[a-z-]+>=\d+\.\d+(\.\d+)?", dependency)


def completed(words: list[str], shell: str = "bash") -> list[str]:
    asked = {"COMP_WORDS": " ".join(words), "COMP_CWORD": str(len(words) - 1), "_DARRM_COMPLETE": f"{shell}_complete"}
    done = subprocess.run(
        [sys.executable, "-m", "darrm"], env={**os.environ, **asked}, capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    return [line.partition(",")[2] for line in done.stdout.splitlines()]


def test_bash_completes_commands_options_and_choices() -> None:
    assert set(completed(["darrm", "a"])) == {"account"}
    assert completed(["darrm", "optimize", "--sh"]) == ["--shape"]
    assert completed(["darrm", "optimize", "--shape", "mo"]) == ["monotone"]
    assert completed(["darrm", "show", "vo"]) == ["vo"]  # the shell completes the name of a file
    assert completed(["darrm", "serve", "start", "--tab"]) == ["--table"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_help_says_how_a_shell_completes(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert front.main([]) == 0
    assert 'eval "$(_DARRM_COMPLETE=bash_source darrm)"' in capsys.readouterr().out
    done = subprocess.run(
        [sys.executable, "-m", "darrm"],
        env={**os.environ, "_DARRM_COMPLETE": f"{shell}_source"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert f"_DARRM_COMPLETE={shell}_complete" in done.stdout


def test_the_list_of_commands_needs_no_numpy() -> None:
    """A shell asks for completions at every key."""
    code = "import sys, darrm.__main__ as front; front.main([]); sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0
