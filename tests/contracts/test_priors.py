"""The contract of every prior: to test a new one, add it to `PRIORS`."""

import json
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from darrm import NoiseFunction, PrivacyParams, Problem, Table, Voters, optimize_table, priors
from darrm.commands.command_line import run
from darrm.optimize.__main__ import main as optimize
from darrm.release.__main__ import main as release
from darrm.table.release import Release
from darrm.votes import Votes
from tests.doors import validated
from tests.optimality import optimality_of

PROBLEM = Problem.from_allowance(Voters(5, PrivacyParams("0.1", "1e-5")), 2)


class Beta(priors.Prior):
    """A user's prior: one p ~ Beta(a, a) shared by all voters, with weights by Gauss-Legendre quadrature."""

    text = "beta 3,3"
    has_closed_form = True

    def weights(self, K: int) -> np.ndarray:
        nodes, shares = np.polynomial.legendre.leggauss(200)
        p = 0.75 + 0.25 * nodes
        density = 30.0 * (p * (1.0 - p)) ** 2
        points = np.array([priors.Point(float(value)).weights(K) for value in p])
        return np.asarray(2.0 * (0.25 * shares * density) @ points)

    def probabilities(self, K: int, count: int, *, rng: np.random.Generator) -> np.ndarray:
        return np.repeat(rng.beta(3.0, 3.0, (count, 1)), K, axis=1)


class Torn(priors.Prior):
    """A user's prior without a closed form: voters who lean to either side."""

    text = "torn"
    has_closed_form = False

    def weights(self, K: int) -> np.ndarray:
        raise ValueError(f"no linear expected error, not for K = {K} either")

    def probabilities(self, K: int, count: int, *, rng: np.random.Generator) -> np.ndarray:
        return rng.beta(0.5, 0.5, (count, K))


class Sub(priors.Point):
    """A user's prior that inherits from one of the library: half the questions are coins."""

    def weights(self, K: int) -> np.ndarray:
        return 0.5 * super().weights(K)

    def probabilities(self, K: int, count: int, *, rng: np.random.Generator) -> np.ndarray:
        return np.where(rng.random((count, 1)) < 0.5, 0.5, super().probabilities(K, count, rng=rng))


@dataclass(frozen=True)
class Wider(priors.Independent):
    """A user's prior that inherits from one of the library, with another field."""

    coins: float = 0.25

    def weights(self, K: int) -> np.ndarray:
        return (1.0 - self.coins) * super().weights(K)

    def probabilities(self, K: int, count: int, *, rng: np.random.Generator) -> np.ndarray:
        return np.where(rng.random((count, 1)) < self.coins, 0.5, super().probabilities(K, count, rng=rng))


BUILT_IN: tuple[priors.Prior, ...] = (
    priors.Spread(),
    priors.Independent(0.5, 1.0),
    priors.Independent(0.6666667, 1),
    priors.Independent(1 / 3, 0.1 + 0.7),
    priors.TwoSided(0.7, 0.9000000000000001),
    priors.Dirichlet(),
    priors.Dirichlet(0.5),
    priors.Led(2.5, 0.25),
    priors.Point(0.123456789012345),
    priors.Point(1e-5),
    priors.Point(1.0),
)
PRIORS = (*BUILT_IN, Beta(), Torn(), Sub(0.9), Wider(0.6, 1.0))


