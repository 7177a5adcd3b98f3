"""FixMatch as a scikit-learn classifier for images. Needs the extra ensemble."""

import math
from dataclasses import KW_ONLY, dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from darrm.training import FIXMATCH, convolutional_network, student_network, train_student
from darrm.training.network import Build, choose_device
from darrm.training.student import Student
from darrm.util import checks
from darrm.util.extras import Untyped, require


@dataclass(eq=False, repr=False)
class FixMatchClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn ships no types
    """A network that learns from few labeled images, with some wrong labels, and from many unlabeled ones [SBL20].

    Parameters
    ----------
    channels
        Of the images. A row is a square image, channel by channel and row by row of pixels from 0 to 1; the side is a
        multiple of 4.
    recipe
        A `darrm.training.StudentRecipe`. None is `darrm.training.FIXMATCH`, for MNIST; use one with ``alignment=0`` for
        classes of different frequencies.
    random_state, checkpoint, verbose
        The seed; a file from which a killed training resumes, deleted at the end; 1 shows a progress bar.

    Examples
    --------
    >>> from darrm.training import StudentRecipe
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.random((40, 64)), np.array([0, 1, -1, -1] * 10)  # eight by eight pixels, -1 for no label
    >>> FixMatchClassifier(recipe=StudentRecipe(steps=2)).fit(X, y).predict(X).shape
    (40,)
    """

    semi_supervised = True  # `fit` takes all inputs, with the label -1 for none

    _: KW_ONLY
    channels: int = 1
    recipe: Untyped = None
    random_state: Untyped = None
    checkpoint: str | None = None
    verbose: int = 0

    def fit(self, X: Untyped, y: Untyped) -> Untyped:
        """Train on (n, d) images and their (n,) classes, integers, -1 for none."""
        rows, y = validate_data(self, X, y, dtype=np.float32)
        if y.dtype.kind not in "biuf" or (y % 1 != 0).any():
            checks.fail("y", checks.Text(f"labels of type {y.dtype}"), "whole numbers, -1 for no label")
        images, path = self.images(rows), None if self.checkpoint is None else Path(self.checkpoint)
        self.classes_, self.side_ = np.unique(y[y >= 0]), images.shape[-1]
        student = train_student(
            images,
            np.where(y >= 0, np.searchsorted(self.classes_, y), -1),
            images[:0],
            recipe=self.recipe or FIXMATCH,
            build=self._build,
            seed=int(check_random_state(self.random_state).randint(2**31 - 1)),
            progress=bool(self.verbose),
            checkpoint=path,
        )
        self.parameters_ = {name: value.cpu().numpy() for name, value in student.model.state_dict().items()}
        if path is not None:
            path.unlink(missing_ok=True)
        return self

    def images(self, X: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return (n, channels, side, side) images of (n, d) rows; `ValueError` for other rows."""
        checks.integer_at_least(1, channels=self.channels)
        side = math.isqrt(X.shape[1] // self.channels)
        if self.channels * side**2 != X.shape[1] or side % 4:
            allowed = f"{self.channels} × side × side pixels, the side a multiple of 4"
            checks.fail("X", checks.Text(f"rows of {X.shape[1]} numbers"), allowed, "fixmatch is for images")
        if X.min(initial=0.0) < 0.0 or X.max(initial=0.0) > 1.0:
            description = checks.Text(f"numbers from {X.min():.4g} to {X.max():.4g}")
            checks.fail("X", description, "pixels from 0 to 1", "fixmatch is for images: divide bytes by 255")
        return X.reshape(-1, self.channels, side, side)

    def predict(self, X: Untyped) -> NDArray[Untyped]:
        """Return the class of each of (n, d) images."""
        return np.asarray(self.classes_[self.predict_proba(X).argmax(axis=1)])

    def predict_proba(self, X: Untyped) -> NDArray[np.float64]:
        """Return the probability of each class for each of (n, d) images."""
        check_is_fitted(self)
        images = self.images(validate_data(self, X, reset=False, dtype=np.float32))
        device, model, torch = choose_device(), self._build(), require("torch")
        model.load_state_dict({name: torch.as_tensor(value) for name, value in self.parameters_.items()})
        return Student(model.to(device).eval(), device).scores(images)

    @property
    def _build(self) -> Build:
        network = student_network if self.side_ > 16 else convolutional_network  # small images keep all pixels
        return partial(network, self.channels, self.side_, max(2, len(self.classes_)))
