"""PATE as one estimator: teachers label public inputs within a budget, and a student learns from the labels.

The transaction that debits the labels also keeps them in the ledger, in a stream whose name is a digest of public
facts: inputs, classes and cost. A `fit` that finds labels of its stream resumes at the student, without cost: the
labels are post-processing of an earlier release. No votes or private data are kept, not even a digest.
"""

import hashlib
import json
import warnings
from dataclasses import KW_ONLY, dataclass
from functools import partial
from numbers import Integral

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.semi_supervised import LabelPropagation, LabelSpreading, SelfTrainingClassifier
from sklearn.utils import _safe_indexing, check_array, check_random_state, get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import _num_samples, check_is_fitted

from darrm.account.accountant import Spent, describe_guarantee
from darrm.aggregator import Aggregator
from darrm.errors import DarrmError
from darrm.estimators import card
from darrm.estimators.budget import (
    BEST,
    CONFIDENT,
    LabelConverter,
    LedgerHandle,
    ResumeWarning,
    calibrate_confident,
    open_ledger,
    plan_release,
    plan_tested_run,
)
from darrm.estimators.ensemble import (
    SEED_RANGE,
    Ensemble,
    check_classifier,
    check_no_others,
    constant_classifier,
    find_vectorizer,
    keyed_digest,
    set_seed,
)
from darrm.ledger.sqlite import is_url
from darrm.privacy import PrivacyParams
from darrm.problem import Voters, Workload
from darrm.util import checks
from darrm.util.extras import Untyped, require
from darrm.util.people import identify_persons
from darrm.votes import ABSTAIN, Votes

WORST_CASE, TESTED = "worst case", "tested"
ANSWERED_SHARE = 4  # by default a quarter of the public inputs is answered, those with high consensus
FIXMATCH = "fixmatch"
SEMI_SUPERVISED = (SelfTrainingClassifier, LabelPropagation, LabelSpreading)


@dataclass(frozen=True)
class PATEReport:
    """The release of a fit and its cost; it may be published."""

    teachers: int
    inputs: int  # public ones
    answered: int
    by_class: tuple[tuple[Untyped, int], ...]  # the number of labels of each class
    mechanism: str
    spent: Spent
    budget: PrivacyParams  # of the ledger: the guarantee
    ledger_digest: str = ""  # of the ledger after the debit

    def __str__(self) -> str:
        classes = ", ".join(f"{name}: {count}" for name, count in self.by_class)
        return (
            f"{self.teachers} teachers labeled {self.answered:,} of {self.inputs:,} public inputs ({classes})\n"
            f"by {self.mechanism}\n"
            f"{self.spent}\n"
            f"budget: {describe_guarantee(self.budget, 'one')}"
        )


def _fit_student(student: Untyped, X: Untyped, y: NDArray[Untyped]) -> Untyped:
    try:
        return student.fit(X, y)
    except (DarrmError, MemoryError):
        raise
    except Exception as error:  # a student may run any code
        raise ValueError(
            f"the student could not be trained ({checks.one_line(error)}): its labels are paid for and in answers_, "
            "and with a ledger in a file the next fit resumes there: take another student"
        ) from error


def _student_has_probabilities(pate: "PATEClassifier") -> bool:
    student = getattr(pate, "student_", pate.student)
    return student is None or isinstance(student, str) or hasattr(student, "predict_proba")


