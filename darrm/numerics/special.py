"""SciPy's special functions, loaded when one of them is first called: that takes longer than to load this package."""

from collections.abc import Callable
from functools import cache
from importlib import import_module

from darrm.numerics import Array


def _when_called(name: str) -> Callable[..., Array]:
    """Return a function of `scipy.special`."""
    known = cache(lambda: getattr(import_module("scipy.special"), name))

    def called(*arguments: object, **options: object) -> Array:
        value: Array = known()(*arguments, **options)
        return value

    return called


betainc = _when_called("betainc")
gammaln = _when_called("gammaln")
log_ndtr = _when_called("log_ndtr")
logsumexp = _when_called("logsumexp")
ndtr = _when_called("ndtr")
ndtri_exp = _when_called("ndtri_exp")
softmax = _when_called("softmax")
