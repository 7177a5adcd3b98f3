"""The examples are what their program writes."""

from pathlib import Path

import pytest

from darrm.votes import Votes
from experiments.example_votes import CLASSES, HOSPITALS, IMAGES, QUESTIONS, TEACHERS, main

ROOT = Path(__file__).parents[2]


def test_the_examples_are_what_the_program_writes(tmp_path: Path) -> None:
    assert main(["--output", str(tmp_path)]) == 0
    made = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert made == {path.name: path.read_bytes() for path in (ROOT / "examples").glob("*.csv")}


@pytest.mark.parametrize(
    ("name", "voters", "classes", "queries"),
    [("votes.csv", HOSPITALS, 2, QUESTIONS), ("teachers.csv", TEACHERS, CLASSES, IMAGES)],
)
def test_the_examples_are_votes_of_all_voters(name: str, voters: int, classes: int, queries: int) -> None:
    votes = Votes.read(ROOT / "examples" / name, voters=voters, classes=classes)
    assert (votes.voters, votes.queries) == (voters, queries)
    assert {int(row.argmax()) for row in votes.counts} == set(range(classes))
