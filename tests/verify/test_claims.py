"""Named voters, model cards and published figures: files show a part, and the rest is assumed. `lies` lists lies."""

import json
from collections.abc import Callable
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from darrm import PrivacyLedger, PrivacyParams, Voters
from darrm.commands.command_line import run
from darrm.loss.privacy_cost import ESTIMATED_TOTAL, PrivacyCost
from darrm.pate.gnss import GnssParameters, rules_of_thumb
from darrm.pate.vote_scale import PublicationParameters
from darrm.verify.__main__ import main
from darrm.verify.audit import audit
from darrm.verify.claims import judge_members, publication_cost
from darrm.verify.formats import NO_GUARANTEE
from darrm.verify.verdicts import ASSUMED, CONSISTENT, FALSE, UNKNOWN
from tests.doors import refused, validated
from tests.verify.lies import edit_card
from tests.verify.support import voters_of

GUARANTEES = st.sampled_from(
    [*(PrivacyParams(e, d) for e in ("0.1", "0.2", "0.5") for d in ("0", "1e-6")), PrivacyParams("inf")]
)
Folders = Callable[[str], Path]


@pytest.mark.parametrize(("east", "status"), [("0.1", 0), ("0.3", 1)])
def test_each_named_voter_gets_a_verdict(
    east: str, status: int, honest: Folders, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table, voters = honest("differing") / "table.json", tmp_path / "voters.csv"
    voters.write_text(f"name,epsilon,delta\nwest,0.5,1e-6\neast,{east},0\nnorth,0.2,0\n")
    assert run(lambda: main([str(table), "--voters", str(voters), "--format", "json"])) == status
    report = validated(capsys.readouterr().out, "verify_report")
    assert [(one["claim"], one["verdict"]) for one in report["verdicts"] if one["about"] == "voters"] == [
        ("'west' is counted as (0.5, 1e-06)-DP", CONSISTENT),
        ("'east' is counted as anyone", FALSE) if status else ("'east' is counted as (0.1, 0)-DP", CONSISTENT),
        ("'north' is counted as (0.2, 1e-06)-DP", CONSISTENT),
    ]
    assert [file["role"] for file in report["files"]] == ["release", "voters"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name,epsilon,delta\n", "names no voter"),
        ("name,epsilon\n", "line 1"),
        ("a,0.1,0\na,0.2,0\n", "named twice"),
        ("a\n", "line 1"),
        ("a,-1\n", "line 1"),
    ],
)
def test_a_file_of_voters_is_refused(
    text: str, message: str, honest: Folders, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "voters.csv").write_text(text)
    arguments = [str(honest("differing") / "table.json"), "--voters", str(tmp_path / "voters.csv")]
    refused(main, arguments, message, capsys)


@given(members=st.lists(GUARANTEES, min_size=1, max_size=5), counted=st.lists(GUARANTEES, min_size=1, max_size=5))
@example(  # the member with ε = 0.2 must leave the larger δ to the other one
    members=[PrivacyParams("0.1", "1e-6"), PrivacyParams("0.2")],
    counted=[PrivacyParams("0.2", "1e-6"), PrivacyParams("0.5")],
)
def test_as_many_members_are_covered_as_in_the_best_order(
    members: list[PrivacyParams], counted: list[PrivacyParams]
) -> None:
    pairs = {
        str(number): (member.exact_epsilon, member.exact_delta) if member.is_private else NO_GUARANTEE
        for number, member in enumerate(members)
    }
    verdicts = [verdict.verdict for verdict in judge_members(pairs, voters_of(Voters.of(counted)))]
    expected = 0
    if len(members) == len(counted):
        orders = (zip(order, members, strict=True) for order in permutations(counted))
        expected = max(sum(Voters(1, voter).cover(Voters(1, member)) for voter, member in order) for order in orders)
    assert sorted(verdicts) == [CONSISTENT] * expected + [FALSE] * (len(members) - expected)


def test_a_model_card_is_compared_with_its_ledger_or_assumed(copied: Folders) -> None:
    folder = copied("card")

    def judge_card(*names: str) -> list[str]:
        verdicts = audit([folder / name for name in names]).verdicts
        return [verdict.verdict for verdict in verdicts if verdict.about == "model card"]

    assert judge_card("card.md", "ledger.sqlite") == [CONSISTENT, CONSISTENT]
    assert judge_card("card.md") == [CONSISTENT, UNKNOWN]
    edit_card({"ledger_digest": None}, folder)
    assert judge_card("card.md", "ledger.sqlite") == [ASSUMED]


@pytest.mark.parametrize("name", ["scale", "smooth", "safe"])
def test_the_parts_of_a_figure_agree_and_its_noise_is_assumed(name: str, honest: Folders) -> None:
    verdicts = audit([honest("figures") / f"{name}.json"]).verdicts
    assert [verdict.verdict for verdict in verdicts] == [CONSISTENT, ASSUMED, ASSUMED]


@pytest.mark.parametrize(
    "parameters",
    [
        *(rules_of_thumb(1.0, 1e-5, safety=2.0), GnssParameters(14.0, 0.0329, 6.23), GnssParameters(3.0, 0.15, 2.0)),
        PublicationParameters(18.0, 8.0),
    ],
)
def test_a_publication_costs_the_closed_form(parameters: GnssParameters | PublicationParameters) -> None:
    assert parameters.cost * (1 - 1e-5) <= publication_cost(vars(parameters)) <= parameters.cost


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"data_dependent": True, "failure_probability": 0.159, "consent": ESTIMATED_TOTAL}, CONSISTENT),
        ({"data_dependent": True, "failure_probability": 0.01, "consent": ESTIMATED_TOTAL}, FALSE),
        ({}, FALSE),
    ],
)
def test_a_ledger_must_count_a_figure_as_an_estimate(fields: dict[str, Any], expected: str, copied: Folders) -> None:
    folder = copied("figures")
    guarantee = PrivacyParams(json.loads((folder / "scale.json").read_text())["epsilon"], 1e-5)
    ledger = PrivacyLedger.create(folder / "ledger.sqlite", PrivacyParams(9, "1e-4"))
    ledger.debit(PrivacyCost("PATE run, sanitized cost", guarantee=guarantee, **fields))
    verdicts = audit([folder / "scale.json", ledger.path]).verdicts
    assert [one.verdict for one in verdicts if "counts it as such an estimate" in one.claim] == [expected]
