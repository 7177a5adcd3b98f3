"""Write the page about [P], on real votes and on its printed columns, from the JSON of the runs."""

import math
from pathlib import Path

import numpy as np

from experiments.pages import Row, fill_template, read_json
from experiments.pate.settings import STUDIES

AUTHORS_PATH = Path(__file__).parents[2] / "docs" / "reproduction" / "pate_votes" / "pate_votes.json"
PRINTED = "[P] as printed (not publishable)"
SANITIZED = "[P], sanitized by GNSS"
OURS = "exact cost, sanitized"
SEARCHED = "exact cost, all parameters from public votes"
BY_LABEL = "GNMax by label, nothing to sanitize"
DPSGD = "DP-SGD, the same network"
LINEAR = {  # by the scaling of the features
    "groups": "DP-SGD, linear on scattering",
    "pool": "DP-SGD, linear, scaled by the pool",
}


def list_points(result: Row) -> list[Row]:
    """List the models of a study: their kind, queries and answers, ε (± the noise of publication), and accuracy.

    A row without a student or without this ε has none.
    """
    confident = [row for row in [*result["rows"], *result["points"]] if row["name"] == "Confident-GNMax"]
    confident.sort(key=lambda row: int(row["queries"]))
    points = [(PRINTED, row, {"epsilon": row["costs"]["printed"]}) for row in confident]
    points += [(SANITIZED, row, row["in_paper"]) for row in confident]
    points += [(OURS, row, row["ours"] or {}) for row in confident]
    points += [(SEARCHED, row, row["beforehand"]) for row in result["searched"]]
    points += [(BY_LABEL, row, {"epsilon": row["epsilon"]}) for row in result["by_label"]]
    students = [
        _make_point(way, row, average(row["students"]), published["epsilon"], published.get("deviation", 0.0))
        for way, row, published in points
        if row["students"] and "epsilon" in published
    ]
    dpsgd_rows = [*result["dpsgd"], *result.get("linear", ())]
    return students + [
        _make_point(LINEAR.get(row.get("scaled_by"), DPSGD), {}, row["accuracy"], row["epsilon"]) for row in dpsgd_rows
    ]


def _make_point(way: str, row: Row, accuracy: float, epsilon: float, deviation: float = 0.0) -> Row:
    counts = {name: row.get(name) for name in ("queries", "answered")}
    return {"way": way, **counts, "epsilon": epsilon, "deviation": deviation, "accuracy": accuracy}


def average(values: list[float]) -> float:
    return sum(values) / len(values)


MAX_LNMAX_SHARE, CHECKS = 0.25, ("moderate", "aggressive")
MAX_PUBLISHED_SHARE = 0.75  # the aim for our published ε ÷ that of [P]'s pipeline
MAX_BASELINE_GAP = {"mnist": 0.007}  # [P] prints 98.5 %, and 99.2 % for the baseline
MIN_ACCURACY = {"mnist": (0.985, 0.987)}  # of [P]'s student, and our aim
MIN_REST_ACCURACY = {"mnist": 0.986}  # our aim on the pool beyond the queries


def decide_claims(result: Row) -> Row:
    """Decide every claim of the template that the result has numbers for."""
    figure_1, figure_5 = result["figure_1"]["confident"], result["figure_5"]["curves"]
    num_answers, epsilon = figure_1["answered"][-1], figure_1["epsilon"][-1]
    lnmax_epsilon = _interpolate_epsilon(num_answers, result["figure_1"]["lnmax"])
    agreement = {name: shares[-1] for name, shares in result["figure_1"]["agreement"].items()}
    moderate, aggressive = ({key: curve[key][-1] for key in curve} for curve in map(figure_5.get, CHECKS))
    moderate_epsilon = _interpolate_epsilon(aggressive["answered"], figure_5["moderate"])
    check_share = moderate["check"] / moderate["epsilon"]
    small_curve, large_curve = result["figure_4"]["right"][-2:]
    claims = {
        "quarter": _compare(epsilon <= MAX_LNMAX_SHARE * lnmax_epsilon, epsilon, lnmax_epsilon)
        | {"answers": num_answers},
        "agreement": {"holds": agreement["confident"] > agreement["lnmax"], **agreement},
        "noise": _compare_curves(*(curve["points"] for curve in result["figure_4"]["left"])),
        "size": _compare_curves(small_curve["points"], large_curve["points"]),
        "names": {"small": small_curve["name"], "large": large_curve["name"]},
        "fewer": _compare(aggressive["answered"] < moderate["answered"], aggressive["answered"], moderate["answered"]),
        "moderate": _compare(moderate_epsilon < aggressive["epsilon"], moderate_epsilon, aggressive["epsilon"]),
        "selecting": {"holds": 1 / 3 <= check_share <= 1 / 2, "share": check_share},
        "published": [_judge_publication(row) for row in result["rows"] if row["ours"] and "epsilon" in row["ours"]],
    }
    confident = _find_row(result, "Confident-GNMax")
    if confident is None:
        return claims | {"published": []}
    claims["right"] = {"holds": confident["label_accuracy"] > confident["plurality_accuracy"], "row": confident}
    if confident["students"]:
        claims |= _judge_student(result, confident)
    costs = confident["costs"]
    if costs["exact"] is not None:
        claims["exact"] = _compare(costs["exact"] < costs["theorem_6"], costs["exact"], costs["theorem_6"])
    return claims


