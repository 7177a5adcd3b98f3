"""Words of a plan: its votes, its settings and its commands, for a terminal of 80 columns."""

import math
import shlex
import textwrap
from collections.abc import Mapping
from pathlib import Path

from darrm.commands.command_line import numbered
from darrm.privacy import at_most, decimal_text
from darrm.problem import Workload, classes_in_words, classes_to_json

WIDTH, LABEL = 80, 10  # columns of the terminal, and of the label of a line


def affordable_text(workload: Workload, accuracy: float, what: str) -> str:
    """Write the result of `darrm.plan.affordable`."""
    answer = {
        "queries": f"at most {numbered(workload.queries, 'query', 'queries')}",
        "voters": f"at least {numbered(workload.voters.K, 'voter', 'voters')}",
        "epsilon": f"a total epsilon of at least {at_most(workload.total.exact_epsilon, 4)}",
    }[what]
    return f"An accuracy of {accuracy:g} takes {answer} (to within 2 %):\n\n"


def subject(work: Workload) -> str:
    """Name the votes of a workload.

    >>> from darrm import PrivacyParams, Voters
    >>> subject(Workload(Voters(7, PrivacyParams("0.1")), 30, PrivacyParams(8), 3))
    '30 plurality votes on 3 classes'
    """
    kind = kind_of_votes(work)
    votes = numbered(work.queries, f"{kind} vote", f"{kind} votes")
    return votes if work.has_noise_function else f"{votes} on {classes_in_words(work.classes)}"


def kind_of_votes(work: Workload) -> str:
    """Name the winner: a majority of two classes, a plurality of more."""
    return "majority" if work.has_noise_function else "plurality"


def settings_in_words(settings: Mapping[str, float]) -> str:
    """Write the parameters of a mechanism.

    >>> settings_in_words({"epsilon": 0.5, "delta": 1e-06})
    'epsilon 0.5, delta 1e-06'
    """
    return ", ".join(f"{name} {value:.6g}" for name, value in settings.items())


def workload_words(work: Workload) -> str:
    """Write a workload as options of a command.

    >>> from darrm import PrivacyParams, Voters
    >>> workload_words(Workload(Voters(250, PrivacyParams("inf"), overlap=1), 1000, PrivacyParams("2", "1e-5")))
    '--K 250 --non-private --overlap 1 --queries 1000 --total 2,0.00001'
    """
    voters, sampled = work.voters, work.voters.sampled
    words = [f"--K {voters.K}"]
    if sampled is not None:
        fixed = "" if sampled.scheme == "poisson" else f"{sampled.scheme}:"
        words.append(f"--sampled {fixed}{decimal_text(sampled.record_rate)}")
        words += [f"--records-each {sampled.records}"] * (sampled.records > 1)
    elif voters.are_non_private:
        words.append("--non-private")
    else:
        each = voters.per_voter or [voters.each]
        deltas = [one.delta_text for one in each]
        deltas = deltas if len(set(deltas)) > 1 else deltas[:1]
        words.append(f"--epsilon {','.join(one.epsilon_text for one in each)} --each-delta {','.join(deltas)}")
    words += [f"--overlap {voters.overlap}"] * (voters.overlap is not None and sampled is None)
    words += ["--models"] * voters.models
    words += [f"--classes {classes_to_json(work.classes)}"] * (not work.has_noise_function)
    words += [f"--queries {work.queries}"]
    words += [f"--missing {work.missing}"] * bool(work.missing)
    return " ".join([*words, f"--total {work.total.epsilon_text},{work.total.delta_text}"])


def release_command(table: str | Path, workload: Workload) -> str:
    """Write the command that releases from a saved file and debits a new ledger.

    >>> from darrm import PrivacyParams, Voters
    >>> work = Workload(Voters(50, PrivacyParams("inf"), overlap=1), 500, PrivacyParams(2, "1e-5"))
    >>> print(release_command("plan.json", work).partition(" --ledger")[0])
    darrm release VOTES.csv --table plan.json
    """
    total = workload.total
    ledger = f"--ledger LEDGER.sqlite --create-budget {total.epsilon_text},{total.delta_text}"
    missing = "--missing coin " if workload.missing else ""
    return f"darrm release VOTES.csv --table {shlex.quote(str(table))} {missing}{ledger} --output LABELS.csv"


def line(label: str, text: str) -> str:
    """Write a labeled line, broken at the width of the terminal with the rest indented."""
    indent, first = " " * LABEL, f"{label:<{LABEL}}"
    return textwrap.fill(
        text, WIDTH, initial_indent=first, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def command(words: str) -> str:
    """Write a command, broken before options."""
    first, *options = words.split(" --")
    lines = [f"{'Next':<{LABEL}}{first}"]
    for option in options:
        if len(lines[-1]) + len(option) > WIDTH - len(" -- \\"):
            lines[-1] += " \\"
            lines.append(" " * (LABEL + 1))
        lines[-1] += f" --{option}"
    return "\n".join(lines)


def percent(share: float) -> str:
    """Write a share as a percentage with two decimals, – for NaN."""
    return "–" if math.isnan(share) else f"{100.0 * share:.2f}"
