"""Random programs with their optima by scipy, and oracles for row generation."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
from scipy.optimize import linprog

from lp_models.program import Array, LinearProgram
from lp_models.row_generation import Separation

UNIT = LinearProgram(-np.ones(3), np.ones((1, 3)), np.array([1.5]))  # its optimum is −1.5


def random_program(seed: int, rows: int = 30, n: int = 8) -> LinearProgram:
    rng = np.random.default_rng(seed)
    matrix = rng.normal(size=(rows, n)) + 0.3
    return LinearProgram(-rng.random(n), matrix, rng.uniform(0.1, 1.0, rows), 0.25)


def drop_rows(program: LinearProgram, count: int = 0) -> LinearProgram:
    """Keep the first ``count`` rows only."""
    return LinearProgram(program.cost, program.matrix[:count], program.limits[:count], program.offset)


def solve_with_scipy(program: LinearProgram) -> float:
    solution = linprog(program.cost, program.matrix, program.limits, bounds=(0.0, 1.0), method="highs-ds")
    return float(solution.fun) + program.offset


class ListOracle:
    """Answer two broken rows of a program at a time; a quick look sees the first ``num_visible`` rows only."""

    def __init__(self, program: LinearProgram, num_visible: int | None = None) -> None:
        self.program, self.num_visible = program, num_visible

    def separate(self, point: Array, *, thorough: bool, deadline: float) -> Separation:
        del deadline
        visible = slice(None if thorough else self.num_visible)
        ratios = self.program.matrix[visible] @ point / self.program.limits[visible]
        broken = [row for row in np.argsort(-ratios)[:2].tolist() if ratios[row] > 1.0 + 1e-12]
        feasible = point / max(1.0, float(np.max(ratios, initial=0.0)))
        is_thorough = thorough or self.num_visible is None
        return Separation(self.program.matrix[broken], self.program.limits[broken], feasible, is_thorough, broken)


def oracle(separate: Callable[..., Separation]) -> Any:
    return SimpleNamespace(separate=separate)


def no_rows(feasible: Array, *, thorough: bool = True) -> Separation:
    return Separation(np.empty((0, feasible.size)), np.empty(0), feasible, thorough)
