"""Optional libraries: imported where they are used, with one clear line where they are missing."""

import importlib
from typing import Any, TypeAlias

Untyped: TypeAlias = Any  # what belongs to a library that ships no types, such as scikit-learn's arrays and estimators
EXTRA_OF = {
    "cvxpy": "reference",
    "dp_accounting": "accounting",
    "torch": "ensemble",
    "safetensors": "ensemble",
    "joblib": "sampling",
    "matplotlib": "plot",
    "sklearn": "sklearn",
    "skops": "sklearn",
    "shtab": "completion",
    "numba": "compiled",
    "pyarrow": "parquet",
    "distributed": "cluster",
    "cryptography": "sign",
    "psycopg": "postgres",
    "starlette": "serve",
    "uvicorn": "serve",
    "httpx": "serve",
}


def require(module: str) -> Untyped:
    """Import ``module``, or raise `ValueError` that says which extra brings it.

    >>> require("math").gcd(4, 6)
    2
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        extra = EXTRA_OF.get(package)
        advice = f"pip install 'darrm[{extra}]'" if extra else f"pip install {package}"
        raise ValueError(f"this needs the package {package}, which is not installed: {advice}") from error
