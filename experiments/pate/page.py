"""The page about [P] on real votes and about what its printed columns determine, from the JSON of the runs alone."""

from pathlib import Path
from typing import Any

from darrm.papers import PAPERS
from experiments.pages import claims_table, read_json, table
from experiments.pate.claims import claims_of
from experiments.pate.comparison import comparison, mean
from experiments.pate.settings import PLANS, STUDIES

Result = dict[str, Any]
CLUSTER = "cluster.json"
PRINTED = "printed"  # the JSON of what needs no votes
TITLES = {
    "digits": "Digits (scikit-learn)",
    "mnist": "MNIST",
    "fashion-mnist": "Fashion-MNIST",
    "glyph": "Glyph, a stand-in",
    "svhn": "SVHN",
    "adult": "Adult",
}

INTRODUCTION = f"""# PATE on real votes: Tables 1 and 2, Figures 1, 4 and 5 of [P]

[P] is {PAPERS["P"]}.

[D] is {PAPERS["D"]}.

Written by `python -m experiments.pate --page --output docs/reproduction` from the JSON of the runs
(`python -m experiments.pate --dataset NAME --output docs/reproduction`), and from nothing else. Teachers are trained on
disjoint shards, asked about public inputs, their votes are aggregated with exact discrete noise (from a fixed seed, so
that a run can be repeated; a release draws from the operating system), and students are trained on the answers.

## How to read the columns

- **ε, printed way**: [P, Theorem 6] by the conversion of [P, Theorem 5]; beside it the number that [P] prints for its
  own votes. **Theorem 6**: the same by the tight conversion. **exact**: the label's own cost at the recorded votes, the
  worse of both directions. **by label**: whatever the votes, for as many answers.
- **What is one-sided.** Theorem 6 bounds D(M(D)‖M(D′)) at the data set D at hand. The guarantee that a person gets also
  needs the other direction, D(M(D′)‖M(D)), and Theorem 6 says nothing of it at D; only the exact column holds both.
- **What may be published.** ε from the votes is private data, in [P] as here. "Sanitized" is what may be published,
  its own cost included: "± noise" is the standard deviation of the noise. The parameters were searched on these very
  votes, as in [P, Table 2]: a fortunate choice, for both pipelines alike. "By label" may be published as it is.
- **More noise is not always less ε** where ε comes from the votes: little noise leaves a consensus alone, and costs
  little where there is one. So the curves of Figure 4 bend back.
- A claim that the run does not bear out stays, in bold."""

TABLE_2 = """The recomputed totals are expected ε + Theorem 23 as printed. SVHN's does not add up in print. The proof of
Theorem 23 covers λβ ≤ 1/4 only; the last column is the exact worst case of the mechanism (two Gaussians attain it),
which is what this project charges. The total then has to be made small by another choice of β and σ_SS, which
`search_parameters` does."""

STAND_IN = """[P]'s set of 150 classes of characters is not public. This one is a stand-in: characters drawn from fonts,
deformed, unbalanced, with ambiguous pairs and wrong labels. Its numbers say how the mechanisms behave at that size;
they are not a reproduction of the paper's row, whose numbers are printed beside them in parentheses."""


def page(folder: Path) -> str:
    """Write the page from the files of a folder."""
    parts = [INTRODUCTION]
    for name in STUDIES:
        path = folder / f"{name}.json"
        parts.append(f"## {TITLES[name]}")
        if path.is_file():
            parts += _study(read_json(path))
        else:
            parts.append(f"Data not at hand: no run of `--dataset {name}` lies here.")
    if (folder / CLUSTER).is_file():
        parts += ["## Where one machine is outgrown", _cluster(read_json(folder / CLUSTER))]
    return "\n\n".join([*parts, *_printed_parts(read_json(folder / f"{PRINTED}.json"))]) + "\n"


def _study(result: Result) -> list[str]:
    """Write what a run found."""
    name = result["dataset"]
    parts = [STAND_IN] if name == "glyph" else []
    parts += [_setting(result), "**Table 1**", _table_1(result), "**Table 2**", _table_2(result)]
    parts += [_searched(row) for row in result["searched"]]
    if comparison(result):
        parts += [_comparison(result), f"![Accuracy against ε](pate/{name}-comparison.png)"]
    parts += ["**Claims**", claims_table(claims_of(result))]
    parts += [f"![Figure {number}](pate/{name}-figure-{number}.png)" for number in (1, 4, 5)]
    return parts


