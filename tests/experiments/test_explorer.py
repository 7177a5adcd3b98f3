"""The explorer page, in Chromium and in node: its numbers are Python's, its commands run, and it fits a phone."""

import html
import itertools
import json
import math
import re
import shlex
import shutil
import subprocess
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import numpy as np
import pytest
from scipy.special import ndtr

from darrm import PrivacyParams, Problem, Voters, Workload, certify, load_table, optimize_table, priors
from darrm.loss.composition import compose_optimal
from darrm.majority import baselines
from darrm.majority.closed_form import best_for_non_private_voters
from darrm.majority.noise_function import NoiseFunction
from darrm.noisy_max.label_cost import two_class_errors
from darrm.noisy_max.noisy_law import winning_probabilities
from darrm.numerics.integer_noise import DiscreteGaussian, DiscreteLaplace
from darrm.optimize import SolveOptions
from darrm.optimize.__main__ import main as optimize_command
from darrm.optimize.report import compare
from darrm.plan.__main__ import plan as plan_command
from darrm.plan.accuracy import accuracy_of_majorities
from darrm.subsampling import Subsampling
from darrm.table.library import available_tables
from experiments import explorer_data, make_tables
from tests.exhaustive import EXHAUSTIVE
from tests.planned import calibrated

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "explorer"
SCRIPTS = [PAGE / f"{name}.js" for name in ("data", "numbers", "many", "optimum")]
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
NODE = shutil.which("node")
needs_browser = pytest.mark.skipif(BROWSER is None, reason="no Chromium here")
pytestmark = pytest.mark.skipif(NODE is None, reason="no node here")
PHONE = 390  # pixels
FORMULA = 1e-12  # the same formula in the same floats
CERTIFIED = 1e-9  # `certify` scales rounding errors away
SEARCHED = 5e-4  # a calibration in Python ends within a ten-thousandth of ε

# the page's scripts share one scope; the body of the program returns a value of it
PROGRAM = """
const sources = process.argv[1].split("\\n").map((path) => require("fs").readFileSync(path, "utf8"));
const scope = sources.join("\\n").replaceAll('"use strict";', "");
const page = new Function(`${scope}; return (input, solver) => { BODY };`)();
const main = async () => {
  const solver = process.argv[2] ? await require(process.argv[2])() : null;
  const results = [];
  for (const input of JSON.parse(process.argv[3])) results.push(await page(input, solver));
  console.log(JSON.stringify(results));
};
main();
"""
PROBLEM = "const setting = settingOf(input); const problem = problemOf(setting);"
# opens the page in a frame as wide as a phone, goes to each hash, and writes down the state of the page
HARNESS = """<!doctype html><meta charset="utf-8"><body><pre id="collected"></pre><script>
const frame = document.createElement("iframe");
frame.style = "border: 0; height: 900px; width: WIDTHpx";
frame.addEventListener("load", async () => {
  const page = frame.contentWindow, shown = [], errors = [];
  page.addEventListener("error", (event) => errors.push(String(event.message)));
  page.console.error = page.console.warn = (...words) => errors.push(words.join(" "));
  const at = (id) => page.document.getElementById(id);
  for (const hash of HASHES) {
    const changed = new Promise((resolve) => page.addEventListener("hashchange", resolve, { once: true }));
    page.location.hash = hash;
    await changed;
    shown.push({
      numbers: JSON.parse(at("numbers").textContent), problem: at("problem").textContent, hidden: at("shown").hidden,
      remark: at("remark").textContent, width: page.document.documentElement.scrollWidth,
      lines: at("gamma-chart").querySelectorAll("path").length, bars: at("error-chart").querySelectorAll("text").length,
      marked: [...page.document.querySelectorAll("svg")].map((svg) => svg.outerHTML).join("").match(/NaN|Infinity/g),
      unnamed: [...page.document.querySelectorAll("input, select, button")].filter((control) =>
        !control.labels?.length && !control.ariaLabel && !control.textContent).length,
    });
  }
  document.getElementById("collected").textContent = JSON.stringify({ shown, errors });
});
frame.src = "ADDRESS";
document.body.append(frame);
</script>"""


