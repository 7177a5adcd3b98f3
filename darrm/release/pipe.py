"""Questions on standard input, answers on standard output, one a line: the pipe around `darrm.release.one_by_one`.

A question is a line of votes, as in a .csv file of votes, or a JSON array. An answer is a line ``number,label``, or a
JSON object. Numbers are those of the stream: they go on where an earlier process stopped.

Lines that have arrived together are answered together, with one debit: a program that waits for each answer gets one
transaction a question, and one that sends ahead is not slowed down by the disk. Nothing is waited for. Each batch is
checked, drawn, debited, written in one piece and, where the output is a file, synced. The next batch drops its labels
from the ledger.

*What the two ends may rely on.* No question is paid for twice, and no number has two labels. An answer can be printed
twice, with the same number and label: the last batch, where the process was killed before the next one was paid for. An
answer is lost only where its reader dies with it unread in the pipe after a further line was sent, which says that the
reader needs it no more. So who waits for each answer before the next question loses none, whatever is killed. The end
of the questions says it for the last ones where the output is a file. A program that is killed ends its questions, too:
into a pipe, a socket or a terminal it counts as said where nothing is unread and a reader is there a moment later.
"""

import csv
import fcntl
import json
import os
import select
import stat
import termios
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypedDict, TypeVar, Unpack

from darrm.account.ledger import check_id, reason_of
from darrm.errors import BudgetExceededError, PaidError, checks
from darrm.problem import is_open
from darrm.release.one_by_one import OneByOne
from darrm.system.answers import Vocabulary
from darrm.system.extras import Untyped
from darrm.system.vote_arrays import check_open, class_names, words_of
from darrm.system.votes_file import ABSENT, LONGEST_LINE, OR_A_COIN, lines_of, meanings, quoted
from darrm.votes import Votes

MOST_TOGETHER = 64  # questions of one debit: as many may be printed again after a death
_READ_BYTES = 2**16
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_SHOWN = 40  # characters of a vote in a message
_TAKEN_WITHIN = 200  # milliseconds, for whoever is killed to let go of both ends of its pipes
T = TypeVar("T")


class VoteReading(TypedDict, total=False):
    """How `Questions` takes votes."""

    missing: str  # ``refuse``, ``coin`` or ``blank``, as in `Votes.of_labels` and `of_answers`
    normalize: str | None  # what is done to open answers before they are counted, as in `Votes.of_answers`


