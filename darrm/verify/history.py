"""Judge the past of a ledger: earlier digests of it, signatures of its entries, and receipts.

Every entry carries the SHA-256 of its fields and of the hash before it. A *ledger digest* is one line with the hash of
entry n. *Theorem.* Let the recomputed hash of entry n equal that of an earlier digest of the ledger. Then the
identity, the budget and entries 1 … n equal those of that time, field by field, or a collision of SHA-256 is known.
*Proof.* A hash is of texts, joined by a character that no text of a ledger contains, so equal hashes have equal parts.
One part is the hash before: by induction down to that of the budget. ∎ A signature of the digest at entry n proves the
same to a reader who has the public key from its holder, not from the folder. Without a digest, entries could have been
cut off at the end, or the whole ledger rewritten: the verdict is then *assumed*.
"""

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from darrm.verify.files import Ledger
from darrm.verify.formats import DIGEST_PREFIX, MALFORMED, Json, parse_json, read
from darrm.verify.label_files import LabelsFile
from darrm.verify.ledger import LedgerAudit, numbered
from darrm.verify.numbers import counted
from darrm.verify.verdicts import ASSUMED, CONSISTENT, FALSE, HISTORY, LABELS, PROVED, RECEIPT, UNKNOWN, Verdict, judged

SIGNED, _END = "ed25519:", ".receipt.json"
_DIGEST = re.compile(r"darrm-digest:1:[0-9A-Za-z:.%_/-]+")
_LINE = re.compile(DIGEST_PREFIX + r"([^:]*):(\d{1,18}):(\d{1,18}):([^:]*):([^:]*):([^:]*):([^:]*):([^:]*)")
_CHECK = 8  # digits that check a line
_MOST_KEY_BYTES, _MOST_CHECKED = 2**16, 50_000  # signatures: ten seconds
_WHOLE = "it is the ledger that it was: no entry deleted, changed, reordered or merged, no other budget or identity"
_NOT_CUT = "the ledger was not truncated"
_GIVE = "give --digest or a receipt to check"
_SIGNED = "its entries are signed by the holder of a key"
_FIELDS = ("time", "what", "count", "table", "labels")


@dataclass(frozen=True)
class LedgerDigest:
    """A digest of a ledger, copied earlier."""

    identity: str
    number: int
    queries: int
    epsilon: str
    delta: str
    composition: str
    population: str
    entry_hash: str
    source: str = "a digest"

    def to_text(self) -> str:
        """Write the line that is copied and signed."""
        words = (self.identity, self.number, self.queries, self.epsilon, self.delta, self.composition)
        text = DIGEST_PREFIX + ":".join(map(str, (*words, quote(self.population, safe=""), self.entry_hash)))
        return f"{text}:{hashlib.sha256(text.encode()).hexdigest()[:_CHECK]}"


def read_digest(text: str, source: str = "a digest") -> LedgerDigest:
    """Read a digest from its line, from a receipt, or from what `darrm account --format json` printed.

    >>> digest = read_digest("darrm-digest:1:ab12:3:120:2:0.00001:one:ward%207:c0ffee:e5279002")
    >>> digest.number, digest.population
    (3, 'ward 7')
    """
    line = text.strip()
    if line.startswith("{"):
        try:
            data = parse_json(line.encode())
            line = data.get("ledger_digest", data)["text"]
        except (ValueError, *MALFORMED):
            raise ValueError(f"{source} is no digest of a ledger, and no JSON that holds one") from None
    body, _, check = str(line).rpartition(":")
    is_whole = hashlib.sha256(body.encode()).hexdigest()[:_CHECK] == check
    if not is_whole or not (found := _LINE.fullmatch(body)):
        raise ValueError(f"{source} is no digest of a ledger, or was miscopied: it is a line {DIGEST_PREFIX}…")
    identity, number, queries, epsilon, delta, kinds, population, link = found.groups()
    return LedgerDigest(identity, int(number), int(queries), epsilon, delta, kinds, unquote(population), link, source)


