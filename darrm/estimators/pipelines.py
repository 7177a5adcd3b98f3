"""Pipelines whose first steps learn from one shard each, as the teachers do."""

from sklearn.base import clone
from sklearn.pipeline import make_pipeline

from darrm.errors import checks
from darrm.estimators.base import Ensemble
from darrm.system.extras import Untyped


def make_private_pipeline(*steps: Untyped) -> Untyped:
    """Put steps that learn from data, such as a scaler, where no person reaches more than one teacher: into them.

    In ``make_pipeline(StandardScaler(), PrivateVotingClassifier(tree))`` the scaler sees everybody's rows, one person
    moves the inputs of all teachers, and the guarantee is void; nothing can tell the classifier so. Here every teacher
    has a scaler of its own, fitted to its own shard. The student of a `PATEClassifier`, where one was passed, gets the
    steps, too, and fits them to public inputs.

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
        If the last step is another estimator, has a student of images, or is one of private models: what a step that is
        not private learns from a shard, its model's noise does not hide. Pass a pipeline that is private as a whole,
        and say ``epsilon_each``.

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
