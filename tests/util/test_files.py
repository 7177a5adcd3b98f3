"""Files: only regular ones are read, replaced ones keep their mode, and JSON is bounded."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from darrm import PrivacyLedger, PrivacyParams
from darrm.__main__ import main
from darrm.pate.__main__ import main as pate
from darrm.training.teachers import save_votes
from darrm.training.training import save_tensors
from darrm.util.files import parse_json, read_json, replace_file, write_text


@pytest.fixture
def _usual_umask() -> Iterator[None]:
    umask = os.umask(0o022)
    yield
    os.umask(umask)


def read_mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_read_json_opens_regular_files_of_a_plausible_size(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")  # opening it would wait for a writer forever
    (tmp_path / "large").write_bytes(b"1" + b" " * 1000)
    (tmp_path / "largest").write_bytes(b"1" + b" " * 999)
    (tmp_path / "latin").write_bytes(b'{"a": "\xe9"}')
    assert read_json(tmp_path / "largest", what="table", most_bytes=1000) == 1
    with pytest.raises(FileNotFoundError):
        read_json(tmp_path / "none", what="table", most_bytes=1000)
    for path, message in (
        (Path("/dev/zero"), "no regular file"),
        (tmp_path / "pipe", "no regular file"),
        (tmp_path, "a folder"),
        (tmp_path / "large", "1,001 bytes, more than the 1,000"),
        (tmp_path / "latin", "latin' holds no table: it is no text in UTF-8"),
        (Path("/proc/self/maps"), "holds more than the 1,000 bytes"),  # its size is 0
    ):
        with pytest.raises(ValueError, match=message):
            read_json(path, what="table", most_bytes=1000)


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664, 0o755])
@pytest.mark.parametrize("private", [False, True])
def test_a_replaced_file_keeps_its_mode(mode: int, private: bool, tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    path.write_text("old")
    path.chmod(mode)
    write_text(path, "new", private=private)
    assert (path.read_text(), read_mode(path)) == ("new", mode)


@pytest.mark.usefixtures("_usual_umask")
@pytest.mark.parametrize(("private", "mode"), [(False, 0o644), (True, 0o600)])
def test_a_new_file_is_the_owners_only_until_it_is_complete(private: bool, mode: int, tmp_path: Path) -> None:
    with replace_file(tmp_path / "new.json", private=private) as temporary:
        assert read_mode(temporary) == 0o600
        temporary.write_text("1")
        assert read_mode(temporary) == 0o600
    assert read_mode(tmp_path / "new.json") == mode


@pytest.mark.usefixtures("_usual_umask")
def test_private_data_are_written_for_their_owner_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    save_tensors(Path("checkpoint"), {"weights": np.ones(3)}, {})
    save_votes(Path("votes.npy"), np.array([[0, 1, 1]] * 9))
    words = "votes.npy --layout labels --sigma1 9 --sigma2 3 --threshold 2 --delta 1e-5 --output rows.json"
    assert pate([*words.split(), "--plot", "rows.png"]) == 0
    names = ("votes.npy", "checkpoint", "rows.json", "rows.png")
    assert {path.name: read_mode(path) for path in tmp_path.iterdir()} == dict.fromkeys(names, 0o600)


@pytest.mark.parametrize(
    "words",
    [
        "optimize --K 3 --m 2 --output",
        "optimize --K 3 --m 2 --plot",
        "plan --K 3 --epsilon 0.1 --each-delta 0 --queries 1 --total 1,0 --output",
    ],
)
def test_no_result_replaces_a_ledger(words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "spent.png"  # whatever it is called
    PrivacyLedger.create(path, PrivacyParams(2, "1e-3"))
    content = path.read_bytes()
    assert main([*words.split(), str(path)]) == 2
    assert "a database, such as a ledger, which would be replaced: name another file" in capsys.readouterr().err
    with pytest.raises(ValueError, match="such as a ledger"):
        write_text(path, "a table")
    assert path.read_bytes() == content
    assert [file.name for file in tmp_path.glob("[!.]*")] == ["spent.png"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[" * 34 + "]" * 34, "more than 32 levels"),
        ('{"a":' * 5_000 + "1" + "}" * 5_000, "more than 32 levels"),
        ("[" + "1," * 2**19 + "1]", "more than 524,288 values"),
        ("1" * 5000, "a number of 5,000 characters"),
        ("0." + "1" * 1000, "a number of 1,002 characters"),
        ("[1e999]", "beyond all floats"),
        ('{"a": NaN}', "NaN is no number"),
        ("-Infinity", "-Infinity is no number"),
        ('{"a": "\\ud800"}', "half a surrogate pair"),
        ('{"a": {"b": 1, "c": 2, "b": 3}}', "the name 'b' is twice"),
        ("[1", "Expecting"),
    ],
)
def test_json_beyond_the_bounds_is_refused_in_one_line(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message) as refusal:
        parse_json(text)
    assert len(str(refusal.value)) < 200


def test_json_within_the_bounds_is_read() -> None:
    assert parse_json("[" * 32 + "]" * 32) is not None
    assert parse_json('{"é\\ud83d\\ude00": [1, -2.5e-300, true, null]}') == {"é😀": [1, -2.5e-300, True, None]}
