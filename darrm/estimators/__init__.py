# ruff: noqa: E402 (the modules below cannot be imported without scikit-learn, so it is asked for first)
"""scikit-learn estimators: `fit`, `predict`, and a privacy budget that `predict` cannot exceed (extra: sklearn).

======================================  ================================================================================
estimator                               teachers and answers
======================================  ================================================================================
`PrivateVotingClassifier`               non-private teachers on disjoint shards; every answer of `predict` costs budget
`PATEClassifier`                        the same teachers label public inputs once; a student answers without cost
`PrivateModelsVotingClassifier`         private models; noise only if the models alone exceed the budget
======================================  ================================================================================

Each class documents its guarantee, and writes it on a model card (`to_model_card`).
"""

from darrm.util.extras import require

require("sklearn")

from darrm.estimators.budget import RefitWarning, ResumeWarning, SelectionWarning
from darrm.estimators.ensemble import make_private_pipeline
from darrm.estimators.pate import PATEClassifier
from darrm.estimators.saving import load, save
from darrm.estimators.voting import PrivateModelsVotingClassifier, PrivateVotingClassifier

_TWICE = "the same rows are queried twice, and each answer is a new draw"
_TAUGHT_TWICE = "two fits to the same data release other labels, so other answers or another student"
EXPECTED_FAILED_CHECKS = {
    "check_classifier_data_not_an_array": _TAUGHT_TWICE,
    "check_estimators_pickle": _TWICE,
    "check_fit_idempotent": _TAUGHT_TWICE,
    "check_supervised_y_2d": _TAUGHT_TWICE,
}
"""Checks of scikit-learn that expect equal answers to equal inputs, with the reason why noise fails them.

For ``check_estimator(…, expected_failed_checks=EXPECTED_FAILED_CHECKS)``. The tags ``non_deterministic`` and
``poor_score`` turn off most of these checks, but not all. Without noise every check passes.
"""

__all__ = [
    "EXPECTED_FAILED_CHECKS",
    "PATEClassifier",
    "PrivateModelsVotingClassifier",
    "PrivateVotingClassifier",
    "RefitWarning",
    "ResumeWarning",
    "SelectionWarning",
    "load",
    "make_private_pipeline",
    "save",
]
