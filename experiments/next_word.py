"""Write texts by the votes of small language models, and by rivals at equal budgets; measure the votes' agreement.

    python -m experiments.next_word --all      # minutes; no download: the texts come with Python

Writes OUTPUT/next_word/texts.json with a picture, and OUTPUT/next_word.md.

**Models.** Models of characters replace language models and words. The *private* text is the documentation strings of
Python's standard library, in one piece for each teacher; the *public* one is its language reference
(`pydoc_data.topics`). Both come with Python, under its license. A model of n characters counts what follows each
context, and leans on that of n − 1 where it has seen little:

    p_n(c | h) = (count(h c) + θ·p_{n−1}(c | h')) / (count(h) + θ).

A teacher is the public model, corrected by the counts after four characters in the teacher's piece, as examples correct
a language model.

**Budgets.** Every way has the same (ε, δ) for a text, divided evenly over its words; neighbors replace one model's law.
The rivals clip to [−C, C]; a step costs (½)(Δ/τ)² in zero-concentrated differential privacy [Amin et al. 2024,
InvisibleInk 2025], where one model moves a mean of K clipped numbers by Δ = 2C/K. (Their own neighbors remove a model:
C/K.)
"""

import ast
import sys
import sysconfig
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from darrm.commands.command_line import run
from darrm.loss.renyi import RenyiCurve
from darrm.numerics import Array
from darrm.numerics.bisection import bisect_safe
from darrm.pate import ConfidentGNMax, InteractiveGNMax, analyze
from darrm.pate.analysis import PrivateFigureWarning
from darrm.privacy import PrivacyParams
from darrm.prompts import coordinated
from darrm.prompts.generate import Checked, noise_for
from darrm.util.figures import BLACK, saved_figure
from darrm.votes import Votes
from experiments import pages
from experiments.pages import Row

NAME, FIGURE = "next_word", "texts"
DELTA, EPSILONS = 1e-5, (2.0, 4.0, 8.0)
PROMPT = "Return the "
LEAN, PIECES, SEED = 4.0, 100, 20_24  # θ, teachers
PUBLIC_ORDER, OWN_ORDER, JUDGE_ORDER = 4, 5, 5
HELD_OUT = 0.15  # of the private text, for the judge
CHARACTERS = "\n" + "".join(map(chr, range(32, 127)))  # the last one, ~, also replaces all others
CHECKED = ConfidentGNMax(50, 15.0, 6.0)
WITH_PUBLIC, ALONE = (0.1, 0.4), (0.5, 0.5)  # the share of words answered at most, and of models that must agree
_LEAST = 1e-30  # of a probability whose logarithm is taken

Codes = NDArray[np.int64]
Text = Sequence[int] | Codes


def encoded(text: str) -> Codes:
    """Write a text as numbers of characters."""
    places = {character: place for place, character in enumerate(CHARACTERS)}
    return np.array([places.get(character, len(CHARACTERS) - 1) for character in text], dtype=np.int64)


def decoded(codes: Text) -> str:
    """Write numbers of characters as a text."""
    return "".join(CHARACTERS[code] for code in codes)


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

    @classmethod
    def read(cls, *, pieces: int = PIECES, share: float = 1.0) -> "Corpus":
        """Read both texts; ``share`` of the private strings, in random order, make the pieces."""
        from pydoc_data.topics import topics  # noqa: PLC0415 (half a megabyte)

        paths = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))
        nodes = [node for path in paths for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))]
        documented = (node for node in nodes if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef))
        strings = list(filter(None, map(ast.get_docstring, documented)))
        order = np.random.default_rng(SEED).permutation(len(strings))[: int(share * len(strings))]
        held = int(HELD_OUT * len(order))
        parts = [order[:held], *np.array_split(order[held:], pieces)]
        judged, *own = (encoded("\n\n".join(strings[i] for i in part)) for part in parts)
        public = encoded("\n\n".join(topics[name] for name in sorted(topics)))
        return cls(Model(public, PUBLIC_ORDER), tuple(own), judged)

    @cached_property
    def counts(self) -> Counts:
        """What follows four characters in each piece."""
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
        chances = [self.judge.law(whole[:at])[whole[at]] for at in range(len(prompt), len(whole))]
        return float(-np.mean(np.log2(chances)))


