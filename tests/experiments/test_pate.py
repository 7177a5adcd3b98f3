"""The tables of PATE: numbers of a row are those of direct calls, and the page is that of its JSON."""

import math
import shutil
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from darrm.noisy_max.mechanisms import GNMax, LNMax
from darrm.pate.confident import ConfidentGNMax
from darrm.pate.gnss import printed_cost
from darrm.pate.theorem_6 import gaussian_renyi
from darrm.votes import ABSTAIN, Votes
from experiments.pages import list_differences, read_json, write_json
from experiments.pate import paper_votes
from experiments.pate.__main__ import main
from experiments.pate.accounting import account, compute_costs, compute_label_epsilon
from experiments.pate.page import fill_page
from experiments.pate.printed import figure_10, fixed_part, table_2, table_4
from experiments.pate.recorded import load_counts
from experiments.pate.settings import VoteSize, draw_pate_votes

PAGES = Path(__file__).parents[2] / "docs" / "reproduction"


def test_the_committed_numbers_are_those_of_today() -> None:
    found: dict[str, Any] = {part.__name__: part() for part in (table_2, fixed_part, table_4, figure_10)}
    assert list_differences(found, read_json(PAGES / "pate" / "printed.json"), tolerance=1e-6) == []
    for row in found["figure_10"]:
        assert min(row["variances"]) >= row["best"]["variance"] * (1.0 - 1e-4)  # of a grid of steps of a half
        fall = np.diff(row["variances"]) < 0.0
        assert fall.argmin() > 0  # it falls, then rises
        assert not fall[fall.argmin() :].any()


@pytest.mark.parametrize("gap", [5.0, 6.0, 8.0, 12.0])
def test_corollary_11_is_what_theorem_6_tends_to_and_is_printed_larger(gap: float) -> None:
    for sigma in (20.0, 40.0, 150.0):
        order = gap * sigma / 4.0  # λ = (n₁ − n₂)/4, where q ≤ exp(−(n₁ − n₂)²/4σ²) = exp(−4λ²/σ²)
        bound = float(gaussian_renyi([-4.0 * order**2 / sigma**2], sigma, [order])[0, 0])
        assert bound == pytest.approx(math.log1p(math.exp(-(3.0 * order + 1.0) / sigma**2)) / (order - 1.0), rel=0.02)
        assert bound < math.exp(-2.0 * order / sigma**2) / order


@pytest.mark.slow
def test_digits_go_the_whole_way_and_a_second_run_reads_what_was_kept(tmp_path: Path) -> None:
    arguments = ["--recompute", "--dataset", "digits", "--quick", "--quiet", "--jobs", "1", "--output", str(tmp_path)]
    folder = tmp_path / "pate"
    assert main(arguments) == 0
    first = read_json(folder / "digits.json")
    assert [row["name"] for row in first["rows"]] == ["LNMax", "GNMax, no check", "Confident-GNMax"]
    for row in (*first["rows"], *first["by_label"]):
        (accuracy,) = row["students"]
        assert 0.0 < accuracy <= 1.0
    assert first["in_one_go"]
    assert first["baseline"][0] > 0.9
    assert first["plurality_accuracy"] > first["teacher_accuracy"]
    assert {path.name for path in folder.glob("digits-*.png")} == {
        f"digits-{name}.png" for name in ("figure-1", "figure-4", "figure-5", "comparison")
    }
    assert (tmp_path / "pate.md").read_text(encoding="utf-8") == fill_page(folder)
    files = {path: path.stat().st_mtime_ns for path in (folder / "kept").iterdir()}
    assert main(arguments) == 0
    assert {path: path.stat().st_mtime_ns for path in (folder / "kept").iterdir()} == files
    second = read_json(folder / "digits.json")
    assert not second["in_one_go"]  # so the page says nothing of how long it took
    assert first == second | {name: first[name] for name in ("seconds", "teacher_seconds", "in_one_go")}


ALL = {"LNMax": LNMax, "GNMax": GNMax, "ConfidentGNMax": ConfidentGNMax}


