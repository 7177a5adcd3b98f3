"""What the explorer computes off its tables, run by node: its optima, scales, compositions and laws are Python's."""

import itertools
import json
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import numpy as np
import pytest

from darrm import PrivacyParams, Table, Voters, Workload, certify, optimize_table, priors
from darrm.loss.composition import compose_optimal
from darrm.majority import baselines
from darrm.majority.noise_function import NoiseFunction
from darrm.noisy_max.noisy_law import winning_probabilities
from darrm.numerics.integer_noise import DiscreteGaussian, DiscreteLaplace
from darrm.optimize import SolveOptions
from darrm.plan.__main__ import plan as plan_command
from darrm.subsampling import Subsampling
from experiments.explorer_data import bundle
from tests.experiments.test_explorer import BROWSERS, PAGE, SEARCHED, private, problem_of
from tests.planned import calibrated

ROOT = Path(__file__).parents[2]
SCRIPTS = [ROOT / "docs" / "explorer" / f"{name}.js" for name in ("data", "numbers", "many", "optimum")]
NODE = shutil.which("node")
pytestmark = pytest.mark.skipif(NODE is None, reason="no node here")

# the page's scripts share one scope; a program says what it hands out of it
PROGRAM = """
const sources = process.argv[1].split("\\n").map((path) => require("fs").readFileSync(path, "utf8"));
const scope = sources.join("\\n").replaceAll('"use strict";', "");
const page = new Function(`${scope}; return (asked, solver) => { BODY };`)();
const answers = async () => {
  const solver = process.argv[2] ? await require(process.argv[2])() : null;
  const found = [];
  for (const asked of JSON.parse(process.argv[3])) found.push(await page(asked, solver));
  console.log(JSON.stringify(found));
};
answers();
"""
PROBLEM = "const setting = settingOf(asked); const problem = problemOf(setting);"


