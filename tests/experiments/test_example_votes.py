"""The examples are what their program writes, and votes of all voters."""

from pathlib import Path

from darrm.votes import Votes
from experiments.example_votes import CLASSES, HOSPITALS, IMAGES, QUESTIONS, TEACHERS, main

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_the_examples_are_what_the_program_writes(tmp_path: Path) -> None:
    assert main(["--output", str(tmp_path)]) == 0
    made = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert made == {path.name: path.read_bytes() for path in EXAMPLES.glob("*.csv")}
    for name, K, classes, queries in (("votes", HOSPITALS, 2, QUESTIONS), ("teachers", TEACHERS, CLASSES, IMAGES)):
        votes = Votes.read(EXAMPLES / f"{name}.csv", voters=K, classes=classes)
        assert votes.queries == queries
        assert {int(row.argmax()) for row in votes.counts} == set(range(classes))
