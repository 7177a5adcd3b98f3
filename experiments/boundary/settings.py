"""The shapes that are measured, and the searches."""

from dataclasses import dataclass

import numpy as np

from darrm.majority.noise_function import NoiseFunction
from darrm.optimize.optimizer import optimize_table
from darrm.privacy import PrivacyParams
from darrm.problem import Problem, Voters
from experiments.boundary.search import Search


@dataclass(frozen=True)
class Shape:
    """A γ, and how many questions are asked of which models: all that there are, or one-bit ones that agree."""

    kind: str  # falling (all models); optimum, unanimity or ramp (the same question)
    shape: str
    K: int
    epsilon: float
    questions: int
    gamma: NoiseFunction


def falling(K: int, epsilon: float, questions: int, *half: float) -> Shape:
    """Take γ(l) for l > K/2."""
    words = "falling: " + ", ".join(f"{value:.4f}" for value in half)
    return Shape("falling", words, K, epsilon, questions, NoiseFunction(K, half))


def unanimity(K: int, epsilon: float, questions: int, value: float) -> Shape:
    """Take the γ that is ``value`` where all agree and 0 elsewhere."""
    gamma = NoiseFunction(K, [*[0.0] * (K - K // 2 - 1), value])
    return Shape("unanimity", "unanimity", K, epsilon, questions, gamma)


def ramp(K: int, epsilon: float, questions: int, *, step: tuple[int, float], rise: tuple[int, int, float]) -> Shape:
    """Take the γ that is 0 up to some votes, then makes a step, and rises from start to end by a slope a vote.

    >>> ramp(5, 0.1, 2, step=(4, 0.2), rise=(4, 5, 0.1)).gamma.half.round(3).tolist()
    [0.0, 0.2, 0.3]
    """
    (first, height), (start, end, slope) = step, rise
    votes = np.arange(K // 2 + 1, K + 1)
    gamma = NoiseFunction(K, np.where(votes < first, 0.0, height) + slope * np.clip(votes - start, 0, end - start))
    words = f"ramp: {height} from {first}, then {slope} for each vote above {start}, up to {end}"
    return Shape("ramp", words, K, epsilon, questions, gamma)


def optimum(K: int, questions: int) -> Shape:
    """Take the optimal γ for m = 1 and ε = 0.1, whose certificate says that a question costs at most one voter."""
    table = optimize_table(Problem.from_allowance(Voters(K, PrivacyParams("0.1")), 1))
    return Shape("optimum", "optimum, m = 1", K, 0.1, questions, table.gamma)


SHAPES = (
    falling(3, 0.1, 2, 1.0, 1 / 3),
    falling(3, 2.0, 2, 1.0, 0.7653),
    optimum(51, 10),
    optimum(101, 21),
    optimum(201, 13),
    unanimity(5, 1.0, 100, 0.05),
    unanimity(9, 0.3, 150, 0.05),
    unanimity(11, 0.1, 200, 0.05),
    ramp(51, 0.5, 2, step=(32, 0.367), rise=(34, 43, 0.0199)),
    ramp(101, 0.3, 5, step=(60, 0.202), rise=(59, 83, 0.0118)),
    ramp(201, 0.01, 8, step=(126, 0.155), rise=(131, 156, 0.0092)),
    ramp(401, 0.1, 31, step=(240, 0.118), rise=(249, 296, 0.00508)),
    ramp(401, 0.1, 14, step=(249, 0.229), rise=(258, 286, 0.00898)),
    ramp(1001, 0.1, 16, step=(661, 0.22), rise=(669, 721, 0.00524)),
    ramp(1001, 0.1, 64, step=(642, 0.0939), rise=(660, 736, 0.00253)),
)


def searches(*, quick: bool) -> list[Search]:
    """List the searches: all sizes, or the two smallest."""
    sizes = [(3, 2, 20), (4, 2, 8)] if quick else [(3, 2, 300), (4, 2, 120), (5, 2, 30), (3, 3, 6)]
    found = [Search(K, questions, 0.1, monotone=True, shapes=shapes) for K, questions, shapes in sizes]
    return [*found, Search(3, 2, 0.1, monotone=False, shapes=20), Search(4, 2, 0.1, monotone=False, shapes=8)]
