"""The README and the pages that continue it run as printed in a fresh copy, and its links and figures hold."""

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from darrm import PrivacyParams, Problem, Voters, Workload, certify, optimize_table
from darrm.majority import baselines
from darrm.plan import plan
from darrm.plan.planner import find_mechanism
from darrm.priors import Independent
from darrm.privacy import at_most
from darrm.table.library import available_sizes, available_tables, paper_settings
from experiments.knowledge_transfer import __main__ as knowledge_transfer
from experiments.pages import read_json
from experiments.pate import __main__ as pate

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PAGES = ("noise-functions", "releases", "pate", "sensitivity-sampler")  # no block of theirs needs an extra, or hours
NOT_COPIED = (".git", ".venv", "build", "dist", "results", "__pycache__", "*.egg-info", ".*_cache", ".hypothesis")
# A Python session that reads the names of files with blocks, and prints a line after each block.
SESSION = """\
import sys
names = {"__name__": "__main__"}
for line in sys.stdin:
    path = line.rstrip()
    exec(compile(open(path, encoding="utf-8").read(), path, "exec"), names)
    print("\\nBLOCK DONE", flush=True)
"""
DONE = "BLOCK DONE\n"


@dataclass(frozen=True)
class Session:
    process: subprocess.Popen[str]

    def run(self, line: str) -> str:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        printed: list[str] = []
        for text in self.process.stdout:
            if text == DONE:
                return "".join(printed)
            printed.append(text)
        raise AssertionError("".join(printed))  # the session ended: the block failed


def start_session(command: list[str], folder: Path) -> Session:
    hidden = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=environment | {"PYTHON": sys.executable},  # make creates .venv with it
        text=True,
        encoding="utf-8",
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    return Session(process)


def run_blocks(text: str, folder: Path, *, python: str) -> list[str]:
    """Run all sh blocks in one shell and all python blocks in one Python, in order; return their outputs.

    Python starts in the folder where the shell is then.
    """
    outputs: list[str] = []
    sessions: dict[str, Session] = {}
    where = folder.parent / "where"
    try:
        for number, (kind, block) in enumerate(BLOCK.findall(text)):
            if kind not in {"sh", "python"}:
                continue
            path = folder.parent / f"block-{number}"
            path.write_text(block, encoding="utf-8")
            if kind not in sessions:
                command = ["sh"] if kind == "sh" else [python, "-c", SESSION]
                sessions[kind] = start_session(command, Path(where.read_text().strip()) if where.exists() else folder)
            dot = f"set -e; . {path} </dev/null; set +e; pwd >{where}; printf '\\n{DONE[:-1]}\\n'"
            outputs.append(sessions[kind].run(dot if kind == "sh" else str(path)))
    finally:
        for session in sessions.values():
            session.process.communicate()
    return outputs


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "clone"
    path.mkdir()
    return path


