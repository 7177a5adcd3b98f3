"""Votes as counts for each query, and the files of votes and labels."""

from darrm.votes.votes import (
    ABSTAIN,
    LAYOUTS,
    MISSING,
    MOST_VOTERS,
    ROWS_AT_ONCE,
    Classes,
    Labels,
    Votes,
    class_names,
    counts_of,
    require_votes,
    vote_batches,
)

__all__ = [
    "ABSTAIN",
    "LAYOUTS",
    "MISSING",
    "MOST_VOTERS",
    "ROWS_AT_ONCE",
    "Classes",
    "Labels",
    "Votes",
    "class_names",
    "counts_of",
    "require_votes",
    "vote_batches",
]
