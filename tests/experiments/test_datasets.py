"""Files of data sets: downloads with retries, checks of every byte, and the numbers that the loaders read."""

import gzip
import hashlib
import http.server
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from experiments import datasets
from experiments.datasets import load, read_idx, read_rows
from experiments.download import RemoteFile, obtain

MAN = (
    "39, State-gov, 77516, Bachelors, 13, Never-married, Adm-clerical, Not-in-family, White, Male, 2174, 0, 40, "
    "United-States, <=50K"
)
WOMAN = "52,?,20,HS-grad,9,Widowed,?,Wife,Other,Female,0,7,45,?,>50K"
CONTENT = bytes([0, 0, 8, 1, 0, 0, 0, 3, 7, 8, 9])
PACKED = gzip.compress(CONTENT, mtime=0)
OTHER = gzip.compress(CONTENT[:-1] + b"\x01", mtime=0)


class Mirror(http.server.BaseHTTPRequestHandler):
    """A server whose folders fail in different ways."""

    requests: list[str]
    failures_left: int

    def do_GET(self) -> None:
        self.requests.append(self.path)
        kind = self.path.split("/")[1]
        if kind == "missing" or (kind == "flaky" and type(self).failures_left > 0):
            type(self).failures_left -= 1
            self.send_error(404 if kind == "missing" else 503)
            return
        body = {"truncated": PACKED[:-9], "other": OTHER, "text": b"<html>"}.get(kind, PACKED)
        self.send_response(200)
        self.send_header("Content-Length", str(len(body) + (5 if kind == "broken" else 0)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("DARRM_DATA_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "darrm"


@pytest.fixture
def mirror() -> Iterator[str]:
    Mirror.requests, Mirror.failures_left = [], 2
    server = http.server.HTTPServer(("127.0.0.1", 0), Mirror)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def describe_file(*mirrors: str, folder: str = "set", name: str = "part.gz", content: bytes = CONTENT) -> RemoteFile:
    return RemoteFile(folder, name, len(content), hashlib.sha256(content).hexdigest(), mirrors)


def test_a_download_is_cached_and_not_repeated(mirror: str, cache: Path) -> None:
    for _ in range(2):
        assert obtain(describe_file(f"{mirror}/good/")) == CONTENT
    assert (cache / "set" / "part.gz").read_bytes() == PACKED
    assert Mirror.requests == ["/good/part.gz"]
    assert obtain(describe_file(f"{mirror}/good/", name="part.npy", content=PACKED)) == PACKED  # not to be unpacked


@pytest.mark.parametrize("kind", ["flaky", "missing", "truncated", "other", "text"])
def test_a_failing_mirror_is_retried_or_replaced_by_the_next(mirror: str, kind: str) -> None:
    assert obtain(describe_file(f"{mirror}/{kind}/", f"{mirror}/good/"), pause=0.0) == CONTENT
    expected = [f"/{kind}/part.gz"] * 3 if kind == "flaky" else [f"/{kind}/part.gz", "/good/part.gz"]
    assert Mirror.requests == expected


def test_if_all_mirrors_fail_every_reason_is_named_and_nothing_is_cached(mirror: str, cache: Path) -> None:
    with pytest.raises(OSError, match="could not be downloaded") as caught:
        obtain(describe_file(f"{mirror}/missing/", f"{mirror}/other/", f"{mirror}/broken/"), pause=0.0)
    for reason in ("404", "is corrupt", "set DARRM_DATA_DIR", "IncompleteRead"):
        assert reason in str(caught.value)
    assert not (cache / "set").exists()


@pytest.mark.parametrize(
    ("packed", "message"),
    [
        (PACKED[:-9], "is truncated or no gzip file"),
        (b"no gzip", "is truncated or no gzip file"),
        (PACKED[:15] + b"\xff\xff\xff" + PACKED[18:], "is truncated or no gzip file"),
        (gzip.compress(CONTENT[:-1], mtime=0), "holds 10 bytes, not 11"),
        (OTHER, "is corrupt"),
    ],
)
def test_a_damaged_file_is_refused(packed: bytes, message: str, cache: Path) -> None:
    (cache / "set").mkdir(parents=True)
    (cache / "set" / "part.gz").write_bytes(packed)
    with pytest.raises(ValueError, match=rf"set/part\.gz.*{message}"):
        obtain(describe_file("http://127.0.0.1:9/"))


def test_adult_rows_become_numbers_and_missing_values_zeros(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DARRM_DATA_DIR", str(tmp_path))
    (tmp_path / "adult").mkdir()
    contents = {
        "adult.data": f"{MAN}\n{MAN}\n{WOMAN}\n\n".encode(),
        "adult.test": f"|1x3 Cross validator\n{WOMAN}.\n{MAN}.\n\n".encode(),
    }
    for name, content in contents.items():
        (tmp_path / "adult" / name).write_bytes(content)
    files = [describe_file(folder="adult", name=name, content=content) for name, content in contents.items()]
    monkeypatch.setitem(datasets.FILES, "adult", tuple(files))
    # where a column starts: 0 age, 1 work, 9 education, 25 its years, 26 marriage, 33 occupation, 47 relationship,
    # 53 race, 58 sex, 60 gain, 61 loss, 62 hours, 63 country
    man, woman = np.zeros((2, 104))
    man[[0, 25, 60, 62]] = 39, 13, 2174, 40
    man[[1 + 5, 9 + 0, 26 + 2, 33 + 8, 47 + 3, 53 + 0, 58 + 1, 63 + 0]] = 1
    woman[[0, 25, 61, 62]] = 52, 9, 7, 45
    woman[[9 + 3, 26 + 4, 47 + 0, 53 + 3, 58 + 0]] = 1
    table = load("adult")
    assert table.train_x.dtype == np.float32
    np.testing.assert_array_equal(table.train_x, [man, man, woman])
    np.testing.assert_array_equal(table.test_x, [woman, man])
    assert (table.train_y.tolist(), table.test_y.tolist()) == ([0, 0, 1], [1, 0])


def write_third_line(line: str) -> bytes:
    return f"|\n{MAN}\n{line}\n".encode()


@pytest.mark.parametrize(
    ("read", "content", "message"),
    [
        (read_idx, b"", "no IDX file"),
        (read_idx, bytes([0, 0, 13, 1, 0, 0, 0, 1, 0]), "no IDX file"),
        (read_idx, bytes([0, 0, 8, 0]), "no IDX file"),
        (read_idx, bytes([0, 0, 8, 2, 0, 0]), "truncated within its header"),
        (read_idx, CONTENT[:-1], "has 10 bytes where its header says 11"),
        (read_idx, CONTENT + b"\0", "has 12 bytes where its header says 11"),
        (read_idx, bytes([0, 0, 8, 3, *[255] * 12]), "bytes where its header says"),
        (read_rows, write_third_line(MAN.replace("39, ", "")), "^line 3 of here is no row of 14 values"),
        (read_rows, write_third_line(MAN.replace("<=50K", "50K")), "one of <=50K, >50K"),
        (read_rows, write_third_line(MAN.replace("State-gov", "Pirate")), "'Pirate' is no category of workclass"),
        (read_rows, write_third_line(MAN.replace("2174", "much")), "could not convert string to float: 'much'"),
        (read_rows, b"|1x3 Cross validator\n\n", "here has no rows"),
    ],
)
def test_readers_refuse_other_content(read: Callable[..., object], content: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        read(content, "here")
    assert "here" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_digits_split_without_overlap() -> None:
    digits = load("digits")
    images = {image.tobytes() for image in digits.train_x}
    assert not any(image.tobytes() in images for image in digits.test_x)
    assert set(np.unique(digits.train_y)) == {0, 1}
    assert 0.0 <= digits.train_x.min() < digits.train_x.max() <= 1.0


def test_load_refuses_an_unknown_set_and_a_folder_without_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ValueError, match="dataset must be one of adult, digits, fashion-mnist, mnist"):
        load("cifar")
    monkeypatch.setenv("DARRM_DATA_DIR", str(tmp_path))
    with pytest.raises(ValueError, match="which has no mnist/train-images"):
        load("mnist")
