"""Texts by private votes: the source of each word, its cost, resumed texts, and refusals."""

import itertools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

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
CONFIDENT = ConfidentGNMax(20, 0.5, 0.5)  # too little noise to change an answer
INTERACTIVE = InteractiveGNMax(20, 0.5, 0.5, 0.5)
OPEN_SET = NoisyMaximum(GNMax(0.5), Voters(K, PrivacyParams("inf"), overlap=1), OPEN, 20)


def predict_alike(context: Sequence[int]) -> np.ndarray:
    """All teachers have one law, which the last word shifts."""
    law = np.arange(1.0, V + 1.0)
    return np.tile(np.roll(law / law.sum(), context[-1] if context else 0), (K, 1))


def disagree(_: Sequence[int]) -> np.ndarray:
    """Each word is certain to an eighth of the teachers."""
    return np.tile(np.eye(V), (K // V, 1))


def predict_public(_: Sequence[int]) -> np.ndarray:
    return np.full(V, 1.0 / V)


def make_ledger(path: Path | str = ":memory:", epsilon: float = 1e6, composition: str = "renyi") -> PrivacyLedger:
    return PrivacyLedger.create(path, PrivacyParams(epsilon, 1e-5), composition=composition)


def write(
    mechanism: Any = CONFIDENT,
    ledger: Any = None,
    seed: Any = 3,
    teachers: Any = predict_alike,
    public: Any = predict_public,
    prompt: Any = (),
    **settings: Any,
) -> Text:
    writer = Writer(mechanism, make_ledger() if ledger is None else ledger, seed=seed)
    return writer.write(teachers, public, prompt, **({"most": 20} | settings))


def count_charges(ledger: PrivacyLedger) -> tuple[int, int]:
    """Return the numbers of debited checks and answers."""
    counts = {cost.what: cost.count for cost in ledger.accountant().costs}
    checks = sum(count for what, count in counts.items() if "NoisyCheck" in what)
    return checks, sum(counts.values()) - checks


@pytest.mark.slow
def test_teachers_that_agree_choose_each_word() -> None:
    ledger = make_ledger()
    text = write(ledger=ledger)
    context: list[int] = []
    for step, word in enumerate(text.words, 1):
        assert word == Word(coordinate_votes(predict_alike(context), 3, step=step)[0], step, by_teachers=True)
        context.append(word.word)
    assert (text.numbers, text.ended, count_charges(ledger)) == (tuple(context), LENGTH, (20, 20))
    assert str(text) == "20 words, 20 of them by the teachers; ended by length"


def test_teachers_that_disagree_leave_the_word_to_the_public_model() -> None:
    ledger = make_ledger()
    text = write(ledger=ledger, teachers=disagree)
    words = [coordinate_votes([predict_public(())], 3, step=step)[0] for step in range(1, 21)]
    assert text.words == tuple(Word(word, step, by_teachers=False) for step, word in enumerate(words, 1))
    assert count_charges(ledger) == (20, 0)


@pytest.mark.slow
def test_agreement_with_the_public_model_costs_no_answer() -> None:
    ledger = make_ledger()
    text = write(INTERACTIVE, ledger, public=lambda context: predict_alike(context)[0])
    assert text.numbers == write().numbers
    assert count_charges(ledger) == (20, 0)
    ledger = make_ledger()
    assert write(INTERACTIVE, ledger, public=lambda _: np.eye(V)[0]).numbers == text.numbers
    assert count_charges(ledger) == (20, sum(word != 0 for word in text.numbers))


def test_open_set_answers_are_words_of_the_teachers_or_none() -> None:
    ledger = make_ledger(composition="one")
    laws = np.tile([7, 12, 99_999], (K, 1)), np.tile([0.2, 0.5, 0.3], (K, 1))
    uniform = np.full(100_000, 1e-5)
    text = write(OPEN_SET, ledger, teachers=lambda _: laws, public=lambda _: uniform, most=5)
    assert text.numbers == tuple(coordinate_votes(laws, 3, step=step)[0] for step in range(1, 6))
    assert ledger.accountant().queries == 5
    different_words = np.arange(K)[:, None], np.ones((K, 1))
    text = write(OPEN_SET, ledger, teachers=lambda _: different_words, public=lambda _: uniform, most=5)
    assert [(word.step, word.by_teachers) for word in text.words] == [(step, False) for step in range(6, 11)]


@pytest.mark.slow
def test_a_text_ends_at_a_stop_word_or_by_its_length() -> None:
    whole = write()
    first = whole.numbers.index(whole.numbers[9])
    text = write(stop={whole.numbers[9]})
    assert (text.words, text.ended) == (whole.words[: first + 1], STOPPED)
    resumed = write(stop={5}, held=[Word(5, 0, by_teachers=True)])
    assert (len(resumed.words), resumed.ended) == (1, STOPPED)


@pytest.mark.slow
def test_a_text_ends_with_the_budget() -> None:
    mechanism, ledger = ConfidentGNMax(-60, 12.0, 4.0), make_ledger(epsilon=12)
    text = write(mechanism, ledger, most=1000)
    assert text.ended == BUDGET
    assert 0 < len(text.words) < 1000
    assert ledger.queries_that_fit(mechanism.answer.privacy_cost(), most=1) == 0
    assert ledger.spent.epsilon <= 12
    assert sum(not word.by_teachers for word in text.words) <= 1  # without budget for an answer no check is debited
    assert count_charges(ledger)[0] == len(text.words)
    assert write(mechanism, ledger, most=9) == Text((), BUDGET)


@pytest.mark.parametrize("most", [1, 2, 3])
def test_a_text_with_more_held_words_than_requested_ends_by_length(most: int, tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    make_ledger(path)
    writer = Writer(CONFIDENT, PrivacyLedger(path), seed=3)
    words = list(itertools.islice(writer.words(predict_alike, predict_public, most=9), 3))
    text = write(ledger=PrivacyLedger(path), most=most, held=words)
    assert (text.words, text.ended) == (tuple(words), LENGTH)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("interruption", ["before the check", "before the answer", "after the answer"])
@pytest.mark.parametrize("step", [1, 4])
def test_an_interrupted_text_resumes_without_a_second_charge(
    interruption: str, step: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "ledger.sqlite"
    make_ledger(path)
    held: list[Word] = []
    answer, calls = AnswerStream.answer, itertools.count(1)
    last_call = {"before the check": 2 * step - 1, "before the answer": 2 * step}.get(interruption, 0)

    def answer_or_die(stream: AnswerStream, votes: Votes, *, question: str = "") -> object:
        if next(calls) == last_call:
            raise KeyboardInterrupt
        return answer(stream, votes, question=question)

    with monkeypatch.context() as patch:
        patch.setattr(AnswerStream, "answer", answer_or_die)
        words = Writer(CONFIDENT, PrivacyLedger(path), seed=3).words(predict_alike, predict_public, (1,), most=6)
        try:
            while len(held) < step - 1:
                held.append(next(words))
            next(words)  # its word is lost
        except KeyboardInterrupt:
            assert interruption != "after the answer"
    del words
    text = write(ledger=PrivacyLedger(path), prompt=(1,), most=6, held=held)
    assert text.words == write(prompt=(1,), most=6).words
    assert count_charges(PrivacyLedger(path)) == (6, 6)
    assert PrivacyLedger(path).undelivered() == ()


def test_an_interrupted_text_must_be_resumed_or_finished_before_another(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    make_ledger(path)
    first = next(Writer(CONFIDENT, PrivacyLedger(path), seed=3).words(predict_alike, predict_public, most=6))
    writer = Writer(CONFIDENT, PrivacyLedger(path), seed=3)
    with pytest.raises(ValueError, match="broken off at step 1"):
        writer.write(predict_alike, predict_public, most=2)
    with pytest.raises(ValueError, match="the step of the last word that is held must be 1"):
        writer.write(predict_alike, predict_public, most=2, held=[Word(0, 2, by_teachers=True)])
    writer.finish()
    assert writer.write(predict_alike, predict_public, most=2).words[0].step == first.step + 1
    assert count_charges(PrivacyLedger(path)) == (3, 3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"mechanism": GNMax(4.0)}, "mechanism must be ConfidentGNMax, InteractiveGNMax or a NoisyM"),
        ({"mechanism": ConfidentGNMax(500, 0.5, 0.5)}, "threshold must be at most"),
        ({"ledger": make_ledger(composition="one")}, "must be renyi or adaptive, got 'one'"),
        ({"mechanism": OPEN_SET}, "must be one or adaptive, got 'renyi'"),
        ({"ledger": "file"}, "ledger must be a PrivacyLedger"),
        ({"seed": 1.5}, "seed must be a whole number or text"),
        ({"most": 0}, "words must be an integer of at least 1, got 0"),
        ({"most": 2.5}, "words must be an integer"),
        ({"teachers": 3}, "teachers must be a function of the words so far, got int"),
        ({"public": 3}, "public must be a function"),
        ({"prompt": "text"}, "prompt must be the numbers of words, got str"),
        ({"prompt": None}, "prompt must be the numbers of words, got NoneType"),
        ({"stop": 3}, "stop must be a set of numbers of words, got int"),
        ({"held": [1]}, "held must be words as they came through"),
        ({"teachers": lambda _: np.full((K, V), 1.0)}, "the sum of row 0 of the probabilities must be 1"),
        ({"teachers": lambda _: ([[V]], [[1.0]])}, f"teachers must be words below {V}"),
        ({"public": lambda _: [0.5, 0.2]}, "the sum of row 0 of the probabilities must be 1"),
        ({"public": lambda _: 1.0}, "probabilities must be numbers"),
        ({"public": lambda _: [1.0]}, "teachers must be words below 1"),
    ],
)
def test_writer_refuses_wrong_arguments_without_a_charge(arguments: dict[str, Any], message: str) -> None:
    ledger = arguments.get("ledger", make_ledger())
    with pytest.raises(ValueError, match=message):
        write(**{"ledger": ledger, **arguments})
    assert ledger == "file" or count_charges(ledger) == (0, 0)


def test_analysis_is_that_of_the_votes_and_needs_them() -> None:
    mechanism, ledger = InteractiveGNMax(12, 6.0, 6.0, 0.5), make_ledger()
    writer = Writer(mechanism, ledger, seed=3, keep_votes=True)
    with pytest.raises(ValueError, match="votes that were kept must be those of one step at least"):
        writer.analysis(1e-5)
    text = writer.write(predict_alike, predict_public, most=12)
    with pytest.warns(PrivateFigureWarning):
        analysis = writer.analysis(1e-5)
    context: list[int] = []
    counts, scores = np.zeros((2, 12, V))
    for row, word in enumerate(text.words):
        counts[row] = np.bincount(coordinate_votes(predict_alike(context), 3, step=word.step), minlength=V)
        scores[row, coordinate_votes([predict_public(())], 3, step=word.step)[0]] = 1.0
        context.append(word.word)
    answered = [word.by_teachers for word in text.words]
    votes = Votes.from_counts(counts.astype(int))
    with pytest.warns(PrivateFigureWarning):
        expected = analyze(votes, mechanism, 1e-5, answered=answered, scores=scores, check="data-dependent")
    assert analysis.epsilon == pytest.approx(expected.epsilon, rel=1e-12)
    assert analysis.epsilon < ledger.spent.epsilon


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.2, 0.5])
def test_noise_for_finds_the_least_noise_within_a_budget(share: float) -> None:
    total, words, answers = PrivacyParams(3, 1e-6), 200, 50
    check_noise, answer_noise = noise_for(total, words=words, answers=answers, for_checks=share)

    def is_within_budget(scale: float) -> bool:
        mechanism = ConfidentGNMax(0, scale * check_noise, scale * answer_noise)
        check = PrivacyCost("a check", renyi=mechanism.check.guarantee, count=words)
        account = PrivacyAccountant(
            costs=[check, mechanism.answer.privacy_cost(answers)], set_aside=DELTA_RESERVE["renyi"]
        )
        return account.spent(1e-6, adaptive=True).epsilon <= 3

    assert is_within_budget(1.0)
    assert not is_within_budget(0.99)
    # a check depends on one count, an answer on two
    assert check_noise**2 * share / words == pytest.approx(answer_noise**2 * (1 - share) / (2 * answers))
    with pytest.raises(ValueError, match="answers must be"):
        noise_for(total, words=10, answers=11)
    with pytest.raises(ValueError, match="total must be a budget for"):
        noise_for(PrivacyParams("1e-9", 0), words=10, answers=1)


