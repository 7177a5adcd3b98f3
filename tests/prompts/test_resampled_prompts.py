"""Resampled prompts: the exact laws of their draws, and the votes of answers that fail."""

import math
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from fractions import Fraction
from typing import Any

import joblib
import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_flow

from darrm import PrivacyParams, Voters
from darrm.numerics.exact_sampling import UniformBelow
from darrm.prompts import ResampledPrompts, resampled_prompts
from darrm.subsampling import Subsampling

HALF = Fraction(1, 2)
Law = dict[Any, Fraction]


class Script:
    """A source of uniform draws that replays digits, and draws 0 after the last of them."""

    def __init__(self, digits: list[int]) -> None:
        self.digits, self.limits = digits, list[int]()

    def __call__(self, limits: np.ndarray) -> np.ndarray:
        first = len(self.limits)
        self.limits += limits.tolist()
        self.digits += [0] * (len(self.limits) - len(self.digits))
        return np.array(self.digits[first : len(self.limits)], dtype=limits.dtype)


def enumerate_law(run: Callable[[Script], Any]) -> Law:
    """Compute the exact law of an outcome of uniform draws, by all of their sequences."""
    law, digits = defaultdict[Any, Fraction](Fraction), list[int]()
    while True:
        script = Script(digits)
        outcome = run(script)
        assert len(script.digits) == len(script.limits)
        law[outcome] += Fraction(1, math.prod(script.limits))
        digits = script.digits
        while digits and digits[-1] == script.limits[len(digits) - 1] - 1:
            digits.pop()
        if not digits:
            assert sum(law.values()) == 1
            return dict(law)
        digits[-1] += 1


def condition(law: Law, is_drawn: bool) -> tuple[Law, Fraction]:
    """Return the law of the prompts given whether a person is drawn, and the probability of that."""
    mass = sum((p for (drawn, _), p in law.items() if drawn == is_drawn), Fraction(0))
    return {prompts: p / mass for (drawn, prompts), p in law.items() if drawn == is_drawn}, mass


def differ_by_one(law: Law, other: Law) -> bool:
    """Return whether a coupling exists with at most one different prompt: a flow of one whole [Strassen]."""
    one = math.lcm(*(p.denominator for p in (*law.values(), *other.values())))
    capacity = np.zeros((len(law) + len(other) + 2,) * 2, dtype=np.int32)
    capacity[0, 1 : len(law) + 1] = [p * one for p in law.values()]
    capacity[len(law) + 1 : -1, -1] = [p * one for p in other.values()]
    for i, prompts in enumerate(law, 1):
        for j, others in enumerate(other, len(law) + 1):
            capacity[i, j] = one * (sum(a != b for a, b in zip(prompts, others, strict=True)) <= 1)
    return bool(maximum_flow(csr_array(capacity), 0, len(capacity) - 1).flow_value == one)


def compute_law_of_prompts(prompts: ResampledPrompts, person: int) -> Law:
    """Compute the joint law of whether a person is drawn, and of the examples of the prompts, in order."""
    assign_prompts, drawn = prompts._assign_prompts, set[int]()

    def assign_and_note(below: UniformBelow) -> Iterable[tuple[int, int]]:
        assignment = list(assign_prompts(below))
        drawn.clear()
        drawn.update(drawn_person for drawn_person, _ in assignment)
        return assignment

    def run(script: Any) -> tuple[bool, tuple[tuple[str, ...], ...]]:
        examples = tuple(map(tuple, prompts.draw(rng=script)))
        return person in drawn, examples

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(resampled_prompts, "uniform_below", lambda script: script)
        patch.setattr(prompts, "_assign_prompts", assign_and_note)
        return enumerate_law(run)


@pytest.mark.parametrize(("n", "rate"), [(0, HALF), (1, HALF), (5, HALF), (3, Fraction(2, 3))])
def test_poisson_sampling_draws_and_assigns_each_person_independently(n: int, rate: Fraction) -> None:
    prompts = ResampledPrompts(range(n), rate=rate, voters=3)
    law = enumerate_law(lambda below: frozenset(prompts._assign_prompts(below)))
    assert len(law) == 4**n
    assert all(p == (rate / 3) ** len(drawn) * (1 - rate) ** (n - len(drawn)) for drawn, p in law.items())


