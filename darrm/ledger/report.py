"""The report of `darrm account LEDGER`: the budget, the privacy loss so far, and its meaning."""

import math
from pathlib import Path
from textwrap import fill

import numpy as np

from darrm.account.meaning import ALARMS, belief_after, learned, power_of_test
from darrm.ledger.ledger import PrivacyLedger
from darrm.privacy import at_most
from darrm.util.figures import GRAY, LIGHT_GRAY, VERMILION, saved_figure
from darrm.util.files import Document

_WIDTH = 100  # characters of a line
_LAST_ENTRIES = 10  # of the log, in the text
_MEANING_POINTS, _RARE = 201, 1e-3
_MOST_QUERIES_COUNTED = 1_000_000


def ledger_text(ledger: PrivacyLedger, *, everything: bool = False) -> str:
    """Write the budget, the privacy loss, how much is left, and the last lines of the log, or ``everything`` in it."""
    entries = ledger.entries()
    lines = [f"budget: {ledger.guarantee}", f"spent:  {ledger.spent}", *_meaning(ledger)]
    if entries:
        charge = ledger.accountant().charges[-1].kind
        fit = ledger.queries_that_fit(charge, most=_MOST_QUERIES_COUNTED)
        least = "at least " if fit == _MOST_QUERIES_COUNTED else ""
        lines.append(f"left:   {least}{fit} more queries of {charge.what}")
    lines = [fill(line, _WIDTH, subsequent_indent=" " * 8, break_on_hyphens=False) for line in lines]
    if ledger.identity:
        lines += [f"of:     {ledger.population}"] if ledger.population else []
        lines.append(f"digest: {ledger.digest()}")
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
    account, budget = ledger.accountant(), ledger.budget
    if not account.queries or account.failure_probability is not None:
        return []
    present = any(one.sampling is not None and one.sampling.scheme == "poisson" for one in account.charges)
    return [f"means:  {learned('all labels together', budget.epsilon, budget.delta, present=present)}"]


def plot_ledger(path: Path, ledger: PrivacyLedger) -> None:
    """Draw the privacy loss and the whole budget as a trade-off of errors, and as beliefs before and after the labels.

    The events after which beliefs change have a probability of at least 5 %, or of one in a thousand, otherwise.
    """
    spent, budget = ledger.spent, ledger.budget
    told = [(budget.epsilon, budget.delta, "the budget", GRAY)]
    if spent.queries and spent.failure_probability is None and math.isfinite(spent.epsilon):
        told.append((spent.epsilon, spent.delta, "spent", VERMILION))
    corners = [(1.0 - delta) / (1.0 + math.exp(min(epsilon, 700.0))) for epsilon, delta, *_ in told]
    shares = np.union1d(np.linspace(0.0, 1.0, _MEANING_POINTS), corners)  # with the corners of the trade-off
    with saved_figure(path, width=10.0, height=5.0) as figure:
        guesses, beliefs = figure.subplots(1, 2)
        for axes in (guesses, beliefs):
            axes.plot([0.0, 1.0], [0.0, 1.0], color=LIGHT_GRAY, linewidth=1.0)
            axes.set(xlim=(0.0, 1.0), ylim=(0.0, 1.0), aspect="equal")
            axes.grid(visible=True, alpha=0.3)
        for epsilon, delta, name, color in told:
            condition = f",\n{spent.condition}" if name == "spent" else ""
            label = f"{name}: ε = {at_most(epsilon)}, δ = {at_most(delta, 6)}{condition}"
            power = [power_of_test(epsilon, delta, share) for share in shares.tolist()]
            guesses.plot(shares, power, color=color, label=label)
            for level, dash in ((ALARMS, "-"), (_RARE, "--")):
                after = belief_after(epsilon, delta, shares, level)
                beliefs.plot(shares, after, color=color, linestyle=dash, label=f"{name}, events of {level:g} or more")
        guesses.set(xlabel="wrong for one version of a person's data", ylabel="right for the other, at most")
        guesses.set_title("guessing which version was used", fontsize="medium")
        beliefs.set(xlabel="belief about a person before the labels", ylabel="after them, at most")
        beliefs.set_title("beliefs about a person", fontsize="medium")
        for axes in (guesses, beliefs):
            axes.legend(loc="lower right", fontsize="small")


def ledger_json(ledger: PrivacyLedger) -> Document:
    """Return the budget, the privacy loss and the whole log as plain data."""
    return {
        "budget": ledger.budget.to_json(),
        "composition": ledger.composition,
        "spent": ledger.spent.to_json(),
        "population": ledger.population,
        "ledger_digest": ledger.digest().to_json() if ledger.identity else None,
        "entries": [{**vars(entry), "files": {}} for entry in ledger.entries()],  # no entry draws files of its own
    }