class Questions:
    """Reads questions from a file descriptor, all that are there, and waits only where none is.

    They are of K voters on so many classes, or classes of these names, or "open"; ``votes_format`` is ``labels``,
    ``counts``, or ``auto``: the number of fields says it. A line is a JSON array of numbers and strings with
    ``json_lines``, and its first field the public id of its question with ``ids``. `ValueError` if ``votes_format`` is
    ``auto`` and there are as many voters as classes, or, with ids, one more.
    """

    def __init__(
        self,
        source: int,
        voters: int,
        classes: int | tuple[str, ...],
        votes_format: str,
        *,
        json_lines: bool,
        ids: bool = False,
        **reading: Unpack[VoteReading],
    ) -> None:
        missing, self._normalize = reading.get("missing", "refuse"), reading.get("normalize")
        check_open(classes, votes_format, missing, self._normalize)
        self._is_open = is_open(classes)
        self._source, self._voters, self._ids = source, voters, ids
        self._fields = (
            partial(_json_fields, absent=missing == "coin" or is_open(classes)) if json_lines else _csv_fields
        )
        self._names = () if self._is_open else class_names(classes)
        words = None if isinstance(classes, int) else words_of(self._names)
        places = None if words is None else {word: place for place, word in enumerate(words)}
        self._places = {"labels": places, "counts": None}
        self._known: dict[str, dict[str, float]] = {"labels": dict(places or {}), "counts": {}}
        C = len(self._names)
        self._missing, self._absent = (
            missing,
            [word for word in ABSENT if missing == "coin" and word not in self._names],
        )
        # labels whose id was forgotten may be an id and counts; of two classes they do not add up to K
        if votes_format == "auto" and not self._is_open and (voters == C or (ids and voters == C + 1 > 3)):
            found = checks.Found(f"auto, with {voters} voters and {C} classes")
            checks.fail("--votes-format", found, "labels or counts", "a line of votes looks like either")
        kinds = {"labels": voters} if self._is_open else {"labels": voters, "counts": C}
        self._kinds = {width: kind for kind, width in kinds.items() if votes_format in {"auto", kind}}
        self._buffer, self._searched, self._ended, self._read = bytearray(), 0, False, 0
        self._texts = lines_of(self)  # type: ignore[arg-type]  # it needs no more of a file than its lines

    @property
    def _is_there(self) -> bool:
        place = self._buffer.find(b"\n", self._searched)
        self._searched = len(self._buffer) if place < 0 else place
        return place >= 0 or (self._ended and bool(self._buffer))

    def readline(self, _: int) -> str:
        """Return the next line as it stands there; empty at the end."""
        while not self._is_there and not self._ended:
            if len(self._buffer) > LONGEST_LINE:
                raise ValueError(f"line {self._read + 1} has more than {LONGEST_LINE:,} bytes")
            read = _wait_to(lambda: os.read(self._source, _READ_BYTES), reading=self._source)
            self._buffer += read
            self._ended = not read
        if self._read == 0 and self._buffer.startswith(_BYTE_ORDER_MARK):
            del self._buffer[: len(_BYTE_ORDER_MARK)]
            self._searched = 0
        end = self._buffer.find(b"\n", 0) + 1 or len(self._buffer)
        line = self._buffer[:end].decode("utf-8", "surrogateescape")
        del self._buffer[:end]
        self._searched = 0
        return line

    def next_line(self) -> str:
        """Wait for a line and return it; empty at the end. `ValueError` if it is no text."""
        text = next(self._texts, "")
        self._read += 1 if text else 0
        return text

    def batch(self) -> tuple[list[tuple[Votes, str]], ValueError | None]:
        """Wait for a question; return the votes on all that are there, with their ids, and what is wrong with the next.

        Both are empty at the end, and an id where lines have none.
        """
        batch: list[tuple[Votes, str]] = []
        try:
            while not batch or (len(batch) < MOST_TOGETHER and self._is_there):
                text = self.next_line()
                if not text:
                    break
                batch.append(self._question(text))
        except ValueError as error:
            said = f"{error} (nothing was paid for it; the questions before it are answered)"
            return batch, ValueError(said)
        return batch, None

    def _question(self, text: str) -> tuple[Votes, str]:
        fields = self._fields(self._read, text)
        question = fields.pop(0).strip() if self._ids else ""
        if self._ids:
            check_id(f"line {self._read}: the id of the question", question)
        return self._votes_of(self._read, fields), question

    def _votes_of(self, line: int, fields: list[str]) -> Votes:
        kind = self._kinds.get(len(fields))
        if kind is None:
            each = {"labels": "votes, one of each voter", "counts": "counts, one of each class"}
            allowed = " or ".join(f"{width} {each[kind]}" for width, kind in self._kinds.items())
            after = " after its id" if self._ids else ""
            few = len(fields) < self._voters in self._kinds
            advice = f"; a voter that does not answer keeps its field: {OR_A_COIN}" if few else ""
            raise ValueError(f"line {line} has {len(fields)} fields{after}, where a question has {allowed}{advice}")
        if self._is_open:
            vocabulary = Vocabulary(self._normalize, self._missing)
            return Votes.of_places(vocabulary.places_of([(line, fields)], "line", "field"), vocabulary)
        absent = {"", *self._absent} if self._missing == "coin" and kind == "labels" else set()
        if absent.issuperset(field.strip() for field in fields):
            raise ValueError(f"line {line} has no vote at all: leave the question out")
        known = self._known[kind]
        try:
            row = [known[field] for field in fields]
        except KeyError:  # a field that was not seen before
            row = self._meanings(line, fields, kind)
        try:
            if kind == "counts":
                return Votes.of_counts([row], self._voters, self._names)
            return Votes.of_labels([row], len(self._names), missing=self._missing).called(self._names)
        except ValueError as error:
            raise ValueError(f"line {line}: {error}") from error

    def _meanings(self, line: int, fields: list[str], kind: str) -> list[float]:
        try:
            absent = self._absent if kind == "labels" else ()
            return meanings(line, fields, self._known[kind], self._places[kind], absent)
        except ValueError as error:
            advice = "; JSON arrays are read with --format json" if fields[0].lstrip()[:1] == "[" else ""
            raise ValueError(f"{error}{advice}") from error


def _csv_fields(line: int, text: str) -> list[str]:
    """Return the fields of a line of a .csv file; what has no end may be cut off, even within a number."""
    if not text.endswith(("\n", "\r")):
        advice = "end it with a line break if all of it was sent"
        raise ValueError(f"line {line} has no end and may have been cut off: {advice}")
    try:
        fields = next(csv.reader([text], strict=True))
    except csv.Error as error:
        raise ValueError(f"line {line}: {error}") from error
    return fields or _blank(line)


def _json_fields(line: int, text: str, *, absent: bool) -> list[str]:
    """Return the fields of a line that is a JSON array: strings, and numbers as they are spelled; null may be empty."""
    if not text.strip():
        _blank(line)
    try:
        row = json.loads(text, parse_int=str, parse_float=str, parse_constant=_constant)
    except (ValueError, RecursionError) as error:
        said = str(error) if isinstance(error, ValueError) else "too deep a nest"
        raise ValueError(f"line {line} is no JSON ({said}): a question is an array of votes, like [0,1,1]") from error
    if not isinstance(row, list):
        advice = "a question is an array of votes, like [0,1,1]"
        raise ValueError(f"line {line} is no JSON array: {advice}")  # noqa: TRY004 (bad input)
    for place, vote in enumerate(row, 1):
        if vote is None and absent:
            row[place - 1] = ""
            continue
        if vote is None:
            advice = f"every voter must answer every query, so leave other queries out, or {OR_A_COIN}"
            raise ValueError(f"line {line}, field {place}: the vote is missing (null or NaN): {advice}")
        if not isinstance(vote, str):
            advice = "write a number, or the name of a class in quotes"
            shown = json.dumps(vote)[:_SHOWN]
            raise ValueError(f"line {line}, field {place}: {shown} is no vote: {advice}")  # noqa: TRY004 (bad input)
    return row


