"""Plans, sweeps and affordable workloads: what applies, which mechanism is first and why, what stops a search."""

import csv
import json
import re
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from darrm import priors
from darrm.account.bounds import Bound, models_bound
from darrm.errors import PlanError
from darrm.plan import (
    MECHANISMS,
    TESTED,
    Mechanism,
    Plan,
    Proposal,
    Sweep,
    affordable,
    calibrate,
    find_mechanism,
    plan,
    sweep,
)
from darrm.plan.__main__ import main
from darrm.plan.accuracy import Accuracy, Measure
from darrm.plan.mechanism import FixedMechanism
from darrm.plan.report import compute_rank, plan_text
from darrm.plurality.accuracy_bound import right_at_most
from darrm.privacy import PrivacyParams, at_least, at_most
from darrm.problem import MOST_QUERIES, OPEN, Voters, Workload
from darrm.votes import Votes
from tests.doors import validated
from tests.planned import FRESH, MANY, ONE, PLAIN, Oracle, complete_plan, find_mechanisms

MODEL = PrivacyParams("0.0892", "1e-4")
TOTAL = PrivacyParams(1, "1e-4")
EIGHT = Workload(Voters(8, PLAIN, overlap=1), 1, PrivacyParams("0.5", "1e-5"), 3)


# models, and what applies


@pytest.mark.parametrize(
    ("overlap", "total", "fits"),
    [(1, TOTAL, True), (2, PrivacyParams("0.2", "1e-2"), True), (None, PrivacyParams("0.2", "1e-2"), False)],
)
def test_private_models_within_the_budget_need_no_noise(overlap: int | None, total: PrivacyParams, fits: bool) -> None:
    work = Workload(Voters(5, MODEL, overlap=overlap, models=True), 9, total)
    result, cap = (
        plan(work, mechanisms=find_mechanisms("no-noise", "lnmax-counts")),
        models_bound(work.voters, total.delta),
    )
    assert cap is not None
    assert (cap.epsilon <= total.epsilon) is fits
    if fits:
        assert (result.best.slug, result.spent.epsilon, result.spent.bound) == (
            "no-noise",
            cap.epsilon,
            "private models",
        )
        assert result.table.gamma.half.tolist() == [1.0] * 3
        assert "No noise is needed" in str(result)
    else:
        assert f"{at_least(cap.epsilon, 6)} together" in dict(result.left_out)["no-noise"]


BEYOND_FLOATS = Workload(Voters(3, PrivacyParams("0.1")), 10**6, PrivacyParams("1e-320", "1e-300"))
SIXTY = Workload(Voters(60, PrivacyParams("0.1")), 1, TOTAL, 1000)


@pytest.mark.parametrize(
    ("work", "slug", "reason"),
    [
        (Workload(Voters(250, PLAIN, 1), 9, TOTAL, 3), "randomized-response", "partitions of 250 votes"),
        (Workload(Voters(12, PLAIN, 2), 9, TOTAL, 10), "randomized-response", "histograms of 12 votes"),
        (SIXTY, "subsampling", "at most 100"),
        (SIXTY, "optimal", "at most 100"),
        (BEYOND_FLOATS, "gnmax", "no parameter"),
        (BEYOND_FLOATS, "optimal", "1e-323"),
        (Workload(Voters.non_private(30, 1, sampled="0.1"), 9, TOTAL, OPEN), "gnmax", "the same for every question"),
        (Workload(Voters(1, PLAIN, 1), 9, TOTAL, 3), "confident-tested", "at least two voters"),
        (Workload(Voters(50, PLAIN, 1), 500, PrivacyParams("1e-9", "1e-5"), 10), "gnmax", "no parameter composes"),
        (Workload(Voters(50, PLAIN, 1), 500, PrivacyParams(2), 10), "gnmax", "no parameter composes"),
        (Workload(Voters(7, PrivacyParams(1)), 1, PrivacyParams("0.01"), 3), "optimal", "do not compose"),
        (Workload(Voters(7, PrivacyParams(1)), 1, PrivacyParams("0.01"), 3), "subsampling", "one voter"),
        (
            Workload(Voters(7, PrivacyParams("0.1")), 1, PrivacyParams("0.3"), 3),
            "rdp-optimal",
            "non-private voters only",
        ),
        (Workload(Voters(3, PLAIN, 1), 10**12, PrivacyParams(1, "1e-5")), "gnmax-paper", "nothing is left"),
        (Workload(Voters(3, PLAIN, 1), 10**12, PrivacyParams(1, "1e-5")), "gnmax-analytic", "nothing is left"),
        (Workload(Voters(11, PLAIN, 1), 10, PrivacyParams(1)), "rdp-optimal", "a Rényi budget needs delta > 0"),
    ],
    ids=str,
)
def test_a_mechanism_that_does_not_apply_is_a_reason(work: Workload, slug: str, reason: str) -> None:
    with pytest.raises(PlanError, match=reason):
        plan(work, mechanisms=find_mechanisms(slug))


