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
from darrm.ledger.ledger import check_id, describe_failure
from darrm.release.one_by_one import AnswerStream
from darrm.util import checks
from darrm.votes import Votes
from darrm.votes.labels_file import quote
from darrm.votes.vote_arrays import ClassLookup, VoteFormat, VoteTable, check_words
from darrm.votes.votes_file import COIN_ADVICE, LONGEST_LINE, Words, check_line, value_blocks

MOST_TOGETHER = 64  # questions per debit, and so the most that may be printed again after a crash
_READ_BYTES = 2**16
_MAX_VOTE_CHARACTERS = 40  # characters of a vote in a message
_MAX_TORN_BYTES = 2**14  # bytes read at the end of a file of answers: more than one line


class Questions:
    """Reads the questions that have arrived from a file descriptor; waits only if there are none.

    For the layout ``auto`` the number of fields decides; `ValueError` if it cannot. With ``ids`` the first field of a
    line is the public id of the question.
    """

    def __init__(self, source: int, vote_format: VoteFormat, *, json_lines: bool = False, ids: bool = False) -> None:
        self._source, self._vote_format, self._is_json, self._has_ids = source, vote_format, json_lines, ids
        K = vote_format.voters or checks.fail("voters", vote_format.voters, "K, the votes of each question")
        C = len(vote_format.names)
        check_words(() if isinstance(vote_format.classes, int) else vote_format.names)
        self._words = {"labels": ClassLookup(vote_format.names, vote_format.missing), "counts": Words()}
        # labels without their id could be an id and counts; with two classes these do not add up to K
        if vote_format.layout == "auto" and not vote_format.is_open and (K == C or (ids and K == C + 1 > 3)):
            problem = checks.Text(f"auto, with {K} voters and {C} classes")
            checks.fail("--layout", problem, "labels or counts", "a line of votes looks like either")
        widths = {"answers": K} if vote_format.is_open else {"labels": K, "counts": C}
        self._formats = {
            width: source_format
            for source_format, width in widths.items()
            if vote_format.layout in {"auto", source_format} or vote_format.is_open
        }
        self._buffer, self._is_ended, self._number = bytearray(), False, 0

    def _has_line(self) -> bool:
        return b"\n" in self._buffer or (self._is_ended and bool(self._buffer))

    def read_line(self) -> str:
        """Wait for a line and return it; empty at the end. `ValueError` if it is not text."""
        while not self._has_line() and not self._is_ended:
            if len(self._buffer) > LONGEST_LINE:
                raise ValueError(f"line {self._number + 1} has more than {LONGEST_LINE:,} bytes")
            try:
                chunk = os.read(self._source, _READ_BYTES)
            except BlockingIOError:
                select.select([self._source], [], [])
                continue
            self._buffer += chunk
            self._is_ended = not chunk
        if self._number == 0 and self._buffer.startswith(BOM_UTF8):
            del self._buffer[: len(BOM_UTF8)]
        line_end = self._buffer.find(b"\n") + 1 or len(self._buffer)
        line = self._buffer[:line_end].decode("utf-8", "surrogateescape")
        del self._buffer[:line_end]
        self._number += 1 if line else 0
        check_line(line, self._number)
        return line

    def read_batch(self) -> tuple[list[tuple[Votes, str]], ValueError | None]:
        """Wait for a question; return votes and ids of all that have arrived (none: the end), and the next error."""
        batch: list[tuple[Votes, str]] = []
        try:
            while (not batch or (len(batch) < MOST_TOGETHER and self._has_line())) and (text := self.read_line()):
                batch.append(self._parse_question(text))
        except ValueError as error:
            return batch, ValueError(f"{error} (nothing was paid for it; the questions before it are answered)")
        return batch, None

    def _parse_question(self, text: str) -> tuple[Votes, str]:
        line = self._number
        if not (text.strip() if self._is_json else text.rstrip("\r\n")):
            raise ValueError(f"line {line} is blank: every line is a query")
        fields = _parse_json(line, text, self._vote_format) if self._is_json else _parse_csv(line, text)
        question = fields.pop(0).strip() if self._has_ids else ""
        if self._has_ids:
            check_id(f"line {line}: the id of the question", question)
        source_format = self._formats.get(len(fields))
        if source_format is None:
            self._refuse_width(len(fields))
        vote_format, vocabulary = self._vote_format, self._vote_format.vocabulary()
        words = vocabulary if source_format == "answers" else self._words[source_format]
        code = "i" if source_format == "answers" else self._words[source_format].code
        try:
            blocks = [*value_blocks([(line, fields)], words, code, "line", "field")]
        except ValueError as error:
            advice = "; JSON arrays are read with --format json" if fields[0].lstrip()[:1] == "[" else ""
            raise ValueError(f"{error}{advice}") from error
        try:
            votes = Votes.from_table(VoteTable(source_format, blocks, vote_format, vocabulary))
        except ValueError as error:
            raise ValueError(f"line {line}: {error}") from error
        if votes.voters in {votes.blanks, 0 if votes.missing is None else int(votes.missing[0])}:
            raise ValueError(f"line {line} has no vote at all: leave the question out")
        return votes, question

    def _refuse_width(self, fields: int) -> NoReturn:
        units = {"labels": "votes, one of each voter", "counts": "counts, one of each class"}
        allowed = " or ".join(
            f"{width} {units.get(source_format, units['labels'])}" for width, source_format in self._formats.items()
        )
        suffix = " after its id" if self._has_ids else ""
        is_short = fields < (self._vote_format.voters or 0) in self._formats
        advice = f"; a voter that does not answer keeps its field: {COIN_ADVICE}" if is_short else ""
        raise ValueError(f"line {self._number} has {fields} fields{suffix}, where a question has {allowed}{advice}")


