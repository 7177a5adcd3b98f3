"""Read a ledger, and judge its past: earlier digests of it, signatures of its entries, and receipts.

Every entry carries the SHA-256 of its fields and of the hash before it. A *ledger digest* is one line with the hash of
entry n. *Theorem.* Let the recomputed hash of entry n equal that of an earlier digest. Then identity, budget and
entries 1 … n equal those of that time, field by field, or a collision of SHA-256 is known. *Proof.* A hash is of texts,
joined by a character that no text contains, so equal hashes have equal parts. One part is the hash before: by induction
down to that of the budget. ∎ A signature of the digest proves the same to a reader who has the public key from its
holder, not from the folder. Without either, the ledger may be cut off or rewritten: the verdict is *assumed*.
"""

import hashlib
import re
import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from darrm.verify.files import LabelsFile
from darrm.verify.formats import (
    DIGEST_PREFIX,
    MALFORMED,
    Charge,
    Json,
    exact_number,
    join,
    parse_json,
    read,
    read_charge,
    read_texts,
)
from darrm.verify.verdicts import (
    ASSUMED,
    CONSISTENT,
    FALSE,
    PROVED,
    UNKNOWN,
    LedgerFaultError,
    Point,
    ReceiptFaultError,
    Topic,
    Verdict,
    counted,
    judged,
)

COMPOSITIONS = ("one", "planned", "adaptive", "renyi")
STREAM = "-"  # begins the output of a stream; that of a file is an absolute path
_SIGNATURE, _RECEIPT_END = "ed25519:", ".receipt.json"
_APPLICATION, _VERSION = 0x6C656467, 1
_DIGEST = re.compile(r"darrm-digest:1:[0-9A-Za-z:.%_/-]+")
_LINE = re.compile(DIGEST_PREFIX + r"([^:]*):(\d{1,18}):(\d{1,18}):([^:]*):([^:]*):([^:]*):([^:]*):([^:]*)")
_CHECK = 8  # digits that check a line
_MOST_KEY_BYTES, _MOST_CHECKED = 2**16, 50_000  # signatures: ten seconds
_WHOLE = "it is the ledger that it was: no entry deleted, changed, reordered or merged, no other budget or identity"
_NOT_CUT = "the ledger was not truncated"
_GIVE = "give --digest or a receipt to check"
SIGNED = "its entries are signed by the holder of a key"
_FIELDS = ("time", "what", "count", "table", "labels")
_ALIKE: tuple[list[str], ...] = ([], ["cost"])  # fields of an entry that may differ under another identity
_SHOWN = 5  # entries by their numbers
_BUDGET = "SELECT identity, epsilon, delta, composition, population, created, checksum FROM budget"
_COSTS = "SELECT id, cost, what, total, table_digest, checksum FROM costs ORDER BY id"
_ENTRIES = (
    "SELECT id, time, cost, count, note, table_digest, labels_digest, token, output, questions, entry_hash, "
    "signature, files, labels FROM entries ORDER BY id"
)


@dataclass(frozen=True)
class Entry:
    number: int  # from 1 on
    time: str
    cost: int  # the number of its cost
    count: int
    note: str
    table: str  # the digest of the release that answered
    labels: str  # the digest of the labels
    output: str
    questions: tuple[str, ...]
    files: Mapping[str, str]  # drawn after the debit: the SHA-256 of each
    signature: str
    waiting: bytes | None  # the labels until they are delivered
    what: str = ""
    each: int = 1  # labels that one query pays for, at most

    @property
    def answers(self) -> int:
        """Labels paid for, at most."""
        return self.count * self.each

    def pays_for(self, labels: int) -> bool:
        return labels == self.count if self.each == 1 else labels <= self.answers

    @property
    def is_of_a_stream(self) -> bool:
        return self.output.startswith(STREAM)


@dataclass(frozen=True, eq=False)
class Ledger:
    identity: str
    epsilon: str
    delta: str
    composition: str
    population: str
    created: str
    charges: Mapping[int, Charge]  # of each kind of query, with the number of queries
    costs: Mapping[int, str]  # the same as text
    entries: tuple[Entry, ...]
    hashes: tuple[str, ...]  # computed here: before the first entry, and of each
    queries: tuple[int, ...]  # up to each

    @property
    def budget(self) -> Point:
        return exact_number(self.epsilon), exact_number(self.delta)

    def digest(self, number: int, source: str = "") -> "LedgerDigest":
        words = (self.epsilon, self.delta, self.composition, self.population, self.hashes[number])
        return LedgerDigest(self.identity, number, self.queries[number], *words, source)


