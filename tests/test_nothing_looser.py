"""The comparison finds what is looser, and nothing else; and what older versions wrote is read as it was."""

import copy
import json
import math
from pathlib import Path

import pytest

from darrm import GammaTable
from darrm.laws import priors
from darrm.verify.audit import audit
from darrm.verify.verdicts import FALSE
from tests.nothing_looser import FILES, Record, compare, entry, first_grown, main, old_files, recorded

RENYI, PROFILE = [[2.0, 4.0], [0.01, 0.02]], [[0.0, 1.0], [0.4, 0.0]]


def small() -> Record:
    costs = {"total": 2.0, "small": 1e-9, "unbounded": math.inf}
    held = entry(
        same={"digest": "ab"},
        costs=costs,
        curves={"renyi": RENYI, "profile": PROFILE},
        shares={"share right": 0.8, "unknown": None},
        notes={"method": "per query"},
    )
    return {"plans": {"one": held, "never made": {"refused": {"by": "ValueError: no"}}}}


def test_the_same_is_not_looser_and_neither_is_less() -> None:
    before, after = small(), small()
    assert compare(before, after) == ([], [])
    one = after["plans"]["one"]
    one["costs"].update({"total": 2.0 + 1e-12, "small": 0.0, "unbounded": 3.0, "another": 9.0})
    one["shares"].update({"share right": 0.8 - 1e-7, "unknown": 0.1})
    one["curves"]["renyi"] = [[2.0, 3.0, 4.0], [0.01, 0.015, 0.02]]
    one["notes"]["method"] = "law"
    after["plans"]["never made"] = entry()
    looser, other = compare(before, after)
    assert looser == []
    assert len(other) == 2


@pytest.mark.parametrize(
    ("group", "name", "value"),
    [
        ("same", "digest", "cd"),
        ("costs", "total", 2.0 + 1e-11),
        ("costs", "small", 1e-9 + 1e-11),
        ("costs", "total", math.inf),
        ("costs", "total", math.nan),
        ("costs", "total", None),
        ("curves", "renyi", [[2.0, 4.0], [0.01, 0.02 + 1e-11]]),
        ("curves", "renyi", [[2.0, 3.0], [0.01, 0.02]]),
        ("curves", "renyi", [[3.0, 8.0], [0.011, 0.02]]),
        ("curves", "profile", [[0.0, 1.0], [0.4, 1e-11]]),
        ("curves", "profile", [[0.0, 2.0], [0.4, 0.0]]),
        ("curves", "profile", None),
        ("shares", "share right", 0.8 - 2e-6),
        ("shares", "share right", None),
    ],
)
def test_one_planted_looseness_is_one_line(group: str, name: str, value: object) -> None:
    after = small()
    after["plans"]["one"][group][name] = value
    looser, _ = compare(small(), after)
    assert len(looser) == 1
    assert f"plans: one: {name}" in looser[0]


def test_what_is_gone_or_refused_is_looser() -> None:
    assert compare(small(), {"plans": {}})[0] == ["plans: one: is gone", "plans: never made: is gone"]
    assert compare(small(), {})[0] == compare(small(), {"plans": {}})[0]

    def refuse() -> dict:
        raise ValueError("no")

    after = small()
    after["plans"]["one"] = recorded(refuse)
    assert compare(small(), after)[0] == ["plans: one: made → {'by': 'ValueError: no'}"]


def test_curves_are_compared_on_their_chords() -> None:
    # (order − 1)·value and, in e^ε, δ are convex: what is on the chord is no larger
    assert first_grown("renyi", [[3.0], [0.05 / 3.0]], [[2.0, 4.0], [0.02 / 3.0, 0.08 / 3.0 * 0.75]]) is None
    assert first_grown("renyi", [[3.0], [0.0166]], [[2.0, 4.0], [0.01, 0.02]]) == 3.0
    halfway = math.log((1.0 + math.e) / 2.0)
    assert first_grown("profile", [[0.0, halfway], [0.4, 0.2]], PROFILE) is None
    assert first_grown("profile", [[0.0, halfway], [0.4, 0.199]], PROFILE) == halfway


def test_the_command_says_it_by_its_status(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before, after = tmp_path / "before.json", tmp_path / "after.json"
    before.write_text(json.dumps(small()), encoding="utf-8")
    assert main(["compare", str(before), str(before)]) == 0
    worse = copy.deepcopy(small())
    worse["plans"]["one"]["costs"]["total"] = 2.1
    after.write_text(json.dumps(worse), encoding="utf-8")
    assert main(["compare", str(before), str(after)]) == 1
    assert "looser: plans: one: total: 2.0 → 2.1" in capsys.readouterr().out


def test_files_of_older_versions_are_read_as_they_were() -> None:
    """Their digests, entries, labels that wait, and costs, as the code before the second redesign recorded them.

    Costs of many queries, which take a second to add up, are compared by the command alone.
    """
    before: Record = json.loads(FILES.with_suffix(".json").read_text(encoding="utf-8"))
    assert len(before["files"]) == len(list(FILES.iterdir())) > 25
    assert compare(before, {"files": dict(old_files(FILES, accounts=False))})[0] == []


@pytest.mark.parametrize("name", ["table-overlap", "plurality-2", "plurality-3", "table-version-1"])
def test_an_auditor_finds_nothing_false_in_files_of_older_versions(name: str) -> None:
    assert [verdict for verdict in audit([FILES / f"{name}.json"]).verdicts if verdict.verdict == FALSE] == []


def test_a_table_names_no_file_to_be_read(tmp_path: Path) -> None:
    """A prior of recorded votes is read for who types it, and is a name in a table that somebody else wrote."""
    path = tmp_path / "votes.csv"
    path.write_text("0,1,1\n", encoding="utf-8")
    assert priors.from_json(f"votes:{path}") == priors.StoredPrior(f"votes:{path}")
    with pytest.raises(ValueError, match="fields must be name and sha256"):
        priors.from_json({"kind": "other", "name": "mine", "comment": "hidden"})


def test_an_error_beyond_one_is_read_where_a_prior_of_one_s_own_has_large_weights() -> None:
    document = json.loads((FILES / "table-version-1.json").read_text(encoding="utf-8"))
    document["optimality"].update(prior="large weights", value=1.7)
    optimality = GammaTable.from_json(document).optimality
    assert optimality is not None
    assert optimality.value == 1.7
