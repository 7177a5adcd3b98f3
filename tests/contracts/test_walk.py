"""ε on its way from the command line to a file and a cost, with their guarantees recomputed by brute force."""

import json
from fractions import Fraction
from pathlib import Path

import mpmath
import pytest

from darrm import PrivacyParams, Problem, Release, Table
from darrm.commands.command_line import run
from darrm.optimize.__main__ import main
from darrm.problem import Voters
from tests.oracle import exact_budget, exact_worst_cost, exponential


def test_a_table_and_its_cost_keep_the_guarantee_of_the_command_line(tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    problem_flags = ["--K", "5", "--m", "2.5", "--epsilon", "0.3", "--each-delta", "1e-3"]
    arguments = [*problem_flags, "--prior", "common", "--quiet", "--output"]
    assert run(lambda: main([*arguments, str(path)])) == 0
    data = json.loads(path.read_text())
    assert Fraction(data["problem"]["each"]["epsilon"]) == Fraction(3, 10)
    assert Fraction(data["problem"]["target"]["epsilon"]) == Fraction(75, 100)
    # only the numbers of the file from here on
    each, target = (
        PrivacyParams(data["problem"][name]["epsilon"], data["problem"][name]["delta"]) for name in ("each", "target")
    )
    problem = Problem(Voters(data["problem"]["K"], each), target)
    worst = exact_worst_cost(problem, data["gamma"])
    assert worst <= data["certificate"]["worst_cost"] <= data["certificate"]["budget"] <= exact_budget(problem)
    # the optimum uses its budget up
    assert worst >= exact_budget(problem) * (1 - Fraction(1, 10**9))
    # the cost of a release is at least the divergence over all assignments of corners
    cost = Release(Table.load(path)).privacy_cost()
    assert cost.guarantee == target
    assert cost.profile is not None
    at_half = Problem(problem.voters, PrivacyParams("0.5", each.exact_delta))
    exact = (1 - exponential(Fraction(1, 2)) + exact_worst_cost(at_half, data["gamma"])) / 2
    assert exact <= cost.profile.delta_at(0.5) <= exact * Fraction(1001, 1000)  # a chord between two points


@pytest.mark.parametrize("delta", ["1e-5", "0.01", "0.3", "1e-12"])
@pytest.mark.parametrize("m", ["1", "2", "7", "1.5", "6.333"])
def test_the_default_delta_is_rounded_down(m: str, delta: str) -> None:
    each = PrivacyParams("0.1", delta)
    target = Problem.from_allowance(Voters(11, each), m).target.exact_delta
    with mpmath.workdps(150):
        true = 1 - (1 - mpmath.mpf(delta)) ** mpmath.mpf(m)
        stated = mpmath.mpf(target.numerator) / target.denominator
        assert stated <= true * (1 + mpmath.mpf(10) ** -50)
        assert stated >= true * (1 - mpmath.mpf(10) ** -14)
    assert target >= each.exact_delta
