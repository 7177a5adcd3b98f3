"""The auditor's bounds for private models: the accountant's, closed forms, and courses of answers, all of them."""

import ast
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
from darrm.laws import baselines
from darrm.losses.charges import Charge, Sample
from darrm.proof.charge import charge_of
from darrm.verify import models
from darrm.verify.answering import Priced
from darrm.verify.audit import audit
from darrm.verify.table import exact_of
from darrm.verify.totals import bounds_of_models, smallest
from darrm.verify.verdicts import FALSE

PLAIN = PrivacyParams("inf")
ONE = Voters(5, PrivacyParams("1", "1e-6"), overlap=1, models=True)
TWO = Voters(7, PrivacyParams("0.4", "1e-5"), overlap=2, models=True)
ALL = Voters(3, PrivacyParams("0.7"), models=True)
UNLIKE = Voters.of(
    [PrivacyParams("0.2", "1e-6")] * 3 + [PrivacyParams("0.6", "1e-5"), PrivacyParams("1")], 2, models=True
)
TARGET = PrivacyParams("1.5", "1e-3")


def table_for(voters: Voters) -> Table:
    half = [0.1, 0.15, 0.25, 0.4][: voters.half_size]
    return certify(Problem(voters, TARGET), NoiseFunction(voters.K, half))


def priced(table: Table, queries: int) -> list[Priced]:
    return [(charge_of(table, queries), exact_of(table))]


ACCOUNTS = {
    "one shard": (ONE, 20, "1e-4"),
    "few answers": (ONE, 2, "1e-5"),
    "no delta": (ALL, 3, "0"),
    "two shards": (TWO, 30, "1e-3"),
    "all models": (ALL, 4, "1e-6"),
    "models that differ": (UNLIKE, 12, "1e-4"),
}


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("name", ACCOUNTS)
def test_each_bound_is_the_accountants(name: str) -> None:
    voters, queries, delta = ACCOUNTS[name]
    account = priced(table_for(voters), queries)
    spent = PrivacyAccountant(charges=[account[0][0]]).spent(float(delta))
    own = bounds_of_models(account, Fraction(delta))
    assert own is not None
    assert {bound.name for bound in spent.bounds} >= {models.CAP, models.PLAIN, models.BOTH_ENDS}
    for bound in spent.bounds:
        enough = Fraction(bound.epsilon)
        # losses of plain voters, added in whole numbers, are some thousandth above those in floats
        room = Fraction(1, 10**9) if bound.name == models.CAP else Fraction(2, 1000)
        found = own.proved(bound.name, enough)
        assert found is not None
        assert found <= enough * (1 + room)
        lower = own.proved(bound.name, enough * Fraction(9, 10))
        # models that differ count as what they are here, as the most public of them for the accountant
        if voters.own is None:
            assert lower is None or lower >= enough * (1 - Fraction(1, 10**6))
    least = smallest(account, Fraction(delta), enough=spent.epsilon)
    assert least is not None
    assert not least.given
    assert least.epsilon <= spent.epsilon * 1.002


@pytest.mark.parametrize(("each", "release"), [("1", "1"), ("2", "0.3"), ("0.1", "4")])
def test_both_ends_of_pure_privacy_have_a_closed_form(each: str, release: str) -> None:
    voters = Voters(5, PrivacyParams(each), overlap=1, models=True)
    plain = Charge("a release", guarantee=PrivacyParams(release), voters=Voters(5, PLAIN, overlap=1))
    charge = Charge("of models", guarantee=PrivacyParams(9), voters=voters, for_plain_voters=(plain,), count=2)
    own = bounds_of_models([(charge, None)], Fraction(0))
    assert own is not None
    x = Fraction(2.0 * math.atanh(math.tanh(float(each) / 2.0) * math.tanh(float(release))))
    assert own.proved(models.BOTH_ENDS, x) == x * models._TRIED[0]
    above = own.proved(models.BOTH_ENDS, x * (1 - Fraction(1, 10**8)))
    assert above is not None
    assert above > x


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
    found = smallest(priced(table, 3), Fraction(delta), enough=0.0)
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


def test_few_voters_are_looked_at_or_not() -> None:
    voters = Voters(11, PrivacyParams("0.3", "1e-6"), models=True)
    table = certify(Problem.from_allowance(voters, 3), baselines.subsampling(Problem.from_allowance(voters, 3)))
    account = priced(table, 3)
    own = bounds_of_models(account, Fraction(1, 10**4))
    spent = {bound.name: bound.epsilon for bound in PrivacyAccountant(charges=[account[0][0]]).spent(1e-4).bounds}
    assert own is not None
    found = own.proved(models.SUBSAMPLING, Fraction(0))
    assert found is not None
    assert float(found) == pytest.approx(spent[models.SUBSAMPLING], rel=1e-6)
    fewer = replace(account[0][0], sample=Sample(1, 0.0))  # a lie: it looks at three
    liar = bounds_of_models([(fewer, account[0][1])], Fraction(1, 10**4))
    assert liar is not None
    assert liar.proved(models.SUBSAMPLING, Fraction(0)) is None
    believed = bounds_of_models([(fewer, None)], Fraction(1, 10**4))  # where no table is among the files
    assert believed is not None
    assert (believed.proved(models.SUBSAMPLING, Fraction(0)) or 9) < found
    assert bounds_of_models([*account, (replace(account[0][0], voters=TWO), None)], Fraction(0)) is None


def test_models_of_a_boundless_epsilon_stop_no_audit(tmp_path: Path) -> None:
    voters = Voters(5, PrivacyParams("1e110"), overlap=2, models=True)
    plain = Charge("a release", guarantee=PrivacyParams("1e100"), voters=Voters(5, PLAIN, overlap=2))
    charge = Charge("of models", guarantee=PrivacyParams("1e100"), voters=voters, for_plain_voters=(plain,), count=2)
    assert smallest([(charge, None)], Fraction(0), enough=1e100) is None
    ledger = PrivacyLedger.create(tmp_path / "l.sqlite", PrivacyParams("1e111", "1e-5"))
    ledger.debit(Charge("a release", guarantee=PrivacyParams("1e100", "1e-9"), count=2))
    assert [one.claim for one in audit([tmp_path]).verdicts if one.verdict == FALSE] == []


@pytest.mark.slow
def test_a_cheap_pair_of_a_table_is_not_believed() -> None:
    table = table_for(ONE)
    charge, exact = priced(table, 20)[0]
    cheap = replace(charge.for_plain_voters[0], guarantee=PrivacyParams("0.001"))
    lying = replace(charge, for_plain_voters=(cheap,))
    delta = Fraction(1, 10**4)
    honest = smallest([(charge, exact)], delta, enough=0.0)
    judged, believed = (smallest([(lying, by)], delta, enough=0.0) for by in (exact, None))
    assert honest is not None
    assert judged is not None
    assert believed is not None
    assert believed.epsilon < 0.05 < honest.epsilon * 0.999 < judged.epsilon
    assert (believed.given, judged.given) == (True, False)


def test_it_shares_nothing_with_the_accountant() -> None:
    source = Path(models.__file__).read_text(encoding="utf-8")
    names = {node.module or "" for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ImportFrom)}
    own = {name for name in names if name.startswith("darrm") and not name.startswith("darrm.verify")}
    assert own == {"darrm.losses.charges", "darrm.problem"}
