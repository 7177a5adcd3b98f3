"""What goes out besides code: one version, metadata, what shells complete, the manual page."""

import re
import shutil
import subprocess
import sys
import tomllib
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

import darrm
from darrm import __main__ as front
from darrm.system.command_line import run

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


def completed(words: list[str], folder: Path) -> list[str]:
    """What bash offers for the last of these words."""
    (folder / "script").write_text(front.completion("bash"), encoding="utf-8")
    asked = f"COMP_WORDS=({' '.join(words)} ''); COMP_CWORD={len(words) - 1}; set +u"
    call = '$(complete -p darrm | sed "s/.*-F \\([^ ]*\\) .*/\\1/"); printf "%s\\n" "${COMPREPLY[@]}"'
    done = subprocess.run(
        ["bash", "--norc", "-c", f". ./script; {asked}; {call}"],  # noqa: S607 (the shell that is asked about)
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split()


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash to ask")
def test_bash_completes_commands_flags_choices_and_files(tmp_path: Path) -> None:
    assert set(completed(["darrm", "'a'"], tmp_path)) == {"advise", "account"}
    assert completed(["darrm", "optimize", "--sh"], tmp_path) == ["--shape"]
    assert set(completed(["darrm", "optimize", "--shape", "''"], tmp_path)) == {"free", "monotone"}
    (tmp_path / "votes.csv").touch()
    assert completed(["darrm", "release", "file", "--table", "vo"], tmp_path) == ["votes.csv"]


@pytest.mark.parametrize("shell", front.SHELLS)
def test_every_shell_knows_every_flag(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert front.main(["--print-completion", shell]) == 0
    script = capsys.readouterr().out
    assert set(front.DOORS) <= set(re.findall(r"[a-z]+", script))
    for name in front.DOORS if shell != "tcsh" else ():  # tcsh knows no flags of commands
        parser = import_module(f"darrm.{name}.__main__").build_parser()
        flags = {flag.lstrip("-") for action in front.actions_of(parser) for flag in action.option_strings}
        assert {flag for flag in flags if flag not in script} == set()


@pytest.mark.parametrize("words", [[], ["csh"], ["Bash"]])
def test_an_unknown_shell_is_one_line(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert front.main(["--print-completion", *words]) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: --print-completion must be one of bash, zsh, ")
    assert said.count("\n") == 1


def test_completion_says_what_it_needs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert run(lambda: front.start(["--print-completion", "bash"])) == 2
    assert "pip install 'darrm[completion]'" in capsys.readouterr().err


@pytest.mark.slow
def test_the_manual_page_has_every_command(tmp_path: Path) -> None:
    page = tmp_path / "darrm.1"
    recipe = next(line for line in (ROOT / "Makefile").read_text(encoding="utf-8").splitlines() if "-manpage " in line)
    words = recipe.strip().removeprefix("$(BIN)/argparse-manpage").split()
    program = Path(sys.executable).with_name("argparse-manpage")
    if not program.exists():
        pytest.skip("argparse-manpage is not installed")
    words[words.index("--output") + 1] = str(page)
    subprocess.run([str(program), *words], check=True, cwd=ROOT)
    text = page.read_text(encoding="utf-8").replace("\\-", "-")
    for name in front.DOORS:
        assert f"COMMAND \\fI\\,'darrm {name}'" in text
    for flag in ("--overlap", "--create-budget", "--sigma1", "--attack"):
        assert flag in text
