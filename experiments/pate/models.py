"""How the teachers, the students and the non-private baseline of each data set are trained."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from darrm.training.student import train_student
from experiments.pate.ensembles import obtain, split
from experiments.pate.glyph import glyph_baseline, glyph_task, obtain_glyph
from experiments.pate.glyph_networks import networks_baseline
from experiments.pate.glyph_student import GlyphStudent, train_glyph_student
from experiments.pate.random_forests import adult_baseline, census_accuracy, obtain_adult
from experiments.pate.recorded import Measured, Recorded
from experiments.pate.settings import NETWORKS, Study
from experiments.pate.students import RECIPES, network_for, student_accuracy, student_scores
from experiments.teachers import Machine

BASELINE_BATCH = 128  # labeled images a step: there are sixty thousand


@dataclass(frozen=True)
class Models:
    """How a data set's models are trained; results are kept under ``recipe``, which says it in words.

    ``obtain(study, machine, quick=…)`` trains the teachers or reads their votes, ``accuracy(recorded, labels, seed=…,
    quick=…)`` measures a student of the labels of the first inputs of the pool, ``baseline(study, recorded, machine,
    seed=…, quick=…)`` a model of all private data, and ``scores``, of arguments as ``accuracy``, scores the pool for
    the second round of Interactive-GNMax.
    """

    recipe: str
    obtain: Callable[..., Recorded]
    accuracy: Callable[..., Measured]
    baseline: Callable[..., float]
    scores: Callable[..., NDArray[np.float64]] | None = None
    costly: bool = False  # whether a student takes minutes


def models_of(name: str) -> Models:
    """Return how a data set's models are trained."""
    if name == "glyph":
        recipe = "discriminant on oriented gradients"
        return Models(recipe, obtain_glyph, _glyph_accuracy, _glyph_baseline, _glyph_scores)
    if name == "adult":
        recipe = "boosted trees, as many of the richer as there are"
        return Models(recipe, obtain_adult, census_accuracy, _adult_baseline)
    if name == NETWORKS:
        recipe = repr(RECIPES[name])
        return Models(recipe, obtain_glyph, student_accuracy, _networks_baseline, student_scores, costly=True)
    return Models(repr(RECIPES[name]), obtain, student_accuracy, _supervised, student_scores, costly=True)


def _supervised(study: Study, recorded: Recorded, _machine: Machine, *, seed: int, quick: bool) -> float:  # noqa: ARG001
    """Train the student's network on the true classes of all private images, for as many steps."""
    data, test_x, test_y = split(study)
    recipe = RECIPES[study.name]
    recipe = replace(recipe, batch=BASELINE_BATCH, weight=0.0, consistency=0.0, robustness=0.0)
    build = network_for(data.train_x, len(recorded.votes.classes))
    student = train_student(data.train_x, data.train_y, data.train_x[:0], recipe=recipe, build=build, seed=seed)
    return float((student.predict(test_x) == test_y).mean())


def _glyph_student(recorded: Recorded, labels: NDArray[np.int64]) -> GlyphStudent:
    return train_glyph_student(recorded.pool_x[: len(labels)], labels, recorded.votes.counts.shape[1])


def _glyph_accuracy(recorded: Recorded, labels: NDArray[np.int64], *, seed: int, quick: bool) -> Measured:  # noqa: ARG001
    """Train the stand-in's student, which draws nothing and is quick."""
    return recorded.measured(_glyph_student(recorded, labels), len(labels))


def _glyph_scores(recorded: Recorded, labels: NDArray[np.int64], **_: Any) -> NDArray[np.float64]:  # noqa: ANN401
    return _glyph_student(recorded, labels).scores(recorded.pool_x)


def _glyph_baseline(study: Study, _recorded: Recorded, machine: Machine, *, seed: int, quick: bool) -> float:  # noqa: ARG001
    return glyph_baseline(study, machine, quick=quick)


def _networks_baseline(study: Study, _recorded: Recorded, _machine: Machine, *, seed: int, quick: bool) -> float:
    return networks_baseline(glyph_task(study, quick=quick), seed=seed, quick=quick)


def _adult_baseline(_study: Study, recorded: Recorded, _machine: Machine, *, seed: int, quick: bool) -> float:
    return adult_baseline(recorded, seed=seed, quick=quick)
