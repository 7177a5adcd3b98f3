"""Texts from private votes: teachers vote for each word with shared public randomness; a public model is the fallback.

In a step, each teacher computes a law of the next word from its data and the words so far, and all draw votes with the
same public randomness (`darrm.prompts.coordination`). If a noisy check finds that enough teachers agree, a noisy
maximum releases their word. Otherwise a *public model* draws the word with the same public randomness.

- `ConfidentGNMax` checks the count of the most frequent word [P, Algorithm 1].
- `InteractiveGNMax` checks the largest count among words other than the public model's: if the teachers agree with it,
  no answer is spent [P, Algorithm 2, with the public word for the student's scores].
- `NoisyMaximum(…, "open", threshold)` combines check and answer, for vocabularies of any size.

**Guarantee.** For all data, all texts on one ledger together are (ε, δ)-DP, the ledger's budget, for an observer of the
texts, the public randomness, and the source of each word. *Proof.* By induction over the steps. Prompt, earlier words
and public randomness are public or already released, so the votes of a step depend on the data alone. Each teacher
casts one vote, and removing a person leaves the votes of the other teachers unchanged. A step releases one bit of the
check, and the noisy maximum only if the bit is 1. The ledger debits each cost before its draw, and the maximum after
the release of the bit. Public words, stop words and the end of a text are functions of these outputs. So the costs are
adaptively chosen costs, which the filter of a ledger with composition mode ``renyi`` covers
(`darrm.account.filters`). ∎

**Crash recovery.** Check and answer are two answer streams (`darrm.release.one_by_one`), numbered by steps. The ledger
keeps the last paid output. `Writer.words` with the received words, ``held``, resumes there without paying again.
"""

import math
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from darrm.account.accountant import DELTA_RESERVE, PrivacyAccountant
from darrm.aggregator import Aggregator
from darrm.errors import BudgetExceededError
from darrm.ledger.ledger import PrivacyLedger
from darrm.loss.privacy_cost import PrivacyCost
from darrm.loss.renyi import RenyiCurve
from darrm.noisy_max.noisy_maximum import NoisyMaximum
from darrm.numerics.bisection import bisect_safe
from darrm.pate.analysis import Analysis, analyze
from darrm.pate.confident import ConfidentGNMax, InteractiveGNMax
from darrm.privacy import PrivacyPair, PrivacyParams
from darrm.problem import is_open
from darrm.prompts.coordination import Laws, check_laws, coordinate_votes
from darrm.release.delivery import check_ledger
from darrm.release.one_by_one import AnswerStream
from darrm.util import checks
from darrm.votes import Labels, Votes

LENGTH, STOPPED, BUDGET = "length", "stop word", "budget"
_MAX_NOISE, _MIN_NOISE, _MIN_SCALE, _BISECTION_STEPS = 1e6, 0.5, 1e-3, 30  # votes, votes, a scale, steps

CheckedMechanism = ConfidentGNMax | InteractiveGNMax
Context = tuple[int, ...]
Teachers = Callable[[Context], Laws]
PublicModel = Callable[[Context], ArrayLike]


@dataclass(frozen=True)
class Word:
    """A word of a text: its number, its step (counted from 1), and whether the teachers answered it."""

    word: int
    step: int
    by_teachers: bool


@dataclass(frozen=True)
class Text:
    """The text of `Writer.write` and why it ended: ``"length"``, ``"stop word"`` or ``"budget"``."""

    words: tuple[Word, ...]
    ended: str

    @property
    def numbers(self) -> tuple[int, ...]:
        """The numbers of the words."""
        return tuple(word.word for word in self.words)

    def __str__(self) -> str:
        answered = sum(word.by_teachers for word in self.words)
        return f"{len(self.words)} words, {answered} of them by the teachers; ended by {self.ended}"


