"""Tables on disk: what is read back is what was proved; nothing else is."""

import json
import sys
from pathlib import Path

import jsonschema
import numpy as np
import pytest

from darrm import NoiseFunction, PrivacyParams, Problem, Table, certify, optimize_table
from darrm.errors import TableError
from darrm.problem import Voters
from darrm.util.files import compute_checksum
from tests.doors import validated

MISSING = object()
PAIRS = {"each": {"epsilon": "0.1", "delta": "0"}, "target": {"epsilon": "0.3", "delta": "0"}}


@pytest.fixture(scope="module")
def table() -> Table:
    return optimize_table(Problem.from_allowance(Voters(11, PrivacyParams("0.1", "1e-5")), 3))


def change(table: Table, tmp_path: Path, **fields: object) -> Path:
    path = tmp_path / "changed.json"
    data = {**table.to_json(), **fields}
    path.write_text(as_json({name: value for name, value in data.items() if value is not MISSING}))
    return path


def as_json(data: object) -> str:
    """Also whole numbers of more digits than Python writes by itself."""
    digits = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(0)
    try:
        return json.dumps(data)
    finally:
        sys.set_int_max_str_digits(digits)


def test_the_file_follows_its_schema(table: Table) -> None:
    validated(table.to_json(), "gamma_table")
    validated(certify(table.problem, NoiseFunction(11, np.ones(6))).to_json(), "gamma_table")
    with pytest.raises(jsonschema.ValidationError):
        validated({**table.to_json(), "version": 2}, "gamma_table")


def test_a_forged_checksum_does_not_help(table: Table, tmp_path: Path) -> None:
    values = table.to_json()["gamma"]
    values[1] += 1e-3
    forged = compute_checksum({"problem": table.to_json()["problem"], "gamma": values})
    with pytest.raises(TableError, match="above the budget"):
        Table.load(change(table, tmp_path, gamma=values, checksum=forged))


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        *(({name: MISSING}, name) for name in ("problem", "gamma", "checksum", "certificate")),
        ({"version": 2}, "version"),
        ({"version": True}, "version"),
        ({"format": "something"}, "format"),
        ({"gamma": [0.5] * 5}, "gamma"),
        ({"gamma": [0.5, 0.5, 0.5, 0.5, 0.5, 2.0]}, "gamma"),
        ({"problem": {"K": 13, **PAIRS}}, "gamma"),
        ({"problem": {"K": 11}}, "problem"),
        ({"problem": {"K": 11, "each": {"epsilon": 0.1, "delta": "0"}, "target": PAIRS["target"]}}, "problem"),
        ({"problem": {"K": 10**5000, **PAIRS}}, "file"),
        ({"gamma": ["0.5"] * 6}, "gamma"),
        ({"gamma": [10**400] * 6}, "gamma"),
        ({"gamma": [float("nan")] * 6}, "file"),
        ({"checksum": 3}, "gamma"),
        ({"certificate": {}}, "certificate"),
        ({"certificate": {"scale": 1.5}}, "certificate"),
        ({"certificate": {"scale": float("nan")}}, "file"),
        ({"certificate": {"scale": "1"}}, "certificate"),
        ({"provenance": {"solver": 1}}, "provenance"),
        ({"provenance": {"solver": "\ud800"}}, "file"),
        ({"optimality": {"value": 1}}, "optimality"),
    ],
)
def test_wrong_fields_are_named(table: Table, tmp_path: Path, fields: dict[str, object], field: str) -> None:
    with pytest.raises(TableError) as caught:
        Table.load(change(table, tmp_path, **fields))
    assert caught.value.field == field
    assert str(caught.value).startswith(field)


def test_a_truncated_file(table: Table, tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    table.save(path)
    text = path.read_text()
    for length in (0, 1, len(text) // 2, len(text) - 2):
        path.write_text(text[:length])
        with pytest.raises(TableError) as caught:
            Table.load(path)
        assert caught.value.field == "file"
    path.write_text("[" * 100_000)
    with pytest.raises(TableError, match=r"^file: "):
        Table.load(path)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(TableError):
        Table.load(path)
    path.write_text("[1, 2]")
    with pytest.raises(TableError, match="does not hold a JSON object"):
        Table.load(path)


def test_a_failed_save_leaves_the_old_file(table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "table.json"
    table.save(path)
    before = path.read_text()

    def full_disk(self: Path, text: str, encoding: str) -> int:
        with self.open("w", encoding=encoding) as file:
            file.write(text[: len(text) // 2])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full_disk)
    with pytest.raises(OSError, match="No space left"):
        certify(table.problem, NoiseFunction(11, np.zeros(6))).save(path)
    monkeypatch.undo()
    assert path.read_text() == before
    assert list(tmp_path.iterdir()) == [path]


def test_nobody_else_makes_a_table(table: Table) -> None:
    with pytest.raises(TypeError, match="made by certify"):
        Table(table.problem, NoiseFunction(11, np.ones(6)), table.certificate, None, {})


def test_overlap_and_models_survive(tmp_path: Path) -> None:
    problem = Problem.from_allowance(Voters(5, PrivacyParams("0.1"), overlap=2, models=True), 2)
    table = certify(problem, NoiseFunction(5, np.ones(3)))
    table.save(tmp_path / "t.json")
    assert Table.load(tmp_path / "t.json").problem == problem
    data = table.to_json()
    validated(data, "gamma_table")
    del data["problem"]["overlap"]
    with pytest.raises(TableError, match="checksum"):
        Table.from_json(data)
    everyone = Problem.from_allowance(Voters(5, PrivacyParams("0.1"), overlap=5), 2)
    assert everyone == Problem.from_allowance(Voters(5, PrivacyParams("0.1")), 2)


def test_decimals_survive(tmp_path: Path) -> None:
    problem = Problem.from_allowance(Voters(3, PrivacyParams("1/3", "1e-30")), "4/3")
    table = certify(problem, NoiseFunction(3, [0.1, 0.2]))
    table.save(tmp_path / "t.json")
    assert Table.load(tmp_path / "t.json").problem == problem
