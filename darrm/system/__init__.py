"""What every door shares with the machine: files, optional libraries, figures, command lines."""

__all__ = [
    "command_line",
    "extras",
    "figures",
    "files",
    "flags",
    "json_text",
    "parquet_file",
    "progress",
    "report_text",
    "votes_file",
]
