"""Teachers on clusters: the same as in one process, to the last bit, whatever happens to a worker."""

import functools
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest

pytest.importorskip("torch")

from darrm.training.network import convolutional_network
from darrm.training.recipes import PlainSGD, PrivateSGD
from darrm.training.teachers import Partition, TeacherEnsemble, train_teachers

pytestmark = pytest.mark.slow
BUILD = functools.partial(convolutional_network, side=8)
GUIDE = Path(__file__).parents[2] / "docs" / "ensembles.md"
K, STACK = 6, 2
QUERIES = 10_000


@functools.cache
def images(n: int, side: int = 8) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(n)
    return rng.random((n, 1, side, side), dtype=np.float32), rng.integers(0, 2, n)


def train(**arguments: Any) -> TeacherEnsemble:
    recipe = PrivateSGD(0.1, 120, 0.3, 1.0)
    settings = {"build": BUILD, "seed": 1, "stack_size": STACK, "progress": False, "device": "cpu", **arguments}
    return train_teachers(*images(180), Partition.random(180, K, seed=0), recipe, **settings)


@pytest.fixture(scope="module")
def alone() -> TeacherEnsemble:
    return train()


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    distributed = pytest.importorskip("distributed")
    with (
        # two threads in each process, as Dask's own default has on larger machines
        distributed.LocalCluster(n_workers=2, threads_per_worker=2, dashboard_address=":0") as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


def same(one: TeacherEnsemble, other: TeacherEnsemble) -> bool:
    return all((value == other.parameters[name]).all() for name, value in one.parameters.items())


@contextmanager
def killing(client: Any, ready: Callable[[], bool]) -> Iterator[list[int]]:
    """Kill the process of a worker that has work to do as soon as ``ready``; yield the list of whom it killed."""
    pids, killed, ended = client.run(os.getpid), [], threading.Event()

    def watch() -> None:
        while not ended.wait(0.01):
            busy = [worker for worker, tasks in client.processing().items() if tasks]
            if busy and ready():
                killed.append(pids[busy[0]])
                os.kill(killed[0], signal.SIGKILL)
                return

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield killed
    finally:
        ended.set()
        thread.join()


def test_a_killed_worker_changes_no_teacher(client: Any, alone: TeacherEnsemble, tmp_path: Path) -> None:
    def halfway() -> bool:  # a stack was kept at step 50 of 120
        return any(tmp_path.glob("*.safetensors"))

    with joblib.parallel_config(backend="dask"), killing(client, halfway) as killed:
        together = train(checkpoints=tmp_path)
    assert killed
    assert killed[0] not in client.run(os.getpid).values()
    assert same(together, alone)


def test_a_killed_worker_changes_no_vote(client: Any, alone: TeacherEnsemble) -> None:
    x, _ = images(QUERIES)
    expected = alone.votes(x, device="cpu")
    assert 0 < expected.mean() < 1
    start = time.monotonic()
    with joblib.parallel_config(backend="dask"), killing(client, lambda: time.monotonic() > start + 0.5) as killed:
        votes = alone.votes(x, device="cpu")
    assert killed
    assert (votes == expected).all()


def lines_of(backend: str) -> str:
    """The lines of the guide about a cluster."""
    blocks = re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), flags=re.DOTALL)
    (found,) = (block for block in blocks if f'backend="{backend}"' in block)
    return str(found)


def guide_data() -> dict[str, Any]:
    x, y = images(40, side=28)
    partition, recipe = Partition.random(40, 8, seed=0), PlainSGD(0.1, 1, 4)
    train_with_seed = functools.partial(train_teachers, seed=1, progress=False, device="cpu")
    return {"x": x, "y": y, "partition": partition, "recipe": recipe, "train_teachers": train_with_seed, "queries": x}


def test_the_lines_of_the_guide_run_on_dask(client: Any) -> None:
    data = guide_data()
    expected = data["train_teachers"](data["x"], data["y"], data["partition"], data["recipe"])
    lines = lines_of("dask").replace("scheduler:8786", client.scheduler.address)
    exec(lines, data)  # noqa: S102 (our own guide)
    data["client"].close()
    assert same(data["ensemble"], expected)
    assert (data["votes"] == expected.votes(data["queries"])).all()


def test_the_lines_of_the_guide_run_on_ray() -> None:
    ray = pytest.importorskip("ray")
    data = guide_data()
    expected = data["train_teachers"](data["x"], data["y"], data["partition"], data["recipe"])
    ray.init(num_cpus=2, include_dashboard=False, logging_level="ERROR")
    try:
        exec(lines_of("ray"), data)  # noqa: S102 (our own guide)
    finally:
        ray.shutdown()
    assert same(data["ensemble"], expected)
    assert (data["votes"] == expected.votes(data["queries"])).all()