@pytest.mark.parametrize(("owners", "cap"), [("abc", None), ("bacd", 1), ("abac", 1), ("abbc", 2), ("b", 1)])
def test_a_person_who_joins_changes_one_prompt(owners: str, cap: int | None) -> None:
    # the theorem for the person b; the name of an example contains that of its owner
    laws = []
    for people in (owners, owners.replace("b", "")):
        examples = [f"{person}{people[:place].count(person)}" for place, person in enumerate(people)]
        prompts = ResampledPrompts(examples, rate=HALF, voters=3, examples_each=cap, people=list(people))
        laws.append(compute_law_of_prompts(prompts, list(dict.fromkeys(people)).index("b") if "b" in people else -1))
    (A, without), (B, q) = condition(laws[0], is_drawn=False), condition(laws[0], is_drawn=True)
    assert without == q == HALF
    assert condition(laws[1], is_drawn=False)[0] == A
    assert differ_by_one(A, B)


@pytest.mark.parametrize(("size", "K", "cap"), [(2, 3, None), (3, 2, None), (3, 2, 1), (4, 2, None)])
def test_a_person_who_is_replaced_changes_one_prompt(size: int, K: int, cap: int | None) -> None:
    laws = []
    for name in "xy":
        prompts = ResampledPrompts(["a", name, "b", "c"], size=size, voters=K, examples_each=cap)
        law = compute_law_of_prompts(prompts, 1)
        assert all(sum(map(len, examples)) == size for _, examples in law) or cap
        laws.append(law)
    B, q = condition(laws[0], is_drawn=True)
    other = condition(laws[1], is_drawn=True)[0]
    assert q == Fraction(size, 4) == prompts._sampling.rate
    assert differ_by_one(B, other)
    if size < 4:
        A = condition(laws[0], is_drawn=False)[0]
        assert condition(laws[1], is_drawn=False)[0] == A
        assert differ_by_one(A, B)
        assert differ_by_one(A, other)


def test_every_order_of_a_sample_is_equally_likely() -> None:
    law = enumerate_law(lambda below: tuple(resampled_prompts._draw_order(4, 2, below)))
    assert law == {(i, j): Fraction(1, 12) for i in range(4) for j in range(4) if i != j}
    capped = ResampledPrompts(["a", "b", "c"], rate=1, voters=1, examples_each=2)
    assert list(compute_law_of_prompts(capped, 0).values()) == [Fraction(1, 6)] * 6


def test_a_cap_limits_each_prompt_and_large_denominators_are_exact() -> None:
    prompts = ResampledPrompts(range(1000), rate=1, voters=3, examples_each=20)
    assert [len(set(examples)) for examples in prompts.draw()] == [20, 20, 20]  # fewer with probability below 1e-100
    drawn = ResampledPrompts(range(100), rate=1 - Fraction(1, 2**64), voters=3).draw()
    assert sorted(example for examples in drawn for example in examples) == list(range(100))


def test_draws_use_the_operating_system_or_a_given_generator() -> None:
    prompts, draws = ResampledPrompts(range(400), rate="0.5"), []
    for _ in range(2):
        np.random.seed(0)  # noqa: NPY002 (it must not matter)
        draws.append(prompts.draw())
    assert draws[0] != draws[1]
    assert prompts.draw(rng=np.random.default_rng(1)) == prompts.draw(rng=np.random.default_rng(1))
    with pytest.raises(ValueError, match="rng must be a generator"):
        prompts.draw(rng=7)  # type: ignore[arg-type]


@pytest.mark.parametrize("people", [[1, 1.0, np.int64(1), True], ["ann", np.str_("ann")] * 2, np.array(["a"] * 4)])
def test_equal_names_are_one_person_and_equal_examples_are_not(people: Any) -> None:
    prompts = ResampledPrompts(np.eye(4), rate=1, voters=500, people=people)
    assert sorted(map(len, prompts.draw()))[-2:] == [0, 4]
    assert ResampledPrompts([["text"]] * 4, size=4, voters=4).draw() == [[["text"]]] * 4


def test_voters_carry_the_sampling() -> None:
    poisson, fixed = Subsampling(Fraction("0.004")), Subsampling(Fraction(2, 3), "fixed")
    assert ResampledPrompts([], rate="0.004").voters == Voters(10, PrivacyParams("inf"), overlap=1, sampled=poisson)
    assert ResampledPrompts(["abcd"] * 4, size=2, voters=5, people=[1, 1, 2, 3]).voters.sampled == fixed
    assert "secret" not in repr(ResampledPrompts(["secret"], rate=1))


