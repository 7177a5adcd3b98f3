"""Advice: what applies, what needs no noise, how models are counted, and that every number has a source."""

from __future__ import annotations

import numpy as np
import pytest

from darrm.account.bounds import models_bound
from darrm.advise.advice import NO_NOISE, OURS, advise
from darrm.advise.rivals import rivals
from darrm.gamma import priors
from darrm.plan import plan
from darrm.privacy import PrivacyParams
from darrm.problem import Voters, Workload

MODEL = PrivacyParams("0.0892", "1e-4")
TOTAL = PrivacyParams(1, "1e-4")


def test_private_models_on_disjoint_shards_need_no_noise() -> None:
    found = advise(Workload(Voters(11, MODEL, overlap=1, models=True), 100, TOTAL))
    best = found.options[0]
    assert best.name == NO_NOISE
    cap = models_bound(Voters(1, MODEL, models=True), 1e-4)
    assert cap is not None
    assert best.epsilon == cap.epsilon == 0.0892
    assert "No noise is needed" in found.remarks[0]


@pytest.mark.parametrize("overlap", [2, None])
def test_models_that_share_people_cost_what_a_person_reaches(overlap: int | None) -> None:
    total = PrivacyParams("0.5", "1e-2")
    found = advise(Workload(Voters(7, MODEL, overlap=overlap, models=True), 100, total))
    cap = models_bound(Voters(overlap or 7, MODEL, models=True), 1e-2)
    assert cap is not None
    fits = cap.epsilon <= 0.5
    assert (found.options[0].name == NO_NOISE) is fits
    if fits:
        assert found.options[0].epsilon == cap.epsilon
    else:
        assert f"{cap.epsilon:.6g} together" in dict(found.absent)[NO_NOISE]


def test_models_beyond_their_cap_are_counted_as_plain_voters() -> None:
    found = advise(Workload(Voters(5, MODEL, models=True), 5, PrivacyParams("0.05", "1e-4")))
    assert not found.counted_as.voters.each.is_private
    assert any("not proved for them" in remark for remark in found.remarks)
    assert any("nothing beats randomised response" in remark for remark in found.remarks)
    constant = next(option for option in found.options if option.name == "randomised response")
    assert found.options[0].accuracy(found.prior) >= constant.accuracy(found.prior) - 1e-9
    # one query is one query, for models too
    assert advise(Workload(Voters(3, MODEL, models=True), 1, TOTAL)).counted_as.voters.each == MODEL


def test_fresh_voters_on_disjoint_shards_need_no_noise_either() -> None:
    found = advise(Workload(Voters(9, PrivacyParams("0.1"), overlap=1), 10, PrivacyParams(2, "1e-5")))
    assert found.options[0].name == OURS
    assert np.all(found.options[0].truth == 1.0)
    assert "parallel composition" in found.remarks[0]
    assert "--models" in found.remarks[1]


def test_the_ranking_is_of_the_librarys_own_numbers() -> None:
    work, prior = Workload(Voters(21, PrivacyParams("inf"), overlap=1), 50, PrivacyParams(2, "1e-5")), priors.Point(0.7)
    found = advise(work, prior=prior)
    accuracies = [option.accuracy(prior) for option in found.options]
    assert accuracies == sorted(accuracies, reverse=True)
    expected = {option.name: option.truth.tolist() for option in rivals(work, prior).options}
    expected[OURS] = plan(work, prior=prior).option.truth.tolist()
    assert {option.name: option.truth.tolist() for option in found.options} == expected
    assert not any("No noise" in remark for remark in found.remarks)