def test_the_error_of_a_plan_is_one_reason_and_the_number_of_others() -> None:
    slugs = ("permute-and-flip", "exponential", "optimal", "rdp-optimal", "gnmax-paper")
    work = Workload(Voters(11, PrivacyParams("0.1")), 10**11, PrivacyParams("1e-9"))
    message = r"budget: no parameter composes within \(1e-09, 0\) \(and 2 other reasons\)"
    with pytest.raises(PlanError, match=message):
        plan(work, mechanisms=find_mechanisms(*slugs))


class Broken(Mechanism):
    slug = "broken"

    def at(self, parameter: float) -> Proposal:
        raise ValueError(f"no law at {parameter}")


def test_only_a_plan_error_leaves_a_mechanism_out() -> None:
    with pytest.raises(ValueError, match="no law at"):
        plan(ONE, mechanisms=[*find_mechanisms("exponential"), Broken])


def test_a_prior_that_only_samples_leaves_the_optima_out() -> None:
    prior = priors.RecordedVotes("seen", Votes.from_counts([[3, 1, 1], [2, 2, 1]]))
    work = Workload(Voters(9, PLAIN, 1), 5, PrivacyParams("2", "1e-5"), classes=3)
    reasons = dict(
        plan(work, prior=prior, mechanisms=find_mechanisms("exponential", "optimal", "rdp-optimal")).left_out
    )
    assert "only samples" in reasons["optimal"]
    assert reasons["optimal"] == reasons["rdp-optimal"]


