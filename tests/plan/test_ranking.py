"""The ranking: what applies, what needs no noise, how models are counted, which row is first and why."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from darrm import priors
from darrm.account.bounds import Bound, models_bound
from darrm.errors import PlanError
from darrm.plan import MECHANISMS, TESTED, Mechanism, Plan, Proposal, Search, calibrate, find_mechanism, plan
from darrm.plan.accuracy import Accuracy, Measure
from darrm.plan.mechanism import FixedMechanism, reduce_workload
from darrm.plan.report import compute_rank, plan_text
from darrm.plurality.accuracy_bound import right_at_most
from darrm.privacy import PrivacyParams, at_least, at_most
from darrm.problem import OPEN, Voters, Workload
from darrm.votes import Votes
from tests.planned import FRESH, MANY, ONE, Oracle, calibrated, completed, planned

MODEL = PrivacyParams("0.0892", "1e-4")
TOTAL = PrivacyParams(1, "1e-4")
WORKS = (
    Workload(Voters(5, PrivacyParams("inf"), overlap=1), 20, PrivacyParams("2", "1e-5")),
    Workload(Voters(3, PrivacyParams("0.2"), overlap=2), 2, PrivacyParams("1", "1e-3")),
    Workload(Voters(5, PrivacyParams("inf"), overlap=1), 5, PrivacyParams("2", "1e-5"), classes=3),
)


def of_slugs(*slugs: str) -> list[type[Mechanism]]:
    return [find_mechanism(slug) for slug in slugs]


FEW = of_slugs("permute-and-flip", "gnmax", "randomized-response")


def test_private_models_on_disjoint_shards_need_no_noise() -> None:
    work = Workload(Voters(5, MODEL, overlap=1, models=True), 20, TOTAL)
    found = plan(work, mechanisms=of_slugs("no-noise", "lnmax-counts"))
    assert found.best.slug == "no-noise"
    cap = models_bound(Voters(1, MODEL, models=True), 1e-4)
    assert cap is not None
    assert found.spent.epsilon == cap.epsilon == 0.0892
    assert found.spent.bound == "private models"
    assert found.table.gamma.half.tolist() == [1.0] * 3
    assert "No noise is needed" in str(found)


@pytest.mark.parametrize(("overlap", "fits"), [(2, True), (None, False)])
def test_models_that_share_people_cost_what_a_person_influences(overlap: int | None, fits: bool) -> None:
    cap = models_bound(Voters(overlap or 5, MODEL, models=True), 1e-2)
    assert cap is not None
    assert (cap.epsilon <= 0.2) is fits
    work = Workload(Voters(5, MODEL, overlap=overlap, models=True), 9, PrivacyParams("0.2", "1e-2"))
    found = plan(work, mechanisms=of_slugs("no-noise", "lnmax-counts"))
    assert (found.rows[0].slug == "no-noise") is fits
    if fits:
        assert found.spent.epsilon == cap.epsilon
    else:
        assert f"{at_least(cap.epsilon, 6)} together" in dict(found.left_out)["no-noise"]


def test_models_are_counted_as_so_many_plain_voters_as_a_person_reaches() -> None:
    work = Workload(Voters(5, PrivacyParams(1), overlap=2, models=True), 10, PrivacyParams("0.5", "1e-5"))
    assert reduce_workload(work).voters == Voters(5, PrivacyParams("inf"), overlap=2)
    assert reduce_workload(work, one_by_one=True).voters == Voters(5, PrivacyParams("inf"), overlap=1)


def test_the_objective_is_one_for_any_number_of_classes() -> None:
    """The optimum of the accuracy has the higher accuracy, that of the expected error the smaller error."""
    work = Workload(Voters(3, PrivacyParams("0.1", "1e-5")), 1, PrivacyParams("0.15", "3e-5"))
    by_accuracy, by_error = (
        plan(work, prior=priors.Dirichlet(), mechanisms=of_slugs("optimal"), objective=objective).best
        for objective in ("accuracy", "error")
    )
    assert by_accuracy.accuracy > by_error.accuracy + 1e-4
    assert by_accuracy.expected_error is not None
    assert by_error.expected_error is not None
    assert by_accuracy.expected_error > by_error.expected_error + 1e-4
    with pytest.raises(ValueError, match="the expected error is defined for two classes"):
        plan(replace(work, classes=3), objective="error")


def test_a_row_with_a_higher_accuracy_than_the_first_is_explained() -> None:
    """Of two mechanisms the first loses at most 1 point; the second has a higher mean, and loses 9."""
    found = plan(FRESH, mechanisms=of_slugs("permute-and-flip", "exponential"))
    first, second = found.rows
    higher = Accuracy(first.accuracy + 0.01)
    rows = (replace(first, regret=0.01), replace(second, regret=0.09, estimate=higher))
    reason = replace(found, rows=rows).reason
    assert f"of {second.slug} is higher, but it loses up to 9.00 points, and {first.slug} at most 1.00" in reason
    assert "is higher" not in replace(found, rows=(rows[0], replace(rows[1], estimate=first.estimate))).reason


def test_darrm_of_the_paper_is_the_optimum_where_one_person_influences_all() -> None:
    work = Workload(Voters(3, PrivacyParams("0.1", "1e-5")), 2, PrivacyParams("0.25", "1e-3"))
    optimal, paper = plan(work, mechanisms=of_slugs("optimal", "darrm-paper")).rows
    alone = calibrate(work, find_mechanism("darrm-paper"))
    assert (optimal.slug, paper.slug, paper.name) == ("optimal", alone.slug, alone.name)
    assert dict(paper.settings) == dict(alone.settings)
    assert (paper.spent.epsilon, paper.accuracy) == (alone.spent.epsilon, alone.accuracy)


def test_without_a_prior_the_first_has_the_smallest_regret() -> None:
    found = plan(FRESH, mechanisms=of_slugs("permute-and-flip", "exponential", "subsampling", "randomized-response"))
    assert found.measure.is_regret
    table = np.array([[accuracy.value for accuracy in row.consensus.values()] for row in found.rows])
    regret = (table.max(axis=0) - table).max(axis=1)
    assert [row.regret for row in found.rows] == regret.tolist() == sorted(regret)
    assert "over low, medium and high consensus, is the smallest" in found.reason
    assert found.best.accuracy == pytest.approx(table[0].mean(), abs=1e-12)  # of two classes as of more


@pytest.mark.parametrize(
    ("accuracy", "epsilon", "first", "reason"),
    [
        (-2e-5, 0.9, 1, "spends less than"),  # equal in a report, and cheaper
        (2e-5, 1.0 - 2e-5, 1, ""),  # more accurate; a search left the rest of ε
        (-2e-5, 1.0 - 2e-5, 0, ""),
        (-2e-4, 0.9, 0, ""),
        (2e-4, 1.1, 1, ""),
        (0.0, 1.0 - 2e-4, 1, "spends less than"),
    ],
)
def test_rows_that_are_equal_in_a_report_are_ranked_by_what_they_spend(
    accuracy: float, epsilon: float, first: int, reason: str
) -> None:
    best = plan(MANY, prior=priors.Dirichlet(), mechanisms=of_slugs("permute-and-flip")).best
    row = replace(best, estimate=Accuracy(0.75), spent=replace(best.spent, epsilon=1.0))
    other = replace(best, estimate=Accuracy(0.75 + accuracy), spent=replace(best.spent, epsilon=epsilon))
    measure = Measure(MANY, priors.Dirichlet())
    rows = sorted([row, other], key=partial(compute_rank, measure))
    assert rows[0] is [row, other][first]
    assert ("spends less than" in Plan(MANY, measure, tuple(rows)).reason) is bool(reason)


def test_the_error_of_a_plan_is_one_reason_and_the_number_of_others() -> None:
    few = of_slugs("permute-and-flip", "exponential", "optimal", "rdp-optimal", "gnmax-paper")
    with pytest.raises(PlanError) as refusal:
        plan(Workload(Voters(11, PrivacyParams("0.1")), 10**11, PrivacyParams("1e-9")), mechanisms=few)
    words = "no mechanism stays within this budget: no parameter composes within (1e-09, 0) (and 2 other reasons)"
    assert str(refusal.value) == words


def test_what_was_not_calibrated_to_the_end_is_not_called_worse() -> None:
    found = plan(MANY, prior=priors.Dirichlet())
    left_out = dict(found.left_out)
    assert left_out["gnmax"].startswith("not calibrated; an estimate of its accuracy is 0.")
    assert not any(word in reason for reason in left_out.values() for word in ("worse", "not right more often"))
    whole = completed(MANY)
    assert {"gnmax", "lnmax"} <= {row.slug for row in whole.rows}


@pytest.mark.slow
@pytest.mark.parametrize("work", WORKS, ids=str)
def test_the_first_of_a_plan_is_calibrated_to_the_last_digit(work: Workload) -> None:
    """A mechanism has the same parameter, cost and accuracy alone as first in a plan."""
    found = plan(work)
    alone = calibrate(work, find_mechanism(found.rows[0].slug))
    assert dict(alone.settings) == dict(found.rows[0].settings)
    assert (alone.spent.epsilon, alone.accuracy) == (found.rows[0].spent.epsilon, found.rows[0].accuracy)
    for row in completed(work).rows:
        assert 0.0 < row.spent.epsilon <= work.total.epsilon * (1 + 1e-12)
        assert row.is_released == (row.aggregator is not None)


def test_every_mechanism_has_one_slug() -> None:
    slugs = [mechanism.slug for mechanism in (*MECHANISMS, *TESTED)]
    assert len(slugs) == len(set(slugs)) == 18
    with pytest.raises(ValueError, match="the mechanism must be one of"):
        find_mechanism("ours")


def test_a_mechanism_of_ones_own_is_one_class() -> None:
    found = completed(ONE, mechanisms=(*MECHANISMS, Oracle))
    assert found.best.slug == "oracle"
    assert "Next      ask the oracle" in str(found)
    more = Workload(Voters(3, PrivacyParams("inf"), overlap=1), 41, PrivacyParams(1))
    with pytest.raises(PlanError, match="no mechanism stays within this budget: it tires"):
        plan(more, mechanisms=[Oracle])


class Almost(FixedMechanism):
    """Nearly always right, and nobody's."""

    slug, name, only_compared = "almost", "almost", "nobody can ask it"

    def propose(self) -> Proposal:
        total = Bound("hope", self.search.workload.total.epsilon, "")
        return Proposal(lambda counts: np.where(counts == counts.max(axis=1)[:, None], 0.99, 0.0), {}, total=total)


