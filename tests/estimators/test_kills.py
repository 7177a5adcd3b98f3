"""Estimators that are killed: a debited label is delivered, or the next fit gets it without a charge.

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
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB

from darrm import PrivacyLedger
from darrm.errors import LedgerError
from darrm.estimators import PATEClassifier, PrivateVotingClassifier, ResumeWarning
from darrm.pate import GNMax
from darrm.util.files import replace_file
from tests.estimators.support import X, make_pate, make_vote, y

BATCH, QUERIES = 3, 60
DELIVERED, DEBITED, NOTHING = "delivered", "debited, not delivered", "nothing debited"


class SlowStudent(LogisticRegression):  # type: ignore[misc]  # scikit-learn ships no types
    """A student whose training leaves time for a kill."""

    def fit(self, *data: Any) -> Any:
        time.sleep(0.05)
        return super().fit(*data)


def fit_student(folder: Path) -> PATEClassifier:
    pate = make_pate(GaussianNB(), SlowStudent(max_iter=1000), n_teachers=5, epsilon=3.99, aggregator=GNMax(12.0))
    return pate.set_params(max_answers=12, random_state=None, ledger=folder / "ledger").fit(X, y, X[::2])


def fit_vote(folder: Path) -> PrivateVotingClassifier:
    settings: dict[str, Any] = {"n_teachers": 5, "epsilon": 4, "max_queries": QUERIES, "aggregator": GNMax(30.0)}
    return make_vote(GaussianNB(), ledger=folder / "ledger", **settings).fit(X, y)


def write_labels(path: Path, labels: Any) -> None:
    with replace_file(path) as temporary:
        np.save(temporary, labels)


def run_student(folder: Path) -> None:
    """Fit, write the labels, and predict until the end."""
    pate = fit_student(folder)
    write_labels(folder / "answers.npy", pate.answers_)
    while True:
        pate.predict(X)


def run_vote(folder: Path) -> None:
    """Predict, and write the labels of each call to a file."""
    vote = fit_vote(folder)
    for call in range(QUERIES // BATCH):
        write_labels(folder / f"{call}.npy", vote.predict(X[:BATCH]))


def run_and_kill(run: Any, folder: Path, is_time: Callable[[], bool] | None) -> None:
    """Run in a child process, and kill it when `is_time`, or right after its first debit."""
    number = os.fork()
    if not number:
        try:
            for stream in (1, 2):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
            warnings.simplefilter("ignore")
            if is_time is None:
                debit = PrivacyLedger.debit

                def debit_and_die(*arguments: Any, **settings: Any) -> int:
                    debit(*arguments, **settings)
                    os.kill(os.getpid(), signal.SIGKILL)
                    return 0

                PrivacyLedger.debit = debit_and_die  # type: ignore[method-assign]
            run(folder)
        finally:
            os._exit(0)
    if is_time is not None:
        while not is_time():
            time.sleep(0.001)
        os.kill(number, signal.SIGKILL)
    os.waitpid(number, 0)


def open_ledger(folder: Path) -> PrivacyLedger | None:
    """Open the ledger of a killed run, if it has a debit."""
    if not (folder / "ledger").exists():
        return None
    try:
        ledger = PrivacyLedger(folder / "ledger")
    except LedgerError as error:
        if "its creation was cut short" in str(error):
            return None
        raise
    return ledger if ledger.entries() else None


def check_student(folder: Path) -> str:
    """Check that a repeated fit resumes with the delivered labels; return how far the killed run came."""
    ledger, file = open_ledger(folder), folder / "answers.npy"
    if ledger is None:
        assert not file.exists()
        return NOTHING
    spent = ledger.spent
    with pytest.warns(ResumeWarning):
        pate = fit_student(folder)
    assert ledger.spent == spent
    assert pate.predict(X).shape == y.shape
    assert np.sum(pate.answers_ >= 0) == 12
    assert not file.exists() or np.array_equal(np.load(file), pate.answers_)
    return DELIVERED if file.exists() else DEBITED


def check_vote(folder: Path) -> str:
    """Check that the labels of each debit are in a file or in the ledger; return how far the killed run came."""
    ledger, calls = open_ledger(folder), len(list(folder.glob("[0-9]*.npy")))
    if ledger is None:
        assert not calls
        return NOTHING
    assert calls <= len(ledger.entries()) <= calls + 1
    (last,) = ledger.undelivered()
    labels = ledger.kept_labels(last.number)
    assert last.number == len(ledger.entries())
    assert len(labels) == BATCH
    assert set(labels) <= {0, 1, 2}
    if calls < last.number:
        return DEBITED
    assert np.array_equal(np.load(folder / f"{calls - 1}.npy"), labels)
    return DELIVERED


RUNS = ((run_student, check_student), (run_vote, check_vote))


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(("run", "check"), RUNS)
def test_a_kill_right_after_the_debit_loses_no_label(run: Any, check: Any, tmp_path: Path) -> None:
    run_and_kill(run, tmp_path, None)
    assert check(tmp_path) == DEBITED


@pytest.mark.slow
def test_kills_at_300_random_moments_lose_no_label(tmp_path: Path) -> None:
    seconds = []
    for run, _ in RUNS:
        folder = tmp_path / run.__name__
        folder.mkdir()
        (fit_student if run is run_student else fit_vote)(tmp_path)  # imports and plans once
        (tmp_path / "ledger").unlink()
        start = time.monotonic()
        run_and_kill(run, folder, lambda folder=folder: any(folder.glob("*.npy")))  # type: ignore[misc]
        seconds.append(2 * (time.monotonic() - start))
    rng, states = random.Random(300), Counter[str]()  # noqa: S311 (moments)
    for number in range(300):
        folder = tmp_path / str(number)
        folder.mkdir()
        run, check = RUNS[number % 2]
        end = time.monotonic() + rng.uniform(0, seconds[number % 2])
        run_and_kill(run, folder, lambda end=end: time.monotonic() >= end)  # type: ignore[misc]
        states[f"{run.__name__}: {check(folder)}"] += 1
    print("300 kills, 0 lost:", dict(states))  # noqa: T201 (with -s)
    assert len(states) >= 4  # of six: the two between debit and delivery last a millisecond