def votes_by(kind: str, laws: Array, seed: int, step: int, *, rng: np.random.Generator) -> NDArray[np.int64]:
    """Let every model vote, ``coordinated``, ``independent`` or for its ``best`` character: (K, V) → (K,)."""
    if kind == "coordinated":
        return coordinated(laws, seed, step=step)
    if kind == "best":
        return np.asarray(laws.argmax(axis=1))
    return np.asarray((laws.cumsum(axis=1) < rng.random((len(laws), 1)) * laws.sum(axis=1)[:, None]).sum(axis=1))


@dataclass(frozen=True)
class Task:
    """A text of ``words`` characters at ε."""

    corpus: Corpus
    words: int
    epsilon: float
    number: int  # of the text, the seed of its coins
    rng: np.random.Generator

    @property
    def models(self) -> int:
        """K."""
        return len(self.corpus.pieces)


class Writer(Protocol):
    """A way to write."""

    def next(self, context: Sequence[int], step: int) -> tuple[int, bool]:
        """Return the next character, and whether the private models chose it."""


class Voting:
    """Write by votes of a kind of `votes_by`, alone or ``beside`` the public model, with the noise of the budget."""

    def __init__(self, task: Task, kind: str, *, beside: bool) -> None:
        self.task, self.kind, self.beside = task, kind, beside
        answers, asked = WITH_PUBLIC if beside else ALONE
        self.left = max(1, round(answers * task.words))
        total = PrivacyParams(task.epsilon, DELTA)
        noises = noise_for(total, words=task.words, answers=self.left)
        threshold = asked * task.models
        self.mechanism: Checked = ConfidentGNMax(threshold, *noises)
        if beside:
            self.mechanism = InteractiveGNMax(threshold, *noises, 0.5)

    def next(self, context: Sequence[int], step: int) -> tuple[int, bool]:
        """Answer with the plurality where the check passes, else with the public model's character."""
        task = self.task
        laws, public = task.corpus.laws(context), task.corpus.public.law(context)
        own = int(coordinated([public], task.number, step=step)[0])
        counts = np.bincount(votes_by(self.kind, laws, task.number, step, rng=task.rng), minlength=laws.shape[1])
        seen = counts.copy()
        seen[own] -= task.models if self.beside else 0
        if not self.left or not self.mechanism.check.release(np.array([seen.max()]), task.rng)[0]:
            return own, False
        self.left -= 1
        return int(self.mechanism.answer.release(Votes.of_counts([counts]), rng=task.rng)[0]), True


class Sampling:
    """Write by the rivals ``amin`` and ``ink``, or without privacy: ``mean`` of the models, ``public`` model."""

    def __init__(self, task: Task, kind: str, temperature: float) -> None:
        self.task, self.kind, self.temperature = task, kind, temperature
        self.clip = clip_of(task.epsilon, task.words, task.models, temperature)

    def next(self, context: Sequence[int], step: int) -> tuple[int, bool]:
        """Draw from the law."""
        del step
        law = self.law(context)
        return int(self.task.rng.choice(law.size, p=law / law.sum())), self.kind != "public"

    def law(self, context: Sequence[int]) -> Array:
        """Compute the law of the next character: (V,)."""
        public = self.task.corpus.public.law(context)
        if self.kind == "public":
            return public
        laws = self.task.corpus.laws(context)
        if self.kind == "mean":
            return np.asarray(laws.mean(axis=0))
        is_amin = self.kind == "amin"
        logits = clipped_mean(laws, self.clip) if is_amin else clipped_differences(laws, public, self.clip)
        return softmax(logits, self.temperature)


def clip_of(epsilon: float, words: int, models: int, temperature: float) -> float:
    """Find the largest bound C on logits within the budget: ρ = 2(C/(Kτ))² a character."""

    def fits(rho: float) -> bool:
        return RenyiCurve.of(lambda orders: rho * orders).best(DELTA).epsilon <= epsilon

    rho = bisect_safe(fits, inside=0.0, outside=epsilon + 1.0, steps=60) / words
    return float(models * temperature * np.sqrt(rho / 2.0))


