"""Plans and sweeps: the ranking, its reason, and how to release the first, as text, JSON and a picture."""

import math
import shlex
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from darrm import priors
from darrm.account.accountant import Spent
from darrm.aggregator import Released, save_release
from darrm.commands.command_line import format_count, spread
from darrm.errors import PlanError
from darrm.plan.accuracy import MOST_LISTED, Measure, list_histograms
from darrm.plan.calibration import CalibratedMechanism
from darrm.plan.mechanism import needs_no_noise, reduce_workload
from darrm.plurality.accuracy_bound import accuracy_at_most
from darrm.priors import Prior, describe_prior, is_built_in
from darrm.privacy import at_most, decimal_text
from darrm.problem import Workload, classes_to_json, describe_classes, is_open
from darrm.table.table import Table
from darrm.util.figures import BLACK, Axes, name_lines, save_figure, style
from darrm.util.files import Document

DECIMALS = 4  # of an accuracy, a regret and an expected error in a report
MAX_ROWS_SHOWN, VOTE_COUNTS = 6, 5  # mechanisms without --all; numbers of votes whose accuracy is shown
WIDTH, LABEL_WIDTH = 80, 10  # columns of the terminal, and of the label of a line
_COLUMNS = ("divided", "mixed", "agreeing")  # low, medium and high consensus in a plan's file


