"""What every door shares with the machine: files, optional libraries, figures, command lines."""

__all__ = [
    "answers",
    "command_line",
    "extras",
    "figures",
    "files",
    "flags",
    "parquet_file",
    "people",
    "progress",
    "sparse_counts",
    "vote_arrays",
    "votes_file",
]
