"""The status line: on a terminal only, for long work only, and wiped at the end."""

import pytest

from darrm.system import progress
from darrm.system.progress import blocks, status_line


def test_long_work_on_a_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    with status_line(quiet=False) as line:
        line.show("too early")
        assert capsys.readouterr().err == ""
        monkeypatch.setattr(progress, "SHOWN_AFTER_SECONDS", 0.0)
        line.show("round 7")
        assert capsys.readouterr().err == "\rround 7"
        assert [len(block) for block in blocks(range(10), 4, line, "releasing")] == [4, 4, 2]
        assert " 80%" in capsys.readouterr().err
    assert set(capsys.readouterr().err) == {"\r", " "}


@pytest.mark.parametrize("quiet", [True, False])
def test_off(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *, quiet: bool) -> None:
    monkeypatch.setattr(progress, "SHOWN_AFTER_SECONDS", 0.0)
    monkeypatch.setattr("sys.stderr.isatty", lambda: quiet)
    with status_line(quiet=quiet) as line:
        line.show("round 7")
    assert capsys.readouterr().err == ""
