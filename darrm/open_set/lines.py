"""Open-set answers as rows of counts: the strings that occur, and a last place for no answer."""

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from darrm.numerics.exact_sampling import UniformBelow
from darrm.problem import OPEN, classes_in_words, is_open
from darrm.util import checks
from darrm.votes import ABSTAIN, Votes

_PLACES_AT_ONCE = 2**22  # of lines: they take some hundred megabytes


def of_classes(votes: Votes | ArrayLike, classes: int) -> Votes:
    """Return votes about that number of classes; `ValueError` for others.

    An array has a row a query and a column a voter: labels 0 … C − 1, or strings where answers are open.

    >>> of_classes([[9, 0, 9]], 10)
    Votes(1 queries to 3 voters, classes 0, 1, 2, 3, 4, …; from labels)
    """
    given = votes if isinstance(votes, Votes) else _read(votes, classes)
    if len(given.classes) != classes:
        number = checks.Found(f"about {classes_in_words(len(given.classes) or OPEN)}")
        asked = "open answers" if is_open(classes) else f"C = {classes} classes"
        advice = (
            "read them with classes='open' (--classes open), Votes.of_answers in Python" if is_open(classes) else ""
        )
        checks.fail("votes", number, f"about {asked}", advice)
    return given


def _read(votes: ArrayLike, classes: int) -> Votes:
    if is_open(classes):
        return Votes.of_answers(votes)
    labels = Votes.of_labels(votes, classes=classes)
    if labels.voters == classes > 2:
        advice = "labels and counts look alike: use Votes.of_labels(labels, classes) or Votes.of_counts(counts)"
        checks.fail("votes", checks.Found(f"{classes} columns for {classes} classes"), "Votes", advice)
    return labels


def columns_of(
    votes: Votes, draw: Callable[[NDArray[np.int64], UniformBelow], NDArray[np.int64]], below: UniformBelow
) -> NDArray[np.int64]:
    """Draw the column of a string, or `ABSTAIN`, for every query, some at a time.

    ``draw`` chooses a place in each line of counts; the last one is no answer's.
    """
    sparse, answers = votes.sparse, [np.empty(0, dtype=np.int64)]
    at_once = max(1, _PLACES_AT_ONCE // (int(np.diff(sparse.indptr).max(initial=0)) + 1))
    for start in range(0, votes.queries, at_once):
        rows = sparse[start : start + at_once]
        lengths = np.diff(rows.indptr)
        lines = np.repeat(np.arange(lengths.size), lengths)
        place = np.arange(rows.data.size) - rows.indptr[lines]
        counts = np.zeros((lengths.size, int(lengths.max()) + 1), dtype=np.int64)
        columns = np.full_like(counts, ABSTAIN)
        counts[lines, place], columns[lines, place] = rows.data, rows.indices
        answers.append(columns[np.arange(len(columns)), draw(counts, below)])
    return np.concatenate(answers)
