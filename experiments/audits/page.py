"""What `python -m experiments.audits` shows: its claims, decided by the run, and its tables."""

from typing import Any

from experiments.pages import Claim, claims_table, table

TWO_THIRDS = 2 / 3
NEARLY_ATTAINED = 0.85  # of ε, what a million labels should refute

INTRODUCTION = """# Audits: lower bounds from outside

Written by `python -m experiments.audits --output docs/reproduction` from the JSON file of its run. A proof bounds what
a release loses from above. Here labels and models are attacked, and what the attacks find bounds the loss from below,
with a stated confidence. Between the two lies the truth, and a claim that is false, or much too large, would show."""

TABLES = """## Private majorities

`darrm.verify.attack` draws labels through the release itself, from the votes of two neighbors: the worst pair of all,
which the prover knows, the worst one of a majority without noise, and random ones. The number *refuted* is the largest
ε that the labels rule out at the δ of the claim, all pairs and events counted, and *true* the smallest ε that holds.
Rényi divergences are of the order in the head, refuted of true, the largest of the pairs drawn."""

ONE_RUN = """## DP-SGD teachers, one training each

Canaries that are in the training data by fair coins; the auditor guesses half of them from the trained weights
[Steinke, Nasr and Jagielski 2023]. One training of {canaries:,} canaries, confidence {confidence:g}, δ = {delta:g}. The
method cannot refute much of an honest claim: it has one training, one threshold, and coins instead of neighbors. What
it is for is the rows without clipping: a planted bug, with the same noise and the same claim."""

NOISY_MAXIMA = """## PATE's noisy maxima

A label is charged for the noisy counts behind it. Drawn on the worst pairs of histograms of two classes
({voters} votes, {draws:,} labels on either side, confidence {confidence:g}), it loses less, which agrees with the
audits of Chadha et al. (ICML 2024). *Exact* is the label's own divergence on the worst pair of all, from the law of the
noise; what the labels refute lies below it, far below where the worst pair is decided by answers too rare to be
drawn."""


def decide(data: dict[str, Any]) -> list[Claim]:
    """Decide what the page says."""
    tables, runs, maxima = data["tables"], data["one_run"], data["noisy_maxima"]
    false = [row["name"] for row in tables if row["claim_refuted"] or row["departures"]]
    share = min(row["refuted_epsilon"] / row["claimed_epsilon"] for row in tables)
    honest = max(run["refuted"] / run["claimed"] for run in runs if run["clipped"])
    planted = min(run["refuted"] / run["claimed"] for run in runs if not run["clipped"])
    above = max(row["refuted"] / row["charged"] for row in maxima)
    exact = max(row["exact"] / row["charged"] for row in maxima if row["order"] == 2.0)
    return [
        Claim("no attack refutes a table's claim", f"{len(false)} of {len(tables)} tables refuted", not false),
        Claim(
            f"the claims are nearly attained: labels refute {NEARLY_ATTAINED:.0%} of ε",
            f"at least {share:.3f}",
            share >= NEARLY_ATTAINED,
        ),
        Claim("honest DP-SGD stands", f"refuted at most {honest:.3f} of the claim", honest < 1.0),
        Claim("DP-SGD without clipping is refuted", f"refuted at least {planted:.3f} of the claim", planted > 1.0),
        Claim("no label of PATE refutes its charge", f"at most {above:.3f} of the charge", above < 1.0),
        Claim(
            "at order 2 a label of PATE loses at most two thirds of its charge",
            f"exactly, at most {exact:.3f} of it",
            exact <= TWO_THIRDS,
        ),
    ]


def page(data: dict[str, Any]) -> str:
    """Write the page from the data."""
    runs, maxima = data["one_run"], data["noisy_maxima"]
    facts = {"canaries": runs[0]["canaries"], "confidence": runs[0]["confidence"], "delta": data["one_run_delta"]}
    drawn = {"voters": data["voters"], "draws": maxima[0]["draws"], "confidence": maxima[0]["confidence"]}
    parts = [INTRODUCTION, claims_table(decide(data)), TABLES, _tables(data["tables"])]
    parts += [ONE_RUN.format(**facts), _runs(runs), NOISY_MAXIMA.format(**drawn), _maxima(maxima)]
    return "\n\n".join(parts) + "\n"


def _tables(rows: list[dict[str, Any]]) -> str:
    orders = [f"order {item['order']:g}" for item in rows[0]["renyi"]]
    head = ["table", "labels a side", "δ", "refuted ε", "true ε", "claimed ε", *orders]
    return table(
        head,
        [
            [
                row["name"],
                f"{row['draws']:,}",
                f"{row['claimed_delta']:.3g}",
                f"{row['refuted_epsilon']:.4f}",
                f"{row['worst_epsilon']:.4f}",
                f"{row['claimed_epsilon']:.4f}",
                *(f"{item['refuted']:.4f} of {item['true']:.4f}" for item in row["renyi"]),
            ]
            for row in rows
        ],
    )


def _runs(runs: list[dict[str, Any]]) -> str:
    head = ["noise σ", "clipping", "guesses right", "refuted ε", "claimed ε"]
    return table(
        head,
        [
            [
                f"{run['noise']:.1f}",
                "yes" if run["clipped"] else "left out",
                f"{run['right']} of {run['guesses']}",
                f"{run['refuted']:.3f}",
                f"{run['claimed']:.3f}",
            ]
            for run in runs
        ],
    )


def _maxima(rows: list[dict[str, Any]]) -> str:
    head = ["mechanism", "order", "refuted", "exact", "charged", "exact of charged"]
    return table(
        head,
        [
            [
                row["name"],
                f"{row['order']:g}",
                f"{row['refuted']:.5f}",
                f"{row['exact']:.5f}",
                f"{row['charged']:.5f}",
                f"{row['exact'] / row['charged']:.2f}",
            ]
            for row in rows
        ],
    )
