"""The explorer page, opened as a file in Chromium: its numbers are Python's, its commands run, and it fits a phone."""

import html
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

from darrm import PrivacyParams, Problem, Voters, Workload, load_table, priors
from darrm.majority.closed_form import best_for_non_private_voters
from darrm.majority.noise_function import NoiseFunction
from darrm.optimize.__main__ import main
from darrm.optimize.report import compare
from darrm.plan.accuracy import accuracy_of_majorities
from darrm.table.library import available_tables
from darrm.table.table import certify
from experiments import explorer_data, make_tables
from tests.exhaustive import EXHAUSTIVE
from tests.planned import calibrated

PAGE = Path(__file__).parents[2] / "docs" / "explorer"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
PHONE, DESK = 390, 1280  # pixels
SECONDS = 120
FORMULA = 1e-12  # the same formula in the same floats
CERTIFIED = 1e-9  # `certify` scales rounding errors away
SEARCHED = 5e-4  # a calibration in Python ends within a ten-thousandth of ε

# opens the page in a frame of some width, does every step there, and writes down what is shown after each
HARNESS = """<!doctype html><meta charset="utf-8"><body><pre id="collected"></pre><script>
const steps = STEPS;
const frame = document.createElement("iframe");
frame.style = "border: 0; height: 900px; width: WIDTHpx";
const errors = [];
frame.addEventListener("load", async () => {
  const page = frame.contentWindow;
  page.addEventListener("error", (event) => errors.push(String(event.message)));
  page.console.error = page.console.warn = (...words) => errors.push(words.join(" "));
  const at = (id) => page.document.getElementById(id);
  const shown = [];
  for (const step of steps) {
    if (step.startsWith("#")) {
      const changed = new Promise((resolve) => page.addEventListener("hashchange", resolve, { once: true }));
      page.location.hash = step;
      await changed;
    } else page.eval(step);
    shown.push({
      ...JSON.parse(at("numbers").textContent), hash: page.location.hash, problem: at("problem").textContent,
      hidden: at("shown").hidden, rows: at("rows").innerText, remark: at("remark").textContent,
      lines: at("gamma-chart").querySelectorAll("path").length, bars: at("error-chart").querySelectorAll("text").length,
      marked: [...page.document.querySelectorAll("svg")].map((svg) => svg.outerHTML).join("").match(/NaN|Infinity/g),
      width: page.document.documentElement.scrollWidth,
      unnamed: [...page.document.querySelectorAll("input, select, button")].filter((control) =>
        !control.labels?.length && !control.ariaLabel && !control.textContent).length,
    });
  }
  document.getElementById("collected").textContent = JSON.stringify({ shown, errors });
});
frame.src = "ADDRESS";
document.body.append(frame);
</script>"""


def private(K: int | str, m: str, epsilon: str, delta: str, **more: str) -> dict[str, str]:
    return {"voters": "private", "K": str(K), "m": m, "epsilon": epsilon, "delta": delta, **more}


def plain(K: int | str, epsilon: str, delta: str, **more: str) -> dict[str, str]:
    return {"voters": "plain", "K": str(K), "epsilon": epsilon, "delta": delta, **more}


SETTINGS = (
    ("table", private(11, "3", "0.1", "1e-5")),
    ("table", private(11, "3", "0.1", "0.00001", shape="monotone", prior="common")),
    ("table", private(3, "1", "1", "0", overlap="3")),
    ("table", private(101, "10", "0.05", "1e-4", prior="point:0.6")),
    ("no-noise", private(12, "2.5", "0.3", "0", overlap="2", prior="common")),
    ("none", private(11, "3", "0.1", "1e-5", overlap="5")),
    ("none", private(12, "3", "0.1", "1e-5")),
    ("none", private(11, "2.5", "0.1", "1e-5")),
    ("none", private(11, "3", "0.2", "1e-5")),
    ("closed form", plain(250, "0.5", "1e-6")),
    ("closed form", plain(25, "1", "0", prior="uniform:0.7,1")),
    ("closed form", plain(1000, "0.05", "1e-3", prior="point:0.51")),
    ("closed form", plain(1, "2", "0.1", prior="point:0")),
    ("none", plain(51, "2", "1e-5", overlap="3", prior="common")),
    ("none", plain(10, "0.5", "0", overlap="10", prior="common")),
)
WRONG = (
    ("K must", private("eleven", "3", "0.1", "0")),
    ("K must", plain(100_000, "1", "0")),
    ("m must", private(11, "12", "0.1", "0")),
    ("ε must", plain(11, "0", "0")),
    ("ε must", plain(11, "0x10", "0")),
    ("Δ must", private(11, "3", "0.1", "1")),
    ("overlap must", plain(11, "1", "0", overlap="12")),
    ("shape must", private(11, "3", "0.1", "0", shape="round")),
    ("prior must", plain(11, "1", "0", prior="two-sided:0.7,1")),
    ("prior must", plain(11, "1", "0", prior="point:0.5")),
)


