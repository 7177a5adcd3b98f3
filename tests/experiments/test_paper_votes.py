"""The analysis of the authors' votes, on other votes: theirs are not part of the repository."""

import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from darrm.pate.gnss import printed_cost
from darrm.votes import Votes
from experiments.pate import paper_votes
from experiments.pate.settings import VoteSize, pate_like_votes

ARCHIVE = replace(paper_votes.ARCHIVES[0], queries=60, laplace=((20, 2.0),))
COUNTS = pate_like_votes(VoteSize(80, 250, 10, (6.0, 1.0)))


def test_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "mnist_250_teachers.npy"
    np.save(path, COUNTS.astype(np.float64))
    with pytest.raises(ValueError, match="not the file of the authors"):
        paper_votes.read(tmp_path, ARCHIVE)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    assert np.array_equal(paper_votes.read(tmp_path, replace(ARCHIVE, digest=digest)).counts, COUNTS)


@pytest.mark.slow
def test_columns_are_ordered_and_the_page_has_them() -> None:
    row = paper_votes.measure(Votes.of_counts(COUNTS), ARCHIVE)
    assert 0.0 < row["exact"] < row["theorem_6"] < row["epsilon"]  # fewer bounds, and a looser conversion
    assert row["exact"] < row["tested"]
    assert row["exact"] < row["data_independent"]
    (published,) = ARCHIVE.row.publications
    price = printed_cost(ARCHIVE.row.order, published.smoothness, published.noise_scale)
    assert row["sanitized"] == pytest.approx(row["epsilon"] + price)
    assert row["deviation"] == pytest.approx(row["sensitivity"] * published.noise_scale)
    (laplace,) = row["laplace"]
    assert laplace["all_orders"] <= laplace["epsilon"]
    assert f"| here | {row['answered']:,.1f} | {row['epsilon']:.3f} |" in paper_votes.page([row])
