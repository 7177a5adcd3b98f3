"""Prompts whose private examples are drawn anew for every question, so that a person seldom takes part in one.

K prompts, of a few private examples and the question each, are answered by a language model or by another learner, and
what most of them say is released. Who is among the examples of a question is drawn in one of two ways:

* *poisson* (``rate=q``): each person by an exact coin of his own, and his prompt by a uniform draw of his own.
* *fixed* (``size=n``): n of N people, q = n/N, in a uniformly random order; place i is one of prompt i mod K.

All examples of a person who is drawn come into his prompt. Of more than ``examples_each`` in a prompt so many are kept,
drawn from this prompt.

*Theorem.* Let an answer depend on its own prompt, the question, and randomness of its own. The votes on a question then
have the law (1 − q)A + qB, where A and B differ by one vote: they can be drawn together so that all others are the
same. *Poisson:* A is the law without the person. *Fixed:* A is the law if he is not drawn; if another person has his
place in the data, the law is (1 − q)A + qB', and A, B and B' pairwise differ by one vote.

*Proof.* *Poisson.* Draw the same for everybody else: none of this looks at him. If he is not drawn, the prompts are
those without him. Otherwise a draw that depends on nothing seats him in one prompt, and the others hold what they held.
*Fixed.* The order is uniform on all ordered samples. If he has place i, the others are a uniform ordered sample of the
N − 1 other people on n − 1 places, whoever he is: B and B'. With one of those who are left on place i, drawn uniformly,
it is a uniform ordered sample without him: A. Only prompt i mod K differs. *Both.* What is kept of a prompt, its order
and its answer are drawn from this prompt alone, so all votes but one are the same. ∎

*Why nobody is dealt like cards.* Of a Poisson sample that is cut into K equal parts one person more moves everybody
after him to another place; if it is shuffled first, one other person still moves, and with him a second vote.

*Why a failed call is a missing vote.* That it fails depends on its own prompt, as an answer does: a vote may differ,
appear or disappear (`darrm.votes`), and the call may be repeated with the same prompt. If it had the *sample* drawn
again, samples would be accepted by what is in them: an accepted one was not drawn by coins, and a person whose example
breaks calls would never be in one. For the same reason nobody may look at how many votes are missing, and act on it.

A seating is one prompt for each person: that somebody is in two cannot be written down.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from darrm.errors import checks
from darrm.privacy import Number, PrivacyParams, exact_number
from darrm.probability.exact_sampling import UniformBelow, uniform_below
from darrm.problem import Voters
from darrm.sampling import Sampling
from darrm.system.extras import Untyped, require
from darrm.system.people import persons_of
from darrm.votes import Classes, Votes, class_names

Example = Any  # whatever a prompt is made of
Answers = Any  # of a question: one answer, or one a question where they are asked in batches

_MISSING = -1  # the last column, where votes are counted
_LARGEST_INT64 = 2**62


class FreshPrompts:
    """K prompts whose private examples are drawn anew for every question, from the operating system.

    Parameters
    ----------
    examples
        N examples of any type.
    classes
        As in `Votes.of_labels`: what may be answered, public.
    rate
        q in (0, 1], the probability that a person is drawn, like ``"0.004"``. Neighbors add or remove one person; how
        many there are need not be public.
    size
        Or how many people are drawn, always. Neighbors replace one person; how many there are is public.
    voters
        K, the number of prompts.
    examples_each
        How many examples a prompt holds at most; None for all that were drawn.
    people
        (N,) whose each example is, always written the same; by default every example is another person's.

    Attributes
    ----------
    voters
        The `Voters` that plans and accounts ask for.

    Raises
    ------
    ValueError
        If an argument is not of this kind, or not one of ``rate`` and ``size`` is said.

    Examples
    --------
    >>> notes = [("the parcel is late", "bad"), ("thank you", "good")] * 500
    >>> prompts = FreshPrompts(notes, ("bad", "good"), rate="0.004", voters=10, examples_each=4)
    >>> prompts.votes(["it came early"], lambda examples, question: "good", jobs=1)
    Votes(1 queries to 10 voters, classes bad, good; from labels)
    >>> print(prompts.voters)
    10 voters, not private themselves; one person's data reach at most 1 of them; a person is among the examples of a \
question with probability 0.004; neighbors add or remove one person
    """

    def __init__(
        self,
        examples: Iterable[Example],
        classes: Classes = None,
        *,
        rate: Number | None = None,
        size: int | None = None,
        voters: int = 10,
        examples_each: int | None = None,
        people: Untyped = None,
    ) -> None:
        self._examples = _listed("examples", examples)
        self._classes = class_names(2 if classes is None else classes)
        records: dict[object, list[int]] = {}
        for place, person in enumerate(persons_of(len(self._examples), people, "people")):
            records.setdefault(person, []).append(place)
        self._records = list(records.values())  # of each person
        if examples_each is not None:
            checks.integer_at_least(1, examples_each=examples_each, advice="or None for all that were drawn")
        self._most, self._size = examples_each, size
        if rate is not None and size is None:
            self._sampling = Sampling(exact_number("rate", rate))
        elif size is not None and rate is None:
            checks.integer_at_least(1, most=len(records), size=size, advice=f"of {len(records):,} people")
            self._sampling = Sampling(Fraction(int(size), len(records)), "fixed")
        else:
            advice = "rate='0.004' draws each person with this probability, size=40 draws so many people"
            checks.fail("rate or size", checks.Found("both" if rate is not None else "none"), "one of the two", advice)
        self.voters = Voters(voters, PrivacyParams("inf"), overlap=1, sampled=self._sampling)

    def draw(self, *, rng: np.random.Generator | None = None) -> list[list[Example]]:
        """Draw the examples of each of the K prompts of **one** question: private data, and never drawn again for it.

        >>> drawn = FreshPrompts(range(100), size=12, voters=5).draw()
        >>> [len(examples) for examples in drawn], len({example for examples in drawn for example in examples})
        ([3, 3, 2, 2, 2], 12)
        """
        below = uniform_below(rng)
        prompts: list[list[Example]] = [[] for _ in range(self.voters.K)]
        for person, prompt in self._seats(below):
            prompts[prompt] += [self._examples[record] for record in self._records[person]]
        return [[held[i] for i in _ordered(len(held), self._most, below)] for held in prompts]

    def _seats(self, below: UniformBelow) -> Iterable[tuple[int, int]]:
        people, K = len(self._records), self.voters.K
        if self._size is not None:
            return [(person, place % K) for place, person in enumerate(_ordered(people, self._size, below))]
        one_in, rate = self._sampling.rate.denominator, self._sampling.rate
        limits = np.full(people, one_in, dtype=np.int64 if one_in <= _LARGEST_INT64 else object)
        drawn = np.flatnonzero(below(limits) < rate.numerator)
        return zip(drawn.tolist(), below(np.full(drawn.size, K)).tolist(), strict=True)

    def votes(
        self,
        questions: Iterable[object],
        answer: Callable[..., Answers],
        *,
        batched: bool = False,
        retries: int = 2,
        jobs: int | None = None,
        trial: bool = True,
        rng: np.random.Generator | None = None,
    ) -> Votes:
        """Ask K prompts each of Q questions; the examples are drawn anew for each.

        Parameters
        ----------
        questions
            (Q,) of any type.
        answer
            ``answer(examples, question)`` returns a class; of examples there may be none. It must look at nothing else
            that is private, and keep nothing. What it raises, None, or what is no class, after retries, is a missing
            vote.
        batched
            ``answer([(examples, question), …])`` then returns the classes of K prompts, by its own prompt each.
            Those without a vote are asked again alone: none may cost the others theirs.
        retries
            How often a prompt is asked again, with the same examples.
        jobs
            Threads or processes, by joblib; None takes joblib's configuration, 1 needs none.
        trial
            First, before anybody is drawn, ask the first question without examples. What fails there is raised, and
            tells of nobody; what fails later is private, and is not.
        rng
            None draws from the operating system. A generator is for experiments only.

        Returns
        -------
        votes
            `Votes` on Q questions. How many are missing is private.

        Raises
        ------
        ValueError
            If an argument is not of this kind, or the trial returns no class; the trial raises what ``answer`` does.
        """
        if not callable(answer):
            checks.fail("answer", checks.Found(type(answer).__name__), "a function", "say answer(examples, question)")
        checks.integer_at_least(0, retries=retries)
        asked, classes, K = _listed("questions", questions), self._classes, self.voters.K
        ask = _Ask(answer, batched, int(retries), {name: code for code, name in enumerate(classes)})
        if trial and asked:
            ask.try_out(asked[0])
        drawn = ([(examples, question) for examples in self.draw(rng=rng)] for question in asked)
        together = drawn if batched else ([prompt] for prompts in drawn for prompt in prompts)
        if jobs == 1:
            answers = [ask(prompts) for prompts in together]
        else:
            joblib = require("joblib")
            answers = joblib.Parallel(n_jobs=jobs)(joblib.delayed(ask)(prompts) for prompts in together)
        codes = np.array([code for some in answers for code in some], dtype=np.int64).reshape(len(asked), K)
        counts = np.zeros((len(asked), len(classes) + 1), dtype=np.int64)
        np.add.at(counts, (np.arange(len(asked))[:, None], codes), 1)
        return Votes(counts[:, :_MISSING], K, classes, "labels", counts[:, _MISSING])


@dataclass(frozen=True, eq=False)  # Dask hashes what it calls
class _Ask:
    """Asks prompts for the numbers of classes, `_MISSING` for none; what workers get."""

    answer: Callable[..., Answers]
    batched: bool
    retries: int
    codes: dict[object, int]

    def __call__(self, prompts: list[Example]) -> list[int]:
        """Ask prompts together, and then those without a vote again, each alone, ``retries`` times.

        Where all failed together, none was asked yet: a prompt may cost the others neither their votes nor a try.
        """
        codes = self._attempt(prompts)
        if codes is None and len(prompts) > 1:
            return [code for prompt in prompts for code in self([prompt])]
        codes = codes or [_MISSING]
        for i, prompt in enumerate(prompts):
            for _ in range(self.retries):
                if codes[i] == _MISSING:
                    codes[i] = (self._attempt([prompt]) or [_MISSING])[0]
        return codes

    def _attempt(self, prompts: list[Example]) -> list[int] | None:
        """Ask prompts once; what is raised is private, and so is that it was."""
        try:
            return [self._code(label) for label in self._labels(prompts)]
        except (Exception, SystemExit):  # noqa: BLE001 (of any library)
            return None

    def _labels(self, prompts: list[Example]) -> list[object]:
        fresh = [(list(examples), question) for examples, question in prompts]  # an answer may empty its list
        labels = list(self.answer(fresh)) if self.batched else [self.answer(*prompt) for prompt in fresh]
        if len(labels) != len(prompts):
            checks.fail("what answer returns", checks.Found(f"{len(labels)} labels"), f"one for each of {len(prompts)}")
        return labels

    def _code(self, label: Untyped) -> int:
        try:
            return self.codes.get(label, _MISSING)
        except (Exception, SystemExit):  # noqa: BLE001 (a list has no hash, and comparing arrays raises)
            return _MISSING

    def try_out(self, question: Untyped) -> None:
        """Raise what is wrong with an answer without examples, in which nothing is private."""
        if self([([], question)]) == [_MISSING]:
            [label] = self._labels([([], question)])
            if label is not None and self._code(label) == _MISSING:
                names = ", ".join(map(repr, list(self.codes)[:5]))
                checks.fail("what answer returns", label, f"a class, {names}", "or None for no vote")


def _listed(name: str, values: Iterable[Untyped]) -> list[Untyped]:
    is_list = hasattr(values, "__getitem__") and not isinstance(values, str | bytes | Mapping)
    if not is_list or hasattr(values, "columns"):
        advice = "of a table its rows, of one question [question]"
        checks.fail(name, checks.Found(type(values).__name__), "a list", advice)
    return list(values)


def _ordered(n: int, most: int | None, below: UniformBelow) -> list[int]:
    moved: dict[int, int] = {}  # what stands where others were drawn
    drawn = []
    for i, step in enumerate(below(np.arange(n, 0 if most is None else max(n - most, 0), -1)).tolist()):
        drawn.append(moved.get(i + step, i + step))
        moved[i + step] = moved.get(i, i)
    return drawn
