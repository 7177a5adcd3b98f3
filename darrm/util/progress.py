"""Progress on standard error: one line that is rewritten on a terminal, a line every thirty seconds in a log."""

import math
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeVar

SHOWN_AFTER_SECONDS = 2.0  # on a terminal
REWRITTEN_AFTER_SECONDS = 0.1  # on a terminal, so that quick steps do not wait for it
REPEATED_AFTER_SECONDS = 1.0  # while a step lasts
LOGGED_AFTER_SECONDS = 30.0  # in a log
BAR_WIDTH = 30
T = TypeVar("T")
Rows = Any  # an array, or a list


class StatusLine:
    def __init__(self, *, enabled: bool) -> None:
        self.enabled = enabled and sys.stderr is not None
        self._is_terminal = self.enabled and sys.stderr.isatty()
        self._text, self._width = "", 0
        self._started = self._written = time.monotonic()
        self._lock = threading.Lock()  # of standard error, between the work and `repeat`
        self._closed = threading.Event()

    def show(self, text: str) -> None:
        self._text, current_time = text, time.monotonic()
        seconds_since_start, seconds_since_line = current_time - self._started, current_time - self._written
        is_due = seconds_since_line >= LOGGED_AFTER_SECONDS
        if self._is_terminal:
            is_due = seconds_since_start >= SHOWN_AFTER_SECONDS and seconds_since_line >= REWRITTEN_AFTER_SECONDS
        if not (self.enabled and text and is_due):
            return
        with self._lock:
            if self._closed.is_set():
                return
            self._written, line = current_time, f"{text}, {seconds_since_start:.0f} s"
            if self._is_terminal:
                self._width = max(self._width, len(line))
                _write("\r" + line.ljust(self._width))
            else:
                _write(line + "\n")

    def repeat(self) -> None:
        """Write the last text again during a long step."""
        while not self._closed.wait(REPEATED_AFTER_SECONDS):
            self.show(self._text)

    def close(self) -> None:
        self._closed.set()
        self.wipe()

    def wipe(self) -> None:
        """Clear a terminal's line for other output."""
        with self._lock:
            if self._width:
                _write("\r" + " " * self._width + "\r")
                self._width = 0


@contextmanager
def status_line(*, quiet: bool) -> Iterator[StatusLine]:
    line = StatusLine(enabled=not quiet)
    if line.enabled:
        threading.Thread(target=line.repeat, daemon=True).start()
    try:
        yield line
    finally:
        line.close()


@dataclass
class _Limit:
    is_over: bool = False
    is_searching: bool = False
    was_searched: bool = False


_LIMIT: ContextVar[_Limit | None] = ContextVar("time limit", default=None)


@contextmanager
def interrupt_after(seconds: float) -> Iterator[None]:
    """Stop the `stoppable_search` that runs after ``seconds`` by `KeyboardInterrupt`; finish other work."""
    if seconds == math.inf or threading.current_thread() is not threading.main_thread():
        yield
        return
    limit = _Limit()

    def interrupt(*_: object) -> None:
        limit.is_over = True
        if limit.is_searching:
            raise KeyboardInterrupt

    previous_handler = signal.signal(signal.SIGALRM, interrupt)
    token = _LIMIT.set(limit)
    signal.setitimer(signal.ITIMER_REAL, min(max(seconds, 1e-6), threading.TIMEOUT_MAX))  # 0 would switch it off
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        _LIMIT.reset(token)
        signal.signal(signal.SIGALRM, previous_handler)


@contextmanager
def stoppable_search(*, enabled: bool = True) -> Iterator[None]:
    """Let a time limit stop this block by `KeyboardInterrupt`, at once if it ended before the first search.

    The caller catches it and returns its best result. Later searches are not stopped.
    """
    limit = _LIMIT.get()
    if limit is None or not enabled:
        yield
        return
    try:
        limit.is_searching = True
        if limit.is_over and not limit.was_searched:
            raise KeyboardInterrupt
        yield
    finally:
        limit.is_searching, limit.was_searched = False, True


@contextmanager
def bar(total: int, label: str, *, enabled: bool, done: int = 0) -> Iterator[Callable[[int], None]]:
    """Yield a function that takes the number of new steps."""
    line = StatusLine(enabled=enabled)

    def advance(steps: int) -> None:
        nonlocal done
        done += steps
        line.show(_format_bar(label, done, total))

    try:
        yield advance
    finally:
        line.close()


def track(items: Sequence[T], label: str, *, enabled: bool) -> Iterator[T]:
    with bar(len(items), label, enabled=enabled) as advance:
        for item in items:
            yield item
            advance(1)


def blocks(rows: Rows, size: int, line: StatusLine | None, label: str) -> Iterator[Rows]:
    for start in range(0, len(rows), size):
        yield rows[start : start + size]
        if line is not None:
            line.show(_format_bar(label, min(start + size, len(rows)), len(rows)))


def _format_bar(label: str, done: int, total: int) -> str:
    filled = round(BAR_WIDTH * done / total) if total else BAR_WIDTH
    return f"{label} [{('#' * filled).ljust(BAR_WIDTH)}] {done:,}/{total:,}"


def _write(text: str) -> None:
    with suppress(OSError, ValueError):  # a closed pipe
        sys.stderr.write(text)
        sys.stderr.flush()