def test_a_mechanism_that_is_only_compared_is_never_the_best() -> None:
    work = Workload(Voters(8, PrivacyParams("inf"), overlap=1), 1, PrivacyParams("0.5", "1e-5"), 3)
    found = completed(work, mechanisms=[*of_slugs("optimal", "exponential"), Almost, Oracle])
    assert [row.slug for row in found.rows] == ["almost", "optimal", "exponential"]
    assert ("oracle", "it is for two classes only") in found.left_out
    assert found.best.slug == "optimal"
    assert "almost would be better, but is only compared" in found.reason
    assert "almost: nobody can ask it" in plan_text(found, everything=True)
    with pytest.raises(PlanError, match=r"these are only compared\. almost: nobody can ask it"):
        _ = plan(work, mechanisms=[Almost]).best


def test_a_plan_for_more_classes_bounds_every_release() -> None:
    """One question on three classes: the theorem's bound over all histograms, above every mechanism."""
    work = Workload(Voters(8, PrivacyParams("inf"), overlap=1), 1, PrivacyParams("0.5", "1e-5"), 3)
    found = plan(work, prior=priors.Dirichlet(), mechanisms=of_slugs("optimal", "exponential"))
    limit = found.largest_accuracy()
    assert limit is not None
    assert f"≤ {at_most(100.0 * limit, 4)}" in str(found)
    rows = [(a, b, 8 - a - b) for a in range(9) for b in range(9 - a)]
    assert 0.0 <= limit - float(np.mean(right_at_most(rows, work.total))) <= 1e-5
    assert all(row.accuracy <= limit for row in found.rows)