def _parse_csv(line: int, text: str) -> list[str]:
    if not text.endswith(("\n", "\r")):  # it may be cut off within a number
        advice = "end it with a line break if all of it was sent"
        raise ValueError(f"line {line} has no end and may have been cut off: {advice}")
    try:
        return next(csv.reader([text], strict=True))
    except csv.Error as error:
        raise ValueError(f"line {line}: {error}") from error


def _parse_json(line: int, text: str, vote_format: VoteFormat) -> list[str]:
    advice = "a question is an array of votes, like [0,1,1]"
    try:
        row = json.loads(text, parse_int=str, parse_float=str, parse_constant=_parse_json_constant)
    except (ValueError, RecursionError) as error:
        reason = str(error) if isinstance(error, ValueError) else "too deep a nest"
        raise ValueError(f"line {line} is no JSON ({reason}): {advice}") from error
    if not isinstance(row, list):
        raise ValueError(f"line {line} is no JSON array: {advice}")  # noqa: TRY004 (bad input)
    return [
        _parse_json_field(f"line {line}, field {position}", vote, vote_format) for position, vote in enumerate(row, 1)
    ]


def _parse_json_constant(name: str) -> str | None:
    return None if name == "NaN" else name  # a missing vote, or an infinity, which is no vote


def _parse_json_field(where: str, vote: object, vote_format: VoteFormat) -> str:
    if isinstance(vote, str):
        return vote
    if isinstance(vote, bool) and not vote_format.is_open:
        return str(vote)
    if vote is not None:
        advice = "write a number, or the name of a class in quotes"
        raise ValueError(f"{where}: {json.dumps(vote)[:_MAX_VOTE_CHARACTERS]} is no vote: {advice}")
    if not vote_format.is_open and vote_format.missing != "coin":
        advice = f"every voter must answer every query, so leave other queries out, or {COIN_ADVICE}"
        raise ValueError(f"{where}: the vote is missing (null or NaN): {advice}")
    return ""


class LineWriter:
    """Writes answers to a file descriptor."""

    def __init__(self, descriptor: int, *, json_lines: bool = False) -> None:
        self._descriptor, self._is_json = descriptor, json_lines
        mode = os.fstat(descriptor).st_mode
        self._is_file = stat.S_ISREG(mode)
        self._has_begun = False
        self.is_durable = not stat.S_ISFIFO(mode) and not stat.S_ISSOCK(mode)  # no reader that can die

    def format_line(self, number: int, label: object) -> bytes:
        if self._is_json:
            return (json.dumps({"query": number, "label": label}, ensure_ascii=False) + "\n").encode()
        return f"{number},{'' if label is None else quote(str(label))}\n".encode()

    def write(self, first_number: int, labels: list[object]) -> None:
        lines = [self.format_line(number, label) for number, label in enumerate(labels, first_number)]
        size = _get_append_size(self._descriptor) if self._is_file else None
        if size is not None and not self._has_begun and (torn_size := _count_torn_bytes(self._descriptor, size, lines)):
            size -= torn_size
            _truncate(self._descriptor, size)
        self._has_begun = True
        try:
            for piece in _join_lines(lines):
                _write_all(self._descriptor, piece)
            if self._is_file and lines:
                os.fsync(self._descriptor)
        except BaseException:
            if size is not None:
                with suppress(OSError):
                    _truncate(self._descriptor, size)  # a full disk tears a line
            raise


