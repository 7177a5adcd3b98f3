"""Prompts that are drawn anew: their exact laws, and what is done where an answer fails."""

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
    """A source of uniform draws that replays digits, and draws 0 where there are none left."""

    def __init__(self, digits: list[int]) -> None:
        self.digits, self.limits = digits, list[int]()

    def __call__(self, limits: np.ndarray) -> np.ndarray:
        first = len(self.limits)
        self.limits += limits.tolist()
        self.digits += [0] * (len(self.limits) - len(self.digits))
        return np.array(self.digits[first : len(self.limits)], dtype=limits.dtype)


def law_of(run: Callable[[Script], Any]) -> Law:
    """The exact law of what is made from uniform draws: every sequence of them."""
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


def conditional(law: Law, is_drawn: bool) -> tuple[Law, Fraction]:
    """The law of the prompts given whether a person is drawn, and with which probability it is so."""
    mass = sum((p for (drawn, _), p in law.items() if drawn == is_drawn), Fraction(0))
    return {prompts: p / mass for (drawn, prompts), p in law.items() if drawn == is_drawn}, mass


def differ_by_one(law: Law, other: Law) -> bool:
    """Whether both can be drawn together so that one prompt at most differs: a flow of one whole [Strassen]."""
    one = math.lcm(*(p.denominator for p in (*law.values(), *other.values())))
    capacity = np.zeros((len(law) + len(other) + 2,) * 2, dtype=np.int32)
    capacity[0, 1 : len(law) + 1] = [p * one for p in law.values()]
    capacity[len(law) + 1 : -1, -1] = [p * one for p in other.values()]
    for i, prompts in enumerate(law, 1):
        for j, others in enumerate(other, len(law) + 1):
            capacity[i, j] = one * (sum(a != b for a, b in zip(prompts, others, strict=True)) <= 1)
    return bool(maximum_flow(csr_array(capacity), 0, len(capacity) - 1).flow_value == one)


def law_of_prompts(prompts: ResampledPrompts, person: int, patch: pytest.MonkeyPatch) -> Law:
    """The law of whether a person is drawn, and of what the prompts hold, in order."""
    patch.setattr(resampled_prompts, "uniform_below", lambda script: script)
    seats, drawn = prompts._assign_prompts, set[int]()

    def noted(below: UniformBelow) -> Iterable[tuple[int, int]]:
        seated = list(seats(below))
        drawn.clear()
        drawn.update(place for place, _ in seated)
        return seated

    patch.setattr(prompts, "_assign_prompts", noted)

    def run(script: Any) -> tuple[bool, tuple[tuple[str, ...], ...]]:
        held = tuple(map(tuple, prompts.draw(rng=script)))
        return person in drawn, held

    return law_of(run)


@pytest.mark.parametrize(("n", "rate"), [(0, HALF), (1, HALF), (5, HALF), (3, Fraction(2, 3))])
def test_everybody_is_drawn_and_seated_alone(n: int, rate: Fraction) -> None:
    law = law_of(lambda below: frozenset(ResampledPrompts(range(n), rate=rate, voters=3)._assign_prompts(below)))
    assert len(law) == 4**n
    assert all(p == (rate / 3) ** len(seats) * (1 - rate) ** (n - len(seats)) for seats, p in law.items())


@pytest.mark.parametrize(("owners", "cap"), [("abc", None), ("bacd", 1), ("abac", 1), ("abbc", 2), ("b", 1)])
def test_a_person_who_joins_changes_one_prompt(owners: str, cap: int | None) -> None:
    # the theorem for the person b; examples are named after whose they are
    laws = []
    for people in (owners, owners.replace("b", "")):
        examples = [f"{person}{people[:place].count(person)}" for place, person in enumerate(people)]
        prompts = ResampledPrompts(examples, rate=HALF, voters=3, examples_each=cap, people=list(people))
        with pytest.MonkeyPatch.context() as patch:
            laws.append(law_of_prompts(prompts, list(dict.fromkeys(people)).index("b") if "b" in people else -1, patch))
    (A, without), (B, q) = conditional(laws[0], is_drawn=False), conditional(laws[0], is_drawn=True)
    assert without == q == HALF
    assert conditional(laws[1], is_drawn=False)[0] == A
    assert differ_by_one(A, B)


@pytest.mark.parametrize(("size", "K", "cap"), [(2, 3, None), (3, 2, None), (3, 2, 1), (4, 2, None)])
def test_a_person_who_is_replaced_changes_one_prompt(size: int, K: int, cap: int | None) -> None:
    laws = []
    for name in "xy":
        prompts = ResampledPrompts(["a", name, "b", "c"], size=size, voters=K, examples_each=cap)
        with pytest.MonkeyPatch.context() as patch:
            law = law_of_prompts(prompts, 1, patch)
        assert all(sum(map(len, held)) == size for _, held in law) or cap
        laws.append(law)
    B, q = conditional(laws[0], is_drawn=True)
    other = conditional(laws[1], is_drawn=True)[0]
    assert q == Fraction(size, 4) == prompts._sampling.rate
    assert differ_by_one(B, other)
    if size < 4:
        A = conditional(laws[0], is_drawn=False)[0]
        assert conditional(laws[1], is_drawn=False)[0] == A
        assert differ_by_one(A, B)
        assert differ_by_one(A, other)


