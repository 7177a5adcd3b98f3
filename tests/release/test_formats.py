"""Votes from any format to labels in any format, with the ids of their queries, and what an auditor finds in them."""

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from darrm.commands.command_line import run
from darrm.ledger.ledger import PrivacyLedger
from darrm.privacy import PrivacyParams
from darrm.release import __main__ as release
from darrm.verify.__main__ import main as verify
from darrm.votes import Votes
from darrm.votes.labels_file import load_labels
from tests.doors import releasing
from tests.release.tables import table_of

ROWS = [[1, 1, 0], [0, 0, 0], [1, 1, 1], [0, 1, 0]]
NAMES = ["first, of all", "2", 'the "third"', "é"]


def text(separator: str = ",", *, header: bool = False, ids: bool = False) -> str:
    """A table of votes, perhaps with the names of voters and of queries."""
    lines = [[*(["north", "south", "west"] if header else [])]] if header else []
    lines += [list(map(str, row)) for row in ROWS]
    if ids:
        quoted = [f'"{name.replace(chr(34), chr(34) * 2)}"' for name in NAMES]
        lines = [[name, *line] for name, line in zip(["query", *quoted], lines, strict=True)]
    return "\n".join(separator.join(line) for line in lines) + "\n"


def to_parquet(path: Path, columns: dict[str, Any]) -> None:
    """Write columns to a Parquet file."""
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(arrow.table(columns), path)


COLUMNS: dict[str, list[Any]] = dict(zip("abc", map(list, zip(*ROWS, strict=True)), strict=True))


def folder_of_parquet(path: Path) -> None:
    """Write the rows to two files of a folder."""
    path.mkdir()
    to_parquet(path / "1.parquet", {name: column[:3] for name, column in COLUMNS.items()})
    to_parquet(path / "2.parquet", {name: column[3:] for name, column in COLUMNS.items()})