@dataclass(eq=False, repr=False)
class PATEClassifier(Ensemble):
    """A publishable student of private teachers: PATE [P].

    `fit` trains teachers on disjoint shards, releases their labels of public inputs within the budget, and trains the
    student on these alone. `predict` costs nothing. The fitted estimator holds neither teachers nor votes.

    Parameters
    ----------
    teacher, n_teachers, classes, n_jobs, random_state, verbose
        As ``estimator`` and the others of `PrivateVotingClassifier`; ``random_state`` also governs the student.
    student
        Any classifier. None is a logistic regression with self-training on unlabeled inputs. ``"fixmatch"`` is
        `darrm.estimators.fixmatch.FixMatchClassifier`, for images of one channel and classes of similar frequency
        (extra: ensemble); with a ledger FILE its training state is in FILE.student.
    epsilon, delta
        The budget of the labels and of the student.
    max_answers
        The largest number of labels. None is a quarter of the public inputs for ``"confident"``, else all.
    aggregator
        ``"confident"`` answers public inputs with high consensus; ``"best"`` answers ``max_answers`` of them by the
        best plan; or an aggregator, such as ``darrm.pate.ConfidentGNMax(200, 150, 40)``, which may abstain.
    accounting
        ``"worst case"``: the cost for any votes. ``"tested"``: propose-test-release (`darrm.pate.tested`), far less
        noise if teachers agree. If the test fails, ``"best"`` labels all inputs with noise for any votes,
        ``"confident"`` none.
    votes_look_like
        For ``"tested"``: a public belief about the votes, such as ``"dirichlet:0.01"`` for high consensus, or
        ``"votes:FILE"`` for public votes of as many teachers. The guarantee does not depend on it.
    public_share
        For experiments: without ``X_public``, each person's rows are held out with this probability, train no teacher,
        and serve as public inputs, which **no guarantee covers**.
    semi_supervised
        Whether the student takes all public inputs, with class indices as labels and -1 for none. ``"auto"`` is true
        for the classes of `sklearn.semi_supervised`.
    ledger
        A file that keeps the budget, and the labels until the student is saved or `acknowledge`: after a crash, `fit`
        resumes without cost. None keeps both in memory for one fit.

    Attributes
    ----------
    student_, answers_, report_
        The student; (Q,) the released class index of each public input, -1 for none; and a `PATEReport`.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> pate = PATEClassifier(DecisionTreeClassifier(), n_teachers=30, epsilon=3, random_state=0)
    >>> labels = pate.fit(X[:350], y[:350], X[350:450]).predict(X[450:])
    >>> labels.shape, pate.report_.answered <= 25, pate.privacy_spent_.epsilon <= 3
    ((119,), True, True)
    """

    teacher_parameter = "teacher"

    teacher: Untyped
    student: Untyped = None
    _: KW_ONLY
    n_teachers: int = 250
    epsilon: float = 2.0
    delta: float = 1e-5
    max_answers: int | None = None
    aggregator: Untyped = CONFIDENT
    accounting: str = WORST_CASE
    votes_look_like: str | None = None
    public_share: float | None = None
    semi_supervised: Untyped = "auto"
    classes: Untyped = None
    n_jobs: int | None = None
    random_state: Untyped = None
    ledger: Untyped = None
    verbose: int = 0

    def __getstate__(self) -> Untyped:
        """Drop the fitted state of the caller's teacher and student: a copy holds nothing private."""
        state = dict(super().__getstate__())
        state.update({name: clone(state[name], safe=False) for name in ("teacher", "student") if name in state})
        return state

    def __sklearn_tags__(self) -> Untyped:
        """Return scikit-learn's tags: inputs that both teachers and student take."""
        tags = super().__sklearn_tags__()
        student = None if self.student is None else get_tags(self._make_student()).input_tags
        tags.input_tags.allow_nan &= student is not None and student.allow_nan
        tags.input_tags.sparse &= student is None or student.sparse
        return tags

    def fit(
        self, X: Untyped, y: Untyped, X_public: Untyped = None, groups: Untyped = None, **other_arguments: Untyped
    ) -> Untyped:
        """Train teachers, release labels of public inputs, and train the student.

        ``X_public`` are (Q, d) public inputs of the columns of X; other arguments and errors are those of
        `PrivateVotingClassifier.fit`. `ValueError`, too, if the student cannot be trained: then ``answers_`` is
        released, and with a ledger in a file the next ``fit`` resumes there. `BudgetExceededError`: nothing is
        released. `ResumeWarning` if labels of the same public inputs wait in the ledger: the student learns from them,
        for any X and y.
        """
        check_no_others(other_arguments)
        with self._unchanged_on_failure() as line:
            line.show(f"planning, and training {self.n_teachers} teachers")
            public = self._release_labels(X, y, X_public, groups)
            self.__dict__.pop("student_", None)  # it learned from labels of another budget
        self._train_student(public)
        return self

    def _release_labels(self, X: Untyped, y: Untyped, X_public: Untyped, groups: Untyped) -> Untyped:
        inputs, labels = self._check_data(X, y)
        student = self._make_student()
        self._check_student(student)
        count = self._teacher_count(_num_samples(inputs))
        persons = identify_persons(_num_samples(inputs), groups)
        public, held_out = self._choose_public(inputs, persons, X_public)
        if hasattr(student, "images"):
            student.images(check_array(public, dtype=np.float32))  # refused before the debit
        total = PrivacyParams(self.epsilon, self.delta)
        voters, requests = Voters.non_private(count, overlap=1), self._count_requests(public)
        run, mechanism = self._plan(Workload(voters, requests, total, len(self.classes_)))
        handle = open_ledger(self.ledger, total, run.privacy_cost())
        handle.warn_of_refit(getattr(self, "_spending", None))
        self._store_facts(groups)
        self._held = int(held_out.sum())
        stream = handle.stream(note := f"{type(self).__name__}.fit", self._name_stream(run, public))
        lines = stream.unclaimed
        if lines is None:
            # a random order, independent of the votes, so that sorted public rows are sampled evenly
            order = check_random_state(self.random_state).permutation(_num_samples(public))[:requests]
            teachers = self._train_teachers(inputs, labels, persons, count, held_out)
            votes = Votes.from_counts(self._count_votes(teachers, _safe_indexing(public, order)), count)
            lines = handle.release(LabelConverter(run, partial(self._write_lines, run, order)), votes, note, stream)
        else:
            warnings.warn(
                f"labels of these public inputs were paid for and wait in the ledger (entry {stream.cursor.after}): "
                "the student learns from them, and nothing is paid; for new ones call acknowledge() first",
                ResumeWarning,
                stacklevel=3,
            )
        self._spending, self._entry = handle, stream.cursor.after  # a copy may acknowledge too
        self.answers_ = np.full(_num_samples(public), ABSTAIN, dtype=np.int64)
        for row, code in (pair for line in lines.tolist() for pair in json.loads(line)):
            self.answers_[row] = code
        self._store_report(handle, mechanism)
        return public

    def _choose_public(
        self, inputs: Untyped, persons: list[Untyped], X_public: Untyped
    ) -> tuple[Untyped, NDArray[np.bool_]]:
        """Return the public inputs, and which rows are held out for them."""
        if X_public is not None:
            return self._check_inputs(X_public, reset=False), np.zeros(len(persons), dtype=bool)
        if self.public_share is None:
            advice = "pass unlabeled public rows: the guarantee covers all of X"
            checks.fail("X_public", None, "the public inputs that the teachers label", advice)
        checks.open_probability(public_share=self.public_share)
        key, limit = self._make_key(), self.public_share * 2**64
        held_out = np.array([keyed_digest(key, "public", person) < limit for person in persons])
        if held_out.all() or not held_out.any():
            description = checks.Text(f"{held_out.sum()} of {len(held_out)} rows")
            checks.fail("public_share", description, "a share that leaves rows on both sides", "pass X_public instead")
        return _safe_indexing(inputs, held_out.nonzero()[0]), held_out

    def _write_lines(self, run: Aggregator, order: NDArray[np.int64], codes: NDArray[np.int64]) -> NDArray[Untyped]:
        if not np.isin(codes, np.arange(ABSTAIN, len(self.classes_))).all():
            checks.fail("aggregator", repr(self.aggregator), "one that answers by numbers of the classes")
        pairs = np.column_stack([order, codes]).tolist()
        size = len(pairs) // int(run.privacy_cost(len(pairs)).count)
        groups = [pairs[start : start + size] for start in range(0, len(pairs), size)]
        return np.array([json.dumps([pair for pair in group if pair[1] != ABSTAIN]) for group in groups])

    def _name_stream(self, run: Aggregator, public: Untyped) -> str:
        """Return a digest of the public facts of a fit; fits with equal digests may share their labels."""
        # the model card states these facts, so they are part of the name
        cost, card_facts = run.privacy_cost(), (self._grouped, self._named, self._unseeded, self._held)
        digest = hashlib.sha256(repr((cost.to_text(), cost.what, self.n_teachers, self.max_answers)).encode())
        digest.update(repr(card_facts).encode())
        digest.update(repr((self.classes_.tolist(), list(getattr(public, "columns", ())))).encode())
        arrays = (public.indptr, public.indices, public.data) if issparse(public) else (np.asarray(public),)
        for array in arrays:
            digest.update(f"{array.dtype} {public.shape} {array.shape}".encode())
            digest.update(repr(array.tolist()).encode() if array.dtype.hasobject else array.tobytes())
        return digest.hexdigest()

    def _plan(self, workload: Workload) -> tuple[Aggregator, str]:
        checks.one_of((WORST_CASE, TESTED), accounting=self.accounting)
        if self.semi_supervised not in ("auto", True, False):
            checks.fail("semi_supervised", self.semi_supervised, "'auto', True or False")
        if self.accounting == TESTED:
            if self.votes_look_like is not None:
                checks.instance(str, votes_look_like=self.votes_look_like, advice="such as 'dirichlet:0.01'")
            checks.instance(str, aggregator=self.aggregator, advice="'confident' or 'best' where accounting='tested'")
            tested_run = plan_tested_run(workload, self.aggregator, self.votes_look_like)
            return tested_run, tested_run.privacy_cost().what
        if isinstance(self.aggregator, str) and self.aggregator == CONFIDENT:
            queries = workload.queries
            run = calibrate_confident(workload, min(queries, self.max_answers or max(1, queries // ANSWERED_SHARE)))
            return run, run.privacy_cost().what
        plan = plan_release(workload, self.aggregator, (CONFIDENT, BEST))
        return plan.aggregator, plan.name  # type: ignore[return-value]  # a plan for non-private voters has an aggregator

    def predict(self, X: Untyped) -> NDArray[Untyped]:
        """Predict with the student: (Q, d) inputs → (Q,) classes, without cost."""
        check_is_fitted(self, "student_")
        answers = self.student_.predict(self._check_inputs(X, reset=False))
        return np.asarray(self.classes_[answers] if self._predicts_codes else answers)

    @available_if(_student_has_probabilities)  # type: ignore[untyped-decorator]  # scikit-learn ships no types
    def predict_proba(self, X: Untyped) -> NDArray[np.float64]:
        """Predict probabilities with the student: (Q, d) → (Q, C), 0 for classes that it does not know."""
        check_is_fitted(self, "student_")
        probabilities = self.student_.predict_proba(self._check_inputs(X, reset=False))
        padded = np.zeros((len(probabilities), len(self.classes_)))
        columns = self.student_.classes_
        padded[:, columns if self._predicts_codes else np.searchsorted(self.classes_, columns)] = probabilities
        return padded

    @property
    def privacy_spent_(self) -> Spent:
        """The cost of the labels, independent of the votes: it may be published."""
        check_is_fitted(self)
        return self.report_.spent

    def to_model_card(self) -> str:
        """Write the guarantee, its neighbors and its assumptions in Markdown; it may be published."""
        check_is_fitted(self, "student_")
        return card.describe_student(self)

    def _count_requests(self, public: Untyped) -> int:
        inputs: int = _num_samples(public)
        if self.max_answers is None:
            return inputs
        checks.integer_at_least(1, max_answers=self.max_answers, advice="it is the largest number of labels")
        is_confident = isinstance(self.aggregator, str) and self.aggregator == CONFIDENT
        return inputs if is_confident else min(inputs, self.max_answers)

    def _train_student(self, public: Untyped) -> None:
        is_answered = self.answers_ != ABSTAIN
        answered_classes = np.unique(self.answers_[is_answered])
        student = self._new_student(public, partly=not is_answered.all())
        is_semi_supervised = isinstance(student, SEMI_SUPERVISED) or getattr(student, "semi_supervised", False)
        takes_all = is_semi_supervised if self.semi_supervised == "auto" else self.semi_supervised
        self._predicts_codes = bool(takes_all)
        if not len(answered_classes):
            warnings.warn("no public input was answered: the student is a constant", UserWarning, stacklevel=3)
        if len(answered_classes) < 2:  # no classifier learns from one class
            self._predicts_codes = True
            self.student_ = constant_classifier(answered_classes if len(answered_classes) else np.array([0]))
        elif takes_all:
            self.student_ = _fit_student(student, public, self.answers_)
        else:
            rows = np.flatnonzero(is_answered)
            self.student_ = _fit_student(student, _safe_indexing(public, rows), self.classes_[self.answers_[rows]])

    def _make_student(self) -> Untyped:
        if not isinstance(self.student, str):
            return self.student
        checks.one_of((FIXMATCH,), student=self.student)
        file = None if self.ledger is None or is_url(self.ledger) else f"{self.ledger}.student"
        require("torch")
        return require("darrm.estimators.fixmatch").FixMatchClassifier(checkpoint=file, verbose=self.verbose)

    def _check_student(self, student: Untyped) -> None:
        if student is None:
            return
        check_classifier("student", student)
        if find_vectorizer(self.teacher) is not None and find_vectorizer(student) is None:
            allowed = "a pipeline that begins with what reads texts, as the teacher does"
            advice = "None takes the teachers' first step, and a logistic regression"
            checks.fail("student", student, allowed, advice)

    def _new_student(self, public: Untyped, *, partly: bool) -> Untyped:
        seed = self.random_state
        if self.student is None:
            reader = find_vectorizer(self.teacher)
            first_step = StandardScaler(with_mean=not issparse(public)) if reader is None else clone(reader)
            student = make_pipeline(first_step, LogisticRegression(max_iter=1000))
            student = SelfTrainingClassifier(student, threshold=0.9) if partly and reader is None else student
        else:
            student = clone(self._make_student())
        if not isinstance(seed, Integral) and hasattr(student, "checkpoint"):
            # a resumed fit needs the same seed; the state of a generator has changed since
            seed = int.from_bytes(hashlib.sha256(self.answers_.tobytes()).digest()[:4], "big")
        return set_seed(student, int(check_random_state(seed).randint(SEED_RANGE - 1)))

    def _store_report(self, handle: LedgerHandle, mechanism: str) -> None:
        labels = self.answers_[self.answers_ != ABSTAIN]
        by_class = np.bincount(labels, minlength=len(self.classes_)).tolist()
        self.report_ = PATEReport(
            teachers=self.n_teachers,
            inputs=len(self.answers_),
            answered=len(labels),
            by_class=tuple(zip(self.classes_.tolist(), by_class, strict=True)),
            mechanism=mechanism,
            spent=handle.ledger.spent,
            budget=handle.ledger.budget,
            ledger_digest=str(handle.ledger.digest()),
        )
