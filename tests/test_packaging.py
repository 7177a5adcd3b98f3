"""One version and citation, extras, and the completions of shells."""

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


def test_one_version_and_one_citation_everywhere(capsys: pytest.CaptureFixture[str]) -> None:
    texts = [(ROOT / name).read_text(encoding="utf-8") for name in ("CITATION.cff", "docs/citing.md", "CHANGELOG.md")]
    citation, citing, changes = texts
    cited = dict(re.findall(r'^([\w-]+): "?(.*?)"?$', citation, re.MULTILINE))
    year, month, _ = cited["date-released"].split("-")
    software = citing.partition("@software")[2].partition("\n}")[0]
    entry = dict(re.findall(r"^  (\w+) *= \{+(.*?)\}+,?$", software, re.MULTILINE))
    expected = {"title": cited["title"], "version": PROJECT["version"], "license": PROJECT["license"]}
    expected |= {"year": year, "month": str(int(month))}
    assert {name: entry[name] for name in expected} == expected
    assert (cited["version"], cited["license"]) == (PROJECT["version"], PROJECT["license"])
    assert f"  - name: {PROJECT['authors'][0]['name']}\n" in citation
    (latest, *_) = re.findall(r"^## (.*?):", changes, re.MULTILINE)
    assert latest == f"{PROJECT['version']}, {cited['date-released']}"
    links = set(re.findall(r'url: "([^"]*)"', citation))
    assert links == set(re.findall(r"https://[^)\s]*", (ROOT / "README.md").read_text(encoding="utf-8")))
    assert all(url in citing for url in links)
    assert darrm.__version__ == PROJECT["version"]
    assert front.main(["--version"]) == 0
    assert capsys.readouterr().out == f"darrm {PROJECT['version']}\n"


def test_included_extras_exist_and_dependencies_have_lowest_versions() -> None:
    extras = PROJECT["optional-dependencies"]
    for name in re.findall(r"darrm\[([\w,]+)\]", " ".join(chain.from_iterable(extras.values()))):
        assert set(name.split(",")) <= set(extras)
    for dependency in PROJECT["dependencies"]:  # .ci/wheel installs the lowest versions
        assert re.fullmatch(r"[a-z-]+>=\d+\.\d+(\.\d+)?", dependency)


@pytest.mark.parametrize(
    ("words", "completions"),
    [
        ("a", ["account"]),
        ("optimize --sh", ["--shape"]),
        ("optimize --shape mo", ["monotone"]),
        ("show vo", ["vo"]),  # the shell completes the name of a file
        ("serve start --tab", ["--table"]),
    ],
)
def test_bash_completes_commands_options_and_choices(
    words: str, completions: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COMP_WORDS", f"darrm {words}")
    monkeypatch.setenv("COMP_CWORD", str(len(words.split())))
    monkeypatch.setenv("_DARRM_COMPLETE", "bash_complete")
    assert front.main() == 0
    assert [line.partition(",")[2] for line in capsys.readouterr().out.splitlines()] == completions


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_help_explains_completion(
    shell: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert front.main([]) == 0
    assert 'eval "$(_DARRM_COMPLETE=bash_source darrm)"' in capsys.readouterr().out
    monkeypatch.setenv("_DARRM_COMPLETE", f"{shell}_source")
    assert front.main() == 0
    assert f"_DARRM_COMPLETE={shell}_complete" in capsys.readouterr().out


def test_the_list_of_commands_needs_no_numpy() -> None:
    """A shell asks for completions at every key."""
    code = "import sys, darrm.__main__ as front; front.main([]); sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0
