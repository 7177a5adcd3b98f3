"""Convert objects of the library to those of the verifier, through their file formats."""

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from darrm.loss.privacy_cost import PrivacyCost
from darrm.majority.noise_function import NoiseFunction
from darrm.problem import Problem, Voters
from darrm.verify import formats
from darrm.verify.chain import Ledger, read_ledger
from darrm.verify.costs import Cost
from darrm.verify.files import ledger_files
from darrm.verify.formats import Answering, Charge, Mechanism, Table, parse_json, read_charge, read_release, read_voters
from darrm.verify.gamma import Gamma, worst_costs
from darrm.verify.ledger import LedgerAudit
from darrm.verify.verdicts import FALSE, Interval, Verdict


def answering_of(release: Any) -> Answering:
    """Parse the file of a table, a mechanism or a run."""
    return read_release(parse_json(json.dumps(release.to_json()).encode()))


def table_of(table: Any) -> Table:
    parsed = answering_of(table)
    assert isinstance(parsed, Table)
    return parsed


def mechanism_of(release: Any) -> Mechanism:
    mechanism = answering_of(release)
    assert isinstance(mechanism, Mechanism)
    return mechanism


def cost_of(release: Any) -> Cost:
    return Cost(answering_of(release))


def charge_of(cost: PrivacyCost) -> Charge:
    """Parse a cost as a ledger stores it."""
    charge = read_charge(parse_json(cost.to_text().encode(), may_be_infinite=True))
    return replace(charge, count=cost.count)


def voters_of(voters: Voters) -> formats.Voters:
    return read_voters(voters.to_json())


def gamma_of(problem: Problem, gamma: NoiseFunction) -> Gamma:
    voters = voters_of(problem.voters)
    return Gamma(voters.K, tuple(Fraction(float(value)) for value in gamma.half), voters.kinds, voters.reached)


def worst_of(gamma: Gamma, epsilon: Fraction) -> Interval[Fraction]:
    """Enclose the largest cost."""
    costs = worst_costs(gamma, [epsilon])
    assert costs is not None
    return costs[0]


def ledger_of(path: Path | str) -> Ledger:
    return read_ledger(ledger_files(Path(path)))


def audit_of(path: Path | str, *releases: Any) -> LedgerAudit:
    return LedgerAudit(str(path), ledger_of(path), [answering_of(release) for release in releases])


def false_claims(verdicts: Any) -> str:
    """List the false verdicts, one on each line."""
    return "\n".join(str(verdict) for verdict in verdicts if isinstance(verdict, Verdict) and verdict.verdict == FALSE)
