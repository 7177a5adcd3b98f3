"""Texts from private votes: word by word, by teachers who vote with public coins, and by a public model elsewhere.

One step: every teacher has a law of the next word, made from its own data and the words so far. All draw with the same
public randomness (`darrm.ensemble.coordination`); a noisy check says whether enough of them agree; if so, a noisy
maximum tells their word, and if not, the next word is that of a *public model*, drawn with the same public randomness.

- `ConfidentGNMax` looks at how many say the commonest word [P, Algorithm 1].
- `InteractiveGNMax` looks at how many say the commonest *other* word than the public model's: where the teachers agree
  with it, no answer is paid for [P, Algorithm 2, with the public word for the student's scores].
- `NoisyMaximum(…, "open", threshold)` is check and answer at once, over vocabularies of any size.

**Guarantee.** Whatever the data, all texts on one ledger are (ε, δ)-private together, its budget, against whoever sees
the texts, the public coins, and which words are the teachers' own. *Proof.* By induction over the steps: prompt, words
so far and coins are public or were told before, so the votes of a step are a function of the data alone, one vote of
each teacher, and those whose data do not contain a person are the same without that person. What leaves the step is one
bit of the check, and the noisy maximum only where that bit is 1: each is debited before it is drawn upon, the second
after the first was told. Public words, stop words and the end of a text are functions of these. So the course of
charges is chosen adaptively, which is what the filter of a ledger of kinds ``renyi`` pays for
(`darrm.account.filters`). ∎ The cost of an answer is thus due only where one is given, *for all data*; a check costs
about half of an answer with the same noise, for it looks at one count and not at two.

**A process that dies.** Check and answer are two streams of answers (`darrm.release.one_by_one`), numbered by steps.
What was paid for last waits in the ledger: `Writer.words` with the words that came through, ``held``, takes it up, and
pays for nothing twice.
"""

import math
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from darrm.account.accountant import SET_ASIDE, PrivacyAccountant
from darrm.account.ledger import PrivacyLedger
from darrm.aggregator import Aggregator
from darrm.ensemble.coordination import Laws, coordinated, laws_of
from darrm.errors import BudgetExceededError, checks
from darrm.losses.charges import Charge
from darrm.losses.renyi import RenyiCurve
from darrm.mechanisms.noisy_maximum import NoisyMaximum
from darrm.pate.analysis import Analysis, analyze
from darrm.pate.confident import ConfidentGNMax, InteractiveGNMax
from darrm.privacy import PrivacyParams
from darrm.probability.bisection import last_allowed
from darrm.problem import is_open
from darrm.release.delivery import check_ledger
from darrm.release.one_by_one import OneByOne
from darrm.votes import Labels, Votes

LENGTH, STOPPED, BUDGET = "length", "stop word", "budget"
_WIDEST, _NARROWEST, _LEAST, _BISECTIONS = 1e6, 0.5, 1e-3, 30  # votes, votes; a scale

Checked = ConfidentGNMax | InteractiveGNMax
Context = tuple[int, ...]
Teachers = Callable[[Context], Laws]
PublicModel = Callable[[Context], ArrayLike]


@dataclass(frozen=True)
class Word:
    """A word of a text: its number, the step that it was written at, counted from 1 on, and whose it is."""

    word: int
    step: int
    by_teachers: bool


@dataclass(frozen=True)
class Text:
    """What `Writer.write` wrote, and why it ended: by its ``"length"``, a ``"stop word"``, or the ``"budget"``."""

    words: tuple[Word, ...]
    ended: str

    @property
    def numbers(self) -> tuple[int, ...]:
        """The numbers of the words."""
        return tuple(word.word for word in self.words)

    def __str__(self) -> str:
        answered = sum(word.by_teachers for word in self.words)
        return f"{len(self.words)} words, {answered} of them by the teachers; ended by {self.ended}"


