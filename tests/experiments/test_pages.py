"""Every page under docs/reproduction is what its program writes from the committed JSON, and its claims can fail."""

import json
import math
import random
import re
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from jinja2 import UndefinedError

from darrm.commands.command_line import run
from darrm.privacy import PrivacyParams
from darrm.votes import Votes
from experiments import example_votes
from experiments.__main__ import MODULES
from experiments.__main__ import main as run_experiment
from experiments.aggregators import advice_page, plurality_page
from experiments.drawings import list_corners
from experiments.pages import fill_template, read_claims, read_json
from tests.doors import one_error

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs" / "reproduction"
LOAD_TESTS = sorted(
    f"tests.load.{path.stem}"
    for path in (ROOT / "tests" / "load").glob("*.py")
    if '__name__ == "__main__"' in path.read_text(encoding="utf-8")
)
# page: the command that the list of pages names
PAGES: dict[str, list[str]] = {
    name: command.split()
    for name, command in re.findall(
        r"\(reproduction/(\w+)\.md\).*`python -m ([\w. ]+)`", (ROOT / "docs" / "reproduction.md").read_text("utf-8")
    )
}
NEED_TORCH = {"audits", "fresh", "knowledge_transfer", "opacus"}


def read_page(name: str) -> str:
    return (DOCS / f"{name}.md").read_text(encoding="utf-8")


def run_module(command: list[str], arguments: list[str]) -> int:
    """Run the words after `python -m` with arguments, and return the exit status."""
    if command[-1] in NEED_TORCH:
        pytest.importorskip("torch")
    if command[0] == "experiments":
        return run(lambda: run_experiment([*command[1:], *arguments]))
    return run(lambda: import_module(command[0]).main(arguments))


def read_data(name: str) -> dict[str, Any]:
    """Read the committed JSON files of a page."""
    folder = DOCS / (name.partition("_")[0] if name.startswith("aggregators_") else name)
    return {f"{folder.name}/{path.name}": read_json(path) for path in folder.glob("*.json")}


def write_page(name: str, folder: Path, data: dict[str, Any]) -> str:
    for path, content in data.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(json.dumps(content), encoding="utf-8")
    if run_module(PAGES[name], ["--output", str(folder)]) != 0:
        raise ValueError(f"{name}: no page")
    return (folder / f"{name}.md").read_text(encoding="utf-8")


def change_numbers(data: Any, change: Callable[[Any], Any], names: set[str] | None = None) -> Any:
    """Change every number of plain data, or those somewhere under one of the names."""
    if isinstance(data, dict):
        inner = {name: None if names is None or name in names else names for name in data}
        return {name: change_numbers(value, change, inner[name]) for name, value in data.items()}
    if isinstance(data, list):
        return [change_numbers(value, change, names) for value in data]
    return change(data) if names is None and isinstance(data, bool | int | float) else data


