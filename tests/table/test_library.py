"""The stored tables: complete, proven, reproducible, and helpful when there is none."""

import gzip
import json
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from darrm import PrivacyParams, Table, available_tables, load_table, optimize_table, priors
from darrm.errors import TableError
from darrm.optimize.__main__ import main as run_optimize
from darrm.problem import Problem, Voters
from darrm.table import library
from darrm.table.library import PaperSetting, available_sizes
from experiments import composition_tables, make_tables
from experiments.simulations import curves
from tests.optimality import optimality_of
from tests.oracle import all_coefficients

SETTINGS = available_tables()
LARGEST_TOTAL = 3_000_000
LARGEST_GAP = 2e-7


def state_problem(K: int, each: PrivacyParams, m: float) -> Problem:
    return Problem.from_allowance(Voters(K, each), m)


def check_setting(setting: library.Setting) -> None:
    """Load one table and check the promises of `load_table`."""
    table = load_table(state_problem(setting.K, setting.each, setting.m), shape=setting.shape)
    assert table.problem == setting.problem
    assert table.certificate.worst_cost <= table.certificate.budget
    assert optimality_of(table).shape == setting.shape
    assert not optimality_of(table).claimed
    # absolute, next to a fair coin's error of about 1/2: a few degenerate programs at K = 101 stall at 1e-7
    assert optimality_of(table).gap <= max(1e-6 * optimality_of(table).value, LARGEST_GAP)
    value = table.gamma.expected_error(library.PRIOR)
    assert value == pytest.approx(optimality_of(table).value, rel=1e-9, abs=1e-15)
    if setting.shape == "monotone":
        assert table.gamma.is_monotone


def test_the_library_has_every_setting_and_a_bounded_size() -> None:
    sizes = [*make_tables.SIZES, *make_tables.LARGE_SIZES]
    expected = [setting for K in sizes for setting in make_tables.list_settings(K)]
    assert list(SETTINGS) == expected
    assert sum(path.stat().st_size for path in make_tables.FOLDER.iterdir()) < LARGEST_TOTAL


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("index", range(0, len(SETTINGS), 397))
def test_a_sample_of_tables_verifies(index: int) -> None:
    check_setting(SETTINGS[index])


@pytest.mark.slow
@pytest.mark.parametrize("K", available_sizes())
def test_every_stored_table_verifies(K: int) -> None:
    for setting in available_tables(K):
        check_setting(setting)


@pytest.mark.parametrize("setting", [one for one in available_tables(7) if one.m == 2], ids=str)
def test_a_stored_table_is_private_over_all_rows(setting: library.Setting) -> None:
    table = load_table(setting.problem, shape=setting.shape)
    assert np.max(all_coefficients(table.problem) @ table.gamma.half) <= table.problem.budget


@pytest.mark.parametrize("index", range(5, len(SETTINGS), 811))
def test_a_sample_of_tables_is_optimal(index: int) -> None:
    setting = SETTINGS[index]
    stored = load_table(setting.problem, shape=setting.shape)
    fresh = optimize_table(setting.problem, prior=library.PRIOR, shape=setting.shape)
    assert optimality_of(fresh).value == pytest.approx(optimality_of(stored).value, rel=1e-8, abs=LARGEST_GAP)
    # each bound is below the other's value: both are the same optimum
    assert optimality_of(fresh).bound <= optimality_of(stored).value + 1e-15
    assert optimality_of(stored).bound <= optimality_of(fresh).value + 1e-15


def test_the_script_writes_the_stored_file(tmp_path: Path) -> None:
    assert make_tables.main(["--K", "3", "--output", str(tmp_path)]) == 0
    fresh = json.loads(gzip.decompress((tmp_path / "K3.json.gz").read_bytes()))
    stored = json.loads(gzip.decompress((make_tables.FOLDER / "K3.json.gz").read_bytes()))
    assert len(stored["tables"]) == 60
    for new, old in zip(fresh["tables"], stored["tables"], strict=True):
        assert new["gamma"] == pytest.approx(old["gamma"], rel=1e-8, abs=1e-8)
    assert make_tables.pack_tables(3, make_tables.list_settings(3)) == (tmp_path / "K3.json.gz").read_bytes()


@pytest.mark.parametrize(
    ("K", "m", "each", "shape", "nearest"),
    [
        (11, 3, PrivacyParams("0.12"), "free", r"each = \(0.1, 0\)"),
        (19, 3, PrivacyParams("0.1"), "free", r"K = 21, each = \(0.1, 0\)"),
        (11, 9, PrivacyParams("0.1", "1e-5"), "monotone", r"m = 6, each = \(0.1, 1e-05\)"),
        (11, 2.5, PrivacyParams("0.1"), "free", r"m = (2|3), each = \(0.1, 0\)"),
        (5001, 60, PrivacyParams("0.1"), "free", r"K = \d+, m = 50, each = \(0.1, 0\)"),
        (1, 1, PrivacyParams("0.1"), "free", r"K = 3, each = \(0.1, 0\)"),
    ],
)
def test_a_missing_setting_is_refused_with_the_nearest_one(
    K: int, m: float, each: PrivacyParams, shape: str, nearest: str
) -> None:
    with pytest.raises(TableError, match=rf"near are {nearest}.*optimize_table computes") as caught:
        load_table(state_problem(K, each, m), shape=shape)
    assert caught.value.field == "library"


