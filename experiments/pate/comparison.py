"""The comparison that matters to a user: accuracy of the final model against the ε that may be published for it."""

from dataclasses import dataclass

from experiments.pages import Row

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
    """A model: by which way, after how many queries and answers, at which ε (± its noise), and how accurate it is."""

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
    """Return the mean."""
    return sum(values) / len(values)


def _outsider(one: Row) -> Point:
    return Point(
        LINEAR[one["scaled_by"]] if "scaled_by" in one else DPSGD, None, None, one["epsilon"], 0.0, one["accuracy"]
    )


def _point(way: str, row: Row, epsilon: float, deviation: float) -> Point:
    return Point(way, row["queries"], row["answered"], epsilon, deviation, mean(row["students"]))
