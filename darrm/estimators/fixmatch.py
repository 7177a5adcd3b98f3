"""FixMatch as a classifier of scikit-learn, for images: the student that wins on MNIST. Needs the extra ensemble."""

import math
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from darrm.ensemble import FIXMATCH, convolutional_network, student_network, train_student
from darrm.ensemble.network import Build, choose_device
from darrm.ensemble.student import Student
from darrm.errors import checks
from darrm.system.extras import Untyped, require


class FixMatchClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn ships no types
    """A network that learns from few labeled images, some of them wrongly, and from many without a label [SBL20].

    Parameters
    ----------
    channels
        Of the images. A row is one of them, channel by channel and row by row of pixels from 0 to 1; they are as wide
        as high, a multiple of 4.
    recipe
        A `darrm.ensemble.StudentRecipe`. None is that of MNIST, `darrm.ensemble.FIXMATCH`, minutes on a CPU; for
        classes that are not equally frequent take one with ``alignment=0``.
    random_state, checkpoint, verbose
        The seed; a file that a training which was killed goes on from, deleted at the end; 1 shows a bar.

    Examples
    --------
    >>> from darrm.ensemble import StudentRecipe
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.random((40, 64)), np.array([0, 1, -1, -1] * 10)  # eight by eight pixels, -1 for no label
    >>> FixMatchClassifier(recipe=StudentRecipe(steps=2)).fit(X, y).predict(X).shape
    (40,)
    """

    semi_supervised = True  # it takes all inputs, with the label -1 where there is none

    def __init__(
        self, *, channels: int = 1, recipe: Untyped = None, random_state: Untyped = None, checkpoint: str | None = None,
        verbose: int = 0,
    ) -> None:  # fmt: skip
        self.channels = channels
        self.recipe = recipe
        self.random_state = random_state
        self.checkpoint = checkpoint
        self.verbose = verbose

    def fit(self, X: Untyped, y: Untyped) -> Untyped:
        """Train on (n, d) images and their (n,) classes, whole numbers, -1 where there is none."""
        rows, y = validate_data(self, X, y, dtype=np.float32)
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
        """Return (n, channels, side, side) images of (n, d) rows; `ValueError` for what are none."""
        checks.integer_at_least(1, channels=self.channels)
        side = math.isqrt(X.shape[1] // self.channels)
        if self.channels * side**2 != X.shape[1] or side % 4:
            known = f"{self.channels} × side × side pixels, the side a multiple of 4"
            checks.fail("X", checks.Found(f"rows of {X.shape[1]} numbers"), known, "fixmatch is for images")
        if X.min(initial=0.0) < 0.0 or X.max(initial=0.0) > 1.0:
            found = checks.Found(f"numbers from {X.min():.4g} to {X.max():.4g}")
            checks.fail("X", found, "pixels from 0 to 1", "fixmatch is for images: divide bytes by 255")
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
