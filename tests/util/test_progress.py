"""The status line: for long work only, wiped from a terminal, line by line in a log, repeated while a step lasts."""

import _thread
import re
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from darrm.util import progress
from darrm.util.progress import bar, blocks, interrupt_after, status_line, stoppable_search, track

ReadLines = Callable[[], str]


@pytest.fixture
def read_error(capsys: pytest.CaptureFixture[str]) -> ReadLines:
    return lambda: capsys.readouterr().err


def pretend_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setattr(progress, "REWRITTEN_AFTER_SECONDS", 0.0)


def test_a_terminal_shows_one_line_that_is_rewritten_and_wiped(
    read_error: ReadLines, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend_terminal(monkeypatch)
    with status_line(quiet=False) as line:
        line.show("too early")
        assert read_error() == ""
        monkeypatch.setattr(progress, "SHOWN_AFTER_SECONDS", 0.0)
        line.show("round 7")
        assert re.fullmatch(r"\rround 7, \d s *", read_error())
        assert [len(block) for block in blocks(range(10), 4, line, "releasing")] == [4, 4, 2]
        bars = read_error().split("\r")[1:]
        assert [text.partition("]")[2].partition(",")[0] for text in bars] == [" 4/10", " 8/10", " 10/10"]
        assert [text.count("#") for text in bars] == [12, 24, 30]
    assert set(read_error()) == {"\r", " "}


def test_a_long_step_is_shown_while_it_lasts(read_error: ReadLines, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_terminal(monkeypatch)
    monkeypatch.setattr(progress, "REPEATED_AFTER_SECONDS", 0.02)
    with status_line(quiet=False) as line:
        line.show("one long step")
        monkeypatch.setattr(progress, "SHOWN_AFTER_SECONDS", 0.0)
        text, deadline = "", time.monotonic() + 60.0
        while "one long step" not in text and time.monotonic() < deadline:
            time.sleep(0.01)
            text += read_error()
    assert text.startswith("\rone long step")
    time.sleep(0.1)  # a line after the end would spoil other output
    assert set(read_error()) <= {"\r", " "}


def test_a_log_gets_whole_lines_now_and_then(read_error: ReadLines, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(progress, "LOGGED_AFTER_SECONDS", 30.0)
    with bar(100, "pairs", enabled=True, done=10) as advance:
        for _ in range(90):
            now[0] += 1.0
            advance(1)
    lines = re.sub(r"\[.*\]", "[]", read_error())
    assert lines == "pairs [] 40/100, 30 s\npairs [] 70/100, 60 s\npairs [] 100/100, 90 s\n"


@pytest.mark.parametrize(("enabled", "counts"), [(True, ["1/3,", "2/3,", "3/3,"]), (False, [])])
def test_track_yields_and_counts_items(
    enabled: bool, counts: list[str], read_error: ReadLines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "LOGGED_AFTER_SECONDS", 0.0)
    assert list(track("abc", "letters", enabled=enabled)) == ["a", "b", "c"]
    assert [line.split()[-3] for line in read_error().splitlines()] == counts


@pytest.mark.parametrize(("quiet", "seconds"), [(False, 30.0), (True, 0.0)])
def test_quick_and_quiet_work_writes_nothing(
    quiet: bool, seconds: float, read_error: ReadLines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "LOGGED_AFTER_SECONDS", seconds)
    monkeypatch.setattr(progress, "SHOWN_AFTER_SECONDS", seconds)
    with status_line(quiet=quiet) as line:
        line.show("round 7")
    assert read_error() == ""


def test_a_closed_standard_error_stops_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "LOGGED_AFTER_SECONDS", 0.0)
    monkeypatch.setattr("sys.stderr", None)
    with status_line(quiet=False) as line:
        line.show("round 7")
    assert list(track("abc", "letters", enabled=True)) == ["a", "b", "c"]


# time limits


@pytest.fixture(params=[signal.default_int_handler, signal.SIG_IGN])
def _handler(request: pytest.FixtureRequest) -> Iterator[None]:
    """Handle Ctrl-C as usual, or ignore it like a program in the background of a script."""
    previous: Any = signal.signal(signal.SIGINT, request.param)
    yield
    assert signal.signal(signal.SIGINT, previous) is request.param


@pytest.mark.usefixtures("_handler")
def test_a_limit_stops_the_running_search_and_no_later_one() -> None:
    with interrupt_after(0.02):
        with pytest.raises(KeyboardInterrupt), stoppable_search():
            time.sleep(0.5)
        with stoppable_search():
            time.sleep(0.001)


@pytest.mark.usefixtures("_handler")
def test_a_limit_before_the_first_search_stops_it_at_once() -> None:
    is_searched = False
    with interrupt_after(0.02):
        time.sleep(0.1)
        with pytest.raises(KeyboardInterrupt), stoppable_search():
            is_searched = True
    assert not is_searched


@pytest.mark.usefixtures("_handler")
def test_a_limit_after_the_search_stops_no_report() -> None:
    with interrupt_after(0.2):  # longer than a busy machine needs
        with stoppable_search():
            pass
        time.sleep(0.3)


@pytest.mark.parametrize("_handler", [signal.default_int_handler], indirect=True)
@pytest.mark.usefixtures("_handler")
def test_ctrl_c_stops_any_work() -> None:
    def work() -> None:
        with interrupt_after(60.0):
            _thread.interrupt_main()
            time.sleep(1.0)

    with pytest.raises(KeyboardInterrupt):
        work()


@pytest.mark.parametrize("share", [0.9, 1.0, 1.1])
def test_a_limit_at_the_end_of_a_search_loses_nothing(share: float) -> None:
    limit, ends = 0.002, 0
    for turn in range(100):
        with interrupt_after(limit):
            end = time.perf_counter() + limit * share + 1e-6 * (turn % 50)
            with suppress(KeyboardInterrupt), stoppable_search():
                while time.perf_counter() < end:
                    pass
            ends += 1
    assert ends == 100
