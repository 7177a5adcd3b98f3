"""One way to release a workload: what it is counted as, how often it tells the truth, and what releases it."""

import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from darrm.account.accountant import Spent
from darrm.account.bounds import Bound
from darrm.aggregator import Aggregator
from darrm.laws.noise_function import NoiseFunction
from darrm.laws.priors import Prior, columns_in_words, columns_of, is_built_in
from darrm.plan.budget import counted, needs_no_noise
from darrm.plan.parameter import Parameter
from darrm.plan.share_right import Law, Measure, ShareRight
from darrm.problem import Workload
from darrm.proof.table import Table
from darrm.system.files import Document
from darrm.system.flags import flags_of

NO_NOISE = "No noise is needed: any number of answers is post-processing of models that are private already."
UNDER_THE_PRIOR = "  all shares and errors are those under this prior; of your own votes more or fewer may be right"
OF_YOUR_OWN = "names in capitals are files of your own"


@dataclass(frozen=True, eq=False, kw_only=True)
class Option:
    """A release that stays within the budget of a workload: a calibrated member of a family.

    Attributes
    ----------
    name
        The family, as reports, tables and pictures show it.
    workload
        What is released.
    truth
        Pr[the answer is the true majority | l ones] for l = floor(K/2) + 1 … K, shape (K − floor(K/2),), of the K votes
        that are there: the mean of both sides where a mechanism breaks ties for one answer. For more classes that of a
        plurality of as many votes as ``levels`` lists, the other classes sharing the rest.
    spent
        What all queries cost at the budget's δ, and who says so: the accountant, or a theorem.
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
    columns
        The share of right labels where voters are divided, mixed or agree, `darrm.laws.priors.columns_of`.
    regret
        How much less of a column that is than the best of those that it is ranked with, at most; None where it is not.
    expected_error
        The expected error under that prior; None for more than two classes.
    answered
        Of open questions how often there is an answer under that prior.
    levels
        The numbers of votes that ``truth`` is about.
    law
        What it answers, on histograms with the largest count first.
    place
        The parameter that was turned up, and its rate.

    Raises
    ------
    ValueError
        Unless exactly one of ``instructions`` and ``only_compared`` is given.
    """

    name: str
    workload: Workload
    truth: NDArray[np.float64]
    spent: Spent
    settings: Mapping[str, float] = field(default_factory=dict)
    aggregator: Aggregator | None = None
    instructions: tuple[str, ...] = ()
    only_compared: str = ""
    remark: str = ""
    share_right: ShareRight | None = None
    columns: Mapping[str, ShareRight] = field(default_factory=dict)
    regret: float | None = None
    expected_error: float | None = None
    answered: float | None = None
    levels: NDArray[np.int64] = field(default_factory=lambda: np.arange(0))
    law: Law | None = None
    place: tuple[Parameter, float] | None = None

    def __post_init__(self) -> None:
        if bool(self.instructions) == bool(self.only_compared):
            raise ValueError(f"{self.name}: say either what releases it or why it is only compared")

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what is code: a copy in another process is what was found, not how to find another."""
        return {**self.__dict__, "law": None, "place": None}

    @property
    def method(self) -> str:
        """The name."""
        return self.name

    @property
    def table(self) -> Table | None:
        """The proven table that it releases from; None for a mechanism that needs no proof of its own."""
        table = getattr(self.aggregator, "table", None)
        return table if isinstance(table, Table) else None

    @property
    def cost(self) -> Bound:
        """What all queries cost by the smallest bound."""
        return Bound(self.spent.bound, self.spent.epsilon, self.spent.explanation)

    def columns_to_json(self) -> Document:
        """Write the share in each column, and the regret, as plain data."""
        columns = {name: share.to_json() for name, share in self.columns.items()}
        return {"columns": columns, "regret": self.regret}

    def in_columns(self) -> str:
        """Write the share in each column as a line of `head_of_columns` has it."""
        return "".join(f"{share.value:>9.3f}" for share in self.columns.values())

    @property
    def wrong(self) -> float:
        """What options are ranked by: the expected error or, for more than two classes, the share of wrong labels."""
        return 1.0 - self.right if self.expected_error is None else self.expected_error

    @property
    def right(self) -> float:
        """The share of right labels; NaN where it is not known."""
        return math.nan if self.share_right is None else self.share_right.value

    def accuracy(self, prior: Prior) -> float:
        """Compute 1 − the expected error under a prior: that of [D, Definition 2.4] with γ = 2·truth − 1.

        Where an answer is worse than a coin it counts as a coin, as if the majority were not asked.
        """
        gamma = np.clip(2.0 * self.truth - 1.0, 0.0, 1.0)
        return 1.0 - NoiseFunction(self.workload.voters.K - self.workload.missing, gamma).expected_error(prior)


def head_of_columns(options: Sequence[Option]) -> str:
    """Write the names of the columns of options."""
    return "".join(f"{name:>9}" for name in options[0].columns)


def about_columns(measure: Measure) -> tuple[str, str]:
    """Say what decided, and what the columns are, in two lines.

    >>> from darrm import PrivacyParams, Voters
    >>> work = Workload(Voters(7, PrivacyParams("inf")), 1, PrivacyParams(1), classes=4)
    >>> print(*about_columns(Measure(work, None)), sep="; ")
    calibrated for the mean of the three columns; first is what loses least to the best in any of them; \
