"""Named voters, model cards and published figures: what a file shows is judged, the rest is assumed, lies are false."""

import json
import warnings
from collections.abc import Callable, Mapping
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from darrm.commands.command_line import run
from darrm.ledger.ledger import PrivacyLedger
from darrm.loss.privacy_cost import ESTIMATED_TOTAL, PrivacyCost
from darrm.majority.noise_function import NoiseFunction
from darrm.pate import ConfidentGNMax, analyze, sanitize
from darrm.pate.gnss import GnssParameters, rules_of_thumb
from darrm.pate.vote_scale import PublicationParameters, publication_rule
from darrm.privacy import PrivacyParams
from darrm.problem import Problem, Voters
from darrm.table.table import certify
from darrm.verify.__main__ import main
from darrm.verify.audit import audit
from darrm.verify.claims import judge_figure, judge_members, publication_cost, read_card
from darrm.verify.formats import NO_GUARANTEE
from darrm.verify.verdicts import ASSUMED, CONSISTENT, FALSE, UNKNOWN
from darrm.votes import Votes
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


@pytest.mark.parametrize(("east", "status"), [("0.1", 0), ("0.3", 1)])
def test_each_member_is_told_its_row(east: str, status: int, table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = table.parent / "voters.csv"
    path.write_text(f"name,epsilon,delta\nwest,0.5,1e-6\neast,{east},0\nnorth,0.2,0\n")
    assert run(lambda: main([str(table), "--voters", str(path), "--format", "json"])) == status
    report = validated(capsys.readouterr().out, "verify_report")
    assert [(one["claim"], one["verdict"]) for one in report["verdicts"] if one["about"] == "voters"] == [
        ("'west' is counted as (0.5, 1e-06)-DP", CONSISTENT),
        ("'east' is counted as anyone", FALSE) if status else ("'east' is counted as (0.1, 0)-DP", CONSISTENT),
        ("'north' is counted as (0.2, 1e-06)-DP", CONSISTENT),
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
@example(  # the member with ε = 0.2 must leave the larger δ to the other one
    own=[PrivacyParams("0.1", "1e-6"), PrivacyParams("0.2")],
    counted=[PrivacyParams("0.2", "1e-6"), PrivacyParams("0.5")],
)
def test_all_members_are_covered_exactly_if_the_voters_are(
    own: list[PrivacyParams], counted: list[PrivacyParams]
) -> None:
    verdicts = list(
        judge_members(
            {
                str(n): (each.exact_epsilon, each.exact_delta) if each.is_private else NO_GUARANTEE
                for n, each in enumerate(own)
            },
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
        assert covered == most
    else:
        assert covered == 0


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Return a ledger and the card of an estimator that answered four of ten queries."""
    pytest.importorskip("sklearn")
    from sklearn.dummy import DummyClassifier

    from darrm.estimators import PrivateVotingClassifier

    ledger = tmp_path_factory.mktemp("card") / "ledger.sqlite"
    X, y = np.arange(120.0)[:, None], np.arange(120) % 2
    vote = PrivateVotingClassifier(
        DummyClassifier(), n_teachers=30, epsilon=2, delta=1e-5, max_queries=10, classes=2, ledger=ledger
    )
    vote.fit(X, y).predict(X[:4])
    return ledger, vote.to_model_card()


def changed(text: str, change: dict[str, Any]) -> str:
    card = read_card(text.encode())
    assert card is not None
    start, _, rest = text.partition("```json\n")
    return f"{start}```json\n{json.dumps(card | change)}\n```{rest.partition('```')[2]}"


def verdicts(made: tuple[Path, str], folder: Path, change: dict[str, Any], *, with_ledger: bool = True) -> list[str]:
    ledger, text = made
    (folder / "card.md").write_text(changed(text, change), encoding="utf-8")
    paths = [folder / "card.md", *([ledger] if with_ledger else [])]
    return [verdict.verdict for verdict in audit(paths).verdicts if verdict.about == "model card"]


def test_the_card_of_an_estimator_is_consistent_with_its_ledger(made: tuple[Path, str], tmp_path: Path) -> None:
    assert verdicts(made, tmp_path, {}) == [CONSISTENT, CONSISTENT]
    assert verdicts(made, tmp_path, {}, with_ledger=False) == [CONSISTENT, UNKNOWN]


@pytest.mark.parametrize(
    "change",
    [
        {"guarantee": {"epsilon": "1", "delta": "1e-5"}},
        {"guarantee": {"epsilon": "2", "delta": "1e-6"}},
        {"spent": {"epsilon": "0.1", "delta": "1e-5"}},
        {"guarantee": {"epsilon": "2"}},
        {"guarantee": "2"},
    ],
)
def test_a_card_that_claims_too_much_is_false(made: tuple[Path, str], tmp_path: Path, change: dict[str, Any]) -> None:
    assert FALSE in verdicts(made, tmp_path, change)


PARAMETERS: dict[str, GnssParameters | PublicationParameters] = {
    "marks": publication_rule(1.0, 1e-5, safety=1.0),
    "smooth": rules_of_thumb(1.0, 1e-5),
    "smooth and safe": rules_of_thumb(1.0, 1e-5, safety=1.5),
}


@pytest.fixture(scope="module")
def figures() -> dict[str, dict[str, Any]]:
    rng, aggregator = np.random.default_rng(0), ConfidentGNMax(180, 60, 30)
    votes = Votes.from_counts(rng.multinomial(250, [0.8, 0.1, 0.1], 20))
    answered = aggregator.release(votes, rng=rng) >= 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        analysis = analyze(votes, aggregator, 1e-5, answered=answered)
    return {name: sanitize(analysis, one, rng=rng).to_json() for name, one in PARAMETERS.items()}


def words(figure: Mapping[str, Any], ledgers: Any = None) -> list[str]:
    return [one.verdict for one in judge_figure(json.dumps(figure).encode(), ledgers or {})]


@pytest.mark.parametrize("name", PARAMETERS)
def test_its_parts_agree_and_no_file_shows_its_noise(name: str, figures: dict[str, dict[str, Any]]) -> None:
    assert words(figures[name]) == [CONSISTENT, ASSUMED, ASSUMED]


def set_to(**fields: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda old: {**old, **fields}


def less(name: str, factor: float) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda old: {**old, name: old[name] * factor}


def in_run(**fields: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda old: {**old, "run": {**old["run"], **fields}}


def chosen(name: str, value: float) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda old: in_run(parameters={**old["run"]["parameters"], name: value})(old)


def both_less(old: dict[str, Any]) -> dict[str, Any]:
    """Lower the public part below all that it can be, and ε with it."""
    return {**old, "epsilon": old["epsilon"] - 0.9 * old["public_cost"], "public_cost": 0.1 * old["public_cost"]}


LIES: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "a smaller ε": less("epsilon", 0.999),
    "a smaller δ": less("delta", 0.5),
    "no ε": set_to(epsilon=None),
    "a larger order": less("order", 1.5),
    "another conversion": set_to(conversion="none"),
    "a smaller public part": both_less,
    "a negative noisy part": set_to(noisy_cost=-0.1),
    "too sure": less("failure_probability", 0.5),
    "more safety than its chance": chosen("safety", 0.1),
    "safety below 0": chosen("safety", -1.0),
    "no questions": in_run(queries=0),
    "checks that cost nothing": in_run(check="free"),
    "no run": set_to(run={}),
    "a promise of its own": set_to(guarantee="(0.1, 0)-private"),
    "a δ of 0": set_to(delta=0.0),
    "no δ at all": set_to(delta=1.0),
}


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("name", ["marks", "smooth and safe"])
def test_a_lie_is_false(name: str, lie: str, figures: dict[str, dict[str, Any]]) -> None:
    assert FALSE in words(LIES[lie](figures[name]))


def test_less_noise_of_the_publication_costs_more(figures: dict[str, dict[str, Any]]) -> None:
    assert FALSE in words(chosen("deviation", 3.0)(figures["marks"]))
    assert FALSE in words(chosen("noise_scale", 5.0)(figures["smooth"]))
    assert FALSE in words(chosen("smoothness", 0.5)(figures["smooth"]))
    assert FALSE in words(chosen("deviation", 1e3)(figures["smooth"]))  # of both kinds
    assert FALSE in words(chosen("noise_scale", -15.0)(figures["smooth and safe"]))
    assert FALSE in words(in_run(check="data-dependent")(figures["marks"]))  # [P]'s way only


@pytest.mark.parametrize(
    "one", [rules_of_thumb(1.0, 1e-5, safety=2.0), GnssParameters(14.0, 0.0329, 6.23), GnssParameters(3.0, 0.15, 2.0)]
)
def test_publishing_costs_what_the_closed_form_says(one: GnssParameters) -> None:
    assert one.cost * (1 - 1e-5) <= publication_cost(vars(one)) <= one.cost


@pytest.mark.parametrize(
    ("charge", "expected"),
    [
        ({"data_dependent": True, "failure_probability": 0.159, "consent": ESTIMATED_TOTAL}, "consistent"),
        ({"data_dependent": True, "failure_probability": 0.01, "consent": ESTIMATED_TOTAL}, FALSE),
        ({}, FALSE),
    ],
)
def test_a_ledger_takes_it_for_no_guarantee(
    charge: dict[str, Any], expected: str, figures: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    figure = figures["marks"]
    (tmp_path / "figure.json").write_text(json.dumps(figure))
    guarantee = PrivacyParams(figure["epsilon"], 1e-5)
    ledger = PrivacyLedger.create(tmp_path / "ledger.sqlite", PrivacyParams(9, "1e-4"))
    ledger.debit(PrivacyCost("PATE run, sanitized cost", guarantee=guarantee, **charge))
    found = audit([tmp_path]).verdicts
    assert [one.verdict for one in found if "counts it as such an estimate" in one.claim] == [expected]


def test_a_report_on_votes_is_private_and_not_a_broken_table(tmp_path: Path) -> None:
    (tmp_path / "report.json").write_text(json.dumps({"warning": "private", "table_1": {}, "table_2": None}))
    found = audit([tmp_path])
    assert found.status == 0
    assert "private data" in found.verdicts[0].reason
