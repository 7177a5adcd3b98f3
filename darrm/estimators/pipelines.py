"""Pipelines whose first steps are fitted per shard, as parts of the teachers."""

from sklearn.base import clone
from sklearn.pipeline import make_pipeline

from darrm.estimators.base import Ensemble
from darrm.util import checks
from darrm.util.extras import Untyped


def make_private_pipeline(*steps: Untyped) -> Untyped:
    """Move steps that learn from data, such as a scaler, into the teachers.

    In ``make_pipeline(StandardScaler(), PrivateVotingClassifier(tree))`` the scaler is fitted to all rows, so one
    person influences all teachers, and the guarantee is void; the classifier cannot detect it. Here every teacher has a
    scaler that is fitted to its shard. A student that was passed to a `PATEClassifier` gets the steps too, fitted to
    public inputs.

    Parameters
    ----------
    steps
        Transformers, and last a `PrivateVotingClassifier` or a `PATEClassifier`.

    Returns
    -------
    estimator
        A clone of the last step, whose teachers are pipelines.

    Raises
    ------
    ValueError
        If the last step is another estimator, has a student of images, or votes with private models: their noise does
        not cover a non-private step. For these pass a pipeline that is private as a whole, and ``epsilon_each``.

    Examples
    --------
    >>> from sklearn.preprocessing import StandardScaler
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> from darrm.estimators import PrivateVotingClassifier
    >>> make_private_pipeline(StandardScaler(), PrivateVotingClassifier(DecisionTreeClassifier(), 9)).estimator
    Pipeline(steps=[('standardscaler', StandardScaler()),
                    ('decisiontreeclassifier', DecisionTreeClassifier())])
    """
    *first, last = steps or (None,)
    if not isinstance(last, Ensemble) or not last.seeded:
        advice = "steps in front of models that are private themselves must be private, too, and a part of the models"
        found = checks.Found(type(last).__name__)
        checks.fail("the last step", found, "a PrivateVotingClassifier or a PATEClassifier", advice)
    if isinstance(getattr(last, "student", None), str):
        advice = "images are no input for steps; give the teacher the steps alone, as a pipeline of its own"
        checks.fail("student", last.student, "a classifier behind these steps, or None", advice)
    made = clone(last)
    for name in (made.teacher_parameter, "student"):
        if getattr(made, name, None) is not None:
            made.set_params(**{name: make_pipeline(*map(clone, first), getattr(made, name))})
    return made