columns: the share right where voters are divided (dirichlet:1), mixed (dirichlet:0.25), agreeing (dirichlet:0.025)
    """
    decided = "calibrated for this prior, by which the best is first"
    if measure.by_regret:
        decided = "calibrated for the mean of the three columns; first is what loses least to the best in any of them"
    return decided, f"columns: the share right where voters are {columns_in_words(measure.classes)}"


def columns_to_json(measure: Measure) -> Document:
    """Write what the columns are, and what ranks, as plain data."""
    columns = {name: prior.text for name, prior in columns_of(measure.classes).items()}
    return {"columns": columns, "ranked_by": "regret" if measure.by_regret else measure.name}


def how_to_release(workload: Workload, prior: Prior, family: str | None = None) -> tuple[str, ...]:
    """Write the commands that make and use what releases a workload: the best, or the best of one family."""
    only = "" if family is None else f" --family {shlex.quote(family)}"
    made: tuple[str, ...] = (
        f"python -m darrm.plan {flags_of(workload)}{_flag_of(prior, workload)}{only} --output plan.json",
    )
    if not is_built_in(prior):
        of_family = "" if family is None else f", families=[{family!r}]"
        made = (
            "from darrm.plan import plan",
            f'plan(workload, prior=prior{of_family}).save("plan.json")  # in Python: the prior is one of your own',
        )
    return (*made, release_command("plan.json", workload))


def _flag_of(prior: Prior, workload: Workload) -> str:
    if not is_built_in(prior) or prior == Measure(workload, None).prior:
        return ""
    return f" --prior {shlex.quote(prior.text)}"


def how_many_are_there(workload: Workload) -> str:
    """Write what shares are of where votes are missing; empty where all are there.

    >>> from darrm import PrivacyParams, Voters
    >>> print(how_many_are_there(Workload(Voters(7, PrivacyParams("0.1")), 30, PrivacyParams(8), missing=2)))
    2 of 7 votes are missing: shares and errors are about the other 5, a fair coin standing for each of these; the \
budget is that of 7
    """
    if not workload.missing:
        return ""
    K, dice = workload.voters.K, "coin" if workload.has_noise_function else "die"
    are = f"{workload.missing} of {K} votes {'is' if workload.missing == 1 else 'are'} missing"
    there = f"shares and errors are about the other {K - workload.missing}"
    return f"{are}: {there}, a fair {dice} standing for each of these; the budget is that of {K}"


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
    return "majority" if workload.has_noise_function else "plurality"


def release_command(table: str | Path, workload: Workload) -> str:
    """Write the command that releases from a saved table and debits a new ledger; see `OF_YOUR_OWN`.

    >>> from darrm import PrivacyParams, Voters
    >>> work = Workload(Voters(50, PrivacyParams("inf"), overlap=1), 500, PrivacyParams(2, "1e-5"))
    >>> print(release_command("plan.json", work).partition(" --ledger")[0])
    python -m darrm.release VOTES.csv --table plan.json
    """
    total = workload.total
    ledger = f"--ledger LEDGER.sqlite --create-budget {total.epsilon_text},{total.delta_text}"
    missing = "--missing coin " if workload.missing else ""
    return f"python -m darrm.release VOTES.csv --table {shlex.quote(str(table))} {missing}{ledger} --output LABELS.csv"
