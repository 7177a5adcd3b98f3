"""The audits: bounds that fail as seldom as they say, laws that the releases have, planted bugs that are refuted."""

import math
from typing import Any

import numpy as np
import pytest

from darrm.numerics.binomial import binomial_pmf

pytest.importorskip("torch")
from darrm.training import PrivateSGD
from experiments import audits
from experiments.audits import bound_p_value, find_refuted_epsilon


@pytest.mark.parametrize(
    ("canaries", "guesses", "right", "delta", "printed"),
    # [SNJ23, Appendix D and Section 7], the second truncated after three digits
    [(1_000, 100, 75, 1e-4, 0.673), (100_000, 1_510, 1_439, 1e-5, 2.675)],
)
def test_the_numbers_of_the_paper(canaries: int, guesses: int, right: int, delta: float, printed: float) -> None:
    assert find_refuted_epsilon(canaries, guesses, right, delta, 0.95) == pytest.approx(printed, abs=1e-3)


@pytest.mark.parametrize("confidence", [0.9, 0.99])
@pytest.mark.parametrize(
    ("canaries", "epsilon", "delta"), [(40, 0.5, 0.0), (40, 2.0, 0.0), (60, 1.0, 1e-3), (30, 0.0, 0.02)]
)
def test_private_mechanisms_are_refuted_as_seldom_as_stated(
    canaries: int, epsilon: float, delta: float, confidence: float
) -> None:
    """Exact laws of the right guesses of three (ε, δ)-private mechanisms, each the worst in its way."""
    q = 1.0 / (1.0 + math.exp(-epsilon))
    shows_each = binomial_pmf(canaries, delta + (1.0 - delta) * q)  # randomized response that fails bit by bit
    shows_all = (1.0 - delta) * binomial_pmf(canaries, q)  # or fails for all bits at once
    shows_all[-1] += delta
    refuted = np.array(
        [bound_p_value(canaries, canaries, right, epsilon, delta) <= 1 - confidence for right in range(canaries + 1)]
    )
    for law in (shows_each, shows_all):
        assert law[refuted].sum() <= 1.0 - confidence + 1e-12
    if delta == 0.0:
        assert shows_each[refuted].sum() > 0.2 * (1.0 - confidence)  # exact but for the lattice


def canaries(*, clipped: bool) -> Any:
    """One small training; the false-alarm rate of the honest one is 1e-6."""
    recipe = PrivateSGD(learning_rate=0.5, steps=20, sampling_rate=0.5, noise=10.0)
    return audits.audit_training(recipe, 600, 0.999999, clipped=clipped, seed=1)


def test_an_honest_training_stands_and_one_without_clipping_is_refuted() -> None:
    run = canaries(clipped=True)
    assert run.refuted < run.claimed
    assert run.right > 0.53 * run.guesses  # the canaries are seen
    run = canaries(clipped=False)
    assert run.refuted > run.claimed


def test_clipping_taken_out_of_the_code_is_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    def unclipped(gradients: Any, mask: Any, clip: float) -> Any:  # noqa: ARG001 (that is the bug)
        return {
            name: (value * mask.view(*mask.shape, *[1] * (value.ndim - 2))).sum(1) for name, value in gradients.items()
        }

    monkeypatch.setattr("darrm.training.training.sum_clipped", unclipped)
    run = canaries(clipped=True)
    assert run.refuted > run.claimed