def _digest_of(ledger: Ledger, number: int, source: str) -> LedgerDigest:
    words = (ledger.epsilon, ledger.delta, ledger.composition, ledger.population, ledger.hashes[number])
    return LedgerDigest(ledger.identity, number, ledger.queries[number], *words, source)


def judge_history(ledger: Ledger, digests: Sequence[LedgerDigest], keys: Sequence["PublicKey"]) -> Iterator[Verdict]:
    """Judge a ledger against its earlier digests and its signatures."""
    shown, last = sorted(digests, key=attrgetter("number")), len(ledger.entries)
    signatures = [entry.signature for entry in ledger.entries]
    signed = judge_signatures(signatures, lambda number: _digest_of(ledger, number, "").to_text(), keys)
    yield from signed
    if signed and signed[0].verdict == PROVED:
        shown.append(_digest_of(ledger, last, f"the signature of entry {last}"))
    covered = None
    for digest in shown:
        fault = _fault(ledger, digest)
        reason = f"{digest.source} {fault}" if fault else f"{digest.source} has the hash computed here"
        yield judged(HISTORY, f"{_WHOLE}, up to entry {digest.number}", reason, holds=not fault, how=PROVED)
        covered = covered if fault else digest.number
    if not shown and last:
        yield Verdict(HISTORY, f"{_NOT_CUT} or rewritten", ASSUMED, _GIVE)
    elif covered is not None:
        claim = f"{_NOT_CUT} after entry {covered}"
        yield Verdict(HISTORY, claim, ASSUMED, f"the latest digest is of entry {covered} of {last}: {_GIVE}")


def _fault(ledger: Ledger, digest: LedgerDigest) -> str:
    last = len(ledger.entries)
    if digest.number > last:
        return f"has {digest.number} entries, and the ledger {last}: entries are gone, or it is an older copy"
    own = _digest_of(ledger, digest.number, digest.source)
    for names, fault in (
        (("identity",), "is of the ledger {}, and this is another"),
        (("epsilon", "delta", "composition"), "has the budget ({}), and the ledger another"),
        (("population",), "is about the population {}, and the ledger about another"),
        (("entry_hash", "queries"), f"has another hash at entry {digest.number}: an entry up to it is another"),
    ):
        theirs = [getattr(digest, name) for name in names]
        if theirs != [getattr(own, name) for name in names]:
            return fault.format(", ".join(map(str, theirs)))
    return ""


@dataclass(frozen=True)
class PublicKey:
    """A public key from the command line. A key among the audited files would prove nothing."""

    path: str
    key: Any

    def verifies(self, text: str, signature: str) -> bool:
        """Whether the holder of the private key signed the text."""
        try:
            self.key.verify(bytes.fromhex(signature.removeprefix(SIGNED)), text.encode())
        except Exception as error:
            if type(error).__name__ not in {"InvalidSignature", "ValueError"}:
                raise
            return False
        return signature.startswith(SIGNED)


def read_public_key(path: Path) -> PublicKey:
    """Read an Ed25519 public key in PEM; `ValueError` for any other content."""
    try:
        serialization: Any = import_module("cryptography.hazmat.primitives.serialization")
        ed25519: Any = import_module("cryptography.hazmat.primitives.asymmetric.ed25519")
    except ImportError:
        raise ValueError("--public-key needs the library cryptography: pip install cryptography") from None
    if not path.is_file() or path.stat().st_size > _MOST_KEY_BYTES:
        raise ValueError(f"--public-key {str(path)!r} is no small file: give the Ed25519 public key in PEM")
    try:
        key = serialization.load_pem_public_key(path.read_bytes())
    except Exception:  # noqa: BLE001 (any error of a library for a file that is no key)
        key = None
    if not isinstance(key, ed25519.Ed25519PublicKey):
        message = f"--public-key {str(path)!r} is no Ed25519 public key in PEM: `darrm account` writes FILE.pub"
        raise ValueError(message)  # noqa: TRY004 (a bad file, not a bad type)
    return PublicKey(str(path), key)