class Broken(Mechanism):
    """Fails like a bug of ours."""

    slug = "broken"

    def at(self, parameter: float) -> Proposal:
        raise ValueError(f"no law at {parameter}")


def test_only_a_refusal_that_is_meant_leaves_a_mechanism_out() -> None:
    with pytest.raises(ValueError, match="no law at"):
        plan(ONE, mechanisms=[*of_slugs("exponential"), Broken])


@pytest.mark.parametrize(
    ("work", "slug", "reason"),
    [
        (Workload(Voters(250, PrivacyParams("inf"), 1), 9, TOTAL, 3), "randomized-response", "partitions of 250 votes"),
        (Workload(Voters(12, PrivacyParams("inf"), 2), 9, TOTAL, 10), "randomized-response", "histograms of 12 votes"),
        (Workload(Voters(60, PrivacyParams("0.1")), 1, TOTAL, 1000), "subsampling", "at most 100"),
        (Workload(Voters(60, PrivacyParams("0.1")), 1, TOTAL, 1000), "optimal", "at most 100"),
        (Workload(Voters(3, PrivacyParams("0.1")), 10**6, PrivacyParams("1e-320", "1e-300")), "gnmax", "no parameter"),
        (Workload(Voters(3, PrivacyParams("0.1")), 10**6, PrivacyParams("1e-320", "1e-300")), "optimal", "1e-323"),
        (Workload(Voters.non_private(30, 1, sampled="0.1"), 9, TOTAL, OPEN), "gnmax", "the same for every question"),
        (Workload(Voters(1, PrivacyParams("inf"), 1), 9, TOTAL, 3), "confident-tested", "at least two voters"),
    ],
    ids=str,
)
def test_what_is_out_of_range_is_a_reason(work: Workload, slug: str, reason: str) -> None:
    with pytest.raises(PlanError, match=reason):
        plan(work, mechanisms=of_slugs(slug))


