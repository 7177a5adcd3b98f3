"""Lists of texts: what `fit` and `predict` take where the teacher begins with what reads them, and what they refuse."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("sklearn")
from scipy.sparse import csr_array
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.naive_bayes import MultinomialNB
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import OneHotEncoder
from sklearn.utils import get_tags

from darrm.estimators import (
    PATEClassifier,
    PrivateModelsVotingClassifier,
    PrivateVotingClassifier,
    load,
    make_private_pipeline,
    save,
)
from darrm.estimators.ensemble import reader_of
from darrm.pate import GNMax

WORDS = np.array([["good", "fine", "nice", "a", "the"], ["bad", "poor", "ugly", "a", "the"]])
y = np.random.default_rng(0).integers(0, 2, 150)
TEXTS = [" ".join(np.random.default_rng(row).choice(WORDS[label], 5)) for row, label in enumerate(y)]
TEACHER = make_pipeline(CountVectorizer(), MultinomialNB())


def series(texts: Any) -> Any:
    return pytest.importorskip("pandas").Series(texts, index=range(7, 7 + len(texts)))  # rows are no positions


FORMS: list[Callable[[Any], Any]] = [list, tuple, np.array, lambda texts: np.array(texts, dtype=object), series]


def vote(**settings: Any) -> PrivateVotingClassifier:
    return PrivateVotingClassifier(
        TEACHER, 15, aggregator=GNMax(3.0), epsilon=100, max_queries=150, random_state=0, **settings
    )


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("form", FORMS, ids=["list", "tuple", "array", "objects", "Series"])
def test_every_form_of_a_list_teaches_the_same_teachers(form: Callable[[Any], Any]) -> None:
    fitted, plain = vote().fit(form(TEXTS[:120]), y[:120]), vote().fit(TEXTS[:120], y[:120])
    # counts, not labels: these are drawn; a shard that took a Series by its index would train others
    votes = [each._counts(each.teachers_, each._inputs(form(TEXTS[120:]), reset=False)) for each in (fitted, plain)]
    assert np.array_equal(*votes)
    assert (fitted.predict(form(TEXTS[120:])) == y[120:]).mean() > 0.7
    assert not hasattr(fitted, "n_features_in_")


def test_a_word_of_one_person_is_read_by_one_teacher() -> None:
    # the wrong program: what reads texts learns its words from all rows, in front of the shards
    texts, groups = list(TEXTS), np.arange(150) // 2
    texts[10], texts[11] = texts[10] + " uncommon", texts[11] + " uncommon"
    fitted = vote().fit(texts, y, groups=groups)
    knows = ["uncommon" in teacher[0].vocabulary_ for teacher in fitted.teachers_ if hasattr(teacher, "steps")]
    assert sum(knows) == 1
    others = vote().fit(TEXTS, y, groups=groups).teachers_
    same = [
        teacher[0].vocabulary_ == other[0].vocabulary_
        for teacher, other in zip(fitted.teachers_, others, strict=True)
        if hasattr(teacher, "steps")
    ]
    assert sum(same) == len(same) - 1


@pytest.mark.slow
@pytest.mark.parametrize("student", [None, make_pipeline(TfidfVectorizer(), MultinomialNB())], ids=["none", "own"])
def test_a_student_of_texts_is_kept_in_a_file(student: Any, tmp_path: Path) -> None:
    made = PATEClassifier(
        LogisticRegression(), student, n_teachers=15, aggregator="best", epsilon=20, max_answers=30, random_state=0
    )
    if student is None:
        made = make_private_pipeline(TfidfVectorizer(), made)
    else:
        made.set_params(teacher=TEACHER)
    made.fit(TEXTS[:90], y[:90], X_public=TEXTS[90:130])
    assert isinstance(made.student_[0], TfidfVectorizer)
    assert (made.predict(TEXTS[130:]) == y[130:]).mean() > 0.7
    save(made, tmp_path / "student.skops")
    again = load(tmp_path / "student.skops")
    assert (again.predict_proba(TEXTS) == made.predict_proba(TEXTS)).all()


def test_private_models_read_texts_too() -> None:
    models = PrivateModelsVotingClassifier(TEACHER, 5, epsilon_each=1, random_state=0).fit(TEXTS[:120], y[:120])
    assert (models.predict(TEXTS[120:]) == y[120:]).mean() > 0.8


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        (TEXTS[0], "got one text: put it into a list"),
        ([], "at least one text"),
        ([*TEXTS[1:], None], "got NoneType as number 149"),
        ([*TEXTS[1:], float("nan")], "got float as number 149"),
        ([text.encode() for text in TEXTS], "got bytes as number 0"),
        ([[text] for text in TEXTS], r"got a list of shape \(150, 1\)"),
        (np.zeros((150, 2)), r"shape \(150, 2\): the teacher begins with CountVectorizer"),
        (csr_array(np.eye(150)), r"got a csr_array of shape \(150, 150\)"),
        (set(TEXTS), "got a set of shape"),
    ],
    ids=lambda value: value[:20] if isinstance(value, str) else type(value).__name__,
)
def test_what_is_no_list_of_texts_is_refused_in_a_line(inputs: Any, words: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=words) as caught:
        vote(ledger=tmp_path / "l").fit(inputs, y)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "l").exists()


def test_a_table_is_refused_where_texts_were_learned() -> None:
    frame = pytest.importorskip("pandas").DataFrame(
        {"text": TEXTS}
    )  # whose rows are its columns' names, to an iterator
    fitted = vote().fit(TEXTS, y)
    with pytest.raises(ValueError, match=r"got a DataFrame of shape \(150, 1\)"):
        fitted.predict(frame)
    assert fitted.privacy_spent_.epsilon == 0


def test_a_student_that_reads_no_texts_is_refused_before_anything_is_paid(tmp_path: Path) -> None:
    made = PATEClassifier(TEACHER, LogisticRegression(), n_teachers=5, ledger=tmp_path / "l")
    with pytest.raises(ValueError, match=r"student must be a pipeline that begins with what reads texts"):
        made.fit(TEXTS[:100], y[:100], X_public=TEXTS[100:])
    assert not (tmp_path / "l").exists()


def test_who_reads_texts_is_known_by_the_first_step() -> None:
    union = FeatureUnion([("words", TfidfVectorizer()), ("pairs", CountVectorizer())])
    assert reader_of(make_pipeline(union, MultinomialNB())) is union
    assert reader_of(GridSearchCV(make_pipeline(TEACHER, MultinomialNB()), {})) is TEACHER[0]
    for other in (make_pipeline("passthrough", MultinomialNB()), make_pipeline(OneHotEncoder(), MultinomialNB())):
        assert reader_of(other) is None  # an encoder takes texts, in a table
    assert reader_of(_Steps()) is None
    tags = get_tags(vote()).input_tags
    assert (tags.string, tags.two_d_array) == (True, False)
    assert get_tags(PrivateVotingClassifier(MultinomialNB())).input_tags.two_d_array


class _Steps(MultinomialNB):  # type: ignore[misc]  # scikit-learn ships no types
    """No pipeline, though it has steps, as what is trained by gradients has."""

    steps = 100


def test_a_fit_to_texts_forgets_the_columns_of_an_earlier_one() -> None:
    fitted = vote().set_params(estimator=MultinomialNB()).fit(np.ones((150, 3)), y)
    assert fitted.n_features_in_ == 3
    assert not hasattr(fitted.set_params(estimator=TEACHER).fit(TEXTS, y), "n_features_in_")