def test_two_adaptive_steps_cost_no_more_than_their_charges() -> None:
    """Enumerate three teachers, two words and two steps; the first outcome chooses the votes of the second step."""
    mechanism, order, voters = ConfidentGNMax(2.0, 2.0, 2.0), 4.0, range(4)
    counts = np.array([[3 - ones, ones] for ones in voters])
    passes = np.exp(mechanism.check.log_probabilities(counts.max(axis=1))[0])
    wins = winning_probabilities(DiscreteGaussian(2.0), counts)
    step = np.column_stack([1.0 - passes, passes[:, None] * wins])  # (votes, outcome): public word, teachers' 0, 1
    assert step.sum(axis=1) == pytest.approx(np.ones(4))
    charge = 2.0 * (mechanism.check.guarantee.bound_at(order) + mechanism.answer.guarantee.bound_at(order))
    neighbors, worst = [(n, m) for n, m in itertools.product(voters, voters) if abs(n - m) <= 1], 0.0
    for (n, m), *later in itertools.product(neighbors, repeat=4):
        law = np.concatenate([step[n, i] * step[a] for i, (a, _) in enumerate(later)])
        other = np.concatenate([step[m, i] * step[b] for i, (_, b) in enumerate(later)])
        worst = max(worst, math.log(float((law**order * other ** (1.0 - order)).sum())) / (order - 1.0))
    assert 0.4 * charge < worst <= charge  # a failed check costs no answer
