"""The page about [P] on real votes and about what its printed columns determine, from the JSON of the runs alone."""

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from experiments.pages import Row, filled, read_json
from experiments.pate.settings import PLANS, STUDIES

AUTHORS = Path(__file__).parents[2] / "docs" / "reproduction" / "pate_votes" / "pate_votes.json"
PRINTED = "[P] as printed (not publishable)"
SANITIZED = "[P], sanitized by GNSS"
OURS = "exact cost, sanitized"
SEARCHED = "exact cost, all parameters from public votes"
BY_LABEL = "GNMax by label, nothing to sanitize"
DPSGD = "DP-SGD, the same network"
LINEAR = {  # by what scales the features
    "groups": "DP-SGD, linear on scattering",
    "pool": "DP-SGD, linear, scaled by the pool",
}


@dataclass(frozen=True)
class Point:
    """A model: its way, its numbers of queries and answers, its ε (± the noise of publication), its accuracy."""

    way: str
    queries: int | None
    answered: int | None
    epsilon: float
    deviation: float
    accuracy: float


def comparison(result: Row) -> list[Point]:
    """List the points of a study, way by way; a row without a student or without such an ε has none."""
    confident = [row for row in [*result["rows"], *result["points"]] if row["name"] == "Confident-GNMax"]
    points = []
    for way, place in ((PRINTED, None), (SANITIZED, "in_paper"), (OURS, "ours")):
        for row in sorted(confident, key=lambda one: int(one["queries"])):
            found = {"epsilon": row["costs"]["printed"], "deviation": 0.0} if place is None else row[place]
            if found is None or "refused" in found or not row["students"]:
                continue
            points.append(_point(way, row, found["epsilon"], found["deviation"]))
    points += [
        _point(SEARCHED, row, row["beforehand"]["epsilon"], row["beforehand"]["deviation"])
        for row in result["searched"]
        if row["students"]
    ]
    points += [_point(BY_LABEL, row, row["epsilon"], 0.0) for row in result["by_label"] if row["students"]]
    return points + [_outsider(one) for one in [*result["dpsgd"], *result.get("linear", ())]]


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


def _outsider(one: Row) -> Point:
    return Point(
        LINEAR[one["scaled_by"]] if "scaled_by" in one else DPSGD, None, None, one["epsilon"], 0.0, one["accuracy"]
    )


def _point(way: str, row: Row, epsilon: float, deviation: float) -> Point:
    return Point(way, row["queries"], row["answered"], epsilon, deviation, mean(row["students"]))


QUARTER, CHECKS = 0.25, ("moderate", "aggressive")
PUBLISHED_SHARE = 0.75  # of [P]'s own pipeline: the aim for the published ε
WITHIN = {"mnist": 0.007}  # of the baseline: [P] prints 98.5 % of 99.2 %
LEAST_ACCURACY = {"mnist": (0.985, 0.987)}  # of [P]'s student, and the aim of ours
LEAST_REST = {"mnist": 0.986}  # the aim beyond the queries


def decided(result: Row) -> Row:
    """Decide every claim of the template that the result has numbers for; a claim without numbers is None."""
    figure_1, figure_5 = result["figure_1"]["confident"], result["figure_5"]["curves"]
    answers, epsilon = figure_1["answered"][-1], figure_1["epsilon"][-1]
    lnmax_epsilon = _epsilon_at(answers, result["figure_1"]["lnmax"])
    agreement = {name: shares[-1] for name, shares in result["figure_1"]["agreement"].items()}
    moderate, aggressive = ({key: curve[key][-1] for key in curve} for curve in map(figure_5.get, CHECKS))
    at = _epsilon_at(aggressive["answered"], figure_5["moderate"])
    share = moderate["check"] / moderate["epsilon"]
    small, large = result["figure_4"]["right"][-2:]
    found = {
        "quarter": _claim(epsilon <= QUARTER * lnmax_epsilon, epsilon, lnmax_epsilon) | {"answers": answers},
        "agreement": {"holds": agreement["confident"] > agreement["lnmax"], **agreement},
        "noise": _ratios(*(curve["points"] for curve in result["figure_4"]["left"])),
        "size": _ratios(small["points"], large["points"]),
        "names": {"small": small["name"], "large": large["name"]},
        "fewer": _claim(aggressive["answered"] < moderate["answered"], aggressive["answered"], moderate["answered"]),
        "moderate": _claim(at < aggressive["epsilon"], at, aggressive["epsilon"]),
        "selecting": {"holds": 1 / 3 <= share <= 1 / 2, "share": share},
        "published": [_published(row) for row in result["rows"] if row["ours"] and "epsilon" in row["ours"]],
    }
    confident = _row(result, "Confident-GNMax")
    if confident is None:
        return found | {"published": []}
    found["right"] = {"holds": confident["label_accuracy"] > confident["plurality_accuracy"], "row": confident}
    if confident["students"]:
        found |= _students(result, confident)
    costs = confident["costs"]
    if costs["exact"] is not None:
        found["exact"] = _claim(costs["exact"] < costs["theorem_6"], costs["exact"], costs["theorem_6"])
    return found