@pytest.mark.parametrize(
    ("work", "options", "message"),
    [
        (replace(EIGHT, classes=4), {"prior": priors.Point(0.8)}, "a belief about 4 classes"),
        (
            replace(EIGHT, classes=4),
            {"prior": priors.RecordedVotes("three", Votes.from_counts([[1, 2, 3]]))},
            "the 3 of the recorded votes",
        ),
        (replace(EIGHT, classes=1001, missing=1), {}, "classes must be an integer of at most 1000, got 1001"),
        (EIGHT, {"objective": "error"}, "the expected error is defined for two classes"),
        ("work", {}, "workload must be a Workload"),
    ],
)
def test_plan_refuses(work: Workload, options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        plan(work, **options)


def test_every_mechanism_has_its_own_slug() -> None:
    slugs = [mechanism.slug for mechanism in (*MECHANISMS, *TESTED)]
    assert len(slugs) == len(set(slugs)) == 18
    assert [find_mechanism(slug) for slug in slugs] == [*MECHANISMS, *TESTED]


# the ranking


def test_without_a_prior_the_first_has_the_smallest_regret() -> None:
    slugs = ("permute-and-flip", "exponential", "subsampling", "randomized-response")
    result = plan(FRESH, mechanisms=find_mechanisms(*slugs))
    accuracies = np.array([[accuracy.value for accuracy in row.consensus.values()] for row in result.rows])
    regrets = (accuracies.max(axis=0) - accuracies).max(axis=1)
    assert result.measure.is_regret
    assert [row.regret for row in result.rows] == regrets.tolist() == sorted(regrets)
    assert "over low, medium and high consensus, is the smallest" in result.reason
    assert result.best.accuracy == pytest.approx(accuracies[0].mean(), abs=1e-12)


def test_a_row_with_a_higher_mean_and_more_regret_is_explained() -> None:
    result = plan(FRESH, mechanisms=find_mechanisms("permute-and-flip", "exponential"))
    first, second = result.rows
    first, higher = replace(first, regret=0.01), Accuracy(first.accuracy + 0.01)
    reason = replace(result, rows=(first, replace(second, regret=0.09, estimate=higher))).reason
    assert f"of {second.slug} is higher, but it loses up to 9.00 points, and {first.slug} at most 1.00" in reason
    assert "is higher" not in replace(result, rows=(first, replace(second, estimate=first.estimate))).reason


@pytest.mark.parametrize(
    ("accuracy", "epsilon", "first", "reason"),
    [
        (-2e-5, 0.9, 1, True),  # equal in a report, and cheaper
        (2e-5, 1.0 - 2e-5, 1, False),  # more accurate; a search left the rest of ε
        (-2e-5, 1.0 - 2e-5, 0, False),
        (-2e-4, 0.9, 0, False),
        (2e-4, 1.1, 1, False),
        (0.0, 1.0 - 2e-4, 1, True),
    ],
)
def test_rows_that_are_equal_in_a_report_are_ranked_by_epsilon(
    accuracy: float, epsilon: float, first: int, reason: bool
) -> None:
    best = plan(MANY, prior=priors.Dirichlet(), mechanisms=find_mechanisms("permute-and-flip")).best
    row = replace(best, estimate=Accuracy(0.75), spent=replace(best.spent, epsilon=1.0))
    other = replace(best, estimate=Accuracy(0.75 + accuracy), spent=replace(best.spent, epsilon=epsilon))
    measure = Measure(MANY, priors.Dirichlet())
    rows = sorted([row, other], key=partial(compute_rank, measure))
    assert rows[0] is [row, other][first]
    assert ("spends less than" in Plan(MANY, measure, tuple(rows)).reason) is reason


@pytest.mark.slow
def test_of_equal_rows_the_first_spends_least() -> None:
    """Five queries of private voters need no noise: every table answers the majority, at different costs."""
    work = Workload(Voters(11, PrivacyParams("0.1", "1e-5")), 5, PrivacyParams("3", "1e-3"))
    slugs = ("optimal", "permute-and-flip", "subsampling", "randomized-response")
    result = plan(work, mechanisms=find_mechanisms(*slugs), complete=True)
    equal = [row.spent.epsilon for row in result.rows if row.accuracy > 1 - 1e-9]
    assert len(equal) == 4
    assert equal == sorted(equal)
    assert equal[0] < equal[-1]
    assert "it spends less than" in result.reason


@pytest.mark.slow
@pytest.mark.parametrize(
    ("queries", "total", "reasons"),
    [
        (10**11, PrivacyParams("1e-2"), {"lnmax-counts": "no parameter composes within (0.01, 0)"}),
        (1, PrivacyParams(690, "1e-5"), {}),
        (1, PrivacyParams(700), {}),
        (1, PrivacyParams("1e-300", "1e-5"), {"gnmax-paper": "target.epsilon must be at least 0.02307"}),
    ],
)
def test_a_budget_beyond_the_range_of_a_mechanism_leaves_the_others(
    queries: int, total: PrivacyParams, reasons: dict[str, str]
) -> None:
    result = plan(Workload(Voters(3, PLAIN, overlap=1), queries, total))
    assert {row.slug for row in result.rows} & {"optimal", "rdp-optimal", "permute-and-flip"}
    left_out = dict(result.left_out)
    assert all(left_out[slug].startswith(reason) for slug, reason in reasons.items())
    assert all(len(reason) < 300 for reason in left_out.values())


def test_each_objective_has_its_own_optimum() -> None:
    work = Workload(Voters(3, PrivacyParams("0.1", "1e-5")), 1, PrivacyParams("0.15", "3e-5"))
    by_accuracy, by_error = (
        plan(work, prior=priors.Dirichlet(), mechanisms=find_mechanisms("optimal"), objective=objective).best
        for objective in ("accuracy", "error")
    )
    assert by_accuracy.expected_error is not None
    assert by_error.expected_error is not None
    assert by_accuracy.accuracy > by_error.accuracy + 1e-4
    assert by_accuracy.expected_error > by_error.expected_error + 1e-4


def test_the_darrm_of_the_paper_is_the_optimum_where_one_person_influences_all_voters() -> None:
    work = Workload(Voters(3, PrivacyParams("0.1", "1e-5")), 2, PrivacyParams("0.25", "1e-3"))
    optimal, paper = plan(work, mechanisms=find_mechanisms("optimal", "darrm-paper")).rows
    alone = calibrate(work, find_mechanism("darrm-paper"))
    assert (optimal.slug, paper.slug, paper.name) == ("optimal", alone.slug, alone.name)
    assert dict(paper.settings) == dict(alone.settings)
    assert (paper.spent.epsilon, paper.accuracy) == (alone.spent.epsilon, alone.accuracy)


def test_a_mechanism_that_was_not_calibrated_to_the_end_is_estimated() -> None:
    result = plan(MANY, prior=priors.Dirichlet())
    assert len(str(result).splitlines()) <= 25
    reasons = dict(result.left_out)
    assert reasons["gnmax"].startswith("not calibrated; an estimate of its accuracy is 0.")
    assert not any("worse" in reason for reason in reasons.values())
    assert {"gnmax", "lnmax"} <= {row.slug for row in complete_plan(MANY).rows}


@pytest.mark.slow
@pytest.mark.parametrize(
    "work",
    [
        Workload(Voters(5, PLAIN, overlap=1), 20, PrivacyParams("2", "1e-5")),
        Workload(Voters(3, PrivacyParams("0.2"), overlap=2), 2, PrivacyParams("1", "1e-3")),
        Workload(Voters(5, PLAIN, overlap=1), 5, PrivacyParams("2", "1e-5"), classes=3),
    ],
    ids=str,
)
def test_the_first_of_a_plan_is_calibrated_as_alone(work: Workload) -> None:
    first = plan(work).rows[0]
    alone = calibrate(work, find_mechanism(first.slug))
    assert dict(alone.settings) == dict(first.settings)
    assert (alone.spent.epsilon, alone.accuracy) == (first.spent.epsilon, first.accuracy)
    for row in complete_plan(work).rows:
        assert 0.0 < row.spent.epsilon <= work.total.epsilon * (1 + 1e-12)
        assert row.is_released == (row.aggregator is not None)


class Almost(FixedMechanism):
    """A mechanism that is nearly always right, and only compared."""

    slug, name, only_compared = "almost", "almost", "nobody can ask it"

    def propose(self) -> Proposal:
        total = Bound("hope", self.search.workload.total.epsilon, "")
        return Proposal(lambda counts: np.where(counts == counts.max(axis=1)[:, None], 0.99, 0.0), {}, total=total)


def test_a_custom_mechanism_is_one_class() -> None:
    result = complete_plan(ONE, mechanisms=(*MECHANISMS, Oracle))
    assert result.best.slug == "oracle"
    assert "Next      ask the oracle" in str(result)


def test_a_mechanism_that_is_only_compared_is_never_the_best() -> None:
    result = complete_plan(EIGHT, mechanisms=[*find_mechanisms("optimal", "exponential"), Almost, Oracle])
    assert [row.slug for row in result.rows] == ["almost", "optimal", "exponential"]
    assert ("oracle", "it is for two classes only") in result.left_out
    assert result.best.slug == "optimal"
    assert "almost would be better, but is only compared" in result.reason
    assert "almost: nobody can ask it" in plan_text(result, everything=True)
    with pytest.raises(PlanError, match=r"these are only compared\. almost: nobody can ask it"):
        _ = plan(EIGHT, mechanisms=[Almost]).best


def test_the_largest_accuracy_is_the_theorems_mean_over_histograms() -> None:
    result = plan(EIGHT, prior=priors.Dirichlet(), mechanisms=find_mechanisms("optimal", "exponential"))
    limit = result.largest_accuracy()
    assert limit is not None
    assert f"≤ {at_most(100.0 * limit, 4)}" in str(result)
    rows = [(a, b, 8 - a - b) for a in range(9) for b in range(9 - a)]
    assert 0.0 <= limit - float(np.mean(right_at_most(rows, EIGHT.total))) <= 1e-5
    assert all(row.accuracy <= limit for row in result.rows)


# time


class Stopping(FixedMechanism):
    slug = "stops"

    def propose(self) -> Proposal:
        raise KeyboardInterrupt


def test_a_stopped_plan_has_the_calibrated_mechanisms_and_warns() -> None:
    first, last = find_mechanisms("permute-and-flip", "exponential")
    with pytest.warns(UserWarning, match="stopped early"):
        result = plan(ONE, mechanisms=[first, Stopping, last], stoppable=True)
    assert [row.slug for row in result.rows] == ["permute-and-flip"]
    assert [slug for slug, reason in result.left_out if "was stopped" in reason] == ["stops", "exponential"]
    with pytest.raises(KeyboardInterrupt):
        plan(ONE, mechanisms=[first, Stopping])
    with pytest.raises(PlanError, match="before any mechanism was calibrated"):
        plan(ONE, mechanisms=[Stopping, first], stoppable=True)


class Refusing(FixedMechanism):
    slug = "refuses"

    def propose(self) -> Proposal:
        raise PlanError("not tried")


@pytest.mark.parametrize(("K", "warns"), [(25_001, True), (25_000, False)])
def test_a_plan_that_takes_minutes_warns(K: int, warns: bool) -> None:
    with warnings.catch_warnings(record=True) as messages:
        warnings.simplefilter("always")
        with pytest.raises(PlanError, match="not tried"):
            plan(Workload(Voters(K, PLAIN, 1), 10, PrivacyParams(2, "1e-5")), mechanisms=[Refusing])
    text = "a plan for 25,001 voters with an overlap of 1 takes a minute or more"
    assert [text in str(message.message) for message in messages] == [True] * warns


# affordable workloads, where a plan has a known accuracy

ELEVEN = Workload(Voters(11, PLAIN, overlap=1), 5, PrivacyParams(2))


def set_accuracy(monkeypatch: pytest.MonkeyPatch, accuracy: Callable[[Workload], float]) -> None:
    def pretend_plan(work: Workload, **_: object) -> SimpleNamespace:
        return SimpleNamespace(best=SimpleNamespace(accuracy=accuracy(work)))

    monkeypatch.setattr("darrm.plan.planner.plan", pretend_plan)


@pytest.mark.parametrize("accuracy", [0.6, 0.9, 0.99])
@pytest.mark.parametrize("what", ["queries", "voters", "epsilon"])
def test_affordable_finds_the_last_number_with_the_accuracy(
    what: str, accuracy: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    def compute_accuracy(work: Workload) -> float:
        ratio = work.voters.K * work.total.epsilon / work.queries
        return ratio / (1.0 + ratio)

    set_accuracy(monkeypatch, compute_accuracy)
    ratio = accuracy / (1.0 - accuracy)
    exact = {"queries": 22 / ratio, "voters": ratio * 2.5, "epsilon": ratio / 2.2}[what]
    if what == "queries" and exact < 1.0:
        with pytest.raises(PlanError, match="no queries up to 1 have"):
            affordable(ELEVEN, accuracy, what)
        return
    work = affordable(ELEVEN, accuracy, what)
    value = {"queries": work.queries, "voters": work.voters.K, "epsilon": work.total.epsilon}[what]
    assert compute_accuracy(work) >= accuracy
    assert abs(value - exact) <= 0.02 * max(value, exact) + (what != "epsilon")


def test_affordable_ends_at_the_largest_number_of_queries(monkeypatch: pytest.MonkeyPatch) -> None:
    set_accuracy(monkeypatch, lambda _: 1.0)
    assert affordable(ELEVEN, 0.9).queries == MOST_QUERIES


@pytest.mark.parametrize(("calls", "queries"), [(1, 5), (4, 20)])
def test_a_stopped_search_returns_the_hardest_affordable_workload(
    calls: int, queries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[int] = []

    def compute_accuracy(work: Workload) -> float:
        tried.append(work.queries)
        if len(tried) > calls:
            raise KeyboardInterrupt
        return 1.0 if work.queries <= 30 else 0.0  # of 5, 10, 20 and 40 the first three

    set_accuracy(monkeypatch, compute_accuracy)
    with pytest.raises(KeyboardInterrupt):
        affordable(ELEVEN, 0.9)
    tried.clear()
    with pytest.warns(UserWarning, match="stopped early"):
        assert affordable(ELEVEN, 0.9, stoppable=True).queries == queries
    with pytest.raises(PlanError, match="take more time"):
        affordable(ELEVEN, 0.9, stoppable=True)


# sweeps

SWEPT = Workload(Voters(21, PLAIN, overlap=1), 5, PrivacyParams(9, "1e-5"), 3)
FEW = find_mechanisms("exponential", "gnmax-analytic")


def test_each_point_of_a_sweep_is_the_plan_at_its_budget() -> None:
    result = sweep(SWEPT, ["2", "0.5", "2"], mechanisms=FEW)
    assert list(result.best) == [0.5, 2.0]
    for epsilon, accuracy in result.best.items():
        alone = plan(replace(SWEPT, total=PrivacyParams(epsilon, "1e-5")), mechanisms=FEW)
        assert accuracy == alone.best.accuracy
        assert {row.slug: row.accuracy for row in alone.rows} == {
            slug: accuracies[epsilon] for slug, accuracies in result.accuracies.items()
        }


def test_a_sweep_names_budgets_and_mechanisms_without_a_plan() -> None:
    result = sweep(SWEPT, [0.5, 2], mechanisms=FEW)
    small, large = result.plans
    row, absent = small.rows
    small = replace(small, rows=(row,), left_out=((absent.slug, "too wide"),))
    assert f"–         {absent.slug} at 0.5: too wide" in str(Sweep((small, large))).splitlines()
    assert "–  " not in str(result)
    pure = replace(SWEPT, total=PrivacyParams(1))
    assert list(sweep(pure, [0.5], mechanisms=FEW).accuracies) == ["exponential"]  # Gaussian noise needs a δ
    with pytest.raises(PlanError, match=r"the total epsilon 0\.5 has no plan"):
        sweep(pure, [0.5, 1], mechanisms=FEW[1:])
    private = Workload(Voters(11, PrivacyParams("0.1")), 1, PrivacyParams(1))
    with pytest.warns(UserWarning, match=r"the total epsilon 0\.05 has no plan"):
        assert len(sweep(private, [0.05, 0.5], mechanisms=find_mechanisms("optimal")).plans) == 1


def test_a_sweep_that_is_stopped_before_a_plan_is_an_error() -> None:
    with pytest.raises(PlanError, match="stopped before there was a plan for any budget"):
        sweep(ONE, [1], mechanisms=[Stopping], stoppable=True)
    with pytest.raises(KeyboardInterrupt):
        sweep(ONE, [1], mechanisms=[Stopping])


@pytest.mark.slow
def test_the_text_json_csv_and_picture_of_a_sweep_agree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["--K", "9", "--non-private", "--overlap", "1", "--total", "1,1e-5", "--sweep", "1, 0.25,0.5"]
    assert main([*words, "--csv", "a.csv", "--plot", "a.svg"]) == 0
    text = capsys.readouterr().out
    assert main([*words, "--format", "json"]) == 0
    rows = []
    for report in validated(capsys.readouterr().out, "plan_sweep")["plans"]:
        for row in validated(json.dumps(report), "plan_report")["mechanisms"]:
            rows.append((row["mechanism"], report["workload"]["total"]["epsilon"], row["accuracy"]["value"]))
            assert re.search(rf"^{row['mechanism']} .*{100.0 * row['accuracy']['value']:.2f}", text, re.MULTILINE)
    assert list(dict.fromkeys(epsilon for _, epsilon, _ in rows)) == ["0.25", "0.5", "1"]
    with Path("a.csv").open(encoding="utf-8") as file:
        lines = [(row["mechanism"], row["total epsilon"], float(row["accuracy"])) for row in csv.DictReader(file)]
    assert lines == rows
    assert "<svg" in Path("a.svg").read_text(encoding="utf-8")
