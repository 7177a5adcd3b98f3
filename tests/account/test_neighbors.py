"""Costs about neighbors of different kinds are never added up, whoever charged them first, and however long ago."""

from itertools import permutations
from pathlib import Path

import pytest

from darrm import PrivacyAccountant, PrivacyLedger, PrivacyParams, Voters
from darrm.account.__main__ import main
from darrm.losses.charges import Charge
from darrm.mechanisms.noisy_max import LNMax
from darrm.mechanisms.noisy_maximum import NoisyMaximum
from darrm.sampling import SCHEMES, Sampling

PLAIN, RATE = PrivacyParams("inf"), Sampling.of("0.004").record_rate
OF = {
    sampling and sampling.scheme: NoisyMaximum(LNMax(0.5), Voters(10, PLAIN, 1, sampled=sampling), 2)
    for sampling in (None, Sampling(RATE), Sampling(RATE, "fixed"))
}


@pytest.mark.parametrize(("first", "second"), list(permutations(OF, 2)))
def test_a_ledger_keeps_to_the_neighbors_of_its_first_release(
    first: str | None, second: str | None, tmp_path: Path
) -> None:
    path = tmp_path / "ledger.sqlite"
    PrivacyLedger.create(path, PrivacyParams(9, "1e-5"), kinds="planned").debit(OF[first].charge(3))
    ledger = PrivacyLedger(path)  # knows what is in the file only
    with pytest.raises(ValueError, match="not added up"):
        ledger.debit(OF[second].charge(3))
    ledger.debit(OF[first].charge(2))
    assert [entry.count for entry in ledger.entries()] == [3, 2]
    account = PrivacyAccountant()
    account.add(OF[first].charge(3))
    with pytest.raises(ValueError, match="not added up"):
        account.add(OF[second].charge(3))


def test_what_is_charged_by_hand_is_taken_as_it_is(tmp_path: Path) -> None:
    by_hand = Charge("by hand", PrivacyParams("0.1"))
    ledger = PrivacyLedger.create(tmp_path / "ledger.sqlite", PrivacyParams(9, "1e-5"), kinds="planned")
    for charge in (by_hand, OF["poisson"].charge(3), by_hand):
        ledger.debit(charge)
    assert sum(entry.count for entry in ledger.entries()) == 5


def test_what_queries_would_cost_says_for_which_neighbors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for release in OF.values():
        sampling = release.voters.sampled
        path = tmp_path / "release.json"
        release.save(path)
        assert main(["--table", str(path), "--queries", "10", "--delta", "1e-5"]) == 0
        said = capsys.readouterr().out.partition(", for neighbors that ")[2].partition(":")[0]
        assert said == ("" if sampling is None else SCHEMES[sampling.scheme])
