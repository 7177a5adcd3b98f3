"""The auditor's bounds for private models: the accountant's, closed forms, and courses of answers, all of them."""

import math
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from darrm import NoiseFunction, PrivacyLedger, PrivacyParams, Problem, Table, Voters, certify
from darrm.account.accountant import PrivacyAccountant
from darrm.loss.privacy_cost import PrivacyCost
from darrm.majority import baselines
from darrm.table.release import charge_of as cost_model
from darrm.verify import totals
from darrm.verify.audit import audit
from darrm.verify.totals import Priced, smallest_total
from darrm.verify.verdicts import FALSE
from tests.verify.support import charge_of, cost_of

PLAIN = PrivacyParams("inf")
ONE = Voters(5, PrivacyParams("1", "1e-6"), overlap=1, models=True)
TWO = Voters(7, PrivacyParams("0.4", "1e-5"), overlap=2, models=True)
ALL = Voters(3, PrivacyParams("0.7"), models=True)
UNLIKE = Voters.of(
    [PrivacyParams("0.2", "1e-6")] * 3 + [PrivacyParams("0.6", "1e-5"), PrivacyParams("1")], 2, models=True
)
TARGET = PrivacyParams("1.5", "1e-3")


def table_for(voters: Voters) -> Table:
    half = [0.1, 0.15, 0.25, 0.4][: voters.num_upper_levels]
    return certify(Problem(voters, TARGET), NoiseFunction(voters.K, half))


def priced(table: Table, queries: int) -> list[Priced]:
    return [(charge_of(cost_model(table, queries)), cost_of(table))]


ACCOUNTS = {
    "one shard": (ONE, 20, "1e-4"),
    "few answers": (ONE, 2, "1e-5"),
    "no delta": (ALL, 3, "0"),
    "two shards": (TWO, 30, "1e-3"),
    "all models": (ALL, 4, "1e-6"),
    "models that differ": (UNLIKE, 12, "1e-4"),
}
BOUNDS = {
    "private models": "the composition of the models",
    "plain voters": "the costs for voters without a guarantee",
    "both ends": "the joint bound of models and release",
    "subsampling": "subsampling of the models",
}


def proved(account: list[Priced], delta: Fraction, enough: Fraction) -> dict[str, Fraction]:
    models = account[0][0].models
    assert models is not None
    found = totals._of_models(models, account, delta, enough)
    return {how: epsilon for epsilon, how in found if epsilon is not None}


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("name", ACCOUNTS)
def test_each_bound_is_the_accountants(name: str) -> None:
    voters, queries, delta = ACCOUNTS[name]
    table = table_for(voters)
    account = priced(table, queries)
    spent = PrivacyAccountant(charges=[cost_model(table, queries)]).spent(float(delta))
    for bound in spent.bounds:
        enough = Fraction(bound.epsilon)
        # losses for voters without a guarantee, added in whole numbers, are some thousandth above those in floats
        room = Fraction(1, 10**9) if bound.name == "private models" else Fraction(2, 1000)
        found = proved(account, Fraction(delta), enough)[BOUNDS[bound.name]]
        assert found <= enough * (1 + room)
        # models that differ count as what they are here, as the most public of them for the accountant
        if voters.per_voter is None:
            lower = proved(account, Fraction(delta), enough * Fraction(9, 10)).get(BOUNDS[bound.name])
            assert lower is None or lower >= enough * (1 - Fraction(1, 10**6))
    least = smallest_total(account, Fraction(delta), enough=spent.epsilon)
    assert least is not None
    assert not least.stated
    assert least.epsilon <= spent.epsilon * 1.002


@pytest.mark.parametrize(("each", "release"), [("1", "1"), ("2", "0.3"), ("0.1", "4")])
def test_the_joint_bound_of_pure_privacy_has_a_closed_form(each: str, release: str) -> None:
    voters = Voters(5, PrivacyParams(each), overlap=1, models=True)
    plain = PrivacyCost("a release", guarantee=PrivacyParams(release), voters=Voters(5, PLAIN, overlap=1))
    charge = PrivacyCost("of models", guarantee=PrivacyParams(9), voters=voters, for_plain_voters=(plain,), count=2)
    account: list[Priced] = [(charge_of(charge), None)]
    x = Fraction(2.0 * math.atanh(math.tanh(float(each) / 2.0) * math.tanh(float(release))))
    joint = BOUNDS["both ends"]
    assert proved(account, Fraction(0), x)[joint] == x * totals._TRIED[0]
    assert proved(account, Fraction(0), x * (1 - Fraction(1, 10**8)))[joint] > x


