"""Estimators that are killed at random moments: what was paid for is answered, or is had for nothing.

The long run: ``python -m pytest tests/estimators/test_kills.py -m slow -s`` (300 kills, some four minutes).
"""

import os
import random
import signal
import time
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("sklearn")
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB

from darrm import PrivacyLedger
from darrm.errors import LedgerError
from darrm.estimators import PATEClassifier, PrivateVotingClassifier, ResumeWarning
from darrm.ledger.chain import Entry
from darrm.pate import GNMax
from darrm.util.files import replace_file

X, y = load_iris(return_X_y=True)
ASKED = 3  # rows a call
debit = PrivacyLedger.debit


class Slow(LogisticRegression):  # type: ignore[misc]  # scikit-learn ships no types
    """A student that is long at learning."""

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        time.sleep(0.05)
        return super().fit(X, y, sample_weight)


def student(ledger: Path) -> PATEClassifier:
    learner = Slow(max_iter=1000)
    pate = PATEClassifier(GaussianNB(), learner, n_teachers=5, epsilon=3.99, aggregator=GNMax(12.0), max_answers=12)
    return pate.set_params(ledger=ledger)


def vote(ledger: Path) -> PrivateVotingClassifier:
    return PrivateVotingClassifier(GaussianNB(), 5, aggregator=GNMax(30.0), max_queries=60, epsilon=4, ledger=ledger)


def keep(path: Path, labels: Any) -> None:
    with replace_file(path) as temporary:
        np.save(temporary, labels)


def run_student(folder: Path) -> None:
    """Fit, keep the labels, and answer over and over."""
    pate = student(folder / "l").fit(X, y, X[::2])
    keep(folder / "answers.npy", pate.answers_)
    while True:
        pate.predict(X)


def run_vote(folder: Path) -> None:
    """Ask, and keep the labels of each call, one file a call."""
    fitted = vote(folder / "l").fit(X, y)
    for call in range(60 // ASKED):
        keep(folder / f"{call}.npy", fitted.predict(X[:ASKED]))


def killed(run: Any, folder: Path, until: Callable[[], bool] | None) -> None:
    """Run in a child process, and kill it as soon as `until` says so, or right after its first debit."""
    number = os.fork()
    if not number:
        try:
            for stream in (1, 2):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
            warnings.simplefilter("ignore")
            if until is None:
                PrivacyLedger.debit = debit_and_die  # type: ignore[method-assign]
            run(folder)
        finally:
            os._exit(0)
    if until is not None:
        while not until():
            time.sleep(0.001)
        os.kill(number, signal.SIGKILL)
    os.waitpid(number, 0)


def after_seconds(seconds: float) -> Callable[[], bool]:
    """Return what becomes true so many seconds from now."""
    end = time.monotonic() + seconds
    return lambda: time.monotonic() >= end


def debit_and_die(*arguments: Any, **named: Any) -> int:
    """Pay, and be killed before anything else happens."""
    debit(*arguments, **named)
    os.kill(os.getpid(), signal.SIGKILL)
    return 0


def paid(path: Path) -> tuple[PrivacyLedger | None, tuple[Entry, ...]]:
    """Return the ledger and its entries; a ledger whose creation was cut short paid for nothing."""
    if not path.exists():
        return None, ()
    try:
        ledger = PrivacyLedger(path)
    except LedgerError as error:
        if "its creation was cut short" in str(error):
            return None, ()
        raise
    return ledger, ledger.entries()


def after_student(folder: Path) -> str:
    """Say how far it came; a fit that is repeated must go on for nothing, with the labels that were seen."""
    ledger, entries = paid(folder / "l")
    seen = folder / "answers.npy"
    if ledger is None or not entries:
        assert not seen.exists()
        return "nothing was paid"
    spent = ledger.spent
    with pytest.warns(ResumeWarning):
        again = student(folder / "l").fit(X, y, X[::2])
    assert ledger.spent == spent
    assert again.predict(X).shape == y.shape
    assert np.sum(again.answers_ >= 0) == 12
    assert not seen.exists() or np.array_equal(np.load(seen), again.answers_)
    return "the labels had been seen" if seen.exists() else "paid, and not seen yet"


def after_vote(folder: Path) -> str:
    """Say how far it came; each call that was paid for has its labels in a file or in the ledger."""
    ledger, entries = paid(folder / "l")
    calls = len(list(folder.glob("[0-9]*.npy")))
    assert calls <= len(entries) <= calls + 1
    if ledger is None or not entries:
        return "nothing was paid"
    (last,) = ledger.undelivered()
    assert last.number == len(entries)
    labels = ledger.kept_labels(last.number)
    assert set(labels) <= {0, 1, 2}
    assert len(labels) == ASKED
    if calls == len(entries):
        assert np.array_equal(np.load(folder / f"{calls - 1}.npy"), labels)
        return "the labels had been seen"
    return "paid, and not seen yet"


RUNS = ((run_student, after_student), (run_vote, after_vote))


def seconds_to_answers(run: Any, folder: Path) -> float:
    """Return how long a run that nobody kills takes until its first labels are kept, on the machine as it is."""
    folder.mkdir()
    began = time.monotonic()
    killed(run, folder, lambda: any(folder.glob("*.npy")))
    return time.monotonic() - began


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(("run", "after"), RUNS)
def test_a_kill_right_after_the_debit_loses_nothing(run: Any, after: Any, tmp_path: Path) -> None:
    killed(run, tmp_path, None)
    assert after(tmp_path) == "paid, and not seen yet"


@pytest.mark.slow
def test_nothing_that_was_paid_for_is_lost_at_300_random_moments(tmp_path: Path) -> None:
    student(tmp_path / "warm").fit(X, y, X[::2])  # plans and imports are done once, here
    vote(tmp_path / "warm-2").fit(X, y)
    longest = [2 * seconds_to_answers(run, tmp_path / run.__name__) for run, _ in RUNS]
    rng, states = random.Random(300), Counter[str]()  # noqa: S311 (moments)
    for number in range(300):
        folder = tmp_path / str(number)
        folder.mkdir()
        run, after = RUNS[number % 2]
        killed(run, folder, after_seconds(rng.uniform(0, longest[number % 2])))
        states[f"{run.__name__}: {after(folder)}"] += 1
    print("300 kills, 0 lost:", dict(states))  # noqa: T201 (with -s)
    assert len(states) >= 4  # of six: either run is met before it pays and after; the two between last a millisecond
