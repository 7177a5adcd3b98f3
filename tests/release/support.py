"""Tables, files of votes and commands that the tests of releases share."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from darrm.loss.privacy_cost import PrivacyCost
from darrm.majority.noise_function import NoiseFunction
from darrm.privacy import PrivacyParams
from darrm.problem import OPEN, Problem, Voters
from darrm.table.table import Table, certify
from darrm.votes import ABSTAIN, Votes

VOTES = [[1, 1, 0], [0, 0, 1], [1, 1, 1], [0, 1, 0]]
MAJORITIES = [1, 0, 1, 0]


def table_of(
    gamma: Sequence[float] = (1.0, 1.0),
    m: float | str = 3,
    *,
    epsilon: float | str = "0.02",
    delta: float | str = "1e-8",
) -> Table:
    """Return the table of a noise function of three voters; γ = 1 everywhere returns the majority, γ = 0 a coin."""
    problem = Problem.from_allowance(Voters(3, PrivacyParams(epsilon, delta)), m)
    return certify(problem, NoiseFunction(3, gamma))


class MajorityAnswer:
    """Answers with the string of more than half of three voters: no privacy, so that a test knows the answer."""

    voters, classes = Voters(3, PrivacyParams("inf"), overlap=1), OPEN
    guarantee = PrivacyParams(1)

    def privacy_cost(self, queries: int = 1) -> PrivacyCost:
        return PrivacyCost("open answers of 3", guarantee=self.guarantee).repeat(queries)

    def release(self, votes: Votes, *, rng: np.random.Generator | None = None) -> Any:  # noqa: ARG002
        places = np.full(votes.require_voters(3).queries, ABSTAIN)
        queries, columns = votes.sparse.nonzero()
        is_majority = votes.sparse.data >= 2
        places[queries[is_majority]] = columns[is_majority]
        return votes.name_labels(places)


def write_parquet(path: Path, columns: dict[str, Any], **options: Any) -> None:
    """Write columns to a Parquet file, in a folder that need not exist."""
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(arrow.table(columns), path, **options)


def name_columns(votes: Any) -> dict[str, Any]:
    """Name the columns of votes v0, v1, …."""
    return {f"v{voter}": column for voter, column in enumerate(np.asarray(votes).T)}


def raise_error(error: BaseException) -> Any:
    """Return a function that raises an error, whatever its arguments."""

    def fail(*_: object, **__: object) -> None:
        raise error

    return fail
