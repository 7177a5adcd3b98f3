"""One line on standard error that says where long work stands."""

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

SHOWN_AFTER_SECONDS = 2.0
BAR_WIDTH = 30


class StatusLine:
    """A line that is rewritten as work goes on; on a terminal only, and only for work that takes over two seconds."""

    def __init__(self, *, enabled: bool) -> None:
        self.enabled = enabled and sys.stderr is not None and sys.stderr.isatty()
        self.width = 0
        self.started = time.monotonic()

    def show(self, text: str) -> None:
        """Replace what the line says."""
        if self.enabled and time.monotonic() - self.started >= SHOWN_AFTER_SECONDS:
            self.width = max(self.width, len(text))
            sys.stderr.write("\r" + text.ljust(self.width))
            sys.stderr.flush()

    def close(self) -> None:
        """Wipe the line."""
        if self.width:
            sys.stderr.write("\r" + " " * self.width + "\r")
            sys.stderr.flush()


@contextmanager
def status_line(*, quiet: bool) -> Iterator[StatusLine]:
    """Open a status line for a block of work, wiped at its end however that comes."""
    line = StatusLine(enabled=not quiet)
    try:
        yield line
    finally:
        line.close()


def blocks(rows: Sequence[Any] | Any, size: int, line: StatusLine, what: str) -> Iterator[Any]:  # noqa: ANN401 (arrays)
    """Cut rows into blocks of ``size`` and show a bar."""
    for start in range(0, len(rows), size):
        yield rows[start : start + size]
        share = min(1.0, (start + size) / len(rows))
        line.show(f"{what} [{('#' * round(share * BAR_WIDTH)).ljust(BAR_WIDTH)}] {share:4.0%}")
