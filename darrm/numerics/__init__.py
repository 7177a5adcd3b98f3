"""Laws of the number of ones, whole-number noise and its exact draws, and the one bisection."""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