class FailingAnswer:
    """An answer that fails for odd examples, a number of times for each prompt, and empties its list."""

    def __init__(self, failures: float = math.inf, wrong: Any = None) -> None:
        self.failures, self.wrong, self.prompts = failures, wrong, list[tuple[int, ...]]()

    def __call__(self, examples: list[int], question: str) -> Any:
        assert question == "?"
        numbers = tuple(examples)
        self.prompts.append(numbers)
        examples.clear()
        if any(number % 2 for number in numbers) and self.prompts.count(numbers) <= self.failures:
            if self.wrong is None:
                raise ConnectionError(numbers)
            return self.wrong
        return 1

    def answer_batch(self, prompts: list[tuple[list[int], str]]) -> list[Any]:
        return [self(*prompt) for prompt in prompts]


class CountedPrompts(ResampledPrompts):
    draws = 0

    def draw(self, *, rng: Any = None) -> list[list[Any]]:
        self.draws += 1
        return super().draw(rng=rng)


@pytest.mark.parametrize("wrong", [None, "yes", 2, [1], np.array([1, 0]), math.nan, Decimal("sNaN")])
@pytest.mark.parametrize("batched", [False, True])
def test_a_failed_prompt_is_asked_again_with_the_same_examples_and_then_missing(wrong: Any, batched: bool) -> None:
    prompts, answer = CountedPrompts(range(4), size=4, voters=4), FailingAnswer(wrong=wrong)
    function = answer.answer_batch if batched else answer
    votes = prompts.votes(["?", "?"], function, retries=3, trial=False, batched=batched)
    assert votes.missing is not None
    assert (votes.counts.tolist(), votes.missing.tolist()) == ([[0, 2]] * 2, [2, 2])
    assert prompts.draws == 2  # one for each question, none for a failure
    counts = Counter(answer.prompts)
    assert {examples for examples, count in counts.items() if count >= 6} == {(1,), (3,)}
    assert len(counts) == 4


@pytest.mark.parametrize(("failures", "missing"), [(2, 0), (3, 1)])
@pytest.mark.parametrize("batched", [False, True])
def test_the_answer_of_the_last_attempt_counts(batched: bool, failures: int, missing: int) -> None:
    answer = FailingAnswer(failures)
    function = answer.answer_batch if batched else answer
    votes = ResampledPrompts([1], rate=1, voters=1).votes(["?"], function, batched=batched, trial=False, jobs=1)
    assert votes.counts.sum() == 1 - missing


@pytest.mark.parametrize("retries", [0, 2])
def test_a_failed_batch_costs_its_prompts_neither_votes_nor_attempts(retries: int) -> None:
    batches: list[list[int]] = []

    def answer(batch: list[tuple[list[int], str]]) -> list[int]:
        batches.append([examples[0] for examples, _ in batch])
        if batches[-1] == [3] or len(batch) > 1:
            raise ConnectionError
        return [1 if batches.count([example]) > retries else 7 for example in batches[-1]]  # at the last attempt

    votes = ResampledPrompts(range(4), size=4, voters=4).votes(
        ["?"], answer, batched=True, retries=retries, trial=False, jobs=1
    )
    assert votes.counts.tolist() == [[0, 3]]


def test_a_batch_of_the_wrong_length_is_asked_one_by_one() -> None:
    prompts = ResampledPrompts(range(4), size=4, voters=4)
    votes = prompts.votes(["?"], lambda batch: [1] * (len(batch) == 1), batched=True)
    assert votes.counts.tolist() == [[0, 4]]


def weigh(examples: list[int], question: int) -> int:
    return sum(examples, question) % 3


def weigh_batch(prompts: list[tuple[list[int], int]]) -> Iterator[int]:
    return (weigh(*prompt) for prompt in prompts)


def count_votes(answer: Callable[..., Any] = weigh, **settings: Any) -> list[list[int]]:
    prompts = ResampledPrompts(range(99), 3, rate="0.3", voters=7)
    return prompts.votes(range(20), answer, rng=np.random.default_rng(5), **settings).counts.tolist()


def test_threads_and_batches_give_the_votes_of_one_process() -> None:
    expected = count_votes(jobs=1)
    with joblib.parallel_config(backend="threading", n_jobs=3):
        assert count_votes() == count_votes(jobs=2) == count_votes(weigh_batch, batched=True) == expected
    assert len({tuple(row) for row in expected}) > 5
    # Dask hashes its tasks
    assert hash(resampled_prompts._PromptTask(weigh, batched=False, retries=0, codes={0: 0}))


