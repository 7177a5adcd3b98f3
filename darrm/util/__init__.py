"""Files, checks of arguments, progress, figures, optional libraries."""

__all__ = [
    "checks",
    "extras",
    "figures",
    "files",
    "json_files",
    "people",
    "progress",
]
