"""Read questions on standard input and write answers on standard output, one per line (`darrm.release.one_by_one`).

A question is a line of votes, as in a .csv file, or a JSON array; an answer is ``number,label``, or a JSON object.
Lines that have arrived together are answered with one debit; a file of answers is synced.

*Guarantee.* No question is paid for twice, no number has two labels, and no answer is lost: a batch stays in the ledger
until the next one is debited. If the process is killed before, the batch is printed again, with the same numbers and
labels. The end of the questions acknowledges the last batch only if the output is a file, a terminal or another device:
a dead reader of a pipe or a socket also ends the questions. So there the last batch is printed again at the next start,
unless ``--first`` shows that the caller has it.
"""

import csv
import fcntl
import json
import os
import select
import stat
from codecs import BOM_UTF8
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from darrm.errors import BudgetExceededError, DeliveryError
from darrm.ledger.ledger import check_id, reason_of
from darrm.release.one_by_one import AnswerStream
from darrm.util import checks
from darrm.votes import Votes
from darrm.votes.labels_file import quote
from darrm.votes.vote_arrays import ClassLookup, VoteFormat, VoteTable, words_of
from darrm.votes.votes_file import COIN_ADVICE, LONGEST_LINE, Words, check_line, value_blocks

MOST_TOGETHER = 64  # questions per debit, and so the most that may be printed again after a crash
_READ_BYTES = 2**16
_SHOWN = 40  # characters of a vote in a message
_MOST_TORN = 2**14  # bytes read at the end of a file of answers: more than one line


class Questions:
    """Reads the questions that have arrived from a file descriptor; waits only if there are none.

    For the layout ``auto`` the number of fields decides; `ValueError` if it cannot. With ``ids`` the first field of a
    line is the public id of the question.
    """

    def __init__(self, source: int, how: VoteFormat, *, json_lines: bool = False, ids: bool = False) -> None:
        self._source, self._how, self._json, self._ids = source, how, json_lines, ids
        K, C = how.voters or checks.fail("voters", how.voters, "K, the votes of each question"), len(how.names)
        words_of(() if isinstance(how.classes, int) else how.names)
        self._words = {"labels": ClassLookup(how.names, how.missing), "counts": Words()}
        # labels without their id could be an id and counts; with two classes these do not add up to K
        if how.layout == "auto" and not how.is_open and (K == C or (ids and K == C + 1 > 3)):
            problem = checks.Text(f"auto, with {K} voters and {C} classes")
            checks.fail("--layout", problem, "labels or counts", "a line of votes looks like either")
        widths = {"answers": K} if how.is_open else {"labels": K, "counts": C}
        self._formats = {width: kind for kind, width in widths.items() if how.layout in {"auto", kind} or how.is_open}
        self._buffer, self._ended, self._number = bytearray(), False, 0

    def _has_line(self) -> bool:
        return b"\n" in self._buffer or (self._ended and bool(self._buffer))

    def next_line(self) -> str:
        """Wait for a line and return it; empty at the end. `ValueError` if it is not text."""
        while not self._has_line() and not self._ended:
            if len(self._buffer) > LONGEST_LINE:
                raise ValueError(f"line {self._number + 1} has more than {LONGEST_LINE:,} bytes")
            try:
                read = os.read(self._source, _READ_BYTES)
            except BlockingIOError:
                select.select([self._source], [], [])
                continue
            self._buffer += read
            self._ended = not read
        if self._number == 0 and self._buffer.startswith(BOM_UTF8):
            del self._buffer[: len(BOM_UTF8)]
        end = self._buffer.find(b"\n") + 1 or len(self._buffer)
        line = self._buffer[:end].decode("utf-8", "surrogateescape")
        del self._buffer[:end]
        self._number += 1 if line else 0
        check_line(line, self._number)
        return line

    def batch(self) -> tuple[list[tuple[Votes, str]], ValueError | None]:
        """Wait for a question; return votes and ids of all that have arrived (none: the end), and the next error."""
        batch: list[tuple[Votes, str]] = []
        try:
            while (not batch or (len(batch) < MOST_TOGETHER and self._has_line())) and (text := self.next_line()):
                batch.append(self._question(text))
        except ValueError as error:
            return batch, ValueError(f"{error} (nothing was paid for it; the questions before it are answered)")
        return batch, None

    def _question(self, text: str) -> tuple[Votes, str]:
        line = self._number
        if not (text.strip() if self._json else text.rstrip("\r\n")):
            raise ValueError(f"line {line} is blank: every line is a query")
        fields = _json_fields(line, text, self._how) if self._json else _csv_fields(line, text)
        question = fields.pop(0).strip() if self._ids else ""
        if self._ids:
            check_id(f"line {line}: the id of the question", question)
        kind = self._formats.get(len(fields))
        if kind is None:
            self._refuse_width(len(fields))
        how, vocabulary = self._how, self._how.vocabulary()
        words, code = (vocabulary, "i") if kind == "answers" else (self._words[kind], self._words[kind].code)
        try:
            blocks = [*value_blocks([(line, fields)], words, code, "line", "field")]
        except ValueError as error:
            advice = "; JSON arrays are read with --format json" if fields[0].lstrip()[:1] == "[" else ""
            raise ValueError(f"{error}{advice}") from error
        try:
            votes = Votes.of_table(VoteTable(kind, blocks, how, vocabulary))
        except ValueError as error:
            raise ValueError(f"line {line}: {error}") from error
        if votes.voters in {votes.blanks, 0 if votes.missing is None else int(votes.missing[0])}:
            raise ValueError(f"line {line} has no vote at all: leave the question out")
        return votes, question

    def _refuse_width(self, fields: int) -> NoReturn:
        each = {"labels": "votes, one of each voter", "counts": "counts, one of each class"}
        allowed = " or ".join(f"{width} {each.get(kind, each['labels'])}" for width, kind in self._formats.items())
        after = " after its id" if self._ids else ""
        is_short = fields < (self._how.voters or 0) in self._formats
        advice = f"; a voter that does not answer keeps its field: {COIN_ADVICE}" if is_short else ""
        raise ValueError(f"line {self._number} has {fields} fields{after}, where a question has {allowed}{advice}")