@dataclass(frozen=True, eq=False)
class Plan:
    """A ranking of the mechanisms for a workload; ``print(plan)`` shows what ``darrm plan`` prints."""

    workload: Workload
    measure: Measure  # the prior and the objective
    rows: tuple[CalibratedMechanism, ...]  # the best first
    left_out: tuple[tuple[str, str], ...] = ()  # slug and reason of the others
    listed: int = 0  # the number of classes of a list that is planned like open answers; 0 for others

    def __repr__(self) -> str:
        return f"Plan({', '.join(row.slug for row in self.rows)})"

    def __str__(self) -> str:
        return plan_text(self)

    @property
    def prior(self) -> Prior:
        """The prior of the ranking."""
        return self.measure.prior

    @property
    def best(self) -> CalibratedMechanism:
        """The first mechanism that is released; `PlanError` if there is none."""
        for row in self.rows:
            if row.is_released:
                return row
        why = "; ".join(f"{row.slug}: {row.only_compared}" for row in self.rows)
        raise PlanError(f"a plan needs a mechanism that darrm releases, and these are only compared. {why}")

    @property
    def table(self) -> Table:
        """The certified table of the best mechanism; `PlanError` if there is none."""
        if self.best.table is None:
            raise PlanError(f"{self.best.slug} has no table: use plan.aggregator, or plan.save(path)")
        return self.best.table

    @property
    def aggregator(self) -> Released:
        """The aggregator of the best mechanism; `PlanError` if there is none."""
        if not isinstance(self.best.aggregator, Released):
            raise PlanError(f"{self.best.remark} {self.best.instructions[0].capitalize()}.")
        return self.best.aggregator

    @property
    def spent(self) -> Spent:
        """The cost of all queries."""
        return self.best.spent

    @property
    def reason(self) -> str:
        """Why the best mechanism is the first, and rows with a higher accuracy are not."""
        best, measure = self.best, self.measure
        if len(self.rows) == 1:
            return f"{best.slug} is the only mechanism that is calibrated to this budget."
        if measure.is_regret:
            why = "its largest loss of accuracy, over low, medium and high consensus, is the smallest"
        elif measure.is_error:
            why = f"it has the smallest expected error under the prior {self.prior.text}"
        else:
            why = f"it has the highest accuracy under the prior {self.prior.text}"
        better_rows = self.rows[: self.rows.index(best)]
        other_rows = [row for row in self.rows if row is not best and row not in better_rows]
        rank = compute_rank(measure, best)
        ranks = {row.slug: compute_rank(measure, row) for row in other_rows}
        costlier = [
            slug
            for slug, other_rank in ranks.items()
            if (rank[:2] == other_rank[:2] and rank[2] < other_rank[2])
            or (rank[:5] == other_rank[:5] and rank < other_rank)
        ]
        tie = f", and it spends less than {costlier[0]}" if costlier else ""
        rivals = [row for row in other_rows if round(row.accuracy, DECIMALS) > round(best.accuracy, DECIMALS)]
        if measure.is_regret and rivals:
            tie += "; the mean of " + ", of ".join(
                f"{row.slug} is higher, but it loses up to {100.0 * (row.regret or 0.0):.2f} points" for row in rivals
            )
            tie += f", and {best.slug} at most {100.0 * (best.regret or 0.0):.2f}"
        elif rivals:
            tie += f"; the accuracy of {', '.join(row.slug for row in rivals)} is higher, and its expected error larger"
        if better_rows:
            tie += f"; {', '.join(row.slug for row in better_rows)} would be better, but is only compared"
        return f"{best.slug} is first: {why}{tie}."

    def largest_accuracy(self) -> float | None:
        """Bound the accuracy of any release, for non-private voters and more than two listed classes."""
        work = self.workload
        if work.has_noise_function or is_open(work.classes) or not work.voters.are_non_private:
            return None
        # with dice for missing votes, a release depends on the present votes only
        present, overlap = work.voters.K - work.missing, work.voters.overlap
        voters = replace(work.voters, K=present, overlap=None if overlap is None else min(overlap, present))
        present_workload = replace(work, voters=voters, missing=0)
        return accuracy_at_most(present_workload, *list_histograms(self.prior, present, work.classes, MOST_LISTED))

    @property
    def claims(self) -> Document:
        """The statements of a plan's file, which ``darrm verify`` checks."""
        best, work = self.best, self.workload
        claims: Document = {
            "family": best.slug,
            "workload": {**work.to_json(), "classes": classes_to_json(work.classes)},
            "spent": _describe_spent(best),
            "prior": priors.to_json(self.prior, work.voters.K, work.classes),
        }
        if best.estimate is not None:
            claims["accuracy"] = best.estimate.to_json()
        if best.consensus:
            accuracies = [accuracy.to_json() for accuracy in best.consensus.values()]
            claims["columns"] = dict(zip(_COLUMNS, accuracies, strict=True))
        return claims if best.expected_error is None else {**claims, "expected_error": best.expected_error}

    def save(self, path: str | Path) -> None:
        """Write a file that `darrm.aggregator.load_release` reads."""
        save_release(path, self.aggregator, self.claims)

    def commands(self, output: str = "plan.json") -> tuple[str, ...]:
        """Write the commands that save the best mechanism and release from it."""
        work, prior, slug = self.workload, self.prior, self.best.slug
        if self.best.instructions:
            return self.best.instructions
        if not is_built_in(prior):
            return (
                "from darrm.plan import find_mechanism, plan  # in Python: the prior is your own",
                f'plan(workload, prior=prior, mechanisms=[find_mechanism("{slug}")]).save("{output}")',
                release_command(output, work),
            )
        prior_option = "" if prior.text == "spread" else f" --prior {shlex.quote(prior.text)}"
        objective = " --objective error" if self.measure.is_error else ""
        plan_command = (
            f"darrm plan {workload_words(work)}{prior_option}{objective} --mechanism {slug} --output {output}"
        )
        return plan_command, release_command(output, work)

    def document(self, output: Path | None = None) -> Document:
        """Write the plan as plain data; the schema is ``darrm/schemas/plan_report.json``."""
        measure, guess = self.measure, self.measure.guessing
        return {
            "format": "darrm plan report",
            "version": 1,
            "workload": self.workload.to_json(),
            "counted_as": reduce_workload(self.workload).to_json(),
            "prior": self.prior.text,
            "consensus": {name: prior.text for name, prior in measure.reference_priors.items()},
            "ranked_by": "regret" if measure.is_regret else measure.name,
            "best": self.best.slug,
            "reason": self.reason,
            "guessing": None if guess is None else guess.to_json(),
            "largest_accuracy": self.largest_accuracy(),
            "levels": measure.levels.tolist(),
            "mechanisms": [_describe_row(row) for row in self.rows],
            "left_out": [{"mechanism": slug, "reason": reason} for slug, reason in self.left_out],
            "commands": list(self.commands()),
            "output": None if output is None else str(output),
        }

    def plot(self, path: Path) -> None:
        """Draw the probability of the majority over its number of votes."""
        work, levels = self.workload, self.measure.levels
        kind = kind_of_votes(work)
        with save_figure(path) as figure:
            axes = figure.add_subplot()
            for place, row in enumerate(self.rows):
                axes.plot(levels, row.curve, label=f"{row.name}   {row.accuracy:.4f}", **style(place).line(len(levels)))
            axes.set(xlabel=f"votes for the {kind}", ylabel=f"probability of the {kind}")
            axes.set_ylim(0.0 if is_open(work.classes) else 0.96 / work.classes, 1.02)
            axes.set_title(f"{work.voters}\n{describe_queries(work)} within {work.total}", fontsize=9)
            axes.grid(alpha=0.3)
            figure.legend(loc="outside lower center", frameon=False)