def _compare(holds: bool, ours: float, other: float) -> Row:
    return {"holds": holds, "ours": ours, "other": other, "ratio": ours / other}


def _find_row(result: Row, start: str) -> Row | None:
    """Find the first row of Table 1 whose name has this start."""
    return next((row for row in result["rows"] if row["name"].startswith(start)), None)


def _interpolate_epsilon(answers: int, curve: Row) -> float:
    """Interpolate the ε of a curve at a number of answers."""
    return float(np.interp(answers, curve["answered"], curve["epsilon"]))


def _compare_curves(curve: list[dict[str, float]], other: list[dict[str, float]]) -> Row | None:
    """For each point of one curve, divide the least ε of the other at this accuracy by the point's ε."""
    by_accuracy = sorted((point["accuracy"], point["epsilon"]) for point in other if point["epsilon"] > 0.0)
    accuracies, epsilons = [point[0] for point in by_accuracy], np.log([point[1] for point in by_accuracy])
    least_log_epsilons = np.minimum.accumulate(epsilons[::-1])[::-1]  # a larger accuracy suffices too
    ratios = [
        float(np.exp(np.interp(point["accuracy"], accuracies, least_log_epsilons))) / point["epsilon"]
        for point in curve
        if accuracies[0] <= point["accuracy"] <= accuracies[-1] and point["epsilon"] > 0.0
    ]
    if not ratios:
        return None
    return {"holds": max(ratios) < 1.0, "least": min(ratios), "most": max(ratios), "number": len(ratios)}


def _judge_student(result: Row, row: Row) -> Row:
    """Compare the student with the aims, the student of LNMax's answers, DP-SGD and the baseline."""
    name, accuracy = result["dataset"], average(row["students"])
    aims = [{"holds": accuracy >= aim, "least": aim} for aim in MIN_ACCURACY.get(name, ())]
    claims: Row = {"accuracy": accuracy, "aims": aims}
    if row.get("rest") and name in MIN_REST_ACCURACY:
        rest_accuracy, aim = average(row["rest"]), MIN_REST_ACCURACY[name]
        claims["rest"] = _compare(rest_accuracy >= aim, rest_accuracy, aim)
    lnmax = _find_row(result, "LNMax")
    if lnmax is not None and lnmax["students"]:
        lnmax_accuracy = average(lnmax["students"])
        claims["lnmax"] = {"holds": accuracy > lnmax_accuracy, "queries": lnmax["queries"], "accuracy": lnmax_accuracy}
    if result.get("linear"):
        model = max(result["linear"], key=lambda model: (-round(model["epsilon"]), model["accuracy"]))
        claims["outsider"] = model | {"holds": accuracy >= model["accuracy"], "sanitized": row["ours"]["epsilon"]}
    if result["baseline"] and name in MAX_BASELINE_GAP:
        baseline, max_gap = average(result["baseline"]), MAX_BASELINE_GAP[name]
        claims["within"] = {"holds": baseline - accuracy <= max_gap, "points": 100.0 * max_gap, "baseline": baseline}
    return claims