def clipped_mean(laws: Array, clip: float) -> Array:
    """Average logits, the largest of each model moved to C, clipped to [−C, C] [Amin et al. 2024]: (K, V) → (V,)."""
    logits = np.log(np.maximum(laws, _LEAST))
    return np.asarray(np.clip(logits - logits.max(axis=1, keepdims=True) + clip, -clip, clip).mean(axis=0))


def clipped_differences(laws: Array, public: Array, clip: float) -> Array:
    """Average the logits' differences to the public ones, clipped to [−C, C] [InvisibleInk 2025]: (K, V) → (V,)."""
    own = np.log(np.maximum(public, _LEAST))
    return np.asarray(own + np.clip(np.log(np.maximum(laws, _LEAST)) - own, -clip, clip).mean(axis=0))


def softmax(logits: Array, temperature: float) -> Array:
    """Return the law ∝ e^{logits/τ}."""
    weights = np.exp((logits - logits.max()) / temperature)
    return np.asarray(weights / weights.sum())


OURS = "coordinated votes, beside the public model"
RIVALS = ("clipped differences to public logits, τ = 1", "clipped mean logits, τ = 1")
BOUNDS = ("public model alone", "mean of the models, not private")
WAYS: dict[str, Callable[[Task], Writer]] = {
    OURS: partial(Voting, kind="coordinated", beside=True),
    "coordinated votes": partial(Voting, kind="coordinated", beside=False),
    "independent votes": partial(Voting, kind="independent", beside=False),
    "votes for the best word": partial(Voting, kind="best", beside=False),
    "votes for the best word, beside the public model": partial(Voting, kind="best", beside=True),
    RIVALS[0]: partial(Sampling, kind="ink", temperature=1.0),
    "clipped differences to public logits, τ = 0.8": partial(Sampling, kind="ink", temperature=0.8),
    RIVALS[1]: partial(Sampling, kind="amin", temperature=1.0),
    "clipped mean logits, τ = 0.5": partial(Sampling, kind="amin", temperature=0.5),
    BOUNDS[0]: partial(Sampling, kind="public", temperature=1.0),
    BOUNDS[1]: partial(Sampling, kind="mean", temperature=1.0),
}


@dataclass(frozen=True)
class Size:
    """How much is measured."""

    contexts: int = 600  # each voted on once
    repeated: int = 60  # of them, each voted on with ``coins`` coins
    coins: int = 200
    words: int = 300  # of a text
    texts: int = 12
    share: float = 1.0  # of the private text


QUICK = Size(contexts=30, repeated=4, coins=20, words=20, texts=2, share=0.2)


def agreement(corpus: Corpus, size: Size, kind: str) -> Row:
    """Measure the share of answers, their cost on these votes, and the distance of their law to the models' mean."""
    rng = np.random.default_rng(SEED)
    places = rng.integers(20, corpus.judged.size, size=size.contexts)
    laws = [corpus.laws(corpus.judged[place - 20 : place].tolist()) for place in places]
    votes = [votes_by(kind, law, SEED, step, rng=rng) for step, law in enumerate(laws)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivateFigureWarning)  # the text comes with Python: nothing is private
        counted = Votes.of_labels(np.stack(votes), classes=len(CHARACTERS))
        analysis = analyze(counted, CHECKED, DELTA, check="data-dependent")
    far, weight = np.zeros(2), 0
    for number, law in enumerate(laws[: size.repeated]):
        first = size.contexts + number * size.coins
        drawn = [votes_by(kind, law, SEED, step, rng=rng) for step in range(first, first + size.coins)]
        labels = CHECKED.release(Votes.of_labels(np.stack(drawn), classes=len(CHARACTERS)), rng=rng)
        answers, mean = labels[labels >= 0], law.mean(axis=0)
        if answers.size:
            sample = rng.choice(mean.size, size=answers.size, p=mean / mean.sum())
            shares = [np.bincount(seen, minlength=mean.size) / seen.size for seen in (answers, sample)]
            far += [answers.size * 0.5 * np.abs(share - mean).sum() for share in shares]
            weight += answers.size
    return {
        "kind": kind,
        "answered": analysis.expected_answered / size.contexts,
        "epsilon": analysis.epsilon,
        "a_token": analysis.epsilon / analysis.expected_answered,
        "distance": far[0] / weight,
        "floor": far[1] / weight,
    }