def noise_for(total: PrivacyPair, *, words: int, answers: int, for_checks: float = 0.5) -> tuple[float, float]:
    """Find the noise (sigma_threshold, sigma_answer), in votes, for which a budget covers these words and answers.

    ``answers`` is the largest number of words that the teachers answer; ``for_checks`` in (0, 1) is the checks' share
    of the budget. `ValueError` if noise of a million votes is not enough.

    >>> [round(sigma, 1) for sigma in noise_for(PrivacyParams(4, 1e-5), words=300, answers=100)]
    [22.7, 18.6]
    """
    total = PrivacyParams.of(total, "total")
    checks.integer_at_least(1, words=words)
    checks.integer_at_least(1, most=words, answers=answers)
    checks.open_probability(for_checks=for_checks)

    def scale_noise(log_scale: float) -> ConfidentGNMax:
        scale = math.exp(log_scale)
        check_factor, answer_factor = math.sqrt(words / (2.0 * for_checks)), math.sqrt(answers / (1.0 - for_checks))
        return ConfidentGNMax(0.0, max(_MIN_NOISE, scale * check_factor), max(_MIN_NOISE, scale * answer_factor))

    def fits(log_scale: float) -> bool:
        mechanism = scale_noise(log_scale)
        costs = (_CheckAggregator(mechanism).privacy_cost(words), mechanism.answer.privacy_cost(answers))
        return PrivacyAccountant(costs=costs, set_aside=DELTA_RESERVE["renyi"]).admits(total, adaptive=True)

    max_log_scale = math.log(_MAX_NOISE / math.sqrt(max(words / for_checks, answers / (1.0 - for_checks))))
    if not fits(max_log_scale):
        checks.fail("total", total, f"a budget for {words:,} checks with noise of up to {_MAX_NOISE:,.0f} votes")
    calibrated = scale_noise(
        bisect_safe(fits, inside=max_log_scale, outside=math.log(_MIN_SCALE), steps=_BISECTION_STEPS)
    )
    return calibrated.sigma_threshold, calibrated.sigma_answer


