"""What `python -m darrm.account` prints and draws."""

import math
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from darrm.account.accountant import PrivacyAccountant, Spent
from darrm.account.bounds import MODELS_BOUNDS
from darrm.account.ledger import PrivacyLedger
from darrm.account.meaning import ALARMS, belief_after, learned, power_of_test
from darrm.losses.charges import Charge
from darrm.problem import Voters
from darrm.system.figures import GRAY, LIGHT_GRAY, VERMILION, name_lines, saved_figure, say_instead, style
from darrm.system.files import Document
from darrm.system.progress import StatusLine

BOUNDS = ("simple", "general", "optimal", "profile", "renyi", "pld", *MODELS_BOUNDS)
_LAST_ENTRIES = 10  # of the log, in the text
_PLOT_POINTS = 24
_MEANING_POINTS, _RARE = 201, 1e-3
_MOST_QUERIES_COUNTED = 1_000_000


def ledger_text(ledger: PrivacyLedger, *, everything: bool = False) -> str:
    """Write the budget, what was spent, how much is left, and the last lines of the log, or ``everything`` in it."""
    entries = ledger.entries()
    lines = [f"budget: {ledger.budget}", f"spent:  {ledger.spent}", *_meaning(ledger)]
    if entries:
        charge = ledger.accountant().charges[-1].kind
        fit = ledger.queries_that_fit(charge, most=_MOST_QUERIES_COUNTED)
        least = "at least " if fit == _MOST_QUERIES_COUNTED else ""
        lines.append(f"left:   {least}{fit} more queries of {charge.what}")
    if ledger.identity:
        lines += [f"of:     {ledger.population}"] if ledger.population else []
        lines.append(f"head:   {ledger.head()}")
    shown = entries if everything else entries[-_LAST_ENTRIES:]
    if len(entries) > len(shown):
        lines.append(f"the last {len(shown)} of {len(entries)} entries (--log lists all):")
    for entry in shown:
        note = f"  {entry.note}" if entry.note else ""
        lines.append(f"  {entry.time}  {entry.count:>8}  {entry.what}{note}")
        lines += [f"    entry {entry.number} paid for {', '.join(entry.questions)}"] if entry.questions else []
    lines += [
        f"entry {entry.number}: {entry.count} labels were paid for and not delivered; "
        f"`{ledger.recovery(entry.number, entry.output)}` writes them and pays nothing"
        for entry in entries
        if not entry.delivered
    ]
    return "\n".join(lines) + "\n"


def _meaning(ledger: PrivacyLedger) -> list[str]:
    spent = ledger.spent
    if not spent.queries or spent.understated is not None or math.isinf(spent.epsilon):
        return []
    present = any(one.sampling is not None and one.sampling.scheme == "poisson" for one in ledger.accountant().charges)
    return [f"means:  {learned('all labels together', spent.epsilon, spent.delta, present=present)}"]


def plot_ledger(path: Path, ledger: PrivacyLedger) -> None:
    """Draw what was spent, and the whole budget, as the trade-off of whoever guesses, and as beliefs before and after.

    Beliefs are after events that have, without what is believed, a probability of at least 5 % or one in a thousand.
    """
    spent, budget = ledger.spent, ledger.budget
    told = [(budget.epsilon, budget.delta, "the budget", GRAY)]
    if spent.queries and spent.understated is None and math.isfinite(spent.epsilon):
        told.append((spent.epsilon, spent.delta, "spent", VERMILION))
    corners = [(1.0 - delta) / (1.0 + math.exp(min(epsilon, 700.0))) for epsilon, delta, *_ in told]
    shares = np.union1d(np.linspace(0.0, 1.0, _MEANING_POINTS), corners)  # where the trade-off is bent
    with saved_figure(path, width=10.0, height=5.0) as figure:
        guesses, beliefs = figure.subplots(1, 2)
        for axes in (guesses, beliefs):
            axes.plot([0.0, 1.0], [0.0, 1.0], color=LIGHT_GRAY, linewidth=1.0)
            axes.set(xlim=(0.0, 1.0), ylim=(0.0, 1.0), aspect="equal")
            axes.grid(visible=True, alpha=0.3)
        for epsilon, delta, name, color in told:
            label = f"{name}: ε = {epsilon:.4g}, δ = {delta:g}"
            power = [power_of_test(epsilon, delta, share) for share in shares.tolist()]
            guesses.plot(shares, power, color=color, label=label)
            for level, dash in ((ALARMS, "-"), (_RARE, "--")):
                after = belief_after(epsilon, delta, shares, level)
                beliefs.plot(shares, after, color=color, linestyle=dash, label=f"{name}, events of {level:g} or more")
        guesses.set(xlabel="wrong for one version of a person's data", ylabel="right for the other, at most")
        guesses.set_title("whoever guesses which version was used", fontsize="medium")
        beliefs.set(xlabel="belief about a person before the labels", ylabel="after them, at most")
        beliefs.set_title("whoever believed something", fontsize="medium")
        for axes in (guesses, beliefs):
            axes.legend(loc="lower right", fontsize="small")


