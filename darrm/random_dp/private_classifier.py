"""A classifier of scikit-learn's kind whose parameters are released privately with a sampled sensitivity.

Only what was released is kept: a fresh estimator gets the noisy parameters, the class names and the number of features,
and nothing else that fitting left behind. So every prediction is post-processing of one private release, and any number
of predictions costs nothing more.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from darrm.errors import checks
from darrm.random_dp.draws import value_of
from darrm.random_dp.guarantee import RandomDP
from darrm.random_dp.mechanisms import Mechanism
from darrm.random_dp.sensitivity_sampler import SampledSensitivity
from darrm.system.votes_file import Labels

Estimator = Any  # of scikit-learn's kind
LINEAR = ("coef_", "intercept_")


@dataclass(frozen=True)
class ParametersOf:
    """The function (features, labels) → fitted parameters, as one vector: what the sensitivity is sampled for.

    Parameters
    ----------
    estimator
        An unfitted estimator with ``fit(X, y)``; it is copied for every fit and must be deterministic (give it its own
        random_state).
    attributes
        The fitted attributes that prediction needs, in order.

    Examples
    --------
    >>> class Means:
    ...     def fit(self, X, y):
    ...         self.coef_ = np.array([[X[y == 1].mean() - X[y == 0].mean()]])
    ...         self.intercept_ = np.array([-X.mean()])
    >>> ParametersOf(Means())((np.array([[0.0], [1.0]]), np.array([0, 1])))
    array([ 1. , -0.5])
    """

    estimator: Estimator
    attributes: tuple[str, ...] = LINEAR

    def __call__(self, data: tuple[NDArray[np.float64], Labels]) -> NDArray[np.float64]:
        """Fit a copy of the estimator and return its parameters, shape (p,)."""
        return np.concatenate([np.ravel(part) for part in self.fitted(data).values()])

    def fitted(self, data: tuple[NDArray[np.float64], Labels]) -> dict[str, NDArray[np.float64]]:
        """Fit a copy of the estimator and return its parameters by name."""
        machine = copy.deepcopy(self.estimator)
        machine.fit(*data)
        missing = [name for name in self.attributes if not hasattr(machine, name)]
        if missing:
            checks.fail("attributes", missing, "attributes of the fitted estimator", "name those that predict() reads")
        return {name: np.array(getattr(machine, name), dtype=np.float64) for name in self.attributes}


@dataclass
class PrivateClassifier:
    """A voter: fits an estimator, releases its parameters once, and predicts from the released ones only.

    Parameters
    ----------
    estimator
        As for `ParametersOf`: linear models (LogisticRegression, LinearSVC, Perceptron, …) with the default attributes.
    mechanism
        `Laplace` or `Gaussian`: what releases the parameter vector.
    sensitivity
        Sampled for ``ParametersOf(estimator, attributes)`` in the mechanism's norm, on data sets of as many records.
    classes
        The two classes in increasing order. They must be public: they are not taken from the data.
    attributes
        The fitted attributes that prediction needs.

    Raises
    ------
    ValueError
        If the sensitivity's norm is not the mechanism's, or there are not two classes in increasing order.

    Notes
    -----
    The guarantee of one fitted voter is (ε, δ, γ)-random DP for the number of records and the distribution for which
    its sensitivity was sampled. Fitting may fail on unusual data (one class only); the failure itself is not private.
    """

    estimator: Estimator
    mechanism: Mechanism[NDArray[np.float64]]
    sensitivity: SampledSensitivity
    classes: tuple[Any, Any] = (0, 1)
    attributes: tuple[str, ...] = LINEAR
    released: Estimator = field(default=None, init=False, repr=False)
    noise: str = field(default="", init=False, repr=False)

    def __post_init__(self) -> None:
        if self.sensitivity.norm != self.mechanism.norm:
            needed = f"{self.mechanism.norm!r}, as the mechanism needs"
            checks.fail("the sensitivity's norm", self.sensitivity.norm, needed)
        if len(self.classes) != 2 or not self.classes[0] < self.classes[1]:
            checks.fail("classes", self.classes, "two classes in increasing order")

    @property
    def guarantee(self) -> RandomDP:
        """What the fitted voter, and all of its predictions together, satisfy.

        Raises
        ------
        ValueError
            If nothing was released yet.
        """
        self._check_fitted()
        return self.sensitivity.guarantee(self.mechanism.privacy, self.noise)

    def fit(
        self, features: ArrayLike, labels: ArrayLike, *, rng: np.random.Generator | None = None
    ) -> PrivateClassifier:
        """Fit on (n, d) features and (n,) labels, release the parameters, and forget everything else.

        Parameters
        ----------
        features, labels
            As many records as the sensitivity was sampled for.
        rng
            For experiments only: pseudo-random noise, without a guarantee.

        Raises
        ------
        ValueError
            If the voter was fitted before, or the shapes do not fit the sensitivity.
        """
        if self.released is not None:
            advice = "each fit is a release of its own: make a new voter"
            checks.fail("fit", checks.Found("a fitted voter"), "called once", advice)
        X, y = np.asarray(features, dtype=np.float64), np.asarray(labels)
        if X.ndim != 2 or y.shape != X.shape[:1]:
            checks.fail("features and labels", (X.shape, y.shape), "of shapes (n, d) and (n,)")
        if len(y) != self.sensitivity.records:
            advice = "sample the sensitivity for this number of records"
            checks.fail("number of records", len(y), f"{self.sensitivity.records}, as sampled", advice)
        if not np.isin(y, self.classes).all():
            checks.fail("labels", checks.Found("a label outside"), f"among the classes {self.classes}")
        parts = ParametersOf(self.estimator, self.attributes).fitted((X, y))
        vector = value_of(lambda _: np.concatenate([part.ravel() for part in parts.values()]), None)
        if vector.shape != self.sensitivity.shape:
            checks.fail("the parameters' shape", vector.shape, f"{self.sensitivity.shape}, as sampled")
        noisy = self.mechanism.release(vector, self.sensitivity.value, rng=rng)
        machine = copy.deepcopy(self.estimator)
        machine.classes_ = np.array(self.classes)
        machine.n_features_in_ = X.shape[1]
        ends = np.cumsum([part.size for part in parts.values()])
        for (name, part), numbers in zip(parts.items(), np.split(noisy, ends[:-1]), strict=True):
            setattr(machine, name, numbers.reshape(part.shape))
        self.noise = self.mechanism.describe_noise(self.sensitivity.value, rng)
        self.released = machine
        return self

    def predict(self, features: ArrayLike) -> Labels:
        """Predict (Q, d) features from the released parameters, shape (Q,): post-processing."""
        self._check_fitted()
        return np.asarray(self.released.predict(np.asarray(features, dtype=np.float64)))

    def vote(self, features: ArrayLike) -> NDArray[np.int64]:
        """Predict as votes: 1 for the second class, 0 for the first, shape (Q,)."""
        return np.asarray(self.predict(features) == self.classes[1], dtype=np.int64)

    def _check_fitted(self) -> None:
        if self.released is None:
            checks.fail("the voter", checks.Found("not fitted"), "fitted", "call fit(features, labels) first")