class Writer:
    """Writes texts by private votes; a ledger pays for every step.

    Parameters
    ----------
    mechanism
        `ConfidentGNMax` or `InteractiveGNMax` for teachers on disjoint data (one person changes one vote); or an
        open-set `NoisyMaximum`.
    ledger
        Composition mode ``renyi`` or ``adaptive``; for an open-set `NoisyMaximum`, any but ``renyi``.
    seed
        Of the public randomness: a number or text, independent of the data. Texts on one stream use different steps.
    stream, note
        Name of the texts in a shared ledger, and a note for its log.
    keep_votes
        Keep the votes in memory, for `analysis`.

    Examples
    --------
    >>> def teachers(context):
    ...     return [[0.7, 0.1, 0.1, 0.1]] * 90 + [[0.1, 0.1, 0.7, 0.1]] * 10
    >>> def public(context):
    ...     return [0.25] * 4
    >>> ledger = PrivacyLedger.create(":memory:", PrivacyParams(20, 1e-5), composition="renyi")
    >>> writer = Writer(InteractiveGNMax(50, 10.0, 10.0, 0.5), ledger, seed="public")
    >>> text = writer.write(teachers, public, most=6)
    >>> len(text.words), text.ended, ledger.accountant().queries >= 6
    (6, 'length', True)
    """

    def __init__(
        self,
        mechanism: CheckedMechanism | NoisyMaximum,
        ledger: PrivacyLedger,
        *,
        seed: int | str,
        stream: str = "text",
        keep_votes: bool = False,
        note: str = "",
    ) -> None:
        check_ledger(ledger)
        coordinate_votes([[1.0]], seed)  # checks the seed
        checks.instance(str, stream=stream)
        self._mechanism, self._seed, self._stream = mechanism, seed, f"{stream}: word"
        self._stored_votes: list[tuple[Votes, bool]] | None = [] if keep_votes else None
        if isinstance(mechanism, CheckedMechanism):
            if ledger.composition not in DELTA_RESERVE:
                advice = "checks and answers are two kinds: make a ledger with composition='renyi'"
                checks.fail("the ledger's composition", ledger.composition, "renyi or adaptive", advice)
            self._answers = _StepAnswers(mechanism.answer, ledger, self._stream, note)
            self._checks = _StepAnswers(_CheckAggregator(mechanism), ledger, f"{stream}: check", note)
            return
        if not (isinstance(mechanism, NoisyMaximum) and is_open(mechanism.classes)):
            description = checks.Text(type(mechanism).__name__)
            checks.fail("mechanism", description, "ConfidentGNMax, InteractiveGNMax or a NoisyMaximum of open answers")
        if ledger.composition == "renyi":
            advice = "a threshold costs delta, and such a ledger reserves none for it"
            checks.fail("the ledger's composition", ledger.composition, "one or adaptive", advice)
        self._answers = self._checks = _StepAnswers(mechanism, ledger, self._stream, note)

    @property
    def steps(self) -> int:
        """Number of paid steps in all texts of the stream."""
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
        """Write a text lazily; each word is paid for on request.

        Parameters
        ----------
        teachers
            Maps the word numbers so far, prompt included, to the laws of the next word, as for `coordinate_votes`.
        public
            Maps them to the (V,) law of a public model, trained without private data.
        prompt
            Public words before the text.
        most, stop
            Largest number of words, and words that end a text. It ends, too, when the budget admits no further step.
        held
            To resume an interrupted text, also with a new `Writer`: the words received so far, ``[]`` for none.

        `ValueError`, before anything is debited, if laws, words or numbers are malformed, or ``held`` is missing after
        an interrupted text; other errors as `darrm.release.AnswerStream.answer`.
        """
        checks.integer_at_least(1, words=most, advice="say most=, how many words are written at most")
        for name, model in (("teachers", teachers), ("public", public)):
            if not callable(model):
                checks.fail(name, checks.Text(type(model).__name__), "a function of the words so far")
        if isinstance(prompt, str) or not isinstance(prompt, Sequence | np.ndarray):
            checks.fail("prompt", checks.Text(type(prompt).__name__), "the numbers of words", "write text as numbers")
        if isinstance(stop, str) or not isinstance(stop, Container):
            checks.fail("stop", checks.Text(type(stop).__name__), "a set of numbers of words")
        words = [] if held is None else list(held)
        if not all(isinstance(word, Word) for word in words):
            checks.fail("held", checks.Text("something else"), "words as they came through, Word(…)")
        paid_steps = self.steps
        if held is None and self._checks.is_waiting:
            advice = "say held=, the words of it that you have, [] for none; or finish(), and begin another text"
            checks.fail("the text before", checks.Text(f"broken off at step {paid_steps}"), "finished", advice)
        last_step = words[-1].step if words else paid_steps - (held is not None and self._checks.is_waiting)
        if not paid_steps - self._checks.is_waiting <= last_step <= paid_steps:
            advice = "hand in all words of the text that came through, and no others"
            checks.fail(
                "the step of the last word that is held",
                last_step,
                f"{paid_steps}, as paid for, or the one before",
                advice,
            )
        remaining = 0 if words and words[-1].word in stop else most - len(words)
        context = (*prompt, *(word.word for word in words))
        return self._write((teachers, public), context, range(last_step + 1, last_step + 1 + remaining), stop)

    def _write(
        self, models: tuple[Teachers, PublicModel], context: Context, steps: range, stop: Container[int]
    ) -> Iterator[Word]:
        for step in steps:
            if not self._answers.fit(step):
                break
            try:
                word = self._choose_word(*models, context, step)
            except BudgetExceededError:  # of the check
                break
            context = (*context, word.word)
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
        return Text(words, LENGTH if len(words) >= most else BUDGET)  # ``held`` may be longer than ``most``

    def finish(self) -> None:
        """Confirm receipt of all words: the ledger drops the last one, and the next call starts a new text."""
        for steps in {self._answers, self._checks}:
            steps.finish()

    def analysis(self, delta: float) -> Analysis:
        """Compute the exact data-dependent cost of the kept votes. The result is **private data**.

        Warns and raises as `darrm.pate.analyze`; also `ValueError` without kept votes or for a `NoisyMaximum`.
        """
        if not self._stored_votes or not isinstance(self._mechanism, CheckedMechanism):
            advice = "say keep_votes=True before a text is written by ConfidentGNMax or InteractiveGNMax"
            checks.fail("the votes that were kept", checks.Text("none"), "those of one step at least", advice)
        votes = Votes.concatenate([votes for votes, _ in self._stored_votes])
        scores = _make_scores(votes) if isinstance(self._mechanism, InteractiveGNMax) else None
        is_answered = np.array([passed for _, passed in self._stored_votes])
        return analyze(votes, self._mechanism, delta, answered=is_answered, scores=scores, check="data-dependent")

    def _choose_word(self, teachers: Teachers, public: PublicModel, context: Context, step: int) -> Word:
        _, law = check_laws(np.asarray(public(context))[None])
        vocabulary, public_word = law.shape[1], int(coordinate_votes(law, self._seed, step=step)[0])
        votes = coordinate_votes(teachers(context), self._seed, step=step)
        if votes.max() >= vocabulary:
            description = checks.Text("a larger one")  # the word itself is private
            checks.fail("teachers", description, f"words below {vocabulary:,}, as many as the public model has")
        if isinstance(self._mechanism, NoisyMaximum):
            label = self._answers.answer(step, Votes.from_answers([[str(vote) for vote in votes]]))
            return Word(public_word if label is None else label, step, label is not None)
        names = np.arange(vocabulary)
        names[[0, public_word]] = public_word, 0  # the public word is the first class
        counts = Votes.from_counts([np.bincount(votes, minlength=vocabulary)[names]])
        label, passed = None, bool(self._checks.answer(step, counts))
        with suppress(BudgetExceededError):  # only the check was paid for: the public word ends the text
            label = self._answers.answer(step, counts) if passed else None
        if self._stored_votes is not None:
            self._stored_votes.append((counts, label is not None))
        return Word(public_word if label is None else int(names[label]), step, label is not None)


