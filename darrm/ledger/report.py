"""The report of `darrm account LEDGER`: the budget, the privacy loss so far, and its meaning."""

import math
import shlex
from pathlib import Path
from textwrap import fill

import numpy as np

from darrm.account.accountant import describe_estimate
from darrm.account.meaning import ALARMS, belief_after, explain_guarantee, power_of_test
from darrm.ledger.ledger import PrivacyLedger
from darrm.privacy import at_most, pair_at_most
from darrm.util.figures import GRAY, LIGHT_GRAY, VERMILION, save_figure
from darrm.util.files import Document

_WIDTH, _LABEL_WIDTH = 100, 12  # characters of a line, and of the names of its lines
_MAX_QUERIES_COUNTED = 1_000_000


def ledger_text(ledger: PrivacyLedger, *, everything: bool = False) -> str:
    """Write the report; ``everything`` adds the log and the digest."""
    entries = ledger.entries()
    waiting = [entry for entry in entries if not entry.delivered]
    lines = [("Ledger", f"{ledger.path}{f', population {ledger.population}' if ledger.population else ''}")]
    lines += [("Budget", ledger.guarantee), *_describe_spent(ledger)]
    for entry in waiting if everything else waiting[:1]:
        suffix = (
            f", and those of {len(waiting) - 1} more entries (--all)" if len(waiting) > 1 and not everything else ""
        )
        sentence = f"{entry.count} labels of entry {entry.number}{suffix}; this writes them and pays nothing:"
        lines += [("Undelivered", sentence), ("", ledger.recovery(entry.number, entry.output))]
    newest = f", the newest at {entries[-1].time}" if entries else ""
    lines.append(("Entries", f"{len(entries)}{newest}{'' if everything or not entries else ' (--all lists them)'}"))
    if not everything:
        advice = f"`darrm account {shlex.quote(ledger.path)} --digest` prints the line to keep"
        lines.append(("Digest", f"at entry {len(entries)}: {advice}"))
    indent = " " * (_LABEL_WIDTH + 1)
    written = [_wrap(f"{name:{_LABEL_WIDTH}} {text}", indent) if name else f"{indent}{text}" for name, text in lines]
    for entry in entries if everything else ():
        note = f"  {entry.note}" if entry.note else ""
        written.append(_wrap(f"  {entry.time}  {entry.count:>8}  {entry.what}{note}", "    "))
        if entry.questions:
            written.append(_wrap(f"    entry {entry.number} paid for {', '.join(entry.questions)}", "    "))
    if everything:
        written.append(f"{'Digest':{_LABEL_WIDTH}} {ledger.digest()}")  # one word, to copy
    return "\n".join(written) + "\n"


def _wrap(line: str, indent: str) -> str:
    return fill(line, _WIDTH, subsequent_indent=indent, break_on_hyphens=False)


def _describe_spent(ledger: PrivacyLedger) -> list[tuple[str, str]]:
    spent, account, budget = ledger.spent, ledger.accountant(), ledger.budget
    if not spent.queries:
        return [("Spent", "nothing yet")]
    queries = "1 query" if spent.queries == 1 else f"{spent.queries} queries"
    pair = f"no finite epsilon at delta = {at_most(spent.delta, 6)}"
    if math.isfinite(spent.epsilon):
        share = at_most(100 * spent.epsilon / budget.epsilon, 3)
        pair = f"{pair_at_most(spent.epsilon, spent.delta, 5)}, {share} % of epsilon"
    remarks = [f"for neighbors that {spent.neighbors}"] if spent.neighbors else []
    remarks += [spent.condition] if spent.condition else []
    remarks += [] if spent.failure_probability is None else [describe_estimate(spent.failure_probability)]
    fit = ledger.queries_that_fit(account.costs[-1].kind, most=_MAX_QUERIES_COUNTED)
    qualifier = "at least " if fit == _MAX_QUERIES_COUNTED else ""
    lines = [
        ("Spent", ", ".join([f"{queries}: {pair}", *remarks])),
        ("Bound", f"{spent.bound}: {spent.explanation}"),
        ("Remaining", f"{qualifier}{fit} more queries of {account.costs[-1].what}"),
    ]
    if account.failure_probability is None:
        present = any(cost.sampling is not None and cost.sampling.scheme == "poisson" for cost in account.costs)
        lines.append(
            ("Meaning", explain_guarantee("all labels together", budget.epsilon, budget.delta, present=present))
        )
    return lines


def plot_ledger(path: Path, ledger: PrivacyLedger) -> None:
    """Draw privacy loss and budget as a trade-off of errors, and as beliefs before and after the labels."""
    spent, budget = ledger.spent, ledger.budget
    pairs = [(budget.epsilon, budget.delta, "the budget", GRAY)]
    if spent.queries and spent.failure_probability is None and math.isfinite(spent.epsilon):
        pairs.append((spent.epsilon, spent.delta, "spent", VERMILION))
    corners = [(1.0 - delta) / (1.0 + math.exp(min(epsilon, 700.0))) for epsilon, delta, *_ in pairs]
    shares = np.union1d(np.linspace(0.0, 1.0, 201), corners)  # with the corners of the trade-off
    with save_figure(path, width=10.0, height=5.0) as figure:
        guesses, beliefs = figure.subplots(1, 2)
        for axes in (guesses, beliefs):
            axes.plot([0.0, 1.0], [0.0, 1.0], color=LIGHT_GRAY, linewidth=1.0)
            axes.set(xlim=(0.0, 1.0), ylim=(0.0, 1.0), aspect="equal")
            axes.grid(visible=True, alpha=0.3)
        for epsilon, delta, name, color in pairs:
            condition = f",\n{spent.condition}" if name == "spent" else ""
            label = f"{name}: ε = {at_most(epsilon)}, δ = {at_most(delta, 6)}{condition}"
            power = [power_of_test(epsilon, delta, share) for share in shares.tolist()]
            guesses.plot(shares, power, color=color, label=label)
            for level, dash in ((ALARMS, "-"), (1e-3, "--")):
                belief = belief_after(epsilon, delta, shares, level)
                beliefs.plot(shares, belief, color=color, linestyle=dash, label=f"{name}, events of {level:g} or more")
        guesses.set(xlabel="wrong for one version of a person's data", ylabel="right for the other, at most")
        guesses.set_title("guessing which version was used", fontsize="medium")
        beliefs.set(xlabel="belief about a person before the labels", ylabel="after them, at most")
        beliefs.set_title("beliefs about a person", fontsize="medium")
        for axes in (guesses, beliefs):
            axes.legend(loc="lower right", fontsize="small")


def ledger_json(ledger: PrivacyLedger) -> Document:
    return {
        "budget": ledger.budget.to_json(),
        "composition": ledger.composition,
        "spent": ledger.spent.to_json(),
        "population": ledger.population,
        "ledger_digest": ledger.digest().to_json() if ledger.identity else None,
        "entries": [{**vars(entry), "files": {}} for entry in ledger.entries()],  # no entry draws files of its own
    }