def written(corpus: Corpus, size: Size, way: str, epsilon: float) -> Row:
    """Write some texts in one way, and let the judge read them."""
    prompt = encoded(PROMPT).tolist()
    bits, answered, distinct, samples = [], 0, 0, []
    for number in range(size.texts):
        writer = WAYS[way](Task(corpus, size.words, epsilon, number, np.random.default_rng((SEED, number))))
        whole = list(prompt)
        for step in range(size.words):
            character, is_private = writer.next(whole, step)
            whole.append(character)
            answered += is_private
        new = whole[len(prompt) :]
        bits.append(corpus.bits(prompt, new))
        distinct += len({tuple(new[place : place + 4]) for place in range(len(new) - 3)})
        samples.append(decoded(new[:70]).replace("\n", " ").replace("|", "¦").replace("`", "'"))
    return {
        "way": way,
        "epsilon": epsilon,
        "bits": float(np.mean(bits)),
        "error": float(np.std(bits, ddof=1) / np.sqrt(size.texts)),
        "answered": answered / (size.texts * size.words),
        "distinct": distinct / (size.texts * (size.words - 3)),
        "sample": samples[0],
    }


def measure(_: str, *, quick: bool) -> Row:
    """Measure the agreement of votes, and the texts."""
    size = QUICK if quick else Size()
    corpus = Corpus.read(share=size.share)
    return {
        "agreement": [agreement(corpus, size, kind) for kind in ("coordinated", "independent")],
        "rows": [written(corpus, size, way, epsilon) for epsilon in EPSILONS for way in WAYS],
        "models": len(corpus.pieces),
        "characters": sum(piece.size for piece in corpus.pieces),
        "words": size.words,
        "texts": size.texts,
        "contexts": size.contexts,
        "coins": size.coins,
    }


def page(results: dict[str, Row]) -> str:
    """Fill the page."""
    result = results[FIGURE]
    together, alone = result["agreement"]
    bits = {(row["way"], row["epsilon"]): row["bits"] for row in result["rows"]}
    gains = {rival: {e: bits[rival, e] - bits[OURS, e] for e in EPSILONS} for rival in RIVALS}
    facts = {
        "twice": together["answered"] >= 2.0 * alone["answered"],
        "half": together["a_token"] <= 0.5 * alone["a_token"],
        "near": together["distance"] <= together["floor"] + 0.02,
        "rivals": [
            {
                "name": rival,
                "likelier": min(gain.values()) > 0.0,
                "gains": "; ".join(f"ε = {epsilon:g}: {bits:+.2f} bits" for epsilon, bits in gain.items()),
            }
            for rival, gain in gains.items()
        ],
        "ours": OURS,
        "delta": f"{DELTA:g}",
        "budgets": [
            {"epsilon": epsilon, "rows": [row for row in result["rows"] if row["epsilon"] == epsilon]}
            for epsilon in EPSILONS
        ],
        "prompt": PROMPT.strip(),
        "checked": CHECKED,
    }
    return pages.filled(NAME, facts, result)


def draw(folder: Path, results: dict[str, Row]) -> None:
    """Draw the bits of a character over ε, a line for each way."""
    with saved_figure(folder / "bits.png", width=8.0, height=4.2, dpi=110) as figure:
        panel = figure.subplots()
        for place, way in enumerate(WAYS):
            rows = [row for row in results[FIGURE]["rows"] if row["way"] == way]
            look = {"color": BLACK, "linestyle": ":"} if way in BOUNDS else {"color": f"C{place}", "marker": "o"}
            panel.plot([row["epsilon"] for row in rows], [row["bits"] for row in rows], label=way, **look)
        panel.set_xscale("log")
        panel.set_xticks(EPSILONS, [f"{epsilon:g}" for epsilon in EPSILONS])
        panel.minorticks_off()
        panel.grid(alpha=0.3)
        panel.set_xlabel("ε of a text")
        panel.set_ylabel("bits a character, to the judge")
        figure.legend(loc="outside right upper", fontsize=8)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and write the page."""
    parser = pages.command_line(NAME, __doc__, quick="short texts by small models", figures=[FIGURE])
    options = parser.parse_args(arguments)
    return pages.run_figures(options, NAME, (FIGURE,), partial(measure, quick=options.quick), page, draw)


if __name__ == "__main__":
    sys.exit(run(main))
