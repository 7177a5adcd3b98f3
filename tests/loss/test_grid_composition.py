"""The composition on a grid against exact sums, and its bound on rounding against the truth in many digits."""

import math

import mpmath
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from darrm.loss import grid_composition
from darrm.loss.grid_composition import GridComposition, GridQueries, _find_crossing


def exact_sum(kinds: list[GridQueries]) -> tuple[int, list[mpmath.mpf]]:
    """Convolve one query after another, in 60 digits; the smallest loss, and the masses."""
    first, total = 0, [mpmath.mpf(1)]
    for kind in kinds:
        masses = [mpmath.mpf(float(mass)) for mass in kind.masses]
        for _ in range(kind.count):
            first += kind.first
            longer = [mpmath.mpf(0)] * (len(total) + len(masses) - 1)
            for place, one in enumerate(total):
                for shift, other in enumerate(masses):
                    longer[place + shift] += one * other
            total = longer
    return first, total


def exact_delta(kinds: list[GridQueries], step: float, epsilon: float) -> mpmath.mpf:
    first, total = exact_sum(kinds)
    finite = math.prod(((1 - mpmath.mpf(kind.infinite)) ** kind.count for kind in kinds), start=mpmath.mpf(1))
    losses = [mpmath.mpf(step) * (first + place) for place in range(len(total))]
    rest = (mass * -mpmath.expm1(epsilon - loss) for loss, mass in zip(losses, total, strict=True) if loss > epsilon)
    return 1 - finite + mpmath.fsum(rest)


@st.composite
def queries(draw: st.DrawFn) -> GridQueries:
    """A law with finite losses and, sometimes, an infinite one; some masses are tiny."""
    weights = draw(st.lists(st.sampled_from([0.0, 1.0, 2.0, 5.0, 1e-9, 1e-30]), min_size=2, max_size=6))
    infinite = draw(st.sampled_from([0.0, 1e-12, 1e-4]))
    masses = np.array([1.0, *weights])
    first = draw(st.integers(-4, 0))  # as privacy losses, which are not all positive
    return GridQueries(first, (1.0 - infinite) * masses / masses.sum(), infinite, draw(st.integers(1, 9)))


@given(st.lists(queries(), min_size=1, max_size=2), st.sampled_from([0.01, 0.3, 2.0]), st.integers(1, 12))
@example([GridQueries(0, np.array([0.999999999, 0.0, 1e-9]), 0.0, 5)], 0.3, 10)  # tilted mass above the window
@example([GridQueries(-2, np.array([1e-11, 0.0, 1.0 - 2e-10, 0.0, 1e-10]), 0.0, 8)], 2.0, 10)
def test_the_smallest_epsilon_is_safe_and_nearly_exact(kinds: list[GridQueries], step: float, digits: int) -> None:
    delta = 3.0 * 10.0**-digits
    with mpmath.workdps(60):
        epsilon = GridComposition(kinds, step).smallest_epsilon(delta)
        if math.isinf(epsilon):
            assert exact_delta(kinds, step, 1e6) > delta * (1.0 - 1e-6)
            return
        assert exact_delta(kinds, step, epsilon) <= delta
        if epsilon > 0.0:
            assert exact_delta(kinds, step, epsilon * (1.0 - 1e-6)) > delta * (1.0 - 1e-6)


def randomized_response_delta(epsilon_of_one: float, count: int, epsilon: float) -> mpmath.mpf:
    """Σ C(k, l) p^l (1 − p)^{k−l} max(0, 1 − e^{ε − loss})."""
    p = 1 / (1 + mpmath.exp(-epsilon_of_one))
    weight, total = (1 - p) ** count, mpmath.mpf(0)
    for ones in range(count + 1):
        loss = mpmath.mpf(epsilon_of_one) * (2 * ones - count)
        if loss > epsilon:
            total -= weight * mpmath.expm1(epsilon - loss)
        weight *= mpmath.mpf(count - ones) / (ones + 1) * p / (1 - p)
    return total


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("step_parts", [1, 64])  # 64: a transform of less cells than the sum has
@pytest.mark.parametrize("delta", [pytest.param(1e-2, marks=pytest.mark.slow), 1e-9, 1e-40])
def test_many_queries_keep_the_digits_of_a_small_delta(delta: float, step_parts: int) -> None:
    each, count = 0.125, 3000
    # rounded up to where they sum to one: what is exact is not the last digit of a mass
    one = 1.0 / (1.0 + math.exp(-each))
    masses = np.zeros(2 * step_parts + 1)
    masses[0], masses[-1] = 1.0 - one, one
    epsilon = GridComposition([GridQueries(-step_parts, masses, 0.0, count)], each / step_parts).smallest_epsilon(delta)
    with mpmath.workdps(60):
        true = randomized_response_delta(each, count, epsilon)
        assert true <= delta * (1.0 + 1e-10)  # the float p, three thousand times
        assert true > delta * (1.0 - 1e-6)


