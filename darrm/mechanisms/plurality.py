"""The private plurality of votes about several classes, with a proven table.

It holds a `PluralityTable`, so its guarantee is proved before it exists. Answers are drawn exactly: with a whole number
uniform below 2^53 the group of classes with equally many votes, then one of its classes with a uniform whole number
below their number. So every class has the very probability that was proved, w/(m·2^53).
"""

import numpy as np
from numpy.typing import NDArray

from darrm import checks
from darrm.laws.plurality_law import ONE
from darrm.losses.charges import Charge
from darrm.privacy import PrivacyParams
from darrm.probability.exact_sampling import UniformBelow, uniform_below
from darrm.proof.plurality_table import PluralityTable
from darrm.votes import Labels, Votes, require_votes

_BLOCK = 2**16  # queries answered at a time


class Plurality:
    """Answer with the law of a table: the more votes a class has, the likelier it is.

    Parameters
    ----------
    table
        A proven law.

    Raises
    ------
    ValueError
        If ``table`` is no `PluralityTable`.

    Examples
    --------
    >>> from darrm import PrivacyParams, Voters
    >>> from darrm.problem import Problem
    >>> from darrm.laws.plurality_law import PluralityLaw
    >>> from darrm.proof.plurality_table import certify_plurality
    >>> problem = Problem(Voters(2, PrivacyParams("inf"), overlap=1), PrivacyParams(1, "0.5"), 3)
    >>> voter = PluralityLaw.of_probabilities(2, 3, [1.0, 0.0, 0.5, 0.0])  # the vote of one of them
    >>> aggregator = Plurality(certify_plurality(problem, voter))
    >>> aggregator.guarantee
    PrivacyParams(epsilon=1, delta=0.5)
    >>> aggregator.release(Votes.of_labels([["b", "b"]], classes=("a", "b", "c")))
    array(['b'], dtype='<U1')
    """

    def __init__(self, table: PluralityTable) -> None:
        advice = "PluralityTable.load reads one from a file, certify_plurality(problem, law) proves one"
        checks.instance(PluralityTable, table=table, advice=advice)
        self._table = table
        law = table.probabilities
        partitions = law.partitions
        # a row for each partition, a column for each of its groups; beyond the last 2^53, which no draw reaches
        widest = int(np.max(np.bincount(partitions.blocks)))
        column = np.arange(partitions.blocks.size) - partitions.starts[partitions.blocks]
        self._bounds = np.full((len(partitions.parts), widest), ONE, dtype=np.int64)
        running = np.cumsum(law.weights.astype(object))  # beyond 64 bits
        before = running[partitions.starts] - law.weights[partitions.starts]
        self._bounds[partitions.blocks, column] = (running - before[partitions.blocks]).astype(np.int64)
        self._votes = np.zeros_like(self._bounds)
        self._votes[partitions.blocks, column] = partitions.votes

    @property
    def table(self) -> PluralityTable:
        """The proven law."""
        return self._table

    @property
    def guarantee(self) -> PrivacyParams:
        """(ε, δ): what one query satisfies, whatever the data."""
        return self._table.problem.target

    def charge(self, queries: int = 1) -> Charge:
        """Describe what ``queries`` queries cost, whatever the data; see `charge_of_plurality`."""
        return charge_of_plurality(self._table, queries)

    def release(self, votes: Votes, *, rng: np.random.Generator | None = None) -> Labels:
        """Release one label for each query, as `Aggregator.release`: for votes of K voters about C classes."""
        problem = self._table.problem
        given = require_votes(votes).of_voters(problem.voters.K)
        if len(given.classes) != problem.classes:
            checks.fail(
                "votes", checks.Found(f"about {len(given.classes)} classes"), f"about the table's {problem.classes}"
            )
        below = uniform_below(rng)
        blocks = [self._draw(given.counts[start : start + _BLOCK], below) for start in range(0, given.queries, _BLOCK)]
        return given.labeled(np.concatenate([*blocks, np.empty(0, dtype=np.int64)]))

    def _draw(self, counts: NDArray[np.int64], below: UniformBelow) -> NDArray[np.int64]:
        places = self._table.probabilities.places_of(counts)
        drawn = below(np.full(len(counts), ONE, dtype=np.int64))
        # the first group whose weights, with those before it, exceed the number drawn
        group = np.sum(drawn[:, None] >= self._bounds[places], axis=1)
        members = counts == self._votes[places, group][:, None]
        rank = below(members.sum(axis=1, dtype=np.int64))
        return np.asarray(np.argmax(np.cumsum(members, axis=1) == rank[:, None] + 1, axis=1), dtype=np.int64)


def charge_of_plurality(table: PluralityTable, queries: int = 1) -> Charge:
    """Describe what ``queries`` queries with a table cost, whatever the data: its target, exact curve and profile.

    >>> from darrm import PrivacyParams, Voters
    >>> from darrm.problem import Problem
    >>> from darrm.laws.plurality_law import uniform_law
    >>> from darrm.proof.plurality_table import certify_plurality
    >>> problem = Problem(Voters(2, PrivacyParams("inf"), overlap=1), PrivacyParams(1), 3)
    >>> charge_of_plurality(certify_plurality(problem, uniform_law(2, 3)), 20)
    Charge(what='plurality of 2 voters, 3 classes, a person reaching at most 1', guarantee=PrivacyParams(epsilon=1, \
delta=0), renyi=…, profile=…, count=20)
    """
    voters = table.problem.voters
    return Charge(
        f"plurality of {voters.K} voters, {table.problem.classes} classes, a person reaching at most {voters.reached}",
        guarantee=table.problem.target,
        renyi=table.renyi,
        profile=table.profile,
        count=queries,
        voters=voters,
        table=table.digest,
    )
