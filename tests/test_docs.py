"""Pages for people say what is there."""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_tests_named_by_the_sharp_edges_exist() -> None:
    named = set(re.findall(r"`(test_\w+)`", (ROOT / "docs" / "sharp-edges.md").read_text(encoding="utf-8")))
    assert len(named) >= 10
    written = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    assert {name for name in named if f"def {name}(" not in written} == set()


def test_what_is_to_be_cited_is_this_version() -> None:
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    page = (ROOT / "docs" / "citing.md").read_text(encoding="utf-8")
    entry = page.partition("@software")[2].partition("\n}")[0]
    told = dict(re.findall(r"^  (\w+) *= \{+(.*?)\}+,?$", entry, re.MULTILINE))
    asked = dict(re.findall(r'^([\w-]+): "?(.*?)"?$', citation, re.MULTILINE))
    assert told["version"] == asked["version"]
    assert told["title"] == asked["title"]
    assert told["license"] == asked["license"]
    assert asked["date-released"].startswith(told["year"])
    for url in re.findall(r'url: "([^"]*)"', citation):
        assert url in page
