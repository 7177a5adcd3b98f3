"""Texts by private votes: whose word it is, what is paid for it, what a broken text gets back, what is refused."""

import itertools
import math
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from darrm.account.accountant import DELTA_RESERVE, PrivacyAccountant
from darrm.ledger.ledger import PrivacyLedger
from darrm.loss.privacy_cost import PrivacyCost
from darrm.noisy_max.noisy_law import winning_probabilities
from darrm.noisy_max.noisy_maximum import NoisyMaximum
from darrm.numerics.integer_noise import DiscreteGaussian
from darrm.pate import ConfidentGNMax, GNMax, InteractiveGNMax, analyze
from darrm.pate.analysis import PrivateFigureWarning
from darrm.privacy import PrivacyParams
from darrm.problem import OPEN, Voters
from darrm.prompts import coordinate_votes
from darrm.prompts.generate import BUDGET, LENGTH, STOPPED, Text, Word, Writer, noise_for
from darrm.release.one_by_one import AnswerStream
from darrm.votes import Votes

K, V = 40, 5
CONFIDENT = ConfidentGNMax(20, 0.5, 0.5)  # so little noise that it changes nothing: for tests alone
INTERACTIVE = InteractiveGNMax(20, 0.5, 0.5, 0.5)
Laws = Callable[[tuple[int, ...]], np.ndarray]


def agreeing(context: Sequence[int]) -> np.ndarray:
    """All teachers have one law, which the last word moves."""
    law = np.arange(1.0, V + 1.0)
    return np.tile(np.roll(law / law.sum(), context[-1] if context else 0), (K, 1))