def _setting(result: Result) -> str:
    """Say what was run."""
    short = " A shortened run (`--quick`)." if result["quick"] else ""
    return (
        f"{result['teachers']:,} teachers, {result['classes']} classes, δ = {result['delta']:g}. One teacher is right "
        f"on {result['teacher_accuracy']:.1%} of the {result['pool']:,} public inputs, their plurality on "
        f"{result['plurality_accuracy']:.1%}; {result['held_out']:,} inputs measure the students. SHA-256 of the "
        f"votes: `{result['digest']}`. Labels are drawn from seed {result['label_seed']}, students from seeds "
        f"{', '.join(map(str, result['student_seeds']))}. Teachers took {result['teacher_seconds']:.0f} s, the rest "
        f"{result['seconds']:.0f} s (what was kept from an earlier run counts for nothing).{short}"
    )


def _table_1(result: Result) -> str:
    head = [
        "aggregator",
        "queries",
        "answered ([P])",
        "right",
        "ε, printed way ([P])",
        "Theorem 6",
        "exact",
        "by label",
    ]
    rows = []
    for row in result["rows"]:
        cost, paper = row["costs"], row["paper"] or {"answered": None, "epsilon": None, "accuracy": None}
        rows.append(
            [
                f"{row['name']}: `{row['aggregator']}`",
                f"{row['queries']:,}",
                _beside(f"{row['answered']:,}", paper["answered"], ",d"),
                "–" if row["label_accuracy"] is None else f"{row['label_accuracy']:.1%}",
                _beside(f"{cost['printed']:.3f}", paper["epsilon"], "g"),
                f"{cost['theorem_6']:.3f}",
                _number(cost["exact"]),
                f"{cost['by_label']:.3f}",
                _beside(_accuracy(row["students"]), paper["accuracy"], ".1%"),
            ]
        )
    baseline = _beside(_accuracy(result["baseline"]), PLANS[result["dataset"]].baseline, ".1%")
    rows.append(["non-private baseline", *["–"] * 7, baseline])
    return table([*head, "student ([P])"], rows)


def _table_2(result: Result) -> str:
    head = ["aggregator", "ε at λ", "λ", "β", "SS_β", "σ_SS", "cost of GNSS", "Theorem 23 as printed"]
    rows = []
    for row in result["rows"]:
        found = row["in_paper"]
        ours = "–" if row["ours"] is None else _with_noise(row["ours"])
        if "refused" in found:
            rows.append([row["name"], *["–"] * 7, found["refused"], ours])
            continue
        parts = found["rounds"]
        rows.append(
            [
                row["name"],
                f"{found['before']:.3f}",
                f"{found['order']:g}",
                *(_parts(parts, key) for key in ("smoothness", "sensitivity", "noise_scale", "cost")),
                _parts(parts, "cost_by_theorem_23"),
                _with_noise(found),
                ours,
            ]
        )
    return table([*head, "sanitized ε ± noise", "ours, sanitized ε ± noise"], rows)


def _searched(row: Result) -> str:
    """Say what parameters reach that were chosen on public votes."""
    threshold, check_noise, answer_noise = row["search"]["aggregator"]
    order, deviation = row["search"]["publication"]
    right = "–" if row["label_accuracy"] is None else f"{row['label_accuracy']:.1%}"
    return (
        "**Parameters from public votes.** Searched on synthetic votes of this size, for at least as many and as right "
        f"expected answers as the last row and the smallest ε: T = {threshold:g}, σ₁ = {check_noise:g}, σ₂ = "
        f"{answer_noise:g}, λ = {order:g}, s = {deviation:.2f} votes. On the votes of this study they give "
        f"{row['answered']:,} answers of {row['queries']:,} queries, {right} right, at a sanitized ε of "
        f"{_with_noise(row['beforehand'])}; the paper's T, σ₁ and σ₂ with the same λ and s give "
        f"{_with_noise(row['base_beforehand'])}. Nothing was chosen on private votes here.\n\n"
        "Generalized propose-test-release (Redberg, Zhu and Wang, arXiv:2301.00301) publishes a bound on the smooth "
        "sensitivity first; built so on Theorem 6, and searched on these votes like Table 2, the last row's ε becomes "
        f"{_with_noise(row['base_by_logarithm'])}."
    )


