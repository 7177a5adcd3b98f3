"""Knowledge transfer: accuracies against enumeration, and the published numbers against the stored votes."""

import shutil
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

from darrm.majority.noise_function import NoiseFunction
from darrm.problem import Problem, Voters
from darrm.table.table import certify
from darrm.training.calibration import compute_privacy
from experiments.knowledge_transfer import fresh, settings
from experiments.knowledge_transfer.__main__ import main, recompute
from experiments.knowledge_transfer.labels import (
    compute_exact_rows,
    compute_query_cost,
    compute_total_rows,
    make_methods,
    measure_accuracies,
)
from experiments.knowledge_transfer.page import fill_section
from experiments.knowledge_transfer.settings import FLAT, GNMAX, OPTIMAL, SUBSAMPLING, make_private_recipe
from experiments.pages import read_json, write_json
from experiments.pate.settings import TABLE_4
from experiments.teachers import TeacherVotes

DATA = Path(__file__).parents[2] / "docs" / "reproduction" / "knowledge_transfer"
NAMES = ("mnist", "fashion-mnist")


def test_accuracy_with_fresh_randomness_is_that_of_an_enumeration() -> None:
    gamma, keep = NoiseFunction(3, [0.4, 0.9]), np.exp(0.5) / (1.0 + np.exp(0.5))
    expected = []
    for right_voters in (0, 2, 3):
        accuracy = 0.0
        for flips in product((False, True), repeat=3):
            votes = sum((place < right_voters) != flip for place, flip in enumerate(flips))  # for the true class
            chance = np.prod([1.0 - keep if flip else keep for flip in flips])
            share = gamma.half[max(votes, 3 - votes) - 2]
            accuracy += chance * (share * (votes > 1) + (1.0 - share) / 2.0)
        expected.append(accuracy)
    result = fresh.compute_accuracy(np.array([0, 2, 3, 3]), gamma)
    assert result == pytest.approx(np.mean([*expected, expected[-1]]), rel=1e-12)


def test_gnmax_errs_as_often_as_its_noise_says() -> None:
    """On unanimous votes of 11 teachers: Φ(11/(21.46·√2)) = 0.6415; the majority never errs."""
    truth = np.arange(400) % 2
    right = np.repeat(truth[None, :, None], 11, axis=2).astype(np.int8)
    votes, methods = TeacherVotes(right, right, truth), make_methods(settings.SETUPS["mnist"].each, 3)
    accuracies = {
        method.name: measure_accuracies(method, votes, 100, trainings=1, draws=200, rng=np.random.default_rng(0)).mean()
        for method in methods
    }
    assert accuracies[GNMAX] == pytest.approx(0.6415, abs=0.02)
    assert accuracies[settings.PRIVATE_MAJORITY] == 1.0


@pytest.mark.parametrize(("name", "row"), [*zip(NAMES, TABLE_4, strict=True)])
def test_gnmax_has_the_noise_of_the_paper(name: str, row: tuple[Any, ...]) -> None:
    gnmax = make_methods(settings.SETUPS[name].each, 3)[0]
    assert gnmax.facts["sigma"] == pytest.approx(row[-1], abs=0.01)


@pytest.fixture(scope="module")
def published() -> dict[str, dict[str, Any]]:
    return {path.stem: read_json(path) for path in DATA.glob("*.json")}


@pytest.mark.slow
@pytest.mark.parametrize("queries", [20, 50, 100])
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("m", [1, 3, 5, 7])
def test_numbers_without_training_are_computed_again(
    name: str, m: int, queries: int, published: dict[str, dict[str, Any]]
) -> None:
    stored, setup = published[name], replace(settings.SETUPS[name], queries=(queries,))
    recipe = make_private_recipe(setup)
    spent = compute_privacy(recipe, setup.each.delta)
    assert spent.epsilon <= setup.each.epsilon
    facts = {method.name: method.facts for method in make_methods(setup.each, m)}
    recomputed = {
        "allowances": [m],
        "each_spent": {"epsilon": spent.epsilon, "delta": spent.delta},
        "private_training": recipe.to_dict(),
        "plain_training": setup.plain.to_dict(),
        "labels": [row | {"facts": facts[row["aggregator"]]} for row in stored["labels"] if row["m"] == m],
        "totals": compute_total_rows(name, setup, (m,)),
    }
    totals = [row for row in stored["totals"] if (row["m"], row["queries"]) == (m, queries)]
    expected = stored | {"allowances": [m], "totals": totals}
    assert fill_section(stored | recomputed) == fill_section(expected)