def _claim(holds: bool, ours: float, other: float) -> Row:
    return {"holds": holds, "ours": ours, "other": other, "ratio": ours / other}


def _row(result: Row, start: str) -> Row | None:
    """Find the row of Table 1 whose name starts so."""
    return next((row for row in result["rows"] if row["name"].startswith(start)), None)


def _epsilon_at(answers: int, curve: Row) -> float:
    """Interpolate the ε of a curve at a number of answers."""
    return float(np.interp(answers, curve["answered"], curve["epsilon"]))


def _ratios(worse: list[dict[str, float]], better: list[dict[str, float]]) -> Row | None:
    """Divide the least ε with which a curve reaches the label accuracy of each point of another by that point's ε."""
    by_accuracy = sorted((one["accuracy"], one["epsilon"]) for one in better if one["epsilon"] > 0.0)
    accuracies, epsilons = [one[0] for one in by_accuracy], np.log([one[1] for one in by_accuracy])
    least = np.minimum.accumulate(epsilons[::-1])[::-1]  # what reaches a larger accuracy reaches this one
    ratios = [
        float(np.exp(np.interp(point["accuracy"], accuracies, least))) / point["epsilon"]
        for point in worse
        if accuracies[0] <= point["accuracy"] <= accuracies[-1] and point["epsilon"] > 0.0
    ]
    if not ratios:
        return None
    return {"holds": max(ratios) < 1.0, "least": min(ratios), "most": max(ratios), "number": len(ratios)}


def _students(result: Row, row: Row) -> Row:
    """Compare the student with the aims, with the student of LNMax's answers and with the baseline."""
    name, accuracy = result["dataset"], mean(row["students"])
    aims = [{"holds": accuracy >= least, "least": least} for least in LEAST_ACCURACY.get(name, ())]
    found: Row = {"accuracy": accuracy, "aims": aims}
    if row.get("rest") and name in LEAST_REST:
        found["rest"] = _claim(mean(row["rest"]) >= LEAST_REST[name], mean(row["rest"]), LEAST_REST[name])
    lnmax = _row(result, "LNMax")
    if lnmax is not None and lnmax["students"]:
        other = mean(lnmax["students"])
        found["lnmax"] = {"holds": accuracy > other, "queries": lnmax["queries"], "accuracy": other}
    if result.get("linear"):
        outsider = max(result["linear"], key=lambda one: (-round(one["epsilon"]), one["accuracy"]))
        sanitized = row["ours"]["epsilon"]
        found["outsider"] = outsider | {"holds": accuracy >= outsider["accuracy"], "sanitized": sanitized}
    if result["baseline"] and name in WITHIN:
        baseline, within = mean(result["baseline"]), WITHIN[name]
        found["within"] = {"holds": baseline - accuracy <= within, "points": 100.0 * within, "baseline": baseline}
    return found


def _published(row: Row) -> Row:
    """Compare the published exact cost with [P]'s own pipeline, which may refuse."""
    ours, theirs = row["ours"], row["in_paper"]
    if "refused" in theirs:
        measured, holds = f"{ours['epsilon']:.3f}; [P]'s is refused: {theirs['refused']}", True
    else:
        measured = (
            f"{_with_noise(ours)} against {_with_noise(theirs)}: {ours['epsilon'] / theirs['epsilon'] - 1.0:+.0%}"
        )
        holds = ours["epsilon"] <= PUBLISHED_SHARE * theirs["epsilon"]
    return {"name": row["name"], "holds": holds, "measured": measured}