def labels_of(bits: tuple[int, ...], course: tuple[tuple[int, ...], ...], gamma: NoiseFunction) -> Iterator[float]:
    """Yield Pr[labels] for all labels; model k answers question q with its bit, turned where course[q][k] is 1."""
    ones = [sum(bit ^ turned for bit, turned in zip(bits, turns, strict=True)) for turns in course]
    shares = [0.5 * (1.0 + gamma.signed[count]) for count in ones]
    for labels in product((0, 1), repeat=len(course)):
        yield math.prod(share if label else 1.0 - share for share, label in zip(shares, labels, strict=True))


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    ("reached", "delta"),
    [
        *((1, "0.01"), (2, "0.1"), (3, "0.01")),
        *(pytest.param(*pair, marks=pytest.mark.slow) for pair in ((1, "0.1"), (2, "0.01"), (3, "0.1"))),
    ],
)
def test_no_course_of_answers_costs_more(reached: int, delta: str) -> None:
    epsilon, each = 1.0, PrivacyParams("1")
    voters = Voters(3, each, overlap=reached, models=True)
    table = certify(Problem(voters, PrivacyParams("2.9")), NoiseFunction(3, [0.4, 0.9]))
    found = smallest_total(priced(table, 3), Fraction(delta), enough=0.0)
    assert found is not None
    likely, worst = 1.0 / (1.0 + math.exp(-epsilon)), 0.0
    for course in product(product((0, 1), repeat=3), repeat=3):
        laws = []
        for truth in (1, 0):
            own = [(truth if k < reached else 1) for k in range(3)]
            chances = [
                (bits, math.prod(likely if bit == own[k] else 1.0 - likely for k, bit in enumerate(bits)))
                for bits in product((0, 1), repeat=3)
            ]
            laws.append(sum(chance * np.array(list(labels_of(bits, course, table.gamma))) for bits, chance in chances))
        worst = max(worst, float(np.maximum(0.0, laws[0] - math.exp(found.epsilon) * laws[1]).sum()))
    assert worst <= float(delta)
    if reached == 3:
        assert found.epsilon < 3.0  # less than the models alone, to which it is nothing


def test_few_voters_are_examined_or_not() -> None:
    voters = Voters(11, PrivacyParams("0.3", "1e-6"), models=True)
    table = certify(Problem.from_allowance(voters, 3), baselines.subsampling(Problem.from_allowance(voters, 3)))
    account, delta, name = priced(table, 3), Fraction(1, 10**4), BOUNDS["subsampling"]
    spent = {one.name: one.epsilon for one in PrivacyAccountant(charges=[cost_model(table, 3)]).spent(1e-4).bounds}
    found = proved(account, delta, Fraction(0))[name]
    assert float(found) == pytest.approx(spent["subsampling"], rel=1e-6)
    fewer = replace(account[0][0], sample=(1, 0.0))  # a lie: it looks at three
    assert name not in proved([(fewer, account[0][1])], delta, Fraction(0))
    assert proved([(fewer, None)], delta, Fraction(0))[name] < found  # where no table is among the files


def test_models_of_a_boundless_epsilon_stop_no_audit(tmp_path: Path) -> None:
    voters = Voters(5, PrivacyParams("1e110"), overlap=2, models=True)
    plain = PrivacyCost("a release", guarantee=PrivacyParams("1e100"), voters=Voters(5, PLAIN, overlap=2))
    charge = PrivacyCost(
        "of models", guarantee=PrivacyParams("1e100"), voters=voters, for_plain_voters=(plain,), count=2
    )
    assert smallest_total([(charge_of(charge), None)], Fraction(0), enough=1e100) is None
    ledger = PrivacyLedger.create(tmp_path / "l.sqlite", PrivacyParams("1e111", "1e-5"))
    ledger.debit(PrivacyCost("a release", guarantee=PrivacyParams("1e100", "1e-9"), count=2))
    assert [one.claim for one in audit([tmp_path]).verdicts if one.verdict == FALSE] == []


@pytest.mark.slow
def test_a_cheap_pair_of_a_table_is_not_believed() -> None:
    table = table_for(ONE)
    charge, exact = priced(table, 20)[0]
    cheap = replace(charge.plain[0][1], guarantee=(Fraction(1, 1000), Fraction(0)))
    lying = replace(charge, plain=((charge.plain[0][0], cheap),))
    delta = Fraction(1, 10**4)
    honest = smallest_total([(charge, exact)], delta, enough=0.0)
    judged, believed = (smallest_total([(lying, by)], delta, enough=0.0) for by in (exact, None))
    assert honest is not None
    assert judged is not None
    assert believed is not None
    assert believed.epsilon < 0.05 < honest.epsilon * 0.999 < judged.epsilon
    assert (believed.stated, judged.stated) == (True, False)
