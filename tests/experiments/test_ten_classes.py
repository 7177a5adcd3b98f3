from itertools import combinations, combinations_with_replacement, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

from darrm.plurality.plurality_law import PluralityLaw
from darrm.privacy import PrivacyParams
from darrm.problem import Problem, Voters
from darrm.table.table import certify
from darrm.training.calibration import privacy_of
from darrm.training.recipes import PrivateSGD, recipe_from
from experiments import ten_classes
from experiments.composition_tables import K
from experiments.pages import read_json
from experiments.teachers import TeacherVotes
from experiments.ten_classes import (
    BARE,
    BEST_OF_PRIVATE,
    CLASSES,
    DELTA,
    DRAWN,
    ONE_TEACHER,
    SETUPS,
    SUBSAMPLING,
    TRAININGS,
    EdgeMap,
    of_sample,
    plurality,
    rows,
    shares_right,
    sums,
)

DATA = Path(__file__).parents[2] / "docs" / "reproduction" / "ten_classes"
PUBLISHED = ("mnist", "fashion-mnist")


@pytest.mark.parametrize("m", [1, 2, 3, 4])
def test_subsampling_is_the_plurality_of_every_choice_of_voters(m: int) -> None:
    counts = np.array([[3, 2, 1, 0], [2, 2, 1, 1], [6, 0, 0, 0]])
    for row, found in zip(counts, of_sample(plurality, m)(counts), strict=True):
        votes = np.repeat(np.arange(4), row)
        expected = np.zeros(4)
        for chosen in combinations(range(6), m):
            times = np.bincount(votes[list(chosen)], minlength=4)
            expected += (times == times.max()) / np.sum(times == times.max())
        assert found == pytest.approx(expected / expected.sum(), abs=1e-14)


def test_shares_right_ask_the_law_about_every_question() -> None:
    rng = np.random.default_rng(0)
    votes = rng.integers(0, 10, size=(2, 40, K)).astype(np.int8)
    votes[:, :, :5] = 7
    truth = rng.integers(0, 10, size=40)

    def law(counts: np.ndarray) -> np.ndarray:
        return np.asarray(counts**2 / np.sum(counts**2, axis=1, keepdims=True))

    for training, found in zip(votes, shares_right(votes, truth, law), strict=True):
        counts = np.stack([np.bincount(row, minlength=10) for row in training])
        assert found == pytest.approx(law(counts)[np.arange(40), truth].mean(), rel=1e-12)


def drawn_laws(name: str) -> dict[int, tuple[dict[str, Any], PluralityLaw]]:
    """The published laws for drawn private voters, by m, each with its numbers."""
    facts = {
        row["m"]: row["facts"] for row in read_json(DATA / f"{name}.json")["rows"] if row["name"] == BEST_OF_PRIVATE
    }
    return {m: (fact, PluralityLaw.from_json(fact["voters"], CLASSES, fact["weights"])) for m, fact in facts.items()}


