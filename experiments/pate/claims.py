"""What a study's numbers say about the claims of [P], and about the aims of this project; a claim may fail."""

import numpy as np

from experiments.pages import Claim, Row
from experiments.pate.comparison import mean

QUARTER = 0.25
PUBLISHED_SHARE = 0.75  # of [P]'s own pipeline: the aim for what may be published
WITHIN = {"mnist": 0.007, "glyph": 0.09}  # of the baseline: [P] prints 98.5 % of 99.2 %; the aim for the stand-in
LEAST_ACCURACY = {"mnist": (0.985, 0.987)}  # of [P]'s student, and the aim of ours
LEAST_REST = {"mnist": 0.986}  # the aim beyond the queries


def claims_of(result: Row) -> list[Claim]:
    """Decide every claim that the result has numbers for."""
    confident = _row(result, "Confident-GNMax")
    claims = [_quartered(result), _agreement(result), *_figure_4(result), *_figure_5(result)]
    if confident is None:
        return claims
    claims.append(_answers_right(confident))
    if confident["students"]:
        claims += _students(result, confident)
    if confident["costs"]["exact"] is not None:
        ours, theirs = confident["costs"]["exact"], confident["costs"]["theorem_6"]
        measured = f"{ours:.3f} against {theirs:.3f}"
        claims.append(Claim("the exact cost, in both directions, is below Theorem 6", measured, ours < theirs))
    claims += [_published(row) for row in result["rows"] if row["ours"] and "epsilon" in row["ours"]]
    return claims + _interactive(result, confident)


def _row(result: Row, start: str) -> Row | None:
    """Find the row of Table 1 whose name starts so."""
    return next((row for row in result["rows"] if row["name"].startswith(start)), None)


def _quartered(result: Row) -> Claim:
    """Compare ε of both aggregators at the number of answers that Confident-GNMax gives [P, Figure 1]."""
    curves = result["figure_1"]
    answers, epsilon = curves["confident"]["answered"][-1], curves["confident"]["epsilon"][-1]
    lnmax = float(np.interp(answers, curves["lnmax"]["answered"], curves["lnmax"]["epsilon"]))
    return Claim(
        "Confident-GNMax's ε is at most a quarter of LNMax's for as many answers",
        f"{epsilon:.3f} against {lnmax:.3f} for {answers} answers: {epsilon / lnmax:.2f}",
        epsilon <= QUARTER * lnmax,
    )


def _agreement(result: Row) -> Claim:
    """Compare how often nine teachers of ten agree on what is answered."""
    agreement = result["figure_1"]["agreement"]
    every, answered = agreement["lnmax"][-1], agreement["confident"][-1]
    return Claim(
        "answers of Confident-GNMax rest on a stronger consensus than LNMax's",
        f"at least 90 % of the teachers agree on {answered:.1%} of its answers, and on {every:.1%} of all queries",
        answered > every,
    )


def _figure_4(result: Row) -> list[Claim]:
    """Compare ε at the same label accuracy, where both curves reach it."""
    lnmax, gnmax = result["figure_4"]["left"]
    small, large = result["figure_4"]["right"][-2:]
    pairs = (
        ("GNMax needs a smaller ε than LNMax for the same share of right labels", lnmax, gnmax),
        (f"so do {large['name']}, against {small['name']}", small, large),
    )
    claims = []
    for statement, worse, better in pairs:
        ratios = _epsilon_ratios(worse["points"], better["points"])
        if ratios:
            measured = f"{min(ratios):.2f} to {max(ratios):.2f} of it, at {len(ratios)} noise scales"
            claims.append(Claim(statement, measured, max(ratios) < 1.0))
    return claims


def _epsilon_ratios(worse: list[dict[str, float]], better: list[dict[str, float]]) -> list[float]:
    """Divide the least ε with which a curve reaches the label accuracy of each point of another by that point's ε."""
    by_accuracy = sorted((one["accuracy"], one["epsilon"]) for one in better if one["epsilon"] > 0.0)
    accuracies, epsilons = [one[0] for one in by_accuracy], np.log([one[1] for one in by_accuracy])
    least = np.minimum.accumulate(epsilons[::-1])[::-1]  # what reaches a larger accuracy reaches this one
    return [
        float(np.exp(np.interp(point["accuracy"], accuracies, least))) / point["epsilon"]
        for point in worse
        if accuracies[0] <= point["accuracy"] <= accuracies[-1] and point["epsilon"] > 0.0
    ]


