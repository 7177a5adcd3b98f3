"""Plant fifteen bugs, one at a time, and see that the quick tests catch them: ``python -m tests.planted``.

Each is planted in a copy of the checkout, where the tests of its rooms run first and then, if they pass, all quick.
The exit status is the number of bugs that nothing catches. Each bug is a piece of text that stands exactly once in its
file, so that none can vanish unnoticed: `test_planted.py` looks, and whoever changes such a line plants the bug anew.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
NOT_COPIED = shutil.ignore_patterns(".*", "build", "dist", "results", "__pycache__", "*.egg-info", "gallery")
QUICK = ("-q", "-x", "-m", "not slow", "-p", "no:cacheprovider", "--tb=no", "-n", "auto", "--dist", "worksteal")


@dataclass(frozen=True)
class Edit:
    """A file, a piece of it, and what a mistake would write there."""

    path: str
    right: str
    wrong: str

    def count(self) -> int:
        """Count where the piece stands; anything but 1 means that the code has changed."""
        return (ROOT / self.path).read_text(encoding="utf-8").count(self.right)


@dataclass(frozen=True)
class Plant:
    """A bug: its name, what it changes, and the tests that are asked first."""

    name: str
    edits: tuple[Edit, ...]
    tests: tuple[str, ...]


def plant(name: str, path: str, right: str, wrong: str, *tests: str) -> Plant:
    """Name a bug of one piece."""
    return Plant(name, (Edit(path, right, wrong),), tests)


PLANTS = (
    plant(
        "adaptive delta of models not split by 4",
        "darrm/account/accountant.py",
        "\n_WAYS = 4 ",
        "\n_WAYS = 1 ",
        "tests/account",
    ),
    plant(
        "the filter's slack is delta, not delta/2",
        "darrm/account/bounds.py",
        "filter_epsilon(groups, delta / 2.0)",
        "filter_epsilon(groups, delta)",
        "tests/account",
    ),
    plant(
        "a ledger admits one debit more",
        "darrm/account/accountant.py",
        "if not self._fits(total):",
        "if not self._fits(account):",
        "tests/account",
    ),
    plant(
        "loss masses on the wrong side of a kink",
        "darrm/account/pld.py",
        "losses[np.array(kept[1:]) - 1]",
        "losses[np.maximum(np.array(kept[1:]) - 2, 0)]",
        "tests/account",
    ),
    plant(
        "overlap 1 for models in plan",
        "darrm/plan/budget.py",
        "1 if one_by_one else voters.overlap",
        "1",
        "tests/plan",
    ),
    plant(
        "ties lost from the share right",
        "darrm/plan/share_right.py",
        "np.sum(law(counts) * (counts == counts[:, :1]), axis=1)",
        "law(counts)[:, 0]",
        "tests/plan",
        "tests/advise",
    ),
    plant(
        "epsilon of a private query not capped at K epsilon",
        "darrm/plan/per_query.py",
        "min(total, voters.K * voters.each.exact_epsilon) if voters.each.is_private else total",
        "total",
        "tests/plan",
    ),
    plant(
        "ties of GNMax not shared in advise",
        "darrm/advise/noisy_counts.py",
        "0.5 * (exceeds[lead] + exceeds[lead + 1])",
        "exceeds[lead + 1]",
        "tests/advise",
    ),
    Plant(
        "the check of Confident-GNMax at half its cost",
        (
            Edit("darrm/pate/confident.py", "(2.0 * self.sigma**2)", "(4.0 * self.sigma**2)"),
            Edit(
                "darrm/pate/confident.py",
                "threshold_curve(DiscreteGaussian(self.sigma))",
                "threshold_curve(DiscreteGaussian(self.sigma * 2**0.5))",
            ),
        ),
        ("tests/pate",),
    ),
    plant(
        "a noisy maximum's reach compared the wrong way",
        "darrm/mechanisms/noisy_maximum.py",
        "self.mechanism.reached < self.voters.reached",
        "self.mechanism.reached > self.voters.reached",
        "tests/mechanisms",
    ),
    plant(
        "a certificate accepts 1e-6 above the budget",
        "darrm/proof/certify.py",
        "if worst_cost > budget:",
        "if worst_cost > budget + 1e-6:",
        "tests/proof",
    ),
    Plant(
        "the curvature bound halved",
        tuple(
            Edit(f"darrm/proof/{name}.py", f"{square} / 8.0\n", f"{square} / 16.0\n")
            for name, square in (("near_shifts", "n_1**2)"), ("compiled", "n_1 * n_1)"))
        ),
        ("tests/proof",),
    ),
    plant(
        "the rounding of the dominating family dropped",
        "darrm/proof/dominating.py",
        "return (1.0 + ratio.value) * (one_term + STEP_ERROR) + ratio.error",
        "return 0.0",
        "tests/proof",
    ),
    plant(
        "a shard's digest without its key",
        "darrm/estimators/shards.py",
        ", key=key, digest_size=8",
        ", digest_size=8",
        "tests/estimators",
    ),
    plant(
        "mixed with C times a random answer",
        "darrm/laws/plurality_law.py",
        "uniform = part / self.classes",
        "uniform = part",
        "tests/laws",
        "tests/mechanisms",
        "tests/optimize",
    ),
)


@contextmanager
def planted(folder: Path, bug: Plant) -> Iterator[None]:
    """Plant a bug in a copy of the checkout, and take it out again."""
    texts = {edit.path: (folder / edit.path).read_text(encoding="utf-8") for edit in bug.edits}
    for edit in bug.edits:
        path = folder / edit.path
        path.write_text(path.read_text(encoding="utf-8").replace(edit.right, edit.wrong), encoding="utf-8")
    try:
        yield
    finally:
        for name, text in texts.items():
            (folder / name).write_text(text, encoding="utf-8")


def failure(folder: Path, *tests: str) -> str | None:
    """Run quick tests in a copy until one fails, and name it; None if all pass."""
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *QUICK, *tests],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    if failed:
        return failed[0].partition(" ")[2].partition(" - ")[0]
    if done.returncode:
        raise RuntimeError(f"the tests did not run: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    return None


def main() -> int:
    """Plant the bugs whose names contain the words given, by default all."""
    parser = argparse.ArgumentParser(prog="python -m tests.planted", description=__doc__.split("\n\n")[0])
    parser.add_argument("words", nargs="*", help="only bugs whose name contains one of these")
    parser.add_argument("--rooms-only", action="store_true", help="only the tests of the bug's rooms")
    options = parser.parse_args()
    chosen = [bug for bug in PLANTS if not options.words or any(word in bug.name for word in options.words)]
    survived = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "copy"
        shutil.copytree(ROOT, folder, ignore=NOT_COPIED)
        for bug in chosen:
            moved = [edit.path for edit in bug.edits if edit.count() != 1]
            if moved:
                print(f"not planted: {bug.name}: its text is not once in {', '.join(moved)}", flush=True)  # noqa: T201
                survived += 1
                continue
            with planted(folder, bug):
                by = failure(folder, *bug.tests) or (None if options.rooms_only else failure(folder))
            survived += by is None
            print(f"{'SURVIVED' if by is None else 'caught'}: {bug.name}{f': {by}' if by else ''}", flush=True)  # noqa: T201
    print(f"{len(chosen) - survived} of {len(chosen)} caught")  # noqa: T201
    return survived


if __name__ == "__main__":
    sys.exit(main())
