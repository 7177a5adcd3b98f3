"""Compare the optimal noise function with the baselines of the paper and with the best constant, all certified."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from darrm.majority import baselines
from darrm.majority.noise_function import NoiseFunction
from darrm.priors import Prior
from darrm.problem import Problem
from darrm.table.table import Table, certify

_CONSTANT = "γ_flat"


@dataclass(frozen=True, eq=False)
class Entry:
    """One noise function of the comparison; its numbers are None if it does not exist for this problem."""

    name: str  # "γ_opt", "γ_Sub", "γ_DSub", "γ_const" or "γ_flat"
    table: Table | None  # certified
    share_right: float | None  # the accuracy under the prior of the comparison; None if it is unknown
    expected_error: float | None  # under the same prior
    remark: str  # why it is absent, or how certification changed it; may be empty


def compare(optimal: Table, prior: Prior) -> tuple[Entry, ...]:
    """Certify the baselines of the optimal table's problem and evaluate all five under a prior.

    >>> from darrm import Problem, PrivacyParams, Voters, optimize_table
    >>> from darrm.priors import Independent
    >>> problem = Problem.from_allowance(Voters(11, PrivacyParams(0.1, 1e-5)), 3)
    >>> entries = compare(optimize_table(problem), Independent())
    >>> [(entry.name, round(entry.expected_error, 4)) for entry in entries]
    [('γ_opt', 0.0413), ('γ_Sub', 0.1219), ('γ_DSub', 0.0692), ('γ_const', 0.2883), ('γ_flat', 0.0596)]
    >>> {entry.name: round(entry.share_right, 4) for entry in entries}
    {'γ_opt': 0.9542, 'γ_Sub': 0.8515, 'γ_DSub': 0.9072, 'γ_const': 0.6904, 'γ_flat': 0.936}
    """
    problem = optimal.problem
    proposals: dict[str, Callable[[Problem], NoiseFunction]] = {
        "γ_Sub": baselines.subsampling,
        "γ_DSub": baselines.double_subsampling,
        "γ_const": baselines.randomized_response,
        _CONSTANT: baselines.truth,
    }
    entries = [_entry("γ_opt", optimal, prior, "")]
    for name, propose in proposals.items():
        try:
            proposal = propose(problem)
        except ValueError as error:
            entries.append(Entry(name, None, None, None, str(error)))
        else:
            table = certify(problem, proposal)
            entries.append(_entry(name, table, prior, _remark(name, table)))
    return tuple(entries)


@dataclass(frozen=True)
class WithMissing:
    """A table evaluated with some votes replaced by fair coins; the true label is the majority of the other votes."""

    missing: int
    share_right: float | None  # the accuracy; None if it is unknown
    expected_error: float


def with_missing(
    table: Table, prior: Prior, numbers: Iterable[int], *, report: Callable[[int], object] = lambda _: None
) -> tuple[WithMissing, ...]:
    """Evaluate a table under a prior for increasing numbers of missing votes; call ``report`` before each of them.

    `ValueError` unless the numbers increase and 0 ≤ number < K.

    >>> from darrm import Problem, PrivacyParams, Voters, optimize_table
    >>> from darrm.priors import Independent
    >>> problem = Problem.from_allowance(Voters(11, PrivacyParams(0.1, 1e-5)), 3)
    >>> for row in with_missing(optimize_table(problem), Independent(), range(3)):
    ...     print(row.missing, round(row.share_right, 4), round(row.expected_error, 4))
    0 0.9542 0.0413
    1 0.9486 0.0465
    2 0.9031 0.0701
    """
    rows, gamma = [], table.gamma
    for missing in numbers:
        report(missing)
        gamma = gamma.with_missing(missing - (table.gamma.K - gamma.K))
        rows.append(WithMissing(missing, gamma.share_right(prior), gamma.expected_error(prior)))
    return tuple(rows)


def _entry(name: str, table: Table, prior: Prior, remark: str) -> Entry:
    return Entry(name, table, table.gamma.share_right(prior), table.gamma.expected_error(prior), remark)


def _remark(name: str, table: Table) -> str:
    scale = table.certificate.scale
    scaled = f"shown as certify scaled it, by {scale:.6g}" if scale < 1.0 - 1e-9 else ""
    if name == _CONSTANT:
        return f"the best constant, 1 {scaled or 'as it stands'}; γ_const is p_const of [D, Lemma A.1]"
    if name == "γ_DSub" and not baselines.is_covered_by_theorem(table.problem):
        return f"its theorem covers δ = Δ = 0 and odd K only; {scaled or 'certified as it stands'}"
    return scaled
