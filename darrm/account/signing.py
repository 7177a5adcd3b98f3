"""Signatures of a ledger's entries, by an Ed25519 key that lies outside of it.

Whoever can write to a ledger can change an entry and compute all links anew (`darrm.account.head`). So a debit that is
made with a key signs the line of the head at its entry, in the transaction that writes it. **Signing begins with the
first entry and never ends:** with a key nothing follows an entry that it did not sign, and without one nothing follows
a signed one. Otherwise whoever takes signatures away and changes the past would have the holder's next debit sign it.

*Theorem.* Let every entry of a ledger bear a valid signature of the head at it. Then its identity, budget, kinds,
population and entries are as the holder of the key wrote them, one debit after the other, unless somebody has the key,
forges Ed25519, or has a collision of SHA-256. *Proof.* The line at the last entry says the link there, by the theorem
of `darrm.account.head` all of these; and the holder signed entry n after the line at n − 1 of the same past: by
induction down to the first. ∎ *Nothing is proved about* entries that were cut off, as long as no later head is shown; a
budget that was changed before the first entry; the digests of Parquet files, which are drawn after the debit.

It stands in the column ``seal`` of an entry, which links replaced in version 4: no other version is needed, a ledger
without a key is what it was, and a recovery, which pays nothing, needs none. Receipts repeat it.
"""

import os
import stat
from pathlib import Path

from darrm.errors import checks
from darrm.system.extras import Untyped, require
from darrm.system.files import check_regular, sync

SIGNED = "ed25519:"  # begins a signature
_MOST_BYTES = 2**16
_MAKE = "python -m darrm.account --new-signing-key FILE makes one"
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_ED25519, _SERIALIZATION = (
    f"cryptography.hazmat.primitives.{name}" for name in ("asymmetric.ed25519", "serialization")
)


class SigningKey:
    """A private key that signs entries: a file in PEM without a password, that nobody but its owner may read.

    `ValueError` if it is none, or readable by others; `OSError` if it cannot be read.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        file, load = Path(path), require(_SERIALIZATION).load_pem_private_key
        check_regular(file, _MOST_BYTES)
        if (mode := stat.S_IMODE(file.stat().st_mode)) & _OTHERS:
            advice = f"others may have read it: chmod 600 {file}, or make another"
            checks.fail("the signing key", f"{file} of mode {mode:o}", "readable by its owner only", advice)
        try:
            self._key: Untyped = load(file.read_bytes(), password=None)
        except (TypeError, ValueError, require("cryptography.exceptions").UnsupportedAlgorithm):  # with a password, too
            self._key = None
        if not isinstance(self._key, require(_ED25519).Ed25519PrivateKey):
            checks.fail("the signing key", str(file), "an Ed25519 private key in PEM without a password", _MAKE)

    def sign(self, text: str) -> str:
        """Return the signature of a text: the only one, as Ed25519 draws nothing."""
        return f"{SIGNED}{self._key.sign(text.encode()).hex()}"


def new_signing_key(path: str | os.PathLike[str]) -> Path:
    """Make a private key that only its owner may read, and FILE.pub beside it, which is returned; replace nothing."""
    serialization, key = require(_SERIALIZATION), require(_ED25519).Ed25519PrivateKey.generate()
    private, public, pem = Path(path), Path(f"{os.fspath(path)}.pub"), serialization.Encoding.PEM
    if private.exists() or public.exists():
        checks.fail("--new-signing-key", str(private), "a file that does not exist, with its .pub", "none is replaced")
    secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    known = key.public_key().public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo)
    for file, content, mode in ((private, secret, 0o600), (public, known, 0o644)):
        with os.fdopen(os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode), "wb") as written:
            written.write(content)
        sync(file)
    return public
