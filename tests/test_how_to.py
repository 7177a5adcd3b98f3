"""How-to pages and tutorials run as printed, each in a process of its own."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest

from tests.chat_endpoint import chat_endpoint

ROOT = Path(__file__).parent.parent
EXTENSION_POINTS = {"own-gamma", "own-prior", "own-aggregator", "own-teacher", "own-data-set", "own-student"}
PAGES = [
    *sorted((ROOT / "docs" / "how-to").glob("*.md")),
    ROOT / "docs" / "consortium.md",
    ROOT / "docs" / "estimators.md",
]
# replaces the title; a shell block calls the interpreter of the tests
HEAD = (
    "import os, subprocess; shell = lambda t: subprocess.run(['sh', '-ec', os.environ['SHELL_HEAD'] + t], check=True)\n"
)
SHELL_HEAD = 'python() { "$TESTED_PYTHON" -W error "$@"; }\n'


def make_script(page: str) -> str:
    """Return the code of a page as one script; lines of Python keep their numbers."""
    heading, *rest = page.splitlines(keepends=True)
    assert heading.startswith("# "), "a page begins with its title"
    lines, kind, block = [HEAD], "", ""
    for line in rest:
        if not line.startswith("```"):
            lines.append(line if kind == "python" else "\n")
            block += line
            continue
        lines.append(f"shell({block!r})\n" if kind == "sh" else "\n")
        kind, block = "" if kind else line[3:].strip(), ""
        assert kind in {"", "python", "sh", "text"}, f"an untested block: {line}"
    assert not kind, "the last block has no end"
    return "".join(lines)


def run_script(script: Path, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {
        **{name: value for name, value in os.environ.items() if name != "DISPLAY"},  # with one, show() warns
        "PYTHONPATH": str(ROOT),
        "PATH": os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"])),  # where a shell finds darrm
        "MPLBACKEND": "Agg",
        "TESTED_PYTHON": sys.executable,
        "SHELL_HEAD": SHELL_HEAD,
        **variables,
    }
    command = [sys.executable, "-W", "error", str(script)]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_every_extension_point_has_a_page() -> None:
    assert {page.stem for page in PAGES} >= EXTENSION_POINTS


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_runs_as_printed(page: Path, tmp_path: Path) -> None:
    script = tmp_path / "page.py"
    script.write_text(make_script(page.read_text(encoding="utf-8")), encoding="utf-8")
    with chat_endpoint() as variables:
        process = run_script(script, tmp_path, **variables)
    assert process.returncode == 0, process.stderr


@pytest.mark.slow
def test_the_page_about_prompts_calls_an_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    page = (ROOT / "docs" / "how-to" / "prompts.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {}
    exec("".join(re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)[:3]), names)  # noqa: S102 (our page)
    prompts, answer = names["prompts"], names["answer"]
    with chat_endpoint() as variables:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        votes = prompts.votes(["broken and late"], answer, jobs=1, rng=names["rng"])
        monkeypatch.setenv("CHAT_KEY", "another")
        with pytest.raises(HTTPError, match="401") as caught:
            prompts.votes(["broken and late"], answer, jobs=1)
        caught.value.close()
    assert votes.missing is None
    assert votes.counts[0, 0] > 5  # "bad", as in the examples of most prompts


@pytest.mark.parametrize(
    ("blocks", "message"),
    [
        ("```python\n1 / 0\n```\n", "ZeroDivisionError"),
        ("```python\nx = 1\n```\n\n```python\nprint(y)\n```\n", "line 8"),
        ("```sh\npython -c 'raise SystemExit(3)'\necho on\n```\n", "returned non-zero exit status 3"),
        ("```sh\npython -c 'import warnings; warnings.warn(str(7))'\n```\n", "UserWarning: 7"),
    ],
)
def test_a_wrong_page_fails(blocks: str, message: str, tmp_path: Path) -> None:
    script = tmp_path / "page.py"
    script.write_text(make_script("# A page\n\n" + blocks))
    process = run_script(script, tmp_path)
    assert process.returncode != 0
    assert message in process.stderr
    assert "on" not in process.stdout.split()


def test_python_and_shell_share_a_folder_in_the_order_of_the_page(tmp_path: Path) -> None:
    blocks = ("sh\necho 1 > a\n", "python\nfile = open('a')\n", "python\nwith file: print(file.read() * 2)\n")
    page = "# A page\n\n" + "\n".join(f"```{block}```\n" for block in blocks)
    script = tmp_path / "page.py"
    script.write_text(make_script(page))
    assert run_script(script, tmp_path).stdout == "1\n1\n\n"


TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("*.py"))
FIRST_LINES = ("| **For whom:** ", "| **At the end:** ", "| **How long:** ", "| **It needs:** ")
EXTRAS = {"sklearn": "sklearn", "matplotlib": "plot"}  # the extras of imported libraries


@pytest.mark.parametrize("tutorial", TUTORIALS, ids=lambda path: path.stem)
def test_a_tutorial_begins_with_four_lines_and_names_its_extras(tutorial: Path) -> None:
    text = tutorial.read_text(encoding="utf-8")
    _, title, underline, _, *lines = text.splitlines()
    assert underline == "=" * len(title)
    head = [line for line in lines[: lines.index("")] if not line.startswith("  ")]  # continued lines are indented
    assert len(head) == len(FIRST_LINES)
    assert all(line.startswith(first) for line, first in zip(head, FIRST_LINES, strict=True))

    imported = set(re.findall(r"^(?:import|from) (\w+)", text, re.MULTILINE)) - sys.stdlib_module_names
    extras = [EXTRAS[name] for name in EXTRAS if name in imported]
    assert imported - set(EXTRAS) <= {"darrm", "numpy", "scipy"}
    assert f"pip install -e '.[{','.join(extras)}]'" in text


@pytest.mark.slow
@pytest.mark.parametrize("tutorial", TUTORIALS, ids=lambda path: path.stem)
def test_a_tutorial_runs(tutorial: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("TMPDIR", "TEMP", "TMP"):
        monkeypatch.setenv(variable, str(tmp_path))
    process = run_script(tutorial, tmp_path)
    assert process.returncode == 0, process.stderr
    assert process.stdout.count("\n") >= 5
    assert list(tmp_path.iterdir()) == []
