"""Votes of teachers on disjoint shards: every label of `predict` is debited from the budget, unless no noise is needed.

Private models are trained once each, on its shard, by an estimator whose ``fit`` is (ε, Δ)-differentially private. One
person's data influence one model, so any number of answers is post-processing of one (ε, Δ)-private model:

* if (ε, Δ) is within the budget, **no noise is needed**: answers are the plurality, and cost nothing more;
* otherwise the release adds noise, and the joint bound of model privacy and release holds (`darrm.loss.joint_bound`).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.utils.validation import _num_samples, check_consistent_length, check_is_fitted

from darrm.account.accountant import Spent
from darrm.errors import BudgetExceededError
from darrm.estimators import card
from darrm.estimators.budget import (
    BEST,
    LabelConverter,
    LedgerHandle,
    LimitedConfident,
    SelectionWarning,
    cost_of_models,
    open_ledger,
    plan_release,
)
from darrm.estimators.ensemble import Ensemble, check_classifier, check_no_others, public_classes
from darrm.ledger.ledger import PrivacyLedger
from darrm.loss.privacy_cost import PrivacyCost
from darrm.pate.analysis import PrivateFigureWarning
from darrm.pate.confident import CheckedGNMax
from darrm.pate.tested import TestedRun
from darrm.plan.calibration import CalibratedMechanism
from darrm.privacy import Number, PrivacyParams, exact_number
from darrm.problem import Voters, Workload
from darrm.util import checks
from darrm.util.extras import Untyped
from darrm.util.people import identify_persons
from darrm.votes import Votes


class PayingVote(Ensemble):
    """The base of ensembles whose `predict` debits every label."""

    epsilon: float
    delta: float
    max_queries: int
    ledger: Untyped
    plan_: CalibratedMechanism
    _overlap: int | None = None  # how many models that were trained elsewhere one person's data can influence
    _spending: LedgerHandle

    def _make_voters(self) -> Voters:
        raise NotImplementedError

    def fit(self, X: Untyped, y: Untyped, groups: Untyped = None, **other_arguments: Untyped) -> Untyped:
        """Train the teachers on disjoint shards, and plan the release of their votes.

        ``X`` are (n, d) private inputs (an array, a data frame, or a sparse matrix if the teachers take one), or (n,)
        texts if the teachers begin with a vectorizer; ``y`` (n,) labels, numbers or text; ``groups`` (n,) the person of
        each row, by default another for each. ``sample_weight`` is refused.

        `ValueError` if an argument is out of range, a teacher cannot be trained, or the ledger has another budget: the
        error depends on the private data, and no guarantee covers it. `PlanError` if no release fits into the budget;
        `LedgerError` if the ledger cannot be opened. `RefitWarning` if another ledger paid for earlier answers: the
        budgets add up.
        """
        check_no_others(other_arguments)
        with self._unchanged_on_failure() as line:
            self._overlap = None
            inputs, labels = self._check_data(X, y)
            voters, previous = self._make_voters(), getattr(self, "_spending", None)
            self._teacher_count(_num_samples(inputs))
            line.show(f"planning {self.max_queries:,} answers of {voters.K:,} teachers")
            self._open_ledger(voters)
            self._spending.warn_of_refit(previous)
            line.show(f"training {voters.K:,} teachers")
            persons = identify_persons(_num_samples(inputs), groups)
            self.teachers_ = self._train_teachers(inputs, labels, persons, voters.K)
            if self.plan_.aggregator is None:
                self._spending.ledger.debit(cost_of_models(voters), note=f"{type(self).__name__}.fit")
            self._store_facts(groups)
        return self

    def _open_ledger(self, voters: Voters) -> None:
        self.plan_ = self._plan(voters, len(self.classes_))
        aggregator = self.plan_.aggregator
        cost = cost_of_models(voters) if aggregator is None else aggregator.privacy_cost()
        exclusive = aggregator is not None and voters.are_private_models
        self._spending = open_ledger(self.ledger, self.plan_.workload.total, cost, exclusive=exclusive)

    def _plan(self, voters: Voters, classes: int) -> CalibratedMechanism:
        checks.integer_at_least(1, max_queries=self.max_queries, advice="how many answers are planned for")
        aggregator, total = getattr(self, "aggregator", BEST), PrivacyParams(self.epsilon, self.delta)
        may_abstain = isinstance(aggregator, TestedRun) and (
            aggregator.otherwise is None or aggregator.check is not None
        )
        if may_abstain or isinstance(aggregator, CheckedGNMax | LimitedConfident):  # both charge unanswered queries
            checks.fail("aggregator", repr(aggregator), "one that answers every query", "a PATEClassifier declines")
        return plan_release(Workload(voters, self.max_queries, total, classes), aggregator)

    def expected_accuracy(self) -> float:
        """Return the planned probability that a label is the plurality of the teachers, before `fit`, from no data.

        For two classes every number of votes is equally likely; for more it is the mean over low, medium and high
        consensus. `ValueError` if the number of classes is unknown, or ``aggregator`` is not planned.
        """
        check_classifier(self.teacher_parameter, self._teacher)
        classes = getattr(self, "classes_", None) if self.classes is None else public_classes(self.classes)
        if classes is None:
            checks.fail("classes", None, "given before a fit", "the accuracy depends on their number")
        accuracy = self._plan(self._make_voters(), len(classes)).accuracy
        if np.isnan(accuracy):
            description = repr(getattr(self, "aggregator", BEST))
            checks.fail("aggregator", description, repr(BEST), "the accuracy of another is unknown")
        return accuracy

    @property
    def predict_proba(self) -> NoReturn:
        """Raise `AttributeError`: a vote releases a class, and shares of noisy votes are no probabilities."""
        raise AttributeError(
            f"{type(self).__name__} has no predict_proba: it releases a class, and shares of noisy votes are no "
            "probabilities. Use the student of a PATEClassifier"
        )

    def predict(self, X: Untyped) -> NDArray[Untyped]:
        """Release a private label for each row, after debiting all of them: (Q, d) inputs → (Q,) classes.

        A repeated input is debited again. The ledger keeps the labels until the next call, or `acknowledge`: after a
        crash ``ledger_.undelivered()`` lists them, and ``ledger_.kept_labels(entry)`` reads them. Errors debit nothing:
        `ValueError` if the inputs do not match those of ``fit``, or a teacher cannot answer (private: do not show it to
        clients); `BudgetExceededError` if fewer than Q answers are left, ``queries_that_fit``; `LedgerError` if the
        ledger cannot be written, belongs to another process, or was debited by other models.
        """
        check_is_fitted(self)
        inputs, aggregator = self._check_inputs(X, reset=False), self.plan_.aggregator
        if aggregator is None:
            return np.asarray(self.classes_[self._count_votes(self.teachers_, inputs).argmax(axis=1)])
        queries, remaining = _num_samples(inputs), self._count_remaining(aggregator.privacy_cost())
        if queries > remaining:
            raise BudgetExceededError(
                f"{queries} answers were asked for, and {remaining} of {self.plan_.workload.queries} are left within "
                f"{self.plan_.workload.total}: nothing was paid. Ask for fewer rows, or start a new budget",
                requested=f"{queries} answers",
                remaining=f"{remaining} answers",
                queries_that_fit=remaining,
            )
        votes = Votes.from_counts(self._count_votes(self.teachers_, inputs), len(self.teachers_), len(self.classes_))
        note = f"{type(self).__name__}.predict"
        converter = LabelConverter(aggregator, self._name_classes)
        labels = self._spending.release(converter, votes, note, self._spending.stream(note))
        return np.asarray(labels, dtype=self.classes_.dtype)

    def _name_classes(self, codes: NDArray[np.int64]) -> NDArray[Untyped]:
        if not np.isin(codes, np.arange(len(self.classes_))).all():
            description = repr(self.plan_.aggregator)
            checks.fail("aggregator", description, "one that answers every query", "a PATEClassifier declines")
        return np.array(self.classes_.tolist())[codes]

    def score(self, X: Untyped, y: Untyped, sample_weight: Untyped = None) -> float:
        """Return the share of correct labels of `predict`, which debits them.

        Warns `SelectionWarning`: a choice by scores on private data is a release that no ledger counts.
        """
        check_is_fitted(self)
        if self.plan_.aggregator is not None:
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

        Warns `PrivateFigureWarning`, unless the votes need no noise.
        """
        check_is_fitted(self)
        inputs = self._check_inputs(X, reset=False)
        if self.plan_.aggregator is not None:
            warnings.warn(
                "these votes are private data: publish neither them nor a choice that depends on them",
                PrivateFigureWarning,
                stacklevel=2,
            )
        return Votes.from_counts(self._count_votes(self.teachers_, inputs), len(self.teachers_), self.classes_.tolist())

    @property
    def ledger_(self) -> PrivacyLedger:
        """The ledger, the authority on spent budget; `LedgerError` if this process has none."""
        check_is_fitted(self)
        return self._spending.ledger

    @property
    def privacy_spent_(self) -> Spent:
        """The cost of all answers so far; it does not depend on the data."""
        return self.ledger_.spent

    @property
    def queries_left_(self) -> float:
        """The number of answers that the budget admits; infinite if answers need no noise."""
        check_is_fitted(self)
        if self.plan_.aggregator is None:
            return math.inf
        cost = self.plan_.aggregator.privacy_cost()
        return self.ledger_.queries_that_fit(cost, most=self._count_remaining(cost))

    def _count_remaining(self, cost: PrivacyCost) -> int:
        answered = sum(spent.count for spent in self.ledger_.accountant().costs if spent.kind == cost.kind)
        return max(0, self.plan_.workload.queries - answered)

    def to_model_card(self) -> str:
        """Write the guarantee, its neighbors and its assumptions in Markdown; it may be published."""
        check_is_fitted(self)
        return card.describe_vote(self)


