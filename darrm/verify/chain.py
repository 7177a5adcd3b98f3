"""Read a ledger, and judge its past: earlier digests of it, signatures of its entries, and receipts.

Every entry carries the SHA-256 of its fields and of the hash before it. A *ledger digest* is one line with the hash of
entry n. *Theorem.* Let the recomputed hash of entry n equal the hash in an earlier digest. Then identity, budget and
entries 1 … n are as they were at the digest, field by field, or a collision of SHA-256 is known. *Proof.* A hash is of
texts joined by a character that no text contains, so equal hashes have equal parts. One part is the hash of the entry
before: by induction down to the hash of the budget. ∎ A signature of the digest proves the same to a reader who has the
public key from its holder, not from the folder. Without either, the ledger may be cut off or rewritten: the verdict is
*assumed*.
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
    hash_fields,
    parse_exact,
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
    decide,
    pluralize,
)

COMPOSITIONS = ("one", "planned", "adaptive", "renyi")
STREAM = "-"  # the output of a stream begins with it; that of a file is an absolute path
_SIGNATURE, _RECEIPT_END = "ed25519:", ".receipt.json"
_APPLICATION_ID, _VERSION = 0x6C656467, 1
_DIGEST = re.compile(r"darrm-digest:1:[0-9A-Za-z:.%_/-]+")
_LINE = re.compile(DIGEST_PREFIX + r"([^:]*):(\d{1,18}):(\d{1,18}):([^:]*):([^:]*):([^:]*):([^:]*):([^:]*)")
_CHECK_DIGITS = 8  # digits that check a line
_MAX_KEY_BYTES, _MAX_CHECKED_SIGNATURES = 2**16, 50_000  # signatures: ten seconds
_WHOLE = "it is the ledger that it was: no entry deleted, changed, reordered or merged, no other budget or identity"
_UNTRUNCATED_CLAIM = "the ledger was not truncated"
_ADVICE = "give --digest or a receipt to check"
SIGNED = "its entries are signed by the holder of a key"
_RECEIPT_FIELDS = ("time", "what", "count", "table", "labels")
# fields of an entry that may differ under another identity
_COPY_DIFFERENCES: tuple[list[str], ...] = ([], ["cost"])
_MAX_LISTED = 5  # entries by their numbers
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
    files: Mapping[str, str]  # the SHA-256 of each file that was drawn after the debit
    signature: str
    waiting: bytes | None  # the labels until they are delivered
    what: str = ""
    labels_per_query: int = 1  # labels that one query pays for, at most

    @property
    def answers(self) -> int:
        """Labels paid for, at most."""
        return self.count * self.labels_per_query

    def pays_for(self, labels: int) -> bool:
        return labels == self.count if self.labels_per_query == 1 else labels <= self.answers

    @property
    def is_stream(self) -> bool:
        return self.output.startswith(STREAM)


@dataclass(frozen=True, eq=False)
class Ledger:
    identity: str
    epsilon: str
    delta: str
    composition: str
    population: str
    created: str
    charges: Mapping[int, Charge]  # the cost of each kind of query, with the number of queries
    costs: Mapping[int, str]  # the same as text
    entries: tuple[Entry, ...]
    hashes: tuple[str, ...]  # computed here: of the budget, and of each entry
    queries: tuple[int, ...]  # their number before the first entry, and up to each

    @property
    def budget(self) -> Point:
        return parse_exact(self.epsilon), parse_exact(self.delta)

    def digest(self, number: int, source: str = "") -> "LedgerDigest":
        words = (self.epsilon, self.delta, self.composition, self.population, self.hashes[number])
        return LedgerDigest(self.identity, number, self.queries[number], *words, source)


def read_ledger(files: Mapping[str, bytes]) -> Ledger:
    """Read files by name ending; `LedgerFaultError` if they are damaged or no ledger."""
    with tempfile.TemporaryDirectory(prefix="darrm-verify-") as folder:
        copy = Path(folder) / "ledger.sqlite"
        for ending, content in files.items():
            copy.with_name(copy.name + ending).write_bytes(content)
        try:
            with closing(sqlite3.connect(f"{copy.absolute().as_uri()}?mode=rw", uri=True)) as connection:
                _check_database(connection)
                return _read_rows(connection)
        except ValueError as error:
            raise LedgerFaultError(str(error)) from error
        except (sqlite3.Error, *MALFORMED) as error:
            raise LedgerFaultError(f"it cannot be read ({type(error).__name__}: {error})") from error


def _check_database(connection: sqlite3.Connection) -> None:
    numbers = [connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")]
    if numbers != [_APPLICATION_ID, _VERSION]:
        raise ValueError("it is no ledger, or of a version that is not read")
    query = "SELECT count(*) FROM sqlite_master WHERE type IN ('trigger', 'view')"
    if connection.execute(query).fetchone() != (0,):
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
            return _read_rows(connection)
    except psycopg.OperationalError:
        raise ValueError("the server of the ledger cannot be reached: check the URL and PGPASSWORD") from None
    except ValueError as error:
        raise LedgerFaultError(str(error)) from error
    except (psycopg.Error, *MALFORMED) as error:
        raise LedgerFaultError(f"the server holds no ledger ({type(error).__name__})") from error


def _read_rows(connection: Any) -> Ledger:  # noqa: ANN401 (of sqlite3 or psycopg)
    budgets = connection.execute(_BUDGET).fetchall()
    if len(budgets) != 1:
        raise ValueError("it has no single budget")
    budget: tuple[str, str, str, str, str, str] = budgets[0][:6]
    stored_hash = budgets[0][6]
    hashes, queries = [hash_fields("darrm-ledger 1", *budget)], [0]  # the first entry follows the hash of the budget
    if stored_hash != hashes[0] or not budget[0] or budget[3] not in COMPOSITIONS:
        raise ValueError("the budget was changed")
    _ = parse_exact(budget[1]), parse_exact(budget[2])
    kinds, totals = dict[int, tuple[Charge, str, str, str]](), list[object]()
    for number, cost, cost_name, total, answered, stored_hash in connection.execute(_COSTS).fetchall():
        if stored_hash != hash_fields(cost, cost_name):
            raise ValueError("the cost of a query was changed")
        charge = read_charge(parse_json(cost.encode(), may_be_infinite=True))
        kinds[number] = replace(charge, count=total), cost, cost_name, stored_hash
        totals += [number, total, answered]
    entries, counts = list[Entry](), dict.fromkeys(kinds, 0)
    rows = connection.execute(_ENTRIES)
    for number, moment, cost, count, note, table, labels, token, output, questions, *columns in rows:
        stored_hash, signature, files, waiting = columns
        charge, _, cost_name, checksum = kinds[cost]
        fields = number, moment, checksum, count, note, table, labels, token, output, questions
        hashes.append(hash_fields(hashes[-1], *fields))
        if number != len(hashes) - 1 or stored_hash != hashes[-1]:
            raise ValueError(f"entry {number} does not carry the hash of itself and of the entry before it")
        queries.append(queries[-1] + count)
        counts[cost] += count
        names: tuple[str, ...] = read(parse_json(questions.encode()), [str]) if questions else ()
        checksums: dict[str, str] = read_texts(parse_json(files.encode())) if files else {}
        label_bytes = None if waiting is None else bytes(waiting)
        details = names, checksums, str(signature), label_bytes, cost_name, charge.labels
        entries.append(Entry(number, moment, cost, count, note, table, labels, output, *details))
    last, moved_to, stored_hash = connection.execute("SELECT last_entry, moved_to, checksum FROM state").fetchone()
    if last != len(entries) or stored_hash != hash_fields(last, hashes[-1], moved_to, *totals):
        raise ValueError("entries are missing, or the totals are not those of the entries")
    if any(count != kinds[number][0].count for number, count in counts.items()):
        raise ValueError("the entries and the totals differ")
    charges = {number: kind[0] for number, kind in kinds.items()}
    costs = {number: kind[1] for number, kind in kinds.items()}
    return Ledger(*budget, charges, costs, tuple(entries), tuple(hashes), tuple(queries))


def format_numbers(numbers: Sequence[int]) -> str:
    remainder = f" and {len(numbers) - _MAX_LISTED:,} more" if len(numbers) > _MAX_LISTED else ""
    return f"entr{'y' if len(numbers) == 1 else 'ies'} {', '.join(map(str, numbers[:_MAX_LISTED]))}{remainder}"


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
        return f"{text}:{hashlib.sha256(text.encode()).hexdigest()[:_CHECK_DIGITS]}"

    def find_fault(self, ledger: Ledger) -> str:
        """Describe a contradiction with its ledger, or return nothing."""
        last = len(ledger.entries)
        if self.number > last:
            return f"has {self.number} entries, and the ledger {last}: entries are gone, or it is an older copy"
        expected = ledger.digest(self.number)
        for names, fault in (
            (("identity",), "is of the ledger {}, and this is another"),
            (("epsilon", "delta", "composition"), "has the budget ({}), and the ledger another"),
            (("population",), "is about the population {}, and the ledger about another"),
            (("entry_hash", "queries"), f"has another hash at entry {self.number}: an entry up to it is another"),
        ):
            values = [getattr(self, name) for name in names]
            if values != [getattr(expected, name) for name in names]:
                return fault.format(", ".join(map(str, values)))
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
    is_whole = hashlib.sha256(body.encode()).hexdigest()[:_CHECK_DIGITS] == check
    if not is_whole or not (match := _LINE.fullmatch(body)):
        raise ValueError(f"{source} is no digest of a ledger, or was miscopied: it is a line {DIGEST_PREFIX}…")
    identity, number, queries, epsilon, delta, composition, population, entry_hash = match.groups()
    return LedgerDigest(
        identity, int(number), int(queries), epsilon, delta, composition, unquote(population), entry_hash, source
    )


def read_digests(path: str, content: bytes) -> tuple[list[LedgerDigest], list[Verdict]]:
    """Read every digest in a text; a miscopied one is false."""
    digests, faults = list[LedgerDigest](), list[Verdict]()
    for line in sorted(set(_DIGEST.findall(content.decode("utf-8", errors="replace")))):
        try:
            digests.append(read_digest(line, Path(path).name))
        except ValueError as error:
            faults.append(Verdict("history", f"it holds the digest {line}", FALSE, str(error)))
    return digests, faults


def judge_digests(digests: Sequence[LedgerDigest], ledgers: Sequence[Ledger], *, by_hand: bool) -> Iterator[Verdict]:
    identities = {ledger.identity for ledger in ledgers}
    for digest in digests:
        claim = f"{digest.source} is of a ledger among the files"
        if digest.identity not in identities:
            reason = f"it is of the ledger {digest.identity}: give it to decide"
            yield Verdict("history", claim, FALSE if identities and by_hand else UNKNOWN, reason)
        elif not by_hand:
            yield Verdict("history", claim, CONSISTENT, f"the ledger {digest.identity}, at entry {digest.number}")


def judge_history(ledger: Ledger, digests: Sequence[LedgerDigest], keys: Sequence["PublicKey"]) -> Iterator[Verdict]:
    checked_digests, last = sorted(digests, key=attrgetter("number")), len(ledger.entries)
    signatures = [entry.signature for entry in ledger.entries]
    signature_verdicts = judge_signatures(signatures, lambda number: ledger.digest(number).to_text(), keys)
    yield from signature_verdicts
    if signature_verdicts and signature_verdicts[0].verdict == PROVED:
        checked_digests.append(ledger.digest(last, f"the signature of entry {last}"))
    covered_entry = None
    for digest in checked_digests:
        fault = digest.find_fault(ledger)
        reason = f"{digest.source} {fault or 'has the hash computed here'}"
        yield decide("history", f"{_WHOLE}, up to entry {digest.number}", reason, holds=not fault, how=PROVED)
        covered_entry = covered_entry if fault else digest.number
    if not checked_digests and last:
        yield Verdict("history", f"{_UNTRUNCATED_CLAIM} or rewritten", ASSUMED, _ADVICE)
    elif covered_entry is not None:
        claim = f"{_UNTRUNCATED_CLAIM} after entry {covered_entry}"
        yield Verdict("history", claim, ASSUMED, f"the latest digest is of entry {covered_entry} of {last}: {_ADVICE}")


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
    if not path.is_file() or path.stat().st_size > _MAX_KEY_BYTES:
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
    last, are_signed = len(signatures), [signature.startswith(_SIGNATURE) for signature in signatures]
    if not any(are_signed):
        reason = "none is; if the holder of the key signed this ledger, it was written again: ask them"
        return [Verdict(about, claim, UNKNOWN, reason)] if keys and last else []
    if not all(are_signed):
        reason = (
            f"entry {are_signed.index(False) + 1} is not signed, and others are: signing begins with the first entry"
        )
        return [Verdict(about, claim, FALSE, reason)]
    if not keys:
        return [Verdict(about, claim, UNKNOWN, "--public-key FILE, from the holder of the key, would decide it")]
    signer = next((key for key in keys if key.verifies(line_at(last), signatures[-1])), keys[0])
    newest = range(max(1, last - _MAX_CHECKED_SIGNATURES + 1), last + 1)
    wrong_numbers = [number for number in newest if not signer.verifies(line_at(number), signatures[number - 1])]
    reason = f"{pluralize(len(newest), 'signature', 'signatures')} checked with {signer.path}"
    if wrong_numbers:
        reason = f"the signature of {format_numbers(wrong_numbers)} does not fit the key {signer.path} and the ledger"
    return [decide(about, claim, reason, holds=not wrong_numbers, how=PROVED)]


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
    file_hashes: Mapping[str, str],
    keys: Sequence[PublicKey] = (),
) -> Iterator[Verdict]:
    """``file_hashes`` holds the SHA-256 of files with labels, by path."""
    digest = receipt.digest
    same = [ledger for ledger in ledgers if ledger.identity == digest.identity]
    compared = ledgers if receipt.entry.get("labels") else ()
    renamed = [ledger for ledger in compared if _list_differences(receipt, ledger) in _COPY_DIFFERENCES]
    claim = f"it repeats entry {digest.number} of the ledger {digest.identity}"
    if same:
        differences = _list_differences(receipt, same[0])
        reason = (
            f"other than there: {', '.join(differences)}" if differences else "time, count, cost and digests are equal"
        )
        yield decide("receipt", claim, reason, holds=not differences, how=PROVED)
    elif renamed:
        reason = f"the ledger that holds this entry is called {renamed[0].identity}: its identity was changed"
        yield Verdict("receipt", claim, FALSE, reason)
    else:
        yield Verdict("receipt", claim, UNKNOWN, "that ledger is not among the files: it would decide")
    if receipt.signature:
        claim = f"the holder of a key signed its digest at entry {digest.number}"
        yield from judge_signatures([receipt.signature], lambda _: digest.to_text(), keys, "receipt", claim)
    yield _judge_own_labels(receipt, labels, file_hashes)


def _list_differences(receipt: Receipt, ledger: Ledger) -> list[str]:
    if not 1 <= receipt.digest.number <= len(ledger.entries):
        return [f"it has {pluralize(len(ledger.entries), 'entry', 'entries')}"]
    entry = ledger.entries[receipt.digest.number - 1]
    fields = {**{name: getattr(entry, name) for name in _RECEIPT_FIELDS}, "cost": ledger.costs[entry.cost]}
    return sorted(name for name in fields.keys() | receipt.entry.keys() if fields.get(name) != receipt.entry.get(name))


def _judge_own_labels(receipt: Receipt, labels: Mapping[str, LabelsFile], file_hashes: Mapping[str, str]) -> Verdict:
    own_path = Path(receipt.path.removesuffix(_RECEIPT_END))
    claim = f"the labels of {own_path.name} are those that were paid for"
    by_path = {Path(path): value for path, value in file_hashes.items() if Path(path).is_relative_to(own_path)}
    # of a single file, or of a folder
    by_name = {
        own_path.name if path == own_path else path.relative_to(own_path).as_posix(): value
        for path, value in by_path.items()
    }
    if receipt.files and by_name:
        names = sorted(by_name.keys() | receipt.files.keys())
        wrong = [name for name in names if by_name.get(name) != receipt.files.get(name)]
        reason = f"the SHA-256 differs, or is missing: {', '.join(wrong[:5])}" if wrong else "the SHA-256 of each file"
        return decide("labels match their debit", claim, reason, holds=not wrong, how=PROVED)
    if str(own_path) in labels and receipt.entry.get("labels"):
        digest = labels[str(own_path)].digest()
        holds = digest == receipt.entry["labels"]
        return decide("labels match their debit", claim, f"their SHA-256 is {digest}", holds=holds, how=PROVED)
    return Verdict("labels match their debit", claim, UNKNOWN, "they are not among the files: they would decide")
