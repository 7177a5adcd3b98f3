import os
import stat
from pathlib import Path

import numpy as np
import pytest

from darrm import PrivacyLedger, PrivacyParams
from darrm.__main__ import main
from darrm.commands.command_line import run
from darrm.pate.__main__ import main as pate
from darrm.training.teachers import save_votes
from darrm.training.training import save_tensors
from darrm.util.files import check_regular, parse_json, read_json, replace_file, write_text


def read(path: Path) -> object:
    return read_json(path, what="table", most_bytes=1000)


def test_only_regular_files_of_a_plausible_size_are_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")  # opening it would wait for a writer for ever
    (tmp_path / "large").write_bytes(b"1" + b" " * 1000)
    (tmp_path / "right").write_bytes(b"1" + b" " * 999)
    for path in (Path("/dev/zero"), tmp_path / "pipe", tmp_path):
        with pytest.raises(ValueError, match=r"no regular file|a folder"):
            read(path)
    with pytest.raises(ValueError, match="1,001 bytes, more than the 1,000"):
        check_regular(tmp_path / "large", 1000)
    assert read(tmp_path / "right") == 1
    with pytest.raises(FileNotFoundError):
        read(tmp_path / "none")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("before", [0o600, 0o640, 0o664, 0o755])
@pytest.mark.parametrize("private", [False, True])
def test_a_replaced_file_keeps_its_mode(before: int, private: bool, tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    path.write_text("old")
    path.chmod(before)
    write_text(path, "new", private=private)
    assert (path.read_text(), mode(path)) == ("new", before)


def test_private_data_are_readable_by_their_owner_only_from_the_first_byte(tmp_path: Path) -> None:
    umask = os.umask(0o022)
    try:
        for private, after in ((False, 0o644), (True, 0o600)):
            path = tmp_path / f"{private}.json"
            with replace_file(path, private=private) as temporary:
                assert mode(temporary) == 0o600
                temporary.write_text("1")
                assert mode(temporary) == 0o600
            assert mode(path) == after
    finally:
        os.umask(umask)


def test_what_holds_private_data_is_written_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    umask = os.umask(0o022)
    try:
        save_tensors(Path("checkpoint"), {"weights": np.ones(3)}, {})
        save_votes(Path("votes.npy"), np.array([[0, 1, 1]] * 9))
        given = "votes.npy --layout labels --sigma1 9 --sigma2 3 --threshold 2 --delta 1e-5"
        assert run(lambda: pate([*given.split(), "--output", "rows.json", "--plot", "rows.png"])) == 0
    finally:
        os.umask(umask)
    assert {path.name: mode(path) for path in tmp_path.iterdir()} == dict.fromkeys(
        ("votes.npy", "checkpoint", "rows.json", "rows.png"), 0o600
    )


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
    held = path.read_bytes()
    assert main([*words.split(), str(path)]) == 2
    assert "a database, such as a ledger, which would be replaced: name another file" in capsys.readouterr().err
    with pytest.raises(ValueError, match="such as a ledger"):
        write_text(path, "a table")
    assert path.read_bytes() == held
    assert [found.name for found in tmp_path.glob("[!.]*")] == ["spent.png"]


def test_a_file_that_says_it_is_empty_is_bounded_as_it_is_read() -> None:
    path = Path("/proc/self/maps")
    if not path.exists():
        pytest.skip("this system has no /proc")
    with pytest.raises(ValueError, match="holds more than the 1,000 bytes"):
        read(path)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("[" * 34 + "]" * 34, "more than 32 levels"),
        ('{"a":' * 5_000 + "1" + "}" * 5_000, "more than 32 levels"),
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
def test_text_beyond_the_bounds_is_one_line(text: str, line: str) -> None:
    with pytest.raises(ValueError, match=line) as caught:
        parse_json(text)
    assert len(str(caught.value)) < 200


def test_what_is_within_the_bounds_is_read_as_json_reads_it() -> None:
    assert parse_json("[" * 32 + "]" * 32) is not None
    assert parse_json('{"é\\ud83d\\ude00": [1, -2.5e-300, true, null]}') == {"é😀": [1, -2.5e-300, True, None]}


def test_bytes_that_are_no_text_are_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "latin").write_bytes(b'{"a": "\xe9"}')
    with pytest.raises(ValueError, match="latin' holds no table: it is no text in UTF-8"):
        read(tmp_path / "latin")
