"""The claims of signatures: that the holder of a key wrote every entry of a ledger, and the heads of receipts.

What `darrm.account.signing` proves of a ledger whose every entry is signed, checked with public keys that were given by
hand: a key that lies beside what it is to prove proves nothing. An entry's signature is one of the head at it, which
then counts as a head that somebody copied. Signing begins with the first entry: a ledger of which some entries are
signed and others are not was changed by somebody without the key.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from darrm.errors import checks
from darrm.system.extras import Untyped, require
from darrm.system.files import check_regular
from darrm.verify.verdicts import FALSE, PROVED, UNKNOWN, Verdict, judged

_SIGNED = "ed25519:"
_MOST_BYTES = 2**16
_CLAIM = "its entries are signed by the holder of a key, each when it was written"
_SHOW = "--public-key FILE, which whoever holds the key gives, would decide it"


@dataclass(frozen=True)
class PublicKey:
    """A key that was given by hand, with where it stands."""

    path: str
    key: Untyped

    def verifies(self, text: str, signature: str) -> bool:
        """Whether the holder of the private key signed a text."""
        try:
            self.key.verify(bytes.fromhex(signature.removeprefix(_SIGNED)), text.encode())
        except (ValueError, require("cryptography.exceptions").InvalidSignature):
            return False
        return signature.startswith(_SIGNED)


def read_public_key(path: Path) -> PublicKey:
    """Read an Ed25519 public key in PEM; `ValueError` if it is none."""
    check_regular(path, _MOST_BYTES)
    serialization = require("cryptography.hazmat.primitives.serialization")
    try:
        key = serialization.load_pem_public_key(path.read_bytes())
    except (ValueError, require("cryptography.exceptions").UnsupportedAlgorithm):
        key = None
    if not isinstance(key, require("cryptography.hazmat.primitives.asymmetric.ed25519").Ed25519PublicKey):
        advice = "account --new-signing-key writes FILE.pub"
        checks.fail("--public-key", str(path), "an Ed25519 public key in PEM", advice)
    return PublicKey(str(path), key)


def judge_signatures(
    signatures: Sequence[str], line_at: Callable[[int], str], keys: Sequence[PublicKey]
) -> list[Verdict]:
    """Judge what stands where signatures of entries do, from the first one on, of the lines of the heads at them."""
    last, signed = len(signatures), [signature.startswith(_SIGNED) for signature in signatures]
    if not any(signed):
        reason = "none is: if the holder of the key signed this ledger, it was written anew"
        return [Verdict("ledger", _CLAIM, UNKNOWN, reason)] if keys and last else []
    if not all(signed):
        reason = f"entry {signed.index(False) + 1} is not signed, and others are: signing begins with the first entry"
        return [Verdict("ledger", _CLAIM, FALSE, reason)]
    if not keys:
        return [Verdict("ledger", _CLAIM, UNKNOWN, _SHOW)]
    signer = next((key for key in keys if key.verifies(line_at(last), signatures[-1])), keys[0])
    wrong = [number for number, one in enumerate(signatures, 1) if not signer.verifies(line_at(number), one)]
    reason = f"{last} signatures checked with {signer.path}"
    if wrong:
        reason = f"the holder of {signer.path} did not sign entry {wrong[0]} as it stands here: {len(wrong)} of {last}"
    return [judged("ledger", _CLAIM, reason, holds=not wrong, how=PROVED)]


def judge_signed(about: str, claim: str, text: str, signature: str, keys: Sequence[PublicKey]) -> Verdict:
    """Judge one signature of a text."""
    signers = [key.path for key in keys if key.verifies(text, signature)]
    if not keys:
        return Verdict(about, claim, UNKNOWN, _SHOW)
    reason = f"checked with {signers[0]}" if signers else "it is no signature of this with a key that was given"
    return judged(about, claim, reason, holds=bool(signers), how=PROVED)


def judge_keys(keys: Sequence[PublicKey], verdicts: Sequence[Verdict]) -> list[Verdict]:
    """Judge that keys which were given by hand are of a ledger among the files, if there is one with entries."""
    judged_ledgers = [one.verdict for one in verdicts if one.claim == _CLAIM]
    if not keys or not judged_ledgers or set(judged_ledgers) != {UNKNOWN}:
        return []
    claim = f"{', '.join(key.path for key in keys)} signed a ledger among the files"
    return [Verdict("ledger", claim, FALSE, "no ledger has a signed entry")]
