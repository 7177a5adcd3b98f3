"""SciPy's special functions, loaded when one of them is first called: that takes longer than to load this package."""

from collections.abc import Callable
from functools import cache
from importlib import import_module

from darrm.numerics import Array


def _when_called(name: str) -> Callable[..., Array]:
    @cache
    def load() -> Callable[..., Array]:
        function: Callable[..., Array] = getattr(import_module("scipy.special"), name)
        return function

    def called(*arguments: object, **options: object) -> Array:
        return load()(*arguments, **options)

    return called


betainc, gammaln, log_ndtr, logsumexp = map(_when_called, ("betainc", "gammaln", "log_ndtr", "logsumexp"))
ndtr, ndtri_exp, softmax = map(_when_called, ("ndtr", "ndtri_exp", "softmax"))
