"""Plant bugs, one at a time, and check that the quick tests catch them: ``python -m tests.planted``.

The program plants each bug in a copy of the checkout. It runs the bug's own tests first and, if they pass, all quick
tests. The exit status is the number of bugs that no test catches. Each bug replaces a text that occurs exactly once in
darrm; `test_planted.py` checks this. If you change such a line, update the bug.
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

import pytest

ROOT = Path(__file__).parent.parent
NOT_COPIED = shutil.ignore_patterns(
    ".git", ".venv", ".*cache", ".hypothesis", "build", "dist", "results", "__pycache__", "*.egg-info", "gallery"
)
QUICK = ("-q", "-x", "-m", "not slow", "-p", "no:cacheprovider", "--tb=no", "-n", "auto", "--dist", "worksteal")


@dataclass(frozen=True)
class Edit:
    """A text that occurs once in darrm, and its wrong replacement."""

    right: str
    wrong: str

    def places(self, root: Path = ROOT) -> list[Path]:
        """List the file of each occurrence; unless there is exactly one, the code has changed."""
        texts = {path: path.read_text(encoding="utf-8") for path in sorted((root / "darrm").rglob("*.py"))}
        return [path for path, text in texts.items() for _ in range(text.count(self.right))]


@dataclass(frozen=True)
class Plant:
    """A bug: its name, its edits, and the tests to run first."""

    name: str
    edits: tuple[Edit, ...]
    tests: tuple[str, ...]


def plant(name: str, right: str, wrong: str, *tests: str) -> Plant:
    return Plant(name, (Edit(right, wrong),), tests)


PLANTED_BUGS = (
    plant(
        "adaptive delta of models not split by 4",
        "\n_WAYS = 4 ",
        "\n_WAYS = 1 ",
        "tests/account",
    ),
    plant(
        "the filter's slack is delta, not delta/2",
        "float(whole - aside), confessing",
        "float(whole), confessing",
        "tests/account",
    ),
    plant(
        "a ledger admits one debit more",
        "if not self._fits(total):",
        "if not self._fits(account):",
        "tests/ledger",
    ),
    plant(
        "loss masses on the wrong side of a kink",
        "losses[np.array(kept[1:]) - 1]",
        "losses[np.maximum(np.array(kept[1:]) - 2, 0)]",
        "tests/account",
    ),
    plant(
        "overlap 1 for models in plan",
        "1 if one_by_one else voters.overlap",
        "1",
        "tests/plan",
    ),
    plant(
        "ties lost from the share right",
        "counts == counts[:, :1], 3 if",
        "np.broadcast_to(np.arange(classes) == 0, counts.shape), 3 if",
        "tests/plan",
    ),
    plant(
        "epsilon of a private query not capped at K epsilon",
        "min(total, voters.K * voters.each.exact_epsilon) if voters.each.is_private else total",
        "total",
        "tests/plan",
    ),
    plant(
        "ties of GNMax not shared in a plan",
        "np.interp(shifted, ends, total)",
        "total[np.clip(np.floor(shifted).astype(int) - first + 1, 0, mass.size)]",
        "tests/noisy_max",
        "tests/plan",
    ),
    plant(
        "noise tabulated to a quarter of its depth",
        "<= -exponent - 1e-9",
        "<= -exponent / 4.0 - 1e-9",
        "tests/noisy_max",
    ),
    Plant(
        "the check of Confident-GNMax at half its cost",
        (
            Edit("dtype=np.float64) / (2.0 * self.sigma**2)", "dtype=np.float64) / (4.0 * self.sigma**2)"),
            Edit(
                "threshold_curve(DiscreteGaussian(self.sigma))",
                "threshold_curve(DiscreteGaussian(self.sigma * 2**0.5))",
            ),
        ),
        ("tests/pate",),
    ),
    plant(
        "one vote changes the chance of a wrong label half as far",
        "np.interp(kappa, np.arange(tails.size), tails), 2 * _SUBDIVISIONS",
        "np.interp(kappa, np.arange(tails.size), tails), _SUBDIVISIONS",
        "tests/noisy_max",
        "tests/pate",
    ),
    plant(
        "the exponential mechanism at votes that are not the worst",
        "power / np.expm1(power * epsilon)) / orders, 1e-300, 1.0)",
        "power / np.expm1(power * epsilon)) / orders / 2.0, 1e-300, 1.0)",
        "tests/noisy_max",
    ),
    plant(
        "a threshold for one moved vote",
        "min(1.0, moved * (float(np.max(per_vote))",
        "min(1.0, (float(np.max(per_vote))",
        "tests/noisy_max",
    ),
    plant(
        "a block of places bounded at one corner",
        "(a + b + np.maximum(lower_end, upper_end))",
        "(a + b + np.minimum(lower_end, upper_end))",
        "tests/noisy_max",
    ),
    plant(
        "classes far behind cost nothing",
        "np.logaddexp(sums, event_bound)",
        "(sums + 0.0 * np.isfinite(event_bound))",
        "tests/noisy_max",
    ),
    plant(
        "a budget test that looks at one direction",
        "self.holds(chances, upper, cost) & self.holds(upper, chances, cost)",
        "self.holds(chances, upper, cost)",
        "tests/pate",
    ),
    plant(
        "Theorem 6 beyond its largest order",
        "np.where(allowed, mu * (1.0 - _CONDITION_MARGIN), 0.0)",
        "np.where(allowed, 2.0 * mu, 0.0)",
        "tests/pate",
    ),
    plant(
        "marks of the scale of votes too close",
        "float(np.interp(total / self.answers, *self.bound.after_one_vote))",
        "(0.9 * total / self.answers + 0.1 * float(np.interp(total / self.answers, *self.bound.after_one_vote)))",
        "tests/pate",
    ),
    plant(
        "the joint bound divides by R twice",
        "ratio = math.expm1(x) / divergence\n",
        "ratio = math.expm1(x) / divergence**2\n",
        "tests/loss",
    ),
    plant(
        "a noisy maximum's reach compared the wrong way",
        "self.mechanism.reached < self.voters.reached",
        "self.mechanism.reached > self.voters.reached",
        "tests/noisy_max",
    ),
    plant(
        "a certificate accepts 1e-6 above the budget",
        "if worst_cost > budget:",
        "if worst_cost > budget + 1e-6:",
        "tests/majority",
    ),
    Plant(
        "the curvature bound halved",
        tuple(Edit(f"{square} / 8.0\n", f"{square} / 16.0\n") for square in ("n_1**2)", "n_1 * n_1)")),
        ("tests/majority",),
    ),
    plant(
        "the rounding of the dominating family dropped",
        "8) + 2.0 * TAIL\n        return (1.0 + exp_epsilon.value) * (one_term + STEP_ERROR) + exp_epsilon.error",
        "8) + 2.0 * TAIL\n        return 0.0 * one_term",
        "tests/majority",
    ),
    plant(
        "a shard's digest without its key",
        ", key=key, digest_size=8",
        ", digest_size=8",
        "tests/estimators",
    ),
    plant(
        "mixed with C times a random answer",
        "/ ONE + random * u for w, u",
        "/ ONE + random * self.classes * u for w, u",
        "tests/majority",
        "tests/noisy_max",
        "tests/optimize",
    ),
    # one bug for each theorem of the proofs
    plant(
        "the closed form without delta at the tie",
        "lies = [(1.0 - delta) * shrink / (1.0 + shrink)",
        "lies = [shrink / (1.0 + shrink)",
        "tests/majority/test_closed_form.py",
    ),
    plant(
        "cells of moves bounded by a quarter of the curvature",
        "+ curvature * squares",
        "+ 0.25 * curvature * squares",
        "tests/majority/test_full_set.py",
    ),
    plant(
        "moves near 1 take the place of those near 0",
        "= self.zeros, self.moved_ones_prime, self.moved_zeros_prime",
        "= self.zeros, self.moved_zeros_prime, self.moved_ones_prime",
        "tests/majority/test_full_set.py",
    ),
    plant(
        "the bound on the error adds what it must subtract",
        "enclose_budget(problem.target) * total - cut_mass + gain)",
        "enclose_budget(problem.target) * total - cut_mass - gain)",
        "tests/table/test_optimality.py",
    ),
    plant(
        "another power in the sums of the Renyi divergence",
        "start + block_size, None, None] - 1.0) * ratios",
        "start + block_size, None, None] - 0.9) * ratios",
        "tests/majority/test_groups.py",
    ),
    plant(
        "open-set answers without the event of no answer",
        "max(0.0, excess, deficit + 1.0 - ratio) + margin",
        "max(0.0, excess) + margin",
        "tests/open_set",
    ),
    plant(
        "a sample of voters never fails",
        "failure_probability = float(1 - (1 - problem.voters.each.exact_delta) ** reached)",
        "failure_probability = 0.0 * reached",
        "tests/plurality",
    ),
    plant(
        "multipliers of pairs count half",
        "return largest\n\n    def to_list",
        "return largest / 2\n\n    def to_list",
        "tests/plurality",
    ),
    plant(
        "one string grows without delta in its second branch",
        ".min(1 - (1 - previous_bound - delta) / ratio)",
        ".min(1 - (1 - previous_bound) / ratio)",
        "darrm/plurality/accuracy_bound.py",
    ),
    plant(
        "winners that tie count as close classes in theorem 3",
        "np.where(has_one_winner, 1.0 / num_close, 1.0)",
        "1.0 / num_close",
        "tests/plurality/test_accuracy_bound.py",
    ),
)


@contextmanager
def plant_bug(folder: Path, bug: Plant) -> Iterator[None]:
    originals: dict[Path, str] = {}
    for edit in bug.edits:
        (path,) = edit.places(folder)
        text = path.read_text(encoding="utf-8")
        originals.setdefault(path, text)
        path.write_text(text.replace(edit.right, edit.wrong), encoding="utf-8")
    try:
        yield
    finally:
        for path, text in originals.items():
            path.write_text(text, encoding="utf-8")


def find_failure(folder: Path, *tests: str) -> str | None:
    """Run quick tests in a copy; return the first that fails, "the time limit" if they hang, or None."""
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    try:
        process = subprocess.run(
            [sys.executable, "-m", "pytest", *QUICK, *tests],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=900,
        )
    except subprocess.TimeoutExpired:
        return "the time limit"
    failed = [line for line in process.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    if failed:
        return failed[0].partition(" ")[2].partition(" - ")[0]
    if process.returncode not in {0, pytest.ExitCode.NO_TESTS_COLLECTED}:
        raise RuntimeError(f"the tests did not run: {process.stdout[-2000:]}{process.stderr[-2000:]}")
    return None


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.planted", description=__doc__.split("\n\n")[0])
    parser.add_argument("words", nargs="*", help="only bugs whose name contains one of these")
    parser.add_argument("--rooms-only", action="store_true", help="only the tests of the bug's rooms")
    options = parser.parse_args()
    bugs = [bug for bug in PLANTED_BUGS if not options.words or any(word in bug.name for word in options.words)]
    num_survived = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "copy"
        shutil.copytree(ROOT, folder, ignore=NOT_COPIED)
        for bug in bugs:
            if any(len(edit.places(folder)) != 1 for edit in bug.edits):
                print(f"not planted: {bug.name}: its text does not stand once in darrm", flush=True)  # noqa: T201
                num_survived += 1
                continue
            with plant_bug(folder, bug):
                test = find_failure(folder, *bug.tests) or (None if options.rooms_only else find_failure(folder))
            num_survived += test is None
            print(f"{'SURVIVED' if test is None else 'caught'}: {bug.name}{f': {test}' if test else ''}", flush=True)  # noqa: T201
    print(f"{len(bugs) - num_survived} of {len(bugs)} caught")  # noqa: T201
    return num_survived


if __name__ == "__main__":
    sys.exit(main())
