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
TEST = f"|1x3 Cross validator\n{WOMAN}.\n{MAN}.\n\n".encode()
CONTENT = bytes([0, 0, 8, 1, 0, 0, 0, 3, 7, 8, 9])
GOOD = gzip.compress(CONTENT, mtime=0)


class Mirror(http.server.BaseHTTPRequestHandler):
    asked: list[str]
    failures_left: int

    def do_GET(self) -> None:
        type(self).asked.append(self.path)
        kind = self.path.split("/")[1]
        if kind == "missing" or (kind == "flaky" and type(self).failures_left > 0):
            type(self).failures_left -= 1
            self.send_error(404 if kind == "missing" else 503)
            return
        bad = {"truncated": GOOD[:-9], "other": gzip.compress(CONTENT[:-1] + b"\x01", mtime=0), "text": b"<html>"}
        body = bad.get(kind, GOOD)
        self.send_response(200)
        self.send_header("Content-Length", str(len(body) + (5 if kind == "broken" else 0)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DARRM_DATA_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


@pytest.fixture
def mirror() -> Iterator[str]:
    Mirror.asked, Mirror.failures_left = [], 2
    server = http.server.HTTPServer(("127.0.0.1", 0), Mirror)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)  # how often it asks for its end
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def file(*mirrors: str, folder: str = "set", name: str = "part.gz", content: bytes = CONTENT) -> RemoteFile:
    return RemoteFile(folder, name, len(content), hashlib.sha256(content).hexdigest(), mirrors)


def placed(data: str, contents: list[bytes], folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put files of a data set into DARRM_DATA_DIR, with their own hashes."""
    monkeypatch.setenv("DARRM_DATA_DIR", str(folder))
    (folder / data).mkdir()
    names = [real.name for real in datasets.FILES[data]]
    for name, content in zip(names, contents, strict=True):
        (folder / data / name).write_bytes(content)
    files = [file(folder=data, name=name, content=content) for name, content in zip(names, contents, strict=True)]
    monkeypatch.setitem(datasets.FILES, data, tuple(files))


def test_a_download_is_checked_kept_and_not_repeated(mirror: str, tmp_path: Path) -> None:
    assert obtain(file(f"{mirror}/good/")) == CONTENT
    assert (tmp_path / "darrm" / "set" / "part.gz").read_bytes() == GOOD
    assert obtain(file(f"{mirror}/good/")) == CONTENT
    assert Mirror.asked == ["/good/part.gz"]
    assert obtain(file(f"{mirror}/good/", name="part.npy", content=GOOD)) == GOOD  # not gzipped, so taken as it is


@pytest.mark.parametrize("bad", ["flaky", "missing", "truncated", "other", "text"])
def test_a_mirror_that_fails_is_asked_again_or_the_next_one(mirror: str, bad: str) -> None:
    assert obtain(file(f"{mirror}/{bad}/", f"{mirror}/good/"), pause=0.0) == CONTENT
    asked = [f"/{bad}/part.gz"] * 3 if bad == "flaky" else [f"/{bad}/part.gz", "/good/part.gz"]
    assert Mirror.asked == asked


def test_when_all_fail_every_reason_is_given_and_nothing_is_kept(mirror: str, tmp_path: Path) -> None:
    with pytest.raises(OSError, match="could not be downloaded") as caught:
        obtain(file(f"{mirror}/missing/", f"{mirror}/other/", f"{mirror}/broken/"), pause=0.0)
    for words in ("404", "is corrupt", "set DARRM_DATA_DIR", "IncompleteRead"):
        assert words in str(caught.value)
    assert not (tmp_path / "darrm" / "set").exists()


@pytest.mark.parametrize(
    ("packed", "message"),
    [
        (GOOD[:-9], "is truncated or no gzip file"),
        (b"no gzip", "is truncated or no gzip file"),
        (GOOD[:15] + b"\xff\xff\xff" + GOOD[18:], "is truncated or no gzip file"),
        (gzip.compress(CONTENT[:-1], mtime=0), "holds 10 bytes, not 11"),
        (gzip.compress(CONTENT[:-1] + b"\x01", mtime=0), "is corrupt"),
    ],
)
@pytest.mark.parametrize("where", ["given", "cache"])
def test_a_damaged_file_is_named(
    packed: bytes, message: str, where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / {"given": "mine", "cache": "darrm"}[where]
    if where == "given":
        monkeypatch.setenv("DARRM_DATA_DIR", str(folder))
    (folder / "set").mkdir(parents=True)
    (folder / "set" / "part.gz").write_bytes(packed)
    with pytest.raises(ValueError, match=rf"set/part\.gz.*{message}"):
        obtain(file("http://127.0.0.1:9/"))


def test_a_folder_without_the_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DARRM_DATA_DIR", str(tmp_path))
    with pytest.raises(ValueError, match="which has no mnist/train-images"):
        load("mnist")


def census(numbers: dict[int, float], *ones: int) -> list[float]:
    expected = [0.0] * 104
    for place, number in (numbers | dict.fromkeys(ones, 1.0)).items():
        expected[place] = number
    return expected


# where a column starts: 0 age, 1 work, 9 education, 25 its years, 26 marriage, 33 occupation, 47 relationship, 53 race,
# 58 sex, 60 gain, 61 loss, 62 hours, 63 country
MANS = census({0: 39, 25: 13, 60: 2174, 62: 40}, 1 + 5, 9 + 0, 26 + 2, 33 + 8, 47 + 3, 53 + 0, 58 + 1, 63 + 0)
WOMANS = census({0: 52, 25: 9, 61: 7, 62: 45}, 9 + 3, 26 + 4, 47 + 0, 53 + 3, 58 + 0)


def test_rows_of_the_census_become_numbers_and_missing_values_zeros(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    placed("adult", [f"{MAN}\n{MAN}\n{WOMAN}\n\n".encode(), TEST], tmp_path, monkeypatch)
    table = load("adult")
    assert table.train_x.dtype == np.float32
    assert (table.train_x.tolist(), table.test_x.tolist()) == ([MANS, MANS, WOMANS], [WOMANS, MANS])
    assert (table.train_y.tolist(), table.test_y.tolist()) == ([0, 0, 1], [1, 0])
    (tmp_path / "adult" / "adult.test").write_bytes(TEST[:-1])
    with pytest.raises(ValueError, match=r"adult/adult\.test holds"):
        load("adult")


def third(line: str) -> bytes:
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
        (read_rows, third(MAN.replace("39, ", "")), "^line 3 of here is no row of 14 values"),
        (read_rows, third(MAN.replace("<=50K", "50K")), "is no row of 14 values and one of <=50K, >50K"),
        (read_rows, third(MAN.replace("State-gov", "Pirate")), "'Pirate' is no category of workclass"),
        (read_rows, third(MAN.replace("2174", "much")), "could not convert string to float: 'much'"),
        (read_rows, b"|1x3 Cross validator\n\n", "here has no rows"),
    ],
)
def test_other_files_are_refused_in_a_line(read: Callable[..., object], content: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        read(content, "here")
    assert "here" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_digits_split_without_overlap_and_an_unknown_set_is_refused() -> None:
    digits = load("digits")
    images = {image.tobytes() for image in digits.train_x}
    assert not any(image.tobytes() in images for image in digits.test_x)
    assert set(np.unique(digits.train_y)) == {0, 1}
    assert 0.0 <= digits.train_x.min() < digits.train_x.max() <= 1.0
    with pytest.raises(ValueError, match="dataset must be one of adult, digits, fashion-mnist, mnist"):
        load("cifar")
