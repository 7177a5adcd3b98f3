"""Distributions of vote counts, and sums of exponentials that neither overflow nor cancel."""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
