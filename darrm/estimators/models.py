"""A vote of models that are private themselves: they pay when they are trained, and noise is added only where it helps.

Each model is trained once, by an estimator whose ``fit`` is (ε, Δ)-differentially private, on a shard of its own. One
person's data reach one of them, so any number of answers is post-processing of one (ε, Δ)-private model:

* where (ε, Δ) stays within the budget, **no noise is needed**: the plurality is told as it is, and nothing is counted;
* elsewhere the release adds what is missing, and both ends count together (`darrm.losses.both_ends`).

The noise of the models is theirs: ``random_state`` of this class governs the shards alone, and no exception is made for
a shard of one class, which would reveal what the model's noise hides.
"""

import math
import warnings

from darrm.errors import checks
from darrm.estimators.voting import PayingVote
from darrm.privacy import Number, PrivacyParams, exact_number
from darrm.problem import Voters
from darrm.system.extras import Untyped


class PrivateModelsVotingClassifier(PayingVote):
    """The plurality vote of models that are differentially private by themselves, such as diffprivlib's.

    Parameters
    ----------
    estimator
        A classifier whose ``fit`` is private, whatever its shard looks like: also with one class only, or few rows.
    n_models
        K.
    epsilon_each, delta_each
        What one ``fit`` satisfies, for the replacement, or the coming and going, of one person. None reads them from
        the estimator's own parameters of the names ``epsilon`` and ``delta`` (0 where there is no delta); these are
        about one row, so with ``groups`` they must be said, for all rows of a person. What a part of the estimator
        promises, as a step of a pipeline does, is not read: say what all of it satisfies.
    epsilon, delta, max_queries, classes, n_jobs, ledger, verbose
        As for `PrivateVotingClassifier`. Models that are trained anew are others: a ledger in a file must be empty.
    random_state
        Governs the shards, and nothing else.

    Attributes
    ----------
    plan_
        What releases; where ``plan_.aggregator`` is None the votes need no noise, and `predict` is free.
    privacy_spent_
        What the models and their answers cost a person. Without noise it is what one model promises, paid when `fit`
        ends; with noise the models themselves, and their votes, are not to be published.
    teachers_
        The K fitted models; private in the sense of ``epsilon_each``.

    Examples
    --------
    >>> from sklearn.dummy import DummyClassifier
    >>> X, y = [[0.0]] * 40, ["no", "yes"] * 20
    >>> private = DummyClassifier()  # stands for an estimator that is (1, 0)-private
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
        """Train the models on disjoint shards, as `PrivateVotingClassifier.fit`; with groups say ``epsilon_each``.

        And ``delta_each``, where the estimator has a delta of its own.
        """
        if groups is not None:
            own = _promised("delta", None, self.estimator) if self.delta_each is None else None
            for name, missing in (("epsilon_each", self.epsilon_each is None), ("delta_each", bool(own))):
                if missing:
                    advice = (
                        "say what one fit satisfies for all rows of a person: the estimator's own promise is about one"
                    )
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
            advice = "say epsilon_each=, what one fit of the estimator satisfies"
            checks.fail("epsilon_each", None, "a number where the estimator has no parameter epsilon", advice)
        return Voters(
            self.n_models,
            PrivacyParams(epsilon, _promised("delta", self.delta_each, self.estimator) or 0),
            overlap=1,
            models=True,
        )


def _promised(name: str, said: Number | None, estimator: Untyped) -> Untyped:
    """Return ε or δ of one fit: as it is said, or as the estimator's own parameter."""
    # a pipeline's scaler, or a committee that fits its part ten times, spends more than the part says
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
        advice = "say it for one fit of the whole estimator"
        checks.fail(f"{name}_each", None, f"a number where a part of the estimator has a parameter {name}", advice)
    return values.get(name)
