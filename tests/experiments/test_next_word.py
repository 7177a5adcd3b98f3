"""Texts by votes: the small models, the rivals' formulas, and what is claimed."""

from pathlib import Path

import numpy as np
import pytest

from darrm.loss.renyi import RenyiCurve
from experiments.next_word import __main__ as next_word
from experiments.next_word.models import (
    CHARACTERS,
    LEAN,
    Corpus,
    Model,
    Task,
    clip_of,
    clipped_differences,
    clipped_mean,
    corpus,
    decoded,
    encoded,
    independent,
    sampling,
    softmax,
    votes_by,
    voting,
)

pytestmark = pytest.mark.slow  # all tests share a corpus, which takes seconds

FOLDER = Path(__file__).parents[2] / "docs" / "reproduction" / "next_word"
V = len(CHARACTERS)


@pytest.fixture(scope="module")
def small() -> Corpus:
    return corpus(pieces=20, share=0.05)


def test_a_model_counts_and_leans_on_the_shorter_one() -> None:
    model = Model(encoded("abacab"), 2)
    law = model.law(encoded("a"))
    alone = {"a": 3, "b": 2, "c": 1}
    for character in "abcd":
        single = (alone.get(character, 0) + LEAN / V) / (6 + LEAN)
        after_a = {"b": 2, "c": 1}.get(character, 0)
        assert law[CHARACTERS.index(character)] == pytest.approx((after_a + LEAN * single) / (3 + LEAN))
    assert law.sum() == pytest.approx(1.0)


def test_teachers_correct_the_public_model(small: Corpus) -> None:
    context = encoded("Return the ").tolist()
    laws, public = small.laws(context), small.public.law(context)
    assert laws.shape == (20, V)
    assert laws.sum(axis=1) == pytest.approx(np.ones(20))
    for piece, law in zip(small.pieces, laws, strict=True):
        text = decoded(piece)
        followed = [text[at + 4] for at in range(len(text) - 4) if text[at : at + 4] == "the "]
        counts = np.array([followed.count(character) for character in CHARACTERS])
        assert law == pytest.approx((counts + LEAN * public) / (len(followed) + LEAN))
    assert decoded(encoded("a~é\n")) == "a~~\n"


@pytest.mark.parametrize("temperature", [0.7, 1.0])
def test_a_rival_s_word_costs_what_it_is_charged(temperature: float) -> None:
    """Every pair of neighbors that change one of five models, by random laws and by the farthest ones."""
    rng, clip, models = np.random.default_rng(0), 1.5, 5
    public = rng.dirichlet(np.ones(4))
    rho, worst = 2.0 * (clip / (models * temperature)) ** 2, 0.0
    for trial in range(300):
        laws = rng.dirichlet(np.full(4, 0.3), size=models)
        other = laws.copy()
        other[0] = np.roll(laws[0], 1) if trial % 2 else rng.dirichlet(np.full(4, 0.02))
        clipped = [(clipped_mean(each, clip), clipped_differences(each, public, clip)) for each in (laws, other)]
        for logits in zip(*clipped, strict=True):
            p, q = (softmax(each, temperature) for each in logits)
            for order in (1.5, 4.0):
                cost = np.log(np.sum(p**order * q ** (1.0 - order))) / (order - 1.0)
                worst = max(worst, float(cost) / (rho * order))
    assert 0.2 < worst <= 1.0


def test_the_clip_is_the_largest_that_the_budget_admits() -> None:
    clip = clip_of(4.0, 1e-5, 300, 100, 0.8)

    def spent_with(bound: float) -> float:
        return RenyiCurve.of(lambda orders: orders * 300 * 2.0 * (bound / 80.0) ** 2).best(1e-5).epsilon

    assert spent_with(clip) <= 4.0 < spent_with(1.001 * clip)


def test_votes_have_the_models_laws(small: Corpus) -> None:
    rng = np.random.default_rng(0)
    laws = np.tile([0.5, 0.3, 0.2], (4000, 1))
    assert np.bincount(independent(laws, rng), minlength=3) / 4000 == pytest.approx([0.5, 0.3, 0.2], abs=0.03)
    assert len(set(votes_by("coordinated", laws, 1, 0, rng=rng))) == 1
    assert set(votes_by("best", laws, 1, 0, rng=rng)) == {0}
    task = Task(small, 20, 1e4, 1e-5, 1)
    for interactive, answered in ((True, 2), (False, 10)):
        draw = voting(task, "best", interactive=interactive, rng=rng)
        told = [draw(encoded("Return the ").tolist(), step) for step in range(20)]
        assert sum(ours for _, ours in told) <= answered
        likeliest = np.bincount(small.laws(encoded("Return the ")).argmax(axis=1)).argmax()
        assert {word for word, ours in told if ours} <= {likeliest}
    public, _ = sampling(task, "public", 1.0, rng=rng)(encoded("Return the ").tolist(), 0)
    assert 0 <= public < V


def test_a_quick_run_fills_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(next_word, "EPSILONS", (8.0,))
    monkeypatch.setattr(next_word, "QUICK", next_word.Size(6, 2, 5, 5, 2, 0.05))
    assert next_word.main(["--all", "--quick", "--output", str(tmp_path)]) == 0
    assert "## Texts at ε = 8" in (tmp_path / "next_word.md").read_text(encoding="utf-8")
    assert (tmp_path / "next_word" / "bits.png").stat().st_size > 10_000
