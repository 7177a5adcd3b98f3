"""The theory pages name what is there, the checks that they show hold, and every cited work is listed."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LISTED = re.findall(r"^- \*\*(\w+)\*\*: \S", (ROOT / "docs/reference/sources.md").read_text("utf-8"), re.MULTILINE)
KEY = re.compile(
    r"\[([A-Z][A-Za-z]*\d{0,2})(?:, (?:Lemma|Theorem|Algorithm|Proposition|Corollary|Definition|Table|Eq\.|"
    r"Figure|Section|Appendix|Problem)|\])"
)
SOURCES = sorted(path for package in ("darrm", "lp_models", "experiments") for path in (ROOT / package).rglob("*.py"))
NOT_WORKS = {"K", "Q", "C", "T", "L", "B", "N", "J"}  # array shapes and subscripts
INDEX = ROOT / "docs" / "theory" / "index.md"
PAGES = sorted(path for path in INDEX.parent.glob("*.md") if path != INDEX)
LONG = {"open-answers", "fresh-samples", "composition"}  # whose checks solve programs and compose many losses
FENCE = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
MODULE = re.compile(r"\b(?:darrm|lp_models|experiments|tests)/[\w/]+\.py\b")
TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
LINK = re.compile(r"\]\(([^)#]+\.md)(?:#[^)]*)?\)")


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def prose_of(page: Path) -> str:
    """A page without its code and its links, where square brackets hold source keys."""
    return re.sub(r"`[^`]*`|\]\(", "", FENCE.sub("", text_of(page)))


def blocks_of(page: Path) -> list[str]:
    return [body for language, body in FENCE.findall(text_of(page)) if language == "python"]


def test_the_index_has_a_paragraph_for_every_page() -> None:
    assert sorted(LINK.findall(text_of(INDEX))) == [page.name for page in PAGES]


@pytest.mark.parametrize("page", [INDEX, *PAGES], ids=lambda page: page.stem)
def test_what_a_page_names_exists(page: Path) -> None:
    text = text_of(page)
    assert {name for name in MODULE.findall(text) if not (ROOT / name).is_file()} == set()
    assert {name for name in LINK.findall(text) if not (page.parent / name).is_file()} == set()
    assert {
        f"{file}::{name}"
        for file, name in TEST.findall(text)
        if f"def {name}(" not in (ROOT / file).read_text(encoding="utf-8")
    } == set()
    known = {name for _, name in TEST.findall(text)} | {Path(name).stem for name in MODULE.findall(text)}
    assert set(re.findall(r"\btest_\w+\b", text)) <= known
    assert keys_of(prose_of(page)) <= set(LISTED)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_page_has_a_module_a_test_and_a_check(page: Path) -> None:
    text = text_of(page)
    assert MODULE.search(text)
    assert re.search(r"`tests/[\w/]+\.py\b", text)
    assert any("assert " in block for block in blocks_of(page))


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=[pytest.mark.slow] if page.stem in LONG else []) for page in PAGES],
    ids=lambda page: page.stem,
)
def test_the_checks_of_a_page_hold(page: Path) -> None:
    """The blocks of a page, one after the other, as a reader would paste them."""
    names: dict[str, object] = {"__name__": page.stem}
    for number, block in enumerate(blocks_of(page)):
        exec(compile(block, f"{page.name}, block {number + 1}", "exec"), names)  # noqa: S102


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
