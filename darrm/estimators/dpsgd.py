"""One DP-SGD model as a classifier of scikit-learn, for `PrivateModelsVotingClassifier`. Needs the extra ensemble, too.

>>> from darrm.estimators.dpsgd import PrivateSGDClassifier
"""

from dataclasses import KW_ONLY, dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from darrm.estimators.ensemble import check_one_type, encode_labels, public_classes
from darrm.privacy import PrivacyParams
from darrm.training import Partition, PrivateSGD, calibrate_noise, train_teachers
from darrm.training.network import Build, build_network, check_fits
from darrm.util import checks
from darrm.util.extras import Untyped


@dataclass(eq=False, repr=False)
class PrivateSGDClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn ships no types
    """A network that is trained by DP-SGD with the least noise for a target.

    One ``fit`` is (epsilon, delta)-private: neighbors differ in the content of one row, blank in one of them. The
    number of rows is public, and a person has one row. ``build`` makes the network: (batch, d) → (batch, C).
    ``classes`` are all C classes, public, or their number. The settings of `darrm.training.PrivateSGD` are fixed
    without private data.

    >>> from functools import partial
    >>> import torch
    >>> X, y = np.random.default_rng(0).normal(size=(200, 2)), ["no", "yes"] * 100
    >>> model = PrivateSGDClassifier(partial(torch.nn.Linear, 2, 2), ["no", "yes"], steps=4, sampling_rate=1)
    >>> model.fit(X, y).predict(X).shape
    (200,)
    """

    build: Build
    classes: Untyped
    _: KW_ONLY
    epsilon: float = 1.0
    delta: float = 1e-5
    learning_rate: float = 0.5
    steps: int = 100
    sampling_rate: float = 0.1

    def fit(self, X: Untyped, y: Untyped) -> Untyped:
        """Train the network on (n, d) numbers and (n,) labels among the classes; `ValueError` for others."""
        check_one_type("y", y)
        inputs, labels = validate_data(self, X, y, dtype=np.float32)
        self.classes_ = public_classes(self.classes)
        codes = encode_labels(labels, self.classes_)
        if (outputs := check_fits(build_network(self.build), inputs, codes)) != len(self.classes_):
            description, allowed = checks.Text(f"{outputs} outputs"), f"a network with {len(self.classes_)} outputs"
            checks.fail("build", description, allowed, "one for each of the classes")
        noise = _calibrate(PrivacyParams(self.epsilon, self.delta), self.sampling_rate, self.steps)
        recipe = PrivateSGD(self.learning_rate, self.steps, self.sampling_rate, noise)
        partition = Partition(1, np.zeros(len(inputs), dtype=np.int64))
        self.network_ = train_teachers(inputs, codes, partition, recipe, build=self.build, jobs=1, progress=False)
        return self

    def predict(self, X: Untyped) -> NDArray[Untyped]:
        """Ask the network: (Q, d) inputs → (Q,) classes."""
        check_is_fitted(self)
        inputs = validate_data(self, X, reset=False, dtype=np.float32)
        return np.asarray(self.classes_[self.network_.votes(inputs, jobs=1)[:, 0]])


@lru_cache(maxsize=16)  # models of an ensemble need the same noise, which takes seconds
def _calibrate(target: PrivacyParams, sampling_rate: float, steps: int) -> float:
    return calibrate_noise(target, sampling_rate=sampling_rate, steps=steps).value
