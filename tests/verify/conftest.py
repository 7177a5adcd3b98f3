"""Build each honest folder once, and copy it for tests that change it."""

from collections.abc import Callable
from pathlib import Path
from shutil import copytree

import pytest

from tests.verify.folders import FOLDERS, REQUIRED_LIBRARIES


@pytest.fixture(scope="session")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return the honest folder of a name, which no test may change."""
    root = tmp_path_factory.mktemp("honest")

    def make_folder(name: str) -> Path:
        if name in REQUIRED_LIBRARIES:
            pytest.importorskip(REQUIRED_LIBRARIES[name])
        folder = root / name
        if not folder.exists():
            folder.mkdir()
            FOLDERS[name](folder)
        return folder

    return make_folder


@pytest.fixture
def copied(honest: Callable[[str], Path], tmp_path: Path) -> Callable[[str], Path]:
    """Return a copy of an honest folder."""
    return lambda name: Path(copytree(honest(name), tmp_path / name))
