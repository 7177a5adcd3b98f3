"""Small models of characters, which replace language models and words.

The *private* text is the documentation strings of Python's standard library, dealt to teachers in pieces; the *public*
one its language reference (`pydoc_data.topics`). Both come with Python, under its license. A model of n characters
counts what follows each context, and leans on that of n − 1 where it has seen little:

    p_n(c | h) = (count(h c) + θ·p_{n−1}(c | h')) / (count(h) + θ).

A teacher is the public model, corrected by the counts after three characters in the teacher's piece, as examples
correct a language model.

The next word is drawn from the laws of many models, each way within the same (ε, δ) for a text, and without noise.
Neighbors: one model's law becomes any other. The rivals clip to [−C, C]; a step costs (½)(Δ/τ)² in zero-concentrated
differential privacy [Amin et al. 2024, InvisibleInk 2025], where one model moves a mean of K clipped numbers by
Δ = 2C/K. (Their own neighbors remove a model: C/K.) All divide the budget over the text's words evenly.
"""

import ast
import sysconfig
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

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

LEAN, PIECES, SEED = 4.0, 100, 20_24
PUBLIC_ORDER, OWN_ORDER, JUDGE_ORDER = 4, 5, 5
HELD_OUT = 0.15  # of the private text, for the judge
CHARACTERS = "\n" + "".join(map(chr, range(32, 127)))  # the last one, ~, also replaces all others

Codes = NDArray[np.int64]
Text = Sequence[int] | Codes


def encoded(text: str) -> Codes:
    """Write a text as numbers of characters."""
    places = {character: place for place, character in enumerate(CHARACTERS)}
    return np.array([places.get(character, len(CHARACTERS) - 1) for character in text], dtype=np.int64)


def decoded(codes: Text) -> str:
    """Write numbers of characters as a text."""
    return "".join(CHARACTERS[code] for code in codes)


def private_strings() -> list[str]:
    """Collect the documentation strings of the standard library's modules, classes and functions."""
    found = []
    for path in sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        kinds = (ast.Module, ast.ClassDef, ast.FunctionDef)
        found += [text for node in ast.walk(tree) if isinstance(node, kinds) and (text := ast.get_docstring(node))]
    return found


def public_text() -> str:
    """Return the language reference that comes with Python."""
    from pydoc_data.topics import topics  # noqa: PLC0415 (half a megabyte)

    return "\n\n".join(topics[name] for name in sorted(topics))


class Counts:
    """What follows each context of n − 1 characters, in one text or in many at once."""

    def __init__(self, texts: Sequence[Codes], order: int) -> None:
        keys = [_keys(codes, order, number) for number, codes in enumerate(texts)]
        self.order = order
        rows, self.times = np.unique(np.concatenate(keys), axis=0, return_counts=True)
        self.contexts, self.who, self.what = rows.T

    def after(self, context: Text) -> tuple[Codes, Codes, Codes]:
        """Find the texts' numbers, the characters, and how often they followed."""
        key = 0
        for code in context[len(context) - self.order + 1 :] if self.order > 1 else ():
            key = key * len(CHARACTERS) + code
        low, high = np.searchsorted(self.contexts, [key, key + 1])
        return self.who[low:high], self.what[low:high], self.times[low:high]


def _keys(codes: Codes, order: int, number: int) -> Codes:
    """List (context, text, next character) for every place of a text."""
    places = codes.size - order + 1
    context = np.zeros(places, dtype=np.int64)
    for offset in range(order - 1):
        context = context * len(CHARACTERS) + codes[offset : offset + places]
    return np.stack([context, np.full(places, number), codes[order - 1 :]], axis=1)


class Model:
    """A model of one text by contexts of up to ``order`` − 1 characters."""

    def __init__(self, codes: Codes, order: int) -> None:
        self._levels = [Counts([codes], each) for each in range(1, order + 1)]

    def law(self, context: Text) -> Array:
        """Compute the law of the next character: (V,)."""
        law = np.full(len(CHARACTERS), 1.0 / len(CHARACTERS))
        for level in self._levels:
            if level.order <= len(context) + 1:
                _, what, times = level.after(context)
                law = LEAN * law
                law[what] += times
                law /= LEAN + times.sum()
        return law


@dataclass(frozen=True, eq=False)
class Corpus:
    """The public model, the teachers' pieces, and the judge's text."""

    public: Model
    pieces: tuple[Codes, ...]
    judged: Codes

    @cached_property
    def counts(self) -> Counts:
        """What follows three characters in each piece."""
        return Counts(self.pieces, OWN_ORDER)

    @cached_property
    def judge(self) -> Model:
        """A model of text that no teacher has."""
        return Model(self.judged, JUDGE_ORDER)

    def laws(self, context: Text) -> Array:
        """Compute the teachers' laws of the next character: (K, V)."""
        laws = np.tile(LEAN * self.public.law(context), (len(self.pieces), 1))
        who, what, times = self.counts.after(context)
        laws[who, what] += times
        return np.asarray(laws / (LEAN + np.bincount(who, weights=times, minlength=len(laws)))[:, None])

    def bits(self, prompt: Text, codes: Text) -> float:
        """Return how many bits a character of a text costs the judge."""
        whole = [*prompt, *codes]
        return float(
            -np.mean([np.log2(self.judge.law(whole[:at])[whole[at]]) for at in range(len(prompt), len(whole))])
        )


def corpus(*, pieces: int = PIECES, share: float = 1.0) -> Corpus:
    """Read both texts, and deal the private one: strings in an order of chance, ``share`` of them."""
    strings = private_strings()
    order = np.random.default_rng(SEED).permutation(len(strings))[: int(share * len(strings))]
    held = int(HELD_OUT * len(order))
    dealt = [encoded("\n\n".join(strings[i] for i in part)) for part in np.array_split(order[held:], pieces)]
    judged = encoded("\n\n".join(strings[i] for i in order[:held]))
    return Corpus(Model(encoded(public_text()), PUBLIC_ORDER), tuple(dealt), judged)


Draw = Callable[[Sequence[int], int], tuple[int, bool]]  # words so far and the step → the next one, and whose it is
WITH_PUBLIC, ALONE = (0.1, 0.4), (0.5, 0.5)  # the share of words answered at most, and of models that must agree
_LEAST = 1e-30  # of a probability whose logarithm is taken


def clip_of(epsilon: float, delta: float, words: int, models: int, temperature: float) -> float:
    """Find the largest bound C on logits within the budget: ρ = 2(C/(Kτ))² a word."""

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
    """A text of ``words`` words at a budget."""

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
