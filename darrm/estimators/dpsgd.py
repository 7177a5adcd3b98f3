"""One DP-SGD model as a classifier of scikit-learn, for `PrivateModelsVotingClassifier`. Needs the extra ensemble, too.

>>> from darrm.estimators.dpsgd import PrivateSGDClassifier
"""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from darrm.ensemble import Partition, PrivateSGD, calibrate_noise, train_teachers
from darrm.ensemble.network import Build
from darrm.errors import checks
from darrm.privacy import PrivacyParams
from darrm.system.extras import Untyped


class PrivateSGDClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn ships no types
    """A network that is trained by DP-SGD with the least noise that a target allows.

    The guarantee is that of `darrm.ensemble`: for neighbors that differ in the content of one row, which is blank in
    one of them; the number of rows is public, and a person has one row.

    Parameters
    ----------
    build
        Makes the network, any ``torch.nn.Module`` without batch normalization and dropout: (batch, d) → (batch, C).
    classes
        All C classes, public.
    epsilon, delta
        What one ``fit`` satisfies.
    learning_rate, steps, sampling_rate
        As for `darrm.ensemble.PrivateSGD`; fixed without looking at private data.

    Examples
    --------
    >>> from functools import partial
    >>> import torch
    >>> X, y = np.random.default_rng(0).normal(size=(200, 2)), ["no", "yes"] * 100
    >>> model = PrivateSGDClassifier(partial(torch.nn.Linear, 2, 2), ["no", "yes"], steps=4, sampling_rate=1)
    >>> model.fit(X, y).predict(X).shape
    (200,)
    """

    def __init__(
        self,
        build: Build,
        classes: Untyped,
        *,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        learning_rate: float = 0.5,
        steps: int = 100,
        sampling_rate: float = 0.1,
    ) -> None:
        self.build = build
        self.classes = classes
        self.epsilon = epsilon
        self.delta = delta
        self.learning_rate = learning_rate
        self.steps = steps
        self.sampling_rate = sampling_rate

    def fit(self, X: Untyped, y: Untyped) -> Untyped:
        """Train the network on (n, d) numbers and (n,) labels among the classes; `ValueError` for others."""
        inputs, labels = validate_data(self, X, y, dtype=np.float32)
        self.classes_ = np.unique(np.asarray(self.classes))
        codes = np.minimum(np.searchsorted(self.classes_, labels), len(self.classes_) - 1)
        if not np.array_equal(self.classes_[codes], labels):
            checks.fail("y", np.unique(labels).tolist()[:5], f"among the classes {self.classes_.tolist()[:5]}")
        noise = _noise(PrivacyParams(self.epsilon, self.delta), self.sampling_rate, self.steps)
        recipe = PrivateSGD(self.learning_rate, self.steps, self.sampling_rate, noise)
        whole = Partition(1, np.zeros(len(inputs), dtype=np.int64))
        self.network_ = train_teachers(inputs, codes, whole, recipe, build=self.build, jobs=1, progress=False)
        return self

    def predict(self, X: Untyped) -> NDArray[Untyped]:
        """Ask the network: (Q, d) inputs → (Q,) classes."""
        check_is_fitted(self)
        inputs = validate_data(self, X, reset=False, dtype=np.float32)
        return np.asarray(self.classes_[self.network_.votes(inputs, jobs=1)[:, 0]])


@lru_cache(maxsize=16)  # the models of one ensemble ask for the same, which takes seconds
def _noise(target: PrivacyParams, sampling_rate: float, steps: int) -> float:
    return calibrate_noise(target, sampling_rate=sampling_rate, steps=steps).value
