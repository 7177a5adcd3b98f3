"""A vote of plain teachers on disjoint shards: `predict` pays for every label, and stops where the budget ends."""

import warnings
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import _num_samples, check_consistent_length, check_is_fitted

from darrm.account.accountant import Spent
from darrm.account.ledger import PrivacyLedger
from darrm.aggregator import Aggregator
from darrm.errors import BudgetExceededError, checks
from darrm.estimators import card
from darrm.estimators.base import Ensemble, check_enough_rows, check_nothing_else
from darrm.estimators.planning import BEST, charge_of_models, check_answers_all, planned
from darrm.estimators.spending import LedgerHandle, SelectionWarning, Written, opened, warn_of_refit
from darrm.estimators.teachers import check_classifier
from darrm.pate.analysis import PrivateFigureWarning
from darrm.plan.option import Option
from darrm.privacy import PrivacyParams
from darrm.problem import Voters, Workload
from darrm.system.extras import Untyped
from darrm.votes import Votes


class PayingVote(Ensemble):
    """An ensemble whose labels are paid for when they leave; what `PrivateVotingClassifier` and its like share."""

    epsilon: float
    delta: float
    max_queries: int
    ledger: Any
    _release: Aggregator | None  # None where votes may be told as they are
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
            (n, d) private inputs: an array, a sparse matrix where the teachers take one, or a data frame; (n,) texts, a
            list or a Series, where they begin with what reads texts.
        y
            (n,) private labels: numbers or text.
        groups
            (n,) whose each row is, so that all rows of a person go to one teacher; by default every row is a person.
        refused
            Nothing else: ``sample_weight`` is refused in words.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If an argument is out of range, a teacher cannot be trained, or the ledger is another budget's. What is
            raised here depends on the private data, and no guarantee covers it.
        PlanError
            If no release fits into the budget.
        LedgerError
            If the ledger cannot be opened.

        Warns
        -----
        RefitWarning
            If answers were paid for before from a ledger in memory, or from another file: the new budget comes on top.
        """
        check_nothing_else(refused)
        with self._unchanged_on_failure() as line:
            inputs, labels = self._data(X, y)
            voters = self._voters()
            check_enough_rows(inputs, voters.K)
            line.show(f"planning {self.max_queries:,} answers of {voters.K:,} teachers")
            total = PrivacyParams(self.epsilon, self.delta)
            option = self._option(voters, len(self.classes_))
            noisy = option.aggregator is not None
            charge = charge_of_models(voters) if option.aggregator is None else option.aggregator.charge()
            spending = opened(self.ledger, total, charge, anew=noisy and voters.are_private_models)
            warn_of_refit(getattr(self, "_spending", None), spending)
            line.show(f"training {voters.K:,} teachers")
            teachers = self._teach(inputs, labels, groups, voters.K)
            if not noisy:
                spending.ledger.debit(charge, note=f"{type(self).__name__}.fit")
            self.teachers_, self.plan_, self._release, self._spending = teachers, option, option.aggregator, spending
            self._remember(groups)
        return self

    def _option(self, voters: Voters, classes: int) -> Option:
        checks.integer_at_least(1, max_queries=self.max_queries, advice="how many answers are planned for")
        total = PrivacyParams(self.epsilon, self.delta)
        return planned(Workload(voters, self.max_queries, total, classes), self._aggregator())

    def expected_share_right(self) -> float:
        """Return how often a label will be one that most teachers vote for, before anything is trained or paid for.

        It depends on no data: it is the plan's, of two classes for teachers of whom every number of votes is equally
        likely, of more the mean of teachers that are divided, mixed or agree. Those that agree are told more often;
        whether most of them are right is another matter.

        Raises
        ------
        ValueError
            If neither ``classes`` nor a `fit` says how many classes there are, or ``aggregator`` is the caller's own.
        PlanError
            If no release fits into the budget.
        """
        check_classifier(self.teacher_parameter, getattr(self, self.teacher_parameter))
        classes = getattr(self, "classes_", None) if self.classes is None else self._said_classes()
        if classes is None:
            checks.fail(
                "classes", None, "said before a fit", "how often a label is right depends on how many there are"
            )
        share = self._option(self._voters(), len(classes)).right
        if np.isnan(share):
            checks.fail("aggregator", repr(self._aggregator()), repr(BEST), "no plan says how often another is right")
        return share

    @property
    def predict_proba(self) -> NoReturn:
        """There is none: a vote releases a class, and the share of noisy votes is no probability of anything."""
        raise AttributeError(
            f"{type(self).__name__} has no predict_proba: it releases a class, and a share of noisy votes is the "
            "probability of nothing: ask the student of a PATEClassifier"
        )

    def predict(self, X: Untyped) -> NDArray[Untyped]:
        """Release a private label for each row, and pay for all of them before the first one leaves.

        The ledger keeps the labels of the last call until the next one, or `acknowledge`: those of a process that was
        killed are listed by ``ledger_.undelivered()`` and read by ``ledger_.kept_labels(entry)``.

        Parameters
        ----------
        X
            (Q, d) inputs, public or of the person who asks. The same input asked twice is paid for twice.

        Returns
        -------
        labels
            (Q,) classes.

        Raises
        ------
        ValueError
            If the inputs are not like those of ``fit``, or a teacher cannot answer them. The latter depends on the
            private data, no guarantee covers it, and whoever asks must not see it. Nothing is paid.
        BudgetExceededError
            If fewer than Q answers are left; ``queries_that_fit`` says how many are. Nothing is paid, and nothing lost.
        LedgerError
            If the ledger cannot be written, belongs to another process, or is one that other models paid from.
        """
        check_is_fitted(self)
        inputs = self._inputs(X, reset=False)
        if self._release is None:
            return np.asarray(self.classes_[self._counts(self.teachers_, inputs).argmax(axis=1)])
        asked, left = _num_samples(inputs), self._left()
        if asked > left:
            raise BudgetExceededError(
                f"{asked} answers were asked for, and {left} of {self.plan_.workload.queries} are left within "
                f"{self.plan_.workload.total}: nothing was paid. Ask for fewer rows; more need a new budget",
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
        """Return the share of right labels of `predict`, which pays for them.

        Warns
        -----
        SelectionWarning
            That the answers are paid for, and that a choice by scores on private data is a release of its own.
        """
        if self._is_paying():
            check_consistent_length(X, y, sample_weight)  # before anything is paid
            warnings.warn(
                f"score pays for {_num_samples(X)} answers; settings that are chosen by scores on private data, as by "
                "a grid search, are a release that no ledger counts: choose them on public data",
                SelectionWarning,
                stacklevel=2,
            )
        return float(super().score(X, y, sample_weight))

    def votes(self, X: Untyped) -> Votes:
        """Return how the teachers vote on (Q, d) inputs. **Private data**: not to be published, nor chosen by.

        Warns
        -----
        PrivateFigureWarning
            Each time, unless the teachers are models whose votes need no noise.
        """
        check_is_fitted(self)
        inputs = self._inputs(X, reset=False)
        if self._release is not None:
            warnings.warn(
                "these votes are private data: do not publish them, nor anything chosen by looking at them",
                PrivateFigureWarning,
                stacklevel=2,
            )
        return Votes.of_counts(self._counts(self.teachers_, inputs), len(self.teachers_), self.classes_.tolist())

    @property
    def ledger_(self) -> PrivacyLedger:
        """The ledger that pays: the authority on what is spent; `LedgerError` where this process has none."""
        check_is_fitted(self)
        return self._spending.ledger

    @property
    def privacy_spent_(self) -> Spent:
        """What all answers so far cost together, read from the ledger; it does not depend on the data."""
        check_is_fitted(self)
        return self.ledger_.spent

    @property
    def queries_left_(self) -> float:
        """How many answers can still be paid for; infinite where answers cost nothing beyond the models."""
        check_is_fitted(self)
        if self._release is None:
            return float("inf")
        return self.ledger_.queries_that_fit(self._release.charge(), most=self._left())

    def to_model_card(self) -> str:
        """Write in Markdown what is guaranteed, to whom, and under which assumptions; it may be published."""
        check_is_fitted(self)
        return card.of_vote(self)

    def _left(self) -> int:
        kind = self._release.charge().kind if self._release is not None else None
        held = self.ledger_.accountant().charges
        return max(0, self.plan_.workload.queries - sum(each.count for each in held if each.kind == kind))

    def _is_paying(self) -> bool:
        return getattr(self, "_release", None) is not None


class PrivateVotingClassifier(PayingVote):
    """A private plurality vote of plain teachers, each trained on a shard of its own.

    One person's data reach one teacher (`darrm.estimators.shards` says why), so one vote of K moves; the labels of all
    calls of `predict` together are (epsilon, delta)-differentially private. Teachers and votes are not private.

    Parameters
    ----------
    estimator
        Any classifier of scikit-learn, or with its interface: each teacher is a clone. What learns from the data, such
        as a scaler, belongs into it (a pipeline): a scaler *in front* of this class sees everybody's rows, and then one
        person reaches all teachers.
    n_teachers
        K. More teachers, and less noise on their vote; fewer, and each of them knows more.
    epsilon, delta
        The budget of all answers together.
    max_queries
        Q, how many answers are planned for; `predict` refuses more. (Calls at one moment may pass Q, never the budget.)
    classes
        All classes, public. None reads them from ``y``, and takes the list as public.
    aggregator
        ``"best"`` plans the release (`darrm.plan`), or one that answers every query, such as ``darrm.pate.GNMax(40)``.
    n_jobs
        Processes for training and voting, by joblib: a Dask or Ray backend is chosen by ``joblib.parallel_config``.
    random_state
        Governs shards and training, never the noise, which is drawn from the operating system.
    ledger
        A file that keeps the budget, made where there is none: over all fits, processes and restarts. None keeps it in
        memory: every fit starts a budget of its own, and n fits to the same people's data cost n budgets.
    verbose
        Whether `fit` shows on standard error where it stands, from two seconds on.

    Attributes
    ----------
    classes_, n_features_in_, feature_names_in_
        As in scikit-learn.
    plan_
        What releases, and what it costs: a `darrm.plan.Option`.
    privacy_spent_, queries_left_, ledger_
        What was spent, how many answers are left, and the ledger that says so.
    teachers_
        The K fitted teachers: **private data**.

    Notes
    -----
    `copy.deepcopy` and pickle lead to the same budget, never to a second one (`darrm.estimators.spending`).

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
        return Voters(self.n_teachers, PrivacyParams("inf"), overlap=1)

    def _aggregator(self) -> Untyped:
        check_answers_all(self.aggregator)
        return self.aggregator
