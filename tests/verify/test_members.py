"""Members of a consortium: each finds with what the table counts it, and whether that covers its promise."""

from itertools import permutations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from darrm.commands.command_line import run
from darrm.majority.noise_function import NoiseFunction
from darrm.privacy import PrivacyParams
from darrm.problem import Problem, Voters
from darrm.table.table import certify
from darrm.verify.__main__ import main
from darrm.verify.claims import judge_members
from darrm.verify.verdicts import CONSISTENT, FALSE
from tests.doors import validated
from tests.verify.support import voters_of

OWN = st.sampled_from(
    [*(PrivacyParams(e, d) for e in ("0.1", "0.2", "0.5") for d in ("0", "1e-6")), PrivacyParams("inf")]
)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    voters = Voters.of([PrivacyParams("0.1"), PrivacyParams("0.2", "1e-6"), PrivacyParams("0.5", "1e-6")])
    certify(Problem(voters, PrivacyParams("0.4", "1e-5")), NoiseFunction(3, [0.2, 0.4])).save(tmp_path / "t.json")
    return tmp_path / "t.json"


@pytest.mark.parametrize(
    ("lines", "status", "verdicts"),
    [
        (
            "west,0.5,1e-6\neast,0.1,0\nnorth,0.2,0\n",
            0,
            {"west": "0.5, 1e-06", "east": "0.1, 0", "north": "0.2, 1e-06"},
        ),
        (
            "west,0.5,1e-6\neast,0.3,0\nnorth,0.2,0\n",
            1,
            {"west": "0.5, 1e-06", "east": "0.1, 0", "north": "0.2, 1e-06"},
        ),
    ],
)
def test_each_member_is_told_its_row(
    lines: str,
    status: int,
    verdicts: dict[str, str],
    table: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = table.parent / "voters.csv"
    path.write_text(f"name,epsilon,delta\n{lines}")
    assert run(lambda: main([str(table), "--voters", str(path), "--format", "json"])) == status
    report = validated(capsys.readouterr().out, "verify_report")
    told = [(verdict["claim"], verdict["verdict"]) for verdict in report["verdicts"] if verdict["about"] == "voters"]
    wrong = {"east"} if status else set()
    assert told == [
        (
            f"{name!r} is counted as {'anyone' if name in wrong else f'({pair})-DP'}",
            FALSE if name in wrong else CONSISTENT,
        )
        for name, pair in verdicts.items()
    ]
    assert [file["role"] for file in report["files"]] == ["release", "voters"]


def test_a_member_that_joined_is_not_counted(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = table.parent / "voters.csv"
    path.write_text("name,epsilon,delta\na,0.1,0\nb,0.1,0\nc,0.1,0\nd,inf,0\n")
    assert run(lambda: main([str(table), "--voters", str(path), "--all"])) == 1
    out = capsys.readouterr().out
    for name in "abcd":
        assert f"FALSE                 '{name}' is counted (the table is about 3 voters, and 4 are named)" in out
    path.write_text("name,epsilon\n")
    assert run(lambda: main([str(table), "--voters", str(path)])) == 2


@given(own=st.lists(OWN, min_size=1, max_size=5), counted=st.lists(OWN, min_size=1, max_size=5))
def test_all_members_are_covered_exactly_if_the_voters_are(
    own: list[PrivacyParams], counted: list[PrivacyParams]
) -> None:
    verdicts = list(
        judge_members(
            {str(n): (each.exact_epsilon, each.exact_delta) if each.is_private else None for n, each in enumerate(own)},
            voters_of(Voters.of(counted)),
        )
    )
    assert len(verdicts) == len(own)
    covered = sum(verdict.verdict == CONSISTENT for verdict in verdicts)
    if Voters.of(counted).cover(Voters.of(own)):
        assert covered == len(own)
    if len(own) == len(counted):  # as many as any order would cover
        pairs = (zip(order, own, strict=True) for order in permutations(counted))
        most = max(sum(Voters(1, each).cover(Voters(1, one)) for each, one in order) for order in pairs)
        assert (covered == most) if len({each.delta for each in own}) == 1 else covered <= most
    else:
        assert covered == 0
