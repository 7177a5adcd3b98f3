from pathlib import Path

import pytest

from experiments.pages import read_json


@pytest.mark.slow
def test_the_command_compares_workers_with_one_process(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("distributed")
    from experiments.pate.cluster import main

    assert main(["--quick", "--workers", "1", "--output", str(tmp_path)]) == 0
    found = read_json(tmp_path / "pate" / "cluster.json")
    assert found["same_teachers"]
    assert found["same_votes"]
    assert (found["teachers"], found["queries"], found["workers"]) == (12, 200, 1)
    (before,), (after,) = found["worker_megabytes_before"], found["worker_megabytes"]
    assert 50 < before <= after
    assert "same_votes: True" in capsys.readouterr().out