def judge_signatures(
    signatures: Sequence[str],
    line_at: Callable[[int], str],
    keys: Sequence[PublicKey],
    about: str = HISTORY,
    claim: str = _SIGNED,
) -> list[Verdict]:
    """Judge the signatures of entries, from the first one on; `line_at` writes the digest at an entry."""
    last, signed = len(signatures), [signature.startswith(SIGNED) for signature in signatures]
    if not any(signed):
        reason = "none is; if the holder of the key signed this ledger, it was written again: ask them"
        return [Verdict(about, claim, UNKNOWN, reason)] if keys and last else []
    if not all(signed):
        reason = f"entry {signed.index(False) + 1} is not signed, and others are: signing begins with the first entry"
        return [Verdict(about, claim, FALSE, reason)]
    if not keys:
        return [Verdict(about, claim, UNKNOWN, "--public-key FILE, from the holder of the key, would decide it")]
    signer = next((key for key in keys if key.verifies(line_at(last), signatures[-1])), keys[0])
    newest = range(max(1, last - _MOST_CHECKED + 1), last + 1)
    wrong = [number for number in newest if not signer.verifies(line_at(number), signatures[number - 1])]
    reason = f"{counted(len(newest), 'signature', 'signatures')} checked with {signer.path}"
    if wrong:
        reason = f"the signature of {numbered(wrong)} does not fit the key {signer.path} and the ledger"
    return [judged(about, claim, reason, holds=not wrong, how=PROVED)]


def judge_keys(keys: Sequence[PublicKey], verdicts: Sequence[Verdict]) -> list[Verdict]:
    """Return a false verdict if there are keys, but no ledger has a signed entry."""
    found = {one.verdict for one in verdicts if one.claim == _SIGNED}
    claim = f"{', '.join(key.path for key in keys)} signed a ledger among the files"
    return [Verdict(HISTORY, claim, FALSE, "no ledger has a signed entry")] if keys and found == {UNKNOWN} else []


class ReceiptFaultError(ValueError):
    """A receipt contradicts itself, or is none."""


@dataclass(frozen=True)
class Receipt:
    """The contents of a receipt: an entry, and the digest of the ledger at it."""

    path: str
    digest: LedgerDigest
    entry: Mapping[str, Json]
    files: Mapping[str, str]  # the SHA-256 of labels that were drawn file by file
    signature: str

    @property
    def labels(self) -> str:
        """The path of the labels that the receipt accompanies."""
        return self.path.removesuffix(_END)


def read_receipt(path: str, content: bytes) -> Receipt:
    """Read a receipt; `ReceiptFaultError` if it is none."""
    try:
        data = read(parse_json(content), _FORM)
        digest = read_digest(data["ledger_digest"]["text"], Path(path).name)
    except (ValueError, *MALFORMED) as error:
        raise ReceiptFaultError(f"{type(error).__name__}: {error}") from error
    fields = {name: value for name, value in vars(digest).items() if name != "source"}
    budget = {name: fields.pop(name) for name in ("epsilon", "delta")}
    if data["ledger_digest"] != {**fields, "budget": budget, "text": digest.to_text()}:
        raise ReceiptFaultError("the fields of its digest are not what its line says")
    return Receipt(path, digest, data["entry"], data.get("files", {}), data.get("signature", ""))


def _signature(data: Json) -> str:
    if not str(data).startswith(SIGNED):
        raise ValueError("its signature is none")
    return str(data)


_FORM = {"format": str, "ledger_digest": dict, "entry": dict, "files?": dict, "signature?": _signature}


def judge_receipt(
    receipt: Receipt,
    ledgers: Sequence[LedgerAudit],
    labels: Mapping[str, LabelsFile],
    sealed: Mapping[str, str],
    keys: Sequence[PublicKey] = (),
) -> Iterator[Verdict]:
    """Judge a receipt against its ledger and the labels that it accompanies.

    ``sealed`` holds the SHA-256 of every file with labels, by its path.
    """
    digest = receipt.digest
    own = [audit.ledger for audit in ledgers if audit.ledger.identity == digest.identity]
    alike = [audit.ledger for audit in ledgers if _repeats_entry(receipt, audit.ledger)]
    claim = f"it repeats entry {digest.number} of the ledger {digest.identity}"
    if own:
        reason, holds = _compared(receipt, own[0])
        yield judged(RECEIPT, claim, reason, holds=holds, how=PROVED)
    elif alike:
        reason = f"the ledger that holds this entry is called {alike[0].identity}: its identity was changed"
        yield Verdict(RECEIPT, claim, FALSE, reason)
    else:
        yield Verdict(RECEIPT, claim, UNKNOWN, "that ledger is not among the files: it would decide")
    if receipt.signature:
        claim = f"the holder of a key signed its digest at entry {digest.number}"
        yield from judge_signatures([receipt.signature], lambda _: digest.to_text(), keys, RECEIPT, claim)
    yield _judge_accompanied(receipt, labels, sealed)


