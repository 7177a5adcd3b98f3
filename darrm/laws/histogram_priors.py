"""Public beliefs about how the votes on a question with several classes fall.

A prior is a law on histograms (n_1, …, n_C), how many of K voters choose each class. It must be public: fitted to
private votes it would be private itself.

The *share of right labels* of a release is the probability that its answer is one of the classes with the most votes,
a tie being right whichever of them it names. A label that looks at nothing has at least 1/C.
"""

import hashlib
import math
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from darrm import checks
from darrm.probability import Array
from darrm.votes import Votes, require_votes


class HistogramPrior(Protocol):
    """A belief about histograms that does not change when classes change their names; it has a hash.

    ``str(prior)`` says it in words.
    """

    @property
    def text(self) -> str:
        """Its name; for the priors of this module what ``--prior`` reads."""
        ...

    def log_probabilities(self, counts: NDArray[np.int64]) -> Array:
        """Compute log Pr[histogram] for (n, C) counts of one sum → (n,); `ValueError` if it only samples."""
        ...

    def sample(self, K: int, classes: int, count: int, *, rng: np.random.Generator) -> NDArray[np.int64]:
        """Draw histograms of K votes: (count, C)."""
        ...

    def __hash__(self) -> int:
        """Equal priors have equal hashes: histograms are drawn once for all releases."""
        ...


@dataclass(frozen=True)
class Dirichlet:
    """Voters choose independently with probabilities drawn from a symmetric Dirichlet law, the same for all voters.

    With concentration 1, the default, every histogram is equally likely; for two classes this is
    `darrm.laws.priors.CommonP`. A smaller concentration believes in clear majorities, a larger one in close ones.

    >>> np.exp(Dirichlet().log_probabilities(np.array([[2, 0, 0], [0, 1, 1]]))).round(6)  # one of six each
    array([0.166667, 0.166667])
    >>> Dirichlet(0.5).sample(10, 3, 2, rng=np.random.default_rng(0)).sum(axis=1)
    array([10, 10])
    """

    concentration: float = 1.0

    def __post_init__(self) -> None:
        checks.positive(concentration=self.concentration)
        object.__setattr__(self, "concentration", float(self.concentration))

    @property
    def text(self) -> str:
        """The prior as ``--prior`` reads it."""
        return f"dirichlet:{repr(self.concentration).removesuffix('.0')}"

    def __str__(self) -> str:
        if self.concentration == 1.0:
            return "every histogram of votes equally likely"
        return f"voters choose with probabilities from a Dirichlet law of concentration {self.concentration:g}"

    def log_probabilities(self, counts: NDArray[np.int64]) -> Array:
        """Compute the Dirichlet-multinomial law K!/Π n_c!·Π (a)_{n_c}/(Ca)_K, (a)_n = a⋯(a + n − 1), (n, C) → (n,)."""
        K = counts.sum(axis=1)
        # factors relative to a large concentration, in which a difference of two log Γ would lose the votes
        scale = max(1.0, self.concentration)
        first, steps = self.concentration / scale, np.arange(K.max(initial=0)) / scale
        one, all_classes = (np.append(0.0, np.cumsum(np.log(times * first + steps))) for times in (1, counts.shape[1]))
        return np.asarray((one[counts] - gammaln(counts + 1.0)).sum(axis=1) + gammaln(K + 1.0) - all_classes[K])

    def sample(self, K: int, classes: int, count: int, *, rng: np.random.Generator) -> NDArray[np.int64]:
        """Draw probabilities, then votes."""
        checks.integer_at_least(1, K=K, count=count)
        checks.integer_at_least(2, classes=classes)
        return np.asarray(rng.multinomial(K, rng.dirichlet(np.full(classes, self.concentration), count)))