def test_the_prose_of_the_page_is_true_of_its_numbers(published: dict[str, dict[str, Any]]) -> None:
    assert set(published) == {*NAMES, "mnist-rate-0.03"}
    draws = {
        (name, row["m"], row["aggregator"]): row["all_draws"]
        for name in NAMES
        for row in published[name]["labels"]
        if row["queries"] == 100
    }

    def find_lead(name: str, m: int) -> float:
        """Return the lead of gamma_opt over gamma_Sub in standard errors."""
        optimal, subsampling = draws[name, m, OPTIMAL], draws[name, m, SUBSAMPLING]
        errors = optimal["standard_error"] + subsampling["standard_error"]
        return float(optimal["mean"] - subsampling["mean"]) / float(errors)

    assert min(find_lead("mnist", 3), find_lead("mnist", 5)) > 4
    assert max(abs(find_lead(name, 1)) for name in NAMES) < 2
    assert draws["fashion-mnist", 3, SUBSAMPLING]["mean"] > 0.9
    scores = {score["learning_rate"]: score for score in published["mnist"]["selection"]["tried"]["private"]}
    assert scores[0.03]["accuracy"] > scores[0.05]["accuracy"]
    assert scores[0.03]["majority_accuracy"] < scores[0.05]["majority_accuracy"]
    majorities = [training["private_majority"] for training in published["mnist-rate-0.03"]["trainings"]]
    assert np.mean(majorities) < min(training["private_majority"] for training in published["mnist"]["trainings"])


@pytest.mark.parametrize("name", NAMES)
def test_published_numbers_agree_with_each_other_and_the_paper(name: str, published: dict[str, dict[str, Any]]) -> None:
    stored, setup = published[name], settings.SETUPS[name]
    exact = {(row["m"], row["aggregator"]): row["mean"] for row in stored["exact"]}
    for row in stored["labels"]:
        mean = row["all_draws"]["mean"]
        if row["aggregator"] == GNMAX:
            assert abs(mean - row["printed"]["mean"]) <= row["printed"]["std"] + 0.01  # both rounded to two digits
        if row["aggregator"] in (OPTIMAL, SUBSAMPLING):  # draws of queries estimate the exact accuracy
            assert abs(mean - exact[row["m"], row["aggregator"]]) <= 0.01
    for m in stored["allowances"]:
        assert exact[m, OPTIMAL] >= max(exact[m, FLAT], exact[m, SUBSAMPLING]) - 1e-12
    for row in stored["totals"]:
        assert row["best"][OPTIMAL]["with_private_models"]["epsilon"] <= stored["each"]["epsilon"]
        assert row["best"][GNMAX]["epsilon"] < row["best"][OPTIMAL]["epsilon"]
    best = stored["selection"]["best"]
    assert best["private"]["learning_rate"] == setup.private_rate
    assert best["plain"]["learning_rate"] == setup.plain.learning_rate
    assert best["student"]["radius"] == settings.STUDENT.radius


@pytest.mark.parametrize("path", sorted(DATA.glob("*-votes.npz")), ids=lambda path: str(path.stem))
def test_accuracies_are_those_of_the_stored_votes(path: Path) -> None:
    assert path.stat().st_size < 100_000
    stored = read_json(DATA / f"{path.stem.removesuffix('-votes')}.json")
    assert recompute(path, stored, ())["trainings"] == stored["trainings"]
    votes, setup = TeacherVotes.load(path), settings.SETUPS[stored["dataset"]]
    exact = {row["aggregator"]: row for row in stored["exact"] if row["m"] == 3}
    assert compute_exact_rows(setup, (3,), votes) == list(exact.values())
    right = np.count_nonzero(votes.private == votes.truth[:, None], axis=2)
    problem = Problem(Voters(11, setup.each), compute_query_cost(setup.each, 3))
    largest = certify(problem, NoiseFunction(11, np.ones(6))).gamma.half[0]
    accuracy = np.mean(np.where(right > 5, 1 + largest, 1 - largest)) / 2
    assert exact[FLAT]["mean"] == pytest.approx(accuracy, abs=1e-11)


@pytest.mark.slow
def test_every_label_is_released_again_from_the_stored_votes(
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
