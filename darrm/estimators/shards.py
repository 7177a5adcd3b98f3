"""The teacher of each person: a hash of the person alone, independent of all data.

The guarantee of an ensemble needs ``overlap=1``: *one person's data influence one teacher*. Shards that are balanced by
label, or assigned in the order of labels, violate it: one changed label moves many people, and neighboring data sets
differ in many shards. So the teacher of a person is a keyed hash of their name only:

    teacher(p) = H(key, p) mod K,        key from ``random_state``, K = ``n_teachers``.

**Theorem.** Let D and D' differ in one person p: p's rows are replaced, or (with ``groups``) p is in one of them only.
For every key all shards except that of teacher(p) hold the same rows in the same order. *Proof.* A row's teacher is a
function of the key and of the row's person. The rows of all others are the same in D and D', in the same order, so
every shard without p is the same list. ∎

Teachers are trained from seeds that depend on the key and on their number only, so all other teachers are equal to the
bit, and at most one of K votes changes.

Without ``groups`` every row is a person, identified by its position, and neighbors differ in the content of one row (as
in `darrm.training.partition`). Removing a row would shift all later positions. A fresh key (``random_state=None``)
covers this too: hashes of different positions are independent uniform draws, so the law of the ensemble on D without p
is that of independent draws for all other rows; couple them with the draws on D, and only p's shard differs. With a
*published* key, use ``groups`` if people may be added or removed.

There is deliberately no stratification: every class is spread evenly over the teachers in expectation.
"""

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

KEY_BYTES = 16
SEEDS = 2**31  # the range of scikit-learn's random_state


def assigned(persons: list[Any], teachers: int, key: bytes) -> NDArray[np.int64]:
    """Draw the teacher of each row from the key and the row's person alone: (n,) numbers in 0 … K − 1.

    >>> rows = assigned(["ann", "bob", "ann"], 100, b"key")
    >>> bool(rows[0] == rows[2]), bool(rows[0] == assigned(["ann"], 100, b"key")[0])
    (True, True)
    """
    drawn = {person: _digest(key, "person", person) % teachers for person in dict.fromkeys(persons)}
    return np.array([drawn[person] for person in persons], dtype=np.int64)


def held_out(persons: list[Any], share: float, key: bytes) -> NDArray[np.bool_]:
    """Draw the rows to hold out, each person with probability ``share``, from the key and the person alone: (n,).

    >>> held_out(["ann", "ed", "ann"], 0.5, b"key").tolist()
    [False, True, False]
    """
    drawn = {person: _digest(key, "public", person) < share * 2**64 for person in dict.fromkeys(persons)}
    return np.array([drawn[person] for person in persons])


def seeds(teachers: int, key: bytes) -> list[int]:
    """Draw the seed of each teacher's training, independent of all data."""
    return [_digest(key, "teacher", number) % SEEDS for number in range(teachers)]


def _digest(key: bytes, what: str, name: object) -> int:
    """Return 64 bits of a keyed digest; ``repr`` tells 1 from "1"."""
    return int.from_bytes(hashlib.blake2b(f"{what} {name!r}".encode(), key=key, digest_size=8).digest())