def make_private(K: int | str, m: str, epsilon: str, delta: str, **more: str) -> dict[str, str]:
    return {"voters": "private", "K": str(K), "m": m, "epsilon": epsilon, "delta": delta, **more}


def make_plain(K: int | str, epsilon: str, delta: str, **more: str) -> dict[str, str]:
    return {"voters": "plain", "K": str(K), "epsilon": epsilon, "delta": delta, **more}


SETTINGS = (  # with the source of the shown γ
    ("table", make_private(11, "3", "0.1", "1e-5")),
    ("table", make_private(11, "3", "0.1", "0.00001", shape="monotone", prior="common")),
    ("table", make_private(3, "1", "1", "0", overlap="3")),
    ("no noise", make_private(12, "2.5", "0.3", "0", overlap="2", prior="common")),
    ("none", make_private(11, "3", "0.1", "1e-5", overlap="5")),
    ("none", make_private(12, "3", "0.1", "1e-5")),
    ("none", make_private(11, "2.5", "0.1", "1e-5")),
    ("none", make_private(11, "3", "0.2", "1e-5")),
    ("table", make_private(101, "10", "0.05", "1e-4", prior="point:0.6")),
    ("closed form", make_plain(1000, "0.05", "1e-3", prior="point:0.51")),
    ("none", make_plain(10, "0.5", "0", overlap="10", prior="common")),
    ("closed form", make_plain(250, "0.5", "1e-6")),
    ("closed form", make_plain(25, "1", "0", prior="uniform:0.7,1")),
    ("closed form", make_plain(1, "2", "0.1", prior="point:0")),
    ("none", make_plain(51, "2", "1e-5", overlap="3", prior="common")),
)
REFUSALS = (
    ("K must", make_private("eleven", "3", "0.1", "0")),
    ("K must", make_plain(100_000, "1", "0")),
    ("m must", make_private(11, "12", "0.1", "0")),
    ("ε must", make_plain(11, "0", "0")),
    ("ε must", make_plain(11, "0x10", "0")),
    ("Δ must", make_private(11, "3", "0.1", "1")),
    ("overlap must", make_plain(11, "1", "0", overlap="12")),
    ("shape must", make_private(11, "3", "0.1", "0", shape="round")),
    ("prior must", make_plain(11, "1", "0", prior="two-sided:0.7,1")),
    ("prior must", make_plain(11, "1", "0", prior="point:0.5")),
)


def run_node(body: str, inputs: list[Any], solver: Path | None = None) -> list[Any]:
    assert NODE is not None
    program = PROGRAM.replace("BODY", body.replace("`", "\\`"))
    arguments = ["\n".join(map(str, SCRIPTS)), str(solver or ""), json.dumps(inputs)]
    result = subprocess.run([NODE, "-e", program, *arguments], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return list(json.loads(result.stdout))


def start_browser(folder: Path, address: str, *flags: str) -> subprocess.CompletedProcess[str]:
    options = ["--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder / 'profile'}", "--dump-dom"]
    command = [str(BROWSER), *options, *flags, address]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)


def explore(setting: dict[str, str]) -> dict[str, Any]:
    """Return the numbers of the page for a setting."""
    (numbers,) = run_node("return explore(settingOf(input));", [setting])
    return dict(numbers)


def read_problem(setting: dict[str, str]) -> Problem:
    K, is_private = int(setting["K"]), setting["voters"] == "private"
    overlap_text = setting.get("overlap", "all" if is_private else "1")
    overlap = None if overlap_text == "all" else int(overlap_text)
    params = PrivacyParams(setting["epsilon"], setting["delta"])
    if is_private:
        return Problem.from_allowance(Voters(K, params, overlap=overlap), setting["m"])
    return Problem(Voters(K, PrivacyParams("inf"), overlap=overlap), params)


