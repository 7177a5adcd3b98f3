"""Answers to questions that arrive one by one: each is drawn, paid for and kept before it is handed out.

The answers on one ledger that belong together are a *stream*. They are numbered from 1, whoever draws them: a process
that is killed, and the next one, count on in the same ledger. A question acknowledges the answer before it: one
transaction debits its label, keeps it, and drops the one before, and is all that a question waits for.

*Why a stream is a sink* (`darrm.release.delivery`). (i) Nothing is handed out before the debit. (ii) A label that was
handed out stays in the ledger until the caller asks a further question, or closes the stream; (iii) after a death it is
handed out again, as it is kept there. *No number is paid for twice, and none has two labels:* the debit compares, under
the ledger's lock, the stream's last entry with the one that this process counted on; if another process took the turn,
it debits nothing. So the entries of a stream are a chain, and the numbers of an entry begin where those of the one
before end. ∎

Nothing is kept of the votes; of a question its id, where it has one, which is public. That a label is the answer to
*this* question is said by its number: whoever asks numbers questions from 1 in the same order, and asks next what
`OneByOne.answered` says is not answered yet.

**Adaptivity.** The next question may depend on all labels before it, and so may the number of questions. All of them
are queries of one kind, whose cost holds for whatever votes, and every bound of the accountant holds for adaptively
chosen queries of one kind; a stream that ends early has spent no more than one that went on up to the budget. So a
ledger of kinds ``one`` pays for streams, and one of kinds ``renyi`` or ``adaptive``, on which a stream may go on with
another table. One of ``planned`` kinds does not: its numbers of queries were fixed before the first answer, and that of
a stream is not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

from numpy.typing import ArrayLike

from darrm.account.ledger import PrivacyLedger
from darrm.aggregator import Aggregator
from darrm.errors import BudgetExceededError, checks
from darrm.mechanisms.release import Release
from darrm.problem import is_open
from darrm.proof.table import Table
from darrm.release.delivery import Delivery, StreamSink, check_aggregator, check_by_query, check_ledger
from darrm.system.extras import Untyped
from darrm.votes import Classes, Labels, Votes


def open_release(
    table: Table | Aggregator,
    ledger: PrivacyLedger,
    *,
    stream: str = "",
    classes: Classes = None,
    note: str = "",
) -> OneByOne:
    """Open a stream of answers to questions that arrive one by one, or go on with it.

    Parameters
    ----------
    table
        A proven table, or what releases, like ``Release(table)``.
    ledger
        What pays, of kinds ``one``, ``renyi`` or ``adaptive``.
    stream
        The name of the stream, where several share a ledger.
    classes
        What the classes are called, or their number, as in `Votes.of_labels`.
    note
        The caller's words for the ledger's log.

    Returns
    -------
    release
        Answers questions; see `OneByOne`.

    Raises
    ------
    ValueError
        If ``table`` releases nothing, ``ledger`` is none or is for planned kinds, or the name is no printable text.
    LedgerError
        If the ledger cannot be read.

    Examples
    --------
    >>> from darrm import Problem, PrivacyParams, Voters, certify
    >>> from darrm.laws import baselines
    >>> problem = Problem.from_allowance(Voters(3, PrivacyParams(0.1)), 3)
    >>> table = certify(problem, baselines.double_subsampling(problem))
    >>> ledger = PrivacyLedger.create(":memory:", PrivacyParams(1))
    >>> with open_release(table, ledger) as release:
    ...     print(release.answer([1, 1, 0]), list(release.answers([[0, 0, 1], [1, 1, 1]])), release.left())
    1 [0, 1] 0
    """
    if isinstance(table, Table):
        table = Release(table)
    return OneByOne(table, ledger, stream=stream, classes=classes, note=note)


class OneByOne(StreamSink):
    """Answers questions one by one, made by `open_release`; as a context it is closed at the end of a block.

    A block that ends by an exception leaves the last label in the ledger, to be handed out again.
    """

    def __init__(
        self,
        aggregator: Aggregator,
        ledger: PrivacyLedger,
        *,
        stream: str = "",
        classes: Classes = None,
        note: str = "",
    ) -> None:
        check_ledger(ledger)
        check_aggregator(aggregator)
        check_by_query(aggregator)
        if ledger.kinds == "planned":
            advice = "the number of a stream's questions is not fixed before the first answer; make a ledger of its own"
            checks.fail("the ledger's kinds", ledger.kinds, "one, renyi or adaptive", advice)
        super().__init__(ledger, stream)
        self._charge, self._classes = aggregator.charge(1), classes
        self._is_open = is_open(getattr(aggregator, "classes", None))
        self._delivery = Delivery(aggregator, ledger, note, cost=self._charge)

    @property
    def ledger(self) -> PrivacyLedger:
        """What pays."""
        return self._delivery.ledger

    @property
    def answered(self) -> int:
        """How many questions of the stream are answered: the number of the last one."""
        return self.paid_for

    def waiting(self) -> list[Any]:
        """Hand out the labels that an earlier process paid for, and whose receipt nobody acknowledged.

        They answer the last questions, up to number `answered`; before it was called nothing further is answered.
        """
        labels: list[Any] = [] if self.unclaimed is None else self.unclaimed.tolist()
        if self._is_open:
            labels = [label or None for label in labels]
        self.unclaimed = None
        if labels:
            self.hand_out(labels)
        return labels

    @contextmanager
    def prepared(self) -> Iterator[Callable[[Labels], None]]:
        """Yield what hands labels out, with their numbers."""
        if self.unclaimed is not None:
            advice = "they were paid for before: take them by waiting()"
            checks.fail("the labels that wait", self.unclaimed.size, "taken before the next question", advice)

        def hand_over(labels: Labels) -> None:
            self.paid_for += labels.size
            self.hand_out(labels.tolist())

        yield hand_over

    def hand_out(self, labels: list[Any]) -> None:
        """Hand out the labels of the last questions, up to number `answered`; here they are returned."""

    def left(self, *, most: int = 1_000_000) -> int:
        """Count how many more questions the budget admits, up to ``most``."""
        return self.ledger.queries_that_fit(self._charge, most=most)

    def answer(self, votes: Votes | ArrayLike, *, question: str = "") -> Untyped:
        """Answer one question; asking acknowledges the label before.

        Parameters
        ----------
        votes
            (K,) what each voter says, or `Votes` on one query.
        question
            What it is called, which the ledger's log keeps: public, at most `LONGEST_ID` printable characters.

        Returns
        -------
        label
            The name of a class. The ledger keeps it until the next question, or `close`.

        Raises
        ------
        ValueError
            If these are no votes on one question that the aggregator takes, ``question`` is none that a log can show,
            labels wait (`waiting`), or another process answers the stream; nothing is debited.
        BudgetExceededError
            If the budget does not admit the question; nothing is debited.
        LedgerError
            If the ledger cannot be written; nothing is debited.
        PaidError
            If anything failed, or was interrupted, after the debit: the label waits in the ledger.
        """
        row: Any = votes
        if not isinstance(row, Votes):
            row = Votes.of_answers([row]) if self._is_open else Votes.of_labels([row], self._classes)
        given: Votes = row
        if given.queries != 1:
            checks.fail("votes", checks.Found(f"{given.queries} queries"), "on one question")
        return self.answer_together(given, (question,) if question else ())[0]

    def answers(self, questions: Iterable[Votes | ArrayLike]) -> Iterator[Any]:
        """Answer questions as they come: each is asked for when the label before was taken. See `answer`."""
        for votes in questions:
            yield self.answer(votes)

    def answer_together(self, votes: Votes, questions: tuple[str, ...] = ()) -> list[Any]:
        """Answer questions that are there already, with one debit for all: as many of them as the budget admits.

        ``questions`` are their ids, or none. Returns their labels, the first one's first; errors are those of `answer`.
        """
        while True:
            self.turn = replace(self.turn, questions=questions)
            try:
                labels = self._delivery.deliver(votes, self)
            except BudgetExceededError as error:  # for so many; what was drawn for them nobody saw
                if not error.queries_that_fit:
                    raise
                votes, questions = votes[: error.queries_that_fit], questions[: error.queries_that_fit]
            else:
                return list(labels.tolist())

    def close(self) -> None:
        """Acknowledge the last label: it leaves the ledger. The stream can be opened again."""
        if self.turn.after and self.unclaimed is None:
            self.ledger.forget_labels(self.turn.after)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
