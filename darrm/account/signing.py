"""Signatures of a ledger's entries, by an Ed25519 key that lies outside of it.

Whoever can write to a ledger can change an entry and compute all links anew (`darrm.account.head`). So a debit that is
made with a key signs the line of the head at its entry, in the transaction that writes it. **Signing begins with the
first entry and never ends:** nothing is debited with a key whose holder did not sign the entry before, and nothing
without a key where that is signed. Otherwise whoever takes all signatures away and changes what was paid for would have
the next debit of the key's holder sign it.

*Theorem.* Let a ledger be shown whose every entry, up to n, bears a valid signature of the head at it. Then its
identity, budget, kinds, population and entries 1 … n are as the holder of the key wrote them, in one debit after the
other, unless somebody has the key, forges Ed25519 [RFC 8032], or has a collision of SHA-256. *Proof.* The signed line
at n says the link at n, by the theorem of `darrm.account.head` all of these; and the holder signed entry n only after
he had signed the line at n − 1 of the same past: by induction down to the first entry. ∎

*What a signature proves nothing about:* entries after n, which may be cut off as long as no later head is shown; a
budget that was changed before the first entry; the digests of Parquet files, which are drawn after the debit.

**Where it stands:** in the column ``seal`` of an entry, which links replaced in version 4: a ledger of this version
needs no other, one without a key is what it was, and a recovery, which pays nothing, needs no key. Receipts repeat it.
"""

import os
import stat
from pathlib import Path

from darrm.errors import checks
from darrm.system.extras import Untyped, require
from darrm.system.files import check_folder, check_regular

SIGNED = "ed25519:"  # begins a signature
_MOST_BYTES = 2**16
_MAKE = "python -m darrm.account --new-signing-key FILE makes one"
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


class SigningKey:
    """A private key that signs entries.

    Parameters
    ----------
    path
        A file in PEM, as `new_signing_key` writes it, that nobody but its owner may read.

    Raises
    ------
    ValueError
        If it is readable by others, encrypted, or no Ed25519 key.
    OSError
        If it cannot be read.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        file, serialization = Path(path), require("cryptography.hazmat.primitives.serialization")
        check_regular(file, _MOST_BYTES)
        if (mode := file.stat().st_mode) & _OTHERS:
            advice = f"others may have read it: chmod 600 {file}, or make another"
            checks.fail(
                "the signing key", f"{file} of mode {stat.S_IMODE(mode):o}", "readable by its owner only", advice
            )
        try:
            self._key: Untyped = serialization.load_pem_private_key(file.read_bytes(), password=None)
        except TypeError:
            checks.fail("the signing key", str(file), "without a password", _MAKE)
        except (ValueError, require("cryptography.exceptions").UnsupportedAlgorithm):
            checks.fail("the signing key", str(file), "a private key in PEM", _MAKE)
        if not isinstance(self._key, _ed25519().Ed25519PrivateKey):
            checks.fail("the signing key", str(file), "an Ed25519 key", _MAKE)

    def sign(self, text: str) -> str:
        """Return the signature of a text."""
        return f"{SIGNED}{self._key.sign(text.encode()).hex()}"

    def has_signed(self, text: str, signature: str) -> bool:
        """Whether a signature of a text was made with this key: Ed25519 signs a text in one way only."""
        return signature == self.sign(text)


def new_signing_key(path: str | os.PathLike[str]) -> Path:
    """Make a key pair: a private key that only its owner may read, and FILE.pub beside it; return that.

    Raises
    ------
    ValueError
        If one of the files exists: a key is never replaced.
    """
    private, public = Path(path), Path(f"{os.fspath(path)}.pub")
    serialization, key = (
        require("cryptography.hazmat.primitives.serialization"),
        _ed25519().Ed25519PrivateKey.generate(),
    )
    check_folder(private)
    for file in (private, public):
        if file.exists() or file.is_symlink():
            checks.fail("--new-signing-key", str(file), "a file that does not exist yet", "a key is never replaced")
    pem = serialization.Encoding.PEM
    formats = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    known = key.public_key().public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo)
    for file, content, mode in ((private, key.private_bytes(pem, *formats), 0o600), (public, known, 0o644)):
        with os.fdopen(os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode), "wb") as written:
            written.write(content)
            written.flush()
            os.fsync(written.fileno())
    return public


def _ed25519() -> Untyped:
    return require("cryptography.hazmat.primitives.asymmetric.ed25519")
