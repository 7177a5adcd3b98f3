"""What a door says: one line that refuses, or JSON that keeps its schema."""

import json
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import click
import jsonschema
import pytest

from darrm.commands.command_line import run
from darrm.release import __main__ as release

SCHEMAS = Path(__file__).parents[1] / "darrm" / "schemas"


def refused(
    door: Callable[[Sequence[str]], int], words: str | Sequence[str], line: str, capsys: pytest.CaptureFixture[str]
) -> str:
    """Check that these words end with status 2 and one line that holds another; return it."""
    arguments = words.split() if isinstance(words, str) else list(words)
    assert run(lambda: door(arguments)) == 2
    return one_error(line, capsys)


def one_error(line: str, capsys: pytest.CaptureFixture[str]) -> str:
    """Check that nothing was said but one line, an error that holds another; return it."""
    shown = capsys.readouterr()
    assert (shown.out, shown.err.count("\n")) == ("", 1)
    assert shown.err.startswith("error: ")
    assert line in shown.err
    return shown.err


def releasing(folder: Path, votes: str, *more: str, output: str = "labels.npy") -> int:
    files = ["--table", str(folder / "table.json"), "--ledger", str(folder / "l.sqlite")]
    return run(lambda: release.main([str(folder / votes), *files, "--output", str(folder / output), *more]))


def typed(command: click.Command, words: Sequence[object]) -> dict[str, Any]:
    with command.make_context("command", list(map(str, words))) as ctx:
        return ctx.params


@cache
def schema(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((SCHEMAS / f"{name}.json").read_text(encoding="utf-8"))
    return found


def validated(document: Any, name: str) -> Any:
    """Check a document, the text or the file of one, against a schema; return it."""
    if isinstance(document, Path):
        document = document.read_text(encoding="utf-8")
    if isinstance(document, str):
        document = json.loads(document)
    jsonschema.validate(document, schema(name))
    return document
