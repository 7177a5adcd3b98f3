"""The card of a fitted estimator states its claims as data, and the audit judges them against its ledger."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from darrm.verify.audit import audit
from darrm.verify.claims import read_card
from darrm.verify.verdicts import CARD, CONSISTENT, FALSE, UNKNOWN

pytest.importorskip("sklearn")
from sklearn.dummy import DummyClassifier

from darrm.estimators import PrivateVotingClassifier


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Return a ledger and the card of an estimator that answered four of ten queries."""
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
    return [verdict.verdict for verdict in audit(paths).verdicts if verdict.about == CARD]


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
