"""Characters for words, and small models of them: what stands for language models where none is at hand.

The *private* text is the documentation strings of Python's standard library, dealt to teachers in pieces; the *public*
one its language reference (`pydoc_data.topics`). Both come with Python, under its license. A model of n characters
counts what follows each context, and leans on that of n − 1 where it has seen little:

    p_n(c | h) = (count(h c) + θ·p_{n−1}(c | h')) / (count(h) + θ).

A teacher is the public model, corrected by what follows three characters in its own piece: as a language model is that
was shown examples.
"""

import ast
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from darrm.numerics import Array

LEAN, PIECES, SEED = 4.0, 100, 20_24
PUBLIC_ORDER, OWN_ORDER, JUDGE_ORDER = 4, 5, 5
HELD_OUT = 0.15  # of the private text, for the judge
CHARACTERS = "\n" + "".join(map(chr, range(32, 127)))  # the last one, ~, stands for all others, too

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
    """A model of one text by contexts of up to so many characters."""

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
