"""A scikit-learn classifier with a private release of its parameters, by sampled sensitivity.

The voter keeps only public facts and released values, so all predictions are post-processing of one private release.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from darrm.random_dp.guarantee import RandomDP
from darrm.random_dp.mechanisms import Mechanism
from darrm.random_dp.sensitivity_sampler import SampledSensitivity, to_finite_floats
from darrm.util import checks
from darrm.util.extras import Untyped, require
from darrm.votes.votes_file import Labels

LINEAR = ("coef_", "intercept_")


@dataclass(frozen=True)
class ParametersOf:
    """The function (features, labels) → vector of fitted parameters, the target of sensitivity sampling."""

    estimator: Untyped  # unfitted; every fit uses a copy. It must be deterministic (set random_state)
    attributes: tuple[str, ...] = LINEAR  # the fitted ones for prediction, in order

    def __call__(self, data: tuple[NDArray[np.float64], Labels]) -> NDArray[np.float64]:
        """Fit a copy of the estimator and return its parameters, shape (p,)."""
        return np.concatenate([np.ravel(part) for part in self.fit_parameters(data).values()])

    def fit_parameters(self, data: tuple[NDArray[np.float64], Labels]) -> dict[str, NDArray[np.float64]]:
        """Fit a copy of the estimator and return its parameters by name."""
        model = _copy_unfitted(self.estimator)
        model.fit(*data)
        missing = [name for name in self.attributes if not hasattr(model, name)]
        if missing:
            checks.fail("attributes", missing, "attributes of the fitted estimator", "name those that predict() reads")
        return {name: np.array(getattr(model, name), dtype=np.float64) for name in self.attributes}


def _copy_unfitted(estimator: Untyped) -> Untyped:
    """Copy an unfitted estimator; what a fitted one learned may be private."""
    has_parameters = hasattr(estimator, "get_params")
    copied = require("sklearn.base").clone(estimator) if has_parameters else copy.deepcopy(estimator)
    fitted_names = [name for name in getattr(copied, "__dict__", {}) if name.endswith("_") and not name.startswith("_")]
    if copied is estimator or fitted_names:
        description = checks.Text(f"a fitted {type(estimator).__name__}")
        checks.fail("estimator", description, "unfitted", "make a new one: what an earlier fit learned may be private")
    return copied


@dataclass
class PrivateClassifier:
    """A voter: fits an estimator, releases its parameters once, and predicts from the released parameters only.

    One fitted voter is (ε, δ, γ)-random DP for the sensitivity's records and distribution, but fitting fails on unusual
    data (one class only). The attributes' shapes must depend only on d and the number of classes: `fit` compares only
    their total size.
    """

    estimator: Untyped  # as for `ParametersOf`
    mechanism: Mechanism[NDArray[np.float64]]  # `Laplace` or `Gaussian`, for the parameter vector
    sensitivity: SampledSensitivity  # for ``ParametersOf(estimator, attributes)``, of as many records, in its norm
    classes: tuple[Untyped, Untyped] = (0, 1)  # two, public, in increasing order
    attributes: tuple[str, ...] = LINEAR
    released: Untyped = field(default=None, init=False, repr=False)
    noise: str = field(default="", init=False, repr=False)

    def __post_init__(self) -> None:
        if self.sensitivity.norm != self.mechanism.norm:
            needed = f"{self.mechanism.norm!r}, as the mechanism needs"
            checks.fail("the sensitivity's norm", self.sensitivity.norm, needed)
        try:
            is_pair = isinstance(self.classes, Sequence) and len(self.classes) == 2
            in_order = is_pair and bool(self.classes[0] < self.classes[1])
        except TypeError:  # a number and a text
            in_order = False
        if not in_order:
            checks.fail("classes", self.classes, "two classes in increasing order")

    @property
    def guarantee(self) -> RandomDP:
        """The joint guarantee of the fitted voter and all its predictions."""
        self._check_fitted()
        return self.sensitivity.guarantee(self.mechanism.privacy, self.noise)

    def fit(
        self, features: ArrayLike, labels: ArrayLike, *, rng: np.random.Generator | None = None
    ) -> PrivateClassifier:
        """Fit on (n, d) features and (n,) labels, n of the sensitivity, and keep only the released parameters.

        ``rng`` is for experiments only. `ValueError` if the voter is already fitted, or shapes do not match.
        """
        if self.released is not None:
            advice = "each fit is another release: make a new voter"
            checks.fail("fit", checks.Text("a fitted voter"), "called once", advice)
        X, y = np.asarray(features, dtype=np.float64), np.asarray(labels)
        if X.ndim != 2 or y.shape != X.shape[:1]:
            checks.fail("features and labels", (X.shape, y.shape), "of shapes (n, d) and (n,)")
        if len(y) != self.sensitivity.records:
            advice = "sample the sensitivity for this number of records"
            checks.fail("number of records", len(y), f"{self.sensitivity.records}, as sampled", advice)
        if not set(y.tolist()) <= set(self.classes):
            checks.fail("labels", checks.Text("a label outside"), f"among the classes {self.classes}")
        parameters = ParametersOf(self.estimator, self.attributes).fit_parameters((X, y))
        vector = to_finite_floats(np.concatenate([parameter.ravel() for parameter in parameters.values()]))
        if vector.shape != self.sensitivity.shape:
            checks.fail("the parameters' shape", vector.shape, f"{self.sensitivity.shape}, as sampled")
        self.sensitivity.warn_without_noise()
        noisy = self.mechanism.release(vector, self.sensitivity.value, rng=rng)
        model = _copy_unfitted(self.estimator)
        model.classes_ = np.array(self.classes)
        model.n_features_in_ = X.shape[1]
        cuts = np.cumsum([parameter.size for parameter in parameters.values()])
        for (name, parameter), numbers in zip(parameters.items(), np.split(noisy, cuts[:-1]), strict=True):
            setattr(model, name, numbers.reshape(parameter.shape))
        self.noise = self.mechanism.describe_noise(self.sensitivity.value, rng)
        self.released = model
        return self

    def predict(self, features: ArrayLike) -> Labels:
        """Predict (Q, d) features from the released parameters, shape (Q,)."""
        self._check_fitted()
        return np.asarray(self.released.predict(np.asarray(features, dtype=np.float64)))

    def vote(self, features: ArrayLike) -> NDArray[np.int64]:
        """Predict as votes: 1 for the second class, 0 for the first, shape (Q,)."""
        return np.asarray(self.predict(features) == self.classes[1], dtype=np.int64)

    def _check_fitted(self) -> None:
        if self.released is None:
            checks.fail("the voter", checks.Text("not fitted"), "fitted", "call fit(features, labels) first")