def _csv_fields(line: int, text: str) -> list[str]:
    if not text.endswith(("\n", "\r")):  # it may be cut off within a number
        advice = "end it with a line break if all of it was sent"
        raise ValueError(f"line {line} has no end and may have been cut off: {advice}")
    try:
        return next(csv.reader([text], strict=True))
    except csv.Error as error:
        raise ValueError(f"line {line}: {error}") from error


def _json_fields(line: int, text: str, how: VoteFormat) -> list[str]:
    advice = "a question is an array of votes, like [0,1,1]"
    try:
        row = json.loads(text, parse_int=str, parse_float=str, parse_constant=_json_constant)
    except (ValueError, RecursionError) as error:
        reason = str(error) if isinstance(error, ValueError) else "too deep a nest"
        raise ValueError(f"line {line} is no JSON ({reason}): {advice}") from error
    if not isinstance(row, list):
        raise ValueError(f"line {line} is no JSON array: {advice}")  # noqa: TRY004 (bad input)
    return [_json_field(f"line {line}, field {place}", vote, how) for place, vote in enumerate(row, 1)]


def _json_constant(name: str) -> str | None:
    return None if name == "NaN" else name  # a missing vote, or an infinity, which is no vote


def _json_field(where: str, vote: object, how: VoteFormat) -> str:
    if isinstance(vote, str):
        return vote
    if isinstance(vote, bool) and not how.is_open:
        return str(vote)
    if vote is not None:
        advice = "write a number, or the name of a class in quotes"
        raise ValueError(f"{where}: {json.dumps(vote)[:_SHOWN]} is no vote: {advice}")
    if not how.is_open and how.missing != "coin":
        advice = f"every voter must answer every query, so leave other queries out, or {COIN_ADVICE}"
        raise ValueError(f"{where}: the vote is missing (null or NaN): {advice}")
    return ""


class LineWriter:
    """Writes answers to a file descriptor."""

    def __init__(self, end: int, *, json_lines: bool = False) -> None:
        self._end, self._json = end, json_lines
        mode = os.fstat(end).st_mode
        self._is_file = stat.S_ISREG(mode)
        self._is_begun = False
        self.is_durable = not stat.S_ISFIFO(mode) and not stat.S_ISSOCK(mode)  # no reader that can die

    def line_of(self, number: int, label: object) -> bytes:
        if self._json:
            return (json.dumps({"query": number, "label": label}, ensure_ascii=False) + "\n").encode()
        return f"{number},{'' if label is None else quote(str(label))}\n".encode()

    def write(self, first: int, labels: list[object]) -> None:
        lines = [self.line_of(number, label) for number, label in enumerate(labels, first)]
        end = _end_of(self._end) if self._is_file else None
        if end is not None and not self._is_begun and (torn := _torn(self._end, end, lines)):
            end -= torn
            _cut(self._end, end)
        self._is_begun = True
        try:
            for piece in _pieces(lines):
                _write(self._end, piece)
            if self._is_file and lines:
                os.fsync(self._end)
        except BaseException:
            if end is not None:
                with suppress(OSError):
                    _cut(self._end, end)  # a full disk tears a line
            raise


