"""Published figures of PATE: what can be computed is, what is drawn is claimed, and none of it is a guarantee."""

import json
import warnings
from collections.abc import Callable, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from darrm.ledger.ledger import PrivacyLedger
from darrm.loss.privacy_cost import ESTIMATED_TOTAL, PrivacyCost
from darrm.pate import ConfidentGNMax, analyze, sanitize
from darrm.pate.gnss import GnssParameters, rules_of_thumb
from darrm.pate.vote_scale import PublicationParameters, publication_rule
from darrm.privacy import PrivacyParams
from darrm.verify.audit import audit
from darrm.verify.claims import judge_figure, publication_cost
from darrm.verify.verdicts import ASSUMED, FALSE, PROVED, UNKNOWN
from darrm.votes import Votes

PARAMETERS: dict[str, GnssParameters | PublicationParameters] = {
    "marks": publication_rule(1.0, 1e-5, safety=1.0),
    "smooth": rules_of_thumb(1.0, 1e-5),
    "smooth and safe": rules_of_thumb(1.0, 1e-5, safety=1.5),
}


@pytest.fixture(scope="module")
def figures() -> dict[str, dict[str, Any]]:
    rng, aggregator = np.random.default_rng(0), ConfidentGNMax(180, 60, 30)
    votes = Votes.of_counts(rng.multinomial(250, [0.8, 0.1, 0.1], 60))
    answered = aggregator.release(votes, rng=rng) >= 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        analysis = analyze(votes, aggregator, 1e-5, answered=answered)
    return {name: sanitize(analysis, one, rng=rng).to_json() for name, one in PARAMETERS.items()}


def words(figure: Mapping[str, Any], ledgers: Any = None) -> list[str]:
    return [one.verdict for one in judge_figure(json.dumps(figure).encode(), ledgers or {})]


@pytest.mark.parametrize("name", PARAMETERS)
def test_what_is_public_is_proved_and_what_was_drawn_is_claimed(name: str, figures: dict[str, dict[str, Any]]) -> None:
    assert words(figures[name]) == [PROVED, PROVED, ASSUMED]


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
    "more questions": in_run(queries=6000),
    "no questions": in_run(queries=0),
    "less noise of the checks": in_run(
        mechanism="ConfidentGNMax(threshold=180, sigma_threshold=30, sigma_answer=30, noise='discrete')"
    ),
    "a mechanism that nobody knows": in_run(mechanism="magic"),
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
    narrow = "ConfidentGNMax(threshold=180, sigma_threshold=0.6, sigma_answer=30, noise='discrete')"
    assert UNKNOWN in words(in_run(mechanism=narrow)(figures["marks"]))


@pytest.mark.parametrize(
    "one", [rules_of_thumb(1.0, 1e-5, safety=2.0), GnssParameters(14.0, 0.0329, 6.23), GnssParameters(3.0, 0.15, 2.0)]
)
def test_publishing_costs_what_the_closed_form_says(one: GnssParameters) -> None:

    found = publication_cost(vars(one), Fraction(one.order))
    assert one.cost * (1 - 1e-5) <= found.low <= one.cost
    assert one.cost <= found.high <= one.cost * 1.01


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