def test_no_finite_epsilon_where_infinite_losses_take_all_of_delta() -> None:
    kind = GridQueries(0, np.array([0.4, 0.6 - 1e-3]), 1e-3, 50)
    assert GridComposition([kind], 0.1).smallest_epsilon(0.04) == math.inf
    assert GridComposition([kind], 0.1).smallest_epsilon(0.05) < 5.0


def test_losses_that_are_never_positive_cost_nothing() -> None:
    assert GridComposition([GridQueries(-2, np.array([0.5, 0.0, 0.5]), 0.0, 7)], 0.1).smallest_epsilon(1e-9) == 0.0


def test_losses_of_zero_and_certain_infinite_losses_are_limits() -> None:
    nothing = GridQueries(0, np.array([1.0]), 0.0, 5)
    assert GridComposition([nothing], 0.1).smallest_epsilon(1e-9) == 0.0
    confesses = GridComposition([GridQueries(0, np.array([0.4, 0.5]), 0.1, 1)], 0.1)
    assert confesses.smallest_epsilon(confesses.infinite) == math.inf
    surely = GridComposition([nothing, GridQueries(0, np.array([0.0, 1e-9]), 1.0, 1)], 0.1)
    assert surely.infinite == 1.0
    assert surely.smallest_epsilon(0.999) == math.inf


@given(st.lists(st.tuples(st.floats(1e-300, 0.9), st.integers(1, 1000)), min_size=1, max_size=4))
def test_the_probability_of_infinite_losses_is_rounded_up(parts: list[tuple[float, int]]) -> None:
    kinds = [GridQueries(0, np.array([1.0]), infinite, count) for infinite, count in parts]
    with mpmath.workdps(60):
        exact = -mpmath.expm1(mpmath.fsum(count * mpmath.log1p(-mpmath.mpf(infinite)) for infinite, count in parts))
        assert exact <= GridComposition(kinds, 0.1).infinite <= min(1.0, float(exact) * (1.0 + 1e-12))


@pytest.mark.parametrize("seed", range(20))
def test_a_crossing_counts_the_masses_beyond_the_window(seed: int) -> None:
    rng = np.random.default_rng(seed)
    losses, masses, room = np.linspace(0.0, 3.9, 40), rng.random(40), 0.9
    masses[30:] = 0.099e-12 * room  # together a bit less than a part in 10¹² of the room
    epsilon = _find_crossing(losses, masses, room)
    with mpmath.workdps(60):
        parts = zip(losses.tolist(), masses.tolist(), strict=True)
        excess = mpmath.fsum(mpmath.mpf(m) * -mpmath.expm1(epsilon - mpmath.mpf(x)) for x, m in parts if x > epsilon)
        assert room * (1.0 - 1e-11) <= excess <= room


COARSE = GridQueries(-3, np.array([0.2, 0.1, 0.05, 0.15, 0.1, 0.15, 0.25]), 0.0, 6)