def read_prior(setting: dict[str, str]) -> priors.Prior:
    return priors.parse(setting.get("prior", "uniform:0.5,1" if setting["voters"] == "private" else "common"))


def certify_constant(problem: Problem) -> NoiseFunction:
    return certify(problem, NoiseFunction(problem.voters.K, np.ones(problem.voters.num_upper_levels))).gamma


def compute_expected(source: str, setting: dict[str, str]) -> dict[str, tuple[np.ndarray | None, float]]:
    """Compute γ of every mechanism, None where there is none, and the tolerance of the page."""
    problem = read_problem(setting)
    K, constant = problem.voters.K, certify_constant(problem).half
    names = ("ours", "subsampling", "double_subsampling", "randomized_response", "constant")
    expected: dict[str, tuple[np.ndarray | None, float]] = dict.fromkeys(names, (None, 0.0))
    if source == "table":
        table = load_table(problem, shape=setting.get("shape", "free"))
        for name, entry in zip(names, compare(table, read_prior(setting)), strict=True):
            assert entry.table is not None
            expected[name] = (entry.table.gamma.half, FORMULA)
    elif source == "no noise":
        expected["ours"] = (constant, CERTIFIED)
    elif source == "closed form":
        expected["ours"] = (best_for_non_private_voters(problem).half, FORMULA)
    has_constant = source == "table" or setting["voters"] == "plain"
    expected["constant"] = (constant, CERTIFIED) if has_constant else (None, 0.0)
    workload = Workload(problem.voters, 1, problem.target)
    gaussian = None
    if problem.target.delta > 0:  # the page's noise is continuous
        sigma = calibrated(workload, "gnmax-analytic").settings["sigma"]
        gaussian = 2.0 * ndtr(np.arange(2 * (K // 2 + 1) - K, K + 1, 2) / (sigma * math.sqrt(2.0))) - 1.0
    expected["gnmax"] = (gaussian, CERTIFIED)
    plain = replace(workload, voters=Voters(K, PrivacyParams("inf"), problem.voters.overlap))  # of the counts
    # the page's noise makes both counts (ε₀, 0)-private; the planner's makes the label private and is no larger
    epsilon, delta = problem.target.epsilon, problem.target.delta
    rate = math.log((math.exp(epsilon) + delta) / (1.0 - delta)) / (2 * problem.voters.reached)
    laplace = 1.0 - 2.0 * np.exp(two_class_errors(DiscreteLaplace(rate), K))
    assert np.all(laplace <= 2.0 * calibrated(plain, "lnmax").curve - 1.0 + SEARCHED)
    expected["lnmax"] = (laplace, FORMULA)
    for key, slug in (("exponential_mechanism", "exponential"), ("permute_and_flip", "permute-and-flip")):
        expected[key] = (2.0 * calibrated(plain, slug).curve - 1.0, SEARCHED)
    return expected


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(("source", "setting"), SETTINGS)
def test_numbers_of_the_page_are_those_of_python(source: str, setting: dict[str, str]) -> None:
    page, problem, prior = explore(setting), read_problem(setting), read_prior(setting)
    assert page["source"] == source
    assert page["target"]["epsilon"] == pytest.approx(problem.target.epsilon, rel=1e-14)
    assert page["target"]["delta"] == pytest.approx(problem.target.delta, rel=1e-12)
    assert page["levels"] == list(range(problem.voters.first_majority, problem.voters.K + 1))
    shown, expected = {row["key"]: row for row in page["mechanisms"]}, compute_expected(source, setting)
    assert set(shown) == set(expected)
    for key, (gamma, tolerance) in expected.items():
        if gamma is None:
            assert "gamma" not in shown[key], key
            assert shown[key]["absent"], key
            continue
        law = np.array(shown[key]["gamma"])
        np.testing.assert_allclose(law, gamma, rtol=0, atol=tolerance, err_msg=key)
        np.testing.assert_allclose(shown[key]["truth"], (1 + law) / 2, rtol=0, atol=FORMULA)
        error = NoiseFunction(problem.voters.K, np.clip(law, 0, 1)).expected_error(prior)
        accuracy = accuracy_of_majorities((1 + law) / 2, problem.voters.K, prior)
        assert accuracy is not None
        assert shown[key]["expected_error"] == pytest.approx(error, rel=1e-9, abs=1e-15), key
        assert shown[key]["accuracy"] == pytest.approx(accuracy.value, rel=FORMULA), key


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("place", [0, 1, 2, 4, 11, 12])
def test_the_command_of_the_page_computes_its_numbers(place: int, capsys: pytest.CaptureFixture[str]) -> None:
    source, setting = SETTINGS[place]
    page = explore(setting)
    python, flag, module, *arguments = shlex.split(page["command"])
    assert (python, flag, module) == ("python", "-m", "darrm.optimize")
    assert optimize_command([*arguments, "--format", "json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert Problem.from_json(report["problem"]) == read_problem(setting)
    errors = {entry["name"]: entry["expected_error"] for entry in report["noise_functions"]}
    shown = {row["key"]: row for row in page["mechanisms"]}
    for name, key in (("γ_opt", "ours"), ("γ_Sub", "subsampling"), ("γ_DSub", "double_subsampling")):
        has_other_prior = key == "ours" and source == "table" and "prior" in setting  # tables are for the default one
        if "gamma" in shown[key] and not has_other_prior:
            # the solver stops at a gap of 1e-9, so two runs may differ by as much
            assert shown[key]["expected_error"] == pytest.approx(errors[name], rel=1e-7, abs=1e-12)


def test_the_page_names_what_is_wrong_with_a_setting() -> None:
    settings = [setting for _, setting in REFUSALS]
    for (message, _), problems in zip(
        REFUSALS, run_node("return explore(settingOf(input)).problems;", settings), strict=True
    ):
        assert any(message in problem for problem in problems), message


@pytest.mark.slow
@needs_browser
def test_a_phone_shows_the_numbers_of_every_setting(tmp_path: Path) -> None:
    settings = [setting for _, setting in (*SETTINGS, *REFUSALS)]
    harness = HARNESS.replace("HASHES", json.dumps([f"#{urlencode(setting)}" for setting in settings]))
    harness = harness.replace("WIDTH", str(PHONE)).replace("ADDRESS", f"{PAGE.as_uri()}/index.html")
    (tmp_path / "harness.html").write_text(harness, encoding="utf-8")
    flags = ("--enable-logging=stderr", "--allow-file-access-from-files", "--virtual-time-budget=20000")
    result = start_browser(tmp_path, (tmp_path / "harness.html").as_uri(), *flags)
    match = re.search('<pre id="collected">(.+?)</pre>', result.stdout, re.DOTALL)
    assert match is not None, result.stderr
    collected = json.loads(html.unescape(match[1]))
    assert "CONSOLE" not in result.stderr
    assert collected["errors"] == []
    expected = run_node("return explore(settingOf(input));", settings)
    for page, numbers in zip(collected["shown"], expected, strict=True):
        assert page["numbers"] == numbers
        assert page["hidden"] == bool(page["problem"]) == bool(numbers["problems"])
        assert page["width"] <= PHONE
        assert (page["unnamed"], page["marked"]) == (0, None)
        if not numbers["problems"]:
            assert ("No table for this setting" in page["remark"]) == (numbers["source"] == "none")
            present = sum("gamma" in row for row in numbers["mechanisms"])
            assert (page["lines"], page["bars"]) == (present, 2 * present)


def test_the_page_loads_nothing_from_elsewhere() -> None:
    targets = set(re.findall(r'(?:src|href)="([^"]+)"', (PAGE / "index.html").read_text(encoding="utf-8")))
    scripts = {f"{name}.js" for name in ("data", "numbers", "many", "optimum", "explorer")}
    assert targets == {"../index.html", "style.css", "data:,", "#"} | scripts
    for path in PAGE.iterdir():
        addresses = re.findall(r"https?://[^\"'\s)]+", path.read_text(encoding="utf-8"))
        assert set(addresses) <= {"http://www.w3.org/2000/svg"}, path.name
    assert sum(path.stat().st_size for path in PAGE.iterdir()) < 2_000_000


@pytest.mark.parametrize("K", [pytest.param(K, marks=[pytest.mark.slow] if K > 21 else []) for K in make_tables.SIZES])
@pytest.mark.parametrize("is_complete", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_the_data_of_the_page_are_those_of_the_tables(K: int, *, is_complete: bool) -> None:
    data, settings = explorer_data.read_script(explorer_data.OUTPUT), available_tables(K)
    count = len(settings) // 2  # free and monotone
    # K = 101 takes minutes
    problems = list(range(count)) if is_complete and (EXHAUSTIVE or K <= 21) else [0, count - 8]
    gamma, rivals = explorer_data.collect_numbers(
        [settings[2 * problem + shape] for problem in problems for shape in (0, 1)]
    )
    np.testing.assert_array_equal(data["gamma"][K].reshape(count, -1)[problems].ravel(), gamma)
    # proofs of other processors round differently
    stored_rivals = data["rivals"][K].reshape(count, -1)[problems].ravel()
    np.testing.assert_allclose(stored_rivals, rivals, rtol=0, atol=FORMULA)


def test_the_script_is_what_its_writer_writes() -> None:
    data = explorer_data.read_script(explorer_data.OUTPUT)
    numbers = {K: (data["gamma"][K].tolist(), data["rivals"][K].tolist()) for K in make_tables.SIZES}
    assert explorer_data.write_script(numbers) == explorer_data.OUTPUT.read_text(encoding="utf-8")


SOLVED_SETTINGS = (
    make_private(11, "3", "0.1", "1e-5"),
    make_private(12, "2.5", "0.1", "1e-5", overlap="5"),
    make_private(11, "3", "0.1", "0", shape="monotone", prior="common"),
    make_private(35, "5", "0.2", "1e-3", prior="uniform:0.7,1"),
    make_private(7, "2", "0.5", "0.05"),
    make_private(100, "9.5", "0.07", "1e-5"),
    make_private(101, "10", "0.07", "1e-5", shape="monotone", prior="common"),
    make_plain(51, "1", "1e-5", overlap="3", prior="common"),
)
QUESTIONS = (
    make_private(11, "3", "0.1", "1e-6", queries="20", total="2", total_delta="1e-3"),
    make_plain(11, "2", "1e-4", queries="50", sampled="0.1"),
    make_plain(11, "0.5", "1e-6", sampled="0.05"),
    make_private(11, "3", "0.1", "1e-6", classes="5"),
    make_plain(60, "3", "1e-5", classes="4", queries="10"),
)


@pytest.fixture(scope="module")
def solver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return HiGHS as the site bundles it; fetch it if `make docs` has not done so."""
    folder, npm = ROOT / "build", shutil.which("npm")
    if not (folder / "node_modules" / "highs").is_dir():
        folder = tmp_path_factory.mktemp("npm")
        for name in ("package.json", "package-lock.json"):
            shutil.copy(ROOT / "docs" / name, folder)
        command = [str(npm), "ci", "--prefix", str(folder)]
        if npm is None or subprocess.run(command, capture_output=True, check=False).returncode != 0:
            pytest.skip("npm cannot fetch the solver here")
    return folder / "node_modules" / "highs"


@pytest.mark.slow
def test_the_optimum_of_the_browser_is_that_of_python(solver: Path) -> None:
    body = f"{PROBLEM} return bestGamma(solver, problem, priorWeights(priorOf(setting.prior), problem.K));"
    for setting, result in zip(SOLVED_SETTINGS, run_node(body, list(SOLVED_SETTINGS), solver), strict=True):
        problem, prior = read_problem(setting), priors.parse(setting.get("prior", "uniform:0.5,1"))
        options, shape = SolveOptions(gap=1e-9), setting.get("shape", "free")
        table = optimize_table(problem, prior=prior, shape=shape, options=options)
        assert result["error"] == pytest.approx(table.gamma.expected_error(prior), abs=1e-9, rel=1e-6), setting
        # the browser's γ is private, to rounding
        gamma = NoiseFunction(problem.voters.K, np.array(result["gamma"]))
        assert certify(problem, gamma).certificate.scale > 1 - 1e-9, setting


@pytest.mark.slow
@needs_browser
def test_the_page_of_the_site_solves(solver: Path, tmp_path: Path) -> None:
    explorer_data.bundle(PAGE, tmp_path / "explorer", solver)
    address = f"{(tmp_path / 'explorer' / 'index.html').as_uri()}#{urlencode(SOLVED_SETTINGS[1])}"
    for _ in range(3):  # on a busy machine virtual time is over before the solver is
        shown = start_browser(tmp_path, address, "--virtual-time-budget=60000").stdout
        if "solved here, in your browser" in shown:
            break
    assert "solved here, in your browser" in shown
    assert "solver failed" not in shown


def test_the_worst_row_of_the_page_is_that_of_certify() -> None:
    """For a constant, a sample, and functions that fall."""
    body = f"""{PROBLEM} const scales = [levelsOf(problem.K).map(() => 1), sampled(problem.K, drawsOf(problem, 2))];
        return scales.map((gamma) => scaleOf(problem, gamma));"""
    settings = [setting for setting in SOLVED_SETTINGS if int(setting["K"]) < 40 and "." not in setting["m"]]
    for setting, scales in zip(settings, run_node(body, settings), strict=True):
        problem = read_problem(setting)
        ones = NoiseFunction(problem.voters.K, np.ones(problem.voters.num_upper_levels))
        for scale, gamma in zip(scales, (ones, baselines.double_subsampling(problem)), strict=True):
            assert scale == pytest.approx(certify(problem, gamma).certificate.scale, abs=1e-9), setting
    for delta, half in itertools.product(("0", "0.02"), ([1.0, 0.1, 0.9, 0.2, 1.0], [1.0, 0.5, 1.0, 1.0, 0.0])):
        setting = make_private(9, "1", "0.1", delta, overlap="3")
        problem = read_problem(setting)
        [worst] = run_node(f"{PROBLEM} return separate(geometryOf(problem), {half}, true).worst;", [setting])
        scale = certify(problem, NoiseFunction(9, np.array(half))).certificate.scale
        assert problem.budget / worst == pytest.approx(scale, abs=1e-9)


def test_composition_of_the_page_is_the_optimal_one() -> None:
    cases = [(0.1, 0.0, 20, 1e-3), (0.05, 1e-7, 500, 1e-4), (1.0, 1e-4, 3, 0.01)]
    totals = [compose_optimal(PrivacyParams(e, d), k, delta).epsilon for e, d, k, delta in cases]
    inputs = [[e, d, k, total] for (e, d, k, _), total in zip(cases, totals, strict=True)]
    np.testing.assert_allclose(run_node("return composedDelta(...input);", inputs), [1e-3, 1e-4, 0.01], rtol=1e-6)


def test_the_budget_of_one_answer_is_the_largest_that_fits_the_total() -> None:
    private, sampled, single = run_node(f"{PROBLEM} return problem;", list(QUESTIONS[:3]))
    epsilon, delta = private["target"].values()
    assert epsilon == pytest.approx(0.1 * private["m"])
    spent = compose_optimal(PrivacyParams(epsilon, delta), 20, 1e-3).epsilon
    assert 2 * (1 - 1e-6) < spent < 2 * (1 + 1e-9)
    epsilon, delta = sampled["target"].values()
    amplified = PrivacyParams(float(np.log1p(0.1 * np.expm1(epsilon))), 0.1 * delta)
    assert compose_optimal(amplified, 50, 1e-4).epsilon == pytest.approx(2, rel=1e-6)
    included = Subsampling.of("0.05").conditional_on_inclusion(PrivacyParams("0.5", "1e-6"))
    assert list(single["target"].values()) == pytest.approx([included.epsilon, included.delta], rel=1e-9)


@cache
def compute_permute_and_flip(counts: tuple[int, ...], rate: float) -> float:
    """Compute Pr[a class with the most votes] over all orders."""
    heads = [np.exp(rate * (count - max(counts))) for count in counts]
    total, orders = 0.0, list(itertools.permutations(range(len(counts))))
    for order in orders:
        rest = 1.0
        for place in order:
            total += rest * heads[place] * (counts[place] == max(counts))
            rest *= 1.0 - heads[place]
    return total / len(orders)


def test_laws_of_more_classes_are_those_of_python() -> None:
    histograms = [(30, 20, 10, 0), (20, 20, 20, 0), (40, 10, 5, 5), (16, 15, 15, 14)]
    body = f"""{PROBLEM} const laws = lawsOfClasses(problem); const gaps = {json.dumps(histograms)}.map(gapsOf);
        const right = (key) => gaps.map(laws[key].right);
        return {{ pure: pureOf(problem), sigma: gnmax(problem).sigma, target: problem.target,
                  constant: right("constant"), gnmax: right("gnmax"), lnmax: right("lnmax"),
                  exponential: right("exponential_mechanism"), flip: right("permute_and_flip") }};"""
    [result] = run_node(body, [QUESTIONS[4]])
    counts, rate = np.array(histograms), result["pure"] / 2
    is_top = counts == counts.max(axis=1, keepdims=True)
    workload = Workload(Voters(60, PrivacyParams("inf"), overlap=1), 10, PrivacyParams(3, "1e-5"))
    assert result["sigma"] == pytest.approx(calibrated(workload, "gnmax-analytic").settings["sigma"], rel=SEARCHED)
    assert compose_optimal(PrivacyParams(result["pure"], 0), 10, 1e-5).epsilon == pytest.approx(3, rel=1e-6)
    softmax = np.exp(rate * (counts - counts.max(axis=1, keepdims=True)))
    np.testing.assert_allclose(result["exponential"], (softmax * is_top).sum(1) / softmax.sum(1), rtol=1e-12)
    np.testing.assert_allclose(result["flip"], [compute_permute_and_flip(n, rate) for n in histograms], atol=1e-6)
    for key, noise in (("gnmax", DiscreteGaussian(result["sigma"])), ("lnmax", DiscreteLaplace(rate))):
        law = winning_probabilities(noise, counts)
        np.testing.assert_allclose(result[key], (law * is_top).sum(1), atol=0.01)  # the page's noise is continuous
    growth, delta = math.exp(result["target"]["epsilon"]), result["target"]["delta"]
    share = (growth - 1.0 + 4 * delta) / (growth + 3)
    np.testing.assert_allclose(result["constant"], share + (1 - share) * is_top.sum(1) / 4)


def test_commands_of_the_page_are_commands() -> None:
    for command in run_node(f"{PROBLEM} return commandOf(setting);", [QUESTIONS[0], *QUESTIONS[3:]]):
        python, flag, module, *arguments = command.split()
        assert (python, flag, module) == ("python", "-m", "darrm.plan")
        with plan_command.make_context("darrm plan", arguments):
            pass
