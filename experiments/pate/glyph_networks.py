"""Convolutional teachers on the stand-in for Glyph, fewer than of the linear ones, and a model of all their records.

[P]'s teachers are residual networks of 32 layers. These have three convolutions, learn from the 1,000 records that a
linear teacher would have in as many shards, turned and stretched anew in every step, and are trained one after the
other: a few seconds each.
"""

from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from darrm.training.network import student_network
from darrm.training.student import Perturbation, Student, StudentRecipe, train_student
from experiments.pate.glyph_images import Records
from experiments.pate.glyph_teachers import Block, GlyphTask, Moments

CHANGE = Perturbation(shift=1, rotation=6, scale=0.1, shear=0.1)
RECIPE = StudentRecipe(steps=400, learning_rate=4e-3, batch=32, weight=0.0, averaging=0.98, change=CHANGE)
_BASELINE = replace(RECIPE, steps=1500, batch=128, averaging=0.99)
_QUICK_STEPS = 200


def ask_networks(task: GlyphTask, teachers: range) -> Block:
    """Train some teachers and count their votes on the pool: the same numbers however many jobs, up to rounding."""
    public = task.public()
    votes = np.array([_trained([task.shard(one)], task, RECIPE, one).predict(public.images) for one in teachers])
    counts = np.zeros((task.pool, task.style.classes), dtype=np.int32)
    for one in votes:
        counts[np.arange(task.pool), one] += 1
    return Block(counts, int((votes == public.y).sum()), Moments.none(task.style.classes))


def networks_baseline(task: GlyphTask, *, seed: int, quick: bool) -> float:
    """Return the test accuracy of one network of all teachers' records together, without any privacy."""
    recipe = replace(_BASELINE, steps=_QUICK_STEPS) if quick else _BASELINE
    held_out = task.held_out()
    union = _trained([task.shard(one) for one in range(task.teachers)], task, recipe, seed)
    return float((union.predict(held_out.images) == held_out.y).mean())


def _trained(shards: list[Records], task: GlyphTask, recipe: StudentRecipe, seed: int) -> Student:
    x: NDArray[np.float32] = np.concatenate([shard.images for shard in shards])
    y: NDArray[np.int64] = np.concatenate([shard.y for shard in shards])
    build = partial(student_network, classes=task.style.classes)
    return train_student(x, y, x[:0], recipe=recipe, build=build, seed=seed, device="cpu")