@dataclass(frozen=True)
class RecordedVotes:
    """Questions fall as those of which public votes were recorded, each of them as likely as the others.

    For as many voters as were recorded the histograms are the recorded ones, their classes renamed at random. For
    another number each voter chooses independently, as a random one of a recorded question did.

    >>> seen = RecordedVotes("two.csv", Votes.of_counts([[3, 0, 1], [2, 2, 0]]))
    >>> seen.text, seen.digest[:8], np.exp(seen.log_probabilities(np.array([[0, 2, 2], [4, 0, 0]]))).round(6).tolist()
    ('votes:two.csv', '35a4ce7b', [0.166667, 0.0])
    """

    name: str
    votes: Votes = field(compare=False, repr=False)
    digest: str = field(init=False)  # SHA-256 of the counts: what the votes are known by

    def __post_init__(self) -> None:
        checks.instance(Votes, votes=self.votes, advice="say Votes.of_counts(counts) or Votes.read(file)")
        require_votes(self.votes)
        if not self.votes.queries:
            checks.fail("votes", self.votes, "of at least one query")
        counts = np.ascontiguousarray(self.votes.counts, dtype="<i8")
        shape = ",".join(map(str, counts.shape)).encode()
        object.__setattr__(self, "digest", hashlib.sha256(shape + counts.tobytes()).hexdigest())

    @property
    def text(self) -> str:
        """The prior as ``--prior`` reads it, where its name is a file's."""
        return f"votes:{self.name}"

    def __str__(self) -> str:
        found = self.votes
        return f"the {found.queries:,} questions that {found.voters:,} voters were asked (SHA-256 {self.digest[:16]}…)"

    def log_probabilities(self, counts: NDArray[np.int64]) -> Array:
        """Compute the log of the share of a histogram's partition, over as many histograms as it has, (n, C) → (n,).

        `ValueError` for another number of voters or classes than were recorded.
        """
        self.check_classes(counts.shape[1])
        if np.any(counts.sum(axis=1) != self.votes.voters):
            checks.fail("counts", checks.Found("another sum"), f"histograms of the {self.votes.voters} recorded voters")
        partitions, times = np.unique(np.sort(self.votes.counts, axis=1), axis=0, return_counts=True)
        shares = dict(zip(map(bytes, partitions), times / self.votes.queries, strict=True))
        with np.errstate(divide="ignore"):
            log_shares = np.log([shares.get(bytes(row), 0.0) for row in np.sort(counts, axis=1)])
        return np.asarray(log_shares - log_arrangements(counts))

    def sample(self, K: int, classes: int, count: int, *, rng: np.random.Generator) -> NDArray[np.int64]:
        """Draw questions, rename their classes, and where K is another number, draw votes."""
        checks.integer_at_least(1, K=K, count=count)
        self.check_classes(classes)
        drawn = self.votes.counts[rng.integers(self.votes.queries, size=count)]
        if self.votes.voters != K:
            drawn = rng.multinomial(K, drawn / self.votes.voters)
        return np.asarray(rng.permuted(drawn, axis=1))

    def check_classes(self, classes: int) -> None:
        """Raise `ValueError` unless the recorded votes are about so many classes."""
        if classes != self.votes.counts.shape[1]:
            checks.fail("classes", classes, f"the {self.votes.counts.shape[1]} of the recorded votes")


def log_arrangements(counts: NDArray[np.int64]) -> Array:
    """Compute the log of how many histograms differ from each in the names of classes alone, (n, C) → (n,).

    >>> np.exp(log_arrangements(np.array([[2, 1, 1], [0, 1, 2]]))).round(9).tolist()
    [3.0, 6.0]
    """
    ordered = np.sort(counts, axis=1)
    run, log_ways = np.ones(len(ordered)), np.zeros(len(ordered))
    for place in range(1, ordered.shape[1]):
        run = np.where(ordered[:, place] == ordered[:, place - 1], run + 1.0, 1.0)
        log_ways += math.log(place + 1.0) - np.log(run)  # C!/Πm! as a product: each class by its place in its run
    return log_ways


def parse(text: str, classes: int) -> HistogramPrior:
    """Read ``dirichlet``, ``dirichlet:CONCENTRATION`` or ``votes:FILE``, public votes on as many classes.

    `ValueError` if the text is none of these, or the file holds no such votes; `OSError` if it cannot be read.

    >>> parse("dirichlet:0.5", 10)
    Dirichlet(concentration=0.5)
    """
    kind, colon, argument = text.partition(":")
    if kind == "votes" and argument:
        return RecordedVotes(argument, Votes.read(argument, classes=classes))
    try:
        concentration = float(argument) if colon else 1.0
    except ValueError:
        concentration = math.nan
    if kind != "dirichlet" or math.isnan(concentration):
        allowed = "dirichlet, dirichlet:CONCENTRATION or votes:FILE for more than two classes"
        checks.fail("the prior", text, allowed, "for example dirichlet:0.5")
    return Dirichlet(concentration)


def is_built_in(prior: object) -> bool:
    """Whether a prior's text says all of it.

    >>> is_built_in(Dirichlet()), is_built_in("dirichlet")
    (True, False)
    """
    return type(prior) in {Dirichlet, RecordedVotes}