def test_a_part_is_drawn_in_every_order_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    law = law_of(lambda below: tuple(resampled_prompts._draw_order(4, 2, below)))
    assert law == {(i, j): Fraction(1, 12) for i in range(4) for j in range(4) if i != j}
    of_one_prompt = law_of_prompts(ResampledPrompts(["a", "b", "c"], rate=1, voters=1, examples_each=2), 0, monkeypatch)
    assert list(of_one_prompt.values()) == [Fraction(1, 6)] * 6


def test_the_cap_is_of_one_prompt_and_none_is_lost_below_it() -> None:
    prompts = ResampledPrompts(range(1000), rate=1, voters=3, examples_each=20)
    assert [len(set(held)) for held in prompts.draw()] == [20, 20, 20]  # fewer with probability below 1e-100
    everybody = ResampledPrompts(range(100), rate=1 - Fraction(1, 2**64), voters=3).draw()
    assert sorted(example for held in everybody for example in held) == list(range(100))


def test_draws_are_the_operating_systems_unless_a_generator_is_given() -> None:
    prompts = ResampledPrompts(range(400), rate="0.5")
    np.random.seed(0)  # noqa: NPY002 (this is what must not matter)
    first = prompts.draw()
    np.random.seed(0)  # noqa: NPY002 (as above)
    assert prompts.draw() != first
    assert prompts.draw(rng=np.random.default_rng(1)) == prompts.draw(rng=np.random.default_rng(1))
    with pytest.raises(ValueError, match="rng must be a generator"):
        prompts.draw(rng=7)  # type: ignore[arg-type]


ANN = np.str_("ann")


@pytest.mark.parametrize("people", [[1, 1.0, np.int64(1), True], ["ann", ANN, ANN, "ann"], np.array(["a"] * 4)])
def test_equal_names_are_one_person_however_they_are_typed(people: Any) -> None:
    prompts = ResampledPrompts(np.eye(4), rate=1, voters=500, people=people)
    assert sorted(map(len, prompts.draw()))[-2:] == [0, 4]


def test_the_same_example_twice_is_two_people_unless_it_is_said_otherwise() -> None:
    example = ["text"]
    assert ResampledPrompts([example] * 4, size=4, voters=4).draw() == [[example]] * 4


def test_voters_are_what_was_drawn() -> None:
    poisson, fixed = Subsampling(Fraction("0.004")), Subsampling(Fraction(2, 3), "fixed")
    assert ResampledPrompts([], rate="0.004").voters == Voters(10, PrivacyParams("inf"), overlap=1, sampled=poisson)
    assert ResampledPrompts(["abcd"] * 4, size=2, voters=5, people=[1, 1, 2, 3]).voters.sampled == fixed
    assert "secret" not in repr(ResampledPrompts(["secret"], rate=1))


class Failing:
    """An answer that fails so often where there is an odd number, notes what it was asked, and empties its list."""

    def __init__(self, failures: float = math.inf, wrong: Any = None) -> None:
        self.failures, self.wrong, self.asked = failures, wrong, list[tuple[int, ...]]()

    def __call__(self, examples: list[int], question: str) -> Any:
        assert question == "?"
        numbers = tuple(examples)
        self.asked.append(numbers)
        examples.clear()
        if any(number % 2 for number in numbers) and self.asked.count(numbers) <= self.failures:
            if self.wrong is None:
                raise ConnectionError(numbers)
            return self.wrong
        return 1

    def together(self, prompts: list[tuple[list[int], str]]) -> list[Any]:
        return [self(*prompt) for prompt in prompts]


class Counted(ResampledPrompts):
    draws = 0

    def draw(self, *, rng: Any = None) -> list[list[Any]]:
        self.draws += 1
        return super().draw(rng=rng)


@pytest.mark.parametrize("wrong", [None, "yes", 2, [1], np.array([1, 0]), math.nan, Decimal("sNaN")])
@pytest.mark.parametrize("batched", [False, True])
def test_what_fails_is_asked_again_alike_and_then_missing(wrong: Any, batched: bool) -> None:
    prompts, answer = Counted(range(4), size=4, voters=4), Failing(wrong=wrong)
    votes = prompts.votes(["?", "?"], answer.together if batched else answer, retries=3, trial=False, batched=batched)
    assert votes.missing is not None
    assert (votes.counts.tolist(), votes.missing.tolist()) == ([[0, 2]] * 2, [2, 2])
    assert prompts.draws == 2  # never for a failure
    asked = Counter(answer.asked)
    assert {examples for examples, times in asked.items() if times >= 6} == {(1,), (3,)}
    assert len(asked) == 4