WRITERS: dict[str, Callable[[Path], Any]] = {
    "plain.csv": lambda path: path.write_text(text()),
    "named.csv": lambda path: path.write_text(text(header=True)),
    "small.csv.gz": lambda path: path.write_bytes(gzip.compress(text(header=True).encode())),
    "one.npz": lambda path: np.savez_compressed(path, votes=np.array(ROWS)),
    "array.npy": lambda path: np.save(path, ROWS),
    "columns.parquet": lambda path: to_parquet(path, COLUMNS),
    "lists.parquet": lambda path: to_parquet(path, {"votes": ROWS}),
    "folder": folder_of_parquet,
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    # γ(1) = γ(3) = 1 at a budget that admits it: labels are the majority
    table_of([1.0, 1.0], epsilon=1, delta=0).save(tmp_path / "table.json")
    PrivacyLedger.create(tmp_path / "l.sqlite", PrivacyParams(400, "0.1"))
    return tmp_path


@pytest.mark.quick_cases(6)
@pytest.mark.parametrize("output", ["labels.csv", "labels.npy", "labels.parquet"])
@pytest.mark.parametrize("name", WRITERS)
def test_labels_go_from_any_format_to_any_format(
    name: str, output: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    WRITERS[name](folder / name)
    if output.endswith(".parquet"):
        pytest.importorskip("pyarrow")
    assert releasing(folder, name, output=output) == 0
    found = folder / output
    parts = sorted(found.iterdir()) if found.is_dir() else [found]
    assert [int(label) for part in parts for label in load_labels(part).tolist()] == [1, 0, 1, 0]
    judged = [folder / "table.json", folder / "l.sqlite", found, folder / f"{output}.receipt.json"]
    assert run(lambda: verify([*map(str, judged)])) == 0
    assert "never paid" not in capsys.readouterr().out


@pytest.mark.parametrize("name", ["ids.tsv", "ids.csv.gz", "ids.parquet"])
@pytest.mark.parametrize("output", ["labels.csv", "labels.parquet"])
def test_ids_travel_to_the_labels(name: str, output: str, folder: Path) -> None:
    table = text("\t" if ".tsv" in name else ",", header=True, ids=True).encode()
    if name.endswith(".parquet"):
        to_parquet(folder / name, {"query": NAMES, **COLUMNS})
    else:
        (folder / name).write_bytes(gzip.compress(table) if name.endswith(".gz") else table)
    assert releasing(folder, name, "--id", "query", output=output) == 0
    assert load_labels(folder / output).astype(int).tolist() == [1, 0, 1, 0]
    if output.endswith(".csv"):
        written = (folder / output).read_text(encoding="utf-8")
        assert written == 'query,label\n"first, of all",1\n2,0\n"the ""third""",1\né,0\n'
    else:
        parquet = pytest.importorskip("pyarrow.parquet")
        assert parquet.read_table(folder / output).to_pydict() == {"query": NAMES, "label": [1, 0, 1, 0]}
    judged = [folder / "table.json", folder / "l.sqlite", folder / output, folder / f"{output}.receipt.json"]
    assert run(lambda: verify([*map(str, judged)])) == 0


def test_ids_that_cannot_be_kept_are_refused_and_free(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "ids.csv").write_text(text(header=True, ids=True), encoding="utf-8")
    (folder / "long.csv").write_text("query,a,b,c\n" + "x" * 201 + ",0,0,0\n", encoding="utf-8")
    (folder / "plain.csv").write_text(text(), encoding="utf-8")
    np.save(folder / "votes.npy", ROWS)
    for name, word, output, message in (
        ("ids.csv", "query", "labels.npy", "a .csv or .parquet file for ids"),
        ("ids.csv", "Query", "labels.csv", "names 0 columns 'Query': line 1 names the columns that --id,"),
        ("plain.csv", "query", "labels.csv", "names 0 columns 'query'"),
        ("long.csv", "query", "labels.csv", "the id of row 0 must be Unicode text of at most 200 characters"),
        ("votes.npy", "query", "labels.csv", "an array has no names of columns"),
    ):
        assert releasing(folder, name, "--id", word, output=output) == 2
        assert message in capsys.readouterr().err
    assert PrivacyLedger(folder / "l.sqlite").entries() == ()


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_column_votes_once(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"votes{suffix}"
    if suffix == ".csv":
        path.write_text("a,b,c\n0,1,1\n", encoding="utf-8")
    else:
        arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        parquet.write_table(arrow.table({"a": [0], "b": [1], "c": [1]}), path)
    for chosen in ({"columns": ("a", "b", "b")}, {"columns": ("a", "b", "c"), "id_column": "c"}):
        with pytest.raises(ValueError, match="the columns must be different, got the same name twice"):
            Votes.read(path, layout="labels", **chosen)
    with pytest.raises(ValueError, match="at least one, got none with votes"):
        Votes.read(path, columns=())


def test_columns_are_chosen_by_name(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "more.csv").write_text("c,note,a,query,b\n0,x,1,p,1\n0,y,0,q,0\n", encoding="utf-8")
    assert releasing(folder, "more.csv", "--columns", "a,b,c", "--id", "query", output="labels.csv") == 0
    assert (folder / "labels.csv").read_text(encoding="utf-8") == "query,label\np,1\nq,0\n"
    assert "line 1 of more.csv names the voters and is no query: 'a', 'b', 'c'" in capsys.readouterr().err


def test_counts_are_read_by_the_names_of_their_columns(folder: Path) -> None:
    (folder / "counts.csv").write_text("yes,no\n3,0\n1,2\n", encoding="utf-8")
    assert releasing(folder, "counts.csv", "--classes", "no,yes", output="labels.csv") == 0
    assert (folder / "labels.csv").read_text(encoding="utf-8") == "yes\nno\n"


def test_labels_with_ids_are_recovered_in_the_order_of_their_queries(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "ids.csv").write_text(text(header=True, ids=True), encoding="utf-8")

    def full(*_: object) -> None:
        raise OSError("no space left")

    with monkeypatch.context() as broken:
        broken.setattr("darrm.release.delivery.save_labels", full)
        assert releasing(folder, "ids.csv", "--id", "query", output="labels.csv") == 3
    words = ["recover", "1", "--ledger", str(folder / "l.sqlite"), "--output", str(folder / "labels.csv")]
    assert run(lambda: release.main(words)) == 0
    assert (folder / "labels.csv").read_text(encoding="utf-8") == "1\n0\n1\n0\n"