@dataclass(frozen=True)
class Sweep:
    """Plans at several budgets, from the smallest ε to the largest; ``print(sweep)`` shows a table."""

    plans: tuple[Plan, ...]

    def __str__(self) -> str:
        return sweep_text(self)

    @property
    def accuracies(self) -> dict[str, dict[float, float]]:
        """The accuracy of each mechanism at each total ε, the best at the largest ε first."""
        slugs = dict.fromkeys(row.slug for plan in reversed(self.plans) for row in plan.rows)
        accuracies: dict[str, dict[float, float]] = {slug: {} for slug in slugs}
        for plan in self.plans:
            for row in plan.rows:
                accuracies[row.slug][plan.workload.total.epsilon] = row.accuracy
        return accuracies

    @property
    def best(self) -> dict[float, float]:
        """The accuracy of the best released mechanism at each total ε."""
        return {plan.workload.total.epsilon: plan.best.accuracy for plan in self.plans}

    def document(self) -> Document:
        """Write the plan at each budget as plain data; the schema is ``darrm/schemas/plan_sweep.json``."""
        return {"format": "darrm plan sweep", "version": 1, "plans": [plan.document() for plan in self.plans]}

    def plot(self, path: Path) -> None:
        """Draw the accuracy of each mechanism over the total ε."""
        work = self.plans[-1].workload
        looks = {slug: style(place).line(len(self.plans)) for place, slug in enumerate(self.accuracies)}
        looks["best"] = {"color": BLACK, "linewidth": 3.0, "alpha": 0.5}
        with save_figure(path, width=9.0) as figure:
            axes = figure.add_subplot()
            draw_accuracies(axes, {**self.accuracies, "best": self.best}, looks)
            axes.set_title(f"{describe_queries(work)}, δ = {work.total.delta:g}\n{work.voters}", fontsize=9)
            axes.set_ylabel("accuracy")
            name_lines(axes)


def compute_inaccuracy(row: CalibratedMechanism, measure: Measure) -> float:
    if measure.is_error:
        return math.inf if row.expected_error is None else row.expected_error
    return 1.0 - row.accuracy


def compute_rank(measure: Measure, row: CalibratedMechanism) -> tuple[float, ...]:
    """Return regret, objective and ε, first rounded as in the report, then with more digits.

    Among rows that look equal the smaller ε is first, unless the tolerance of a search explains the difference.
    """
    regret = row.regret if measure.is_regret and row.regret is not None else 0.0
    loss, epsilon = compute_inaccuracy(row, measure), row.spent.epsilon
    rounded = round(regret, DECIMALS), round(loss, DECIMALS), float(f"{epsilon:.2g}")
    return *rounded, round(regret, 6), round(loss, 6), float(f"{epsilon:.5g}")


