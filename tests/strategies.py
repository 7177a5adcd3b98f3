"""Draw random problems and noise functions for hypothesis, with extreme values."""

from hypothesis import strategies as st

from darrm.majority.noise_function import NoiseFunction
from darrm.privacy import PrivacyParams
from darrm.problem import Problem, Voters

EPSILONS = ("0.001", "0.02", "0.1", "0.5", "2", "5")
DELTAS = ("0", "1e-9", "1e-5", "0.001", "0.01", "0.1", "0.3")


@st.composite
def problems(draw: st.DrawFn, most_voters: int = 7) -> Problem:
    K = draw(st.integers(1, most_voters))
    if draw(st.integers(0, 5)) == 0:
        target = PrivacyParams(draw(st.sampled_from(EPSILONS)), draw(st.sampled_from(DELTAS)))
        return Problem(Voters(K, PrivacyParams("inf"), overlap=draw(st.integers(1, K))), target)
    each = PrivacyParams(draw(st.sampled_from(EPSILONS)), draw(st.sampled_from(DELTAS)))
    m = draw(st.integers(100, 100 * K))
    delta = draw(st.sampled_from([None, "0.4", "0.9"]))
    overlap = draw(st.one_of(st.none(), st.integers(1, K)))
    return Problem.from_allowance(Voters(K, each, overlap=overlap), f"{m / 100:.2f}", delta=delta)


@st.composite
def gammas(draw: st.DrawFn, K: int) -> NoiseFunction:
    size = K - K // 2
    values = draw(st.lists(st.sampled_from([0.0, 0.25, 0.5, 0.9, 1.0, 1e-9]), min_size=size, max_size=size))
    return NoiseFunction(K, sorted(values) if draw(st.booleans()) else values)
