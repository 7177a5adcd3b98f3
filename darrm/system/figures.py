"""Pictures: a figure without a screen, saved in one step."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from darrm.system.extras import require
from darrm.system.files import check_parent, replacing


@contextmanager
def saved_figure(path: Path, *, width: float = 8.0, height: float = 5.0, dpi: int = 150) -> Iterator[Any]:
    """Yield a matplotlib figure of ``width`` × ``height`` inches and save it to ``path`` (its suffix is the format).

    ``dpi`` is how many dots an inch a raster format gets.
    """
    check_parent(path)
    figure = require("matplotlib.figure").Figure(figsize=(width, height), layout="constrained")
    yield figure
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=dpi)
