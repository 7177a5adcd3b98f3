"""Laws of the number of ones, integer noise and its exact draws, and bisection."""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
