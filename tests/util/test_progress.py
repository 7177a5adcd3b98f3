"""The status line: for long work only, wiped from a terminal, line by line in a log, fresh while a step lasts."""

import _thread
import re
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from darrm.util import progress
from darrm.util.progress import bar, blocks, interrupt_after, status_line, stoppable_search, track


def on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setattr(progress, "REWRITTEN_AFTER_SECONDS", 0.0)


def test_long_work_on_a_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    on_a_terminal(monkeypatch)
    with status_line(quiet=False) as line:
        line.show("too early")
        assert capsys.readouterr().err == ""
        monkeypatch.setattr(progress, "SHOWN_AFTER_SECONDS", 0.0)
        line.show("round 7")
        assert re.fullmatch(r"\rround 7, \d s *", capsys.readouterr().err)
        assert [len(block) for block in blocks(range(10), 4, line, "releasing")] == [4, 4, 2]
        shown = capsys.readouterr().err.split("\r")[1:]
        assert [text.partition("]")[2].partition(",")[0] for text in shown] == [" 4/10", " 8/10", " 10/10"]
        assert [text.count("#") for text in shown] == [12, 24, 30]
    assert set(capsys.readouterr().err) == {"\r", " "}


def test_a_long_step_is_shown_while_it_lasts(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    on_a_terminal(monkeypatch)
    monkeypatch.setattr(progress, "REPEATED_AFTER_SECONDS", 0.02)
    with status_line(quiet=False) as line:
        line.show("one long step")
        monkeypatch.setattr(progress, "SHOWN_AFTER_SECONDS", 0.0)
        shown, deadline = "", time.monotonic() + 60.0
        while "one long step" not in shown and time.monotonic() < deadline:
            time.sleep(0.01)
            shown += capsys.readouterr().err
    assert shown.startswith("\rone long step")
    time.sleep(0.1)  # a line that goes on after its end would spoil what is printed next
    assert set(capsys.readouterr().err) <= {"\r", " "}


def test_a_log_file_gets_whole_lines_now_and_then(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(progress, "LOGGED_AFTER_SECONDS", 30.0)
    with bar(100, "pairs", enabled=True, done=10) as advance:
        for _ in range(90):
            now[0] += 1.0
            advance(1)
    lines = capsys.readouterr().err.splitlines(keepends=True)
    assert [re.sub(r"\[.*\]", "[]", line) for line in lines] == [
        "pairs [] 40/100, 30 s\n",
        "pairs [] 70/100, 60 s\n",
        "pairs [] 100/100, 90 s\n",
    ]


def test_what_is_counted_is_handed_out(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "LOGGED_AFTER_SECONDS", 0.0)
    assert list(track("abc", "letters", enabled=True)) == ["a", "b", "c"]
    assert [line.split()[-3] for line in capsys.readouterr().err.splitlines()] == ["1/3,", "2/3,", "3/3,"]
    assert list(track("abc", "letters", enabled=False)) == ["a", "b", "c"]
    assert capsys.readouterr().err == ""


def test_quiet_and_quick_work_say_nothing(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def work() -> None:
        with status_line(quiet=False) as line:
            line.show("round 7")

    def quiet() -> None:
        for name in ("SHOWN_AFTER_SECONDS", "LOGGED_AFTER_SECONDS"):
            monkeypatch.setattr(progress, name, 0.0)
        with status_line(quiet=True) as line:
            line.show("round 7")

    calls: tuple[Callable[[], None], ...] = (work, quiet)
    for call in calls:
        call()
        assert capsys.readouterr().err == ""


def test_a_closed_standard_error_stops_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "LOGGED_AFTER_SECONDS", 0.0)
    monkeypatch.setattr("sys.stderr", None)
    with status_line(quiet=False) as line:
        line.show("round 7")
    assert list(track("abc", "letters", enabled=True)) == ["a", "b", "c"]


@pytest.mark.parametrize("before", [signal.default_int_handler, signal.SIG_IGN])
def test_a_limit_stops_a_search_and_nothing_else(before: Any) -> None:
    """Also where a script started it in the background, which ignores Ctrl-C: the limit was ignored with it."""
    old = signal.signal(signal.SIGINT, before)
    try:
        with interrupt_after(0.02):
            with pytest.raises(KeyboardInterrupt), stoppable_search():
                time.sleep(0.5)
            with stoppable_search():
                found = ["a second search, which the limit stops no more"]
        with interrupt_after(0.02):
            time.sleep(0.1)  # what comes before a search
            with pytest.raises(KeyboardInterrupt), stoppable_search():
                found.append("the first search begins too late")
        with interrupt_after(0.05):
            with stoppable_search():
                found.append("in time")
            time.sleep(0.1)  # its report
            found.append("reported")
        assert found[1:] == ["in time", "reported"]
        assert signal.getsignal(signal.SIGINT) is before
    finally:
        signal.signal(signal.SIGINT, old)


def test_ctrl_c_stops_anything() -> None:
    def work() -> None:
        with interrupt_after(60.0):
            _thread.interrupt_main()
            time.sleep(1.0)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # tests in the background of a script ignore it
    try:
        with pytest.raises(KeyboardInterrupt):
            work()
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("share", [0.9, 1.0, 1.1])
def test_a_limit_that_fires_as_the_search_ends_loses_nothing(share: float) -> None:
    """The search, and what hands it over, end close to the limit, a hundred times."""
    limit, ends = 0.002, 0
    for turn in range(100):
        with interrupt_after(limit):
            end = time.perf_counter() + limit * share + 1e-6 * (turn % 50)
            with suppress(KeyboardInterrupt), stoppable_search():
                while time.perf_counter() < end:
                    pass
            ends += 1
    assert ends == 100
