"""The theory pages name existing modules and tests, their checks hold, and every cited work is listed."""

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


def read_page(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def read_prose(page: Path) -> str:
    """Return a page without code and links: square brackets hold source keys."""
    return re.sub(r"`[^`]*`|\]\(", "", FENCE.sub("", read_page(page)))


def read_blocks(page: Path) -> list[str]:
    return [body for language, body in FENCE.findall(read_page(page)) if language == "python"]


def test_the_index_has_a_paragraph_for_every_page() -> None:
    assert sorted(LINK.findall(read_page(INDEX))) == [page.name for page in PAGES]


@pytest.mark.parametrize("page", [INDEX, *PAGES], ids=lambda page: page.stem)
def test_names_on_a_page_exist(page: Path) -> None:
    text = read_page(page)
    assert {name for name in MODULE.findall(text) if not (ROOT / name).is_file()} == set()
    assert {name for name in LINK.findall(text) if not (page.parent / name).is_file()} == set()
    assert {
        f"{file}::{name}"
        for file, name in TEST.findall(text)
        if f"def {name}(" not in (ROOT / file).read_text(encoding="utf-8")
    } == set()
    tests = {name for _, name in TEST.findall(text)} | {Path(name).stem for name in MODULE.findall(text)}
    assert set(re.findall(r"\btest_\w+\b", text)) <= tests
    assert find_keys(read_prose(page)) <= set(LISTED)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_page_has_a_module_a_test_and_a_check(page: Path) -> None:
    text = read_page(page)
    assert MODULE.search(text)
    assert re.search(r"`tests/[\w/]+\.py\b", text)
    assert any("assert " in block for block in read_blocks(page))


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=[pytest.mark.slow] if page.stem in LONG else []) for page in PAGES],
    ids=lambda page: page.stem,
)
def test_the_checks_of_a_page_hold(page: Path) -> None:
    """Run the blocks of a page in order."""
    names: dict[str, object] = {"__name__": page.stem}
    for number, block in enumerate(read_blocks(page)):
        exec(compile(block, f"{page.name}, block {number + 1}", "exec"), names)  # noqa: S102


def find_keys(text: str) -> set[str]:
    return {match.group(1) for match in KEY.finditer(text)} - NOT_WORKS


def test_the_pattern_finds_keys() -> None:
    assert find_keys("see [D, Lemma 3.4] and [KOV15, Theorem 3.3] but not x[0] or [K, 2]") == {"D", "KOV15"}


def read_docstrings(path: Path) -> str:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    owners = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return "\n".join(ast.get_docstring(node) or "" for node in ast.walk(tree) if isinstance(node, owners))


def test_every_key_is_listed_once() -> None:
    assert len(LISTED) == len(set(LISTED)) > 20
    keys = {path: find_keys(read_docstrings(path)) for path in SOURCES}
    assert "D" in set.union(*keys.values())
    assert {path: cited - set(LISTED) for path, cited in keys.items() if cited - set(LISTED)} == {}
