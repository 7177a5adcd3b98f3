import shutil
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

from dataclasses import replace
from itertools import product
from pathlib import Path

from darrm import PrivacyParams, Problem, Voters, certify
from darrm.majority.noise_function import NoiseFunction
from darrm.training.calibration import compute_privacy
from experiments.knowledge_transfer import fresh, settings
from experiments.knowledge_transfer.__main__ import main, recompute
from experiments.knowledge_transfer.labels import (
    compute_exact_rows,
    compute_total_rows,
    make_methods,
    measure_accuracies,
)
from experiments.knowledge_transfer.page import fill_section
from experiments.knowledge_transfer.settings import make_private_recipe
from experiments.pages import read_json, write_json
from experiments.pate.settings import TABLE_4
from experiments.teachers import TeacherVotes

DATA = Path(__file__).parents[2] / "docs" / "reproduction" / "knowledge_transfer"


def test_right_labels_of_flipped_answers_by_enumeration() -> None:
    gamma, kept = NoiseFunction(3, [0.4, 0.9]), np.exp(0.5) / (1.0 + np.exp(0.5))
    expected = []
    for agree in (0, 2, 3):
        total = 0.0
        for flips in product((False, True), repeat=3):
            votes = sum((place < agree) != flip for place, flip in enumerate(flips))  # for the truth
            chance = np.prod([1.0 - kept if flip else kept for flip in flips])
            told = gamma.half[max(votes, 3 - votes) - 2]
            total += chance * (told * (votes > 1) + (1.0 - told) / 2.0)
        expected.append(total)
    found = fresh.compute_accuracy(np.array([0, 2, 3, 3]), gamma)
    assert found == pytest.approx(np.mean([*expected, expected[-1]]), rel=1e-12)


def test_accuracies_of_known_votes() -> None:
    # eleven of eleven for the truth: gamma(11) is 1 up to the proof's margin; GNMax errs as often as its noise says
    truth = np.arange(400) % 2
    right = np.repeat(truth[None, :, None], 11, axis=2).astype(np.int8)
    votes = TeacherVotes(right, np.zeros((1, 400, 11), dtype=np.int8), truth)
    found = {
        way.name: measure_accuracies(way, votes, 100, trainings=1, draws=200, rng=np.random.default_rng(0)).mean()
        for way in make_methods(settings.SETUPS["mnist"].each, 3)
    }
    assert found[settings.PRIVATE_MAJORITY] == 1.0
    assert found[settings.OPTIMAL] > 0.98
    assert found[settings.PLAIN_MAJORITY] == pytest.approx(0.5, abs=0.02)  # they always say 0
    plain = TeacherVotes(right, right, truth)
    first = make_methods(settings.SETUPS["mnist"].each, 3)[0]
    gnmax = measure_accuracies(first, plain, 100, trainings=1, draws=200, rng=np.random.default_rng(0))
    for data, (*_, sigma) in zip(("mnist", "fashion-mnist"), TABLE_4, strict=True):  # it has the paper's noise
        assert make_methods(settings.SETUPS[data].each, 3)[0].facts["sigma"] == pytest.approx(sigma, abs=0.01)
    # Phi(11 / (21.46 * sqrt(2))) = 0.6415
    assert gnmax.mean() == pytest.approx(0.6415, abs=0.02)
    right_shares = {"private_teacher": 1.0, "private_majority": 1.0, "plain_teacher": 0.5, "plain_majority": 0.5}
    assert votes.accuracies()[0] == right_shares


@pytest.fixture(scope="module")
def published() -> dict[str, dict[str, Any]]:
    return {path.stem: read_json(path) for path in DATA.glob("*.json")}


@pytest.mark.slow
@pytest.mark.parametrize("queries", [20, 50, 100])
@pytest.mark.parametrize("data", ["mnist", "fashion-mnist"])
@pytest.mark.parametrize("m", [1, 3, 5, 7])
def test_published_numbers_that_need_no_training_are_those_of_today(
    data: str, m: int, queries: int, published: dict[str, dict[str, Any]]
) -> None:
    kept, setup = published[data], replace(settings.SETUPS[data], queries=(queries,))
    recipe = make_private_recipe(setup)
    spent = compute_privacy(recipe, setup.each.delta)
    assert spent.epsilon <= setup.each.epsilon
    facts = {way.name: way.facts for way in make_methods(setup.each, m)}
    labels = [row | {"facts": facts[row["aggregator"]]} for row in kept["labels"] if row["m"] == m]
    today = kept | {
        "allowances": [m],
        "each_spent": {"epsilon": spent.epsilon, "delta": spent.delta},
        "private_training": recipe.to_dict(),
        "plain_training": setup.plain.to_dict(),
        "labels": labels,
        "totals": compute_total_rows(data, setup, (m,)),
    }
    totals = [row for row in kept["totals"] if (row["m"], row["queries"]) == (m, queries)]
    then = kept | {"allowances": [m], "totals": totals}
    assert fill_section(today) == fill_section(then)


