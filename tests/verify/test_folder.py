"""A whole folder in one audit: what each file is, claims between files, receipts and heads, what is not judged."""

import json
import os
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from darrm import NoiseFunction, PrivacyLedger, PrivacyParams, Problem, Voters, Votes, certify, release_debited
from darrm.commands.command_line import run
from darrm.noisy_max.mechanisms import GNMax
from darrm.noisy_max.noisy_maximum import NoisyMaximum
from darrm.noisy_max.selection import ExponentialMechanism
from darrm.table.release import Release
from darrm.verify.__main__ import main
from darrm.verify.audit import Audit, audit, text_report
from darrm.verify.verdicts import ASSUMED, FALSE, PROVED, RECEIPT, TOTAL, UNKNOWN

PLAIN = Voters(20, PrivacyParams("inf"), overlap=1)
NOISY = NoisyMaximum(GNMax(12.0), PLAIN, 3)
TABLE = certify(Problem(Voters(3, PrivacyParams("0.2")), PrivacyParams("0.3")), NoiseFunction(3, [0.3, 0.5]))


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("honest") / "folder"
    (folder / "deeper").mkdir(parents=True)
    NOISY.save(folder / "plan.json")
    NoisyMaximum(GNMax(6.0), PLAIN, 3).save(folder / "never used.json")
    TABLE.save(folder / "deeper" / "table.json")
    rng = np.random.default_rng(2)
    noisy = PrivacyLedger.create(folder / "noisy.sqlite", PrivacyParams(9, "1e-5"), population="ward 7")
    votes = Votes.of_counts(rng.multinomial(20, [0.5, 0.3, 0.2], 15))
    release_debited(NOISY, votes, ledger=noisy, output=folder / "classes.csv")
    two = PrivacyLedger.create(folder / "deeper" / "two.sqlite", PrivacyParams(9, "1e-5"), population="ward 7")
    for name in ("first.npy", "second.csv"):
        release_debited(Release(TABLE), rng.integers(0, 2, (8, 3)), ledger=two, output=folder / "deeper" / name)
        if name == "first.npy":
            shutil.copy(two.path, folder / "deeper" / ".older")
    (folder / "notes.txt").write_text("ask Ada about the shards\n")
    (folder / "plan report.json").write_text(json.dumps({"format": "darrm plan report", "version": 1}))
    (folder / ".hidden").write_text("nobody's business")
    return folder


@pytest.fixture
def folder(honest: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(honest, tmp_path / "folder"))


def claims(found: Audit, verdict: str) -> list[str]:
    return [f"{Path(one.file).name}: {one.claim}" for one in found.verdicts if one.verdict == verdict]


@pytest.mark.slow
def test_an_honest_folder_is_whole(folder: Path) -> None:
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    found = audit([folder])
    assert claims(found, FALSE) == []
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
    roles = {Path(file.path).name: file.role for file in found.files}
    assert (roles["plan.json"], roles["two.sqlite"], roles["first.npy"]) == ("release", "ledger", "labels")
    assert roles["second.csv.receipt.json"] == "receipt"
    assert ".hidden" not in roles
    left = [Path(one.file).name for one in found.verdicts if one.claim == "it is not judged"]
    assert left == ["notes.txt", "plan report.json"]
    assert "never used.json: it has answered queries that were paid for" in claims(found, UNKNOWN)
    paid = [one for one in found.verdicts if one.claim == "they are the labels of a debit"]
    assert [one.verdict for one in paid] == [PROVED] * 3
    together = [one for one in found.verdicts if "one population, 'ward 7'" in one.claim]
    assert len(together) == 1
    totals = [one for one in found.verdicts if one.about == TOTAL and "within the budget" in one.claim]
    assert [one.verdict for one in totals] == [PROVED] * 2