@pytest.mark.parametrize(("batched", "failures", "missing"), [(False, 2, 0), (False, 3, 1), (True, 2, 0), (True, 3, 1)])
def test_an_answer_at_the_last_try_counts(batched: bool, failures: int, missing: int) -> None:
    answer = Failing(failures)
    prompts = ResampledPrompts([1], rate=1, voters=1)
    votes = prompts.votes(["?"], answer.together if batched else answer, batched=batched, trial=False, jobs=1)
    assert votes.counts.sum() == 1 - missing


@pytest.mark.parametrize("retries", [0, 2])
def test_a_prompt_that_fails_its_batch_costs_the_others_neither_votes_nor_tries(retries: int) -> None:
    asked: list[list[int]] = []

    def answer(batch: list[tuple[list[int], str]]) -> list[int]:
        asked.append([examples[0] for examples, _ in batch])
        if asked[-1] == [3] or len(batch) > 1:
            raise ConnectionError
        return [1 if asked.count([example]) > retries else 7 for example in asked[-1]]  # at the last try

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


def weigh_together(prompts: list[tuple[list[int], int]]) -> Iterator[int]:
    return (weigh(*prompt) for prompt in prompts)


def test_threads_answer_what_one_process_answers() -> None:
    prompts = ResampledPrompts(range(99), 3, rate="0.3", voters=7)

    def counts(answer: Callable[..., Any] = weigh, **how: Any) -> list[list[int]]:
        return prompts.votes(range(20), answer, rng=np.random.default_rng(5), **how).counts.tolist()

    alone = counts(jobs=1)
    with joblib.parallel_config(backend="threading", n_jobs=3):
        assert counts() == counts(jobs=2) == counts(weigh_together, batched=True) == alone
    assert len({tuple(row) for row in alone}) > 5


def test_what_is_sent_to_workers_can_be_hashed_as_dask_does() -> None:
    assert hash(resampled_prompts._PromptTask(weigh, batched=False, retries=0, codes={0: 0}))


@pytest.mark.slow
def test_processes_and_clusters_answer_what_one_process_answers() -> None:
    distributed = pytest.importorskip("distributed")
    prompts = ResampledPrompts(range(99), 3, rate="0.3", voters=7)

    def counts(**how: Any) -> list[list[int]]:
        return prompts.votes(range(20), weigh_elsewhere, rng=np.random.default_rng(5), **how).counts.tolist()

    def weigh_elsewhere(examples: list[int], question: int) -> int:  # sent by value: workers cannot import tests
        return sum(examples, question) % 3

    alone = counts(jobs=1)
    assert counts(jobs=2) == alone
    local = distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0")
    with local, distributed.Client(local), joblib.parallel_config(backend="dask"):
        assert counts() == alone


def test_the_trial_raises_what_is_wrong_before_anybody_is_drawn() -> None:
    prompts = Counted([1], ("no", "yes"), rate=1, voters=1)
    asked: list[Any] = []

    def offline(examples: list[int], question: str) -> str:
        asked.append(examples)
        raise ConnectionError(f"no answer to {question}")

    with pytest.raises(ConnectionError, match="no answer to one"):
        prompts.votes(["one", "two"], offline, jobs=1)
    with pytest.raises(ValueError, match="what answer returns must be a class, 'no', 'yes', got 'Yes'"):
        prompts.votes(["one"], lambda *_: "Yes", jobs=1)
    with pytest.raises(ValueError, match="must be one for each of 1, got 2 labels"):
        prompts.votes(["one"], lambda _: ["no"] * 2, jobs=1, batched=True)
    assert not prompts.draws
    assert asked == [[]] * 4
    votes = prompts.votes(["one", "two"], lambda examples, _: "yes" if examples else None, jobs=1)
    assert (votes.counts.tolist(), votes.missing) == ([[0, 1]] * 2, None)


@pytest.mark.parametrize(
    ("how", "complaint"),
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
        ({"rate": 1, "examples": 3}, "examples must be a list, got int"),
        ({"size": 1, "examples": []}, "size must be an integer of at most 0"),
    ],
)
def test_what_is_no_sampling_is_refused_in_one_line(how: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint) as caught:
        ResampledPrompts(**{"examples": [1, 2, 3], **how})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("how", "complaint"),
    [
        ({"answer": "yes"}, "answer must be a function, got str"),
        ({"questions": "one"}, r"questions must be a list, got str: .* of one question \[question\]"),
        ({"questions": iter("ab")}, "questions must be a list"),
        ({"retries": -1}, "retries must be an integer of at least 0"),
    ],
)
def test_what_is_no_question_is_refused_in_one_line(how: dict[str, Any], complaint: str) -> None:
    prompts = Counted([1, 2, 3], rate=1)
    with pytest.raises(ValueError, match=complaint):
        prompts.votes(**{"questions": ["?"], "answer": lambda *_: 1, **how})
    assert not prompts.draws
    assert prompts.votes([], lambda *_: 1).counts.shape == (0, 2)


def test_prompts_need_no_torch_and_in_one_process_no_joblib() -> None:
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
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    votes, advice = done.stdout.splitlines()
    assert votes == "[[0, 10]]"
    assert "joblib" in advice
