"""Costs about neighbors of different kinds are never added up, whoever charged them first, and however long ago."""

from fractions import Fraction
from itertools import permutations
from pathlib import Path

import pytest

from darrm import PrivacyAccountant, PrivacyLedger, PrivacyParams, Voters
from darrm.account.__main__ import main
from darrm.loss.privacy_cost import PrivacyCost
from darrm.noisy_max.mechanisms import GNMax, LNMax
from darrm.noisy_max.noisy_maximum import NoisyMaximum
from darrm.subsampling import SCHEMES, Subsampling

PLAIN, RATE = PrivacyParams("inf"), Subsampling.of("0.004").record_rate
OF = {
    sampling and sampling.scheme: NoisyMaximum(LNMax(0.5), Voters(10, PLAIN, 1, sampled=sampling), 2)
    for sampling in (None, Subsampling(RATE), Subsampling(RATE, "fixed"))
}


@pytest.mark.parametrize(("first", "second"), list(permutations(OF, 2)))
def test_a_ledger_keeps_to_the_neighbors_of_its_first_release(
    first: str | None, second: str | None, tmp_path: Path
) -> None:
    path = tmp_path / "ledger.sqlite"
    PrivacyLedger.create(path, PrivacyParams(9, "1e-5"), composition="planned").debit(OF[first].privacy_cost(3))
    ledger = PrivacyLedger(path)  # knows what is in the file only
    with pytest.raises(ValueError, match="do not add up"):
        ledger.debit(OF[second].privacy_cost(3))
    ledger.debit(OF[first].privacy_cost(2))
    assert [entry.count for entry in ledger.entries()] == [3, 2]
    account = PrivacyAccountant()
    account.add(OF[first].privacy_cost(3))
    with pytest.raises(ValueError, match="do not add up"):
        account.add(OF[second].privacy_cost(3))


@pytest.mark.parametrize("kinds", ["planned", "renyi", "adaptive"])
@pytest.mark.parametrize("other", [GNMax(40.0).privacy_cost(), PrivacyCost("by hand", PrivacyParams("0.1"))], ids=str)
def test_what_says_nothing_of_draws_is_about_changed_answers(kinds: str, other: PrivacyCost, tmp_path: Path) -> None:
    budget = PrivacyParams(9, "1e-5")
    for name, first, second in (("a", other, OF["poisson"].privacy_cost()), ("b", OF["poisson"].privacy_cost(), other)):
        ledger = PrivacyLedger.create(tmp_path / name, budget, composition=kinds)
        ledger.debit(first)
        with pytest.raises(ValueError, match="do not add up"):
            ledger.debit(second)
        with pytest.raises(ValueError, match="do not add up"):
            ledger.queries_that_fit(second)
        assert ledger.spent.queries == 1
    both = PrivacyLedger.create(tmp_path / "both", budget, composition=kinds)
    for charge in (OF[None].privacy_cost(), other):
        both.debit(charge)
    assert both.spent.queries == 2


def test_a_cost_by_hand_says_that_it_is_about_a_person_more_or_less(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    PrivacyLedger.create(path, PrivacyParams(9, "1e-5"), composition="planned").debit(OF["poisson"].privacy_cost(3))
    by_hand = PrivacyCost("a training", PrivacyParams("0.1"), sampling=Subsampling.of(1))
    PrivacyLedger(path).debit(by_hand)
    assert PrivacyLedger(path).spent.queries == 4
    with pytest.raises(ValueError, match="do not add up"):
        PrivacyLedger(path).debit(
            PrivacyCost("a training", PrivacyParams("0.1"), sampling=Subsampling(Fraction(1), "fixed"))
        )


def test_what_queries_would_cost_says_for_which_neighbors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for release in OF.values():
        sampling = release.voters.sampled
        path = tmp_path / "release.json"
        release.save(path)
        assert main(["--table", str(path), "--queries", "10", "--delta", "1e-5"]) == 0
        said = capsys.readouterr().out.partition(", for neighbors that ")[2].partition(":")[0]
        assert said == ("" if sampling is None else SCHEMES[sampling.scheme])