def _describe_spent(row: CalibratedMechanism) -> Document:
    return {"epsilon": row.spent.epsilon, "delta": row.spent.delta, "bound": row.spent.bound}


def _describe_row(row: CalibratedMechanism) -> Document:
    return {
        "mechanism": row.slug,
        "name": row.name,
        "accuracy": None if row.estimate is None else row.estimate.to_json(),
        "consensus": {name: accuracy.to_json() for name, accuracy in row.consensus.items()},
        "regret": row.regret,
        **({} if row.expected_error is None else {"expected_error": row.expected_error}),
        **({} if row.answered is None else {"answered": row.answered}),
        **({} if row.table is None else {"query": row.table.problem.target.to_json()}),
        "settings": dict(row.settings),
        "spent": _describe_spent(row),
        "only_compared": row.only_compared or None,
        "curve": row.curve.tolist(),
    }


def plan_text(
    plan: Plan, output: Path | None = None, remark: str = "", introduction: str = "", *, everything: bool = False
) -> str:
    """Write a plan; ``remark`` is about the voters."""
    best, work = plan.best, plan.workload
    settings = f": {describe_settings(best.settings)}" if best.settings else ""
    spent = f"ε = {at_most(best.spent.epsilon, 5)} of {work.total}, by the bound {best.spent.bound}"
    parts = [
        [
            format_line("Plan", f"{best.name}{settings}"),
            format_line("Budget", f"{describe_queries(work)}: {spent}"),
            format_line("Voters", f"{work.voters}{remark}"),
            *(format_line("Assumes" * (not place), text) for place, text in enumerate(_list_assumptions(plan))),
        ],
        list(_write_table(plan, everything=everything)),
        list(_write_conclusion(plan, everything=everything)),
    ]
    if output is not None:
        parts[-1] += [format_line("Written", str(output)), format_command(release_command(output, work))]
    elif best.instructions:
        parts[-1].append(format_line("Next", "; ".join(best.instructions)))
    else:
        parts[-1] += [format_command(words) for words in (plan.commands() if everything else plan.commands()[:-1])]
    return introduction + "\n\n".join("\n".join(part) for part in parts) + "\n"


def sweep_text(sweep: Sweep, remark: str = "") -> str:
    last_plan, best = sweep.plans[-1], sweep.best
    work = last_plan.workload
    lines = [
        format_line("Sweep", f"accuracy in % over the total ε, δ = {work.total.delta:g}, for {describe_queries(work)}"),
        format_line("Voters", f"{work.voters}{remark}"),
        format_line(
            "Assumes",
            "the mean of the reference priors" if last_plan.measure.is_regret else describe_prior(last_plan.prior),
        ),
        "",
        f"{'total ε':<22}" + "".join(f"{epsilon:>9.4g}" for epsilon in best),
    ]
    for slug, accuracies in {"best": best, **sweep.accuracies}.items():
        cells = [format_percent(accuracies.get(epsilon, math.nan)) for epsilon in best]
        lines.append(f"{slug:<22}" + "".join(f"{text:>9}" for text in cells))
    missing_plans: dict[str, list[str]] = {}
    for plan in sweep.plans:
        for slug, reason in plan.left_out:
            if slug in sweep.accuracies:
                missing_plans.setdefault(reason, []).append(f"{slug} at {plan.workload.total.epsilon:g}")
    if missing_plans:
        lines += ["", *(format_line("–", f"{', '.join(at)}: {reason}") for reason, at in missing_plans.items())]
    winners = ", ".join(f"{plan.best.slug} at {plan.workload.total.epsilon:g}" for plan in sweep.plans)
    return "\n".join([*lines, "", format_line("Best", winners)]) + "\n"


