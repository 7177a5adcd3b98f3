"""A table in words and as a picture of γ."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from darrm.loss.certificate import Certificate
from darrm.majority.noise_function import NoiseFunction
from darrm.open_set.open_law import OpenLaw
from darrm.plurality.partitions import Histogram
from darrm.plurality.plurality_law import random_law
from darrm.priors import describe_prior
from darrm.privacy import at_most
from darrm.problem import Problem, Voters, describe_classes, is_open
from darrm.table.evidence import Law
from darrm.table.optimality import Optimality
from darrm.util.extras import require
from darrm.util.figures import Figure, style
from darrm.util.files import check_parent, replace_file

_MAX_GROUPS = 12
_SHARES = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.0)  # of the votes for the largest class, in the histograms
_MAX_COLUMNS = 6  # of classes
_MAX_VALUES = 11  # of a γ
MEANING = "γ(l): the probability of returning the true majority at l ones, else a fair coin; γ(l) = γ(K − l)"


def table_text(problem: Problem, law: Law, certificate: Certificate, optimality: Optimality | None) -> str:
    blocks = [write_heading(problem, optimality)]
    if isinstance(law, NoiseFunction):
        blocks.append(_write_values(law, optimality))
    else:
        blocks += [write_accuracy(problem, law, optimality), write_answers(problem, law)]
    blocks.append(write_proof(problem, law, certificate, optimality))
    return "\n\n".join(filter(None, blocks))


def _write_values(gamma: NoiseFunction, optimality: Optimality | None) -> str:
    step = -(-gamma.half.size // _MAX_VALUES)
    lines = [
        MEANING,
        f"{'l':>8}" + "".join(f"{ones:>8}" for ones in gamma.levels[::step].tolist()),
        f"{'γ(l)':>8}" + "".join(f"{value:8.4f}" for value in gamma.half[::step].tolist()),
    ]
    if optimality is not None and optimality.prior.has_closed_form:
        share = gamma.accuracy(optimality.prior)
        accuracy = "" if share is None else f"accuracy {share:.4f}, "
        lines.append(f"  {accuracy}expected error {optimality.value:.4g}, under the prior")
    return "\n".join(lines)


def write_heading(problem: Problem, optimality: Optimality | None, remark: str = "") -> str:
    voters, C, is_gamma = problem.voters, problem.classes, problem.has_noise_function
    exponent = "mε" if is_gamma and voters.each.is_private else "ε"
    lines = [
        f"Private {'majority' if is_gamma else 'plurality'} of {voters.K} voters"
        + ("" if is_gamma else f", {describe_classes(C)}"),
        *_list_voters(voters, remark),
        f"  the release is  ({exponent}, δ) = {problem.target}-differentially private" + describe_allowance(problem),
        f"  one person's data reach at most {voters.reached} of the voters",
    ]
    if voters.sampled is not None:
        lines.append(f"  {voters.sampled}")
    if is_gamma and voters.K % 2 == 0:
        lines.append("  K is even: a tie is answered by a fair coin")
    if optimality is not None:
        shape = f", {optimality.shape} shape" if is_gamma else ""
        lines.append(f"  optimized for   {describe_prior(optimality.prior)}{shape}")
        if not optimality.is_accuracy and optimality.objective != "linear":
            lines.append("  objective       the expected error of [D, Eq. 2], absolute value included, over draws")
    return "\n".join(lines)


def _list_voters(voters: Voters, remark: str = "") -> list[str]:
    if voters.are_non_private:
        return ["  each voter is   not private"]
    if voters.per_voter is None:
        return [f"  each voter is   (ε, Δ)  = {voters.each}-differentially private{remark}"]
    verbs = {True: "voter is   ", False: "voters are "}
    groups = voters.groups[:_MAX_GROUPS]
    guarantees = [
        f"(ε, Δ)  = {each}-differentially private" if each.is_private else "not private" for _, each in groups
    ]
    kinds = [f"{n:5d} {verbs[n == 1]} {guarantee}" for (n, _), guarantee in zip(groups, guarantees, strict=True)]
    hidden = len(voters.groups) - _MAX_GROUPS
    return [*kinds, f"  and so on, {hidden} more kinds"] if hidden > 0 else kinds


def describe_allowance(problem: Problem) -> str:
    if not (problem.has_noise_function and problem.voters.each.is_private):
        return ""
    return f", m = {problem.m:g}" + ("" if problem.voters.per_voter is None else " of the largest ε")


def write_proof(problem: Problem, law: Law, certificate: Certificate, optimality: Optimality | None) -> str:
    if isinstance(law, NoiseFunction):
        scope = "every multiset of corners"
        budget = f"e^{'(mε)' if problem.voters.each.is_private else 'ε'} − 1 + 2δ; no real cost is above it"
    else:
        scope = "all neighboring histograms, up to the names of classes"
        if isinstance(law, OpenLaw):
            scope = "all counts of the two strings that a vote moves between, and of the two largest others"
        if not problem.voters.are_non_private:
            scope = "all multisets of voters who change, and histograms of the others"
        budget = "δ; no two histograms differ by more"
    lines = [
        "Certificate",
        f"  rows covered   {certificate.rows:,} ({scope})",
        f"  worst cost     {certificate.worst_cost!r}",
        f"  budget         {certificate.budget!r}  ({budget})",
        f"  proved by      {certificate.method}",
    ]
    if optimality is not None:
        lines.append("  optimality     " + describe_bound(optimality))
        lines.append(
            "  claimed        by the maker: the table lacks the multipliers of the bound"
            if optimality.claimed
            else "  proved again   when the table is loaded, from its multipliers"
        )
        if optimality.held_out is not None:
            lines.append(f"  held out       expected error {optimality.held_out} that were not fitted")
        if optimality.status != "optimal":
            lines.append(f"  the solver     {optimality.status}; the proof and the bound above hold")
    return "\n".join(lines)


def describe_bound(optimality: Optimality) -> str:
    gap, relative = at_most(optimality.gap, 2), optimality.gap / optimality.value if optimality.value > 0.0 else 0.0
    if optimality.is_accuracy:
        return f"no private mechanism has an accuracy above {optimality.bound_text}: gap {gap}"
    sample = "" if optimality.held_out is None else " on the fitted draws"
    statement = f"no private γ of this shape has an expected error below {optimality.bound_text}{sample}"
    return f"{statement}: gap {gap} (relative {at_most(relative, 2)})"


def write_accuracy(problem: Problem, law: Law, optimality: Optimality | None) -> str:
    if optimality is None:
        return ""
    comparison = f"random guessing {random_law(problem.voters.K, problem.classes).accuracy(optimality.prior):.4g}"
    if is_open(problem.classes):
        comparison = f"{law.share_answered(optimality.prior):.4g} of the questions have an answer"
    return f"Accuracy          {optimality.value:.10g}, expected under the prior; {comparison}"


def write_answers(problem: Problem, law: Law) -> str:
    width, C = len(str(problem.voters.K)) + 1, problem.classes
    nouns = ("string", "; that there is none") if is_open(C) else ("class", "")
    lines = [f"The votes for each {nouns[0]}, and the probability that it is the answer{nouns[1]}"]
    for counts in choose_histograms(problem.voters.K, C):
        (row,) = law.probabilities([counts]).tolist()
        ellipsis = " …" if len(counts) > _MAX_COLUMNS else ""
        votes = "".join(f"{count:{width}d}" for count in counts[:_MAX_COLUMNS])
        shares = "".join(f"{share:8.4f}" for share in row[: min(len(counts), _MAX_COLUMNS)])
        lines.append(f"  {votes}{ellipsis}  {shares}{ellipsis}" + (f"; {row[-1]:.4f}" if is_open(C) else ""))
    return "\n".join(lines)


def choose_histograms(K: int, classes: int) -> list[Histogram]:
    """Choose a few histograms, from unanimity to a tie, with the votes on as few classes as possible.

    >>> choose_histograms(4, 3)
    [(4, 0, 0), (3, 1, 0), (2, 2, 0), (2, 1, 1)]
    """
    if is_open(classes):  # two strings that share the votes, and one against many
        tops = dict.fromkeys(max(1, round(share * K)) for share in _SHARES)
        histograms = [(top, K - top) for top in tops if 2 * top >= K] + [(top, *(1,) * (K - top)) for top in tops]
        return list(dict.fromkeys(tuple(filter(None, shape)) for shape in histograms))
    smallest_top, histograms = -(-K // classes), []
    for top in dict.fromkeys(max(smallest_top, round(share * K)) for share in _SHARES):
        counts, remaining = list[int](), K
        for _ in range(classes):
            counts.append(min(top, remaining))
            remaining -= counts[-1]
        histograms.append(tuple(counts))
    quotient, remainder = divmod(K, classes)
    histograms.append((quotient + 1,) * remainder + (quotient,) * (classes - remainder))
    return list(dict.fromkeys(histograms))


def plot_noise_functions(
    problem: Problem, curves: Iterable[tuple[str, int, NoiseFunction]], path: Path | None = None
) -> Figure:
    """Draw noise functions, each with its label and the place of its style; save the figure if asked."""
    if path is not None:
        check_parent(path)
    figure = require("matplotlib.figure").Figure(figsize=(8.0, 5.0), layout="constrained")
    axes, levels = figure.add_subplot(), np.arange(problem.voters.K + 1)
    for label, place, gamma in curves:
        axes.plot(levels, gamma.full, label=label, **style(place, width=1.6 if place else 2.6).line(levels.size))
    axes.set(xlabel="l, number of ones among the votes", ylabel="γ(l), probability of the true majority")
    allowance_text = f", m = {problem.m:g}" if problem.voters.each.is_private else ""
    axes.set_title(f"{problem.voters}\nreleased {problem.target}-private{allowance_text}", fontsize=9)
    axes.set_ylim(-0.03, 1.03)
    axes.grid(alpha=0.3)
    figure.legend(loc="outside lower center", frameon=False)
    if path is not None:
        with replace_file(path) as temporary:
            figure.savefig(temporary, dpi=150)
    return figure
