"""The status line: for long work only, wiped from a terminal, line by line in a log, fresh while a step lasts."""

import re
import signal
import time
from collections.abc import Callable
from typing import Any

import pytest

from darrm.errors import DarrmError
from darrm.system import progress
from darrm.system.progress import bar, blocks, counted, interrupted_after, status_line


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
    assert list(counted("abc", "letters", enabled=True)) == ["a", "b", "c"]
    assert [line.split()[-3] for line in capsys.readouterr().err.splitlines()] == ["1/3,", "2/3,", "3/3,"]
    assert list(counted("abc", "letters", enabled=False)) == ["a", "b", "c"]
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
    assert list(counted("abc", "letters", enabled=True)) == ["a", "b", "c"]


@pytest.mark.parametrize("before", [signal.default_int_handler, signal.SIG_IGN])
def test_work_that_has_nothing_to_show_in_its_time_says_so(before: Any) -> None:
    """Also where a script started it in the background, which ignores Ctrl-C: the limit was ignored with it."""
    old = signal.signal(signal.SIGINT, before)
    try:
        with pytest.raises(DarrmError, match="give it more time"), interrupted_after(0.0):
            time.sleep(5.0)
        with pytest.raises(KeyboardInterrupt), interrupted_after(60.0):
            raise KeyboardInterrupt  # Ctrl-C is Ctrl-C
        assert signal.getsignal(signal.SIGINT) is before
    finally:
        signal.signal(signal.SIGINT, old)
