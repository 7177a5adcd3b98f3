"""A student for the stand-in for Glyph: one linear discriminant of the answered queries, in a second.

It has the form of a teacher and, with more records whose labels the vote has cleaned, is better than any of them.
Labeling the unanswered queries by itself and learning from those made it worse, so it learns from answers alone.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from darrm.util import checks
from experiments.pate.glyph_images import SIDE
from experiments.pate.glyph_teachers import Discriminant, Moments, extract_features, fit_discriminant

SHRINKAGE = 0.03  # a teacher's is 0.1, for a tenth of the records
TEMPERATURES = np.geomspace(1.0, 16.0, 17)
_HELD_BACK = 5  # one answer in so many tells the temperature


@dataclass(frozen=True, eq=False)
class GlyphStudent:
    """A discriminant whose scores are divided by a temperature, so that it is as sure as it is right."""

    discriminant: Discriminant
    temperature: float

    def predict(self, x: NDArray[Any]) -> NDArray[np.int64]:
        """Return the class of each of (n, …) pictures."""
        return self.discriminant.predict(_features(x))

    def scores(self, x: NDArray[Any]) -> NDArray[np.float64]:
        """Return the probabilities of the classes for each of (n, …) pictures: (n, C), rows that sum to 1."""
        return np.exp(_log_probabilities(self.discriminant, _features(x), self.temperature))


def train_glyph_student(x: NDArray[Any], labels: NDArray[np.int64], classes: int) -> GlyphStudent:
    """Learn from the answered among (q, …) pictures, which are those whose label is not −1.

    `ValueError` if fewer than five are answered.
    """
    answered = np.flatnonzero(np.asarray(labels) >= 0)
    if len(answered) < _HELD_BACK:
        checks.fail("labels", f"{len(answered)} answers", f"at least {_HELD_BACK} answers", "ask more queries")
    features, known = _features(np.asarray(x)[answered]), np.asarray(labels)[answered]
    held = np.arange(len(known)) % _HELD_BACK == 0
    shown = fit_discriminant(Moments.of(features[~held], known[~held], classes), SHRINKAGE)
    rows = np.arange(held.sum())
    found = [_log_probabilities(shown, features[held], temperature)[rows, known[held]] for temperature in TEMPERATURES]
    # an answer of a class that none of the others has says nothing about the temperature
    seen = np.isfinite(found[0])
    likelihood = [float(logs[seen].sum()) for logs in found]
    student = fit_discriminant(Moments.of(features, known, classes), SHRINKAGE)
    return GlyphStudent(student, float(TEMPERATURES[int(np.argmax(likelihood))]))


def _features(x: NDArray[Any]) -> NDArray[np.float32]:
    return extract_features(np.asarray(x, dtype=np.float32).reshape(-1, SIDE * SIDE))


def _log_probabilities(
    discriminant: Discriminant, features: NDArray[np.float32], temperature: float
) -> NDArray[np.float64]:
    logits = (features @ discriminant.weights + discriminant.bias).astype(np.float64) / temperature
    return np.asarray(logits - np.logaddexp.reduce(logits, axis=1, keepdims=True))
