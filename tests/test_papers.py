"""Every source key in a docstring is a work that docs/reference/sources.md lists."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCES_PAGE = (ROOT / "docs" / "reference" / "sources.md").read_text(encoding="utf-8")
LISTED = re.findall(r"^- \*\*(\w+)\*\*: \S", SOURCES_PAGE, re.MULTILINE)
KEY = re.compile(
    r"\[([A-Z][A-Za-z]*\d{0,2})(?:, (?:Lemma|Theorem|Algorithm|Proposition|Corollary|Definition|Table|Eq\.|"
    r"Figure|Section|Appendix|Problem)|\])"
)
SOURCES = sorted(path for package in ("darrm", "lp_models", "experiments") for path in (ROOT / package).rglob("*.py"))
NOT_WORKS = {"K", "Q", "C", "T", "L", "B", "N", "J"}  # array shapes and subscripts


def keys_of(text: str) -> set[str]:
    return {match.group(1) for match in KEY.finditer(text)} - NOT_WORKS


def test_the_pattern_finds_keys() -> None:
    assert keys_of("see [D, Lemma 3.4] and [KOV15, Theorem 3.3] but not x[0] or [K, 2]") == {"D", "KOV15"}


def docstrings(path: Path) -> str:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    owners = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return "\n".join(ast.get_docstring(node) or "" for node in ast.walk(tree) if isinstance(node, owners))


def test_every_key_is_listed_once() -> None:
    assert len(LISTED) == len(set(LISTED)) > 20
    used = {path: keys_of(docstrings(path)) for path in SOURCES}
    assert "D" in set.union(*used.values())
    assert {path: keys - set(LISTED) for path, keys in used.items() if keys - set(LISTED)} == {}
