"""What a calibration refuses before it takes the memory: named apart, since these need no dp-accounting."""

import pytest

from darrm.training.calibration import privacy_of
from darrm.training.recipes import PrivateSGD


@pytest.mark.parametrize(
    ("steps", "noise", "line"),
    [(1, 1e-3, r"noise must be at least 0.1, got 0.001"), (10**8, 0.5, r"needs .* GiB, more than the 0.25 GiB")],
)
def test_distributions_that_fit_no_memory_are_refused_before_they_are_made(steps: int, noise: float, line: str) -> None:
    with pytest.raises(ValueError, match=line):
        privacy_of(PrivateSGD(0.1, steps, 0.5, noise), 1e-5)
