# ruff: noqa: E402 (the modules below cannot be imported without scikit-learn, so it is asked for first)
"""Estimators of scikit-learn: `fit`, `predict`, and a privacy budget that `predict` cannot pass (extra: sklearn).

======================================  ================================================================================
estimator                               teachers and answers
======================================  ================================================================================
`PrivateVotingClassifier`               plain teachers on disjoint shards; every answer of `predict` is paid for
`PATEClassifier`                        the same teachers label public inputs once; a student answers for ever
`PrivateModelsVotingClassifier`         models that are private themselves; noise only where they alone are not enough
======================================  ================================================================================

What each of them promises, and to whom, stands in its class and on its model card (`to_model_card`).
"""

from darrm.system.extras import require

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
