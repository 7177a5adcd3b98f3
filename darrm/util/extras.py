"""Optional libraries: imported on use, with one clear message if they are missing."""

import importlib
from typing import Any, TypeAlias

Untyped: TypeAlias = Any  # types of libraries without type hints, such as scikit-learn
EXTRA_OF = {
    "cvxpy": "reference",
    "dp_accounting": "accounting",
    "torch": "ensemble",
    "safetensors": "ensemble",
    "joblib": "sampling",
    "matplotlib": "plot",
    "sklearn": "sklearn",
    "skops": "sklearn",
    "numba": "compiled",
    "pyarrow": "parquet",
    "distributed": "cluster",
    "cryptography": "sign",
    "psycopg": "postgres",
    "pydantic": "serve",
    "starlette": "serve",
    "uvicorn": "serve",
    "httpx": "serve",
}


def require(module: str) -> Untyped:
    """Import ``module``; `ValueError` names the extra that installs it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        extra = EXTRA_OF.get(package)
        advice = f"pip install 'darrm[{extra}]'" if extra else f"pip install {package}"
        raise ValueError(f"this needs the package {package}, which is not installed: {advice}") from error
