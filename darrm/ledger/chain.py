"""The rows of a ledger, the hashes that chain them, the digest that reveals later changes, and signatures.

An *entry hash* is the SHA-256 of the previous entry hash and of all fields of the entry. Entry hash 0 hashes the
budget: identity, ε, δ, composition, population, time. The *digest* of a ledger at entry n is one line with entry hash
n; receipts, reports and model cards hold it.

**Theorem 1.** Let a ledger give the digest at n. If the n-th entry hash of a file that is shown later is that of the
digest, then its budget and its entries 1 … n are those of the ledger at that time, field by field and in order, up to
collisions of SHA-256.

*Proof.* An entry hash digests the same number of texts for every entry, joined by a character that no text holds. So
equal entry hashes have equal texts, and one of these is the previous entry hash. Induct down to the budget.
∎ The guarding test changes every field of every entry (tests/ledger/test_chain.py).

*A digest proves nothing about* later entries, which may be deleted; deliveries; another ledger about the same people;
the truth of an entry; or the privacy loss, which follows by bounds that improve. If an older copy was restored and
debited, each past refutes the other's digests.

**Signatures.** Anyone who can write to a ledger can change an entry and all entry hashes. So a debit with a key signs
the line of the digest at its entry. *Signing begins with the first entry and never ends:* with a key nothing follows
an unsigned entry, and without one nothing follows a signed entry. Otherwise an attacker could remove signatures and
change the past, and the next debit would sign it.

**Theorem 2.** Let every entry of a ledger bear a valid signature of the digest at it. Then its budget and entries are
as the holder of the key wrote them, one debit after the other, up to theft of the key, forged Ed25519 signatures and
collisions of SHA-256. *Proof.* By Theorem 1 the line at the last entry determines all of these; and the holder signed
entry n after the line at n − 1 of the same past: by induction down to the first. ∎ *Nothing is proved about* entries
that were cut off while no later digest is shown, a budget changed before the first entry, or digests of Parquet files.

**Rows.** A database of format 1 has four tables, and nothing of the votes, not even a digest, which could be guessed:

===========  ===========================================================================================================
``budget``   one row: the cost that all queries together may have, and an identity
``costs``    one row for each cost of a query, with the number of queries so far
``entries``  one row for each debit, numbered 1, 2, …, with its labels until they are delivered
``state``    one row: the number of the last entry, the new place of a moved ledger, a checksum of all totals
===========  ===========================================================================================================
"""

from __future__ import annotations

import hashlib
import os
import stat
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote, unquote

from darrm.privacy import PrivacyParams
from darrm.util import checks
from darrm.util.extras import Untyped, require
from darrm.util.files import Document, check_regular, sync

FORMAT = "darrm-ledger 1"
STREAM = "-"  # begins the output of a stream: that of a file is an absolute path
SIGNED = "ed25519:"  # begins a signature
_DIGEST = "darrm-digest:1"
_ED25519 = "cryptography.hazmat.primitives.asymmetric.ed25519"
_SERIALIZATION = "cryptography.hazmat.primitives.serialization"


def checksum(*fields: object) -> str:
    """Hash fields as text; a text that became a blob has another hash."""
    return hashlib.sha256("\x1f".join(map(str, fields)).encode()).hexdigest()


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


class Budget(NamedTuple):
    format: str
    identity: str  # random, unique to the ledger
    epsilon: str
    delta: str
    composition: str
    population: str  # the public name of the people behind the votes, or empty
    created: str
    checksum: str = ""  # entry hash 0

    @property
    def entry_hash(self) -> str:
        return checksum(*self[:-1])


class Cost(NamedTuple):
    number: int
    cost: str  # `PrivacyCost.to_text`
    what: str
    total: int
    table_digest: str  # the largest digest of a table that answered at this cost, or empty
    checksum: str

    @classmethod
    def first(cls, number: int, cost: str, what: str) -> Cost:
        return cls(number, cost, what, 0, "", checksum(cost, what))


class EntryRow(NamedTuple):
    number: int = 0
    time: str = ""
    cost: int = 0  # the number of the cost
    queries: int = 0  # the column ``count``
    note: str = ""
    table_digest: str = ""
    labels_digest: str = ""
    token: str = ""  # of the call that made it
    output: str = ""
    questions: str = ""  # a JSON list, or empty
    entry_hash: str = ""
    signature: str = ""
    waits: bool = False  # whether labels wait for delivery

    @property
    def has_valid_types(self) -> bool:
        texts = (self.time, *self[4:12])  # SQLite stores anything anywhere
        return isinstance(self.queries, int) and all(isinstance(text, str) for text in texts)

    def compute_hash(self, previous_hash: str, cost: Cost) -> str:
        # ``waits`` changes later
        return checksum(previous_hash, self.number, self.time, cost.checksum, *self[3:10])


class State(NamedTuple):
    last_entry: int
    moved_to: str  # the new place of a moved ledger; empty while it is open
    checksum: str = ""

    def add_checksum(self, last_hash: str, costs: list[Cost]) -> State:
        totals = (value for cost in costs for value in (cost.number, cost.total, cost.table_digest))
        return self._replace(checksum=checksum(self.last_entry, last_hash, self.moved_to, *totals))