def fragment(setting: dict[str, str]) -> str:
    return f"#{urlencode(setting)}"


def visited(folder: Path, steps: list[str], width: int = DESK) -> dict[str, Any]:
    """What the page shows after each step, a URL's hash or a script, and the errors of its console."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        pytest.skip("no Chromium here")
    harness = folder / "harness.html"
    text = HARNESS.replace("STEPS", json.dumps(steps)).replace("WIDTH", str(width))
    harness.write_text(text.replace("ADDRESS", f"{PAGE.as_uri()}/index.html"), encoding="utf-8")
    flags = "--headless=new --no-sandbox --disable-gpu --enable-logging=stderr --allow-file-access-from-files"
    flags += " --virtual-time-budget=20000 --dump-dom"
    command = [browser, *flags.split(), f"--user-data-dir={folder / 'profile'}"]
    done = subprocess.run([*command, harness.as_uri()], capture_output=True, text=True, timeout=SECONDS, check=True)
    found = re.search('<pre id="collected">(.*?)</pre>', done.stdout, re.DOTALL)
    assert found is not None, done.stderr
    assert found[1], done.stderr
    collected = json.loads(html.unescape(found[1]))
    assert [line for line in done.stderr.splitlines() if "CONSOLE" in line] == []
    assert collected["errors"] == []
    return collected


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    hashes = [fragment(setting) for _, setting in (*SETTINGS, *WRONG)]
    shown = visited(tmp_path_factory.mktemp("explorer"), hashes, PHONE)["shown"]
    return dict(zip(hashes, shown, strict=True))


def problem_of(setting: dict[str, str]) -> Problem:
    K, is_private = int(setting["K"]), setting["voters"] == "private"
    overlap = setting.get("overlap", "all" if is_private else "1")
    params = PrivacyParams(setting["epsilon"], setting["delta"])
    reached = None if overlap == "all" else int(overlap)
    if is_private:
        return Problem.from_allowance(Voters(K, params, overlap=reached), setting["m"])
    return Problem(Voters(K, PrivacyParams("inf"), overlap=reached), params)


def prior_of(setting: dict[str, str]) -> priors.Prior:
    return priors.parse(setting.get("prior", "uniform:0.5,1" if setting["voters"] == "private" else "common"))


@cache
def expected(place: int) -> dict[str, tuple[np.ndarray | None, float]]:
    """Python's γ of every mechanism, None where there is none, and how close the page has to come."""
    source, setting = SETTINGS[place]
    problem, prior = problem_of(setting), prior_of(setting)
    K, half = problem.voters.K, problem.voters.num_upper_levels
    largest = certify(problem, NoiseFunction(K, np.ones(half))).gamma.half
    names = ("ours", "subsampling", "double_subsampling", "randomized_response", "constant")
    found: dict[str, tuple[np.ndarray | None, float]] = dict.fromkeys(names, (None, 0.0))
    if source == "table":
        table = load_table(problem, shape=setting.get("shape", "free"))
        for name, entry in zip(names, compare(table, prior), strict=True):
            assert entry.table is not None
            found[name] = (entry.table.gamma.half, CERTIFIED if name == "constant" else FORMULA)
    elif source == "no-noise":
        found["ours"] = (certify(problem, NoiseFunction(K, np.ones(half))).gamma.half, CERTIFIED)
    elif source == "closed form":
        found["ours"] = (best_for_non_private_voters(problem).half, FORMULA)
    has_constant = source == "table" or setting["voters"] == "plain"
    found["constant"] = (largest, CERTIFIED) if has_constant else (None, 0.0)
    workload = Workload(problem.voters, 1, problem.target)
    gaussian = None
    if problem.target.delta > 0:  # the page's noise is continuous
        sigma = calibrated(workload, "gnmax-analytic").settings["sigma"]
        gaussian = 2.0 * ndtr(np.arange(2 * (K // 2 + 1) - K, K + 1, 2) / (sigma * math.sqrt(2.0))) - 1.0
    found["gnmax"] = (gaussian, CERTIFIED)
    plain = replace(workload, voters=Voters(K, PrivacyParams("inf"), problem.voters.overlap))  # it asks for the votes
    for name in ("LNMax", "exponential", "permute-and-flip"):
        law = 2.0 * calibrated(plain, name).curve - 1.0
        found[name.lower().replace(" ", "_").replace("-", "_")] = (law, SEARCHED)
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    "place", [pytest.param(n, marks=[pytest.mark.slow] * (n not in {0, 9})) for n in range(len(SETTINGS))]
)
def test_the_numbers_of_the_page_are_those_of_python(pages: dict[str, Any], place: int) -> None:
    source, setting = SETTINGS[place]
    page, problem, prior = pages[fragment(setting)], problem_of(setting), prior_of(setting)
    assert page["source"] == source
    assert page["target"]["epsilon"] == pytest.approx(problem.target.epsilon, rel=1e-14)
    assert page["target"]["delta"] == pytest.approx(problem.target.delta, rel=1e-12)
    assert page["levels"] == list(range(problem.voters.first_majority, problem.voters.K + 1))
    shown = {mechanism["key"]: mechanism for mechanism in page["mechanisms"]}
    assert set(shown) == set(expected(place))
    for key, (gamma, tolerance) in expected(place).items():
        if gamma is None:
            assert "gamma" not in shown[key], key
            assert shown[key]["absent"], key
            continue
        law = np.array(shown[key]["gamma"])
        np.testing.assert_allclose(law, gamma, rtol=0, atol=tolerance, err_msg=key)
        np.testing.assert_allclose(shown[key]["truth"], (1 + law) / 2, rtol=0, atol=FORMULA)
        error = NoiseFunction(problem.voters.K, np.clip(law, 0, 1)).expected_error(prior)
        right = accuracy_of_majorities((1 + law) / 2, problem.voters.K, prior)
        assert right is not None
        assert shown[key]["expected_error"] == pytest.approx(error, rel=1e-9, abs=1e-15), key
        assert shown[key]["accuracy"] == pytest.approx(right.value, rel=FORMULA), key


@pytest.mark.slow
def test_it_fits_a_phone_and_draws_what_it_has(pages: dict[str, Any]) -> None:
    for page in pages.values():
        assert page["width"] <= PHONE
        assert page["unnamed"] == 0
        assert page["marked"] is None
        if not page["problems"]:
            present = sum("gamma" in mechanism for mechanism in page["mechanisms"])
            assert (page["lines"], page["bars"]) == (present, 2 * present)
            assert page["rows"].count("absent") == len(page["mechanisms"]) - present


@pytest.mark.slow
def test_what_is_wrong_or_not_there_is_said(pages: dict[str, Any]) -> None:
    for words, setting in WRONG:
        page = pages[fragment(setting)]
        assert words in page["problem"]
        assert page["hidden"]
        assert "mechanisms" not in page
    for source, setting in SETTINGS:
        assert ("No table for this setting" in pages[fragment(setting)]["remark"]) == (source == "none")


@pytest.mark.parametrize("place", [0, 2, 5, 9, 10])
def test_the_command_computes_what_the_page_shows(
    pages: dict[str, Any], place: int, capsys: pytest.CaptureFixture[str]
) -> None:
    _, setting = SETTINGS[place]
    page = pages[fragment(setting)]
    python, flag, module, *arguments = shlex.split(page["command"])
    assert (python, flag, module) == ("python", "-m", "darrm.optimize")
    assert main([*arguments, "--format", "json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert Problem.from_json(report["problem"]) == problem_of(setting)
    entries = {entry["name"]: entry for entry in report["noise_functions"]}
    shown = {mechanism["key"]: mechanism for mechanism in page["mechanisms"]}
    for name, key in (("γ_opt", "ours"), ("γ_Sub", "subsampling"), ("γ_DSub", "double_subsampling")):
        if "gamma" in shown[key]:
            # the solver stops at a gap of 1e-9, so two runs may differ by as much
            assert shown[key]["expected_error"] == pytest.approx(entries[name]["expected_error"], rel=1e-7, abs=1e-12)


def test_another_prior_and_shape_are_in_the_command(pages: dict[str, Any]) -> None:
    page = pages[fragment(SETTINGS[1][1])]
    assert shlex.split(page["command"])[-4:] == ["--shape", "monotone", "--prior", "common"]
    assert "optimized for uniform:0.5,1;" in page["remark"]
    assert "optimized for" not in pages[fragment(SETTINGS[0][1])]["remark"]


@pytest.mark.slow
def test_the_controls_move_the_setting(tmp_path: Path) -> None:
    def slide(key: str, place: int) -> str:
        return f"at('{key}-range').value = {place}; at('{key}-range').dispatchEvent(new Event('input'))"

    def type_in(key: str, text: str) -> str:
        return f"at('{key}-box').value = '{text}'; at('{key}-box').dispatchEvent(new Event('change'))"

    steps = [
        slide("K", 0),  # K = 3, so that m = 3 has to follow
        type_in("epsilon", "0.07"),
        type_in("K", "many"),
        "document.querySelector('[value=plain]').click()",
        slide("overlap", 1),
        slide("overlap", 249),
        "document.querySelector('#legend input:enabled').click()",
        "document.querySelector('#legend input:enabled').click()",
    ]
    K3, seven, many, other, two, everyone, less, again = visited(tmp_path, steps)["shown"]
    assert (K3["setting"]["K"], K3["setting"]["m"], K3["source"]) == ("3", "2", "table")
    assert "K=3&m=2" in K3["hash"]
    assert (seven["setting"]["epsilon"], seven["source"]) == ("0.07", "none")
    assert "got 'many'" in many["problem"]
    assert (other["setting"]["voters"], other["source"], other["problem"]) == ("plain", "closed form", "")
    assert "--overlap 2" in two["command"]
    assert "--overlap" not in everyone["command"]
    assert (less["lines"], less["bars"]) == (everyone["lines"] - 1, everyone["bars"] - 2)
    assert again["lines"] == everyone["lines"]


def test_the_page_needs_nothing_from_elsewhere() -> None:
    text = (PAGE / "index.html").read_text(encoding="utf-8")
    wanted = set(re.findall(r'(?:src|href)="([^"]+)"', text))
    scripts = {f"{name}.js" for name in ("data", "numbers", "many", "optimum", "explorer")}
    assert wanted == {"../index.html", "style.css", "data:,", "#"} | scripts
    for path in PAGE.iterdir():
        addresses = re.findall(r"https?://[^\"'\s)]+", path.read_text(encoding="utf-8"))
        assert set(addresses) <= {"http://www.w3.org/2000/svg"}, path.name
    assert sum(path.stat().st_size for path in PAGE.iterdir()) < 2_000_000


def test_the_data_have_the_form_that_the_script_writes() -> None:
    data = explorer_data.read_script(explorer_data.OUTPUT)
    assert tuple(data["gamma"]) == tuple(data["rivals"]) == make_tables.SIZES
    written = explorer_data.write_script(
        {K: (data["gamma"][K].tolist(), data["rivals"][K].tolist()) for K in data["gamma"]}
    )
    assert explorer_data.OUTPUT.read_text(encoding="utf-8") == written


@pytest.mark.parametrize("K", [pytest.param(K, marks=[pytest.mark.slow] if K > 21 else []) for K in make_tables.SIZES])
@pytest.mark.parametrize("all_of_them", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_the_data_are_those_of_the_tables(K: int, *, all_of_them: bool) -> None:
    data, settings = explorer_data.read_script(explorer_data.OUTPUT), available_tables(K)
    count = len(settings) // 2  # free and monotone
    every = all_of_them and (EXHAUSTIVE or K <= 21)  # K = 101 takes minutes
    problems = list(range(count)) if every else [0, count - 8]
    stored = data["gamma"][K].reshape(count, -1), data["rivals"][K].reshape(count, -1)
    gamma, rivals = explorer_data.collect_numbers(
        [settings[2 * problem + shape] for problem in problems for shape in (0, 1)]
    )
    np.testing.assert_array_equal(stored[0][problems].ravel(), gamma)
    # proofs of other processors round differently
    np.testing.assert_allclose(stored[1][problems].ravel(), rivals, rtol=0, atol=FORMULA)