def test_files_that_are_named_twice_are_judged_once(folder: Path) -> None:
    whole = audit([folder])
    again = audit([folder, folder / "plan.json", folder / "deeper"])
    assert [str(one) for one in again.verdicts] == [str(one) for one in whole.verdicts]


def older(path: Path) -> None:
    """Put a copy from before the second release in its place."""
    shutil.copy(path.with_name(".older"), path)


def test_a_lost_end_is_false_with_a_head_and_cannot_be_known_without(folder: Path, tmp_path: Path) -> None:
    ledger = folder / "deeper" / "two.sqlite"
    head = PrivacyLedger(ledger).digest().to_text()
    (tmp_path / "head.txt").write_text(f"{head}\n")
    older(ledger)
    for path in folder.rglob("*.receipt.json"):
        path.unlink()
    (folder / "deeper" / "second.csv").unlink()
    alone = audit([folder / "deeper"])
    assert claims(alone, FALSE) == []
    assert any("not truncated or rewritten" in claim for claim in claims(alone, ASSUMED))
    for shown in (head, str(tmp_path / "head.txt")):
        assert run(partial(main, [str(folder / "deeper"), "--head", shown, "--quiet"])) == 1
    assert run(lambda: main([str(folder / "noisy.sqlite"), "--head", head, "--quiet"])) == 1  # of another ledger


def test_heads_in_model_cards_and_notes_are_shown(folder: Path) -> None:
    ledger, card = folder / "deeper" / "two.sqlite", folder / "card.md"
    card.write_text(f"# A model\n\n- Paid by the ledger whose digest was then `{PrivacyLedger(ledger).digest()}`.\n")
    assert claims(audit([folder]), FALSE) == []
    older(ledger)
    assert any("up to entry 2" in claim for claim in claims(audit([ledger, card]), FALSE))
    card.write_text(card.read_text().replace(":2:", ":3:", 1))
    assert any(claim.startswith("card.md: it holds the digest") for claim in claims(audit([folder]), FALSE))


def test_a_receipt_without_its_ledger_cannot_be_known(folder: Path) -> None:
    (folder / "noisy.sqlite").unlink()
    found = audit([folder / "classes.csv", folder / "classes.csv.receipt.json", folder / "plan.json"])
    assert claims(found, FALSE) == []
    receipts = [
        one.verdict for one in found.verdicts if one.about == RECEIPT or "are those that were paid for" in one.claim
    ]
    assert receipts == [UNKNOWN, PROVED]


def test_no_name_of_a_file_writes_a_line_of_its_own(tmp_path: Path) -> None:
    forged = "proved independently  one label is (0, 0)-DP (by decree)"
    for number in (1, 2):
        NOISY.save(tmp_path / f"{number}\n{forged}\n.json")
    lines = text_report(audit([tmp_path]), every=True).splitlines()
    assert sum(forged in line for line in lines) >= 2
    assert forged not in lines


def test_what_is_no_file_of_a_folder_is_listed(folder: Path) -> None:
    (folder / "elsewhere").symlink_to(folder.parent)
    (folder / "gone.json").symlink_to(folder / "nothing")
    os.mkfifo(folder / "pipe.json")
    left = [Path(one.file).name for one in audit([folder]).verdicts if one.claim == "it is not judged"]
    assert {"elsewhere", "gone.json", "pipe.json"} <= set(left)


@pytest.mark.parametrize("labels", [[[1], [2]], [1, None, 2]])
def test_columns_that_are_no_labels_are_named(labels: list[Any], tmp_path: Path) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(arrow.table({"label": labels}), tmp_path / "odd.parquet")
    with pytest.raises(ValueError, match=r"odd\.parquet"):
        audit([tmp_path / "odd.parquet"])


def test_costs_below_what_floats_hold_are_not_called_false(tmp_path: Path) -> None:
    NoisyMaximum(ExponentialMechanism(1e-200), PLAIN, 3).save(tmp_path / "tiny.json")
    assert claims(audit([tmp_path / "tiny.json"]), FALSE) == []