def answer_lines(release: AnswerStream, writer: LineWriter, questions: Questions, *, first: int | None = None) -> int:
    """Answer questions until they end; return how many were answered now.

    ``first`` is the number of the first question, by default the first unanswered one; answered ones are skipped.

    `ValueError` for a line that is no question, or a ``first`` beyond the first unanswered question: nothing was paid
    for it. `DeliveryError` if answers are paid for and could not be written: the ledger keeps them.
    """
    initial_count = release.answered
    if first is not None and first > initial_count + 1:
        advice = "the questions in between were never answered; ask them first"
        checks.fail("--first", first, f"at most {initial_count + 1}, for {initial_count} are answered", advice)
    waiting = release.waiting()
    # the last line of a file may be torn; only the reader of a pipe knows which answers arrived
    if first == initial_count + 1 and not writer.is_durable:
        release.close()
        waiting = []
    _write_answers(release, writer, waiting)
    try:
        for _ in range(0 if first is None else initial_count + 1 - first):
            questions.read_line()
        _answer_all(release, writer, questions)
    except (ValueError, BudgetExceededError):
        if writer.is_durable:
            release.close()
        raise
    if writer.is_durable:
        release.close()
    return release.answered - initial_count


def _answer_all(release: AnswerStream, writer: LineWriter, questions: Questions) -> None:
    error = None
    while error is None:
        batch, error = questions.read_batch()
        if not batch and error is None:
            return
        while batch:
            ids = tuple(question for _, question in batch if question)
            labels = release.answer_together(Votes.concatenate([votes for votes, _ in batch]), ids)
            _write_answers(release, writer, labels)
            del batch[: len(labels)]
    raise error


def _write_answers(release: AnswerStream, writer: LineWriter, labels: list[object]) -> None:
    first_number = release.answered - len(labels) + 1
    try:
        writer.write(first_number, labels)
    except ValueError:
        raise
    except BaseException as error:
        numbers = f"answers {first_number} to {release.answered} are"
        subject = f"answer {first_number} is" if len(labels) == 1 else numbers
        advice = "paid for and kept in the ledger: start again, and they come first"
        raise DeliveryError(release.ledger.path, f"{describe_failure(error)}; {subject} {advice}") from error


def _get_append_size(descriptor: int) -> int | None:
    """Return a file's size if the next write appends to it."""
    appends = fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_APPEND
    size = os.fstat(descriptor).st_size
    return size if appends or os.lseek(descriptor, 0, os.SEEK_CUR) == size else None


def _truncate(descriptor: int, file_size: int) -> None:
    os.ftruncate(descriptor, file_size)
    os.lseek(descriptor, file_size, os.SEEK_SET)


def _count_torn_bytes(descriptor: int, file_size: int, lines: list[bytes]) -> int:
    """Count the bytes at the end of a file that begin one of these lines; `ValueError` for another torn line."""
    length = min(file_size, _MAX_TORN_BYTES)
    try:
        with Path(f"/dev/fd/{descriptor}").open("rb") as output:
            output.seek(file_size - length)
            tail = b"\n"[file_size > length :] + output.read(length)
    except OSError:  # some systems forbid reading it
        return 0
    for line in lines:
        for size in range(len(line) - 1, 0, -1):
            if tail.endswith(b"\n" + line[:size]):
                return size
    if not tail.endswith(b"\n"):
        torn_line = tail.rpartition(b"\n")[2].decode(errors="replace")[:_MAX_VOTE_CHARACTERS]
        problem = f"the output ends in {torn_line!r}, a line without its end, and no answer that waits begins so"
        raise ValueError(f"{problem}: end that line, or delete it; nothing was paid")
    return 0


def _join_lines(lines: list[bytes]) -> Iterator[bytes]:
    """Join whole lines into pieces that a pipe takes at once."""
    piece = b""
    for line in lines:
        if piece and len(piece) + len(line) > select.PIPE_BUF:
            yield piece
            piece = b""
        piece += line
    if piece:
        yield piece


def _write_all(descriptor: int, piece: bytes) -> None:
    while piece:
        try:
            piece = piece[os.write(descriptor, piece) :]
        except BlockingIOError:
            select.select([], [descriptor], [])
