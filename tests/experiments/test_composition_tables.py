"""The totals of the papers' tables: computed anew, they are the printed ones and those of the page."""

from pathlib import Path

import pytest

from experiments.composition_tables import decide, rows
from experiments.pages import read_json

DATA = Path(__file__).parents[2] / "docs" / "reproduction" / "composition" / "composition.json"


@pytest.mark.slow
def test_every_row_of_the_four_tables() -> None:
    found = list(rows())
    assert len(found) == 24
    for row in found:
        assert [f"{row['general']:.3f}", f"{row['total_delta']:.3f}"] == [f"{total:.3f}" for total in row["printed"]]
        # the grids round up in the ninth digit
        assert row["profile_pld"] <= row["optimal"] * (1.0 + 1e-6)
        assert row["optimal"] <= row["general"]
        assert row["optimal"] <= row["pld"] <= row["optimal"] * (1.0 + 1e-6)
    assert all(claim.holds for claim in decide(found))
    for row, kept in zip(found, read_json(DATA), strict=True):
        for name in ("data_set", "printed", "models_bound"):
            assert row.pop(name) == kept.pop(name)
        assert row == pytest.approx(kept, rel=1e-6)


def test_a_wrong_digit_would_be_noticed() -> None:
    found = read_json(DATA)
    found[3]["printed"][0] += 0.001
    first, *others = decide(found)
    assert not first.holds
    assert first.measured == "47 of 48 numbers"
    assert all(claim.holds for claim in others)
