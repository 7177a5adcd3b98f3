"""The claims of signatures: that the holder of a key wrote every entry of a ledger, and the heads of receipts.

What `darrm.account.signing` proves, checked with public keys that were given by hand: a key that lies beside what it is
to prove proves nothing. A signature is one of the line of a head. Signing begins with the first entry: a ledger of
which some entries are signed and others are not was changed by somebody without the key.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from darrm.errors import checks
from darrm.system.command_line import numbered
from darrm.system.extras import Untyped, require
from darrm.system.files import check_regular
from darrm.verify.verdicts import FALSE, PROVED, UNKNOWN, Verdict, judged

SIGNED = "ed25519:"
_MOST_BYTES = 2**16
_MOST_CHECKED = 50_000  # signatures: ten seconds
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
            self.key.verify(bytes.fromhex(signature.removeprefix(SIGNED)), text.encode())
        except (ValueError, require("cryptography.exceptions").InvalidSignature):
            return False
        return signature.startswith(SIGNED)


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
    signatures: Sequence[str],
    line_at: Callable[[int], str],
    keys: Sequence[PublicKey],
    about: str = "ledger",
    claim: str = _CLAIM,
) -> list[Verdict]:
    """Judge what stands where signatures of entries do, from the first one on, of the lines of the heads at them."""
    last, signed = len(signatures), [signature.startswith(SIGNED) for signature in signatures]
    if not any(signed):
        reason = "none is: if the holder of the key signed this ledger, it was written anew"
        return [Verdict(about, claim, UNKNOWN, reason)] if keys and last else []
    if not all(signed):
        reason = f"entry {signed.index(False) + 1} is not signed, and others are: signing begins with the first entry"
        return [Verdict(about, claim, FALSE, reason)]
    if not keys:
        return [Verdict(about, claim, UNKNOWN, _SHOW)]
    signer = next((key for key in keys if key.verifies(line_at(last), signatures[-1])), keys[0])
    newest = range(max(1, last - _MOST_CHECKED + 1), last + 1)
    wrong = [number for number in newest if not signer.verifies(line_at(number), signatures[number - 1])]
    older = f"; the last of them binds the {last - len(newest):,} before" if len(newest) < last else ""
    reason = f"{numbered(len(newest), 'signature', 'signatures')} checked with {signer.path}{older}"
    if wrong:
        reason = f"signature {wrong[0]} of {last} is not of what stands here, by the holder of {signer.path}"
    return [judged(about, claim, reason, holds=not wrong, how=PROVED)]


def judge_keys(keys: Sequence[PublicKey], verdicts: Sequence[Verdict]) -> list[Verdict]:
    """Judge that keys which were given by hand are of a ledger among the files, if there is one with entries."""
    of_ledgers = {one.verdict for one in verdicts if one.claim == _CLAIM}
    claim = f"{', '.join(key.path for key in keys)} signed a ledger among the files"
    return [Verdict("ledger", claim, FALSE, "no ledger has a signed entry")] if keys and of_ledgers == {UNKNOWN} else []
