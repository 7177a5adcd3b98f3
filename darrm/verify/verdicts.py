"""What an audit says about one claim, in five words.

========================  ============================================================================================
verdict                   meaning
========================  ============================================================================================
``proved here``           recomputed by this audit, with every rounding bounded
``consistent``            agrees with everything else that was given; nothing here would show a careful forgery
``claimed by the maker``  cannot be seen in the files: whoever signs believes the maker
``cannot be known``       neither shown nor refuted by what was given; the reason says what would decide it
``false``                 contradicted by the files themselves
========================  ============================================================================================
"""

from dataclasses import dataclass, replace

PROVED, CONSISTENT, CLAIMED, UNKNOWN, FALSE = VERDICTS = (
    "proved here",
    "consistent",
    "claimed by the maker",
    "cannot be known",
    "false",
)
ABOUT_TABLE, ABOUT_MECHANISM, ABOUT_VOTERS, ABOUT_PLAN = "table", "mechanism", "voters", "plan"
ABOUT_FILE, ABOUT_ESTIMATOR, ABOUT_RECEIPT, ABOUT_ESTIMATE = "file", "estimator", "receipt", "estimate"
NOTE = "a note of whoever made the table"


@dataclass(frozen=True)
class Verdict:
    """One claim, what it is about, and what was found."""

    about: str  # table, mechanism, plan, voters, ledger, labels, attack or file
    claim: str
    verdict: str  # one of `VERDICTS`
    reason: str
    file: str = ""  # in which it is claimed; of a claim between files the one that says more

    def __str__(self) -> str:
        shown = "FALSE" if self.verdict == FALSE else self.verdict
        return f"{shown:<22}{self.about}: {self.claim} ({self.reason})"

    def of(self, file: str) -> "Verdict":
        """Say in which file it is claimed, unless that is said."""
        return self if self.file else replace(self, file=file)


def judged(about: str, claim: str, reason: str, *, holds: bool, how: str = CONSISTENT) -> Verdict:
    """Say that a claim is false, or ``how`` it holds."""
    return Verdict(about, claim, how if holds else FALSE, reason)
