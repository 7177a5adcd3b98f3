"""Compare the processor time of darrm's tasks with that of alternatives.

`experiments.scaling` writes the table. The two sides run alternately, so their ratio is reliable on a busy machine; the
seconds are not.
"""

import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from darrm.estimators import PrivateVotingClassifier
from darrm.optimize import optimize_table
from darrm.privacy import PrivacyParams
from darrm.problem import Problem, Voters
from darrm.training.calibration import calibrate_noise
from darrm.util.extras import require
from experiments.pages import Row

TEACHERS, RATE, STEPS = 60, 0.01, 1000
VOTERS, ALLOWANCE, DELTA = 11, 3, "1e-5"
IMPORTS = "import click, flint, highspy, numpy"


@dataclass(frozen=True)
class Peer:
    """A task of darrm and an alternative; one call of each fills caches before the timing."""

    task: str
    peer: str
    ours: Callable[[], object]
    theirs: Callable[[], object]


def list_peers() -> list[Peer]:
    problem = Problem.from_allowance(Voters(VOTERS, PrivacyParams("0.1", DELTA)), ALLOWANCE)
    target, accounting = PrivacyParams(1, "1e-5"), require("dp_accounting")
    accountant = require("dp_accounting.pld.pld_privacy_accountant").PLDAccountant
    ensemble, trees = require("sklearn.ensemble"), require("sklearn.tree")
    X, y = require("sklearn.datasets").load_digits(return_X_y=True)
    private_vote = PrivateVotingClassifier(
        trees.DecisionTreeClassifier(), n_teachers=TEACHERS, max_queries=20, random_state=0
    )
    members = [(str(seed), trees.DecisionTreeClassifier(random_state=seed)) for seed in range(TEACHERS)]
    vote = ensemble.VotingClassifier(members)

    def start_process(*arguments: str) -> object:
        # the command is a constant
        return subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)  # noqa: S603

    def make_event(noise: float) -> object:
        step = accounting.PoissonSampledDpEvent(RATE, accounting.GaussianDpEvent(noise))
        return accounting.SelfComposedDpEvent(step, STEPS)

    return [
        Peer(
            f"`python -m darrm.optimize` for K = {VOTERS}, a new process",
            f"a new process with `{IMPORTS}` alone",
            partial(start_process, "-m", "darrm.optimize", "--K", str(VOTERS), "--m", str(ALLOWANCE)),
            partial(start_process, "-c", IMPORTS),
        ),
        Peer(
            f"the optimal γ for K = {VOTERS}, with its proof",
            "every row of the paper in cvxpy, with the same proof",
            partial(optimize_table, problem),
            partial(optimize_table, problem, solver="reference"),
        ),
        Peer(
            f"the noise of DP-SGD, {STEPS:,} steps at rate {RATE:g}",
            "dp_accounting's calibration, privacy loss distributions",
            partial(calibrate_noise, target, sampling_rate=RATE, steps=STEPS),
            partial(accounting.calibrate_dp_mechanism, accountant, make_event, target.epsilon, target.delta),
        ),
        Peer(
            f"{TEACHERS} teachers trained, 20 private labels, ten classes",
            "scikit-learn's VotingClassifier, votes without privacy",
            lambda: private_vote.fit(X[:-20], y[:-20]).predict(X[-20:]),
            lambda: vote.fit(X[:-20], y[:-20]).predict(X[-20:]),
        ),
    ]


def compare(peer: Peer, runs: int) -> Row:
    """Time both sides alternately; return the medians as plain data."""
    peer.ours()
    peer.theirs()
    pairs = [(measure_processor_seconds(peer.ours), measure_processor_seconds(peer.theirs)) for _ in range(runs)]
    seconds, peer_seconds = map(statistics.median, np.transpose(pairs).tolist())
    return {"task": peer.task, "peer": peer.peer, "seconds": seconds, "peer_seconds": peer_seconds, "runs": runs}


def measure_processor_seconds(call: Callable[[], object]) -> float:
    """Measure the processor time of a call and of the processes that it starts."""

    def read_clock() -> float:
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        return time.process_time() + children.ru_utime + children.ru_stime

    started = read_clock()
    call()
    return read_clock() - started
