"""The text of a plan and of a sweep, for a terminal of 80 columns: the answer first, then what it rests on."""

import math
import shlex
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from darrm.commands.command_line import numbered, spread
from darrm.plan.budget import counted, needs_no_noise
from darrm.plan.calibration import CalibratedMechanism
from darrm.priors import in_words
from darrm.privacy import at_most, decimal_text
from darrm.problem import Workload, classes_in_words, classes_to_json, is_open

if TYPE_CHECKING:
    from darrm.plan.report import Plan, Sweep

WIDTH, LABEL = 80, 10  # columns of the terminal, and of the label of a line
SHOWN, VOTE_COUNTS = 6, 5  # mechanisms without --all; numbers of votes whose accuracy is shown


def plan_text(plan: "Plan", output: Path | None = None, remark: str = "", *, everything: bool = False) -> str:
    """Write a plan: the best mechanism, the assumptions, the ranking, its reason, and the next command.

    ``output`` is the file that the best mechanism was written to, ``remark`` a note on the voters. With ``everything``
    also all mechanisms, the reasons of those left out, the proof, and the commands in full.
    """
    best, work = plan.best, plan.workload
    settings = f": {settings_in_words(best.settings)}" if best.settings else ""
    spent = f"ε = {at_most(best.spent.epsilon, 5)} of {work.total}, by the bound {best.spent.bound}"
    parts = [
        [
            _line("Plan", f"{best.name}{settings}"),
            _line("Budget", f"{subject(work)}: {spent}"),
            _line("Voters", f"{work.voters}{remark}"),
            *(_line("Assumes" * (not place), text) for place, text in enumerate(_assumptions(plan))),
        ],
        list(_table(plan, everything=everything)),
        [*_conclusion(plan, everything=everything), *_next_commands(plan, output, everything=everything)],
    ]
    return "\n\n".join("\n".join(part) for part in parts) + "\n"


def sweep_text(sweep: "Sweep", remark: str = "") -> str:
    """Write a line a mechanism and a column a total ε."""
    last, best = sweep.plans[-1], sweep.best
    work = last.workload
    lines = [
        _line("Sweep", f"accuracy in % over the total ε, δ = {work.total.delta:g}, for {subject(work)}"),
        _line("Voters", f"{work.voters}{remark}"),
        _line("Assumes", "the mean of the reference priors" if last.measure.is_regret else in_words(last.prior)),
        "",
        f"{'total ε':<22}" + "".join(f"{epsilon:>9.4g}" for epsilon in best),
    ]
    for slug, values in {"best": best, **sweep.accuracies}.items():
        texts = [_percent(values.get(epsilon, math.nan)) for epsilon in best]
        lines.append(f"{slug:<22}" + "".join(f"{text:>9}" for text in texts))
    winners = ", ".join(f"{plan.best.slug} at {plan.workload.total.epsilon:g}" for plan in sweep.plans)
    return "\n".join([*lines, "", _line("Best", winners)]) + "\n"


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


def _assumptions(plan: "Plan") -> Iterator[str]:
    """Write the prior, and what the guarantee and the accuracy rest on."""
    work, measure, best = plan.workload, plan.measure, plan.best
    release = counted(work)
    if measure.is_regret:
        priors = ", ".join(prior.text for prior in measure.reference_priors.values())
        yield f"no prior: ranked by minimax regret over low, medium and high consensus ({priors})"
    else:
        yield in_words(plan.prior)
    if work.missing:
        guess = "coin" if work.has_noise_function else "die"
        yield f"{work.missing} of {work.voters.K} votes are missing: a fair {guess} replaces each"
    if plan.listed:
        yield f"a list of {plan.listed:,} classes is planned like open answers: a class without votes is no answer"
    if release != work and not needs_no_noise(work):
        yield (
            "trained models share their randomness over queries: planned as non-private voters, and by the joint "
            f"bound of model privacy and release the release may be {release.total}-private"
        )
    elif not work.voters.are_non_private and work.queries > 1 and not work.voters.models:
        yield "the voters draw new randomness for each query; for trained models add --models"
    if release.voters.are_non_private and release.voters.reached == work.voters.K:
        yield "one person may change all votes, so nothing is better than randomized response: see --overlap"
    if best.remark:
        yield best.remark


