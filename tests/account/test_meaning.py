"""What (ε, δ) means: no event of a private pair of laws tells more, and one tells as much."""

import json
from functools import partial
from itertools import chain, combinations
from math import exp
from pathlib import Path

import numpy as np
import pytest

from darrm import PrivacyLedger, PrivacyParams
from darrm.account.__main__ import main
from darrm.account.meaning import belief_after, power_of_test
from darrm.commands.command_line import run
from darrm.ledger.report import plot_ledger
from darrm.loss.privacy_cost import PrivacyCost


def test_no_event_of_a_private_pair_tells_more() -> None:
    rng = np.random.default_rng(11)
    for _ in range(60):
        one, other = rng.dirichlet(np.full(5, 0.7), 2)
        epsilon = float(rng.uniform(0.0, 2.0))
        delta = max(float(np.maximum(0.0, a - exp(epsilon) * b).sum()) for a, b in ((one, other), (other, one)))
        for event in map(list, chain.from_iterable(combinations(range(5), size) for size in range(1, 6))):
            level, prior = float(other[event].sum()), float(rng.uniform())
            hit = float(one[event].sum())
            assert hit <= power_of_test(epsilon, delta, level) + 1e-12
            least = float(rng.uniform(0.0, level)) + 1e-9  # it is as likely as that, or more
            after = prior * hit / (prior * hit + (1.0 - prior) * level)
            assert after <= belief_after(epsilon, delta, prior, least) + 1e-9


def test_the_worst_pair_of_laws_attains_both() -> None:
    epsilon, delta = 0.7, 0.02
    rest = (1.0 - delta) / (1.0 + exp(epsilon))
    one, other = (delta, rest * exp(epsilon), rest), (0.0, rest, rest * exp(epsilon))  # and what only `other` says
    assert one[0] + one[1] == pytest.approx(power_of_test(epsilon, delta, other[1]), abs=1e-15)
    after = 0.3 * (one[0] + one[1]) / (0.3 * (one[0] + one[1]) + 0.7 * other[1])
    assert belief_after(epsilon, delta, [0.0, 0.3, 1.0], other[1]) == pytest.approx([0.0, after, 1.0], abs=1e-15)


@pytest.mark.slow
def test_a_ledger_says_and_draws_what_its_total_means(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    ledger = PrivacyLedger.create(tmp_path / "l.sqlite", PrivacyParams(2, "1e-5"))
    flags = ["--ledger", str(tmp_path / "l.sqlite"), "--plot", str(tmp_path / "m.svg"), "--force"]
    assert run(partial(main, flags)) == 0
    assert "Meaning" not in capsys.readouterr().out  # nothing was spent
    ledger.debit(PrivacyCost("one", guarantee=PrivacyParams("0.5")))
    assert run(partial(main, flags)) == 0
    text = capsys.readouterr().out
    assert "times as likely, plus 1e-05" in " ".join(text.split())
    assert "5 % false alarms has power 36.95 % at most" in " ".join(text.split())  # the budget: 5 % times e^2, plus δ
    assert "<svg" in (tmp_path / "m.svg").read_text(encoding="utf-8")
    assert run(partial(main, [*flags, "--format", "json"])) == 0
    assert json.loads(capsys.readouterr().out)["spent"]["epsilon"] == pytest.approx(0.5, rel=1e-3)


def test_what_has_no_probability_at_all_tells_all_or_e_to_the_epsilon() -> None:
    assert belief_after(1.0, 0.0, [0.0, 0.5, 1.0], 0.0) == pytest.approx([0.0, exp(1) / (1 + exp(1)), 1.0])
    assert belief_after(1.0, 0.1, [0.0, 0.5, 1.0], 0.0).tolist() == [0.0, 1.0, 1.0]


def test_a_picture_of_an_empty_ledger_says_nothing_of_what_was_spent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[tuple[float, float, float]] = []

    def noted(epsilon: float, delta: float, level: float = 0.05) -> float:
        drawn.append((epsilon, delta, level))
        return power_of_test(epsilon, delta, level)

    pytest.importorskip("matplotlib")
    monkeypatch.setattr("darrm.ledger.report.power_of_test", noted)
    ledger = PrivacyLedger.create(tmp_path / "l.sqlite", PrivacyParams(2, "0.5"))
    plot_ledger(tmp_path / "m.svg", ledger)
    assert {(epsilon, delta) for epsilon, delta, _ in drawn} == {(2.0, 0.5)}
    corner = min(drawn, key=lambda one: abs(one[2] - 0.5 / (1.0 + exp(2.0))))
    assert power_of_test(*corner) == pytest.approx(1.0 - corner[2], abs=1e-12)  # both lines meet there