def noise_for(total: PrivacyParams, *, words: int, answers: int, for_checks: float = 0.5) -> tuple[float, float]:
    """Find the noise with which a budget pays for so many checks and answers: (σ₁, σ₂), in votes.

    Parameters
    ----------
    total
        (ε, δ) of all texts.
    words, answers
        How many words are written, and how many of them the teachers answer, at most; what is left over may be spent
        on longer texts.
    for_checks
        The share of the budget for the checks, in (0, 1).

    Returns
    -------
    sigma_threshold, sigma_answer
        For `ConfidentGNMax` and `InteractiveGNMax`.

    Raises
    ------
    ValueError
        If an argument is out of range, or no noise of up to a million votes is enough.

    Examples
    --------
    >>> [round(sigma, 1) for sigma in noise_for(PrivacyParams(4, 1e-5), words=300, answers=100)]
    [22.7, 18.6]
    """
    checks.instance(PrivacyParams, total=total, advice="say PrivacyParams(epsilon, delta)")
    checks.integer_at_least(1, words=words)
    checks.integer_at_least(1, most=words, answers=answers)
    checks.open_probability(for_checks=for_checks)

    def scaled(log_scale: float) -> ConfidentGNMax:
        scale = math.exp(log_scale)
        by_check, by_answer = math.sqrt(words / (2.0 * for_checks)), math.sqrt(answers / (1.0 - for_checks))
        return ConfidentGNMax(0.0, max(_NARROWEST, scale * by_check), max(_NARROWEST, scale * by_answer))

    def fits(log_scale: float) -> bool:
        mechanism = scaled(log_scale)
        charges = (_Check(mechanism).charge(words), mechanism.answer.charge(answers))
        return PrivacyAccountant(charges=charges, set_aside=SET_ASIDE["renyi"]).admits(total, adaptive=True)

    widest = math.log(_WIDEST / math.sqrt(max(words / for_checks, answers / (1.0 - for_checks))))
    if not fits(widest):
        checks.fail("total", total, f"a budget for {words:,} checks with noise of up to {_WIDEST:,.0f} votes")
    found = scaled(last_allowed(fits, inside=widest, outside=math.log(_LEAST), steps=_BISECTIONS))
    return found.sigma_threshold, found.sigma_answer


