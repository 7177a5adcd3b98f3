"""What `python -m experiments.audits` shows: its claims, decided by the run, and its page."""

from collections.abc import Sequence
from pathlib import Path

from darrm.util.figures import saved_figure, style
from experiments.pages import Claim, Row, claims_table, filled

TWO_THIRDS = 2 / 3
POISONED = 0.9  # of the exact cost of one query, the aim for who chooses it and poisons a record
NEARLY_ATTAINED = 0.85  # of ε, what a million labels should refute


def decide(data: Row) -> list[Claim]:
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
        Claim(
            f"a poisoned record loses at least {POISONED:.0%} of the query's exact cost",
            ", ".join(f"{row['poisoned'] / row['exact']:.3f} ({row['name']})" for row in data["poisoned"]),
            all(row["poisoned"] >= POISONED * row["exact"] for row in data["poisoned"]),
        ),
        Claim(
            "and no more than that cost",
            f"at most {max(max(row['poisoned'], row['plain']) / row['exact'] for row in data['poisoned']):.3f} of it",
            all(max(row["poisoned"], row["plain"]) < row["exact"] for row in data["poisoned"]),
        ),
    ]


def draw_poisoned(path: Path, rows: Sequence[Row]) -> None:
    """Draw for each ensemble what the adversary finds beside the three costs."""
    bars = {
        "plain": "plain record, refuted",
        "poisoned": "poisoned record, refuted",
        "exact": "exact cost of the query",
    }
    bars |= {"label": "by label, whatever the votes", "counts": "by counts, λ/σ²"}
    with saved_figure(path, width=7.5, height=4.0) as figure:
        axes = figure.add_subplot()
        for place, (key, label) in enumerate(bars.items()):
            at = [number + 0.16 * (place - 2) for number in range(len(rows))]
            axes.bar(at, [row[key] for row in rows], width=0.15, color=style(place).color, label=label)
        axes.set_xticks(range(len(rows)), labels=[row["name"] for row in rows])
        axes.set(ylabel=f"Rényi divergence of order {rows[0]['order']:g}, nats")
        axes.grid(visible=True, axis="y", alpha=0.3)
        figure.legend(loc="outside right upper", frameon=False)


def page(data: Row) -> str:
    """Fill the page from the data."""
    maxima = [row | {"share": row["exact"] / row["charged"]} for row in data["noisy_maxima"]]
    return filled("audits", {"claims": claims_table(decide(data)), "noisy_maxima": maxima}, data)