@pytest.mark.parametrize("setting", library.paper_settings()[::3], ids=str)
def test_a_setting_of_the_paper_has_its_optimum(setting: library.PaperSetting) -> None:
    table = load_table(setting.problem, shape=setting.shape, prior=setting.prior)
    assert (table.problem, optimality_of(table).prior) == (setting.problem, setting.prior)
    assert not optimality_of(table).claimed
    fresh = optimize_table(setting.problem, prior=setting.prior, shape=setting.shape)
    assert table.gamma.expected_error(setting.prior) == pytest.approx(optimality_of(fresh).value, rel=1e-9, abs=1e-15)
    assert optimality_of(fresh).bound <= optimality_of(table).value + 1e-15


def test_a_table_of_models_has_the_numbers_of_the_stored_table() -> None:
    for setting in (SETTINGS[60], library.paper_settings()[0]):
        models = replace(setting.problem, voters=replace(setting.problem.voters, models=True))
        table, stored = (load_table(problem, shape=setting.shape) for problem in (models, setting.problem))
        assert table.problem == models
        assert table.gamma.half.tolist() == stored.gamma.half.tolist()
        assert optimality_of(table) == optimality_of(stored)
        assert table.certificate.worst_cost == stored.certificate.worst_cost


def test_paper_settings_are_those_of_the_experiments() -> None:
    stored = set(library.paper_settings())
    assert list(library.paper_settings()) == make_tables.list_paper_settings()
    for data, m in product(("mnist", "fashion-mnist"), (1, 3, 5, 7)):
        each = composition_tables.EACH[data]
        problem = Problem(Voters(composition_tables.K, each), (m * each.exact_epsilon, m * each.exact_delta))
        assert PaperSetting(problem, library.PRIOR, "free") in stored
    for panel in curves.make_composed_panels():
        assert PaperSetting(panel.problem, curves.SURROGATE, "free") in stored
    for panel in curves.PANELS["9"]():
        assert PaperSetting(panel.problem, curves.DECIDED_SURROGATE, "free") in stored


@pytest.mark.parametrize(
    ("problem", "prior", "message"),
    [
        (Problem(Voters(11, ("0.3", 0)), ("0.5", "1e-3")), "uniform:0.5,1", "default delta"),
        (Problem(Voters(11, ("0.1", 0), overlap=2), ("0.3", 0)), "uniform:0.5,1", "all within reach"),
        (state_problem(11, PrivacyParams("0.1"), 3), "uniform", "for the prior uniform:0,1"),
    ],
)
def test_a_setting_outside_the_grid_is_refused_with_the_call_that_computes_it(
    problem: Problem, prior: str, message: str
) -> None:
    with pytest.raises(TableError, match=message) as caught:
        load_table(problem, prior=prior)
    call = f"optimize_table(problem, shape='free', prior={priors.parse(prior).text!r}) computes it"
    assert call in str(caught.value)


def test_a_missing_setting_is_refused_with_a_command_that_computes_it(tmp_path: Path) -> None:
    with pytest.raises(TableError) as caught:
        load_table(state_problem(5, PrivacyParams("0.2", "1e-5"), 2.5), shape="monotone")
    command = str(caught.value).partition("darrm optimize ")[2].replace("FILE", str(tmp_path / "table.json"))
    assert run_optimize([*command.split(), "--quiet"]) == 0
    table = Table.load(tmp_path / "table.json")
    assert table.problem == state_problem(5, PrivacyParams("0.2", "1e-5"), 2.5)
    assert optimality_of(table).shape == "monotone"


class TestDamage:
    packed = (make_tables.FOLDER / "K3.json.gz").read_bytes()
    problem = state_problem(3, PrivacyParams("0.1"), 1)

    def install(self, folder: Path, packed: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
        (folder / "tables").mkdir()
        (folder / "tables" / "K3.json.gz").write_bytes(packed)
        monkeypatch.setattr("darrm.table.library.resources.files", lambda _: folder)

    @pytest.mark.parametrize(
        ("packed", "message"),
        [
            (packed[:-50], r"is damaged.*install it again"),
            (gzip.compress(b'{"format": "other"}', mtime=0), "unknown format"),  # every worker collects the same bytes
        ],
        ids=["cut", "other"],
    )
    def test_a_damaged_file_is_refused(
        self, packed: bytes, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.install(tmp_path, packed, monkeypatch)
        with pytest.raises(TableError, match=message):
            load_table(self.problem)

    @pytest.mark.parametrize("forge", [False, True])
    def test_a_raised_gamma_is_refused(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, forge: bool) -> None:
        content = json.loads(gzip.decompress(self.packed))
        for entry in content["tables"]:
            entry["gamma"] = [1.0, 1.0]
            if forge:
                entry["checksum"] = None
        if forge:  # a matching checksum does not help: the proof is made again
            monkeypatch.setattr("darrm.table.table.compute_checksum", lambda _: None)
        self.install(tmp_path, gzip.compress(json.dumps(content).encode()), monkeypatch)
        expected = "above the budget" if forge else "changed after it was saved"
        with pytest.raises(TableError, match=expected):
            load_table(self.problem)
