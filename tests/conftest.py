"""Configure all tests: one thread of linear algebra per process, and the number of random examples of a property.

Workers share the cores. With more threads, waiting took three quarters of the processor time.
"""

import gc
import math
import os
import shutil
from collections import Counter
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import settings

from darrm.util import progress

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):  # read when numpy is imported
    os.environ.setdefault(variable, "1")

# keep ledgers in memory: tests need no durable files, and a disk is slow at every debit
MEMORY_FOLDER, MIN_FREE_BYTES = Path("/dev/shm"), 2**30  # noqa: S108 (pytest makes a folder there that only the user reads)
if os.access(MEMORY_FOLDER, os.W_OK) and shutil.disk_usage(MEMORY_FOLDER).free > MIN_FREE_BYTES:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY_FOLDER))

settings.register_profile("quick", max_examples=12, deadline=None)  # a busy machine must not fail a test
settings.register_profile("full", max_examples=200, deadline=None)
settings.load_profile("quick")

# doctests that calibrate or train for too long for the quick tier
LONG_EXAMPLES = {
    "darrm.plan.planner.affordable",
    "darrm.plan.planner.sweep",
    "darrm.training.calibration.calibrate_noise",
    "darrm.training.calibration.calibrate_sampling",
    "darrm.estimators.budget.calibrate_confident",
    "darrm.estimators.dpsgd.PrivateSGDClassifier",
    "darrm.estimators.fixmatch.FixMatchClassifier",
    "darrm.estimators.pate.PATEClassifier",
    "darrm.estimators.voting.PrivateVotingClassifier",
    "darrm.estimators.voting.PrivateVotingClassifier.from_fitted",
    "darrm.prompts.generate.noise_for",
    "darrm.noisy_max.noisy_law.best_shape",
    "darrm.plan.calibration.calibrate",
    "darrm.plan.planner.plan",
    "darrm.verify.attack.attack",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark long doctests as slow, and all but the first ``quick_cases`` cases of a test that are not slow already."""
    cases: Counter[str] = Counter()
    for item in items:
        if (marker := item.get_closest_marker("quick_cases")) is not None:
            test = item.nodeid.partition("[")[0]
            cases[test] += item.get_closest_marker("slow") is None
            if cases[test] > marker.args[0]:
                item.add_marker("slow")
        elif item.name in LONG_EXAMPLES:
            item.add_marker("slow")


@pytest.fixture(scope="session", autouse=True)
def no_progress_lines() -> None:
    """Write no progress after thirty seconds: a slow machine needs as long to compile the loops."""
    progress.LOGGED_AFTER_SECONDS = math.inf


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Disable garbage collection during imports and make it rare afterwards, because a full one takes seconds."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(50_000, 20, 20)
        gc.enable()
