"""Votes as counts for each query, and the files of votes and labels."""

from darrm.votes.vote_arrays import ABSTAIN, LAYOUTS, MISSING, MOST_VOTERS, ROWS_AT_ONCE, Classes, class_names
from darrm.votes.votes import Votes, require_votes, to_counts, vote_batches
from darrm.votes.votes_file import Labels

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
    "require_votes",
    "to_counts",
    "vote_batches",
]
