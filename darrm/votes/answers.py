"""Normalize open-set answers and give each string a column.

*Theorem.* The guarantee also holds for the answers before normalization. *Proof.* The normalization is public, the same
for all voters, and depends on one answer alone, so a voter who changes one answer still changes one vote. ∎
"""

import unicodedata
from collections.abc import Callable, Iterable, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from darrm.util import checks
from darrm.votes.votes_file import LONGEST_NAME, is_text, value_blocks

NORMALIZERS: dict[str, Callable[[str], str]] = {
    "casefold": str.casefold,
    "nfc": partial(unicodedata.normalize, "NFC"),
    "spaces": lambda text: " ".join(text.split()),
    "strip": str.strip,
}
Normalize = str | Callable[[str], str] | None
MISSING = -1  # the column of a missing answer
_BLANK_ADVICE = 'leave the question out, or write missing="blank" (--missing blank) so that it counts for no string'
_MAX_NAME = 60  # characters of the name of a function
_MAX_EXCERPT = 40  # characters of an answer in a message


def is_missing(vote: object) -> bool:
    """Whether a vote is None, NaN, or pandas' NA or NaT."""
    return vote is None or (not isinstance(vote, str) and str(vote) in {"nan", "<NA>", "NaT"})


def name_normalization(normalize: Normalize) -> str:
    """Return the name of a normalization for a ledger."""
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
    return ascii(getattr(normalize, "__qualname__", type(normalize).__qualname__))[1:-1][:_MAX_NAME]


class Vocabulary(dict[object, int]):
    """The column of each answer before normalization; ``columns`` holds those of normalized strings."""

    def __init__(self, normalize: Normalize = None, missing: str = "refuse") -> None:
        super().__init__()
        self._allows_missing = missing == "blank"
        self.normalized = name_normalization(normalize)
        words = self.normalized.split(",") if isinstance(normalize, str) else []
        self._steps = [NORMALIZERS[word] for word in words]
        if callable(normalize):
            self._steps.append(normalize)
        self.columns: dict[str, int] = {}

    def __missing__(self, answer: object) -> int:
        """Give a new string the next column; `ValueError` if it is not an answer."""
        word: object = answer
        if is_missing(answer):
            word = ""
        elif not isinstance(answer, str):
            checks.fail("an answer", answer, "text", "write numbers as text")
        else:
            for step in self._steps:
                word = step(str(word))
        if word == "" and self._allows_missing:
            return MISSING
        if not isinstance(word, str) or not word:
            excerpt = answer[:_MAX_EXCERPT] if isinstance(answer, str) else answer
            checks.fail("an answer", excerpt, "text with at least one character", _BLANK_ADVICE)
        if len(word) > LONGEST_NAME or not is_text(word) or "\0" in word:
            checks.fail(
                "an answer", word[:_MAX_EXCERPT], f"Unicode text of at most {LONGEST_NAME} characters, none zero"
            )
        column = self.columns.setdefault(str(word), len(self.columns))
        self[answer] = column
        return column

    def forget(self) -> None:
        self.clear()
        self.columns = {}

    def find_places(
        self, rows: Iterable[tuple[int, Sequence[object]]], row_name: str = "query", field_name: str = "voter"
    ) -> NDArray[np.int32]:
        blocks = list(value_blocks(rows, self, "i", row_name, field_name))
        return np.concatenate(blocks) if blocks else np.empty((0, 1), dtype=np.int32)