@pytest.mark.slow
def test_processes_and_clusters_give_the_votes_of_one_process() -> None:
    distributed = pytest.importorskip("distributed")

    def weigh_by_value(examples: list[int], question: int) -> int:  # workers cannot import the tests
        return sum(examples, question) % 3

    expected = count_votes(jobs=1)
    assert count_votes(weigh_by_value, jobs=2) == expected
    cluster = distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0")
    with cluster, distributed.Client(cluster), joblib.parallel_config(backend="dask"):
        assert count_votes(weigh_by_value) == expected


def test_the_trial_raises_errors_before_any_person_is_drawn() -> None:
    prompts = CountedPrompts([1], ("no", "yes"), rate=1, voters=1)
    examples_of_calls: list[Any] = []

    def answer_offline(examples: list[int], question: str) -> str:
        examples_of_calls.append(examples)
        raise ConnectionError(f"no answer to {question}")

    with pytest.raises(ConnectionError, match="no answer to one"):
        prompts.votes(["one", "two"], answer_offline, jobs=1)
    with pytest.raises(ValueError, match="what answer returns must be a class, 'no', 'yes', got 'Yes'"):
        prompts.votes(["one"], lambda *_: "Yes", jobs=1)
    with pytest.raises(ValueError, match="must be one for each of 1, got 2 labels"):
        prompts.votes(["one"], lambda _: ["no"] * 2, jobs=1, batched=True)
    assert not prompts.draws
    assert examples_of_calls == [[]] * 4
    votes = prompts.votes(["one", "two"], lambda examples, _: "yes" if examples else None, jobs=1)
    assert (votes.counts.tolist(), votes.missing) == ([[0, 1]] * 2, None)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rate": 0}, "the sampling rate must be in"),
        ({"rate": Subsampling(HALF, "fixed")}, "rate must be a finite number"),
        ({}, "rate or size must be one of the two, got none"),
        ({"rate": 1, "size": 1}, "rate or size must be one of the two, got both"),
        ({"size": 0}, "size must be an integer of at least 1"),
        ({"size": 4}, "size must be an integer of at most 3, got 4: of 3 people"),
        ({"size": 3, "people": "aab"}, "people must be of shape"),
        ({"size": 3, "people": list("aab")}, "size must be an integer of at most 2"),
        ({"rate": 1, "people": ["a", None, "b"]}, "people must be without missing values"),
        ({"rate": 1, "voters": 0}, "K must be an integer of at least 1"),
        ({"rate": 1, "examples_each": 0}, "examples_each must be an integer of at least 1"),
        ({"rate": 1, "classes": 1}, "classes must be an integer of at least 2"),
        ({"rate": 1, "examples": "abc"}, "examples must be a list, got str"),
        ({"rate": 1, "examples": {"a", "b"}}, "examples must be a list, got set"),
        ({"rate": 1, "examples": {"a": 1}}, "examples must be a list, got dict"),
        ({"size": 1, "examples": []}, "size must be an integer of at most 0"),
    ],
)
def test_resampled_prompts_refuses_wrong_settings(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as refusal:
        ResampledPrompts(**{"examples": [1, 2, 3], **settings})
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"answer": "yes"}, "answer must be a function, got str"),
        ({"questions": "one"}, r"questions must be a list, got str: .* of one question \[question\]"),
        ({"questions": iter("ab")}, "questions must be a list"),
        ({"retries": -1}, "retries must be an integer of at least 0"),
    ],
)
def test_votes_refuses_wrong_arguments_without_a_draw(arguments: dict[str, Any], message: str) -> None:
    prompts = CountedPrompts([1, 2, 3], rate=1)
    with pytest.raises(ValueError, match=message):
        prompts.votes(**{"questions": ["?"], "answer": lambda *_: 1, **arguments})
    assert not prompts.draws
    assert prompts.votes([], lambda *_: 1).counts.shape == (0, 2)


def test_prompts_need_no_torch_and_joblib_only_for_several_jobs() -> None:
    script = """if True:
        import sys
        sys.modules["torch"] = sys.modules["joblib"] = None
        from darrm.prompts import ResampledPrompts
        prompts = ResampledPrompts([1], rate=1)
        print(prompts.votes([2], lambda examples, question: 1, jobs=1).counts.tolist())
        try:
            prompts.votes([2], lambda examples, question: 1)
        except ValueError as error:
            print(error)"""
    process = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    votes, advice = process.stdout.splitlines()
    assert votes == "[[0, 10]]"
    assert "joblib" in advice
