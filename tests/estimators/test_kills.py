"""Estimators that are killed between the debit and the answer: what was paid for is answered without a second cost."""

import os
import signal
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("sklearn")
from sklearn.naive_bayes import GaussianNB

from darrm import PrivacyLedger
from darrm.estimators import ResumeWarning
from darrm.pate import GNMax
from tests.estimators.common import X, pate, vote, y


def student(ledger: Path) -> Any:
    return pate(GaussianNB(), epsilon=3.99, aggregator=GNMax(12.0), max_answers=12, ledger=ledger)


def run_student(ledger: Path) -> None:
    student(ledger).fit(X, y, X[::2])


def run_vote(ledger: Path) -> None:
    vote(ledger=ledger).fit(X, y).predict(X[:3])


def kill_after_debit(run: Any, ledger: Path) -> None:
    """Run in a child process that is killed right after its first debit."""
    debit = PrivacyLedger.debit

    def debit_and_die(*arguments: Any, **named: Any) -> int:
        debit(*arguments, **named)
        os.kill(os.getpid(), signal.SIGKILL)
        return 0

    child = os.fork()
    if not child:
        try:
            for stream in (1, 2):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
            warnings.simplefilter("ignore")
            PrivacyLedger.debit = debit_and_die  # type: ignore[method-assign]
            run(ledger)
        finally:
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


def test_a_student_that_was_killed_after_the_debit_is_trained_without_cost(tmp_path: Path) -> None:
    kill_after_debit(run_student, tmp_path / "l")
    ledger = PrivacyLedger(tmp_path / "l")
    spent = ledger.spent
    assert spent.epsilon > 0
    with pytest.warns(ResumeWarning):
        again = student(tmp_path / "l").fit(X, y, X[::2])
    assert ledger.spent == spent
    assert again.predict(X).shape == y.shape
    assert np.sum(again.answers_ >= 0) == 12


def test_labels_of_a_vote_that_was_killed_after_the_debit_are_in_the_ledger(tmp_path: Path) -> None:
    kill_after_debit(run_vote, tmp_path / "l")
    ledger = PrivacyLedger(tmp_path / "l")
    (entry,) = ledger.undelivered()
    labels = ledger.kept_labels(entry.number)
    assert len(labels) == 3
    assert set(labels) <= {0, 1, 2}
