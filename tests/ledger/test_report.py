"""The report of a ledger: the labels that wait, the commands that write them, and the picture."""

from contextlib import nullcontext
from math import exp
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from darrm.ledger import report
from darrm.ledger.ledger import PrivacyLedger
from darrm.ledger.report import ledger_text, plot_ledger
from darrm.privacy import PrivacyParams
from tests.ledger.support import BUDGET, QUERY


def test_labels_that_wait_are_listed_with_the_command_that_writes_them(path: Path) -> None:
    ledger = PrivacyLedger.create(path, BUDGET)
    outputs = [path.with_name(f"{number}.csv") for number in (1, 2, 3)]
    for output in outputs:
        ledger.debit(QUERY, labels=np.array([1]), output=output)
    first, second = (ledger.recovery(number, str(output)) for number, output in enumerate(outputs[:2], 1))
    text, everything = ledger_text(ledger), ledger_text(ledger, everything=True)
    assert "1 labels of entry 1, and those of 2 more entries (--all)" in text
    assert (text.count(first), text.count(second)) == (1, 0)
    assert (everything.count(first), everything.count(second)) == (1, 1)


@pytest.mark.parametrize(
    ("output", "target"),
    [
        ("", "labels-3.csv"),
        ("/a/b.csv", "labels-3.csv"),
        ("/a/B.CSV", "labels-3.csv"),
        ("-wards", "labels-3.csv"),
        ("/a/run 7", "'/a/run 7'"),
    ],
)
def test_recovery_writes_a_new_file_or_into_the_folder_of_the_entry(output: str, target: str, path: Path) -> None:
    command = PrivacyLedger.create(path, BUDGET).recovery(3, output)
    assert command == f"python -m darrm.release recover 3 --ledger {path} --output {target}"


def test_picture_draws_power_and_belief_of_budget_and_total(monkeypatch: pytest.MonkeyPatch) -> None:
    figure = Figure()
    monkeypatch.setattr(report, "save_figure", lambda *_, **__: nullcontext(figure))
    ledger = PrivacyLedger.create(":memory:", PrivacyParams(2, "1e-2"))
    ledger.debit(QUERY.repeat(3))
    plot_ledger(Path("none.png"), ledger)
    guesses, beliefs = (
        {str(line.get_label()): np.array(line.get_data()) for line in axes.lines} for axes in figure.axes
    )
    spent = ledger.spent

    def compute_power(level: float | np.ndarray, epsilon: float, delta: float) -> np.ndarray:
        return np.minimum(1.0, np.minimum(exp(epsilon) * level + delta, 1.0 - exp(-epsilon) * (1.0 - delta - level)))

    for name, epsilon, delta in (("the budget: ε = 2", 2.0, 0.01), ("spent: ", spent.epsilon, spent.delta)):
        ((wrong, right),) = (line for label, line in guesses.items() if label.startswith(name))
        assert (wrong[0], wrong[-1]) == (0.0, 1.0)
        assert min(abs(wrong - (1.0 - delta) / (1.0 + exp(epsilon)))) < 1e-15  # the corner of the curve
        assert right == pytest.approx(np.clip(compute_power(wrong, epsilon, delta), 0.0, 1.0))
        for level in (0.05, 0.001):
            prior, belief = beliefs[f"{name.partition(':')[0]}, events of {level:g} or more"]
            odds = prior * compute_power(level, epsilon, delta)
            assert belief == pytest.approx(odds / (odds + (1.0 - prior) * level))
    assert (len(guesses), len(beliefs)) == (3, 5)  # each with the diagonal
    figure.clear()
    plot_ledger(Path("none.png"), PrivacyLedger.create(":memory:", PrivacyParams(800, 0)))
    assert np.all(np.array(figure.axes[0].lines[1].get_data())[1, 1:] == 1.0)
