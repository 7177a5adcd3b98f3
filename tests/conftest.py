"""For all tests: one thread of linear algebra a process, and how many random examples a property is tried on.

Workers share the cores, and threads that wait for each other took three quarters of the processor time.
"""

import gc
import os

from hypothesis import settings

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):  # read when numpy is imported
    os.environ.setdefault(variable, "1")

settings.register_profile("quick", max_examples=20, deadline=None)  # a busy machine is no failure
settings.register_profile("full", max_examples=200, deadline=None)
settings.load_profile("quick")


def pytest_collection_finish() -> None:
    """What was imported and collected stays: to look through it again and again took a twentieth of the time."""
    gc.freeze()