OUTSIDE = "outside.json"
PARTS = ("smoothness", "sensitivity", "noise_scale", "cost", "cost_by_theorem_23")  # of the publication of a round


def page(folder: Path) -> str:
    paths = {name: folder / f"{name}.json" for name in STUDIES}
    sections = {name: _section(read_json(path)) if path.is_file() else None for name, path in paths.items()}
    mnist = read_json(paths["mnist"]) if paths["mnist"].is_file() else None
    outside = read_json(folder / OUTSIDE) if (folder / OUTSIDE).is_file() else None
    if outside is not None:
        outside |= {"student": _accuracy(outside["students"], outside["held_out"]), "ours": mnist}
    facts = {
        "authors": read_json(AUTHORS),
        "outside": outside,
        "studies": [{"name": name, "title": STUDIES[name].title, "section": text} for name, text in sections.items()],
        "whole": _whole(mnist) if mnist is not None and mnist.get("in_one_go") else None,
    }
    return filled("pate", facts, read_json(folder / "printed.json"))  # which needs no votes


def _whole(result: Row) -> Row:
    return {"jobs": result["jobs"], "minutes": (result["teacher_seconds"] + result["seconds"]) / 60.0}


def _section(result: Row) -> str:
    points = [
        vars(point) | {"published": f"{point.epsilon:.3f}" + (f" ± {point.deviation:.3f}" if point.deviation else "")}
        for point in comparison(result)
    ]
    facts = {
        "is_adult": result["dataset"] == "adult",
        "is_digits": result["dataset"] == "digits",
        "rows": [row | {"cells": _cells(row, result["held_out"], result["pool"])} for row in result["rows"]],
        "searched": [row | {"cells": _searched(row)} for row in result["searched"]],
        "baseline_accuracy": _beside(
            _accuracy(result["baseline"], result["held_out"]), PLANS[result["dataset"]].baseline, ".1%"
        ),
        "comparison": points,
        "found": decided(result),
    }
    return filled("pate", facts, result, template="study").rstrip("\n")


def _cells(row: Row, held_out: int, pool: int) -> Row:
    """Write the cells of Tables 1 and 2 with printed numbers, with several rounds, or without a value."""
    paper = row["paper"] or {"answered": None, "epsilon": None, "accuracy": None}
    rounds = row["in_paper"].get("rounds")
    return {
        "answered": _beside(f"{row['answered']:,}", paper["answered"], ",d"),
        "printed": _beside(f"{row['costs']['printed']:.3f}", paper["epsilon"], "g"),
        "student": _beside(_accuracy(row["students"], held_out), paper["accuracy"], ".1%"),
        "rest": _accuracy([one for one in row.get("rest", ()) if one is not None], pool - row["queries"]),
        **{name: None if rounds is None else [part[name] for part in rounds] for name in PARTS},
        "in_paper": _with_noise(row["in_paper"]),
        "ours": None if row["ours"] is None else _with_noise(row["ours"]),
    }


def _searched(row: Row) -> Row:
    return {name: _with_noise(row[name]) for name in ("beforehand", "base_beforehand", "base_by_logarithm")}


def _accuracy(values: list[float], inputs: int) -> str:
    """Write a mean accuracy, ± the binomial error of ``inputs`` inputs, and the range over several seeds."""
    if not values:
        return "–"
    share, least, most = mean(values), min(values), max(values)
    seeds = f" [{least:.1%} to {most:.1%}]" if most > least else ""
    return f"{share:.2%} ± {100.0 * math.sqrt(max(0.0, share * (1.0 - share)) / inputs):.2f}{seeds}"


def _beside(ours: str, printed: float | None, digits: str) -> str:
    return ours if printed is None else f"{ours} ({printed:{digits}})"


def _with_noise(published: Row) -> str:
    if "refused" in published:
        return str(published["refused"])
    return f"{published['epsilon']:.3f} ± {published['deviation']:.3f}"