def split(_: Sequence[int]) -> np.ndarray:
    """No eight teachers want the same."""
    return np.tile(np.eye(V), (K // V, 1))


def public(_: Sequence[int]) -> np.ndarray:
    return np.full(V, 1.0 / V)


def opened(path: Path | str = ":memory:", epsilon: float = 1e6, kinds: str = "renyi") -> PrivacyLedger:
    return PrivacyLedger.create(path, PrivacyParams(epsilon, 1e-5), composition=kinds)


def paid(ledger: PrivacyLedger) -> tuple[int, int]:
    """How many checks, and how many answers."""
    counts = {cost.what: cost.count for cost in ledger.accountant().costs}
    checks = sum(count for what, count in counts.items() if "NoisyCheck" in what)
    return checks, sum(counts.values()) - checks


def test_a_text_of_which_more_is_held_than_is_asked_for_is_ended_by_its_length(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    opened(path)
    words = list(itertools.islice(Writer(CONFIDENT, PrivacyLedger(path), seed=3).words(agreeing, public, most=9), 3))
    for most in (1, 2, 3):
        text = Writer(CONFIDENT, PrivacyLedger(path), seed=3).write(agreeing, public, most=most, held=words)
        assert (text.words, text.ended) == (tuple(words), "length")


@pytest.mark.slow
def test_teachers_that_agree_say_their_word_and_others_leave_it_to_the_public_model() -> None:
    ledger = opened()
    text = Writer(CONFIDENT, ledger, seed=3).write(agreeing, public, most=20)
    context: list[int] = []
    for word in text.words:
        assert word == Word(
            coordinate_votes(agreeing(context), 3, step=word.step)[0], len(context) + 1, by_teachers=True
        )
        context.append(word.word)
    assert (text.numbers, text.ended, paid(ledger)) == (tuple(context), LENGTH, (20, 20))
    assert str(text) == "20 words, 20 of them by the teachers; ended by length"
    ledger = opened()
    text = Writer(CONFIDENT, ledger, seed=3).write(split, public, most=20)
    ours = [coordinate_votes([public(())], 3, step=step)[0] for step in range(1, 21)]
    assert text.words == tuple(Word(word, step, by_teachers=False) for step, word in enumerate(ours, 1))
    assert paid(ledger) == (20, 0)


@pytest.mark.slow
def test_agreement_with_the_public_model_is_not_paid_for() -> None:
    ledger = opened()
    text = Writer(INTERACTIVE, ledger, seed=3).write(agreeing, lambda context: agreeing(context)[0], most=20)
    assert text.numbers == Writer(CONFIDENT, opened(), seed=3).write(agreeing, public, most=20).numbers
    assert paid(ledger) == (20, 0)
    contrary = Writer(INTERACTIVE, ledger, seed=3, stream="other").write(agreeing, lambda _: np.eye(V)[0], most=20)
    assert contrary.numbers == text.numbers  # where the public word is another, the teachers answer
    assert paid(ledger) == (40, sum(word != 0 for word in text.numbers))


def test_open_answers_are_words_or_none() -> None:
    aggregator = NoisyMaximum(GNMax(0.5), Voters(K, PrivacyParams("inf"), overlap=1), OPEN, 20)
    ledger = opened(kinds="one")
    words = np.tile([7, 12, 99_999], (K, 1)), np.tile([0.2, 0.5, 0.3], (K, 1))
    far = np.full(100_000, 1e-5)
    text = Writer(aggregator, ledger, seed=3).write(lambda _: words, lambda _: far, most=5)
    assert text.numbers == tuple(coordinate_votes(words, 3, step=step)[0] for step in range(1, 6))
    assert ledger.accountant().queries == 5
    apart = np.arange(K)[:, None], np.ones((K, 1))
    text = Writer(aggregator, ledger, seed=3).write(lambda _: apart, lambda _: far, most=5)
    assert [(word.step, word.by_teachers) for word in text.words] == [(step, False) for step in range(6, 11)]


@pytest.mark.slow
def test_texts_end_at_stop_words_and_where_the_budget_does() -> None:
    writer = Writer(CONFIDENT, opened(), seed=3)
    whole = writer.write(agreeing, public, most=20)
    place = whole.numbers.index(whole.numbers[9])
    again = Writer(CONFIDENT, opened(), seed=3).write(agreeing, public, most=20, stop={whole.numbers[9]})
    assert (again.words, again.ended) == (whole.words[: place + 1], STOPPED)
    more = Writer(CONFIDENT, opened(), seed=3).write(
        agreeing, public, most=20, stop={5}, held=[Word(5, 0, by_teachers=True)]
    )
    assert (len(more.words), more.ended) == (1, STOPPED)
    mechanism, ledger = ConfidentGNMax(-60, 12.0, 4.0), opened(epsilon=12)
    text = Writer(mechanism, ledger, seed=3).write(agreeing, public, most=1000)
    assert text.ended == BUDGET
    assert 0 < len(text.words) < 1000
    assert ledger.queries_that_fit(mechanism.answer.privacy_cost(), most=1) == 0
    assert ledger.spent.epsilon <= 12
    assert sum(not word.by_teachers for word in text.words) <= 1  # no check is paid for where no answer can be
    assert paid(ledger)[0] == len(text.words)
    assert Writer(mechanism, ledger, seed=3).write(agreeing, public, most=9) == Text((), BUDGET)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("cut", ["before the check", "before the answer", "after the answer"])
@pytest.mark.parametrize("step", [1, 4])
def test_a_broken_text_goes_on_where_it_was_paid_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cut: str, step: int
) -> None:
    path = tmp_path / "l.sqlite"
    opened(path)
    held: list[Word] = []
    plain, asked = AnswerStream.answer, {"before the check": 2 * step - 1, "before the answer": 2 * step}.get(cut, 0)
    calls = itertools.count(1)

    def dying(self: AnswerStream, votes: Votes, *, question: str = "") -> object:
        if next(calls) == asked:
            raise KeyboardInterrupt
        return plain(self, votes, question=question)

    with monkeypatch.context() as patched:
        patched.setattr(AnswerStream, "answer", dying)
        writer = Writer(CONFIDENT, PrivacyLedger(path), seed=3).words(agreeing, public, (1,), most=6)
        try:
            while len(held) < step - 1:
                held.append(next(writer))
            next(writer)
        except KeyboardInterrupt:
            assert cut != "after the answer"
    del writer
    text = Writer(CONFIDENT, PrivacyLedger(path), seed=3).write(agreeing, public, (1,), most=6, held=held)
    assert text.words == Writer(CONFIDENT, opened(), seed=3).write(agreeing, public, (1,), most=6).words
    assert paid(PrivacyLedger(path)) == (6, 6)
    assert PrivacyLedger(path).undelivered() == ()


def test_a_broken_text_is_taken_up_or_finished_before_another(tmp_path: Path) -> None:
    path = tmp_path / "l.sqlite"
    opened(path)
    first = next(Writer(CONFIDENT, PrivacyLedger(path), seed=3).words(agreeing, public, most=6))
    writer = Writer(CONFIDENT, PrivacyLedger(path), seed=3)
    with pytest.raises(ValueError, match="the text before must be finished, got broken off at step 1"):
        writer.write(agreeing, public, most=2)
    with pytest.raises(ValueError, match="the step of the last word that is held must be 1, as paid for, or the one"):
        writer.write(agreeing, public, most=2, held=[Word(0, 2, by_teachers=True)])
    writer.finish()
    assert writer.write(agreeing, public, most=2).words[0].step == first.step + 1
    assert paid(PrivacyLedger(path)) == (3, 3)


@pytest.mark.parametrize(
    ("laws", "model", "message"),
    [
        (lambda _: np.full((K, V), 1.0), public, "the sum of row 0 of the probabilities must be 1"),
        (lambda _: ([[V]], [[1.0]]), public, f"teachers must be words below {V}"),
        (agreeing, lambda _: [0.5, 0.2], "the sum of row 0 of the probabilities must be 1"),
        (agreeing, lambda _: 1.0, "probabilities must be numbers"),
        (agreeing, lambda _: [1.0], "teachers must be words below 1"),
    ],
)
def test_what_is_no_law_is_refused_and_nothing_paid(laws: Laws, model: Laws, message: str) -> None:
    ledger = opened()
    with pytest.raises(ValueError, match=message):
        Writer(CONFIDENT, ledger, seed=3).write(laws, model, most=3)
    assert paid(ledger) == (0, 0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"most": 0}, "words must be an integer of at least 1, got 0"),
        ({"most": 2.5}, "words must be an integer"),
        ({"teachers": 3}, "teachers must be a function of the words so far, got int"),
        ({"public": None}, "public must be a function"),
        ({"prompt": "text"}, "prompt must be the numbers of words, got str"),
        ({"prompt": None}, "prompt must be the numbers of words, got NoneType"),
        ({"stop": 3}, "stop must be a set of numbers of words, got int"),
        ({"held": [1]}, "held must be words as they came through"),
    ],
)
def test_what_is_no_text_is_refused_at_once(arguments: dict[str, object], message: str) -> None:
    whole = {"teachers": agreeing, "public": public, "most": 2, **arguments}
    with pytest.raises(ValueError, match=message):
        Writer(CONFIDENT, opened(), seed=1).words(**whole)  # type: ignore[arg-type]


