"""Names: functions are verbs, and no value is called by a bare participle or adverb."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
NO_NAME = re.compile(
    "found|given|drawn|told|said|own|beside|asked|known|taken|shown|named|wanted|chosen|tried|due|rest|less|near|apart|"
    "alone|bare|here|there|so|now|believed|counted|one|some"
)
NO_FUNCTION = re.compile(r"^(?!is_).*_of$|_in_words$")
ALLOWED = {"one_of"}  # a check: `checks.one_of(SHAPES, shape=shape)`


def find_unclear_names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if NO_FUNCTION.search(node.name) and node.name not in ALLOWED:
                yield node.lineno, node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and NO_NAME.fullmatch(node.id):
            yield node.lineno, node.id
        elif isinstance(node, ast.arg) and NO_NAME.fullmatch(node.arg):
            yield node.lineno, node.arg


@pytest.mark.parametrize("folder", ["darrm", "lp_models", "experiments"])
def test_names_say_what_they_hold(folder: str) -> None:
    unclear = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path in sorted((ROOT / folder).rglob("*.py"))
        for line, name in find_unclear_names(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert unclear == []


def test_unclear_names_are_found() -> None:
    code = "def rate_of(told): pass\nfound = 1\ndef is_part_of(): pass\ndef answer_in_words(): pass"
    names = sorted(name for _, name in find_unclear_names(ast.parse(code)))
    assert names == ["answer_in_words", "found", "rate_of", "told"]
