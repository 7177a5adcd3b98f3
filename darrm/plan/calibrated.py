"""A calibrated mechanism: parameters, accuracy, cost, and the aggregator that releases the answers."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from darrm.account.accountant import Spent
from darrm.aggregator import Aggregator
from darrm.plan.accuracy import Accuracy, Law
from darrm.problem import Workload
from darrm.table.table import Table


@dataclass(frozen=True, eq=False, kw_only=True)
class CalibratedMechanism:
    """A mechanism with the parameters that use up the budget of a workload.

    Attributes
    ----------
    slug, name
        The name in commands and files, and the name for readers.
    curve, levels
        Pr[the answer is the majority], given each of these numbers of votes for it out of K votes without the missing:
        the mean of both sides. For more classes the other classes share the rest evenly.
    spent
        The cost of all queries at the budget's δ.
    settings
        The parameters by name.
    aggregator, instructions, only_compared
        The aggregator, or what to do without one, or the reason why this library does not release it.
    remark
        Another sentence for readers.
    estimate, consensus
        The accuracy under the prior (None: unknown), and under the reference priors of low, medium and high consensus.
    regret
        The largest difference to the best mechanism under a reference prior, after a ranking.
    expected_error, answered
        The expected error for two classes, and the share of answered open questions, under the prior.
    law
        Maps histograms with the largest count first to the probabilities of the answers.
    is_rough
        Whether a finer calibration would use more of the budget.
    """

    slug: str
    name: str
    workload: Workload
    curve: NDArray[np.float64]
    spent: Spent
    settings: Mapping[str, float] = field(default_factory=dict)
    aggregator: Aggregator | None = None
    instructions: tuple[str, ...] = ()
    only_compared: str = ""
    remark: str = ""
    estimate: Accuracy | None = None
    consensus: Mapping[str, Accuracy] = field(default_factory=dict)
    regret: float | None = None
    expected_error: float | None = None
    answered: float | None = None
    levels: NDArray[np.int64] = field(default_factory=lambda: np.arange(0))
    law: Law | None = None
    is_rough: bool = False

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the law, which is code: another process gets the result."""
        return {**self.__dict__, "law": None}

    @property
    def accuracy(self) -> float:
        """The accuracy under the prior, or NaN."""
        return math.nan if self.estimate is None else self.estimate.value

    @property
    def is_released(self) -> bool:
        """Whether this library releases it."""
        return not self.only_compared

    @property
    def table(self) -> Table | None:
        """The certified table of the aggregator, or None."""
        table = getattr(self.aggregator, "table", None)
        return table if isinstance(table, Table) else None
