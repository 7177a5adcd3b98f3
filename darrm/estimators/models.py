"""A vote of private models: training costs budget, and the release adds noise only if needed.

Each model is trained once, on its shard, by an estimator whose ``fit`` is (ε, Δ)-differentially private. One person's
data influence one model, so any number of answers is post-processing of one (ε, Δ)-private model:

* if (ε, Δ) is within the budget, **no noise is needed**: answers are the plurality, and cost nothing more;
* otherwise the release adds noise, and the joint bound of model privacy and release holds (`darrm.loss.joint_bound`).

``random_state`` governs the shards, not the noise of the models. Shards of one class are fitted too: an exception for
them would be visible, and so reveal data.
"""

import math
import warnings

from darrm.estimators.voting import PayingVote
from darrm.privacy import Number, PrivacyParams, exact_number
from darrm.problem import Voters
from darrm.util import checks
from darrm.util.extras import Untyped


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
        parameters ``epsilon`` and ``delta`` (0 without a delta). Those are about one row, so they are required with
        ``groups``, for all rows of a person, and for pipelines, whose steps have guarantees of parts only.
    epsilon, delta, max_queries, classes, n_jobs, ledger, verbose
        As for `PrivateVotingClassifier`. Retrained models are new voters: a ledger in a file must be empty.
    random_state
        Governs only the shards.

    Attributes
    ----------
    plan_
        The plan; the votes need no noise, and `predict` is free, if ``plan_.aggregator`` is None.
    privacy_spent_
        The cost of models and answers. Without noise it is the guarantee of one model, debited at the end of `fit`;
        with noise, publish neither the models nor their votes.
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

    def __init__(
        self,
        estimator: Untyped,
        n_models: int = 10,
        *,
        epsilon_each: Number | None = None,
        delta_each: Number | None = None,
        epsilon: float = 2.0,
        delta: float = 1e-5,
        max_queries: int = 1000,
        classes: Untyped = None,
        n_jobs: int | None = None,
        random_state: Untyped = None,
        ledger: Untyped = None,
        verbose: int = 0,
    ) -> None:
        self.estimator = estimator
        self.n_models = n_models
        self.epsilon_each = epsilon_each
        self.delta_each = delta_each
        self.epsilon = epsilon
        self.delta = delta
        self.max_queries = max_queries
        self.classes = classes
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.ledger = ledger
        self.verbose = verbose

    def fit(self, X: Untyped, y: Untyped, groups: Untyped = None, **refused: Untyped) -> Untyped:
        """Train the models on disjoint shards, as `PrivateVotingClassifier.fit`.

        ``groups`` require ``epsilon_each``, and ``delta_each`` if the estimator has a parameter delta.
        """
        if groups is not None:
            own = _promised("delta", None, self.estimator) if self.delta_each is None else None
            for name, missing in (("epsilon_each", self.epsilon_each is None), ("delta_each", bool(own))):
                if missing:
                    advice = "state the guarantee of one fit for all rows of a person: the estimator's is for one row"
                    checks.fail(name, None, "a number where groups are given", advice)
        return super().fit(X, y, groups, **refused)

    def _voters(self) -> Voters:
        checks.integer_at_least(1, n_models=self.n_models, advice="how many shards the rows are dealt to")
        parameters = self.estimator.get_params()
        fixed = [
            name for name in parameters if name.rpartition("__")[2] == "random_state" and parameters[name] is not None
        ]
        if fixed:
            warnings.warn(
                f"the estimator has a fixed {fixed[0]}: noise that can be predicted hides nothing: set it to None",
                UserWarning,
                stacklevel=3,
            )
        epsilon = _promised("epsilon", self.epsilon_each, self.estimator)
        if epsilon is None:
            advice = "pass epsilon_each=, the guarantee of one fit of the estimator"
            checks.fail("epsilon_each", None, "a number where the estimator has no parameter epsilon", advice)
        return Voters(
            self.n_models,
            PrivacyParams(epsilon, _promised("delta", self.delta_each, self.estimator) or 0),
            overlap=1,
            models=True,
        )


def _promised(name: str, said: Number | None, estimator: Untyped) -> Untyped:
    """Return ε or δ of one fit: the caller's, or the estimator's parameter."""
    # a pipeline's scaler, or an ensemble that fits its part ten times, spends more than the part alone
    parameters = estimator.get_params()
    values = {}
    for each, value in parameters.items():
        part, _, last = each.rpartition("__")
        maker = type(parameters[part] if part else estimator).__module__.partition(".")[0]
        if last == name and value is not None and maker != "sklearn" and exact_number(f"the estimator's {each}", value):
            values[each] = value
    if said is not None:
        least = max((exact_number(name, value) for value in values.values()), default=0)
        if said != math.inf and exact_number(f"{name}_each", said) < least:
            most = max(values.values(), key=lambda value: exact_number(name, value))
            checks.fail(f"{name}_each", said, f"at least {most}, the {name} that the estimator is trained with")
        return said
    if values and list(values) != [name]:
        advice = "pass the guarantee of one fit of the whole estimator"
        checks.fail(f"{name}_each", None, f"a number where a part of the estimator has a parameter {name}", advice)
    return values.get(name)
