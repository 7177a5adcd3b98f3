"""Train the same private teachers with this library and with Opacus; compare seconds and ε.

    python -m experiments opacus --recompute

The images are random, because neither time nor ε depends on them. Both libraries train the same network on one CPU
core, with the same expected batch size and the same number of steps.
"""

import time
import warnings
from collections.abc import Callable, Sequence
from importlib import metadata
from itertools import chain, islice

import numpy as np
from numpy.typing import NDArray

from darrm.training.calibration import compute_privacy
from darrm.training.network import convolutional_network
from darrm.training.recipes import PrivateSGD
from darrm.training.teachers import Partition, PredictableNoiseWarning, train_teachers
from darrm.util.extras import require
from experiments import pages
from experiments.pages import Row

NAME = "opacus"
SIDE, SHARD, STEPS, BATCH = 28, 1024, 30, 32
NUMBERS = (1, 11)  # of teachers
RUNS = 3
DELTA = 1e-4
TRAININGS = ((12.0, 5 / 130, 130), (1.0, 0.01, 1_000), (4.0, 0.2, 50))  # noise, sampling rate, steps


def measure() -> Row:
    """Measure both for every number of teachers, and compute both ε."""
    return {
        "versions": {name: metadata.version(name) for name in ("opacus", "torch")},
        "shard": SHARD,
        "steps": STEPS,
        "batch": BATCH,
        "runs": RUNS,
        "delta": DELTA,
        "speed": [_measure_speed(teachers) for teachers in NUMBERS],
        "accounts": [account(*training) for training in TRAININGS],
    }


def _measure_speed(teachers: int) -> Row:
    rng = np.random.default_rng(0)
    x = rng.random((teachers * SHARD, 1, SIDE, SIDE), dtype=np.float32)
    y = rng.integers(0, 2, len(x))

    def measure_seconds(train: Callable[..., object]) -> float:
        """Return the least processor seconds of several runs after a warm-up."""
        seconds = []
        for _ in range(RUNS + 1):
            started = time.process_time()
            train(x, y, teachers)
            seconds.append(time.process_time() - started)
        return round(min(seconds[1:]), 2)

    return {"teachers": teachers, "darrm": measure_seconds(_train), "opacus": measure_seconds(_train_with_opacus)}


def _train(x: NDArray[np.float32], y: NDArray[np.int64], teachers: int) -> None:
    recipe = PrivateSGD(learning_rate=0.05, steps=STEPS, sampling_rate=BATCH / SHARD, noise=12.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PredictableNoiseWarning)  # the images are random
        train_teachers(x, y, Partition.random(len(x), teachers, seed=0), recipe, seed=0)


def _train_with_opacus(x: NDArray[np.float32], y: NDArray[np.int64], teachers: int) -> None:
    torch, engines = require("torch"), require("opacus")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    for shard in np.split(np.arange(len(x)), teachers):
        model = convolutional_network(side=SIDE)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        records = torch.utils.data.TensorDataset(torch.from_numpy(x[shard]), torch.from_numpy(y[shard]))
        loader = torch.utils.data.DataLoader(records, batch_size=BATCH)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns about the hooks of Opacus
            model, optimizer, loader = engines.PrivacyEngine().make_private(
                module=model, optimizer=optimizer, data_loader=loader, noise_multiplier=12.0, max_grad_norm=1.0
            )
            batches = chain.from_iterable(loader for _ in range(STEPS))
            for inputs, classes in islice(batches, STEPS):
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(model(inputs), classes).backward()
                optimizer.step()
    torch.set_num_threads(threads)


def account(noise: float, rate: float, steps: int) -> Row:
    """Compute ε by this library and by the two accountants of Opacus."""
    accountants = require("opacus.accountants")
    recipe = PrivateSGD(learning_rate=1.0, steps=steps, sampling_rate=rate, noise=noise)
    epsilons = {}
    for name in ("PRVAccountant", "RDPAccountant"):
        accountant = getattr(accountants, name)()
        accountant.history = [(noise, rate, steps)]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about its own grid of orders
            epsilons[name] = float(accountant.get_epsilon(DELTA))
    return {"noise": noise, "rate": rate, "steps": steps, "darrm": compute_privacy(recipe, DELTA).epsilon, **epsilons}


def fill_page(data: Row) -> str:
    speed = [row | {"ratio": row["opacus"] / row["darrm"]} for row in data["speed"]]
    largest_difference = max(abs(row["darrm"] / row["PRVAccountant"] - 1.0) for row in data["accounts"])
    return pages.fill_template(NAME, data | {"speed": speed, "apart": largest_difference})


def main(arguments: Sequence[str] | None = None) -> int:
    options = pages.make_command_line(NAME, __doc__).parse_args(arguments)
    return pages.run_measurement(options, f"{NAME}/{NAME}.json", measure, fill_page)