@pytest.mark.parametrize("prior", PRIORS, ids=lambda prior: prior.text)
class TestEveryPrior:
    @pytest.mark.parametrize("K", [1, 2, 11, 250])
    def test_its_weights_are_differences_of_probabilities(self, prior: priors.Prior, K: int) -> None:
        if not prior.has_closed_form:
            with pytest.raises(ValueError, match="linear"):
                prior.weights(K)
            return
        weights = priors.compute_weights(prior, K)
        assert weights.shape == (K - K // 2,)
        assert np.all(weights >= 0.0)
        assert 0.0 < np.sum(weights) <= 1.0 + 1e-12  # a difference of two probabilities is at most 1

    def test_its_samples_are_reproducible_probabilities(self, prior: priors.Prior) -> None:
        samples = prior.probabilities(4, 300, rng=np.random.default_rng(0))
        assert samples.shape == (300, 4)
        assert np.all((samples >= 0.0) & (samples <= 1.0))
        assert np.array_equal(samples, prior.probabilities(4, 300, rng=np.random.default_rng(0)))

    @pytest.mark.statistical
    def test_its_closed_form_is_the_mean_of_samples(self, prior: priors.Prior) -> None:
        if not prior.has_closed_form:
            return
        gamma = NoiseFunction(7, [0.2, 0.9, 0.1, 1.0])
        estimate = gamma.estimate_error(prior, draws=50_000)
        # five standard errors: a false alarm of 6e-7
        assert abs(estimate.mean - gamma.expected_error(prior)) <= 5.0 * estimate.standard_error + 1e-12

    def test_its_json_is_read_back(self, prior: priors.Prior) -> None:
        data = json.loads(json.dumps(priors.to_json(prior, 5)))
        again = priors.from_json(data)
        assert again == (
            prior if prior in BUILT_IN else priors.StoredPrior(prior.text, priors.compute_digest(prior, 5))
        )
        assert priors.to_json(again, 5) == data

    def test_its_description_and_text_are_read_back(self, prior: priors.Prior) -> None:
        description, _, flag = priors.describe_prior(prior).partition(" (--prior ")
        assert description == (str(prior) if prior in BUILT_IN else f"the prior {prior.text!r}")
        if prior in BUILT_IN:
            assert flag == f"{prior.text})"
            assert priors.parse(prior.text) == prior
            assert prior == priors.Dirichlet() or all(
                number in description for number in priors.to_json(prior, 5).values() if number[0].isdigit()
            )

    def test_a_table_for_it_is_saved_and_loaded(self, prior: priors.Prior, tmp_path: Path) -> None:
        table = optimize_table(PROBLEM, prior=prior, draws=50)
        assert optimality_of(table).prior is prior
        table.save(tmp_path / "table.json")
        validated(tmp_path / "table.json", "gamma_table")
        again = Table.load(tmp_path / "table.json")
        assert optimality_of(again).prior == priors.from_json(priors.to_json(prior, 5))
        # the file of a user's prior does not suffice to recompute the bound
        claimed = not (prior.has_closed_form and prior in BUILT_IN)
        assert optimality_of(again) == replace(optimality_of(table), prior=optimality_of(again).prior, claimed=claimed)
        assert again.to_json() == table.to_json()
        assert Release(again).release(np.ones((3, 5), dtype=int)).shape == (3,)

    def test_commands_take_its_text(self, prior: priors.Prior, tmp_path: Path) -> None:
        if isinstance(prior, Sub):  # its text is that of another prior
            assert priors.parse(prior.text) == priors.Point(0.9) != prior
            return
        if prior not in BUILT_IN:
            with pytest.raises(ValueError, match="the prior must be"):
                priors.parse(prior.text)
            return
        table, votes, labels, ledger = (str(tmp_path / name) for name in ("t.json", "v.csv", "l.csv", "l.sqlite"))
        draws = [] if prior.has_closed_form else ["--draws", "50"]
        arguments = ["--K", "5", "--m", "2", "--prior", prior.text, *draws, "--output", table]
        assert run(lambda: optimize([*arguments, "--quiet"])) == 0
        assert optimality_of(Table.load(table)).prior == prior
        Path(votes).write_text("1,1,0,0,1\n0,0,0,0,1\n")
        arguments = [votes, "--table", table, "--ledger", ledger, "--create-budget", "8,1e-2", "--output", labels]
        assert run(lambda: release([*arguments, "--quiet"])) == 0
        assert len(Path(labels).read_text().split()) == 2


def test_a_dirichlet_prior_for_two_classes_is_a_common_beta_and_needs_a_bounded_concentration() -> None:
    for K in (1, 2, 7, 60):
        assert priors.Dirichlet(3.0).weights(K) == pytest.approx(Beta().weights(K), rel=1e-9)
    with pytest.raises(ValueError, match="one of a smaller concentration, got 'dirichlet:1e\\+300': so large"):
        optimize_table(PROBLEM, prior=priors.Dirichlet(1e300))


@pytest.mark.parametrize("K", [4, 5])
def test_recorded_votes_have_the_error_of_their_labels(K: int) -> None:
    """The error is (1 − γ(l))/2 where l of K votes agree, and 0 at a tie."""
    recorded = priors.RecordedVotes("two", Votes.from_counts([[K, 0], [K, 0], [1, K - 1], [K // 2, K - K // 2]]))
    gamma = NoiseFunction(K, np.linspace(0.1, 0.9, K - K // 2))
    errors = [0.0 if 2 * ones == K else 0.5 - 0.5 * gamma.full[ones] for ones in (0, 0, K - 1, K // 2)]
    assert gamma.expected_error(recorded) == pytest.approx(np.mean(errors))
    estimate = gamma.estimate_error(recorded, draws=4000)
    assert abs(estimate.mean - np.mean(errors)) <= 5.0 * estimate.standard_error


def test_a_prior_on_histograms_has_weights_of_both_majorities() -> None:
    class MostlyOnes(priors.Prior):
        text = "mostly ones"

        def log_probabilities(self, counts: np.ndarray) -> np.ndarray:
            return priors.Point(0.8).log_probabilities(counts)

    # three votes, each a 1 with probability 0.8: two agree, and all
    expected = [3 * 0.8**2 * 0.2 + 3 * 0.8 * 0.2**2, 0.8**3 + 0.2**3]
    assert MostlyOnes().weights(3) == pytest.approx(expected)


@pytest.mark.parametrize("K", [4, 11])
def test_different_priors_have_different_digests(K: int) -> None:
    assert len({priors.compute_digest(prior, K) for prior in PRIORS}) == len(PRIORS)
    assert priors.compute_digest(Beta(), K) == priors.compute_digest(Beta(), K)


@pytest.mark.parametrize("wrong", [[0.1], [0.1, 0.2, -1e-9], [0.1, 0.2, np.nan], [0.1, 0.2, np.inf]])
def test_wrong_weights_are_refused(wrong: list[float]) -> None:
    class Wrong(Beta):
        def weights(self, K: int) -> np.ndarray:
            return np.array(wrong[:K])

    for use in (
        lambda: optimize_table(PROBLEM, prior=Wrong()),
        lambda: NoiseFunction(5, np.ones(3)).expected_error(Wrong()),
    ):
        with pytest.raises(ValueError, match="the weights of the prior 'beta 3,3' must be 3 finite numbers"):
            use()


def test_a_stored_prior_refuses_computations() -> None:
    stored = priors.StoredPrior("mine", "")
    for use in (
        lambda: stored.weights(3),
        lambda: stored.probabilities(3, 2, rng=np.random.default_rng(0)),
        lambda: optimize_table(PROBLEM, prior=stored),
        lambda: NoiseFunction(5, np.ones(3)).expected_error(stored),
    ):
        with pytest.raises(ValueError, match="'mine': the table keeps its name and a digest only"):
            use()
