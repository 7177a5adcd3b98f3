"""The experiment prints the digits of the papers' tables, computed."""

from __future__ import annotations

import pytest

from experiments import composition_tables


@pytest.mark.slow
def test_every_row_of_the_four_tables(capsys: pytest.CaptureFixture[str]) -> None:
    assert composition_tables.main([]) == 0
    out = capsys.readouterr().out
    # [D, Tables 5, 2, 7, 9], the totals as printed
    for total in (
        (
            "(1.704, 0.002) (2.837, 0.005) (4.202, 0.010) (1.620, 0.002) (2.695, 0.005) (3.988, 0.010) "
            "(5.352, 0.006) (9.901, 0.015) (15.044, 0.030) (5.112, 0.006) (9.382, 0.015) (14.219, 0.030) "
            "(8.920, 0.010) (18.428, 0.025) (28.926, 0.049) (8.520, 0.010) (17.398, 0.025) (27.223, 0.049) "
            "(12.488, 0.014) (28.392, 0.035) (45.683, 0.068) (11.928, 0.014) (26.738, 0.035) (42.873, 0.068)"
        )
        .replace(") (", ")|(")
        .split("|")
    ):
        assert out.count(total) == 1
    rows = list(composition_tables.rows())
    assert len(rows) == 24
    for row in rows:
        # the grids round up in the ninth digit
        assert row.profile_pld <= row.optimal * (1.0 + 1e-6)
        assert row.optimal <= row.general
        assert row.optimal <= row.pld <= row.optimal * (1.0 + 1e-6)
