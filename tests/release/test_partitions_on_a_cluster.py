"""Releases on a Dask cluster: workers and clients are killed, and every row is paid once and labeled once."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

arrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

from darrm.account.ledger import PrivacyLedger  # noqa: E402 (after the checks for the extras)
from darrm.errors import PaidError  # noqa: E402 (as above)
from darrm.laws.noise_function import NoiseFunction  # noqa: E402 (as above)
from darrm.pate.files import load_release  # noqa: E402 (as above)
from darrm.privacy import PrivacyParams  # noqa: E402 (as above)
from darrm.problem import Problem, Voters  # noqa: E402 (as above)
from darrm.proof.table import certify  # noqa: E402 (as above)
from darrm.release import __main__ as command  # noqa: E402 (as above)
from darrm.release import recover_partitions, release_partitions  # noqa: E402 (as above)
from darrm.system.command_line import run  # noqa: E402 (as above)

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
K, FILES, ROWS = 3, 16, 300_000
SURE = np.arange(ROWS) % 4 < 2  # rows whose voters agree: the table tells them as they are


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(n_workers=4, threads_per_worker=1, dashboard_address=":0") as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    votes = np.random.default_rng(0).integers(0, 2, (ROWS, K), dtype=np.int8)
    votes[SURE] = votes[SURE][:, :1]
    columns = {"id": np.arange(ROWS), **{f"v{k}": votes[:, k] for k in range(K)}}
    (tmp_path / "votes").mkdir()
    for index in range(FILES):
        parquet.write_table(arrow.table(columns), tmp_path / "votes" / f"{index:02}.parquet")
    problem = Problem.from_allowance(Voters(K, PrivacyParams("0.2")), 3)
    certify(problem, NoiseFunction(K, [0.5, 1.0])).save(tmp_path / "table.json")
    PrivacyLedger.create(tmp_path / "l.sqlite", PrivacyParams(10**8, "0.1"))
    return tmp_path


def decided(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob(".labels-*/labels/*.parquet")}


def check_whole(folder: Path) -> None:
    """One debit, one label in each row, the right one where it is known, and nothing left behind."""
    (entry,) = PrivacyLedger(folder / "l.sqlite").entries()
    assert (entry.count, entry.delivered) == (FILES * ROWS, True)
    files = sorted((folder / "labels").iterdir())
    assert [path.name for path in files] == [f"{index:02}.parquet" for index in range(FILES)]
    drawn = set()
    for path in files:
        rows = parquet.ParquetFile(path).read()
        assert np.array_equal(rows["id"].to_numpy(), np.arange(ROWS))
        votes = parquet.ParquetFile(folder / "votes" / path.name).read(columns=["v0"])["v0"].to_numpy()
        labels = rows["label"].to_numpy()
        assert np.array_equal(labels[SURE], votes[SURE])
        assert set(labels.tolist()) == {0, 1}
        drawn.add(labels.tobytes())
    assert len(drawn) == FILES  # the same votes in every file, fresh coins for each
    assert not list(folder.glob(".labels-*"))


def release(folder: Path, cluster: Any) -> None:
    ledger = PrivacyLedger(folder / "l.sqlite")
    aggregator = load_release(folder / "table.json")
    release_partitions(
        aggregator, folder / "votes", ledger=ledger, output=folder / "labels", keep=["id"], cluster=cluster
    )


def test_a_killed_worker_is_replaced_and_nothing_is_paid_or_shown_twice(client: Any, folder: Path) -> None:
    pids, killed, ended = client.run(os.getpid), [], threading.Event()
    before: dict[str, bytes] = {}

    def kill() -> None:
        while not ended.wait(0.001):
            busy = [worker for worker, tasks in client.processing().items() if tasks]
            if busy and list(folder.glob(".labels-*/drawing/*")) and decided(folder):
                killed.append(pids[busy[0]])
                os.kill(killed[0], signal.SIGKILL)
                before.update(decided(folder))
                return

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        release(folder, client)
    finally:
        ended.set()
        thread.join()
    assert killed
    assert killed[0] not in client.run(os.getpid).values()
    assert 0 < len(before) < FILES
    assert before.items() <= {path.name: path.read_bytes() for path in (folder / "labels").iterdir()}.items()
    check_whole(folder)


def test_a_killed_client_goes_on_where_it_was(client: Any, folder: Path) -> None:
    address = client.scheduler.address
    words = ["votes", "--table", "table.json", "--ledger", "l.sqlite", "--keep", "id", "--output", "labels"]
    script = "import sys; from darrm.release.__main__ import main; main(sys.argv[1:])"
    process = subprocess.Popen(
        [sys.executable, "-c", script, *words, "--cluster", address, "--quiet"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    while process.poll() is None and not decided(folder):
        time.sleep(0.001)
    process.kill()
    assert process.wait() == -signal.SIGKILL
    before = decided(folder)
    assert 0 < len(before) < FILES
    assert not (folder / "labels").exists()
    ledger = ["--ledger", str(folder / "l.sqlite"), "--output", str(folder / "labels"), "--cluster", address]
    assert run(lambda: command.main(["recover", "1", *ledger, "--quiet"])) == 0
    assert before.items() <= {path.name: path.read_bytes() for path in (folder / "labels").iterdir()}.items()
    check_whole(folder)


def test_what_a_worker_refuses_comes_back_as_one_line(
    client: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    votes = folder / "votes" / "07.parquet"
    good = votes.read_bytes()
    votes.write_bytes(good[:-100])
    with pytest.raises(ValueError, match=r"07.parquet' is no Parquet file that can be read, or it is damaged"):
        release(folder, client)
    assert not PrivacyLedger(folder / "l.sqlite").entries()
    votes.write_bytes(good)
    debit = PrivacyLedger.debit

    def change(self: PrivacyLedger, *arguments: Any, **options: Any) -> None:
        votes.write_bytes((folder / "votes" / "06.parquet").read_bytes()[:-1])
        debit(self, *arguments, **options)

    monkeypatch.setattr(PrivacyLedger, "debit", change)
    with pytest.raises(PaidError, match=r"07.parquet' changed after its votes were checked.*recover 1") as found:
        release(folder, client)
    assert "\n" not in str(found.value)
    monkeypatch.undo()
    votes.write_bytes(good)
    recover_partitions(PrivacyLedger(folder / "l.sqlite"), 1, folder / "labels", cluster=client)
    check_whole(folder)


def test_a_cluster_that_is_not_there_is_one_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [str(folder / "votes"), "--table", str(folder / "table.json"), "--ledger", str(folder / "l.sqlite")]
    words += ["--keep", "id", "--output", str(folder / "labels"), "--quiet", "--cluster"]
    for address, why in (("nonsense://x", "unknown address scheme"), ("127.0.0.1:1", "Timed out trying to connect")):
        assert run(lambda address=address: command.main([*words, address])) == 2  # type: ignore[misc]
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith(f"error: --cluster must be the address of a Dask scheduler ({why}")
    assert not PrivacyLedger(folder / "l.sqlite").entries()
