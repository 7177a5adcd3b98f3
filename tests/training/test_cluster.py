"""Teachers on clusters are those of one process, to the last bit, even if a worker is killed."""

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
import pytest

pytest.importorskip("torch")

from darrm.training.recipes import PlainSGD, PrivateSGD
from darrm.training.teachers import Partition, TeacherEnsemble, train_teachers
from tests.training.support import BUILD, CPU, make_images

pytestmark = pytest.mark.slow
GUIDE = Path(__file__).parents[2] / "docs" / "ensembles.md"
K, STACK = 6, 2
QUERIES = 10_000


def train(**settings: Any) -> TeacherEnsemble:
    recipe = PrivateSGD(0.1, 120, 0.3, 1.0)
    arguments = {"build": BUILD, "seed": 1, "stack_size": STACK, **CPU, **settings}
    return train_teachers(*make_images(180), Partition.random(180, K, seed=0), recipe, **arguments)


@pytest.fixture(scope="module")
def expected() -> TeacherEnsemble:
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


def are_equal(one: TeacherEnsemble, other: TeacherEnsemble) -> bool:
    return all((value == other.parameters[name]).all() for name, value in one.parameters.items())


@contextmanager
def kill_worker(client: Any, is_ready: Callable[[], bool]) -> Iterator[list[int]]:
    """Kill the process of a busy worker as soon as ``is_ready``; yield a list with its number."""
    pids, killed, stopped = client.run(os.getpid), list[int](), threading.Event()

    def watch() -> None:
        while not stopped.wait(0.01):
            busy = [worker for worker, tasks in client.processing().items() if tasks]
            if busy and is_ready():
                killed.append(pids[busy[0]])
                os.kill(killed[0], signal.SIGKILL)
                return

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield killed
    finally:
        stopped.set()
        thread.join()


def test_a_killed_worker_changes_no_teacher(client: Any, expected: TeacherEnsemble, tmp_path: Path) -> None:
    def has_checkpoint() -> bool:  # of step 50 of 120
        return any(tmp_path.glob("*.safetensors"))

    with joblib.parallel_config(backend="dask"), kill_worker(client, has_checkpoint) as killed:
        ensemble = train(checkpoints=tmp_path)
    assert killed
    assert killed[0] not in client.run(os.getpid).values()
    assert are_equal(ensemble, expected)


def test_a_killed_worker_changes_no_vote(client: Any, expected: TeacherEnsemble) -> None:
    x, _ = make_images(QUERIES)
    expected_votes = expected.votes(x, device="cpu")
    assert 0 < expected_votes.mean() < 1
    start = time.monotonic()
    with joblib.parallel_config(backend="dask"), kill_worker(client, lambda: time.monotonic() > start + 0.5) as killed:
        votes = expected.votes(x, device="cpu")
    assert killed
    assert (votes == expected_votes).all()


def check_guide(backend: str, address: str = "") -> None:
    """Run the guide's lines about a cluster, and compare their teachers and votes with those of one process."""
    blocks = re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), flags=re.DOTALL)
    (lines,) = (block for block in blocks if f'backend="{backend}"' in block)
    x, y = make_images(40, side=28)
    partition, recipe = Partition.random(40, 8, seed=0), PlainSGD(0.1, 1, 4)
    train_with_seed: Any = functools.partial(train_teachers, seed=1, **CPU)
    names: dict[str, Any] = {"x": x, "y": y, "queries": x, "partition": partition, "recipe": recipe}
    names["train_teachers"] = train_with_seed
    exec(lines.replace("scheduler:8786", address), names)  # noqa: S102 (our own guide)
    if "client" in names:
        names["client"].close()
    expected = train_with_seed(x, y, partition, recipe)
    assert are_equal(names["ensemble"], expected)
    assert (names["votes"] == expected.votes(x)).all()


def test_the_lines_of_the_guide_run_on_dask(client: Any) -> None:
    check_guide("dask", client.scheduler.address)


def test_the_lines_of_the_guide_run_on_ray() -> None:
    ray = pytest.importorskip("ray")
    ray.init(num_cpus=2, include_dashboard=False, logging_level="ERROR")
    try:
        check_guide("ray")
    finally:
        ray.shutdown()