@pytest.mark.slow
@pytest.mark.parametrize("name", PUBLISHED)
def test_the_published_shares_are_those_of_the_kept_votes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = {SETUPS[name].target(m): law for m, (_, law) in drawn_laws(name).items()}
    monkeypatch.setattr(ten_classes, "best_for_private", lambda target, _: kept[target])  # each takes a minute
    drawn = {entry["m"]: entry for entry in read_json(DATA / f"{name}-training.json")["drawn"]}
    votes, published = TeacherVotes.load(DATA / f"{name}-votes.npz"), read_json(DATA / f"{name}.json")
    assert votes.private.shape == votes.plain.shape == (TRAININGS, published["questions"], K)
    counted = list(rows(votes, SETUPS[name], drawn))
    assert [(row["m"], row["name"]) for row in counted] == [(row["m"], row["name"]) for row in published["rows"]]
    for ours, theirs in zip(counted, published["rows"], strict=True):
        for kind in ("private", "plain"):
            assert (ours[kind] is None) == (theirs[kind] is None)
            assert ours[kind] is None or ours[kind]["mean"] == pytest.approx(theirs[kind]["mean"], abs=1e-6)
    assert list(sums(SETUPS[name])) == [pytest.approx(row) for row in published["sums"]]
    shares = {(row["m"], row["name"]): row["private"]["mean"] for row in counted}
    right = votes.private == votes.truth[None, :, None]
    assert shares[None, ONE_TEACHER] == shares[1, SUBSAMPLING] == pytest.approx(right.mean(), abs=1e-8)
    surely = np.mean(right.sum(axis=2) > K / 2)
    assert surely < shares[None, BARE] < np.mean(right.any(axis=2))


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("m", DRAWN)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (n > 0)) for n, name in enumerate(PUBLISHED)]
)
def test_laws_for_drawn_voters_keep_their_budget_at_all_corners_of_three_classes(name: str, m: int) -> None:
    fact, law = drawn_laws(name)[m]
    target, setup = SETUPS[name].target(m), SETUPS[name]
    assert 1.0 - (1.0 - fact["delta"]) ** fact["voters"] <= target.delta < 1.0 - (1.0 - 1.01 * fact["delta"]) ** 5
    assert setup.each.epsilon <= fact["epsilon"] < target.epsilon
    high = np.exp(fact["epsilon"]) / (1.0 + np.exp(fact["epsilon"]))
    labels = list(combinations_with_replacement(range(3), 5))
    answers = law.probabilities([np.bincount(votes, minlength=CLASSES) for votes in labels])
    answer_to: dict[tuple[int, ...], Any] = dict(zip(labels, answers, strict=True))
    arcs = list(product(range(3), repeat=2))  # a voter says the first with probability high, else the second
    worst = -1.0
    for corner in combinations_with_replacement(arcs, 5):
        movers = [arc for arc in corner if arc[0] != arc[1]]
        label = np.zeros((2, CLASSES))
        for kept in product((0, 1), repeat=len(movers)):
            said = [arc[not keep] for arc, keep in zip(movers, kept, strict=True)]
            votes = tuple(sorted(said + [first for first, second in corner if first == second]))
            chances = [high**some * (1.0 - high) ** (len(movers) - some) for some in (sum(kept), len(kept) - sum(kept))]
            label += np.outer(chances, answer_to[votes])
        worst = max(worst, float(np.max(label[0] - np.exp(target.epsilon) * label[1])))
    assert -1e-3 < worst <= 1e-12


@pytest.mark.slow
@pytest.mark.parametrize("m", DRAWN)
@pytest.mark.parametrize("name", PUBLISHED)
def test_laws_for_drawn_voters_are_proved_again(name: str, m: int) -> None:
    fact, law = drawn_laws(name)[m]
    voters = Voters(fact["voters"], PrivacyParams(str(fact["epsilon"])))
    table = certify(Problem(voters, PrivacyParams(SETUPS[name].target(m).exact_epsilon), CLASSES), law)
    assert np.array_equal(table.plurality.weights, law.weights)


@pytest.mark.parametrize("name", PUBLISHED)
def test_every_teacher_keeps_its_promise(name: str) -> None:
    training, each = read_json(DATA / f"{name}-training.json"), SETUPS[name].each
    recipe = recipe_from(training["private_training"])
    assert isinstance(recipe, PrivateSGD)
    spent = privacy_of(recipe, float(DELTA))
    assert {"epsilon": spent.epsilon, "delta": spent.delta} == training["spent"]
    assert 0.99 * each.epsilon < spent.epsilon <= each.epsilon


def test_an_edge_map_looks_at_one_image_alone() -> None:
    images = torch.rand(5, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    together, alone = EdgeMap()(images), [EdgeMap()(image[None])[0] for image in images]
    assert torch.allclose(together, torch.stack(alone), atol=1e-6)
    assert torch.allclose(together.norm(dim=1), torch.ones(5))
    assert not torch.allclose(together, EdgeMap()(images.flip(3)), atol=1e-2)


@pytest.mark.slow
def test_selecting_training_and_counting_on_digits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")

    monkeypatch.setattr(ten_classes, "TRIED_EPSILONS", ("4",))
    monkeypatch.setattr(ten_classes, "TRIED_RATES", (4.0,))
    monkeypatch.setattr(ten_classes, "DRAWN", {2: 3})
    where, folder = ("--output", str(tmp_path), "--models", str(tmp_path / "models")), tmp_path / "ten_classes"
    assert ten_classes.main(["--select", "digits", "--train", "digits", "--trainings", "2", *where]) == 0
    first, (tried,) = (read_json(folder / f"digits{kind}.json") for kind in ("", "-selection"))
    shares = {(row["m"], row["name"]): row["private"]["mean"] for row in first["rows"]}
    assert 0.2 < shares[None, ONE_TEACHER] < shares[None, BARE]
    assert tried["accuracy"] == pytest.approx(shares[None, ONE_TEACHER], abs=0.1)
    assert ten_classes.main(list(where)) == 0
    assert read_json(folder / "digits.json") == first
    assert "## digits" in (tmp_path / "ten_classes.md").read_text(encoding="utf-8")