def _judge_publication(row: Row) -> Row:
    """Compare the published exact cost with [P]'s pipeline, which may have no valid parameters."""
    ours, paper = row["ours"], row["in_paper"]
    if "refused" in paper:
        text, holds = f"{ours['epsilon']:.3f}; [P]'s is refused: {paper['refused']}", True
    else:
        text = f"{_format_noisy(ours)} against {_format_noisy(paper)}: {ours['epsilon'] / paper['epsilon'] - 1.0:+.0%}"
        holds = ours["epsilon"] <= MAX_PUBLISHED_SHARE * paper["epsilon"]
    return {"name": row["name"], "holds": holds, "measured": text}


OUTSIDE_FILE = "outside.json"
ROUND_FIELDS = ("smoothness", "sensitivity", "noise_scale", "cost", "cost_by_theorem_23")  # of one publication


def fill_page(folder: Path) -> str:
    results = {name: read_json(path) for name in STUDIES if (path := folder / f"{name}.json").is_file()}
    mnist, outside = results.get("mnist"), None
    if (folder / OUTSIDE_FILE).is_file():
        outside = read_json(folder / OUTSIDE_FILE)
        outside |= {"student": _format_accuracy(outside["students"], outside["held_out"]), "ours": mnist}
    run_time = None
    if mnist is not None and mnist.get("in_one_go"):
        run_time = {"jobs": mnist["jobs"], "minutes": (mnist["teacher_seconds"] + mnist["seconds"]) / 60.0}
    sections = {name: _fill_section(result) for name, result in results.items()}
    facts = {
        "authors": read_json(AUTHORS_PATH),
        "outside": outside,
        "studies": [
            {"name": name, "title": study.title, "section": sections.get(name)} for name, study in STUDIES.items()
        ],
        "whole": run_time,
    }
    return fill_template("pate", facts, read_json(folder / "printed.json"))  # printed.json needs no votes


def _fill_section(result: Row) -> str:
    points = list_points(result)
    for point in points:
        error = f" ± {point['deviation']:.3f}" if point["deviation"] else ""
        point["published"] = f"{point['epsilon']:.3f}{error}"
    baseline = _format_accuracy(result["baseline"], result["held_out"])
    published_keys = ("beforehand", "base_beforehand", "base_by_logarithm")
    facts = {
        "is_adult": result["dataset"] == "adult",
        "is_digits": result["dataset"] == "digits",
        "rows": [row | {"cells": _format_cells(row, result["held_out"], result["pool"])} for row in result["rows"]],
        "searched": [
            row | {"cells": {key: _format_noisy(row[key]) for key in published_keys}} for row in result["searched"]
        ],
        "baseline_accuracy": _append_printed(baseline, STUDIES[result["dataset"]].baseline, ".1%"),
        "comparison": points,
        "found": decide_claims(result),
    }
    return fill_template("pate", facts, result, template="study").rstrip("\n")


def _format_cells(row: Row, held_out: int, pool: int) -> Row:
    """Format the cells of Tables 1 and 2 next to the printed numbers."""
    paper = row["paper"] or {"answered": None, "epsilon": None, "accuracy": None}
    rounds = row["in_paper"].get("rounds")
    return {
        "answered": _append_printed(f"{row['answered']:,}", paper["answered"], ",d"),
        "printed": _append_printed(f"{row['costs']['printed']:.3f}", paper["epsilon"], "g"),
        "student": _append_printed(_format_accuracy(row["students"], held_out), paper["accuracy"], ".1%"),
        "rest": _format_accuracy([share for share in row.get("rest", ()) if share is not None], pool - row["queries"]),
        **{name: None if rounds is None else [part[name] for part in rounds] for name in ROUND_FIELDS},
        "in_paper": _format_noisy(row["in_paper"]),
        "ours": None if row["ours"] is None else _format_noisy(row["ours"]),
    }


def _format_accuracy(values: list[float], inputs: int) -> str:
    """Format a mean accuracy ± its binomial error for ``inputs`` inputs, with the range over seeds."""
    if not values:
        return "–"
    share, lowest, highest = average(values), min(values), max(values)
    seeds = f" [{lowest:.1%} to {highest:.1%}]" if highest > lowest else ""
    return f"{share:.2%} ± {100.0 * math.sqrt(max(0.0, share * (1.0 - share)) / inputs):.2f}{seeds}"


def _append_printed(text: str, printed: float | None, digits: str) -> str:
    return text if printed is None else f"{text} ({printed:{digits}})"


def _format_noisy(published: Row) -> str:
    if "refused" in published:
        return str(published["refused"])
    return f"{published['epsilon']:.3f} ± {published['deviation']:.3f}"
