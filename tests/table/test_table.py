"""Tables on disk: what is read back is what was proved; everything else is refused by its field."""

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


def write_changed(table: Table, tmp_path: Path, **fields: object) -> Path:
    path = tmp_path / "changed.json"
    data = {name: value for name, value in {**table.to_json(), **fields}.items() if value is not MISSING}
    digits = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(0)  # Python writes whole numbers of at most 4,300 digits by itself
    try:
        path.write_text(json.dumps(data))
    finally:
        sys.set_int_max_str_digits(digits)
    return path


def test_the_file_follows_its_schema(table: Table) -> None:
    validated(table.to_json(), "gamma_table")
    validated(certify(table.problem, NoiseFunction(11, np.ones(6))).to_json(), "gamma_table")
    with pytest.raises(jsonschema.ValidationError):
        validated({**table.to_json(), "version": 2}, "gamma_table")


def test_a_raised_gamma_with_a_forged_checksum_is_refused(table: Table, tmp_path: Path) -> None:
    values = table.to_json()["gamma"]
    values[1] += 1e-3
    checksum = compute_checksum({"problem": table.to_json()["problem"], "gamma": values})
    with pytest.raises(TableError, match="above the budget"):
        Table.load(write_changed(table, tmp_path, gamma=values, checksum=checksum))


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
def test_a_wrong_field_is_named(table: Table, tmp_path: Path, fields: dict[str, object], field: str) -> None:
    with pytest.raises(TableError) as caught:
        Table.load(write_changed(table, tmp_path, **fields))
    assert caught.value.field == field
    assert str(caught.value).startswith(field)


def test_a_file_without_a_json_object_is_refused(table: Table, tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    table.save(path)
    text = path.read_bytes()
    truncated = [text[:length] for length in (0, 1, len(text) // 2, len(text) - 2)]
    for content in (*truncated, b"[" * 100_000, b"\xff\xfe\x00", b"[1, 2]"):
        path.write_bytes(content)
        with pytest.raises(TableError, match="does not hold a JSON object" if content == b"[1, 2]" else r"^file: "):
            Table.load(path)


def test_a_failed_save_leaves_the_old_file(table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "table.json"
    table.save(path)
    before = path.read_text()

    def fill_disk(self: Path, text: str, encoding: str) -> int:
        with self.open("w", encoding=encoding) as file:
            file.write(text[: len(text) // 2])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", fill_disk)
    with pytest.raises(OSError, match="No space left"):
        certify(table.problem, NoiseFunction(11, np.zeros(6))).save(path)
    monkeypatch.undo()
    assert path.read_text() == before
    assert list(tmp_path.iterdir()) == [path]


def test_only_certify_makes_a_table(table: Table) -> None:
    with pytest.raises(TypeError, match="made by certify"):
        Table(table.problem, NoiseFunction(11, np.ones(6)), table.certificate, None, {})


@pytest.mark.parametrize(
    "problem",
    [
        pytest.param(Problem.from_allowance(Voters(5, PrivacyParams("0.1"), 2, models=True), 2), id="overlap, models"),
        pytest.param(Problem.from_allowance(Voters(5, PrivacyParams("1/3", "1e-30")), "4/3"), id="decimals"),
    ],
)
def test_the_problem_is_read_back_exactly(problem: Problem, tmp_path: Path) -> None:
    table = certify(problem, NoiseFunction(5, [0.1, 0.2, 1.0]))
    table.save(tmp_path / "t.json")
    assert Table.load(tmp_path / "t.json").problem == problem
    data = table.to_json()
    validated(data, "gamma_table")
    for change in ({"models": not problem.voters.models}, {"overlap": 3}):
        with pytest.raises(TableError, match="checksum"):
            Table.from_json({**data, "problem": {**data["problem"], **change}})
