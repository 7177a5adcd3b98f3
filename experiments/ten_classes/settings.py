"""Who votes on ten classes, what each teacher may cost, and the budgets of one label."""

from dataclasses import dataclass

from darrm.priors import Dirichlet
from darrm.privacy import PrivacyParams
from darrm.problem import Problem, Voters

K, CLASSES = 11, 10
DELTA = "1e-5"  # δ of one teacher
ALLOWANCES = (1, 2, 3, 5)  # m: one label may cost what m teachers cost
DRAWN = {2: 5, 3: 5}  # m: voters that the best law is found for; six did not end in ten minutes
QUERIES = (20, 50, 100)  # at which sums are shown
TRAININGS = 3
BELIEF = Dirichlet(0.1)  # about the votes, settled before any were counted: most voters agree
SAMPLING_RATE, STEPS, CLIP = 0.125, 40, 1.0  # of DP-SGD; 682 images a step, few enough for sums that are exact enough
TRIED_EPSILONS = ("0.1", "0.125", "0.15", "0.2")
TRIED_RATES = (2.0, 4.0, 8.0)
ENOUGH = 0.7  # share of right answers of one teacher on held-out training images, from which on it counts as useful


@dataclass(frozen=True)
class Setup:
    """What differs between data sets: the least ε of `TRIED_EPSILONS` with which teachers are useful, and the rate."""

    epsilon: str
    rate: float

    @property
    def each(self) -> PrivacyParams:
        """What every private teacher satisfies."""
        return PrivacyParams(self.epsilon, DELTA)

    @property
    def voters(self) -> Voters:
        """The private teachers, all of which one person may reach, as in the paper."""
        return Voters(K, self.each)

    def target(self, m: int) -> PrivacyParams:
        """Return what one label may cost: what m of the teachers cost together."""
        return Problem.from_allowance(self.voters, m).target


SETUPS = {
    "mnist": Setup("0.15", 8.0),
    "fashion-mnist": Setup("0.2", 8.0),
    "digits": Setup("4", 4.0),  # 130 images a teacher: a demonstration that needs no download
}