def _judge_accompanied(receipt: Receipt, labels: Mapping[str, LabelsFile], sealed: Mapping[str, str]) -> Verdict:
    own = Path(receipt.labels)
    claim = f"the labels of {own.name} are those that were paid for"
    inside = {Path(path): value for path, value in sealed.items() if Path(path).is_relative_to(own)}
    # of a single file, or of a folder
    found = {own.name if path == own else path.relative_to(own).as_posix(): value for path, value in inside.items()}
    if receipt.files and found:
        names = sorted(found.keys() | receipt.files.keys())
        wrong = [name for name in names if found.get(name) != receipt.files.get(name)]
        reason = f"the SHA-256 differs, or is missing: {', '.join(wrong[:5])}" if wrong else "the SHA-256 of each file"
        return judged(LABELS, claim, reason, holds=not wrong, how=PROVED)
    if receipt.labels in labels and receipt.entry.get("labels"):
        ours = labels[receipt.labels].digest()
        return judged(LABELS, claim, f"their SHA-256 is {ours}", holds=ours == receipt.entry["labels"], how=PROVED)
    return Verdict(LABELS, claim, UNKNOWN, "they are not among the files: they would decide")


def _repeats_entry(receipt: Receipt, ledger: Ledger) -> bool:
    entries = [entry for entry in ledger.entries if entry.number == receipt.digest.number and entry.labels]
    return any(all(getattr(entry, name) == receipt.entry.get(name) for name in _FIELDS) for entry in entries)


def _compared(receipt: Receipt, ledger: Ledger) -> tuple[str, bool]:
    if not 1 <= receipt.digest.number <= len(ledger.entries):
        return f"it has {counted(len(ledger.entries), 'entry', 'entries')}", False
    entry = ledger.entries[receipt.digest.number - 1]
    own = {**{name: getattr(entry, name) for name in _FIELDS}, "cost": ledger.costs[entry.cost]}
    wrong = sorted(name for name in own.keys() | receipt.entry.keys() if own.get(name) != receipt.entry.get(name))
    return (f"other than there: {', '.join(wrong)}" if wrong else "time, count, cost and digests are equal"), not wrong


def digests_in(path: str, content: bytes) -> tuple[list[LedgerDigest], list[Verdict]]:
    """Read every digest in a text: a model card, a report, or a note; a miscopied digest is false."""
    digests, wrong = list[LedgerDigest](), list[Verdict]()
    for line in sorted(set(_DIGEST.findall(content.decode("utf-8", errors="replace")))):
        try:
            digests.append(read_digest(line, Path(path).name))
        except ValueError as error:
            wrong.append(Verdict(HISTORY, f"it holds the digest {line}", FALSE, str(error)))
    return digests, wrong


def judge_digests(
    digests: Sequence[LedgerDigest], ledgers: Mapping[str, LedgerAudit], *, by_hand: bool
) -> Iterator[Verdict]:
    """Judge that digests of a text or of the command line belong to ledgers among the files."""
    known = {audit.ledger.identity for audit in ledgers.values()}
    for digest in digests:
        claim = f"{digest.source} is of a ledger among the files"
        if digest.identity not in known:
            reason = f"it is of the ledger {digest.identity}: give it to decide"
            yield Verdict(HISTORY, claim, FALSE if known and by_hand else UNKNOWN, reason)
        elif not by_hand:
            yield Verdict(HISTORY, claim, CONSISTENT, f"the ledger {digest.identity}, at entry {digest.number}")
