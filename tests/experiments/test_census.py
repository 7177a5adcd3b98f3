import hashlib
from pathlib import Path

import numpy as np
import pytest

from experiments import datasets
from experiments.census import load_adult, read_rows
from experiments.download import RemoteFile

MAN = (
    "39, State-gov, 77516, Bachelors, 13, Never-married, Adm-clerical, Not-in-family, White, Male, 2174, 0, 40, "
    "United-States, <=50K"
)
WOMAN = "52,?,20,HS-grad,9,Widowed,?,Wife,Other,Female,0,7,45,?,>50K"
TEST = f"|1x3 Cross validator\n{WOMAN}.\n{MAN}.\n\n"


def row(numbers: dict[int, float], *ones: int) -> list[float]:
    expected = [0.0] * 104
    for place, number in (numbers | dict.fromkeys(ones, 1.0)).items():
        expected[place] = number
    return expected


# where a column starts: 0 age, 1 work, 9 education, 25 its years, 26 marriage, 33 occupation, 47 relationship, 53 race,
# 58 sex, 60 gain, 61 loss, 62 hours, 63 country
MANS = row({0: 39, 25: 13, 60: 2174, 62: 40}, 1 + 5, 9 + 0, 26 + 2, 33 + 8, 47 + 3, 53 + 0, 58 + 1, 63 + 0)
WOMANS = row({0: 52, 25: 9, 61: 7, 62: 45}, 9 + 3, 26 + 4, 47 + 0, 53 + 3, 58 + 0)


def test_rows_become_numbers_and_what_is_missing_zeros() -> None:
    x, y = read_rows(TEST.encode(), "here")
    assert x.dtype == np.float32
    assert x.tolist() == [WOMANS, MANS]
    assert y.tolist() == [1, 0]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (MAN.replace("39, ", ""), "is no row of 14 values"),
        (MAN + ", 1", "is no row of 14 values"),
        (MAN.replace("<=50K", "50K"), "is no row of 14 values and one of <=50K, >50K"),
        (MAN.replace("State-gov", "Pirate"), "'Pirate' is no category of workclass"),
        (MAN.replace("2174", "much"), "could not convert string to float: 'much'"),
    ],
)
def test_other_rows_are_named(line: str, message: str) -> None:
    with pytest.raises(ValueError, match=f"^line 3 of here.*{message}"):
        read_rows(f"|\n{MAN}\n{line}\n".encode(), "here")


def test_a_file_without_rows_is_refused() -> None:
    with pytest.raises(ValueError, match="here has no rows"):
        read_rows(b"|1x3 Cross validator\n\n", "here")


def test_the_table_is_split_as_it_comes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DARRM_DATA_DIR", str(tmp_path))
    (tmp_path / "adult").mkdir()
    contents = {"adult.data": f"{MAN}\n{MAN}\n{WOMAN}\n\n".encode(), "adult.test": TEST.encode()}
    files = []
    for real in datasets.FILES["adult"]:
        content = contents[real.name]
        (tmp_path / "adult" / real.name).write_bytes(content)
        files.append(RemoteFile("adult", real.name, len(content), hashlib.sha256(content).hexdigest(), real.mirrors))
    monkeypatch.setitem(datasets.FILES, "adult", tuple(files))
    table = load_adult()
    assert table.train_x.tolist() == [MANS, MANS, WOMANS]
    assert table.test_x.tolist() == [WOMANS, MANS]
    assert (table.train_y.tolist(), table.test_y.tolist()) == ([0, 0, 1], [1, 0])
    (tmp_path / "adult" / "adult.test").write_bytes(TEST.encode()[:-1])
    with pytest.raises(ValueError, match=r"adult/adult\.test holds"):
        load_adult()
