"""Every experiment's door, and every page under docs/reproduction: what its program writes from the committed JSON."""

import importlib
import json
import re
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest

from experiments.aggregators import advice_page, plurality_page
from experiments.pages import fill
from tests.doors import one_error

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs" / "reproduction"
DOORS = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__main__")
    for path in (ROOT / "experiments").rglob("*.py")
    if '__name__ == "__main__"' in path.read_text(encoding="utf-8")
)
PAGES = sorted(path.stem for path in DOCS.glob("*.md"))
NEED_TORCH = {"audits", "knowledge_transfer", "ten_classes"}
# the others are called as their pages are
MODULE_OF = {
    "aggregators_more_classes": "experiments.aggregators",
    "aggregators_two_classes": "experiments.aggregators",
    "commands": "experiments.scaling.commands",
    "composition": "experiments.composition_tables",
    "long_lists": "experiments.scaling.long_lists",
    "releases": "experiments.scaling.release_benchmark",
}


def enter(door: str, arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> object:
    """Start a door as `python -m` does, and return its exit status."""
    if door.rpartition(".")[2] in NEED_TORCH:
        pytest.importorskip("torch")
    monkeypatch.setattr(sys, "argv", [door, *arguments])
    # the module that runs, or runpy warns; a package stays, for others hold its modules
    package = (ROOT / door.replace(".", "/")).is_dir()
    monkeypatch.delitem(sys.modules, f"{door}.__main__" if package else door, raising=False)
    with pytest.raises(SystemExit) as left:
        runpy.run_module(door, run_name="__main__")
    return left.value.code


def test_the_doors_and_the_pages_are_found() -> None:
    assert len(DOORS) >= 11
    assert {"aggregators", "composition", "knowledge_transfer", "pate", "scaling"} < set(PAGES)


@pytest.mark.parametrize("door", DOORS)
def test_a_door_prints_its_help_and_refuses_unknown_flags(
    door: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert enter(door, ["--help"], monkeypatch) in (0, None)
    assert capsys.readouterr().out.startswith(f"usage: python -m {door} ")
    assert enter(door, ["--no-such-flag"], monkeypatch) == 2
    one_error("", capsys)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("door", "arguments", "words"),
    [
        ("pate", "--recompute", "holds no *-counts.npz to count again from"),
        ("knowledge_transfer", "--recompute", "holds no *-votes.npz to count again from"),
        ("sensitivity", "", "one of the arguments --figure --all --page is required"),
        ("sensitivity", "--all --figure 2", "not allowed with"),
        ("sensitivity", "--figure 8", "invalid choice"),
        ("sensitivity", "--figure 2 --jobs 0", "jobs must be"),
        ("simulations", "", "required"),
        ("simulations", "--figure 3", "invalid choice"),
        ("simulations", "--all --figure 2", "not allowed with"),
        ("scaling", "--sizes x", "--sizes"),
        ("scaling", "--shapes round", "shape must be one of free, monotone"),
        ("scaling", "--time-limit -1", "--time-limit"),
        ("scaling.commands", "--before nowhere", "no folder with a package darrm"),
        ("knowledge_transfer", "--m 2", "1,3,5,7"),
        ("knowledge_transfer", "--m 3,3", "1,3,5,7"),
        ("knowledge_transfer", "--dataset cifar", "invalid choice"),
        ("knowledge_transfer", "--trainings 0", "trainings must be an integer of at least 1"),
        ("knowledge_transfer", "--page", "holds no results"),
        ("ten_classes", "--page", "holds no results"),
        ("ten_classes", "--train cifar", "invalid choice"),
        pytest.param("knowledge_transfer", "--device cuda:99", "device must be", marks=pytest.mark.slow),
    ],
)
def test_bad_arguments_give_one_line(
    door: str,
    arguments: str,
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert enter(f"experiments.{door}", [*arguments.split(), "--output", str(tmp_path)], monkeypatch) == 2
    one_error(words, capsys)


def written(name: str, folder: Path, change: Any = lambda value: value) -> str:
    """Let the program write a page from its committed JSON, every float of which may be changed."""
    if name in NEED_TORCH:
        pytest.importorskip("torch")
    data_of = name.partition("_")[0] if name.startswith("aggregators_") else name
    (folder / data_of).mkdir()
    for path in (DOCS / data_of).glob("*.json"):
        data = json.loads(path.read_text(encoding="utf-8"), parse_float=lambda digits: change(float(digits)))
        (folder / data_of / path.name).write_text(json.dumps(data), encoding="utf-8")
    module = MODULE_OF.get(name, f"experiments.{name}.__main__")
    module = f"{module}.__main__" if module == "experiments.aggregators" else module
    assert importlib.import_module(module).main(["--page", "--output", str(folder)]) == 0
    return (folder / f"{name}.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_what_its_program_writes_from_its_data(name: str, tmp_path: Path) -> None:
    text = (DOCS / f"{name}.md").read_text(encoding="utf-8")
    assert written(name, tmp_path) == text
    command = f"python -m {MODULE_OF.get(name, f'experiments.{name}')}"
    assert command in " ".join(text.split())
    summary = (ROOT / "docs" / "reproduction.md").read_text(encoding="utf-8")
    assert any(f"reproduction/{name}.md" in line and f"`{command}`" in line for line in summary.splitlines())
    for picture in re.findall(r"!\[.*\]\((.*)\)", text):
        assert (DOCS / picture).exists()


def test_the_page_about_any_number_of_classes_is_made_from_its_data() -> None:
    assert plurality_page.page(DOCS / "aggregators") == (ROOT / "docs" / "plurality.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_advice_page_is_what_the_command_says_today() -> None:
    assert advice_page.page() == (ROOT / "docs" / "which-aggregator.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{nothing}", "asks for 'nothing', which the data lack"),
        ("{rows.0.x}", "asks for 'rows.0.x', which the data lack"),
        ("@each nothing\n@end", "asks for 'nothing', which the data lack"),
        ("@each rows\n{y}", "'@each rows' must be closed by @end"),
    ],
)
def test_a_template_that_asks_for_what_is_not_there_is_refused(template: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fill(template, {"rows": [{"y": 1}]})


def test_a_template_takes_inner_values_first_and_leaves_blocks_out() -> None:
    text = "@each rows\n@if y\n{name} {y:.1f} {{{x?}}}\n@end\n@unless y\n{it.name}: {y:yes|no}\n@end\n@end\n{y:,}"
    rows = [{"name": "a", "y": 1.25}, {"name": "b", "y": False}]
    assert fill(text, {"y": 1000, "rows": rows}) == "a 1.2 {–}\nb: no\n1,000"


@pytest.mark.parametrize("name", [name for name in PAGES if name != "aggregators"])  # which holds claims only
def test_the_numbers_in_the_tables_are_the_data(name: str, tmp_path: Path) -> None:
    before = (DOCS / f"{name}.md").read_text(encoding="utf-8").splitlines()
    after = written(name, tmp_path, lambda value: value if value.is_integer() else 1.37 * value + 0.1).splitlines()
    rows = [line for line in before if re.match(r"\|.*\d\.\d.*\|.*\|$", line) and " yes |" not in line]
    kept = [line for line in rows if line in after and "**no**" not in line]
    assert len(rows) >= 6
    assert len(kept) <= 0.1 * len(rows)