@dataclass(frozen=True)
class Entry:
    """One line of the log."""

    time: str
    what: str
    count: int
    note: str
    table: str = ""  # the digest of the proven table that answered
    labels: str = ""  # the digest of the labels that were paid for, `darrm.votes.labels_file.labels_digest`
    delivered: bool = True  # False while the labels wait in the ledger
    output: str = ""  # the file, the folder, or the stream that they are for
    number: int = 0  # counts from 1
    kind: int = 0  # the number of the cost
    questions: tuple[str, ...] = ()  # the public ids of the questions of a stream, in order; empty for none
    entry_hash: str = field(default="", compare=False)  # see `darrm.ledger.chain`
    each: int = 1  # labels that one query's cost pays for, at most: more for a run that is charged as a whole

    @property
    def answers(self) -> int:
        return self.count * self.each

    def pays_for(self, labels: int) -> bool:
        return labels == self.count if self.each == 1 else labels <= self.answers

    @property
    def is_of_a_stream(self) -> bool:
        return self.output.startswith(STREAM)


@dataclass(frozen=True)
class LedgerDigest:
    """The state of a ledger at an entry.

    >>> digest = LedgerDigest("ab12", "ward 7", 3, 120, PrivacyParams("2", "1e-5"), "one", "c0ffee")
    >>> print(digest)
    darrm-digest:1:ab12:3:120:2:0.00001:one:ward%207:c0ffee:e5279002
    >>> LedgerDigest.from_text(digest.to_text()) == digest
    True
    """

    identity: str  # random, unique to the ledger
    population: str  # the public name of the people behind the votes, or empty
    number: int  # the last entry, 0 for none
    queries: int  # the number that all entries paid for
    budget: PrivacyParams
    composition: str
    entry_hash: str  # of the last entry

    def to_text(self) -> str:
        """Return one line; its last word is a checksum of the others."""
        budget = (self.budget.epsilon_text, self.budget.delta_text)
        words = (self.identity, self.number, self.queries, *budget, self.composition, quote(self.population, safe=""))
        text = ":".join(map(str, (_DIGEST, *words, self.entry_hash)))
        return f"{text}:{_compute_check(text)}"

    __str__ = to_text

    @classmethod
    def from_text(cls, text: str) -> LedgerDigest:
        """Read what `to_text` wrote; `ValueError` if a word was miscopied."""
        line, _, check = text.strip().rpartition(":")
        words = line.removeprefix(f"{_DIGEST}:").split(":")
        if not line.startswith(f"{_DIGEST}:") or len(words) != 8 or check != _compute_check(line):
            checks.fail("a digest of a ledger", text, f"a line {_DIGEST}:…", "its last word checks the others")
        identity, number, queries, epsilon, delta, composition, population, entry_hash = words
        budget = PrivacyParams(epsilon, delta)
        return cls(identity, unquote(population), int(number), int(queries), budget, composition, entry_hash)

    def to_json(self) -> Document:
        """Return plain data, with the line as ``text``."""
        return {**vars(self), "budget": self.budget.to_json(), "text": self.to_text()}


def _compute_check(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]


class SigningKey:
    """An Ed25519 key in PEM without a password; `ValueError` if it is none, or others than its owner may read it."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        file, load_key = Path(path), require(_SERIALIZATION).load_pem_private_key
        check_regular(file, 2**16)
        if (mode := stat.S_IMODE(file.stat().st_mode)) & (stat.S_IRWXG | stat.S_IRWXO):
            advice = f"others may have read it: chmod 600 {file}, or make another"
            checks.fail("the signing key", f"{file} of mode {mode:o}", "readable by its owner only", advice)
        try:
            self._key: Untyped = load_key(file.read_bytes(), password=None)
        except (TypeError, ValueError, require("cryptography.exceptions").UnsupportedAlgorithm):  # with a password, too
            self._key = None
        if not isinstance(self._key, require(_ED25519).Ed25519PrivateKey):
            advice = "`darrm ledger key FILE` makes one"
            checks.fail("the signing key", str(file), "an Ed25519 private key in PEM without a password", advice)

    def sign(self, text: str) -> str:
        """Sign a text; a text has only one signature."""
        return f"{SIGNED}{self._key.sign(text.encode()).hex()}"


def new_signing_key(path: str | os.PathLike[str]) -> Path:
    """Make a private key that only its owner may read; return FILE.pub, the public one. Replace nothing."""
    serialization, key = require(_SERIALIZATION), require(_ED25519).Ed25519PrivateKey.generate()
    private, public, pem = Path(path), Path(f"{os.fspath(path)}.pub"), serialization.Encoding.PEM
    if private.exists() or public.exists():
        checks.fail("the new key", str(private), "a file that does not exist, with its .pub", "none is replaced")
    secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    shared = key.public_key().public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo)
    for file, content, mode in ((private, secret, 0o600), (public, shared, 0o644)):
        with os.fdopen(os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode), "wb") as handle:
            handle.write(content)
        sync(file)
    return public
