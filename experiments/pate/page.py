"""The page about [P] on real votes and about what its printed columns determine, from the JSON of the runs alone."""

import math
from pathlib import Path

from experiments.pages import Row, claims_table, filled, read_json
from experiments.pate.claims import claims_of
from experiments.pate.comparison import comparison, mean
from experiments.pate.settings import NETWORKS, PLANS, STUDIES

CLUSTER, OUTSIDE = "cluster.json", "outside.json"
PRINTED = "printed"  # the JSON of what needs no votes
PARTS = ("smoothness", "sensitivity", "noise_scale", "cost", "cost_by_theorem_23")  # of the publication of a round


def page(folder: Path) -> str:
    """Write the page from the files of a folder."""
    paths = {name: folder / f"{name}.json" for name in STUDIES}
    sections = {name: _section(read_json(path)) if path.is_file() else None for name, path in paths.items()}
    mnist = read_json(paths["mnist"]) if paths["mnist"].is_file() else None
    outside = read_json(folder / OUTSIDE) if (folder / OUTSIDE).is_file() else None
    if outside is not None:
        outside |= {"student": _accuracy(outside["students"], outside["held_out"]), "ours": mnist}
    facts = {
        "outside": outside,
        "studies": [{"name": name, "title": STUDIES[name].title, "section": text} for name, text in sections.items()],
        "whole": _whole(mnist) if mnist is not None and mnist.get("in_one_go") else None,
        "cluster": read_json(folder / CLUSTER) if (folder / CLUSTER).is_file() else None,
    }
    return filled("pate", facts, read_json(folder / f"{PRINTED}.json"))


def _whole(result: Row) -> Row:
    """Say how long a run took that read nothing of an earlier one."""
    return {"jobs": result["jobs"], "minutes": (result["teacher_seconds"] + result["seconds"]) / 60.0}


def _section(result: Row) -> str:
    """Write what a run found."""
    points = [
        vars(point) | {"published": f"{point.epsilon:.3f}" + (f" ± {point.deviation:.3f}" if point.deviation else "")}
        for point in comparison(result)
    ]
    facts = {
        "is_stand_in": result["dataset"] in {"glyph", NETWORKS},
        "is_linear": result["dataset"] == "glyph",
        "is_of_networks": result["dataset"] == NETWORKS,
        "is_adult": result["dataset"] == "adult",
        "is_digits": result["dataset"] == "digits",
        "rows": [row | {"cells": _cells(row, result["held_out"], result["pool"])} for row in result["rows"]],
        "searched": [row | {"cells": _searched(row)} for row in result["searched"]],
        "baseline_accuracy": _beside(
            _accuracy(result["baseline"], result["held_out"]), PLANS[result["dataset"]].baseline, ".1%"
        ),
        "comparison": points,
        "claims": claims_table(claims_of(result)),
    }
    return filled("pate", facts, result, template="study").rstrip("\n")


def _cells(row: Row, held_out: int, pool: int) -> Row:
    """Write what a row of Tables 1 and 2 has beside printed numbers, for several rounds, or not at all."""
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
    """Write what parameters reach that were chosen on public votes."""
    return {name: _with_noise(row[name]) for name in ("beforehand", "base_beforehand", "base_by_logarithm")}


def _accuracy(values: list[float], inputs: int) -> str:
    """Write a mean accuracy, ± the binomial error of so many inputs, and the range over several seeds."""
    if not values:
        return "–"
    share, least, most = mean(values), min(values), max(values)
    seeds = f" [{least:.1%} to {most:.1%}]" if most > least else ""
    return f"{share:.2%} ± {100.0 * math.sqrt(max(0.0, share * (1.0 - share)) / inputs):.2f}{seeds}"


def _beside(ours: str, printed: float | None, digits: str) -> str:
    """Write our number, and the printed one in parentheses."""
    return ours if printed is None else f"{ours} ({printed:{digits}})"


def _with_noise(published: Row) -> str:
    if "refused" in published:
        return str(published["refused"])
    return f"{published['epsilon']:.3f} ± {published['deviation']:.3f}"
