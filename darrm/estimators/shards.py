"""Which teacher a person's rows go to: drawn for each person alone, without looking at anybody's data.

Everything that is claimed for an ensemble rests on one sentence: *one person's data reach one teacher*. It is an easy
sentence to break. Shards that are balanced by label, or dealt out like cards in the order of the labels, move many
people when one person changes a label or leaves: then two neighboring data sets differ in many shards, and
``overlap=1`` is false. So the teacher of a person is a keyed digest of who the person is, and of nothing else:

    teacher(p) = H(key, p) mod K,        key from ``random_state``, K = ``n_teachers``.

**Theorem.** Let D and D' differ in one person p: p's rows were replaced, or (where people are known by ``groups``) p is
in one of them only. For every key all shards but that of teacher(p) hold the same rows in the same order. *Proof.* A
row's teacher is a function of the key and of its own person. The rows of all others are the same in D and D', in the
same order, so every shard that p is not in is the same list. ∎

Teachers are then trained from seeds that depend on the key and on their own number, so all other teachers are the same
to the bit, and one vote of K moves at most.

Without ``groups`` every row is a person, known by its position, and neighbors differ in the content of one row whose
position stays (as in `darrm.ensemble.partition`). Removing a row would move all later ones. Where the key is fresh
(``random_state=None``) this costs nothing: keyed digests of different positions are independent uniform draws, so the
law of the ensemble on D without p is that of independent draws for all rows but p; couple them with the draws on D, and
the shards differ in p's alone. For a *published* key say ``groups``, if people may come and go.

There is no stratification, on purpose. Every class is spread evenly over the teachers in expectation, as every row is.
"""

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

KEY_BYTES = 16
SEEDS = 2**31  # what scikit-learn takes for a random_state


def assigned(persons: list[Any], teachers: int, key: bytes) -> NDArray[np.int64]:
    """Draw the teacher of each row from the key and the row's person alone: (n,) numbers in 0 … K − 1.

    >>> rows = assigned(["ann", "bob", "ann"], 100, b"key")
    >>> bool(rows[0] == rows[2]), bool(rows[0] == assigned(["ann"], 100, b"key")[0])
    (True, True)
    """
    drawn = {person: _digest(key, "person", person) % teachers for person in dict.fromkeys(persons)}
    return np.array([drawn[person] for person in persons], dtype=np.int64)


def held_out(persons: list[Any], share: float, key: bytes) -> NDArray[np.bool_]:
    """Draw whose rows are held out, each person with this chance, by the key and the person alone: (n,).

    >>> held_out(["ann", "ed", "ann"], 0.5, b"key").tolist()
    [False, True, False]
    """
    drawn = {person: _digest(key, "public", person) < share * 2**64 for person in dict.fromkeys(persons)}
    return np.array([drawn[person] for person in persons])


def seeds(teachers: int, key: bytes) -> list[int]:
    """Draw the seed of each teacher's training, which depends on no data."""
    return [_digest(key, "teacher", number) % SEEDS for number in range(teachers)]


def _digest(key: bytes, what: str, name: object) -> int:
    """Return 64 bits of a keyed digest; ``repr`` tells 1 from "1"."""
    return int.from_bytes(hashlib.blake2b(f"{what} {name!r}".encode(), key=key, digest_size=8).digest())