class Writer:
    """Writes texts by private votes, and pays for every step from a ledger.

    Parameters
    ----------
    mechanism
        `ConfidentGNMax` or `InteractiveGNMax`, whose teachers learned from disjoint data, so that one person moves one
        vote; or an open `NoisyMaximum`.
    ledger
        What pays: of kinds ``renyi`` or ``adaptive``; for an open `NoisyMaximum`, which is one kind, not of ``renyi``.
    seed
        Of the public coins: a number or text, chosen without looking at the data. Texts on one stream have steps, and
        so coins, of their own.
    stream
        The name of the texts in the ledger, where several share it.
    keep_votes
        Keep the votes in memory, for `analysis`.
    note
        The caller's words for the ledger's log.

    Raises
    ------
    ValueError
        If the mechanism is another, or the ledger pays for none such.
    LedgerError
        If the ledger cannot be read.

    Examples
    --------
    Three kinds of teachers and a public model of four words:

    >>> laws = [[0.7, 0.1, 0.1, 0.1]] * 60 + [[0.6, 0.2, 0.1, 0.1]] * 30 + [[0.1, 0.1, 0.7, 0.1]] * 10
    >>> ledger = PrivacyLedger.create(":memory:", PrivacyParams(20, 1e-5), kinds="renyi")
    >>> writer = Writer(InteractiveGNMax(50, 10.0, 10.0, 0.5), ledger, seed="public")
    >>> text = writer.write(lambda context: laws, lambda context: [0.25] * 4, most=6)
    >>> len(text.words), text.ended, ledger.accountant().queries >= 6
    (6, 'length', True)
    """

    def __init__(
        self,
        mechanism: Checked | NoisyMaximum,
        ledger: PrivacyLedger,
        *,
        seed: int | str,
        stream: str = "text",
        keep_votes: bool = False,
        note: str = "",
    ) -> None:
        check_ledger(ledger)
        coordinated([[1.0]], seed)  # refuses what is no seed
        checks.instance(str, stream=stream)
        self._mechanism, self._seed, self._stream = mechanism, seed, f"{stream}: word"
        self._kept: list[tuple[Votes, bool]] | None = [] if keep_votes else None
        if isinstance(mechanism, Checked):
            if ledger.kinds not in SET_ASIDE:
                advice = "checks and answers are two kinds: make a ledger with kinds='renyi'"
                checks.fail("the ledger's kinds", ledger.kinds, "renyi or adaptive", advice)
            self._answers = _Steps(mechanism.answer, ledger, self._stream, note)
            self._checks = _Steps(_Check(mechanism), ledger, f"{stream}: check", note)
            return
        if not (isinstance(mechanism, NoisyMaximum) and is_open(mechanism.classes)):
            found = checks.Found(type(mechanism).__name__)
            checks.fail("mechanism", found, "ConfidentGNMax, InteractiveGNMax or a NoisyMaximum of open answers")
        if ledger.kinds == "renyi":
            advice = "a threshold is paid from delta, of which such a ledger keeps nothing for it"
            checks.fail("the ledger's kinds", ledger.kinds, "one or adaptive", advice)
        self._answers = self._checks = _Steps(mechanism, ledger, self._stream, note)

    @property
    def steps(self) -> int:
        """How many steps were paid for, in all texts of the stream: the number of the last one."""
        return self._checks.last

    def words(
        self,
        teachers: Teachers,
        public: PublicModel,
        prompt: Sequence[int] = (),
        *,
        most: int,
        stop: Container[int] = (),
        held: Sequence[Word] | None = None,
    ) -> Iterator[Word]:
        """Write a text; each word is paid for when it is asked for.

        Parameters
        ----------
        teachers
            From the numbers of the words so far, with the prompt, to the laws of the next one: (K, V) probabilities, or
            a pair of (K, k) words and (K, k) probabilities, as for `darrm.ensemble.coordinated`.
        public
            From the same to (V,) the law of the public model, which no private data made.
        prompt
            The words before the text: public.
        most
            How many words are written at most.
        stop
            Words at which a text ends.
        held
            Of a text that was broken off: its words as far as they came through, ``[]`` where none did.

        Returns
        -------
        words
            The text ends after ``most`` words, after a stop word, or where the budget does not admit a further step.

        Raises
        ------
        ValueError
            If laws, words or numbers are malformed, or a text was broken off and nobody says what of it is held;
            nothing is debited.
        LedgerError, PaidError
            As `darrm.release.OneByOne.answer`. A new `Writer` goes on with ``held``.
        """
        checks.integer_at_least(1, words=most, advice="say most=, how many words are written at most")
        for name, model in (("teachers", teachers), ("public", public)):
            if not callable(model):
                checks.fail(name, checks.Found(type(model).__name__), "a function of the words so far")
        if isinstance(prompt, str) or not isinstance(prompt, Sequence | np.ndarray):
            checks.fail("prompt", checks.Found(type(prompt).__name__), "the numbers of words", "write text as numbers")
        if isinstance(stop, str) or not isinstance(stop, Container):
            checks.fail("stop", checks.Found(type(stop).__name__), "a set of numbers of words")
        words = [] if held is None else list(held)
        if not all(isinstance(word, Word) for word in words):
            checks.fail("held", checks.Found("something else"), "words as they came through, Word(…)")
        first = self._first_step(held)
        left = 0 if words and words[-1].word in stop else most - len(words)
        return self._steps(teachers, public, tuple(prompt), words, range(first, first + left), stop)

    def _steps(
        self,
        teachers: Teachers,
        public: PublicModel,
        prompt: Context,
        words: list[Word],
        steps: range,
        stop: Container[int],
    ) -> Iterator[Word]:
        for step in steps:
            context = (*prompt, *(word.word for word in words))
            if not self._answers.fit(step):
                break
            try:
                word = self._next(teachers, public, context, step)
            except BudgetExceededError:  # of the check
                break
            words.append(word)
            yield word
            if word.word in stop:
                break
        self.finish()

    def write(
        self,
        teachers: Teachers,
        public: PublicModel,
        prompt: Sequence[int] = (),
        *,
        most: int,
        stop: Container[int] = (),
        held: Sequence[Word] | None = None,
    ) -> Text:
        """Write a whole text; arguments and errors are those of `words`."""
        words = (*(held or ()), *self.words(teachers, public, prompt, most=most, stop=stop, held=held))
        if words and words[-1].word in stop:
            return Text(words, STOPPED)
        return Text(words, LENGTH if len(words) == most else BUDGET)

    def finish(self) -> None:
        """Say that all words came through: the last one leaves the ledger, and the next text is a new one."""
        for steps in {self._answers, self._checks}:
            steps.finish()

    def analysis(self, delta: float) -> Analysis:
        """Compute what the votes that were kept cost, exactly: **private data**, beside the ledger's total.

        Warns and raises as `darrm.pate.analyze`; `ValueError` also where no votes were kept, or none can be.
        """
        if not self._kept or not isinstance(self._mechanism, Checked):
            advice = "say keep_votes=True before a text is written by ConfidentGNMax or InteractiveGNMax"
            checks.fail("the votes that were kept", checks.Found("none"), "those of one step at least", advice)
        votes = Votes.joined([votes for votes, _ in self._kept])
        scores = _first_class(votes) if isinstance(self._mechanism, InteractiveGNMax) else None
        answered = np.array([passed for _, passed in self._kept])
        return analyze(votes, self._mechanism, delta, answered=answered, scores=scores, check="data-dependent")

    def _first_step(self, held: Sequence[Word] | None) -> int:
        """Return the number of the next step, which may be paid for and not held."""
        paid = self.steps
        if held is None and self._checks.waits:
            advice = "say held=, the words of it that you have, [] for none; or finish(), and begin another text"
            checks.fail("the text before", checks.Found(f"broken off at step {paid}"), "finished", advice)
        last = held[-1].step if held else paid - (held is not None and self._checks.waits)
        if not paid - self._checks.waits <= last <= paid:
            advice = "hand in all words of the text that came through, and no others"
            checks.fail(
                "the step of the last word that is held", last, f"{paid}, as paid for, or the one before", advice
            )
        return last + 1

    def _next(self, teachers: Teachers, public: PublicModel, context: Context, step: int) -> Word:
        _, law = laws_of(np.asarray(public(context))[None])
        size, ours = law.shape[1], int(coordinated(law, self._seed, step=step)[0])
        votes = coordinated(teachers(context), self._seed, step=step)
        if votes.max() >= size:
            found = checks.Found("a larger one")  # which one is private
            checks.fail("teachers", found, f"words below {size:,}, as many as the public model has")
        if isinstance(self._mechanism, NoisyMaximum):
            label = self._answers.at(step, Votes.of_answers([[str(vote) for vote in votes]]))
            return Word(ours if label is None else label, step, label is not None)
        names = np.arange(size)
        names[[0, ours]] = ours, 0  # the public word is the first class
        counts = Votes.of_counts([np.bincount(votes, minlength=size)[names]])
        label, passed = None, bool(self._checks.at(step, counts))
        with suppress(BudgetExceededError):  # the check was paid for: then the word is the public one, and the last
            label = self._answers.at(step, counts) if passed else None
        if self._kept is not None:
            self._kept.append((counts, label is not None))
        return Word(ours if label is None else int(names[label]), step, label is not None)