def _comparison(result: Result) -> str:
    rows = [
        [
            point.way,
            "–" if point.queries is None else f"{point.queries:,}",
            "–" if point.answered is None else f"{point.answered:,}",
            f"{point.epsilon:.3f}" + (f" ± {point.deviation:.3f}" if point.deviation else ""),
            f"{point.accuracy:.2%}",
        ]
        for point in comparison(result)
    ]
    head = ["way", "queries", "answers", f"ε at δ = {result['delta']:g}", "accuracy of the model"]
    return "**What may be published, and what it buys**\n\n" + table(head, rows)


def _cluster(found: Result) -> str:
    """Say what a cluster of local workers did."""
    same = "the same to the last bit as" if found["same_votes"] else "**not the same as**"
    before, after = (", ".join(map(str, found[key])) for key in ("worker_megabytes_before", "worker_megabytes"))
    return (
        f"`python -m experiments.pate.cluster`: {found['teachers']:,} teachers ({found['dataset']}) trained and asked "
        f"about {found['queries']:,} inputs on {found['workers']} Dask workers of a machine with {found['processors']} "
        f"processors. Their votes are {same} those of one process. {found['seconds']:.0f} s, in one process "
        f"{found['seconds_alone']:.0f} s; peak memory of the workers {after} MB, before any work {before} MB."
    )


def _printed_parts(numbers: Result) -> list[str]:
    """Write what the printed columns determine."""
    fixed = numbers["fixed_part"]
    return [
        "## Table 2 from its own columns",
        _printed_table_2(numbers["table_2"]),
        TABLE_2,
        (
            f"The fixed part {fixed['printed_total']:.2f} is printed as {fixed['printed_cost']:.2f} + "
            f"{fixed['theorem_23']:.2f} − ln({fixed['delta']:g})/{fixed['order']:g}: a conversion with 1/λ, where "
            f"Theorem 5 has 1/(λ − 1). With Theorem 5 the same costs give {fixed['by_theorem_5']:.2f}."
        ),
        "## Table 4 of [D]: noise of the GNMax baseline",
        _table_4(numbers["table_4"]),
        "The printed σ is the minimum over the grid; the printed λ is not where it is reached.",
    ]


def _printed_table_2(rows: list[Result]) -> str:
    head = ["data", "printed total", "recomputed", "printed noise", "recomputed", "λβ", "Theorem 23 as printed"]
    line = "{name}|{printed_total:.2f}|{recomputed_total:.3f}|{printed_deviation:.3f}|{recomputed_deviation:.3f}"
    line += "|{order_times_beta:.2f}|{theorem_23:.3f}|{exact:.3f}"
    return table([*head, "exact cost"], [line.format(**row).split("|") for row in rows])


def _table_4(rows: list[Result]) -> str:
    names = ("printed_sigma", "sigma", "printed_order", "order", "sigma_at_printed_order", "analytic_sigma")
    head = ["data", "printed σ", "σ", "printed λ", "minimizing λ", "σ at the printed λ", "analytic σ (least possible)"]
    return table(head, [[row["name"], *(f"{row[name]:.2f}" for name in names)] for row in rows])


def _accuracy(values: list[float]) -> str:
    """Write a mean accuracy, ± half of the range where there are several."""
    if not values:
        return "–"
    spread = f" ± {50.0 * (max(values) - min(values)):.2f}" if len(values) > 1 else ""
    return f"{100.0 * mean(values):.2f}{spread} %"


def _beside(ours: str, printed: float | None, digits: str) -> str:
    """Write our number, and the printed one in parentheses."""
    return ours if printed is None else f"{ours} ({printed:{digits}})"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _parts(parts: list[Result], key: str) -> str:
    """Write a number of each round."""
    return ", ".join("–" if part[key] is None else f"{part[key]:.3g}" for part in parts)


def _with_noise(found: Result) -> str:
    return str(found["refused"]) if "refused" in found else f"{found['epsilon']:.3f} ± {found['deviation']:.3f}"
