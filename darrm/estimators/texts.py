"""Lists of texts as inputs, for teachers that begin with a vectorizer such as ``TfidfVectorizer``.

Texts are assigned to shards like other rows (`darrm.estimators.shards`). The vectorizer is a part of the teacher and
learns from its shard only.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.utils import get_tags

from darrm.util import checks
from darrm.util.extras import Untyped


def reader_of(estimator: Untyped) -> Untyped:
    """Return the vectorizer at the start of an estimator; None if it takes tables.

    >>> from sklearn.feature_extraction.text import TfidfVectorizer
    >>> from sklearn.naive_bayes import MultinomialNB
    >>> from sklearn.pipeline import make_pipeline
    >>> reader_of(make_pipeline(TfidfVectorizer(), MultinomialNB())), reader_of(MultinomialNB())
    (TfidfVectorizer(), None)
    """
    while isinstance(estimator, Pipeline) or hasattr(estimator, "estimator"):  # a search over pipelines holds one
        estimator = estimator.steps[0][1] if isinstance(estimator, Pipeline) else estimator.estimator
    first = estimator
    while isinstance(first, Pipeline | FeatureUnion):
        first = (first.steps if isinstance(first, Pipeline) else first.transformer_list)[0][1]
    if not hasattr(first, "__sklearn_tags__"):  # a step that was left out, or one of others
        return None
    tags = get_tags(first).input_tags
    return estimator if tags.string and not tags.two_d_array else None


def texts_of(X: Untyped, reader: Untyped) -> NDArray[Any]:
    """Return a list, a column or a one-dimensional array of texts as an array: (n,) objects.

    >>> texts_of(["a text", "another"], "reader").tolist()
    ['a text', 'another']
    """
    allowed, advice = "a list of texts, one for each sample", f"the teacher begins with {type(reader).__name__}"
    if isinstance(X, str):
        checks.fail("X", checks.Found("one text"), allowed, "put it into a list")
    try:
        texts = np.asarray(X, dtype=object)
    except ValueError:  # lists of unequal tables
        checks.fail("X", checks.Found(f"a {type(X).__name__} of others"), allowed, advice)
    if texts.ndim != 1:
        shape = getattr(X, "shape", texts.shape)
        checks.fail("X", checks.Found(f"a {type(X).__name__} of shape {shape}"), allowed, advice)
    if not len(texts):
        checks.fail("X", checks.Found("0 sample(s)"), "at least one text")
    wrong = next((number for number, text in enumerate(texts) if not isinstance(text, str)), None)
    if wrong is not None:  # the value may be private
        found = checks.Found(f"{type(texts[wrong]).__name__} as number {wrong}")
        checks.fail("X", found, allowed, f"{advice}; write missing texts as ''")
    return texts


def check_reads_texts(teacher: Untyped, student: Untyped) -> None:
    """Raise `ValueError` for a student of tables with teachers of texts, before anything is debited."""
    if student is not None and reader_of(teacher) is not None and reader_of(student) is None:
        advice = "None takes the teachers' first step, and a logistic regression"
        checks.fail("student", student, "a pipeline that begins with what reads texts, as the teacher does", advice)
