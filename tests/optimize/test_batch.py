"""Many problems at once are what each is by itself, in order, however many processes solve them."""

import json
from importlib.util import find_spec

import pytest

from darrm import PrivacyParams, Problem, Voters, optimize_table
from darrm.optimize import optimizer
from darrm.optimize.optimizer import optimize_many
from darrm.table.table import Table
from tests.optimality import optimality_of

# two sweeps, taken in turns, so that order and groups differ
SWEEP = [
    Problem.from_allowance(Voters(K, PrivacyParams("0.1", delta)), m)
    for m in (2, 3, 5)
    for K, delta in ((17, "1e-4"), (11, "0"))
]


def rounds_of(table: Table) -> int:
    return int(dict(table.provenance)["rounds"])


@pytest.mark.parametrize("shape", [pytest.param("free", marks=pytest.mark.slow), "monotone"])
def test_each_is_what_it_is_by_itself_in_fewer_rounds(shape: str) -> None:
    together = optimize_many(SWEEP, shape=shape)
    alone = [optimize_table(problem, shape=shape) for problem in SWEEP]
    assert [table.problem for table in together] == SWEEP
    for table, single in zip(together, alone, strict=True):
        assert optimality_of(table).value == pytest.approx(optimality_of(single).value, rel=0, abs=1e-9)
        # each bound is proved for the other as well
        assert optimality_of(table).bound <= optimality_of(single).value + 1e-15
        assert table.certificate.worst_cost <= table.certificate.budget
    assert sum(map(rounds_of, together)) < sum(map(rounds_of, alone))


@pytest.mark.slow
@pytest.mark.skipif(find_spec("joblib") is None, reason="needs the extra sampling")
def test_processes_change_nothing() -> None:
    one, two = (optimize_many(SWEEP, shape="monotone", jobs=jobs) for jobs in (1, 2))
    assert [json.dumps(table.to_json()) for table in one] == [json.dumps(table.to_json()) for table in two]


def test_rows_of_other_voters_are_left_out() -> None:
    near = optimize_table(SWEEP[0])
    # with a smaller overlap most rows of the other are none: they would forbid a better γ
    voters = Voters(31, PrivacyParams("0.1", "1e-4"), overlap=2)
    problem = Problem.from_allowance(voters, 2)
    table, single = optimize_table(problem, start=near), optimize_table(problem)
    assert optimality_of(table).value == pytest.approx(optimality_of(single).value, rel=1e-8)
    assert optimality_of(single).value < optimality_of(near).value


def test_what_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=r"problems\[1\] must be a Problem, got 3"):
        optimize_many([SWEEP[0], 3])  # type: ignore[list-item]
    for jobs in (0, -2, 1.5):
        with pytest.raises(ValueError, match=r"jobs must be .* or -1 for all cores"):
            optimize_many(SWEEP, jobs=jobs)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="start must be a Table"):
        optimize_table(SWEEP[0], start=SWEEP[0])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="shape must be one of"):
        optimize_many([], shape="round")
    assert optimize_many([]) == []

    def absent(module: str) -> None:
        raise ValueError(f"this needs the package {module}")

    monkeypatch.setattr(optimizer, "require", absent)
    with pytest.raises(ValueError, match="needs the package joblib"):
        optimize_many(SWEEP, jobs=2)


def test_problems_of_any_number_of_classes_are_solved_side_by_side() -> None:
    voters = Voters(3, PrivacyParams("inf"), overlap=1)
    sweep = [Problem(voters, PrivacyParams(epsilon), classes) for epsilon in (1, 2) for classes in (3, 2)]
    tables = optimize_many(sweep)
    assert [table.problem for table in tables] == sweep
