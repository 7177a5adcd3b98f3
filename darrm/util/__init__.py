"""Files, checks of arguments, progress, figures, optional libraries."""