def test_other_mechanisms_ledgers_and_seeds_are_refused() -> None:
    with pytest.raises(ValueError, match="mechanism must be ConfidentGNMax, InteractiveGNMax or a NoisyM"):
        Writer(GNMax(4.0), opened(), seed=1)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="the ledger's composition must be renyi or adaptive, got 'one'"):
        Writer(CONFIDENT, opened(kinds="one"), seed=1)
    aggregator = NoisyMaximum(GNMax(4.0), Voters(K, PrivacyParams("inf"), overlap=1), OPEN, 20)
    with pytest.raises(ValueError, match="the ledger's composition must be one or adaptive, got 'renyi'"):
        Writer(aggregator, opened(), seed=1)
    with pytest.raises(ValueError, match="seed must be a whole number or text"):
        Writer(CONFIDENT, opened(), seed=1.5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="ledger must be a PrivacyLedger"):
        Writer(CONFIDENT, "file", seed=1)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="the votes that were kept must be those of one step at least"):
        Writer(CONFIDENT, opened(), seed=1).analysis(1e-5)
    with pytest.raises(ValueError, match="threshold must be at most"):
        Writer(ConfidentGNMax(500, 0.5, 0.5), opened(), seed=1).write(agreeing, public, most=3)


def test_the_private_figure_is_that_of_its_votes() -> None:
    mechanism, ledger = InteractiveGNMax(12, 6.0, 6.0, 0.5), opened()
    writer = Writer(mechanism, ledger, seed=3, keep_votes=True)
    text = writer.write(agreeing, public, most=12)
    with pytest.warns(PrivateFigureWarning):
        found = writer.analysis(1e-5)
    context: list[int] = []
    counts, scores = np.zeros((2, 12, V))
    for row, word in enumerate(text.words):
        counts[row] = np.bincount(coordinate_votes(agreeing(context), 3, step=word.step), minlength=V)
        scores[row, coordinate_votes([public(())], 3, step=word.step)[0]] = 1.0
        context.append(word.word)
    answered = [word.by_teachers for word in text.words]
    votes = Votes.from_counts(counts.astype(int))
    with pytest.warns(PrivateFigureWarning):
        known = analyze(votes, mechanism, 1e-5, answered=answered, scores=scores, check="data-dependent")
    assert found.epsilon == pytest.approx(known.epsilon, rel=1e-12)
    assert found.epsilon < ledger.spent.epsilon


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.2, 0.5])
def test_the_noise_of_a_budget_is_the_least_that_it_pays_for(share: float) -> None:
    total, words, answers = PrivacyParams(3, 1e-6), 200, 50
    by_check, by_answer = noise_for(total, words=words, answers=answers, for_checks=share)

    def admitted(scale: float) -> bool:
        mechanism = ConfidentGNMax(0, scale * by_check, scale * by_answer)
        check = PrivacyCost("a check", renyi=mechanism.check.guarantee, count=words)
        account = PrivacyAccountant(
            costs=[check, mechanism.answer.privacy_cost(answers)], set_aside=DELTA_RESERVE["renyi"]
        )
        return account.spent(1e-6, adaptive=True).epsilon <= 3

    assert admitted(1.0)
    assert not admitted(0.99)
    by_check_alone = by_check**2 * share / words, by_answer**2 * (1 - share) / (2 * answers)
    assert by_check_alone[0] == pytest.approx(by_check_alone[1])  # a check tells a bit of one count, an answer of two
    with pytest.raises(ValueError, match="answers must be"):
        noise_for(total, words=10, answers=11)
    with pytest.raises(ValueError, match="total must be a budget for"):
        noise_for(PrivacyParams("1e-9", 0), words=10, answers=1)