@pytest.mark.parametrize(
    "name",
    ["digits", *(pytest.param(name, marks=pytest.mark.slow) for name in ("adult", "fashion-mnist", "mnist"))],
)
def test_what_needs_no_votes_is_what_the_page_says(name: str) -> None:
    """Every figure by label, from the numbers of queries and answers, which are public."""
    result = read_json(PAGES / "pate" / f"{name}.json")
    rows = [row for part in ("rows", "points", "searched") for row in result[part] if ";" not in row["aggregator"]]
    for row in rows:
        aggregator = eval(row["aggregator"], ALL)  # noqa: S307 (the page's own words)
        again = compute_label_epsilon(aggregator, row["queries"], row["answered"], result["delta"])
        assert row["costs"]["by_label"] == pytest.approx(again, rel=1e-9)
    for row in result["by_label"]:
        guarantee = eval(row["aggregator"], ALL).guarantee  # noqa: S307 (as above)
        assert row["epsilon"] == pytest.approx(guarantee.repeat(row["queries"]).best(result["delta"]).epsilon, rel=1e-9)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("path", sorted((PAGES / "pate").glob("*-counts.npz")), ids=lambda path: str(path.stem))
def test_what_needs_votes_is_what_the_kept_counts_say(path: Path) -> None:
    """The exact costs, and Theorem 6, of labels that are drawn again from the page's seed."""
    result = read_json(PAGES / "pate" / f"{path.stem.removesuffix('-counts')}.json")
    votes = load_counts(path)[0].votes
    assert path.stat().st_size < 1_000_000
    assert sha256(np.ascontiguousarray(votes.counts, dtype="<i8").tobytes()).hexdigest() == result["digest"]
    for row in result["rows"]:
        aggregator = eval(row["aggregator"], ALL)  # noqa: S307 (as above)
        asked = votes[: row["queries"]]
        labels = aggregator.release(asked, rng=np.random.default_rng([result["label_seed"], row["queries"]]))
        answered = labels != ABSTAIN if isinstance(aggregator, ConfidentGNMax) else None
        again = compute_costs([account(asked, aggregator, result["delta"], answered)])
        assert row["answered"] == int(np.sum(labels != ABSTAIN))
        assert {name: row["costs"][name] for name in again} == pytest.approx(again, rel=1e-9)


@pytest.mark.slow
def test_a_figure_that_the_deposited_votes_do_not_give_is_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "pate"
    folder.mkdir()
    shutil.copy(PAGES / "pate" / "digits-counts.npz", folder)
    result = read_json(PAGES / "pate" / "digits.json")
    result["rows"][-1]["ours"]["deviation"] *= 1.001
    result["figure_4"]["right"][1]["points"][0]["accuracy"] += 0.01
    write_json(folder / "digits.json", result)
    assert main(["--recount", "--quiet", "--output", str(tmp_path)]) == 1
    first, *lines = capsys.readouterr().out.splitlines()
    assert first == "digits-counts: 2 figures differ"
    assert [line.partition(":")[0] for line in lines] == [
        ".rows.2.ours.deviation",
        ".figure_4.right.1.points.0.accuracy",
    ]


@pytest.mark.slow
def test_every_figure_of_the_deposited_votes_is_counted_again() -> None:
    assert sum(path.stat().st_size for path in (PAGES / "pate").glob("*-counts.npz")) < 1_000_000
    assert main(["--recount", "--quiet", "--output", str(PAGES)]) == 0


ARCHIVE = replace(paper_votes.ARCHIVES[0], queries=60, laplace=((20, 2.0),))
COUNTS = draw_pate_votes(VoteSize(80, 250, 10, (6.0, 1.0)))


def test_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "mnist_250_teachers.npy"
    np.save(path, COUNTS.astype(np.float64))
    with pytest.raises(ValueError, match="not the file of the authors"):
        paper_votes.read_archive(tmp_path, ARCHIVE)
    digest = sha256(path.read_bytes()).hexdigest()
    assert np.array_equal(paper_votes.read_archive(tmp_path, replace(ARCHIVE, digest=digest)).counts, COUNTS)


@pytest.mark.slow
def test_columns_are_ordered_and_the_page_has_them() -> None:
    row = paper_votes.measure(Votes.from_counts(COUNTS), ARCHIVE)
    assert 0.0 < row["exact"] < row["theorem_6"] < row["epsilon"]  # fewer bounds, and a looser conversion
    assert row["exact"] < row["tested"]
    assert row["exact"] < row["data_independent"]
    (published,) = ARCHIVE.row.publications
    price = printed_cost(ARCHIVE.row.order, published.smoothness, published.noise_scale)
    assert row["sanitized"] == pytest.approx(row["epsilon"] + price)
    assert row["deviation"] == pytest.approx(row["sensitivity"] * published.noise_scale)
    (laplace,) = row["laplace"]
    assert laplace["all_orders"] <= laplace["epsilon"]
    assert f"| here | {row['answered']:,.1f} | {row['epsilon']:.3f} |" in paper_votes.fill_page([row])