@dataclass(eq=False, repr=False)
class PrivateVotingClassifier(PayingVote):
    """A private plurality vote of non-private teachers, trained on disjoint shards.

    One person's data influence one teacher (`darrm.estimators.ensemble`). The labels of all calls of `predict` together
    are (epsilon, delta)-differentially private; teachers and votes are not. `copy.deepcopy` and pickle share the
    budget.

    Parameters
    ----------
    estimator
        Any classifier; each teacher is a clone. Put steps that learn from data, such as a scaler, into it (a pipeline):
        *in front* of this class, one person influences all teachers.
    n_teachers
        K. More teachers need less noise, and have less data each.
    epsilon, delta
        The budget of all answers together.
    max_queries
        Q, the number of planned answers; `predict` refuses more. (Concurrent calls may exceed Q, never the budget.)
    classes
        All classes, public; a number C means 0 … C - 1. None reads them from ``y``, and assumes that they are public.
    aggregator
        ``"best"`` plans the release; or an aggregator that answers every query, such as ``darrm.pate.GNMax(40)``.
    n_jobs
        Processes of joblib (Dask or Ray by ``joblib.parallel_config``).
    random_state
        Governs shards and training, never the noise.
    ledger
        A file that keeps the budget over all fits and processes, created if missing. None keeps it in memory: n fits to
        the same people's data cost n budgets.
    verbose
        Whether `fit` shows progress on standard error after two seconds.

    Attributes
    ----------
    teachers_, plan_
        The K fitted teachers, **private data**; and a `darrm.plan.CalibratedMechanism`.

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

    estimator: Untyped
    n_teachers: int = 250
    _: KW_ONLY
    epsilon: float = 2.0
    delta: float = 1e-5
    max_queries: int = 1000
    classes: Untyped = None
    aggregator: Untyped = BEST
    n_jobs: int | None = None
    random_state: Untyped = None
    ledger: Untyped = None
    verbose: int = 0

    def _make_voters(self) -> Voters:
        return Voters.non_private(self._teacher_count(), 1 if self._overlap is None else self._overlap)

    @classmethod
    def from_fitted(
        cls, models: Iterable[Untyped], *, overlap: int, classes: Untyped = None, **parameters: Untyped
    ) -> PrivateVotingClassifier:
        """Return a vote of classifiers that are fitted already (**private data**), ready to predict.

        ``overlap`` is the largest number of them that one person's data can influence: 1 for disjoint training data.
        The guarantee assumes it; nothing checks it. ``classes`` are all classes, public; None takes those that every
        model knows. ``parameters`` are others of the class.

        >>> from sklearn.datasets import load_iris
        >>> from sklearn.naive_bayes import GaussianNB
        >>> X, y = load_iris(return_X_y=True)
        >>> models = [GaussianNB().fit(X[n::30], y[n::30]) for n in range(30)]
        >>> PrivateVotingClassifier.from_fitted(models, overlap=1, max_queries=10).predict(X[:10]).shape
        (10,)
        """
        models = list(models) if isinstance(models, Iterable) else [models]
        if not models:
            checks.fail("models", models, "at least one fitted classifier")
        for model in models:
            check_classifier("models", model)
            check_is_fitted(model)
        names = models[0].classes_ if classes is None else public_classes(classes)
        if classes is None and not all(np.array_equal(names, model.classes_) for model in models):
            advice = "the list is public: pass all of them"
            checks.fail("classes", None, "given, because the models know different ones", advice)
        vote = cls(clone(models[0]), len(models), classes=classes, **parameters)
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(models[0], name):
                setattr(vote, name, getattr(models[0], name))
        vote.teachers_, vote.classes_ = models, np.asarray(names)
        vote._overlap = overlap
        vote._open_ledger(vote._make_voters())
        vote._store_facts(())  # `overlap` counts all rows of a person
        return vote


@dataclass(eq=False, repr=False)
class PrivateModelsVotingClassifier(PayingVote):
    """The plurality vote of differentially private models, such as diffprivlib's.

    Parameters
    ----------
    estimator
        A classifier whose ``fit`` is private for every shard, also for one class only or few rows.
    n_models
        K.
    epsilon_each, delta_each
        The guarantee of one ``fit``, for replacing, adding or removing one person. None reads the estimator's
        parameters ``epsilon`` and ``delta`` (0 without a delta), which are about one row: required with ``groups``, for
        all rows of a person, and for pipelines, whose steps have guarantees of parts only.
    epsilon, delta, max_queries, classes, n_jobs, random_state, ledger, verbose
        As for `PrivateVotingClassifier`; ``random_state`` governs only the shards. Retrained models are new voters: a
        ledger in a file must be empty.

    Attributes
    ----------
    plan_
        The plan; without noise ``plan_.aggregator`` is None, and `predict` is free: one model's guarantee is debited at
        the end of `fit`. With noise, publish neither the models nor their votes.
    teachers_
        The K fitted models; private in the sense of ``epsilon_each``.

    Examples
    --------
    >>> from sklearn.dummy import DummyClassifier
    >>> X, y = [[0.0]] * 40, ["no", "yes"] * 20
    >>> private = DummyClassifier()  # in place of a (1, 0)-private estimator
    >>> vote = PrivateModelsVotingClassifier(private, 4, epsilon_each=1.0, classes=["no", "yes"]).fit(X, y)
    >>> vote.plan_.name, vote.predict(X).shape, round(vote.privacy_spent_.epsilon, 3)
    ('no noise', (40,), 1.0)
    """

    seeded = False
    count_parameter = "n_models"

    estimator: Untyped
    n_models: int = 10
    _: KW_ONLY
    epsilon_each: Number | None = None
    delta_each: Number | None = None
    epsilon: float = 2.0
    delta: float = 1e-5
    max_queries: int = 1000
    classes: Untyped = None
    n_jobs: int | None = None
    random_state: Untyped = None
    ledger: Untyped = None
    verbose: int = 0

    def fit(self, X: Untyped, y: Untyped, groups: Untyped = None, **other_arguments: Untyped) -> Untyped:
        """Train the models on disjoint shards, as `PrivateVotingClassifier.fit`.

        ``groups`` require ``epsilon_each``, and ``delta_each`` if the estimator has a parameter delta.
        """
        if groups is not None:
            needs_delta = self.delta_each is None and bool(_find_guarantee("delta", None, self.estimator))
            for name, missing in (("epsilon_each", self.epsilon_each is None), ("delta_each", needs_delta)):
                if missing:
                    advice = "state the guarantee of one fit for all rows of a person: the estimator's is for one row"
                    checks.fail(name, None, "a number where groups are given", advice)
        return super().fit(X, y, groups, **other_arguments)

    def _make_voters(self) -> Voters:
        models = self._teacher_count()
        seeds = {k: v for k, v in self.estimator.get_params().items() if k.rpartition("__")[2] == "random_state"}
        fixed_seeds = [name for name, value in seeds.items() if value is not None]
        if fixed_seeds:
            text = f"the estimator has a fixed {fixed_seeds[0]}: predictable noise hides nothing: set it to None"
            warnings.warn(text, UserWarning, stacklevel=3)
        epsilon = _find_guarantee("epsilon", self.epsilon_each, self.estimator)
        if epsilon is None:
            advice = "pass epsilon_each=, the guarantee of one fit of the estimator"
            checks.fail("epsilon_each", None, "a number if the estimator has no parameter epsilon", advice)
        guarantee = PrivacyParams(epsilon, _find_guarantee("delta", self.delta_each, self.estimator) or 0)
        return Voters(models, guarantee, overlap=1, models=True)


def _find_guarantee(name: str, stated: Number | None, estimator: Untyped) -> Untyped:
    """Return ε or δ of one fit: the caller's, or the estimator's parameter."""
    # a pipeline's scaler, or an ensemble that fits its part ten times, spends more than the part alone
    parameters = estimator.get_params()
    values = {}
    for parameter, value in parameters.items():
        step, _, setting = parameter.rpartition("__")
        library = type(parameters[step] if step else estimator).__module__.partition(".")[0]
        if (
            setting == name
            and value is not None
            and library != "sklearn"
            and exact_number(f"the estimator's {parameter}", value)
        ):
            values[parameter] = value
    if stated is not None:
        largest = max(values.values(), key=partial(exact_number, name), default=0)
        if stated != math.inf and exact_number(f"{name}_each", stated) < exact_number(name, largest):
            checks.fail(f"{name}_each", stated, f"at least {largest}, the {name} that the estimator is trained with")
        return stated
    if values and list(values) != [name]:
        advice = "pass the guarantee of one fit of the whole estimator"
        checks.fail(f"{name}_each", None, f"a number if a part of the estimator has a parameter {name}", advice)
    return values.get(name)
