"""Answer questions that arrive one by one: each answer is drawn, debited and kept before it is handed out.

The answers on one ledger that belong together are a *stream*, numbered from 1 across processes. One transaction debits
a question's label, keeps it, and drops the previous one, which the question acknowledges.

*Theorem.* A stream is a `Destination` of `darrm.release.delivery`, and no number is paid for twice or has two labels.
*Proof.* (i) Nothing is handed out before the debit. (ii) A label that was handed out stays in the ledger until the
caller asks a further question or closes the stream. (iii) After a crash the ledger's label is handed out again. The
debit compares, under the ledger's lock, the stream's last entry with the one that this process counted on; if another
process answered meanwhile, it debits nothing. So the entries of a stream are a chain, and each entry's numbers begin
where the previous one's end. ∎ `tests/release/test_kills.py` guards it.

Callers match answers to questions by number: after a crash the next question is the one after `AnswerStream.answered`.

**Adaptivity.** The next question, and their number, may depend on all labels before it: every bound of the accountant
holds for adaptively chosen queries of one kind, and a stream that ends early has spent no more than one that exhausts
the budget. So compositions ``one``, ``renyi`` and ``adaptive`` pay for streams, and ``planned`` does not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import TracebackType
from typing import Self

from numpy.typing import ArrayLike

from darrm.aggregator import Aggregator
from darrm.errors import BudgetExceededError
from darrm.ledger.ledger import PrivacyLedger
from darrm.problem import is_open
from darrm.release.delivery import StreamDestination, check_aggregator, check_by_query, check_ledger, deliver
from darrm.table.release import Release
from darrm.table.table import Table
from darrm.util import checks
from darrm.util.extras import Untyped
from darrm.votes import Classes, Votes


def open_release(
    table: Table | Aggregator, ledger: PrivacyLedger, *, stream: str = "", classes: Classes = None, note: str = ""
) -> AnswerStream:
    """Open a stream of answers to questions that arrive one by one, or continue it.

    The ledger has composition ``one``, ``renyi`` or ``adaptive``. ``stream`` is printable text: the name of the stream,
    if several share a ledger. ``classes`` are as in `Votes.from_labels`.

    `ValueError` for a bad argument; `LedgerError` if the ledger cannot be read.

    Examples
    --------
    >>> from darrm import Problem, PrivacyParams, Voters, certify
    >>> from darrm.majority import baselines
    >>> problem = Problem.from_allowance(Voters(3, PrivacyParams(0.1)), 3)
    >>> table = certify(problem, baselines.double_subsampling(problem))
    >>> ledger = PrivacyLedger.create(":memory:", PrivacyParams(1))
    >>> with open_release(table, ledger) as release:
    ...     print(release.answer([1, 1, 0]), list(release.answers([[0, 0, 1], [1, 1, 1]])), release.left())
    1 [0, 1] 0
    """
    if isinstance(table, Table):
        table = Release(table)
    return AnswerStream(table, ledger, stream=stream, classes=classes, note=note)


class AnswerStream(StreamDestination):
    """Answers questions one by one, made by `open_release`; as a context it is closed at the end of a block.

    If an exception ends the block, the last label stays in the ledger and is handed out again. ``answered`` is the
    number of the last answered question.
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
        if ledger.composition == "planned":
            advice = "use another ledger: the number of a stream's questions is not fixed beforehand"
            checks.fail("the ledger's composition", ledger.composition, "one, renyi or adaptive", advice)
        super().__init__(ledger, stream)
        self.ledger, self._aggregator, self._note = ledger, aggregator, note
        self._charge, self._classes = aggregator.privacy_cost(1), classes
        self._is_open = is_open(getattr(aggregator, "classes", None))

    def waiting(self) -> list[Untyped]:
        """Hand out the labels of the last questions, up to ``answered``, that an earlier process did not acknowledge.

        Call this before the first question.
        """
        labels: list[Untyped] = [] if self.unclaimed is None else self.unclaimed.tolist()
        if self._is_open:
            labels = [label or None for label in labels]
        self.unclaimed = None
        self.hand_out(labels)
        return labels

    @contextmanager
    def prepare(self, votes: Votes) -> Iterator[None]:
        del votes
        if self.unclaimed is not None:
            advice = "they were paid for before: take them by waiting()"
            checks.fail("the labels that wait", self.unclaimed.size, "taken before the next question", advice)
        yield

    def left(self, *, most: int = 1_000_000) -> int:
        """Count how many more questions the budget admits, up to ``most``."""
        return self.ledger.queries_that_fit(self._charge, most=most)

    def answer(self, votes: Votes | ArrayLike, *, question: str = "") -> Untyped:
        """Answer one question: return the name of a class, which the ledger keeps until the next question, or `close`.

        ``votes`` are (K,) answers, or `Votes` on one query. ``question`` is a public id for the ledger's log: at most
        `LONGEST_ID` printable characters.

        `ValueError` (bad votes or id, labels wait, another process answers), `BudgetExceededError` and `LedgerError`
        debit nothing. After a `DeliveryError` the label waits in the ledger.
        """
        if not isinstance(votes, Votes):
            row: Untyped = votes
            votes = Votes.from_answers([row]) if self._is_open else Votes.from_labels([row], self._classes)
        if votes.queries != 1:
            checks.fail("votes", checks.Text(f"{votes.queries} queries"), "on one question")
        return self.answer_together(votes, (question,) if question else ())[0]

    def answers(self, questions: Iterable[Votes | ArrayLike]) -> Iterator[Untyped]:
        """Answer questions lazily: take the next one after the caller takes the label. See `answer`."""
        for votes in questions:
            yield self.answer(votes)

    def answer_together(self, votes: Votes, questions: tuple[str, ...] = ()) -> list[Untyped]:
        """Answer the first of these questions that the budget admits, with one debit; errors as `answer`."""
        while True:
            self.cursor = replace(self.cursor, questions=questions)
            try:
                labels = deliver(self._aggregator, votes, self.ledger, self, note=self._note, cost=self._charge)
            except BudgetExceededError as error:  # the drawn labels are discarded
                if not error.queries_that_fit:
                    raise
                votes, questions = votes[: error.queries_that_fit], questions[: error.queries_that_fit]
            else:
                return list(labels.tolist())

    def close(self) -> None:
        """Acknowledge the last label: it leaves the ledger. The stream can be opened again."""
        if self.cursor.after and self.unclaimed is None:
            self.ledger.forget_labels(self.cursor.after)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error_type is None:
            self.close()
