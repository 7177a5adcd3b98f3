"""The audits: bounds with the stated false-alarm rate, and a planted bug that they refute."""

import math
from typing import Any

import numpy as np
import pytest

from darrm.numerics.binomial import binomial_pmf

pytest.importorskip("torch")
from darrm.training import PrivateSGD
from experiments.audits import audit_training, bound_p_value, find_refuted_epsilon


def test_refuted_epsilon_is_the_printed_one() -> None:
    """[SNJ23, Section 7]; the example of Appendix D is a doctest."""
    assert find_refuted_epsilon(100_000, 1_510, 1_439, 1e-5, 0.95) == pytest.approx(2.675, abs=1e-3)


@pytest.mark.parametrize("confidence", [0.9, 0.99])
@pytest.mark.parametrize(
    ("canaries", "epsilon", "delta"), [(40, 0.5, 0.0), (40, 2.0, 0.0), (60, 1.0, 1e-3), (30, 0.0, 0.02)]
)
def test_private_mechanisms_are_refuted_as_rarely_as_stated(
    canaries: int, epsilon: float, delta: float, confidence: float
) -> None:
    """Exact laws of the right guesses of randomized response that fails bit by bit, or for all bits at once."""
    q = 1.0 / (1.0 + math.exp(-epsilon))
    bit_by_bit = binomial_pmf(canaries, delta + (1.0 - delta) * q)
    all_at_once = (1.0 - delta) * binomial_pmf(canaries, q)
    all_at_once[-1] += delta
    p_values = np.array([bound_p_value(canaries, canaries, right, epsilon, delta) for right in range(canaries + 1)])
    is_refuted = p_values <= 1.0 - confidence
    for law in (bit_by_bit, all_at_once):
        assert law[is_refuted].sum() <= 1.0 - confidence + 1e-12
    if delta == 0.0:
        assert bit_by_bit[is_refuted].sum() > 0.2 * (1.0 - confidence)  # exact but for the lattice


def audit_small_training(*, clipped: bool) -> dict[str, Any]:
    """Audit one small training; the false-alarm rate of the honest one is 1e-6."""
    recipe = PrivateSGD(learning_rate=0.5, steps=20, sampling_rate=0.5, noise=10.0)
    return audit_training(recipe, 600, 0.999999, clipped=clipped, seed=1)


@pytest.mark.statistical
def test_an_honest_training_is_not_refuted_and_one_without_clipping_is() -> None:
    honest, unclipped = (audit_small_training(clipped=clipped) for clipped in (True, False))
    assert honest["refuted"] < honest["claimed"]
    assert honest["right"] > 0.53 * honest["guesses"]  # the canaries leave traces
    assert unclipped["refuted"] > unclipped["claimed"]


def test_training_code_without_clipping_is_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    def sum_unclipped(gradients: Any, mask: Any, clip: float) -> Any:  # noqa: ARG001 (that is the bug)
        return {
            name: (value * mask.view(*mask.shape, *[1] * (value.ndim - 2))).sum(1) for name, value in gradients.items()
        }

    monkeypatch.setattr("darrm.training.training.sum_clipped", sum_unclipped)
    audit = audit_small_training(clipped=True)
    assert audit["refuted"] > audit["claimed"]
