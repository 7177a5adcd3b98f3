"""A vote of non-private teachers on disjoint shards: every label of `predict` is debited from the budget."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.utils.validation import _num_samples, check_consistent_length, check_is_fitted

from darrm.account.accountant import Spent
from darrm.aggregator import Aggregator
from darrm.errors import BudgetExceededError
from darrm.estimators import card
from darrm.estimators.base import Ensemble, check_enough_rows, check_fitted, check_nothing_else, public_classes
from darrm.estimators.planning import BEST, charge_of_models, check_answers_all, planned
from darrm.estimators.spending import LedgerHandle, SelectionWarning, Written, opened, warn_of_refit
from darrm.estimators.teachers import check_classifier
from darrm.ledger.ledger import PrivacyLedger
from darrm.loss.privacy_cost import PrivacyCost
from darrm.pate.analysis import PrivateFigureWarning
from darrm.plan.calibration import CalibratedMechanism
from darrm.privacy import PrivacyParams
from darrm.problem import Voters, Workload
from darrm.util import checks
from darrm.util.extras import Untyped
from darrm.votes import Votes


class PayingVote(Ensemble):
    """The base of ensembles whose `predict` debits every label."""

    epsilon: float
    delta: float
    max_queries: int
    ledger: Any
    _overlap = 1  # how many teachers one person's data can influence
    _trained_elsewhere = False
    _release: Aggregator | None  # None if the votes need no noise
    _spending: LedgerHandle

    def _voters(self) -> Voters:
        raise NotImplementedError

    def _aggregator(self) -> Untyped:
        return BEST

    def fit(self, X: Untyped, y: Untyped, groups: Untyped = None, **refused: Untyped) -> Untyped:
        """Train the teachers on disjoint shards, and plan the release of their votes.

        Parameters
        ----------
        X
            (n, d) private inputs: an array, a data frame, or a sparse matrix if the teachers take one; (n,) texts, a
            list or a Series, if the teachers begin with a vectorizer.
        y
            (n,) private labels: numbers or text.
        groups
            (n,) the person of each row: all rows of a person go to one teacher. By default every row is a person.
        refused
            Refused, also ``sample_weight``.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If an argument is out of range, a teacher cannot be trained, or the ledger has another budget. The error
            depends on the private data, and no guarantee covers it.
        PlanError
            If no release fits into the budget.
        LedgerError
            If the ledger cannot be opened.

        Warns
        -----
        RefitWarning
            If another ledger paid for earlier answers: the new budget is added to the old one.
        """
        check_nothing_else(refused)
        with self._unchanged_on_failure() as line:
            self._overlap, self._trained_elsewhere = 1, False
            inputs, labels = self._data(X, y)
            voters = self._voters()
            check_enough_rows(inputs, voters.K)
            line.show(f"planning {self.max_queries:,} answers of {voters.K:,} teachers")
            option = self._option(voters, len(self.classes_))
            charge, spending = self._budget(voters, option)
            warn_of_refit(getattr(self, "_spending", None), spending)
            line.show(f"training {voters.K:,} teachers")
            teachers = self._teach(inputs, labels, groups, voters.K)
            if option.aggregator is None:
                spending.ledger.debit(charge, note=f"{type(self).__name__}.fit")
            self.teachers_, self.plan_, self._release, self._spending = teachers, option, option.aggregator, spending
            self._remember(groups)
        return self

    def _budget(self, voters: Voters, option: CalibratedMechanism) -> tuple[PrivacyCost, LedgerHandle]:
        """Return the cost of an answer, and the ledger."""
        noisy = option.aggregator is not None
        charge = option.aggregator.privacy_cost() if option.aggregator is not None else charge_of_models(voters)
        total = PrivacyParams(self.epsilon, self.delta)
        return charge, opened(self.ledger, total, charge, anew=noisy and voters.are_private_models)

    def _option(self, voters: Voters, classes: int) -> CalibratedMechanism:
        checks.integer_at_least(1, max_queries=self.max_queries, advice="how many answers are planned for")
        total = PrivacyParams(self.epsilon, self.delta)
        return planned(Workload(voters, self.max_queries, total, classes), self._aggregator())

    def expected_accuracy(self) -> float:
        """Return the planned accuracy, the probability that a label is the plurality of the teachers, before `fit`.

        It depends on no data. For two classes every number of votes is equally likely; for more it is the mean over
        low, medium and high consensus of the teachers. High consensus has a higher one; the accuracy of the plurality
        itself is a separate question.

        Raises
        ------
        ValueError
            If the number of classes is unknown, or ``aggregator`` is not planned.
        PlanError
            If no release fits into the budget.
        """
        check_classifier(self.teacher_parameter, getattr(self, self.teacher_parameter))
        classes = getattr(self, "classes_", None) if self.classes is None else public_classes(self.classes)
        if classes is None:
            checks.fail("classes", None, "given before a fit", "the accuracy depends on their number")
        share = self._option(self._voters(), len(classes)).accuracy
        if np.isnan(share):
            checks.fail("aggregator", repr(self._aggregator()), repr(BEST), "the accuracy of another is unknown")
        return share

    @property
    def predict_proba(self) -> NoReturn:
        """Raise `AttributeError`: a vote releases a class, and shares of noisy votes are no probabilities."""
        raise AttributeError(
            f"{type(self).__name__} has no predict_proba: it releases a class, and shares of noisy votes are no "
            "probabilities. Use the student of a PATEClassifier"
        )

    def predict(self, X: Untyped) -> NDArray[Untyped]:
        """Release a private label for each row, after debiting all of them.

        The ledger keeps the labels of the last call until the next one, or `acknowledge`. After a crash
        ``ledger_.undelivered()`` lists them, and ``ledger_.kept_labels(entry)`` reads them.

        Parameters
        ----------
        X
            (Q, d) inputs, public or of the client. A repeated input is debited again.

        Returns
        -------
        labels
            (Q,) classes.

        Raises
        ------
        ValueError
            If the inputs do not match those of ``fit``, or a teacher cannot answer them. The latter depends on the
            private data, and no guarantee covers it: do not show it to clients. Nothing is debited.
        BudgetExceededError
            If fewer than Q answers are left; ``queries_that_fit`` is their number. Nothing is debited.
        LedgerError
            If the ledger cannot be written, belongs to another process, or was debited by other models.
        """
        check_is_fitted(self)
        inputs = self._inputs(X, reset=False)
        if self._release is None:
            return np.asarray(self.classes_[self._counts(self.teachers_, inputs).argmax(axis=1)])
        asked, left = _num_samples(inputs), self._left()
        if asked > left:
            raise BudgetExceededError(
                f"{asked} answers were asked for, and {left} of {self.plan_.workload.queries} are left within "
                f"{self.plan_.workload.total}: nothing was paid. Ask for fewer rows, or start a new budget",
                requested=f"{asked} answers",
                remaining=f"{left} answers",
                queries_that_fit=left,
            )
        votes = Votes.of_counts(self._counts(self.teachers_, inputs), len(self.teachers_), len(self.classes_))
        note = f"{type(self).__name__}.predict"
        release = Written(self._release, self._names)
        names = self._spending.release(release, votes, note, self._spending.stream(note))
        return np.asarray(names, dtype=self.classes_.dtype)

    def _names(self, codes: NDArray[np.int64]) -> NDArray[Untyped]:
        if not np.isin(codes, np.arange(len(self.classes_))).all():
            checks.fail("aggregator", repr(self._release), "one that answers every query", "a PATEClassifier declines")
        return np.array(self.classes_.tolist())[codes]

    def score(self, X: Untyped, y: Untyped, sample_weight: Untyped = None) -> float:
        """Return the share of correct labels of `predict`, which debits them.

        Warns
        -----
        SelectionWarning
            The answers are debited, and a choice by scores on private data is a release that no ledger counts.
        """
        if self._is_paying():
            check_consistent_length(X, y, sample_weight)  # before the debit
            warnings.warn(
                f"score pays for {_num_samples(X)} answers; settings that are chosen by scores on private data, as by "
                "a grid search, are a release that no ledger counts: choose them on public data",
                SelectionWarning,
                stacklevel=2,
            )
        return float(super().score(X, y, sample_weight))

    def votes(self, X: Untyped) -> Votes:
        """Return the teachers' votes on (Q, d) inputs. **Private data**: do not publish them, nor choose by them.

        Warns
        -----
        PrivateFigureWarning
            Always, unless the votes need no noise.
        """
        check_is_fitted(self)
        inputs = self._inputs(X, reset=False)
        if self._release is not None:
            warnings.warn(
                "these votes are private data: publish neither them nor a choice that depends on them",
                PrivateFigureWarning,
                stacklevel=2,
            )
        return Votes.of_counts(self._counts(self.teachers_, inputs), len(self.teachers_), self.classes_.tolist())

    @property
    def ledger_(self) -> PrivacyLedger:
        """The ledger, the authority on spent budget; `LedgerError` if this process has none."""
        check_is_fitted(self)
        return self._spending.ledger

    @property
    def privacy_spent_(self) -> Spent:
        """The cost of all answers so far, from the ledger; it does not depend on the data."""
        check_is_fitted(self)
        return self.ledger_.spent

    @property
    def queries_left_(self) -> float:
        """The number of answers that the budget admits; infinite if answers need no noise."""
        check_is_fitted(self)
        if self._release is None:
            return float("inf")
        return self.ledger_.queries_that_fit(self._release.privacy_cost(), most=self._left())

    def to_model_card(self) -> str:
        """Write the guarantee, its neighbors and its assumptions in Markdown; the card may be published."""
        check_is_fitted(self)
        return card.of_vote(self)

    def _left(self) -> int:
        kind = self._release.privacy_cost().kind if self._release is not None else None
        held = self.ledger_.accountant().charges
        return max(0, self.plan_.workload.queries - sum(each.count for each in held if each.kind == kind))

    def _is_paying(self) -> bool:
        return getattr(self, "_release", None) is not None


class PrivateVotingClassifier(PayingVote):
    """A private plurality vote of non-private teachers, trained on disjoint shards.

    One person's data influence one teacher (`darrm.estimators.shards`), so at most one of K votes changes. The labels
    of all calls of `predict` together are (epsilon, delta)-differentially private; teachers and votes are not.

    Parameters
    ----------
    estimator
        Any classifier with scikit-learn's interface: each teacher is a clone. Put steps that learn from data, such as a
        scaler, into it (a pipeline): a scaler *in front* of this class is fitted to all rows, and then one person
        influences all teachers.
    n_teachers
        K. More teachers need less noise; fewer teachers have more data each.
    epsilon, delta
        The budget of all answers together.
    max_queries
        Q, the number of planned answers; `predict` refuses more. (Concurrent calls may exceed Q, never the budget.)
    classes
        All classes, public; a number C means 0 … C - 1. None reads them from ``y``, and assumes that they are public.
    aggregator
        ``"best"`` plans the release (`darrm.plan`); or an aggregator that answers every query, such as
        ``darrm.pate.GNMax(40)``.
    n_jobs
        Processes for training and voting, by joblib: a Dask or Ray backend is chosen by ``joblib.parallel_config``.
    random_state
        Governs shards and training, never the noise, which is drawn from the operating system.
    ledger
        A file that keeps the budget over all fits, processes and restarts; it is created if missing. None keeps it in
        memory: every fit starts a new budget, and n fits to the same people's data cost n budgets.
    verbose
        Whether `fit` shows progress on standard error after two seconds.

    Attributes
    ----------
    classes_, n_features_in_, feature_names_in_
        As in scikit-learn.
    plan_
        The plan: a `darrm.plan.CalibratedMechanism`.
    privacy_spent_, queries_left_, ledger_
        The spent budget, the number of answers left, and the ledger.
    teachers_
        The K fitted teachers: **private data**.

    Notes
    -----
    `copy.deepcopy` and pickle share the budget (`darrm.estimators.spending`).

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> vote = PrivateVotingClassifier(DecisionTreeClassifier(), n_teachers=25, max_queries=20, random_state=0)
    >>> labels = vote.fit(X[:400], y[:400]).predict(X[400:415])
    >>> labels.shape, vote.queries_left_, vote.privacy_spent_.epsilon <= 2
    ((15,), 5, True)
    """

    def __init__(
        self,
        estimator: Untyped,
        n_teachers: int = 250,
        *,
        epsilon: float = 2.0,
        delta: float = 1e-5,
        max_queries: int = 1000,
        classes: Untyped = None,
        aggregator: Untyped = BEST,
        n_jobs: int | None = None,
        random_state: Untyped = None,
        ledger: Untyped = None,
        verbose: int = 0,
    ) -> None:
        self.estimator = estimator
        self.n_teachers = n_teachers
        self.epsilon = epsilon
        self.delta = delta
        self.max_queries = max_queries
        self.classes = classes
        self.aggregator = aggregator
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.ledger = ledger
        self.verbose = verbose

    def _voters(self) -> Voters:
        checks.integer_at_least(1, n_teachers=self.n_teachers, advice="how many shards the rows are dealt to")
        return Voters.non_private(self.n_teachers, self._overlap)

    @classmethod
    def from_fitted(
        cls, models: Iterable[Untyped], *, overlap: int, classes: Untyped = None, **parameters: Untyped
    ) -> PrivateVotingClassifier:
        """Return a vote of classifiers that are fitted already, ready to predict.

        Parameters
        ----------
        models
            The fitted classifiers: **private data**. They are used as they are.
        overlap
            The largest number of them that one person's data can influence: 1 for models that were trained on disjoint
            data. The guarantee assumes it, and nothing checks it.
        classes
            All classes, public. None takes those that every model knows.
        parameters
            Others of the class, such as ``epsilon`` and ``max_queries``.

        Raises
        ------
        ValueError
            If there is no model, one is not fitted, or they know different classes and none are listed.
        PlanError
            If no release fits into the budget.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from sklearn.naive_bayes import GaussianNB
        >>> X, y = load_iris(return_X_y=True)
        >>> models = [GaussianNB().fit(X[n::30], y[n::30]) for n in range(30)]
        >>> vote = PrivateVotingClassifier.from_fitted(models, overlap=1, max_queries=10)
        >>> vote.predict(X[:10]).shape, vote.queries_left_
        ((10,), 0)
        """
        models = list(models) if isinstance(models, Iterable) else [models]
        names = check_fitted(models, classes)
        vote = cls(clone(models[0]), len(models), classes=classes, **parameters)
        vote._overlap, vote._trained_elsewhere = overlap, True
        vote.classes_, voters = names, vote._voters()
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(models[0], name):
                setattr(vote, name, getattr(models[0], name))
        option = vote._option(voters, len(names))
        _, spending = vote._budget(voters, option)
        vote.teachers_, vote.plan_, vote._release, vote._spending = models, option, option.aggregator, spending
        vote._remember(())  # `overlap` is about a person with all of the rows
        return vote

    def _aggregator(self) -> Untyped:
        check_answers_all(self.aggregator)
        return self.aggregator