@pytest.mark.slow
def test_every_block_runs_as_printed(folder: Path) -> None:
    shutil.copytree(ROOT, folder, ignore=shutil.ignore_patterns(*NOT_COPIED), dirs_exist_ok=True)
    pages = [
        (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8") for page in ("index", *PAGES) if page != "releases"
    ]
    text = "\n".join([README, *pages])  # a reader continues in this folder; the page about releases makes its own
    outputs = run_blocks(text, folder, python=str(folder / ".venv" / "bin" / "python"))
    assert len(outputs) == len([kind for kind, _ in BLOCK.findall(text) if kind in {"sh", "python"}])
    assert (folder / "report.html").is_file()
    assert len((folder / "labels.csv").read_text().split()) == 20
    assert len((folder / "answers.csv").read_text().split()) == 500
    warnings = [line for text in outputs for line in text.splitlines() if line.startswith(("warning:", "error:"))]
    assert warnings == []


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_every_block_of_a_page_runs_as_printed(page: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("darrm", "lp_models", "examples"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns(*NOT_COPIED))
    programs = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    monkeypatch.setenv("PATH", programs)  # with this python
    monkeypatch.setenv("TMPDIR", str(folder.parent))
    text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    outputs = run_blocks(text, folder, python=sys.executable)
    assert len(outputs) == text.count("\n```sh\n") + text.count("\n```python\n") > 0


@pytest.mark.parametrize("block", ["false\ntrue\n", "no-such-command\ntrue\n", "exit 2\n"])
def test_a_shell_block_that_fails_stops_the_run(block: str, folder: Path) -> None:
    with pytest.raises(AssertionError):
        run_blocks(f"```sh\n{block}```\n```sh\ntrue\n```\n", folder, python=sys.executable)


def test_sessions_remember_and_a_python_block_that_fails_stops_the_run(folder: Path) -> None:
    blocks = "```sh\nhere=5\n```\n```python\nx = 3\n```\n```sh\necho $here\n```\n```python\nprint(x)\n```\n"
    outputs = run_blocks(blocks, folder, python=sys.executable)
    assert [text.split() for text in outputs] == [[], [], ["5"], ["3"]]
    with pytest.raises(AssertionError, match="NameError"):
        run_blocks("```python\nprint(y)\n```\n", folder, python=sys.executable)


def test_python_is_started_where_the_shell_is(folder: Path) -> None:
    moved = "```sh\nmkdir own\ncd own\n```\n```python\nfrom pathlib import Path\nprint(Path.cwd().name)\n```\n"
    assert run_blocks(moved, folder, python=sys.executable)[1].split() == ["own"]


def test_long_commands_of_the_reproduction_page_are_parsed() -> None:
    page = (ROOT / "docs" / "reproduction.md").read_text(encoding="utf-8")
    (block,) = (block for kind, block in BLOCK.findall(page) if kind == "sh long")
    install, *commands = block.splitlines()
    assert install == 'pip install -e ".[experiments]"'
    parsers = {"knowledge_transfer": knowledge_transfer._make_parser(), "pate": pate._make_parser()}
    for command in commands:
        python, flag, module, name, *words = command.split()
        assert (python, flag, module) == ("python", "-m", "experiments")
        assert parsers[name].parse_args(words).page is False


def test_the_readme_is_short_with_tested_blocks_and_existing_links() -> None:
    assert len(README.splitlines()) <= 120
    assert {kind for kind, _ in BLOCK.findall(README)} <= {"sh", "python"}
    links = [link for link in re.findall(r"\]\(([^)\s]+)\)", README) if not link.startswith("https://")]
    assert len(links) >= 15
    assert [link for link in links if not (ROOT / link).exists()] == []


@pytest.mark.slow
def test_the_readme_states_the_accuracy_for_a_larger_budget() -> None:
    match = re.search(r"At \((\S+), (\S+)\) its labels are the majority with a probability above ([\d.]+)\.", README)
    assert match is not None
    voters = Voters(11, PrivacyParams("0.1", "1e-5"))
    result = plan(Workload(voters, 20, PrivacyParams(match[1], match[2])), mechanisms=[find_mechanism("optimal")])
    assert result.best.accuracy > float(match[3])


def test_the_readme_states_the_gain_over_simple_rules() -> None:
    match = re.search(
        r"At m = 3, (\S+) of 100 labels are wrong instead of (\S+) with the best constant γ \((\S+) by subsampling\); "
        r"at m = 5, (\S+)\sinstead of ([\d.]+): .* the same γ is wrong in (\S+) of 100 and the constant in ([\d.]+):\s"
        r"`--prior uniform` .* wrong in ([\d.]+)\.",
        README,
        re.DOTALL,
    )
    assert match is not None
    leaning, even = Independent(0.5, 1), Independent()
    gammas, problems = [], [Problem.from_allowance(Voters(11, PrivacyParams("0.1", "1e-5")), m) for m in (3, 5)]
    for problem in problems:
        rules = [certify(problem, rule(problem)) for rule in (baselines.truth, baselines.subsampling)]
        gammas += [table.gamma for table in (optimize_table(problem), *rules)]
    true = optimize_table(problems[0], prior=even, rng=np.random.default_rng(0)).gamma
    right = [
        *(gamma.accuracy(leaning) for gamma in gammas[:5]),
        *(gamma.accuracy(even) for gamma in (gammas[0], gammas[1], true)),
    ]
    assert list(match.groups()) == [f"{100.0 * (1.0 - share):.3g}" for share in right if share is not None]


def test_the_readme_counts_the_packaged_tables() -> None:
    match = re.search(r"one of ([\d,]+) tables that need no solver", README)
    assert match is not None
    count = sum(len(available_tables(K)) for K in available_sizes()) + len(paper_settings())
    assert match[1] == f"{count:,}"


def test_the_readme_states_the_cost_of_the_votes_of_the_paper() -> None:
    match = re.search(
        r"budget\s(\S+), 1e-5\), fixed beforehand, .* The paper's ε of (\S+) is computed from", README, re.DOTALL
    )
    mnist, *_ = read_json(ROOT / "docs" / "reproduction" / "pate_votes" / "pate_votes.json")
    assert match is not None
    assert match.groups() == (f"({at_most(mnist['tested'], 3)}", f"{mnist['printed']['epsilon']:.2f}")
