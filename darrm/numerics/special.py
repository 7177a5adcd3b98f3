"""SciPy's special functions, loaded at the first call, because loading them takes longer than loading this package."""

from collections.abc import Callable
from functools import cache
from importlib import import_module

from darrm.numerics import Array


def _load_lazily(name: str) -> Callable[..., Array]:
    @cache
    def load() -> Callable[..., Array]:
        function: Callable[..., Array] = getattr(import_module("scipy.special"), name)
        return function

    def call_function(*arguments: object, **options: object) -> Array:
        return load()(*arguments, **options)

    return call_function


betainc, gammaln, log_ndtr, logsumexp = map(_load_lazily, ("betainc", "gammaln", "log_ndtr", "logsumexp"))
ndtr, ndtri_exp, softmax = map(_load_lazily, ("ndtr", "ndtri_exp", "softmax"))
