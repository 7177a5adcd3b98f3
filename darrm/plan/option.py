"""One way to release a workload: what it is counted as, how often it tells the truth, and what releases it."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from darrm.account.bounds import Bound
from darrm.aggregator import Aggregator
from darrm.laws import priors
from darrm.laws.noise_function import NoiseFunction
from darrm.laws.priors import Prior
from darrm.plan.budget import counted, needs_no_noise
from darrm.plan.share_right import ShareRight
from darrm.problem import Workload

NO_NOISE = "No noise is needed: any number of answers is post-processing of models that are private already."


@dataclass(frozen=True, eq=False, kw_only=True)
class ReleaseOption:
    """A release that stays within the budget of a workload.

    Attributes
    ----------
    name
        The mechanism, as reports, tables and pictures show it.
    workload
        What is released, and what its voters were counted as.
    truth
        Pr[the answer is the true majority | l ones] for l = floor(K/2) + 1 … K, shape (K − floor(K/2),): the mean of
        both sides where a mechanism breaks ties for one answer. For more classes that of a plurality of as many votes
        as `darrm.plan.plurality` lists, the other classes sharing the rest.
    cost
        What all queries cost at the budget's δ, and who says so: the accountant's bound, or the theorem.
    settings
        The mechanism's parameters by name.
    aggregator
        What releases it; None for one that is only compared, or where the votes are published as they are.
    instructions
        What to do or to type to release it, line by line; empty for one that is only compared.
    only_compared
        Why this library does not release it; empty for one that it releases.
    remark
        What else a reader should know.
    share_right
        The share of right labels under the prior that decided, where it is known.

    Raises
    ------
    ValueError
        Unless exactly one of ``instructions`` and ``only_compared`` is given.
    """

    name: str
    workload: Workload
    truth: NDArray[np.float64]
    cost: Bound
    settings: Mapping[str, float] = field(default_factory=dict)
    aggregator: Aggregator | None = None
    instructions: tuple[str, ...] = ()
    only_compared: str = ""
    remark: str = ""
    share_right: ShareRight | None = None

    def __post_init__(self) -> None:
        if bool(self.instructions) == bool(self.only_compared):
            raise ValueError(f"{self.name}: say either what releases it or why it is only compared")

    @property
    def right(self) -> float:
        """The share of right labels; NaN where it is not known."""
        return math.nan if self.share_right is None else self.share_right.value

    def accuracy(self, prior: Prior) -> float:
        """Compute 1 − the expected error under a prior: that of [D, Definition 2.4] with γ = 2·truth − 1.

        Where an answer is worse than a coin it counts as a coin, as if the majority were not asked.
        """
        gamma = np.clip(2.0 * self.truth - 1.0, 0.0, 1.0)
        return 1.0 - NoiseFunction(self.workload.voters.K, gamma).expected_error(prior)


def prior_of(text: str | None, workload: Workload) -> Prior | None:
    """Read ``--prior`` for so many classes; None where it is left to the plan."""
    if text is None:
        return None
    return priors.parse(text) if workload.classes == 2 else priors.parse(text, workload.classes)


def is_built_in(prior: Prior) -> bool:
    """Whether the text of a prior says all of it."""
    return priors.is_built_in(prior) or priors.is_built_in(prior)


def in_words(prior: Prior) -> str:
    """Write a prior for a report: in words and, where there is one, with the flag that asks for the very same."""
    return f"{prior} (--prior {prior.text})" if is_built_in(prior) else f"the prior {prior.text!r}"


def how_counted(workload: Workload) -> str:
    """Write how private voters count over many queries; empty where the question does not arise."""
    if needs_no_noise(workload):
        return ""
    if (release := counted(workload)) != workload:
        return (
            "Models that answer many queries share their training's randomness, so the costs of single queries do not "
            "add up. Their votes count as those of voters that are not private, and the release may be "
            f"{release.total}-private for these: both ends together, models and release, are {workload.total}-private."
        )
    if not workload.voters.are_plain and workload.queries > 1:
        return "Counted a query at a time, as voters draw fresh randomness for each: for trained models say --models."
    return ""


def settings_in_words(settings: Mapping[str, float]) -> str:
    """Write the parameters of a mechanism for a reader.

    >>> settings_in_words({"epsilon": 0.5, "delta": 1e-06})
    'epsilon 0.5, delta 1e-06'
    """
    return ", ".join(f"{name} {value:.6g}" for name, value in settings.items())


def kind_of_votes(workload: Workload) -> str:
    """Return what the most votes make: a majority of two classes, a plurality of more."""
    return "majority" if workload.classes == 2 else "plurality"


def release_command(table: str | Path, workload: Workload) -> str:
    """Write the command that releases from a saved table and debits a new ledger.

    >>> from darrm import PrivacyParams, Voters
    >>> work = Workload(Voters(50, PrivacyParams("inf"), overlap=1), 500, PrivacyParams(2, "1e-5"))
    >>> print(release_command("plan.json", work).partition(" --ledger")[0])
    python -m darrm.release votes.csv --table plan.json
    """
    total = workload.total
    ledger = f"--ledger ledger.sqlite --create-budget {total.epsilon_text},{total.delta_text}"
    return f"python -m darrm.release votes.csv --table {table} {ledger} --output labels.csv"
