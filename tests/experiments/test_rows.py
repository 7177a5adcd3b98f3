"""Every row of the papers has a line, a place that exists, and the number of its page."""

import re
from itertools import chain
from pathlib import Path

import pytest

from experiments.pages import format_value, read_json
from experiments.rows import collect_numbers, read_template

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs" / "reproduction"
WORDS = {"reproduced", "partly", "contradicted", "replaced", "used", "not at hand"}
KINDS = "Table|Figure|Algorithm|Theorem|Lemma|Proposition|Corollary|Corollarie|Example"
# what the papers number, definitions and remarks aside
NUMBERED = {
    "D": "Table 1-10 Figure 1-10 Algorithm 1-6 Theorem 2.2,2.3,4.1,B.4,D.1 "
    "Lemma 3.1-3.4,5.1,A.1-A.5,B.1-B.3,B.5,B.7-B.11,C.1",
    "P": "Table 1-2 Figure 1-5 Algorithm 1-5 Theorem 4-6,20,23,24 Proposition 7,8,10,13,14,16,19,21 "
    "Lemma 9,17,18 Corollary 11",
    "S": "Table 1 Figure 1-9 Algorithm 1-2 Theorem 15 Proposition 8,18,19 Corollary 10,12-14,16,20-22 Example 1,6,11",
}


def sections(text: str) -> dict[str, list[str]]:
    found = {}
    for part in re.split(r"^## \[", text, flags=re.MULTILINE)[1:]:
        rows = re.findall(r"^\| (?!row |---).*\|$|^- .*(?:\n  .*)*", part, re.MULTILINE)
        found[part[0]] = [" ".join(row.split()) for row in rows]
    return found


def spread(first: str, last: str) -> list[str]:
    start, _, low = first.rpartition(".")
    return [f"{start}.{n}".lstrip(".") for n in range(int(low), int(last.rpartition(".")[2]) + 1)]


def named(text: str) -> set[tuple[str, str]]:
    """Return what a text numbers: kinds with each label of their lists and ranges."""
    label = r"(?:[A-D]\.)?\d+(?:\.\d+)?"
    found = set()
    for kind, labels in re.findall(rf"\b({KINDS})s? ({label}(?:(?:, | and | to |,|-){label})*)", text):
        for first, last in re.findall(rf"({label})(?:(?: to |-)({label}))?", labels):
            found |= {("Corollary" if kind == "Corollarie" else kind, one) for one in spread(first, last or first)}
    return found


def test_lists_and_ranges_are_read() -> None:
    assert named("Lemmas B.1 to B.3, 3.2 and 4, Figure 5 at 7") == {
        *(("Lemma", label) for label in ("B.1", "B.2", "B.3", "3.2", "4")),
        ("Figure", "5"),
    }


@pytest.mark.parametrize("paper", NUMBERED)
def test_everything_that_a_paper_numbers_has_a_row(paper: str) -> None:
    assert named(NUMBERED[paper]) - named("\n".join(sections(read_template())[paper])) == set()


def test_every_row_says_how_and_names_a_page_or_a_place_that_exists() -> None:
    for row in chain.from_iterable(sections(read_template()).values()):
        hows = {row.split(" | ")[1]} if row[0] == "|" else set(re.findall(r"\*([a-z ]+)\*", row.replace("**", "")))
        assert hows, row
        assert hows <= WORDS, row
        links, places = re.findall(r"\]\((\w+\.md)\)", row), re.findall(r"`([\w/.-]+?)(?:::(\w+))?`", row)
        assert links or places, row
        assert all((DOCS / link).is_file() for link in links), row
        for place, test in places:
            assert (ROOT / place).is_file(), row
            assert not test or f"def {test}(" in (ROOT / place).read_text(encoding="utf-8"), row


def test_the_numbers_of_the_rows_are_those_of_the_other_pages() -> None:
    """In the JSON files, and as they are written on the page that the row names."""
    stored = read_json(DOCS / "rows" / "rows.json")
    assert stored == collect_numbers(DOCS)
    seen = 0
    for row in chain.from_iterable(sections(read_template()).values()):
        if row[0] != "|":
            continue
        cells = row.strip("| ").split(" | ")
        (page,) = re.findall(r"\((\w+\.md)\)", cells[2])
        text = (DOCS / page).read_text(encoding="utf-8")
        for name, form in re.findall(r'number\("([^"]+)"\)(?:\|f\("([^"]*)"\))?', cells[3]):
            number = str(format_value(stored[name], form))
            assert re.search(rf"(?<![\d.,]){re.escape(number)}(?!\d|\.\d)", text), (row, number)
            seen += 1
    assert seen > 50
