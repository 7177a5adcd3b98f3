"""Privacy amplification when prompts resample their private examples for each question.

K prompts each hold a few private examples and the question. A language model or another learner answers them, and a
mechanism releases the most frequent answer. Two samplers choose the people for a question:

* *poisson* (``rate=q``): an exact coin selects each person independently; a uniform draw assigns the prompt.
* *fixed* (``size=n``): n of N people in uniformly random order, q = n/N. Place i belongs to prompt i mod K.

All examples of a selected person enter one prompt; of more than ``examples_each`` it keeps a uniform sample.

*Theorem.* Let an answer depend only on its prompt, the question and independent randomness. Then the votes on a
question have the law (1 − q)A + qB, and a coupling of A and B exists with all votes but one equal. *Poisson:* A is the
law without the person. *Fixed:* A is the law given that the person is not selected. If another person replaces them in
the data, the law is (1 − q)A + qB', and A, B and B' pairwise differ by one vote.

*Proof.* *Poisson.* Couple the draws of all other people. If the person is not selected, the prompts equal those without
the person. Otherwise an independent draw assigns the person to one prompt, and the other prompts do not change.
*Fixed.* The order is uniform over all ordered samples. Given that the person has place i, the other n − 1 places are a
uniform ordered sample of the N − 1 other people, for any person: B and B'. Replace the person at place i by a
uniform draw from the people who were not selected: the result is a uniform ordered sample without the person, A. Only
prompt i mod K differs. *Both.* Each prompt's subset, order and answer depend on that prompt alone. ∎

*Why people are not dealt in turn.* In K equal parts of a Poisson sample, one additional person shifts everybody after
them. Even after a shuffle another person moves to another prompt, and a second vote changes.

*Why a failed call is a missing vote.* A failure depends on one prompt only, as an answer does (`darrm.votes`), and the
same prompt may be asked again. Redrawing the *sample* after a failure would break the proof: a person whose example
breaks calls would never be selected. For the same reason, do not act on the number of missing votes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from darrm.numerics.exact_sampling import UniformBelow, uniform_below
from darrm.privacy import Number, PrivacyParams, exact_number
from darrm.problem import Voters
from darrm.subsampling import Subsampling
from darrm.util import checks
from darrm.util.extras import Untyped, require
from darrm.util.people import identify_persons
from darrm.votes import Classes, Votes, class_names

Prompt = tuple[list[Untyped], Untyped]  # private examples, and a question

_MISSING = -1  # index of the last column of the counts
_MAX_DENOMINATOR = 2**62


class ResampledPrompts:
    """K prompts that resample their private examples for each question, by the operating system's randomness.

    Parameters
    ----------
    examples
        N examples of any type.
    classes
        The public classes, as in `Votes.from_labels`.
    rate
        q in (0, 1], the probability of selecting a person, like ``"0.004"``. Neighbors add or remove one person.
    size
        Instead of ``rate``: the number of selected people. Neighbors replace one person; the number of people is
        public.
    voters
        K, the number of prompts; as an attribute, the `Voters` for plans and accounts.
    examples_each
        Largest number of examples in a prompt; None keeps all selected examples.
    people
        (N,) identifier of each example's person; by default each example has a different person.

    Examples
    --------
    >>> notes = [("the parcel is late", "bad"), ("thank you", "good")] * 500
    >>> prompts = ResampledPrompts(notes, ("bad", "good"), rate="0.004", voters=10, examples_each=4)
    >>> def answer(examples, question):
    ...     return "good"
    >>> prompts.votes(["it came early"], answer, jobs=1)
    Votes(1 queries to 10 voters, classes bad, good; from labels)
    """

    def __init__(
        self,
        examples: Iterable[object],
        classes: Classes = None,
        *,
        rate: Number | None = None,
        size: int | None = None,
        voters: int = 10,
        examples_each: int | None = None,
        people: Untyped = None,
    ) -> None:
        self._examples = _check_list("examples", examples)
        self._classes = class_names(2 if classes is None else classes)
        records: dict[object, list[int]] = {}
        for index, person in enumerate(identify_persons(len(self._examples), people, "people")):
            records.setdefault(person, []).append(index)
        self._records = list(records.values())  # of each person
        if examples_each is not None:
            checks.integer_at_least(1, examples_each=examples_each, advice="or None for all that were drawn")
        self._max_examples, self._size = examples_each, size
        if rate is not None and size is None:
            self._sampling = Subsampling(exact_number("rate", rate))
        elif size is not None and rate is None:
            checks.integer_at_least(1, most=len(records), size=size, advice=f"of {len(records):,} people")
            self._sampling = Subsampling(Fraction(int(size), len(records)), "fixed")
        else:
            advice = "rate='0.004' draws each person with this probability, size=40 draws 40 people"
            checks.fail("rate or size", checks.Text("both" if rate is not None else "none"), "one of the two", advice)
        self.voters = Voters(voters, PrivacyParams("inf"), overlap=1, sampled=self._sampling)

    def draw(self, *, rng: np.random.Generator | None = None) -> list[list[Untyped]]:
        """Draw the private examples of each of the K prompts for **one** question: draw once per question.

        >>> [len(examples) for examples in ResampledPrompts(range(100), size=12, voters=5).draw()]
        [3, 3, 2, 2, 2]
        """
        below = uniform_below(rng)
        prompts: list[list[Untyped]] = [[] for _ in range(self.voters.K)]
        for person, prompt in self._assign_prompts(below):
            prompts[prompt] += [self._examples[record] for record in self._records[person]]
        return [[examples[i] for i in _draw_order(len(examples), self._max_examples, below)] for examples in prompts]

    def _assign_prompts(self, below: UniformBelow) -> Iterable[tuple[int, int]]:
        people, K = len(self._records), self.voters.K
        if self._size is not None:
            return [(person, index % K) for index, person in enumerate(_draw_order(people, self._size, below))]
        denominator, rate = self._sampling.rate.denominator, self._sampling.rate
        limits = np.full(people, denominator, dtype=np.int64 if denominator <= _MAX_DENOMINATOR else object)
        selected = np.flatnonzero(below(limits) < rate.numerator)
        return zip(selected.tolist(), below(np.full(selected.size, K)).tolist(), strict=True)

    def votes(
        self,
        questions: Iterable[object],
        answer: Callable[..., Untyped],
        *,
        batched: bool = False,
        retries: int = 2,
        jobs: int | None = None,
        trial: bool = True,
        rng: np.random.Generator | None = None,
    ) -> Votes:
        """Ask K prompts each of Q questions, with new examples for each; the number of missing votes is private.

        Parameters
        ----------
        questions
            (Q,) of any type.
        answer
            ``answer(examples, question)`` returns a class; ``examples`` may be empty. It must not read other private
            data or keep state. An exception, None or an unknown class, after all retries, is a missing vote.
        batched
            If true, ``answer([(examples, question), …])`` returns K classes, each of one prompt only. Prompts without a
            vote are asked again one by one.
        retries
            Number of further attempts per prompt, with the same examples.
        jobs
            joblib's threads or processes; None takes joblib's configuration, 1 runs without joblib.
        trial
            Ask the first question without examples before sampling: its error is public and propagates (`ValueError` if
            it returns no class). Later errors are private and do not.
        rng
            None draws from the operating system. A generator is for experiments only.
        """
        if not callable(answer):
            checks.fail("answer", checks.Text(type(answer).__name__), "a function", "say answer(examples, question)")
        checks.integer_at_least(0, retries=retries)
        question_list, classes, K = _check_list("questions", questions), self._classes, self.voters.K
        task = _PromptTask(answer, batched, int(retries), {name: code for code, name in enumerate(classes)})
        if trial and question_list:
            task.try_out(question_list[0])
        prompt_lists = ([(examples, question) for examples in self.draw(rng=rng)] for question in question_list)
        batches = prompt_lists if batched else ([prompt] for prompts in prompt_lists for prompt in prompts)
        if jobs == 1:
            answers = [task(prompts) for prompts in batches]
        else:
            joblib = require("joblib")
            answers = joblib.Parallel(n_jobs=jobs)(joblib.delayed(task)(prompts) for prompts in batches)
        codes = np.array([code for batch in answers for code in batch], dtype=np.int64).reshape(len(question_list), K)
        counts = np.zeros((len(question_list), len(classes) + 1), dtype=np.int64)
        np.add.at(counts, (np.arange(len(question_list))[:, None], codes), 1)
        return Votes(counts[:, :_MISSING], K, classes, "labels", counts[:, _MISSING])


@dataclass(frozen=True, eq=False)  # Dask hashes callables
class _PromptTask:
    """Worker task: ask prompts for class indices, `_MISSING` for no vote."""

    answer: Callable[..., Untyped]
    batched: bool
    retries: int
    codes: dict[object, int]

    def __call__(self, prompts: list[Prompt]) -> list[int]:
        """Ask prompts together, then each without a vote alone, ``retries`` times; a failed batch is no attempt."""
        codes = self._ask_once(prompts)
        if codes is None and len(prompts) > 1:
            return [code for prompt in prompts for code in self([prompt])]
        codes = codes or [_MISSING]
        for i, prompt in enumerate(prompts):
            for _ in range(self.retries):
                if codes[i] == _MISSING:
                    codes[i] = (self._ask_once([prompt]) or [_MISSING])[0]
        return codes

    def _ask_once(self, prompts: list[Prompt]) -> list[int] | None:
        """Ask prompts once; an exception is private, so return None for it."""
        try:
            return [self._find_code(label) for label in self._collect_labels(prompts)]
        except (Exception, SystemExit):  # noqa: BLE001 (of any library)
            return None

    def _collect_labels(self, prompts: list[Prompt]) -> list[object]:
        copies = [(list(examples), question) for examples, question in prompts]  # ``answer`` may change its list
        labels = list(self.answer(copies)) if self.batched else [self.answer(*prompt) for prompt in copies]
        if len(labels) != len(prompts):
            checks.fail("what answer returns", checks.Text(f"{len(labels)} labels"), f"one for each of {len(prompts)}")
        return labels

    def _find_code(self, label: Untyped) -> int:
        try:
            return self.codes.get(label, _MISSING)
        except (Exception, SystemExit):  # noqa: BLE001 (a list has no hash, and comparing arrays raises)
            return _MISSING

    def try_out(self, question: Untyped) -> None:
        """Ask without examples, so that errors contain no private data and can propagate."""
        if self([([], question)]) == [_MISSING]:
            [label] = self._collect_labels([([], question)])
            if label is not None and self._find_code(label) == _MISSING:
                names = ", ".join(map(repr, list(self.codes)[:5]))
                checks.fail("what answer returns", label, f"a class, {names}", "or None for no vote")


def _check_list(name: str, values: Iterable[Untyped]) -> list[Untyped]:
    is_list = hasattr(values, "__getitem__") and not isinstance(values, str | bytes | Mapping)
    if not is_list or hasattr(values, "columns"):
        advice = "of a table its rows, of one question [question]"
        checks.fail(name, checks.Text(type(values).__name__), "a list", advice)
    return list(values)


def _draw_order(n: int, max_count: int | None, below: UniformBelow) -> list[int]:
    values: dict[int, int] = {}  # partial Fisher–Yates: current values at changed positions
    order = []
    for i, step in enumerate(below(np.arange(n, 0 if max_count is None else max(n - max_count, 0), -1)).tolist()):
        order.append(values.get(i + step, i + step))
        values[i + step] = values.get(i, i)
    return order