def read_ledger(files: Mapping[str, bytes]) -> Ledger:
    """Read files by name ending; `LedgerFaultError` if they are damaged or no ledger."""
    with tempfile.TemporaryDirectory(prefix="darrm-verify-") as folder:
        copy = Path(folder) / "ledger.sqlite"
        for beside, content in files.items():
            copy.with_name(copy.name + beside).write_bytes(content)
        try:
            with closing(sqlite3.connect(f"{copy.absolute().as_uri()}?mode=rw", uri=True)) as connection:
                _check_whole(connection)
                return _read(connection)
        except ValueError as error:
            raise LedgerFaultError(str(error)) from error
        except (sqlite3.Error, *MALFORMED) as error:
            raise LedgerFaultError(f"it cannot be read ({type(error).__name__}: {error})") from error


def _check_whole(connection: sqlite3.Connection) -> None:
    numbers = [connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")]
    if numbers != [_APPLICATION, _VERSION]:
        raise ValueError("it is no ledger, or of a version that is not read")
    added = "SELECT count(*) FROM sqlite_master WHERE type IN ('trigger', 'view')"
    if connection.execute(added).fetchone() != (0,):
        raise ValueError("a trigger or a view was added, which may undo a debit")
    if connection.execute("PRAGMA quick_check(1)").fetchone() != ("ok",):
        raise ValueError("its pages are damaged")


def read_postgres(url: str) -> Ledger:
    try:
        psycopg: Any = import_module("psycopg")
    except ImportError:
        raise ValueError("a ledger in PostgreSQL needs psycopg: pip install psycopg") from None
    try:
        with psycopg.connect(url, autocommit=False) as connection:
            connection.read_only = True
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            return _read(connection)
    except psycopg.OperationalError:
        raise ValueError("the server of the ledger cannot be reached: check the URL and PGPASSWORD") from None
    except ValueError as error:
        raise LedgerFaultError(str(error)) from error
    except (psycopg.Error, *MALFORMED) as error:
        raise LedgerFaultError(f"the server holds no ledger ({type(error).__name__})") from error


def _read(connection: Any) -> Ledger:  # noqa: ANN401 (of sqlite3 or psycopg)
    budgets = connection.execute(_BUDGET).fetchall()
    if len(budgets) != 1:
        raise ValueError("it has no single budget")
    budget: tuple[str, str, str, str, str, str] = budgets[0][:6]
    stored = budgets[0][6]
    hashes, queries = [join("darrm-ledger 1", *budget)], [0]  # the first entry follows the hash of the budget
    if stored != hashes[0] or not budget[0] or budget[3] not in COMPOSITIONS:
        raise ValueError("the budget was changed")
    _ = exact_number(budget[1]), exact_number(budget[2])
    kinds, totals = dict[int, tuple[Charge, str, str, str]](), list[object]()
    for number, cost, what, total, answered, stored in connection.execute(_COSTS).fetchall():
        if stored != join(cost, what):
            raise ValueError("the cost of a query was changed")
        charge = read_charge(parse_json(cost.encode(), may_be_infinite=True))
        kinds[number] = replace(charge, count=total), cost, what, stored
        totals += [number, total, answered]
    entries, counts = list[Entry](), dict.fromkeys(kinds, 0)
    for number, moment, cost, count, note, table, labels, token, output, questions, *rest in connection.execute(
        _ENTRIES
    ):
        stored, signature, files, kept = rest
        charge, _, what, checksum = kinds[cost]
        hashes.append(join(hashes[-1], number, moment, checksum, count, note, table, labels, token, output, questions))
        if number != len(hashes) - 1 or stored != hashes[-1]:
            raise ValueError(f"entry {number} does not carry the hash of itself and of the entry before it")
        queries.append(queries[-1] + count)
        counts[cost] += count
        asked: tuple[str, ...] = read(parse_json(questions.encode()), [str]) if questions else ()
        drawn: dict[str, str] = read_texts(parse_json(files.encode())) if files else {}
        more = (asked, drawn, str(signature), None if kept is None else bytes(kept), what, charge.labels)
        entries.append(Entry(number, moment, cost, count, note, table, labels, output, *more))
    last, moved_to, stored = connection.execute("SELECT last_entry, moved_to, checksum FROM state").fetchone()
    if last != len(entries) or stored != join(last, hashes[-1], moved_to, *totals):
        raise ValueError("entries are missing, or the totals are not those of the entries")
    if any(count != kinds[number][0].count for number, count in counts.items()):
        raise ValueError("the entries and the totals differ")
    charges = {number: kind[0] for number, kind in kinds.items()}
    costs = {number: kind[1] for number, kind in kinds.items()}
    return Ledger(*budget, charges, costs, tuple(entries), tuple(hashes), tuple(queries))


def numbered(numbers: Sequence[int]) -> str:
    more = f" and {len(numbers) - _SHOWN:,} more" if len(numbers) > _SHOWN else ""
    return f"entr{'y' if len(numbers) == 1 else 'ies'} {', '.join(map(str, numbers[:_SHOWN]))}{more}"


@dataclass(frozen=True)
class LedgerDigest:
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
        words = (self.identity, self.number, self.queries, self.epsilon, self.delta, self.composition)
        text = DIGEST_PREFIX + ":".join(map(str, (*words, quote(self.population, safe=""), self.entry_hash)))
        return f"{text}:{hashlib.sha256(text.encode()).hexdigest()[:_CHECK]}"

    def fault(self, ledger: Ledger) -> str:
        """Describe a contradiction with its ledger, or return nothing."""
        last = len(ledger.entries)
        if self.number > last:
            return f"has {self.number} entries, and the ledger {last}: entries are gone, or it is an older copy"
        own = ledger.digest(self.number)
        for names, fault in (
            (("identity",), "is of the ledger {}, and this is another"),
            (("epsilon", "delta", "composition"), "has the budget ({}), and the ledger another"),
            (("population",), "is about the population {}, and the ledger about another"),
            (("entry_hash", "queries"), f"has another hash at entry {self.number}: an entry up to it is another"),
        ):
            theirs = [getattr(self, name) for name in names]
            if theirs != [getattr(own, name) for name in names]:
                return fault.format(", ".join(map(str, theirs)))
        return ""


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


def digests_in(path: str, content: bytes) -> tuple[list[LedgerDigest], list[Verdict]]:
    """Read every digest in a text; a miscopied one is false."""
    digests, wrong = list[LedgerDigest](), list[Verdict]()
    for line in sorted(set(_DIGEST.findall(content.decode("utf-8", errors="replace")))):
        try:
            digests.append(read_digest(line, Path(path).name))
        except ValueError as error:
            wrong.append(Verdict("history", f"it holds the digest {line}", FALSE, str(error)))
    return digests, wrong


def judge_digests(digests: Sequence[LedgerDigest], ledgers: Sequence[Ledger], *, by_hand: bool) -> Iterator[Verdict]:
    known = {ledger.identity for ledger in ledgers}
    for digest in digests:
        claim = f"{digest.source} is of a ledger among the files"
        if digest.identity not in known:
            reason = f"it is of the ledger {digest.identity}: give it to decide"
            yield Verdict("history", claim, FALSE if known and by_hand else UNKNOWN, reason)
        elif not by_hand:
            yield Verdict("history", claim, CONSISTENT, f"the ledger {digest.identity}, at entry {digest.number}")


def judge_history(ledger: Ledger, digests: Sequence[LedgerDigest], keys: Sequence["PublicKey"]) -> Iterator[Verdict]:
    shown, last = sorted(digests, key=attrgetter("number")), len(ledger.entries)
    signatures = [entry.signature for entry in ledger.entries]
    signed = judge_signatures(signatures, lambda number: ledger.digest(number).to_text(), keys)
    yield from signed
    if signed and signed[0].verdict == PROVED:
        shown.append(ledger.digest(last, f"the signature of entry {last}"))
    covered = None
    for digest in shown:
        fault = digest.fault(ledger)
        reason = f"{digest.source} {fault or 'has the hash computed here'}"
        yield judged("history", f"{_WHOLE}, up to entry {digest.number}", reason, holds=not fault, how=PROVED)
        covered = covered if fault else digest.number
    if not shown and last:
        yield Verdict("history", f"{_NOT_CUT} or rewritten", ASSUMED, _GIVE)
    elif covered is not None:
        claim = f"{_NOT_CUT} after entry {covered}"
        yield Verdict("history", claim, ASSUMED, f"the latest digest is of entry {covered} of {last}: {_GIVE}")


@dataclass(frozen=True)
class PublicKey:
    """From the command line: a key among the audited files would prove nothing."""

    path: str
    key: Any

    def verifies(self, text: str, signature: str) -> bool:
        invalid: Any = import_module("cryptography.exceptions").InvalidSignature
        try:
            self.key.verify(bytes.fromhex(signature.removeprefix(_SIGNATURE)), text.encode())
        except (ValueError, invalid):
            return False
        return signature.startswith(_SIGNATURE)


def read_public_key(path: Path) -> PublicKey:
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
    about: Topic = "history",
    claim: str = SIGNED,
) -> list[Verdict]:
    last, signed = len(signatures), [signature.startswith(_SIGNATURE) for signature in signatures]
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