def answer_lines(release: AnswerStream, writer: LineWriter, questions: Questions, *, first: int | None = None) -> int:
    """Answer questions until they end; return how many were answered now.

    ``first`` is the number of the first question, by default the first unanswered one; answered ones are skipped.

    `ValueError` for a line that is no question, or a ``first`` beyond the first unanswered question: nothing was paid
    for it. `DeliveryError` if answers are paid for and could not be written: the ledger keeps them.
    """
    before = release.answered
    if first is not None and first > before + 1:
        advice = "the questions in between were never answered; ask them first"
        checks.fail("--first", first, f"at most {before + 1}, for {before} are answered", advice)
    waiting = release.waiting()
    # the last line of a file may be torn; only the reader of a pipe knows which answers arrived
    if first == before + 1 and not writer.is_durable:
        release.close()
        waiting = []
    _write_answers(release, writer, waiting)
    try:
        for _ in range(0 if first is None else before + 1 - first):
            questions.next_line()
        _answer_all(release, writer, questions)
    except (ValueError, BudgetExceededError):
        if writer.is_durable:
            release.close()
        raise
    if writer.is_durable:
        release.close()
    return release.answered - before


def _answer_all(release: AnswerStream, writer: LineWriter, questions: Questions) -> None:
    wrong = None
    while wrong is None:
        batch, wrong = questions.batch()
        if not batch and wrong is None:
            return
        while batch:
            ids = tuple(question for _, question in batch if question)
            labels = release.answer_together(Votes.concatenate([votes for votes, _ in batch]), ids)
            _write_answers(release, writer, labels)
            del batch[: len(labels)]
    raise wrong


def _write_answers(release: AnswerStream, writer: LineWriter, labels: list[object]) -> None:
    first = release.answered - len(labels) + 1
    try:
        writer.write(first, labels)
    except ValueError:
        raise
    except BaseException as error:
        which = f"answer {first} is" if len(labels) == 1 else f"answers {first} to {release.answered} are"
        again = "paid for and kept in the ledger: start again, and they come first"
        raise DeliveryError(release.ledger.path, f"{reason_of(error)}; {which} {again}") from error


def _end_of(sink: int) -> int | None:
    """Return a file's size if the next write appends to it."""
    appends = fcntl.fcntl(sink, fcntl.F_GETFL) & os.O_APPEND
    size = os.fstat(sink).st_size
    return size if appends or os.lseek(sink, 0, os.SEEK_CUR) == size else None


def _cut(sink: int, end: int) -> None:
    os.ftruncate(sink, end)
    os.lseek(sink, end, os.SEEK_SET)


def _torn(sink: int, end: int, lines: list[bytes]) -> int:
    """Count the bytes at the end of a file that begin one of these lines; `ValueError` for another torn line."""
    length = min(end, _MOST_TORN)
    try:
        with Path(f"/dev/fd/{sink}").open("rb") as written:
            written.seek(end - length)
            tail = b"\n"[end > length :] + written.read(length)
    except OSError:  # some systems forbid reading it
        return 0
    for line in lines:
        for size in range(len(line) - 1, 0, -1):
            if tail.endswith(b"\n" + line[:size]):
                return size
    if not tail.endswith(b"\n"):
        torn = tail.rpartition(b"\n")[2].decode(errors="replace")[:_SHOWN]
        problem = f"the output ends in {torn!r}, a line without its end, and no answer that waits begins so"
        raise ValueError(f"{problem}: end that line, or delete it; nothing was paid")
    return 0


def _pieces(lines: list[bytes]) -> Iterator[bytes]:
    """Join whole lines into pieces that a pipe takes at once."""
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
        try:
            piece = piece[os.write(sink, piece) :]
        except BlockingIOError:
            select.select([], [sink], [])