@pytest.mark.parametrize("program", [*(f"experiments {name}" for name in MODULES), *LOAD_TESTS])
def test_a_program_prints_its_help_and_refuses_unknown_options(
    program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with suppress(SystemExit):
        run_module(program.split(), ["--help"])
    assert capsys.readouterr().out.startswith(f"usage: python -m {program} ")
    assert run_module(program.split(), ["--no-such-flag"]) == 2
    one_error("", capsys)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("nothing", "invalid choice: 'nothing'"),
        ("sensitivity --figure 8", "invalid choice"),
        ("sensitivity --figure 2 --jobs 0", "jobs must be"),
        ("sensitivity --output OUT", "holds no results"),
        ("aggregators --recompute --quick", "a short run does not replace"),
        ("pate --recount --output OUT", "holds no *-counts.npz to count again from"),
        ("scaling --sizes x", "--sizes"),
        ("knowledge_transfer --m 2", "1,3,5,7"),
        ("knowledge_transfer --m 3,3", "1,3,5,7"),
        ("knowledge_transfer --recompute --trainings 0 --output OUT", "trainings must be an integer of at least 1"),
        ("knowledge_transfer --output OUT", "holds no results"),
        ("pate_votes --recompute --output OUT", "--votes FOLDER is required"),
    ],
)
def test_bad_arguments_give_one_line(
    arguments: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_module(["experiments"], arguments.replace("OUT", str(tmp_path)).split()) == 2
    one_error(message, capsys)


def test_a_template_refuses_a_missing_name() -> None:
    with pytest.raises(UndefinedError, match="no attribute 'tables'"):
        fill_template("audits", {"holds": {}, "found": {"false": 1}, "number": 1, "nearly": 0.5})


@pytest.mark.parametrize("name", PAGES)
def test_a_page_shows_its_data(name: str, tmp_path: Path) -> None:
    """From other numbers, at most one row in ten with a decimal stays the same."""
    text, data = read_page(name), read_data(name)
    assert write_page(name, tmp_path, data) == text
    assert f"python -m {' '.join(PAGES[name])}" in " ".join(text.split())
    for target in re.findall(r"\]\(([\w-]+/[^)]*)\)", text):
        assert (DOCS / target).exists(), target
    if name == "aggregators":  # it has claims only
        return

    def enlarge(value: Any) -> Any:
        return 1.37 * value + 0.1 if isinstance(value, float) and not value.is_integer() else value

    changed_lines = write_page(name, tmp_path, change_numbers(data, enlarge)).splitlines()
    rows = [line for line in text.splitlines() if re.match(r"\|.*\d\.\d.*\|.*\|$", line) and " yes |" not in line]
    same_rows = [line for line in rows if line in changed_lines and "**no**" not in line]
    assert len(rows) >= 4
    assert len(same_rows) <= 0.1 * len(rows)


def test_every_page_is_listed() -> None:
    assert set(PAGES) == {path.stem for path in DOCS.glob("*.md")}


def test_the_plurality_page_is_what_its_program_writes() -> None:
    page = (ROOT / "docs" / "plurality.md").read_text(encoding="utf-8")
    assert plurality_page.fill_page(DOCS / "aggregators") == page


@pytest.mark.slow
def test_the_advice_page_has_the_output_of_the_command() -> None:
    assert advice_page.fill_page() == (ROOT / "docs" / "which-aggregator.md").read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("aggregators", "--quick"),
        ("audits", "--quick"),
        ("fresh", "--quick --figure digits"),
        ("knowledge_transfer", "--quick --dataset digits --jobs 1 --quiet"),
        ("scaling", "--quick --sizes 7,41"),
        ("sensitivity", "--figure 2 --figure 3"),
        ("simulations", "--figure 2 --figure table3"),
        ("tested", "--quick --figure agreeing"),
    ],
)
def test_a_short_run_writes_its_data_pictures_and_page(
    name: str, arguments: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DARRM_DATA_DIR", raising=False)
    assert run_module(PAGES[name], ["--recompute", *arguments.split(), "--output", str(tmp_path)]) == 0
    suffixes = {path.suffix for path in (tmp_path / name).iterdir()}
    assert suffixes - {".npy", ".npz", ".safetensors", ""} <= {".json", ".png"}
    assert ".png" in suffixes or name == "audits"
    text = (tmp_path / f"{name}.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) > 20
    assert run_module(PAGES[name], ["--output", str(tmp_path)]) == 0
    assert (tmp_path / f"{name}.md").read_text(encoding="utf-8") == text


NUM_CLAIMS = {name: len(read_claims(read_page(name))) for name in PAGES}
DECIDED_BY_RUNS = {"sensitivity", "simulations"}  # test_sensitivity and test_simulations see these claims
SEEN_TO_FAIL = {"aggregators": {0}, "scale": {1}}  # in test_aggregators and tests/load


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in PAGES if NUM_CLAIMS[name] and name not in DECIDED_BY_RUNS])
def test_every_claim_fails_for_some_numbers(name: str, tmp_path: Path) -> None:
    data, failed = read_data(name), set[int]()
    claims = {*range(NUM_CLAIMS[name])} - SEEN_TO_FAIL.get(name, set())
    fields = sorted(set(re.findall(r'"([^"]+)": ', json.dumps(data, ensure_ascii=False))))
    for seed in range(200):
        rng = random.Random(seed)  # noqa: S311 (no secret)

        def change(value: Any, rng: random.Random = rng) -> Any:
            if isinstance(value, bool):
                return rng.random() < 0.5
            return type(value)(value * rng.choice([0.1, 0.7, 1.3, 3.0])) + (rng.random() < 0.1)

        names = {field for field in fields if rng.random() < 0.2}
        with suppress(ArithmeticError, LookupError, ValueError, RuntimeError, StopIteration):  # impossible numbers
            page = write_page(name, tmp_path / str(seed), change_numbers(data, change, names))
            failed |= {place for place, (_, holds, _) in enumerate(read_claims(page)) if not holds}
        if claims <= failed:
            return
    assert claims - failed == set()


def test_the_example_votes_are_what_their_program_writes(tmp_path: Path) -> None:
    assert example_votes.main(["--output", str(tmp_path)]) == 0
    written = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert written == {path.name: path.read_bytes() for path in (ROOT / "examples").glob("*.csv")}
    for name, voters, classes in (("votes", 11, 2), ("teachers", 250, 10)):
        votes = Votes.read(tmp_path / f"{name}.csv", voters=voters, classes=classes)
        assert {int(row.argmax()) for row in votes.counts} == set(range(classes))


@pytest.mark.parametrize(("epsilon", "delta", "count"), [("0.7", "0.1", 8), ("1", "0", 4)])
def test_every_drawn_corner_lies_on_two_borders_of_the_region(epsilon: str, delta: str, count: int) -> None:
    corners = list_corners(PrivacyParams(epsilon, delta))
    growth, slack = math.exp(float(epsilon)), float(delta)
    assert len(corners) == count
    for p, q in corners:
        distances = [growth * q + slack - p, growth * p + slack - q, growth * (1 - q) + slack - (1 - p)]
        distances += [growth * (1 - p) + slack - (1 - q), p, q, 1 - p, 1 - q]
        assert min(distances) > -1e-12
        assert sum(abs(distance) < 1e-12 for distance in distances) >= 2
