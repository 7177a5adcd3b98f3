"""Every row of the papers has a line, a place that exists, and the number of its page."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from experiments.pages import format_value, read_json
from experiments.rows import collect_numbers, read_template

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs" / "reproduction"
RESULTS = {"reproduced", "partly", "contradicted", "replaced", "used", "not at hand"}
# the numbered items of the papers, without definitions and remarks
NUMBERED = {
    "D": "Table 1-10 Figure 1-10 Algorithm 1-6 Theorem 2.2,2.3,4.1,B.4,D.1 "
    "Lemma 3.1-3.4,5.1,A.1-A.5,B.1-B.3,B.5,B.7-B.11,C.1",
    "P": "Table 1-2 Figure 1-5 Algorithm 1-5 Theorem 4-6,20,23,24 Proposition 7,8,10,13,14,16,19,21 "
    "Lemma 9,17,18 Corollary 11",
    "S": "Table 1 Figure 1-9 Algorithm 1-2 Theorem 15 Proposition 8,18,19 Corollary 10,12-14,16,20-22 Example 1,6,11",
}
LABEL = r"(?:[A-D]\.)?\d+(?:\.\d+)?"
ITEMS = re.compile(
    r"\b(Table|Figure|Algorithm|Theorem|Lemma|Proposition|Corollary|Corollarie|Example)s? "
    rf"({LABEL}(?:(?:, | and | to |,|-){LABEL})*)"
)


def list_rows(paper: str) -> list[str]:
    """List the rows about a paper: lines of tables, and items of lists."""
    parts = {part[0]: part for part in re.split(r"^## \[", read_template(), flags=re.MULTILINE)[1:]}
    rows = re.findall(r"^\| (?!row |---).*\|$|^- .*(?:\n  .*)*", parts[paper], re.MULTILINE)
    return [" ".join(row.split()) for row in rows]


ALL_ROWS = [row for paper in NUMBERED for row in list_rows(paper)]


def find_items(text: str) -> Iterator[tuple[str, str]]:
    """Yield each kind and label of the lists and ranges in a text."""
    for kind, labels in ITEMS.findall(text):
        for first, last in re.findall(rf"({LABEL})(?:(?: to |-)({LABEL}))?", labels):
            start, _, low = first.rpartition(".")
            for number in range(int(low), int((last or first).rpartition(".")[2]) + 1):
                yield kind.replace("Corollarie", "Corollary"), f"{start}.{number}".lstrip(".")


@pytest.mark.parametrize("paper", NUMBERED)
def test_every_numbered_item_of_a_paper_has_a_row(paper: str) -> None:
    assert set(find_items(NUMBERED[paper])) - set(find_items("\n".join(list_rows(paper)))) == set()


@pytest.mark.parametrize("row", ALL_ROWS, ids=lambda row: row[:30])
def test_a_row_names_its_result_and_an_existing_place(row: str) -> None:
    results = {row.split(" | ")[1]} if row[0] == "|" else set(re.findall(r"\*([a-z ]+)\*", row.replace("**", "")))
    assert results
    assert results <= RESULTS
    links, places = re.findall(r"\]\((\w+\.md)\)", row), re.findall(r"`([\w/.-]+?)(?:::(\w+))?`", row)
    assert links or places
    assert all((DOCS / link).is_file() for link in links)
    for place, test in places:
        assert (ROOT / place).is_file()
        assert not test or f"def {test}(" in (ROOT / place).read_text(encoding="utf-8")


def test_numbers_of_the_rows_are_those_of_the_pages_that_they_name() -> None:
    stored = read_json(DOCS / "rows" / "rows.json")
    assert stored == collect_numbers(DOCS)
    count = 0
    for row in ALL_ROWS:
        if row[0] == "|":
            cells = row.strip("| ").split(" | ")
            (page,) = re.findall(r"\((\w+\.md)\)", cells[2])
            text = (DOCS / page).read_text(encoding="utf-8")
            for name, form in re.findall(r'number\("([^"]+)"\)(?:\|f\("([^"]*)"\))?', cells[3]):
                number = str(format_value(stored[name], form))
                assert re.search(rf"(?<![\d.,]){re.escape(number)}(?!\d|\.\d)", text), (row, number)
                count += 1
    assert count > 50
