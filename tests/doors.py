"""Check the output of commands: one line of error, or JSON that fits its schema."""

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
    main: Callable[[Sequence[str]], int], words: str | Sequence[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> str:
    """Check that a command ends with status 2 and one line that contains ``expected``; return the line."""
    arguments = words.split() if isinstance(words, str) else list(words)
    assert run(lambda: main(arguments)) == 2
    return one_error(expected, capsys)


def one_error(expected: str, capsys: pytest.CaptureFixture[str]) -> str:
    """Check that the only output is one error line that contains ``expected``; return it."""
    output = capsys.readouterr()
    assert (output.out, output.err.count("\n")) == ("", 1)
    assert output.err.startswith("error: ")
    assert expected in output.err
    return output.err


def releasing(folder: Path, votes: str, *more: str, output: str = "labels.npy") -> int:
    files = ["--table", str(folder / "table.json"), "--ledger", str(folder / "l.sqlite")]
    return run(lambda: release.main([str(folder / votes), *files, "--output", str(folder / output), *more]))


def typed(command: click.Command, words: Sequence[object]) -> dict[str, Any]:
    with command.make_context("command", list(map(str, words))) as ctx:
        return ctx.params


@cache
def schema(name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((SCHEMAS / f"{name}.json").read_text(encoding="utf-8"))
    return content


def validated(document: Any, name: str) -> Any:
    """Validate a document, its text or its file against a schema; return the document."""
    if isinstance(document, Path):
        document = document.read_text(encoding="utf-8")
    if isinstance(document, str):
        document = json.loads(document)
    jsonschema.validate(document, schema(name))
    return document