class _Steps:
    """A stream of answers, under the numbers of steps; what was paid for last is not drawn again."""

    def __init__(self, aggregator: Aggregator, ledger: PrivacyLedger, stream: str, note: str) -> None:
        self._stream = OneByOne(aggregator, ledger, stream=stream, note=note)
        self._charge = aggregator.charge(1)
        asked = [entry.questions[0] for entry in ledger.entries() if entry.output == self._stream.turn.stream]
        self._name = f"{stream} "
        self.last = int(asked[-1].removeprefix(self._name)) if asked else 0
        self._label = [self._number(label) for label in self._stream.waiting()]

    @property
    def waits(self) -> bool:
        """Whether nobody said that the last answer came through."""
        return bool(self._label)

    def fit(self, step: int) -> bool:
        """Return whether the answer of a step was paid for, or can be."""
        return step <= self.last or self._stream.ledger.queries_that_fit(self._charge, most=1) > 0

    @staticmethod
    def _number(label: object) -> int | None:
        return None if label is None else int(str(label))

    def at(self, step: int, votes: Votes) -> int | None:
        """Return the answer of a step, as it was drawn, or draw it; None for no answer."""
        if step != self.last:
            self._label = [self._number(self._stream.answer(votes, question=f"{self._name}{step}"))]
            self.last = step
        return self._label[0]

    def finish(self) -> None:
        """Acknowledge the last answer."""
        self._stream.close()
        self._label = []


@dataclass(frozen=True)
class _Check:
    """The check of a mechanism alone, 1 where it passes; the first class is the public model's word."""

    mechanism: Checked

    @property
    def guarantee(self) -> RenyiCurve:
        return self.mechanism.check.guarantee

    def charge(self, queries: int = 1) -> Charge:
        return Charge(f"{self.mechanism.check!r}", renyi=self.guarantee, count=queries, reached=1)

    def release(self, votes: Votes, *, rng: np.random.Generator | None = None) -> Labels:
        mechanism = self.mechanism
        if isinstance(mechanism, InteractiveGNMax):
            statistic = mechanism.statistic(votes, _first_class(votes))
        else:
            statistic = mechanism.statistic(votes)
        return mechanism.check.release(statistic, rng).astype(np.int64)


def _first_class(votes: Votes) -> NDArray[np.float64]:
    """Return scores that are sure of the first class: (Q, C)."""
    scores = np.zeros(votes.counts.shape)
    scores[:, 0] = 1.0
    return scores