def test_a_course_costs_no_more_than_its_charges() -> None:
    """All data sets of three teachers, two words and two steps, with the votes of the second chosen by the first."""
    voters, sigma, threshold, order = 3, 2.0, 2.0, 4.0
    mechanism = ConfidentGNMax(threshold, sigma, sigma)
    counts = np.array([[voters - ones, ones] for ones in range(voters + 1)])
    passes = np.exp(mechanism.check.log_probabilities(counts.max(axis=1))[0])
    wins = winning_probabilities(DiscreteGaussian(sigma), counts)
    step = np.column_stack([1.0 - passes, passes[:, None] * wins])  # (votes, outcome): public word, teachers' 0, 1
    assert step.sum(axis=1) == pytest.approx(np.ones(voters + 1))
    most = 2.0 * mechanism.check.guarantee.bound_at(order) + 2.0 * mechanism.answer.guarantee.bound_at(order)
    near = [(n, m) for n, m in itertools.product(range(voters + 1), repeat=2) if abs(n - m) <= 1]
    worst = 0.0
    for (n, m), *later in itertools.product(near, repeat=4):
        here = np.concatenate([step[n, i] * step[a] for i, (a, _) in enumerate(later)])
        there = np.concatenate([step[m, i] * step[b] for i, (_, b) in enumerate(later)])
        worst = max(worst, math.log(float((here**order * there ** (1.0 - order)).sum())) / (order - 1.0))
    assert 0.4 * most < worst <= most  # an answer is not paid for where the check fails