def _list_assumptions(plan: Plan) -> Iterator[str]:
    work, measure, best = plan.workload, plan.measure, plan.best
    release = reduce_workload(work)
    if measure.is_regret:
        priors = ", ".join(prior.text for prior in measure.reference_priors.values())
        yield f"no prior: ranked by minimax regret over low, medium and high consensus ({priors})"
    else:
        yield describe_prior(plan.prior)
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
    if release.voters.are_non_private and release.voters.reached == work.voters.K and plan.best.slug != "no-noise":
        yield "one person may change all votes, so nothing is better than the best constant γ: see --overlap"
    if best.remark:
        yield best.remark


def _write_table(plan: Plan, *, everything: bool) -> Iterator[str]:
    best, measure = plan.best, plan.measure
    headings = [f"{name} %" for name in (*measure.reference_priors, "mean" if measure.is_regret else "prior")]
    headings += ["error"] * (best.expected_error is not None) + ["answered %"] * is_open(measure.classes)
    widths = [max(7, 2 + len(head)) for head in headings]
    shown_rows = [row for place, row in enumerate(plan.rows) if everything or place < MAX_ROWS_SHOWN or row is best]
    slug = max(15, *(len(row.slug) for row in shown_rows))
    heading = "".join(f"{head:>{width}}" for head, width in zip(headings, widths, strict=True))
    yield f"  {'accuracy':<{slug}}{heading}{'ε':>11}  bound"
    for row in shown_rows:
        mark = "*" if row is best else "-" if row.only_compared else " "
        texts = [format_percent(accuracy.value) for accuracy in row.consensus.values()]
        texts.append(format_percent(row.accuracy))
        texts += [] if row.expected_error is None else [f"{row.expected_error:.4f}"]
        texts += [] if row.answered is None else [format_percent(row.answered)]
        numbers = "".join(f"{text:>{width}}" for text, width in zip(texts, widths, strict=True))
        yield f"{mark} {row.slug:<{slug}}{numbers}{at_most(row.spent.epsilon, 5):>11}  {row.spent.bound}"
    place, limit, guess = sum(widths[: 1 + len(measure.reference_priors)]), plan.largest_accuracy(), measure.guessing
    if guess is not None and not is_open(measure.classes):
        error = f"   (means over drawn votes, ± {100.0 * guess.standard_error:.2g})" * bool(guess.standard_error)
        yield f"  {'random guessing':<{slug}}{format_percent(guess.value):>{place}}{error}"
    if limit is not None:
        yield f"  {'any release':<{slug}}{'≤ ' + at_most(100.0 * limit, 4):>{place}}   (a theorem)"
    notes = ["- only compared, darrm does not release it"] * any(row.only_compared for row in shown_rows)
    if (hidden_count := len(plan.rows) - len(shown_rows)) > 0:
        notes.append(f"{hidden_count} more with --all")
    if notes:
        yield f"  {'; '.join(notes)}"


def _write_conclusion(plan: Plan, *, everything: bool) -> Iterator[str]:
    best, left_out = plan.best, plan.left_out
    yield format_line("Why", plan.reason)
    if everything:
        for row in plan.rows:
            if row.only_compared:
                yield format_line("Compared", f"{row.slug}: {row.only_compared}")
    places = spread(best.levels.size, VOTE_COUNTS)
    first_value, *other_values = (f"{100.0 * best.curve[place]:.1f} %" for place in places)
    answers = "".join(f", {best.levels[place]}: {text}" for place, text in zip(places[1:], other_values, strict=True))
    yield format_line("Accuracy", f"{best.levels[0]} of {plan.measure.K} votes: {first_value}{answers}")
    if everything and best.table is not None:
        target, certificate = best.table.problem.target, best.table.certificate
        yield format_line("Proof", f"one answer is {target}-private: {certificate.rows:,} rows, {certificate.method}")
    if left_out and not everything:
        yield format_line("Not shown", f"{', '.join(slug for slug, _ in left_out)} (ranked, or with a reason: --all)")
    elif left_out:
        yield from (format_line("Left out", f"{slug}: {reason}") for slug, reason in left_out)


def build_csv_row(plan: Plan, row: CalibratedMechanism) -> dict[str, object]:
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
        "parameters": describe_settings(row.settings),
        "only compared": row.only_compared,
    }