def _table(plan: "Plan", *, everything: bool) -> Iterator[str]:
    """Write a line a mechanism: accuracy under the reference priors and the prior, error, ε and bound."""
    best, measure = plan.best, plan.measure
    heads = [f"{name} %" for name in (*measure.reference_priors, "mean" if measure.is_regret else "prior")]
    heads += ["error"] * (best.expected_error is not None) + ["answered %"] * is_open(measure.classes)
    widths = [max(7, 2 + len(head)) for head in heads]
    shown = [row for place, row in enumerate(plan.rows) if everything or place < SHOWN or row is best]
    slug = max(15, *(len(row.slug) for row in shown))
    heading = "".join(f"{head:>{width}}" for head, width in zip(heads, widths, strict=True))
    yield f"  {'accuracy':<{slug}}{heading}{'ε':>8}  bound"
    for row in shown:
        mark = "*" if row is best else "-" if row.only_compared else " "
        texts = [_percent(accuracy.value) for accuracy in row.consensus.values()]
        texts.append(_percent(row.accuracy))
        texts += [] if row.expected_error is None else [f"{row.expected_error:.4f}"]
        texts += [] if row.answered is None else [_percent(row.answered)]
        numbers = "".join(f"{text:>{width}}" for text, width in zip(texts, widths, strict=True))
        yield f"{mark} {row.slug:<{slug}}{numbers}{at_most(row.spent.epsilon, 5):>8}  {row.spent.bound}"
    place, limit, guess = sum(widths[: 1 + len(measure.reference_priors)]), plan.largest_accuracy(), measure.guessing
    if guess is not None and not is_open(measure.classes):
        error = f"   (means over drawn votes, ± {100.0 * guess.standard_error:.2g})" * bool(guess.standard_error)
        yield f"  {'random guessing':<{slug}}{_percent(guess.value):>{place}}{error}"
    if limit is not None:
        yield f"  {'any release':<{slug}}{'≤ ' + at_most(100.0 * limit, 4):>{place}}   (a theorem)"
    notes = ["- only compared, darrm does not release it"] * any(row.only_compared for row in shown)
    if (hidden := len(plan.rows) - len(shown)) > 0:
        notes.append(f"{hidden} more with --all")
    if notes:
        yield f"  {'; '.join(notes)}"


def _conclusion(plan: "Plan", *, everything: bool) -> Iterator[str]:
    """Write why the first is first, its accuracy at a few vote counts, its proof, and what was left out."""
    best, left_out = plan.best, plan.left_out
    yield _line("Why", plan.reason)
    if everything:
        for row in plan.rows:
            if row.only_compared:
                yield _line("Compared", f"{row.slug}: {row.only_compared}")
    places = spread(best.levels.size, VOTE_COUNTS)
    first, *others = (f"{100.0 * best.curve[place]:.1f} %" for place in places)
    answers = "".join(f", {best.levels[place]}: {text}" for place, text in zip(places[1:], others, strict=True))
    yield _line("Accuracy", f"{best.levels[0]} of {plan.measure.K} votes: {first}{answers}")
    if everything and best.table is not None:
        target, certificate = best.table.problem.target, best.table.certificate
        yield _line("Proof", f"one answer is {target}-private: {certificate.rows:,} rows, {certificate.method}")
    if left_out and not everything:
        yield _line("Left out", f"{', '.join(slug for slug, _ in left_out)} (reasons: --all)")
    elif left_out:
        yield from (_line("Left out", f"{slug}: {reason}") for slug, reason in left_out)


def _next_commands(plan: "Plan", output: Path | None, *, everything: bool) -> Iterator[str]:
    """Write what to do next: write the best mechanism to a file, or release labels from the written one."""
    if output is not None:
        yield _line("Written", str(output))
        yield _command(release_command(output, plan.workload))
    elif plan.best.instructions:
        yield _line("Next", "; ".join(plan.best.instructions))
    else:
        yield from (_command(words) for words in (plan.commands() if everything else plan.commands()[:-1]))


def _line(label: str, text: str) -> str:
    """Write a labeled line, broken at the width of the terminal with the rest indented."""
    indent, first = " " * LABEL, f"{label:<{LABEL}}"
    return textwrap.fill(
        text, WIDTH, initial_indent=first, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def _command(words: str) -> str:
    """Write a command, broken before options."""
    first, *options = words.split(" --")
    lines = [f"{'Next':<{LABEL}}{first}"]
    for option in options:
        if len(lines[-1]) + len(option) > WIDTH - len(" -- \\"):
            lines[-1] += " \\"
            lines.append(" " * (LABEL + 1))
        lines[-1] += f" --{option}"
    return "\n".join(lines)


def _percent(share: float) -> str:
    return "–" if math.isnan(share) else f"{100.0 * share:.2f}"


def csv_row(plan: "Plan", row: CalibratedMechanism) -> dict[str, object]:
    """Return the columns of a mechanism in a file of CSV, with all digits; the total ε comes first."""
    return {
        "total epsilon": plan.workload.total.epsilon_text,
        "total delta": plan.workload.total.delta_text,
        "mechanism": row.slug,
        **{f"accuracy {name}": accuracy.value for name, accuracy in row.consensus.items()},
        "accuracy": row.accuracy,
        **({} if row.expected_error is None else {"expected error": row.expected_error}),
        **({} if row.answered is None else {"answered": row.answered}),
        "epsilon": row.spent.epsilon,
        "bound": row.spent.bound,
        "parameters": settings_in_words(row.settings),
        "only compared": row.only_compared,
    }