def _figure_5(result: Row) -> list[Claim]:
    """Compare the two checks with each other."""
    curves = result["figure_5"]["curves"]
    moderate, aggressive = curves["moderate"], curves["aggressive"]
    more = aggressive["answered"][-1] < moderate["answered"][-1]
    answers = aggressive["answered"][-1]
    at = float(np.interp(answers, moderate["answered"], moderate["epsilon"]))
    share = moderate["check"][-1] / moderate["epsilon"][-1]
    return [
        Claim(
            "the aggressive check answers fewer queries than the moderate one",
            f"{answers} and {moderate['answered'][-1]} of {result['figure_5']['queries']}",
            more,
        ),
        Claim(
            "the moderate check gives as many answers as the aggressive one at a smaller ε",
            f"{at:.3f} against {aggressive['epsilon'][-1]:.3f} for {answers} answers",
            at < aggressive["epsilon"][-1],
        ),
        Claim("selecting takes a third to a half of the cost", f"{share:.0%} (moderate)", 1 / 3 <= share <= 1 / 2),
    ]


def _answers_right(row: Row) -> Claim:
    answered, plurality = row["label_accuracy"], row["plurality_accuracy"]
    return Claim(
        "the answers are more often right than the plurality of all queries",
        f"{answered:.1%} of {row['answered']} answers, {plurality:.1%} of {row['queries']} queries",
        answered > plurality,
    )


def _students(result: Row, row: Row) -> list[Claim]:
    """Compare the student with the aims and with the baseline."""
    accuracy = mean(row["students"])
    claims = [
        Claim(f"the student reaches {least:.1%}", f"{accuracy:.2%}", accuracy >= least)
        for least in LEAST_ACCURACY.get(result["dataset"], ())
    ]
    if row.get("rest") and result["dataset"] in LEAST_REST:
        least, rest = LEAST_REST[result["dataset"]], mean(row["rest"])
        claims.append(Claim(f"and {least:.1%} beyond the queries", f"{rest:.3%}", rest >= least))
    lnmax = _row(result, "LNMax")
    if lnmax is not None and lnmax["students"]:
        other = mean(lnmax["students"])
        statement = f"its student is better than that of {lnmax['queries']} answers by LNMax"
        claims.append(Claim(statement, f"{accuracy:.2%} against {other:.2%}", accuracy > other))
    if result.get("linear"):
        outsider = max(result["linear"], key=lambda one: (-round(one["epsilon"]), one["accuracy"]))
        statement = f"it is as good as the best linear model by DP-SGD at ε = {outsider['epsilon']:.2f}"
        measured = f"{accuracy:.2%} at a sanitized ε of {row['ours']['epsilon']:.2f} against {outsider['accuracy']:.2%}"
        claims.append(Claim(statement, measured, accuracy >= outsider["accuracy"]))
    if result["baseline"] and result["dataset"] in WITHIN:
        baseline, within = mean(result["baseline"]), WITHIN[result["dataset"]]
        statement = f"the student is within {100.0 * within:.1f} points of the non-private baseline"
        claims.append(Claim(statement, f"{accuracy:.2%} of {baseline:.2%}", baseline - accuracy <= within))
    return claims


def _published(row: Row) -> Claim:
    """Compare what may be published by the exact cost with [P]'s own pipeline."""
    ours, theirs = row["ours"]["epsilon"], row["in_paper"].get("epsilon")
    statement = f"{row['name']}: the sanitized ε is at least 25 % below that of [P]'s pipeline"
    if theirs is None:
        return Claim(statement, f"{ours:.3f}; [P]'s is refused: {row['in_paper']['refused']}", holds=True)
    measured = f"{ours:.3f} ± {row['ours']['deviation']:.3f} against {theirs:.3f} ± {row['in_paper']['deviation']:.3f}"
    return Claim(statement, f"{measured}: {ours / theirs - 1.0:+.0%}", ours <= PUBLISHED_SHARE * theirs)


def _interactive(result: Row, confident: Row) -> list[Claim]:
    row = _row(result, "Interactive")
    if row is None:
        return []
    share = row["answered"] / confident["answered"]
    measured = f"{row['answered']} against {confident['answered']}: {share:.2f}"
    claims = [Claim("Interactive-GNMax needs at most half of the answers", measured, share <= 0.5)]
    ours, theirs = row["costs"]["theorem_6"], confident["costs"]["theorem_6"]
    claims.append(Claim("and a smaller ε (Theorem 6)", f"{ours:.3f} against {theirs:.3f}", ours < theirs))
    return claims