class _StepAnswers:
    """An answer stream numbered by steps; it returns the last paid answer without a new draw."""

    def __init__(self, aggregator: Aggregator, ledger: PrivacyLedger, stream: str, note: str) -> None:
        self._stream = AnswerStream(aggregator, ledger, stream=stream, note=note)
        self._charge = aggregator.privacy_cost(1)
        questions = [entry.questions[0] for entry in ledger.entries() if entry.output == self._stream.cursor.stream]
        self._prefix = f"{stream} "
        self.last = int(questions[-1].removeprefix(self._prefix)) if questions else 0
        self._waiting_label = [self._parse_word(label) for label in self._stream.waiting()]

    @property
    def is_waiting(self) -> bool:
        return bool(self._waiting_label)

    def fit(self, step: int) -> bool:
        return step <= self.last or self._stream.ledger.queries_that_fit(self._charge, most=1) > 0

    @staticmethod
    def _parse_word(label: object) -> int | None:
        return None if label is None else int(str(label))

    def answer(self, step: int, votes: Votes) -> int | None:
        """Return the stored answer of a step, or draw it; None for no answer."""
        if step != self.last:
            self._waiting_label = [self._parse_word(self._stream.answer(votes, question=f"{self._prefix}{step}"))]
            self.last = step
        return self._waiting_label[0]

    def finish(self) -> None:
        self._stream.close()
        self._waiting_label = []


@dataclass(frozen=True)
class _CheckAggregator:
    """The check of a mechanism alone: 1 if it passes. The first class is the public model's word."""

    mechanism: CheckedMechanism

    @property
    def guarantee(self) -> RenyiCurve:
        return self.mechanism.check.guarantee

    def privacy_cost(self, queries: int = 1) -> PrivacyCost:
        return PrivacyCost(f"{self.mechanism.check!r}", renyi=self.guarantee, count=queries, reached=1)

    def release(self, votes: Votes, *, rng: np.random.Generator | None = None) -> Labels:
        mechanism = self.mechanism
        scores = (_make_scores(votes),) if isinstance(mechanism, InteractiveGNMax) else ()
        statistic = mechanism.statistic(votes, *scores)
        return mechanism.check.release(statistic, rng).astype(np.int64)


def _make_scores(votes: Votes) -> NDArray[np.float64]:
    scores = np.zeros(votes.counts.shape)
    scores[:, 0] = 1.0
    return scores