def test_a_prior_that_only_samples_leaves_the_optimum_out() -> None:
    seen = priors.RecordedVotes("seen", Votes.from_counts([[3, 1, 1], [2, 2, 1]]))
    found = plan(
        replace(WORKS[2], voters=Voters(9, PrivacyParams("inf"), 1)),
        prior=seen,
        mechanisms=of_slugs("exponential", "optimal", "rdp-optimal"),
    )
    assert "only samples" in dict(found.left_out)["optimal"]
    assert dict(found.left_out)["optimal"] == dict(found.left_out)["rdp-optimal"]


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
def test_a_budget_beyond_one_mechanisms_range_leaves_the_others(
    queries: int, total: PrivacyParams, reasons: dict[str, str]
) -> None:
    found = plan(Workload(Voters(3, PrivacyParams("inf"), overlap=1), queries, total))
    assert {row.slug for row in found.rows} & {"optimal", "rdp-optimal", "permute-and-flip"}
    left_out = dict(found.left_out)
    assert all(left_out[slug].startswith(reason) for slug, reason in reasons.items())
    assert all(len(reason) < 300 for reason in left_out.values())


def test_a_plan_prints_what_the_command_prints_and_no_arrays() -> None:
    found = planned(MANY)
    assert isinstance(found, Plan)
    assert len(str(found).splitlines()) <= 25
    assert calibrated(MANY, found.best.slug).settings == found.best.settings
    assert Measure(MANY, found.prior).levels.tolist() == found.measure.levels.tolist()
    assert Search(MANY, found.measure).to_beat == np.inf


@pytest.mark.slow
def test_of_equal_rows_the_first_spends_least() -> None:
    """Five queries of private voters need no noise: every table answers the majority, at different costs."""
    work = Workload(Voters(11, PrivacyParams("0.1", "1e-5")), 5, PrivacyParams("3", "1e-3"))
    found = plan(
        work, mechanisms=of_slugs("optimal", "permute-and-flip", "subsampling", "randomized-response"), complete=True
    )
    equal = [row.spent.epsilon for row in found.rows if row.accuracy > 1 - 1e-9]
    assert len(equal) == 4
    assert len(set(equal)) > 1
    assert equal == sorted(equal)
    assert "it spends less than" in found.reason


@pytest.mark.slow
def test_a_budget_that_floats_hardly_hold_is_planned_for() -> None:
    work = Workload(Voters(3, PrivacyParams("inf"), overlap=1), 1, PrivacyParams("1e-320", "1e-300"))
    rows = {row.slug: row for row in plan(work, mechanisms=of_slugs("lnmax-counts", "optimal")).rows}
    assert rows["lnmax-counts"].accuracy == pytest.approx(0.5, abs=1e-9)
