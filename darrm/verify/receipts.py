"""The claims of receipts: what an entry of a ledger paid for, and the labels beside them, are what they were.

A receipt repeats an entry, and holds the head of the ledger at it: `darrm.verify.chain` judges the ledger by that. Of
labels that were drawn file by file it holds the SHA-256 of each.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from darrm.account.ledger_rows import Entry
from darrm.system.files import Document, Json
from darrm.system.votes_file import LabelsFile, labels_digest
from darrm.verify.chain import HEAD, ShownHead, read_head
from darrm.verify.evidence import Piece
from darrm.verify.ledger import LedgerCopy
from darrm.verify.signatures import SIGNED, PublicKey, judge_signatures
from darrm.verify.verdicts import ABOUT_RECEIPT, CONSISTENT, FALSE, PROVED, UNKNOWN, Verdict, judged

_END = ".receipt.json"
_HEAD = re.compile(rf"{HEAD}[0-9A-Za-z:.%_/-]+")
_FIELDS = ("time", "what", "count", "table", "labels")


@dataclass(frozen=True)
class Receipt:
    """What a receipt says."""

    path: str
    head: ShownHead
    entry: Mapping[str, Json]
    files: Mapping[str, str]  # the SHA-256 of labels that were drawn file by file
    signature: str = ""  # of its head

    @property
    def labels(self) -> str:
        """The path of the labels that it stands beside."""
        return self.path.removesuffix(_END)


def read_receipt(piece: Piece) -> Receipt | Verdict:
    """Read a receipt, or say that it is none."""
    try:
        data = json.loads(piece.content)
        head = read_head(piece.content.decode("utf-8-sig"), Path(piece.path).name)
        _check_repeats(data, head)
        return Receipt(
            piece.path, head, dict(data["entry"]), dict(data.get("files", {})), str(data.get("signature", ""))
        )
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        return Verdict(ABOUT_RECEIPT, "it is a receipt", FALSE, f"{type(error).__name__}: {error}")


def _check_repeats(data: Mapping[str, Json], head: ShownHead) -> None:
    if not {"format", "head", "entry"} <= data.keys() <= {"format", "head", "entry", "files", "signature"}:
        raise ValueError("a receipt has a format, a head, an entry, and files and a signature of some")
    if not str(data.get("signature", SIGNED)).startswith(SIGNED):
        raise ValueError("what stands where its signature does is none")
    told = data["head"]
    line = (head.identity, head.population, head.number, head.queries, head.epsilon, head.delta, head.kinds, head.link)
    budget = told["budget"]
    fields = [told[name] for name in ("identity", "population", "number", "queries")]
    if (*fields, budget["epsilon"], budget["delta"], told["kinds"], told["link"]) != line:
        raise ValueError("the fields of its head are not what its line says")


def judge_receipt(
    receipt: Receipt,
    ledgers: Mapping[str, LedgerCopy],
    labels: Mapping[str, LabelsFile],
    pieces: Sequence[Piece],
    keys: Sequence[PublicKey] = (),
) -> Iterator[Verdict]:
    """Judge a receipt against the ledger that it is of, and the labels that it stands beside."""
    own = [ledger for ledger in ledgers.values() if ledger.identity == receipt.head.identity]
    claim = f"it repeats entry {receipt.head.number} of the ledger {receipt.head.identity}"
    alike = [ledger for ledger in ledgers.values() if _is_of(receipt, ledger)]
    if own:
        reason, holds = _repeats(receipt, own[0])
        yield judged(ABOUT_RECEIPT, claim, reason, holds=holds, how=PROVED)
    elif alike:
        reason = (
            f"the ledger that holds it, of the same moment, is called {alike[0].identity}: its identity was changed"
        )
        yield Verdict(ABOUT_RECEIPT, claim, FALSE, reason)
    else:
        yield Verdict(ABOUT_RECEIPT, claim, UNKNOWN, "that ledger is not among the files: it would decide")
    if receipt.signature:
        claim = f"the holder of a key signed its head at entry {receipt.head.number}"
        yield from judge_signatures([receipt.signature], lambda _: receipt.head.to_text(), keys, ABOUT_RECEIPT, claim)
    claim = f"the labels of {Path(receipt.labels).name} are those that were paid for"
    beside = [piece for piece in pieces if receipt.files and Path(piece.path) == Path(receipt.labels)]
    if beside:
        own_name = Path(receipt.labels).name  # of a single file, which is no folder's
        found = {name.lstrip("/") or own_name: digest for name, _, digest in beside[0].digests}
        wrong = sorted(
            name for name in found.keys() | receipt.files.keys() if found.get(name) != receipt.files.get(name)
        )
        reason = f"SHA-256 differs, or is missing: {', '.join(wrong[:5])}" if wrong else "the SHA-256 of each file"
        yield judged(ABOUT_RECEIPT, claim, reason, holds=not wrong, how=PROVED)
    elif receipt.labels in labels and receipt.entry.get("labels"):
        digest = labels_digest(labels[receipt.labels].labels)
        yield judged(
            ABOUT_RECEIPT, claim, f"their SHA-256 is {digest}", holds=digest == receipt.entry["labels"], how=PROVED
        )
    else:
        yield Verdict(ABOUT_RECEIPT, claim, UNKNOWN, "they are not beside it")


def _is_of(receipt: Receipt, ledger: LedgerCopy) -> bool:
    """Whether a ledger of another name holds the very entry: labels, table, count, and the millisecond."""
    return any(
        all(getattr(entry, name) == receipt.entry.get(name) for name in _FIELDS)
        for entry in ledger.entries
        if entry.number == receipt.head.number and entry.labels
    )


def _repeats(receipt: Receipt, ledger: LedgerCopy) -> tuple[str, bool]:
    found = [entry for entry in ledger.entries if entry.number == receipt.head.number]
    if not found:
        return f"it has {len(ledger.entries)} entries", False
    told = _told(found[0], ledger)
    wrong = sorted(name for name in told.keys() | receipt.entry.keys() if told.get(name) != receipt.entry.get(name))
    return (f"other than there: {', '.join(wrong)}" if wrong else "time, count, cost and digests are equal"), not wrong


def _told(entry: Entry, ledger: LedgerCopy) -> Document:
    told = {name: getattr(entry, name) for name in _FIELDS}
    return {**told, "cost": ledger.costs[entry.kind].to_text()} if entry.kind in ledger.costs else told


def heads_in(piece: Piece) -> Iterator[ShownHead | Verdict]:
    """Read every head in a text: a model card, a report, or a note; what was not copied as it was is false."""
    for line in sorted(set(_HEAD.findall(piece.content.decode("utf-8", errors="replace")))):
        try:
            yield read_head(line, Path(piece.path).name)
        except ValueError as error:
            yield Verdict(ABOUT_RECEIPT, f"it holds the head {line}", FALSE, str(error))


def judge_heads(heads: Sequence[ShownHead], ledgers: Mapping[str, LedgerCopy]) -> Iterator[Verdict]:
    """Judge that the heads of a text are of ledgers among the files, by which these are judged."""
    for head in heads:
        claim = f"it holds the head of the ledger {head.identity} at entry {head.number}"
        if any(ledger.identity == head.identity for ledger in ledgers.values()):
            yield Verdict(ABOUT_RECEIPT, claim, CONSISTENT, "that ledger is judged by it; nothing else is read here")
        else:
            yield Verdict(ABOUT_RECEIPT, claim, UNKNOWN, "that ledger is not among the files: it would decide")


def unmatched(heads: Sequence[ShownHead], ledgers: Mapping[str, LedgerCopy]) -> Iterator[Verdict]:
    """Judge heads that were given by hand, and are of no ledger among the files."""
    known = {ledger.identity for ledger in ledgers.values()}
    for head in heads:
        if head.identity not in known:
            claim = f"{head.source} is of a ledger among the files"
            reason = f"it is of the ledger {head.identity}; here are {', '.join(sorted(filter(None, known))) or 'none'}"
            yield Verdict(ABOUT_RECEIPT, claim, FALSE if known else UNKNOWN, reason)
