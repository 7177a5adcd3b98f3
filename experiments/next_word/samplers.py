"""Ways to draw the next word from the laws of many models, each within the same (ε, δ) for a text, and without noise.

Neighbors: one model's law becomes any other. The rivals clip; what a step costs is (½)(Δ/τ)² in zero-concentrated
differential privacy [Amin et al. 2024, InvisibleInk 2025], with Δ how far one model moves a mean of clipped numbers:
2C/K, as both clip to [−C, C]. (Their own neighbors remove a model, whose numbers are then 0: C/K. Here all are compared
at the same neighbors.) All divide the budget over the text's words evenly, with the tight conversion.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from darrm.loss.renyi import RenyiCurve
from darrm.numerics import Array
from darrm.numerics.bisection import bisect_safe
from darrm.pate import ConfidentGNMax, InteractiveGNMax
from darrm.privacy import PrivacyParams
from darrm.prompts import coordinated
from darrm.prompts.generate import Checked, noise_for
from darrm.votes import Votes
from experiments.next_word.models import Corpus

Draw = Callable[[Sequence[int], int], tuple[int, bool]]  # words so far and the step → the next one, and whose it is
WITH_PUBLIC, ALONE = (0.1, 0.4), (0.5, 0.5)  # the share of words answered at most, and of models that must agree
_LEAST = 1e-30  # of a probability whose logarithm is taken


def clip_of(epsilon: float, delta: float, words: int, models: int, temperature: float) -> float:
    """Find C, the largest number to which logits may be clipped: ρ = 2(C/(Kτ))² a word."""

    def fits(rho: float) -> bool:
        return RenyiCurve.of(lambda orders: rho * orders).best(delta).epsilon <= epsilon

    rho = bisect_safe(fits, inside=0.0, outside=epsilon + 1.0, steps=60) / words
    return float(models * temperature * np.sqrt(rho / 2.0))


def clipped_mean(laws: Array, clip: float) -> Array:
    """Average logits, the largest of each model moved to C, clipped to [−C, C] [Amin et al. 2024]: (K, V) → (V,)."""
    logits = np.log(np.maximum(laws, _LEAST))
    return np.asarray(np.clip(logits - logits.max(axis=1, keepdims=True) + clip, -clip, clip).mean(axis=0))


def clipped_differences(laws: Array, public: Array, clip: float) -> Array:
    """Average the logits' differences to the public ones, clipped to [−C, C] [InvisibleInk 2025]: (K, V) → (V,)."""
    ours = np.log(np.maximum(public, _LEAST))
    return np.asarray(ours + np.clip(np.log(np.maximum(laws, _LEAST)) - ours, -clip, clip).mean(axis=0))


def softmax(logits: Array, temperature: float) -> Array:
    """Return the law ∝ e^{logits/τ}."""
    weights = np.exp((logits - logits.max()) / temperature)
    return np.asarray(weights / weights.sum())


@dataclass(frozen=True)
class Task:
    """A text of so many words at a budget."""

    corpus: Corpus
    words: int
    epsilon: float
    delta: float
    seed: int

    @property
    def models(self) -> int:
        """K."""
        return len(self.corpus.pieces)


def independent(laws: Array, rng: np.random.Generator) -> NDArray[np.int64]:
    """Let every model draw for itself: (K, V) → (K,)."""
    return np.asarray((laws.cumsum(axis=1) < rng.random((len(laws), 1)) * laws.sum(axis=1)[:, None]).sum(axis=1))


def voting(task: Task, kind: str, *, interactive: bool, rng: np.random.Generator) -> Draw:
    """Write by votes: ``coordinated``, ``independent``, or each model's ``best`` word, with the noise of the budget."""
    answers, asked = WITH_PUBLIC if interactive else ALONE
    most = max(1, round(answers * task.words))
    total = PrivacyParams(task.epsilon, task.delta)
    by_check, by_answer = noise_for(total, words=task.words, answers=most)
    threshold = asked * task.models
    mechanism: Checked = ConfidentGNMax(threshold, by_check, by_answer)
    if interactive:
        mechanism = InteractiveGNMax(threshold, by_check, by_answer, 0.5)
    left = most

    def draw(context: Sequence[int], step: int) -> tuple[int, bool]:
        nonlocal left
        laws, public = task.corpus.laws(context), task.corpus.public.law(context)
        ours = int(coordinated([public], task.seed, step=step)[0])
        votes = votes_by(kind, laws, task.seed, step, rng=rng)
        counts = np.bincount(votes, minlength=laws.shape[1])
        seen = counts.copy()
        seen[ours] -= task.models if interactive else 0
        if not left or not mechanism.check.release(np.array([seen.max()]), rng)[0]:
            return ours, False
        left -= 1
        return int(mechanism.answer.release(Votes.of_counts([counts]), rng=rng)[0]), True

    return draw


def votes_by(kind: str, laws: Array, seed: int, step: int, *, rng: np.random.Generator) -> NDArray[np.int64]:
    """Let every model vote: (K, V) → (K,)."""
    if kind == "coordinated":
        return coordinated(laws, seed, step=step)
    return independent(laws, rng) if kind == "independent" else np.asarray(laws.argmax(axis=1))


def sampling(task: Task, kind: str, temperature: float, *, rng: np.random.Generator) -> Draw:
    """Write by the rivals ``amin`` and ``ink``, or without privacy: ``mean`` of the models, ``public`` model."""
    clip = clip_of(task.epsilon, task.delta, task.words, task.models, temperature)

    def draw(context: Sequence[int], _: int) -> tuple[int, bool]:
        public = task.corpus.public.law(context)
        law = public
        if kind != "public":
            laws = task.corpus.laws(context)
            if kind == "mean":
                law = laws.mean(axis=0)
            else:
                logits = clipped_mean(laws, clip) if kind == "amin" else clipped_differences(laws, public, clip)
                law = softmax(logits, temperature)
        return int(rng.choice(law.size, p=law / law.sum())), kind != "public"

    return draw
