"""Answers that nobody listed: which strings are one, how they are spelled alike, and the column of each string.

What is done to an answer before it is counted is public and the same for all voters, and looks at that answer alone. So
a voter who changes one answer still changes one vote, and what a release guarantees it guarantees about the answers as
they were given, too.
"""

import unicodedata
from array import array
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from darrm.errors import checks
from darrm.system.votes_file import LONGEST_NAME, is_text

NORMALIZERS: dict[str, Callable[[str], str]] = {
    "casefold": str.casefold,
    "nfc": partial(unicodedata.normalize, "NFC"),
    "spaces": lambda text: " ".join(text.split()),
    "strip": str.strip,
}
Normalize = str | Callable[[str], str] | None
MISSING = -1  # the column of an answer that is missing, where that is allowed
_OR_A_BLANK = 'who says nothing has no vote: leave the question out, or let it count for no string, missing="blank" \
(--missing blank)'
_LONGEST_WORD = 60  # of the name of a function
_SHORT = 40  # characters of an answer in a message


def is_missing(vote: object) -> bool:
    """Whether an object stands for no vote: None, NaN, or pandas' NA and NaT, which compare with nothing."""
    return vote is None or (not isinstance(vote, str) and str(vote) in {"nan", "<NA>", "NaT"})


def name_of(normalize: Normalize) -> str:
    """Return what is done to the answers in words that a ledger keeps; `ValueError` where it is not known.

    >>> name_of("strip, casefold"), name_of(str.upper), name_of(None)
    ('strip,casefold', 'str.upper', '')
    """
    if isinstance(normalize, str):
        words = [word.strip() for word in normalize.split(",")]
        for word in words:
            if word not in NORMALIZERS:
                allowed = f"some of {', '.join(NORMALIZERS)}, with commas between"
                checks.fail("normalize (--normalize)", normalize, allowed, "in Python also a function of one answer")
        return ",".join(words)
    if normalize is None:
        return ""
    if not callable(normalize):
        checks.fail("normalize", normalize, "a function of one answer, or some of " + ", ".join(NORMALIZERS))
    return ascii(getattr(normalize, "__qualname__", type(normalize).__qualname__))[1:-1][:_LONGEST_WORD]


class Vocabulary(dict[Any, int]):
    """The column of each answer as it was given; columns are numbered in the order in which their strings come.

    Attributes
    ----------
    columns
        The column of each string that is counted; a missing answer, where ``missing`` is "blank", has `MISSING`.

    options
        What it was made with.

    Examples
    --------
    >>> vocabulary = Vocabulary("casefold")
    >>> vocabulary.places_of(enumerate([["Flu", "flu"], ["cold", "FLU"]])).tolist()
    [[0, 0], [1, 0]]
    >>> list(vocabulary.columns)
    ['flu', 'cold']
    """

    def __init__(self, normalize: Normalize = None, missing: str = "refuse") -> None:
        super().__init__()
        self.options: dict[str, Any] = {"normalize": normalize, "missing": missing}
        self._may_miss = missing == "blank"
        self.normalized = name_of(normalize)
        steps = [NORMALIZERS[word] for word in self.normalized.split(",")] if isinstance(normalize, str) else normalize
        self._steps = [] if steps is None else steps if isinstance(steps, list) else [steps]
        self.columns: dict[str, int] = {} if self._steps else self

    def __missing__(self, answer: object) -> int:
        """Look at an answer that was not seen before; `ValueError` if it is none."""
        word: object = answer
        if is_missing(answer):
            word = ""
        elif not isinstance(answer, str):
            checks.fail("an answer", answer, "text", "write numbers as text")
        else:
            for step in self._steps:
                word = step(str(word))
        if word == "" and self._may_miss:
            return MISSING
        if not isinstance(word, str) or not word:
            shown = answer[:_SHORT] if isinstance(answer, str) else answer
            checks.fail("an answer", shown, "text with at least one character", _OR_A_BLANK)
        if len(word) > LONGEST_NAME or not is_text(word) or "\0" in word:
            checks.fail("an answer", word[:_SHORT], f"Unicode text of at most {LONGEST_NAME} characters, none zero")
        column = self.columns.setdefault(str(word), len(self.columns))
        self[answer] = column
        return column

    def places_of(
        self, rows: Iterable[tuple[int, Sequence[Any]]], row_name: str = "query", field_name: str = "voter"
    ) -> NDArray[np.int32]:
        """Return the (Q, K) columns of numbered rows of K answers; an error says which row and field it is about."""
        places, width = array("i"), 0
        for number, row in rows:
            width = width or len(row)
            if len(row) != width or not width:
                raise ValueError(f"{row_name} {number} has {len(row)} answers, and those before it {width}")
            try:
                places.extend(map(self.__getitem__, row))
            except (ValueError, TypeError):
                self._explain(row, f"{row_name} {number}, {field_name}", 0 if field_name == "voter" else 1)
                raise
        return np.frombuffer(places, dtype=np.int32).reshape(-1, max(1, width))

    def _explain(self, row: Sequence[Any], where: str, first: int) -> None:
        for place, answer in enumerate(row, first):
            try:
                self[answer]
            except (ValueError, TypeError) as error:
                raise ValueError(f"{where} {place}: {error}") from error
