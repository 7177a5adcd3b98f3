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

from darrm.estimators.models import PrivateModelsVotingClassifier
from darrm.estimators.pate import PATEClassifier
from darrm.estimators.pipelines import make_private_pipeline
from darrm.estimators.saving import load, save
from darrm.estimators.sklearn_checks import EXPECTED_FAILED_CHECKS
from darrm.estimators.spending import RefitWarning, ResumeWarning, SelectionWarning
from darrm.estimators.voting import PrivateVotingClassifier

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
