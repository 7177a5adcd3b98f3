"""For all tests: one thread of linear algebra a process, and how many random examples a property is tried on.

Workers share the cores, and threads that wait for each other took three quarters of the processor time.
"""

import gc
import os
import shutil
from collections import Counter
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import settings

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):  # read when numpy is imported
    os.environ.setdefault(variable, "1")

# ledgers are written to memory: what a test writes is gone afterwards, and a disk is waited for at every debit
MEMORY, BYTES = Path("/dev/shm"), 2**30  # noqa: S108 (pytest makes a folder there that only the user reads)
if os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > BYTES:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))

settings.register_profile("quick", max_examples=12, deadline=None)  # a busy machine is no failure
settings.register_profile("full", max_examples=200, deadline=None)
settings.load_profile("quick")

# examples that calibrate or train for longer than a quick test may take, each in rooms whose tests are many
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
    "darrm.prompts.generate.noise_for",
    "darrm.noisy_max.noisy_law.best_shape",
    "darrm.plan.calibration.calibrate",
    "darrm.plan.planner.plan",
    "darrm.verify.attack.attack",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave long examples of docstrings, and all but the first cases of some tests, to the full tier."""
    cases: Counter[str] = Counter()
    for item in items:
        if (quick := item.get_closest_marker("quick_cases")) is not None:
            test = item.nodeid.partition("[")[0]
            cases[test] += 1
            if cases[test] > quick.args[0]:
                item.add_marker("slow")
        elif item.name in LONG_EXAMPLES:
            item.add_marker("slow")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect no garbage while modules are imported, and seldom afterwards: to look through all takes seconds."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(50_000, 20, 20)
        gc.enable()