def test_what_the_page_says_is_so(published: dict[str, dict[str, Any]]) -> None:
    assert set(published) == {"mnist", "fashion-mnist", "mnist-rate-0.03"}
    found = {
        (data, row["m"], row["queries"], row["aggregator"]): row
        for data in ("mnist", "fashion-mnist")
        for row in published[data]["labels"]
    }

    def lead(data: str, m: int) -> float:
        """gamma_opt before gamma_Sub, in standard errors."""
        best, sub = (found[data, m, 100, name]["all_draws"] for name in (settings.OPTIMAL, settings.SUBSAMPLING))
        return float((best["mean"] - sub["mean"]) / (best["standard_error"] + sub["standard_error"]))

    assert min(lead("mnist", 3), lead("mnist", 5)) > 4
    assert max(abs(lead(data, 1)) for data in ("mnist", "fashion-mnist")) < 2
    assert found["fashion-mnist", 3, 100, settings.SUBSAMPLING]["all_draws"]["mean"] > 0.9
    assert min(found["mnist", 7, 100, settings.OPTIMAL]["facts"]["gamma"]) > 1 - 1e-5
    for (_, _, _, name), row in found.items():
        if name == settings.GNMAX:
            ours, paper = row["all_draws"], row["printed"]
            assert abs(ours["mean"] - paper["mean"]) <= paper["std"] + 0.01  # print rounds both to two digits
    for data in ("mnist", "fashion-mnist"):
        for row in published[data]["totals"]:
            assert row["best"][settings.OPTIMAL]["with_private_models"]["epsilon"] <= published[data]["each"]["epsilon"]
            assert row["best"][settings.GNMAX]["epsilon"] < row["best"][settings.OPTIMAL]["epsilon"]
        best, setup = published[data]["selection"]["best"], settings.SETUPS[data]
        assert best["private"]["learning_rate"] == setup.private_rate
        assert best["plain"].items() >= {"learning_rate": setup.plain.learning_rate}.items()
        assert best["plain"]["batch_size"] == setup.plain.batch_size
        assert best["student"].items() >= {"radius": settings.STUDENT.radius, "weight": settings.STUDENT.weight}.items()
    scores = {one["learning_rate"]: one for one in published["mnist"]["selection"]["tried"]["private"]}
    assert scores[0.03]["accuracy"] > scores[0.05]["accuracy"]
    assert scores[0.03]["majority_accuracy"] < scores[0.05]["majority_accuracy"]
    majorities = [one["private_majority"] for one in published["mnist-rate-0.03"]["trainings"]]
    assert sum(majority < 0.7 for majority in majorities) >= 2
    assert np.mean(majorities) < min(one["private_majority"] for one in published["mnist"]["trainings"])


def test_the_best_constant_beside_the_papers_noise_functions(published: dict[str, dict[str, Any]]) -> None:
    for data in ("mnist", "fashion-mnist"):
        exact = {(row["m"], row["aggregator"]): row for row in published[data]["exact"]}
        for (m, name), row in exact.items():
            ours = (settings.OPTIMAL, settings.FLAT, settings.SUBSAMPLING)
            opt, flat, sub = (exact[m, each]["mean"] for each in ours)
            assert opt >= max(flat, sub) - 1e-12
            if name != settings.FLAT:  # draws of queries estimate the exact shares
                drawn = [one for one in published[data]["labels"] if (one["m"], one["aggregator"]) == (m, name)]
                assert all(abs(one["all_draws"]["mean"] - row["mean"]) <= 0.01 for one in drawn)
        assert exact[1, settings.FLAT]["mean"] < exact[1, settings.SUBSAMPLING]["mean"] - 0.05
        for m in (5, 7):
            gain = exact[m, settings.OPTIMAL]["mean"] - exact[m, settings.FLAT]["mean"]
            assert gain < 2.0 * exact[m, settings.OPTIMAL]["standard_error"]
    mnist = {(row["m"], row["aggregator"]): row["mean"] for row in published["mnist"]["exact"]}
    assert all(mnist[m, settings.FLAT] > mnist[m, settings.SUBSAMPLING] for m in (3, 5, 7))


@pytest.mark.parametrize("path", sorted(DATA.glob("*-votes.npz")), ids=lambda path: str(path.stem))
def test_exact_shares_and_teachers_of_the_page_are_those_of_the_deposited_votes(path: Path) -> None:
    assert path.stat().st_size < 100_000
    stored = read_json(DATA / f"{path.stem.removesuffix('-votes')}.json")
    assert recompute(path, stored, ())["trainings"] == stored["trainings"]
    votes, setup = TeacherVotes.load(path), settings.SETUPS[stored["dataset"]]
    assert compute_exact_rows(setup, (3,), votes) == [row for row in stored["exact"] if row["m"] == 3]
    right = np.count_nonzero(votes.private == votes.truth[:, None], axis=2)
    problem = Problem(Voters(11, setup.each), PrivacyParams(3 * setup.each.exact_epsilon, 3 * setup.each.exact_delta))
    largest = float(certify(problem, NoiseFunction(11, np.ones(6))).gamma.half[0])
    share = np.mean(np.where(right > 5, 1 + largest, 1 - largest)) / 2
    flat = next(row for row in stored["exact"] if row["m"] == 3 and row["aggregator"] == settings.FLAT)
    assert flat["mean"] == pytest.approx(share, abs=1e-11)


@pytest.mark.slow
def test_every_label_is_released_again_from_the_deposited_votes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--recount", "--output", str(DATA.parent)]) == 0
    folder = tmp_path / "knowledge_transfer"
    folder.mkdir()
    shutil.copy(DATA / "mnist-votes.npz", folder)
    stored = read_json(DATA / "mnist.json")
    stored["labels"][4]["all_draws"]["mean"] += 1e-4
    write_json(folder / "mnist.json", stored)
    capsys.readouterr()
    assert main(["--recount", "--output", str(tmp_path)]) == 1
    assert capsys.readouterr().out.splitlines()[0] == "mnist-votes: 1 figures differ"