@pytest.mark.parametrize("digits", [1, 3, 5])
@pytest.mark.parametrize("off", [1e-9, 1e-6])
def test_the_stated_error_of_masses_is_compensated(off: float, digits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    tilted = GridQueries.tilted
    monkeypatch.setattr(GridQueries, "tilted", lambda *arguments: (tilted(*arguments)[0] * (1.0 - off), off))
    epsilon, delta = GridComposition([COARSE], 0.1).smallest_epsilon(10.0**-digits), 10.0**-digits
    with mpmath.workdps(60):
        assert delta * (1.0 - 100.0 * off) <= exact_delta([COARSE], 0.1, epsilon) <= delta


# a δ so small that no other loss than the highest counts, and one at which many do
@pytest.mark.parametrize(("count", "step", "delta"), [(1, 0.1, 1e-2), (2, 0.1, 3e-3), (6, 0.1, 1e-5), (1, 1.0, 0.26)])
@pytest.mark.parametrize("part", [0.0, 1.0])  # of the inverse transform's error as well
def test_the_assumed_error_of_transforms_is_compensated(
    part: float, count: int, step: float, delta: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All errors take mass from the highest loss."""
    kind, level = GridQueries(COARSE.first, COARSE.masses, 0.0, count), 1e-7
    place, forward, inverse = 6 * count, np.fft.rfft, np.fft.irfft  # of the highest loss, from the lowest one

    def turned(n: int) -> np.ndarray:
        return np.exp(-2j * np.pi * place * np.arange(n // 2 + 1) / n)

    def rfft(cells: np.ndarray) -> np.ndarray:
        result, n = forward(cells), cells.size
        error = level * math.log2(n) * float(np.sum(cells))
        return np.asarray(result - error * turned(n) / (result / np.abs(result)) ** (count - 1))

    def irfft(result: np.ndarray, n: int) -> np.ndarray:
        return np.asarray(inverse(result - part * level * math.log2(n) * np.abs(result) * turned(n), n))

    monkeypatch.setattr(grid_composition, "_LEVEL_ERROR", level)
    monkeypatch.setattr(np.fft, "rfft", rfft)
    monkeypatch.setattr(np.fft, "irfft", irfft)
    epsilon = GridComposition([kind], step).smallest_epsilon(delta)
    with mpmath.workdps(60):
        assert delta * (1.0 - 1e-3) <= exact_delta([kind], step, epsilon) <= delta


@pytest.mark.parametrize("middle", [60, 93, 120])
@pytest.mark.parametrize("part", [0.5, 0.7, 0.9])
def test_mass_above_the_window_is_compensated(part: float, middle: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A window of 256 cells leaves out the highest loss, and what is computed of it a rare one further down."""
    negligible, delta, masses = 0.1, 0.004, np.zeros(257)
    masses[2], masses[middle], masses[256] = 2.8 * delta, part * negligible * delta, part * negligible * delta
    masses[0] = 1.0 - masses.sum()
    kind = GridQueries(0, masses, 0.0, 1)
    monkeypatch.setattr(grid_composition, "_NEGLIGIBLE_SHARE", negligible)
    epsilon = GridComposition([kind], 0.3).smallest_epsilon(delta)
    with mpmath.workdps(60):
        assert delta * (1.0 - 6.0 * negligible) <= exact_delta([kind], 0.3, epsilon) <= delta


@pytest.mark.parametrize(("loss", "cell"), [(-0.5, 0), (0.04, 1), (0.31, 4), (1.75, 18), (9.0, 18), (math.inf, 18)])
def test_the_last_cell_of_a_window_holds_its_loss_or_ends_the_sum(loss: float, cell: int) -> None:
    assert GridComposition([COARSE], 0.1)._find_cell(loss) == cell


def test_a_short_window_answers_where_the_long_one_rounds_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    kind, delta = GridQueries(COARSE.first, COARSE.masses, 0.0, 20), 1e-3
    choose, bound = GridComposition._choose_lengths, GridComposition._bound_window
    # far above a window of 2^8 cells, losses end: a longer one is always tried
    monkeypatch.setattr(GridComposition, "_choose_lengths", lambda *args: (choose(*args)[0], 2**40, [8, 9]))
    monkeypatch.setattr(GridComposition, "_bound_window", lambda *args: bound(*args) if args[-1] == 8 else None)
    epsilon = GridComposition([kind], 0.1).smallest_epsilon(delta)
    with mpmath.workdps(60):
        assert delta * (1.0 - 1e-9) <= exact_delta([kind], 0.1, epsilon) <= delta


def test_with_too_much_rounding_there_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grid_composition, "_LEVEL_ERROR", 1e-3)
    assert GridComposition([COARSE], 0.1).smallest_epsilon(1e-3) == math.inf