def ledger_json(ledger: PrivacyLedger) -> Document:
    """Write the budget, what was spent and the whole log as plain data."""
    return {
        "budget": ledger.budget.to_json(),
        "kinds": ledger.kinds,
        "spent": ledger.spent.to_json(),
        "population": ledger.population,
        "head": ledger.head().to_json() if ledger.identity else None,
        "entries": [{**vars(entry), "files": dict(entry.files)} for entry in ledger.entries()],
    }


def spent_by(charge: Charge, queries: int, delta: float, voters: Voters) -> Spent:
    """Evaluate every bound for so many queries of such voters, each at one charge."""
    return PrivacyAccountant(voters, [charge.repeated(queries)]).spent(delta)


def table_text(charge: Charge, results: Mapping[int, Spent], delta: float) -> str:
    """Write the bounds as a table, one row for each number of queries; ``*`` marks the smallest."""
    rows_by_count = {queries: _by_name(spent) for queries, spent in results.items()}
    columns = [name for name in BOUNDS if any(name in row for row in rows_by_count.values())]
    lines = [
        f"each query: {'' if charge.guarantee is None else f'{charge.guarantee} by '}{charge.what}",
        f"total epsilon at delta = {delta:g}{_about(charge)}:",
        "queries" + "".join(name.rjust(16) for name in columns),
    ]
    for queries, row in rows_by_count.items():
        best = results[queries].bound
        cells = [f"{row[name]:.4f}{'*' if name == best else ' '}" if name in row else "- " for name in columns]
        lines.append(f"{queries:7d}" + "".join(cell.rjust(16) for cell in cells))
    last = results[max(results)]
    by = f"by {last.bound}" if last.bounds else "nothing bounds epsilon"
    lines.append(f"* smallest; for {last.queries} queries {by}: {last.explanation}")
    return "\n".join(lines) + "\n"


def _about(charge: Charge) -> str:
    return "" if charge.sampling is None else f", for neighbors that {charge.sampling.neighbors}"


def table_json(results: Mapping[int, Spent], delta: float) -> Document:
    """Write the bounds for each number of queries as plain data."""
    return {"delta": delta, "queries": {str(queries): spent.to_json() for queries, spent in results.items()}}


def plot_bounds(
    path: Path,
    charge: Charge,
    most: int,
    delta: float,
    voters: Voters,
    report: Callable[[str], None] | None = None,
) -> None:
    """Draw ε over queries, one line a bound; ``report`` is called with a few words at every point."""
    show = report or StatusLine(enabled=False).show
    counts = np.unique(np.round(np.linspace(1, most, min(most, _PLOT_POINTS))).astype(int)).tolist()
    rows = []
    for queries in counts:
        show(f"bounds of the picture, {queries:,} of {most:,} queries")
        rows.append(_by_name(spent_by(charge, queries, delta, voters)))
    with saved_figure(path) as figure:
        axes = figure.add_subplot()
        for place, name in enumerate(BOUNDS):
            if any(name in row for row in rows):
                values = [row.get(name, math.nan) for row in rows]
                axes.plot(counts, values, label=name, **style(place).line(len(counts)))
        axes.set_xlabel("queries")
        axes.set_ylabel(f"total ε at δ = {delta:g}")
        each = "" if charge.guarantee is None else f", {charge.guarantee} a query"
        axes.set_title(f"{charge.what}{each}{_about(charge)}", fontsize="medium" if charge.sampling else None)
        axes.set_ylim(bottom=0.0)
        axes.grid(visible=True, alpha=0.3)
        if axes.lines:
            name_lines(axes)
        else:
            say_instead(axes, f"nothing bounds ε at δ = {delta:g}")


def _by_name(spent: Spent) -> dict[str, float]:
    return {bound.name: bound.epsilon for bound in spent.bounds}
