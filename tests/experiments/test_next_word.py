"""Texts by votes: the small models, and the rivals' formulas."""

import numpy as np
import pytest

from darrm.loss.renyi import RenyiCurve
from experiments.next_word import (
    CHARACTERS,
    LEAN,
    WAYS,
    Corpus,
    Model,
    Task,
    Voting,
    clip_of,
    clipped_differences,
    clipped_mean,
    decoded,
    encoded,
    softmax,
    votes_by,
)

pytestmark = pytest.mark.slow  # all tests share a corpus, which takes seconds
V = len(CHARACTERS)
CONTEXT = encoded("Return the ").tolist()


@pytest.fixture(scope="module")
def small() -> Corpus:
    return Corpus.read(pieces=20, share=0.05)


def test_a_model_counts_and_leans_on_the_shorter_one() -> None:
    law = Model(encoded("abacab"), 2).law(encoded("a"))
    for character, alone, after_a in (("a", 3, 0), ("b", 2, 2), ("c", 1, 1), ("d", 0, 0)):
        single = (alone + LEAN / V) / (6 + LEAN)
        assert law[CHARACTERS.index(character)] == pytest.approx((after_a + LEAN * single) / (3 + LEAN))
    assert law.sum() == pytest.approx(1.0)


def test_teachers_correct_the_public_model(small: Corpus) -> None:
    laws, public = small.laws(CONTEXT), small.public.law(CONTEXT)
    assert laws.shape == (20, V)
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
    clip = clip_of(4.0, 300, 100, 0.8)

    def spent_with(bound: float) -> float:
        return RenyiCurve.of(lambda orders: orders * 300 * 2.0 * (bound / 80.0) ** 2).best(1e-5).epsilon

    assert spent_with(clip) <= 4.0 < spent_with(1.001 * clip)


def test_votes_have_the_models_laws(small: Corpus) -> None:
    rng = np.random.default_rng(0)
    laws = np.tile([0.5, 0.3, 0.2], (4000, 1))
    drawn = votes_by("independent", laws, 1, 0, rng=rng)
    assert np.bincount(drawn, minlength=3) / 4000 == pytest.approx([0.5, 0.3, 0.2], abs=0.03)
    assert len(set(votes_by("coordinated", laws, 1, 0, rng=rng))) == 1
    context = encoded("Return th").tolist()
    for beside, most in ((True, 2), (False, 10)):
        writer = Voting(Task(small, 20, 1e4, 1, rng), "best", beside=beside)
        answers = [writer.next(context, step) for step in range(20)]
        assert sum(is_private for _, is_private in answers) <= most
        assert {word for word, is_private in answers if is_private} <= {CHARACTERS.index("e")}
    assert answers[0] == (CHARACTERS.index("e"), True)  # alone, all agree at this budget
    for way in WAYS.values():
        assert 0 <= way(Task(small, 20, 2.0, 1, rng)).next(CONTEXT, 0)[0] < V