def ran(body: str, asked: list[Any], solver: Path | None = None) -> list[Any]:
    assert NODE is not None
    program = PROGRAM.replace("BODY", body.replace("`", "\\`"))
    arguments = ["\n".join(map(str, SCRIPTS)), str(solver or ""), json.dumps(asked)]
    done = subprocess.run([NODE, "-e", program, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return list(json.loads(done.stdout))


SETTINGS = (
    private(11, "3", "0.1", "1e-5"),
    private(12, "2.5", "0.1", "1e-5", overlap="5"),
    private(11, "3", "0.1", "0", shape="monotone", prior="common"),
    private(35, "5", "0.2", "1e-3", prior="uniform:0.7,1"),
    private(7, "2", "0.5", "0.05"),
    private(61, "7", "0.1", "1e-5", overlap="20"),
    private(100, "9.5", "0.07", "1e-5"),
    private(101, "10", "0.07", "0"),
    private(101, "10", "0.07", "1e-3"),
    private(101, "10", "0.07", "1e-5", shape="monotone", prior="common"),
    {"voters": "plain", "K": "51", "epsilon": "1", "delta": "1e-5", "overlap": "3", "prior": "common"},
)


@pytest.fixture(scope="module")
def solver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """HiGHS as the site bundles it; fetched where `make docs` has not done so."""
    there = ROOT / "build" / "node_modules" / "highs"
    npm = shutil.which("npm")
    if there.is_dir() or npm is None:
        return there if there.is_dir() else pytest.skip("no npm here")
    folder = tmp_path_factory.mktemp("npm")
    for name in ("package.json", "package-lock.json"):
        shutil.copy(ROOT / "docs" / name, folder)
    done = subprocess.run([npm, "ci", "--prefix", str(folder)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip("npm cannot fetch the solver here")
    return folder / "node_modules" / "highs"


@pytest.mark.slow
def test_the_optimum_of_the_browser_is_that_of_python(solver: Path) -> None:
    body = f"{PROBLEM} return bestGamma(solver, problem, priorWeights(priorOf(setting.prior), problem.K));"
    for setting, found in zip(SETTINGS, ran(body, list(SETTINGS), solver), strict=True):
        prior = priors.parse(setting.get("prior", "uniform:0.5,1"))
        shape = setting.get("shape", "free")
        table = optimize_table(problem_of(setting), prior=prior, shape=shape, options=SolveOptions(gap=1e-9))
        assert isinstance(table, Table)
        error = table.gamma.expected_error(prior)
        assert found["error"] == pytest.approx(error, abs=1e-9, rel=1e-6), setting
        # what the browser found is private, to rounding, as Python proves
        mine = NoiseFunction(table.problem.voters.K, np.array(found["gamma"]))
        assert certify(table.problem, mine).certificate.scale > 1 - 1e-9, setting


@pytest.mark.slow
def test_the_page_of_the_site_solves(solver: Path, tmp_path: Path) -> None:
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        pytest.skip("no Chromium here")
    bundle(PAGE, tmp_path / "explorer", solver)
    flags = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}"]
    address = f"{(tmp_path / 'explorer' / 'index.html').as_uri()}#{urlencode(SETTINGS[1])}"
    command = [browser, *flags, "--virtual-time-budget=60000", "--dump-dom", address]
    for _ in range(3):  # on a busy machine virtual time is over before the solver is
        shown = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
        if "solved here, in your browser" in shown:
            break
    assert "solved here, in your browser" in shown
    assert "solver failed" not in shown


def test_rows_cost_what_python_proves() -> None:
    """A constant and a sample are scaled as `certify` scales them: the separation finds the worst row."""
    body = f"""{PROBLEM} const scales = [levelsOf(problem.K).map(() => 1), sampled(problem.K, drawsOf(problem, 2))];
        return scales.map((gamma) => scaleOf(problem, gamma));"""
    settings = [setting for setting in SETTINGS if int(setting["K"]) < 40 and "." not in setting["m"]]
    for setting, (constant, sample) in zip(settings, ran(body, settings), strict=True):
        problem = problem_of(setting)
        ones = NoiseFunction(problem.voters.K, np.ones(problem.voters.num_upper_levels))
        assert constant == pytest.approx(certify(problem, ones).certificate.scale, abs=1e-9), setting
        double = certify(problem, baselines.double_subsampling(problem)).certificate.scale
        assert sample == pytest.approx(double, abs=1e-9), setting


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("delta", ["0", "0.02"])
@pytest.mark.parametrize("gamma", [(1.0, 0.1, 0.9, 0.2, 1.0), (1.0, 0.5, 1.0, 1.0, 0.0)], ids=["zigzag", "falling"])
def test_a_gamma_that_falls_costs_what_python_says(delta: str, gamma: tuple[float, ...]) -> None:
    setting = private(9, "1", "0.1", delta, overlap="3")
    problem = problem_of(setting)
    [worst] = ran(f"{PROBLEM} return separate(geometryOf(problem), {list(gamma)}, true).worst;", [setting])
    scale = certify(problem, NoiseFunction(9, np.array(gamma))).certificate.scale
    assert problem.budget / worst == pytest.approx(scale, abs=1e-9)


def test_many_answers_cost_what_optimal_composition_says() -> None:
    cases = [(0.1, 0.0, 20, 1e-3), (0.05, 1e-7, 500, 1e-4), (1.0, 1e-4, 3, 0.01)]
    totals = [compose_optimal(PrivacyParams(e, d), k, delta).epsilon for e, d, k, delta in cases]
    asked = [[e, d, k, total] for (e, d, k, _), total in zip(cases, totals, strict=True)]
    found = ran("return composedDelta(...asked);", asked)
    np.testing.assert_allclose(found, [case[3] for case in cases], rtol=1e-6)


def test_one_answer_of_many_or_to_rarely_drawn_people_fits_and_a_larger_one_does_not() -> None:
    settings = [
        private(11, "3", "0.1", "1e-6", queries="20", total="2", total_delta="1e-3"),
        {"voters": "plain", "K": "11", "epsilon": "2", "delta": "1e-4", "queries": "50", "sampled": "0.1"},
        {"voters": "plain", "K": "11", "epsilon": "0.5", "delta": "1e-6", "sampled": "0.05"},
    ]
    of_private, of_plain, of_rarely_drawn = ran(f"{PROBLEM} return problem;", settings)
    m, target = of_private["m"], of_private["target"]
    assert target["epsilon"] == pytest.approx(0.1 * m)
    spent = compose_optimal(PrivacyParams(target["epsilon"], target["delta"]), 20, 1e-3).epsilon
    assert 2 * (1 - 1e-6) < spent < 2 * (1 + 1e-9)
    e, d = of_plain["target"].values()
    charged = PrivacyParams(float(np.log1p(0.1 * np.expm1(e))), 0.1 * d)
    assert compose_optimal(charged, 50, 1e-4).epsilon == pytest.approx(2, rel=1e-6)
    certain = Subsampling.of("0.05").conditional_on_inclusion(PrivacyParams("0.5", "1e-6"))
    assert list(of_rarely_drawn["target"].values()) == pytest.approx([certain.epsilon, certain.delta], rel=1e-9)


@cache
def permute_and_flip(counts: tuple[int, ...], rate: float) -> float:
    """Pr[a class with the most votes] by going through all orders."""
    heads = [np.exp(rate * (count - max(counts))) for count in counts]
    total, orders = 0.0, list(itertools.permutations(range(len(counts))))
    for order in orders:
        left = 1.0
        for place in order:
            total += left * heads[place] * (counts[place] == max(counts))
            left *= 1.0 - heads[place]
    return total / len(orders)


def test_laws_of_more_classes() -> None:
    setting = {"voters": "plain", "K": "60", "epsilon": "3", "delta": "1e-5", "classes": "4", "queries": "10"}
    histograms = [(30, 20, 10, 0), (20, 20, 20, 0), (40, 10, 5, 5), (16, 15, 15, 14)]
    body = f"""{PROBLEM} const laws = lawsOfClasses(problem); const gaps = {json.dumps(histograms)}.map(gapsOf);
        const right = (key) => gaps.map(laws[key].right);
        return {{ pure: pureOf(problem), sigma: gnmax(problem).sigma, target: problem.target,
                  constant: right("constant"), gnmax: right("gnmax"), lnmax: right("lnmax"),
                  exponential: right("exponential_mechanism"), flip: right("permute_and_flip") }};"""
    [found] = ran(body, [setting])
    counts = np.array(histograms)
    tops = counts == counts.max(axis=1, keepdims=True)
    rate = found["pure"] / 2
    work = Workload(Voters(60, PrivacyParams("inf"), overlap=1), 10, PrivacyParams(3, "1e-5"))
    assert found["sigma"] == pytest.approx(calibrated(work, "gnmax-analytic").settings["sigma"], rel=SEARCHED)
    assert compose_optimal(PrivacyParams(found["pure"], 0), 10, 1e-5).epsilon == pytest.approx(3, rel=1e-6)
    softmax = np.exp(rate * (counts - counts.max(axis=1, keepdims=True)))
    np.testing.assert_allclose(found["exponential"], (softmax * tops).sum(1) / softmax.sum(1), rtol=1e-12)
    np.testing.assert_allclose(found["flip"], [permute_and_flip(row, rate) for row in histograms], atol=1e-6)
    for key, noise in (("gnmax", DiscreteGaussian(found["sigma"])), ("lnmax", DiscreteLaplace(rate))):
        law = winning_probabilities(noise, counts)
        np.testing.assert_allclose(found[key], (law * tops).sum(1), atol=0.01)  # the page's noise is continuous
    e, d = found["target"].values()
    share = (np.expm1(e) + 4 * d) / (np.exp(e) + 3)
    np.testing.assert_allclose(found["constant"], share + (1 - share) * tops.sum(1) / 4)


def test_its_commands_are_commands() -> None:
    settings = [
        private(11, "3", "0.1", "1e-6", queries="20", total="2", total_delta="1e-3"),
        private(11, "3", "0.1", "1e-6", classes="5"),
        {"voters": "plain", "K": "250", "epsilon": "2", "delta": "1e-5", "classes": "10", "queries": "500"},
        {"voters": "plain", "K": "10", "epsilon": "3", "delta": "1e-5", "queries": "1000", "sampled": "0.004"},
    ]
    for command in ran(f"{PROBLEM} return commandOf(setting);", settings):
        python, flag, module, *arguments = command.split()
        assert (python, flag, module) == ("python", "-m", "darrm.plan")
        with plan_command.make_context("darrm plan", arguments):
            pass
