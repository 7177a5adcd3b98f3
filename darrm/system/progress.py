"""Where long work stands, on standard error: one line that is rewritten on a terminal, now and then a line in a log."""

import _thread
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from darrm.errors import DarrmError

SHOWN_AFTER_SECONDS = 2.0  # on a terminal
REWRITTEN_AFTER_SECONDS = 0.1  # on a terminal, so that quick steps do not wait for it
REPEATED_AFTER_SECONDS = 1.0  # while a step lasts
LOGGED_AFTER_SECONDS = 30.0  # and every so many, where the lines stay
BAR_WIDTH = 30
T = TypeVar("T")
Rows = Any  # an array, or a list


class StatusLine:
    """What long work says of itself, with the seconds that it took so far; silent unless enabled.

    On a terminal one line is rewritten, from two seconds on. Anywhere else, as in a log file, a whole line is added
    every thirty seconds, so that nothing is overwritten.
    """

    def __init__(self, *, enabled: bool) -> None:
        self.enabled = enabled and sys.stderr is not None
        self._on_terminal = self.enabled and sys.stderr.isatty()
        self._text = ""
        self._width = 0
        self._started = self._written = time.monotonic()
        self._lock = threading.Lock()  # of standard error, between the work and `repeat`
        self._closed = threading.Event()

    def show(self, text: str) -> None:
        """Say where the work stands."""
        self._text = text
        self._write(REWRITTEN_AFTER_SECONDS)

    def repeat(self) -> None:
        """Write what was said last once a second until the line is closed: a step may be long."""
        while not self._closed.wait(REPEATED_AFTER_SECONDS):
            self._write(0.0)

    def close(self) -> None:
        """Wipe the line of a terminal."""
        self._closed.set()
        self.wipe()

    def wipe(self) -> None:
        """Make room on a terminal for what is printed; the line comes back with what is said next."""
        with self._lock:
            if self._width:
                _put("\r" + " " * self._width + "\r")
                self._width = 0

    def _write(self, pause: float) -> None:
        now = time.monotonic()
        seconds, since = now - self._started, now - self._written
        due = seconds >= SHOWN_AFTER_SECONDS and since >= pause if self._on_terminal else since >= LOGGED_AFTER_SECONDS
        if not (self.enabled and self._text and due):
            return
        with self._lock:
            if self._closed.is_set():
                return
            self._written = now
            text = f"{self._text}, {seconds:.0f} s"
            if self._on_terminal:
                self._width = max(self._width, len(text))
                _put("\r" + text.ljust(self._width))
            else:
                _put(text + "\n")


@contextmanager
def status_line(*, quiet: bool) -> Iterator[StatusLine]:
    """Open a status line for a block of work, kept fresh while a step lasts and wiped at the end however that comes."""
    line = StatusLine(enabled=not quiet)
    if line.enabled:
        threading.Thread(target=line.repeat, daemon=True).start()
    try:
        yield line
    finally:
        line.close()


@contextmanager
def interrupted_after(seconds: float) -> Iterator[None]:
    """Let a block of work have so many seconds; then it is stopped as by Ctrl-C, with a `KeyboardInterrupt`.

    Work that does not catch this had nothing to hand over yet: `DarrmError`.
    """
    is_over = threading.Event()

    def stop() -> None:
        is_over.set()
        _thread.interrupt_main()

    def only_then(*_: object) -> None:
        if is_over.is_set():
            raise KeyboardInterrupt

    timer = threading.Timer(min(seconds, threading.TIMEOUT_MAX), stop)
    timer.daemon = True
    ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN  # as of what a script starts in the background
    try:
        if ignored:
            signal.signal(signal.SIGINT, only_then)
        timer.start()
        yield
    except KeyboardInterrupt:
        if not is_over.is_set():
            raise
        raise DarrmError("stopped before anything was found: give it more time") from None
    finally:
        if ignored:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        timer.cancel()


@contextmanager
def bar(total: int, what: str, *, enabled: bool, done: int = 0) -> Iterator[Callable[[int], None]]:
    """Show how many of so many steps are done: call what is yielded with the number of new ones."""
    line = StatusLine(enabled=enabled)

    def advance(steps: int) -> None:
        nonlocal done
        done += steps
        line.show(_bar(what, done, total))

    try:
        yield advance
    finally:
        line.close()


def counted(items: Sequence[T], what: str, *, enabled: bool) -> Iterator[T]:
    """Hand items out one by one and show how many were."""
    with bar(len(items), what, enabled=enabled) as advance:
        for item in items:
            yield item
            advance(1)


def blocks(rows: Rows, size: int, line: StatusLine, what: str) -> Iterator[Rows]:
    """Cut rows into blocks of ``size`` and show a bar."""
    for start in range(0, len(rows), size):
        yield rows[start : start + size]
        line.show(_bar(what, min(start + size, len(rows)), len(rows)))


def _bar(what: str, done: int, total: int) -> str:
    filled = BAR_WIDTH if total == 0 else round(BAR_WIDTH * done / total)
    return f"{what} [{('#' * filled).ljust(BAR_WIDTH)}] {done:,}/{total:,}"


def _put(text: str) -> None:
    """Write to standard error at once; a reader that has gone misses it."""
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except (OSError, ValueError):
        return