def draw_accuracies(
    axes: Axes, accuracies: Mapping[str, Mapping[float, float]], looks: Mapping[str, Mapping[str, object]]
) -> None:
    """Draw the accuracy over the total ε; ``looks`` lists the lines from the back on."""
    for name, look in looks.items():
        if accuracies.get(name):
            axes.plot(list(accuracies[name]), list(accuracies[name].values()), label=name, **look)
    ticks = sorted({epsilon for values in accuracies.values() for epsilon in values})
    axes.set_xscale("log")
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.set_xlabel("total ε of all queries")
    axes.grid(alpha=0.3)


def affordable_text(workload: Workload, accuracy: float, quantity: str) -> str:
    answer = {
        "queries": f"at most {format_count(workload.queries, 'query', 'queries')}",
        "voters": f"at least {format_count(workload.voters.K, 'voter', 'voters')}",
        "epsilon": f"a total epsilon of at least {at_most(workload.total.exact_epsilon, 4)}",
    }[quantity]
    return f"An accuracy of {accuracy:g} takes {answer} (to within 2 %):\n\n"


def describe_queries(work: Workload) -> str:
    kind = kind_of_votes(work)
    votes = format_count(work.queries, f"{kind} vote", f"{kind} votes")
    return votes if work.has_noise_function else f"{votes} on {describe_classes(work.classes)}"


def kind_of_votes(work: Workload) -> str:
    return "majority" if work.has_noise_function else "plurality"


def describe_settings(settings: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.6g}" for name, value in settings.items())


def workload_words(work: Workload) -> str:
    """Write a workload as options of a command."""
    voters, sampled = work.voters, work.voters.sampled
    options = [f"--K {voters.K}"]
    if sampled is not None:
        scheme = "" if sampled.scheme == "poisson" else f"{sampled.scheme}:"
        options.append(f"--sampled {scheme}{decimal_text(sampled.record_rate)}")
        options += [f"--records-each {sampled.records}"] * (sampled.records > 1)
    elif voters.are_non_private:
        options.append("--non-private")
    else:
        each = voters.per_voter or [voters.each]
        deltas = [params.delta_text for params in each]
        deltas = deltas if len(set(deltas)) > 1 else deltas[:1]
        options.append(f"--epsilon {','.join(params.epsilon_text for params in each)} --each-delta {','.join(deltas)}")
    options += [f"--overlap {voters.overlap}"] * (voters.overlap is not None and sampled is None)
    options += ["--models"] * voters.models
    options += [f"--classes {classes_to_json(work.classes)}"] * (not work.has_noise_function)
    options += [f"--queries {work.queries}"]
    options += [f"--missing {work.missing}"] * bool(work.missing)
    return " ".join([*options, f"--total {work.total.epsilon_text},{work.total.delta_text}"])


def release_command(table: str | Path, workload: Workload) -> str:
    total = workload.total
    ledger = f"--ledger LEDGER.sqlite --create-budget {total.epsilon_text},{total.delta_text}"
    missing = "--missing coin " if workload.missing else ""
    return f"darrm release VOTES.csv --table {shlex.quote(str(table))} {missing}{ledger} --output LABELS.csv"


def format_line(label: str, text: str) -> str:
    indent, heading = " " * LABEL_WIDTH, f"{label:<{LABEL_WIDTH}}"
    return textwrap.fill(
        text, WIDTH, initial_indent=heading, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def format_command(text: str) -> str:
    """Write a command, broken before options."""
    first_part, *options = text.split(" --")
    lines = [f"{'Next':<{LABEL_WIDTH}}{first_part}"]
    for option in options:
        if len(lines[-1]) + len(option) > WIDTH - len(" -- \\"):
            lines[-1] += " \\"
            lines.append(" " * (LABEL_WIDTH + 1))
        lines[-1] += f" --{option}"
    return "\n".join(lines)


def format_percent(share: float) -> str:
    return "–" if math.isnan(share) else f"{100.0 * share:.2f}"