@dataclass(frozen=True)
class Receipt:
    path: str
    digest: LedgerDigest
    entry: Mapping[str, Json]
    files: Mapping[str, str]  # the SHA-256 of labels that were drawn file by file
    signature: str


def read_receipt(path: str, content: bytes) -> Receipt:
    try:
        form = {"format": str, "ledger_digest": dict, "entry": dict, "files?": dict, "signature?": str}
        data = read(parse_json(content), form)
        digest = read_digest(data["ledger_digest"]["text"], Path(path).name)
    except (ValueError, *MALFORMED) as error:
        raise ReceiptFaultError(f"{type(error).__name__}: {error}") from error
    if not data.get("signature", _SIGNATURE).startswith(_SIGNATURE):
        raise ReceiptFaultError("its signature is none")
    fields = {name: value for name, value in vars(digest).items() if name != "source"}
    budget = {name: fields.pop(name) for name in ("epsilon", "delta")}
    if data["ledger_digest"] != {**fields, "budget": budget, "text": digest.to_text()}:
        raise ReceiptFaultError("the fields of its digest are not what its line says")
    return Receipt(path, digest, data["entry"], data.get("files", {}), data.get("signature", ""))


def judge_receipt(
    receipt: Receipt,
    ledgers: Sequence[Ledger],
    labels: Mapping[str, LabelsFile],
    sealed: Mapping[str, str],
    keys: Sequence[PublicKey] = (),
) -> Iterator[Verdict]:
    """``sealed`` holds the SHA-256 of files with labels, by path."""
    digest = receipt.digest
    own = [ledger for ledger in ledgers if ledger.identity == digest.identity]
    alike = [ledger for ledger in ledgers if receipt.entry.get("labels") and _differing(receipt, ledger) in _ALIKE]
    claim = f"it repeats entry {digest.number} of the ledger {digest.identity}"
    if own:
        wrong = _differing(receipt, own[0])
        reason = f"other than there: {', '.join(wrong)}" if wrong else "time, count, cost and digests are equal"
        yield judged("receipt", claim, reason, holds=not wrong, how=PROVED)
    elif alike:
        reason = f"the ledger that holds this entry is called {alike[0].identity}: its identity was changed"
        yield Verdict("receipt", claim, FALSE, reason)
    else:
        yield Verdict("receipt", claim, UNKNOWN, "that ledger is not among the files: it would decide")
    if receipt.signature:
        claim = f"the holder of a key signed its digest at entry {digest.number}"
        yield from judge_signatures([receipt.signature], lambda _: digest.to_text(), keys, "receipt", claim)
    yield _judge_accompanied(receipt, labels, sealed)