def _constant(name: str) -> str | None:
    """Read NaN, which is a missing vote, and infinities, which are none."""
    return None if name == "NaN" else name


def _blank(line: int) -> list[str]:
    raise ValueError(f"line {line} is blank: every line is a query")


class Pipe(OneByOne):
    """A stream whose answers are lines ``number,label``, or JSON objects, written where ``end`` leads.

    Files and devices have no reader; pipes, sockets and terminals have one that can die.
    """

    def __init__(self, end: int, *opened: Untyped, json_lines: bool = False, **named: Untyped) -> None:
        super().__init__(*opened, **named)
        self._end, self._line_of = end, _json_line if json_lines else _csv_line

    def hand_out(self, labels: list[Any]) -> None:
        """Write the labels of the last questions, durably where they go to a file."""
        first = self.answered - len(labels) + 1
        try:
            for piece in _pieces([self._line_of(number, label) for number, label in enumerate(labels, first)]):
                _write(self._end, piece)
            if stat.S_ISREG(os.fstat(self._end).st_mode):
                os.fsync(self._end)
        except BaseException as error:
            which = f"answer {first} is" if len(labels) == 1 else f"answers {first} to {self.answered} are"
            again = "paid for and kept in the ledger: start again, and what is kept comes first"
            raise PaidError(self.ledger.path, f"{reason_of(error)}; {which} {again}") from error

    def has_gone(self, milliseconds: int = 0) -> bool:
        """Return whether nobody reads a pipe any more, or soon."""
        poll = select.poll()
        poll.register(self._end, 0)
        return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(milliseconds))

    def close_if_read(self) -> None:
        """Acknowledge the last labels, unless they stand unread, or their reader went with the asker."""
        mode = os.fstat(self._end).st_mode
        unread = termios.FIONREAD if stat.S_ISFIFO(mode) else termios.TIOCOUTQ
        if (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(self._end)) and (
            self.has_gone(_TAKEN_WITHIN) or any(fcntl.ioctl(self._end, unread, bytes(4)))
        ):
            return
        self.close()


def answer_lines(release: Pipe, questions: Questions, *, first: int | None = None) -> int:
    """Answer questions until they end; return how many were answered now.

    ``release`` was just opened; if its reader goes, the answering ends, too. ``first`` is the number of the first
    question, by default the first that is not answered; those that are answered already are passed over.

    Raises
    ------
    ValueError
        If a line is no question, or ``first`` is beyond the first that is not answered; nothing was paid for it, and
        the answers to those before it are delivered.
    BudgetExceededError
        As `OneByOne.answer`; the answers before it are delivered.
    LedgerError
        As `OneByOne.answer`.
    PaidError
        If answers are paid for and could not be written: they wait in the ledger.
    """
    before = release.answered
    if first is not None and first > before + 1:
        advice = "the questions in between were never answered; ask them first"
        checks.fail("--first", first, f"at most {before + 1}, for {before} are answered", advice)
    release.waiting()
    try:
        for _ in range(0 if first is None else before + 1 - first):
            questions.next_line()
        while not release.has_gone():
            batch, wrong = questions.batch()
            if not batch and wrong is None:
                release.close_if_read()
                break
            while batch and not release.has_gone():
                ids = tuple(question for _, question in batch if question)
                del batch[: len(release.answer_together(Votes.joined([votes for votes, _ in batch]), ids))]
            if wrong is not None:
                raise wrong
    except (ValueError, BudgetExceededError):
        release.close_if_read()
        raise
    return release.answered - before


def _csv_line(number: int, label: object) -> bytes:
    return f"{number},{'' if label is None else quoted(str(label))}\n".encode()


def _json_line(number: int, label: object) -> bytes:
    return (json.dumps({"query": number, "label": label}, ensure_ascii=False) + "\n").encode()


def _pieces(lines: list[bytes]) -> Iterator[bytes]:
    piece = b""
    for line in lines:
        if piece and len(piece) + len(line) > select.PIPE_BUF:
            yield piece
            piece = b""
        piece += line
    if piece:
        yield piece


def _write(sink: int, piece: bytes) -> None:
    while piece:
        left = piece
        piece = left[_wait_to(lambda: os.write(sink, left), writing=sink) :]  # noqa: B023 (called at once)


def _wait_to(act: Callable[[], T], *, reading: int | None = None, writing: int | None = None) -> T:
    """Read or write, also where whoever opened the pipe asked not to wait."""
    while True:
        try:
            return act()
        except BlockingIOError:
            select.select([] if reading is None else [reading], [] if writing is None else [writing], [])
