"""The bugs that are planted to try the tests can still be planted; whether they are caught, `tests.planted` asks."""

import pytest

from tests.planted import PLANTED_BUGS, ROOT, Plant


@pytest.mark.parametrize("bug", PLANTED_BUGS, ids=lambda bug: bug.name)
def test_a_bug_can_be_planted(bug: Plant) -> None:
    assert [other.name for other in PLANTED_BUGS].count(bug.name) == 1
    for edit in bug.edits:
        assert len(edit.places()) == 1, f"{edit.right!r} was changed: plant the bug anew in tests/planted.py"
        assert edit.wrong != edit.right
    assert all((ROOT / path).exists() for path in bug.tests)