def _differing(receipt: Receipt, ledger: Ledger) -> list[str]:
    if not 1 <= receipt.digest.number <= len(ledger.entries):
        return [f"it has {counted(len(ledger.entries), 'entry', 'entries')}"]
    entry = ledger.entries[receipt.digest.number - 1]
    own = {**{name: getattr(entry, name) for name in _FIELDS}, "cost": ledger.costs[entry.cost]}
    return sorted(name for name in own.keys() | receipt.entry.keys() if own.get(name) != receipt.entry.get(name))


def _judge_accompanied(receipt: Receipt, labels: Mapping[str, LabelsFile], sealed: Mapping[str, str]) -> Verdict:
    own = Path(receipt.path.removesuffix(_RECEIPT_END))
    claim = f"the labels of {own.name} are those that were paid for"
    inside = {Path(path): value for path, value in sealed.items() if Path(path).is_relative_to(own)}
    # of a single file, or of a folder
    found = {own.name if path == own else path.relative_to(own).as_posix(): value for path, value in inside.items()}
    if receipt.files and found:
        names = sorted(found.keys() | receipt.files.keys())
        wrong = [name for name in names if found.get(name) != receipt.files.get(name)]
        reason = f"the SHA-256 differs, or is missing: {', '.join(wrong[:5])}" if wrong else "the SHA-256 of each file"
        return judged("labels match their debit", claim, reason, holds=not wrong, how=PROVED)
    if str(own) in labels and receipt.entry.get("labels"):
        ours = labels[str(own)].digest()
        holds = ours == receipt.entry["labels"]
        return judged("labels match their debit", claim, f"their SHA-256 is {ours}", holds=holds, how=PROVED)
    return Verdict("labels match their debit", claim, UNKNOWN, "they are not among the files: they would decide")
