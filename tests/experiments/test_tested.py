"""Runs that are tested first: the least budget with which votes pass, and the tables that show it."""

import math
from pathlib import Path

import pytest

from darrm.privacy import PrivacyParams
from darrm.votes import Votes
from experiments import tested
from experiments.pages import Row
from experiments.tested import CHANCE, KINDS, Setting, least_budget, rows_of, table_of

DOCS = Path(__file__).parents[2] / "docs"
VOTES = Votes.of_counts([[58, 2, 0]] * 30 + [[40, 15, 5]] * 10)
SETTING = Setting(40, 40, 12.0, 5.0)


@pytest.mark.slow
def test_the_least_budget_passes_and_one_less_does_not() -> None:
    epsilon, order = least_budget(VOTES, SETTING, 1e-3, 3.0)

    def chance(budget: float) -> float:
        return tested.tested_run(VOTES, SETTING, PrivacyParams(budget, 1e-3), order).pass_chance(VOTES)

    assert chance(epsilon) >= CHANCE > chance(0.998 * epsilon)
    split = Votes.of_counts([[31, 29, 0]] * 40)
    assert least_budget(split, SETTING, 1e-3, 3.0)[0] > 1.2 * epsilon


def test_the_table_is_the_one_of_its_page_and_marks_the_smaller_guarantee() -> None:
    rows = rows_of(DOCS / "reproduction" / "tested")
    assert len(rows) >= 7
    assert table_of(rows) in (DOCS / "reproduction" / "tested.md").read_text(encoding="utf-8")
    for row in rows:
        assert row["exact"] < row["tested"]
        assert row["pass_chance"] == pytest.approx(CHANCE, abs=0.0099)
        assert not math.isnan(row["published"])
    changed: list[Row] = [rows[0] | dict.fromkeys(KINDS, 2.0) | {"tested": 3.0}]
    assert table_of(changed).splitlines()[2].endswith("| **2.000** | 2.000 | 3.000 | 2.000 |")
