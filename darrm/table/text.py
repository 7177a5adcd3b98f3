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
from darrm.priors import in_words
from darrm.privacy import at_most
from darrm.problem import OPEN, Problem, Voters, classes_in_words, is_open
from darrm.table.evidence import Law
from darrm.table.optimality import Optimality
from darrm.util.extras import require
from darrm.util.figures import Figure, style
from darrm.util.files import check_parent, replacing

_MOST_GROUPS = 12
_SHARES = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.0)  # of the votes for the largest class, in the histograms
_MOST_COLUMNS = 6  # of classes
_MOST_VALUES = 11  # of a γ


def table_text(problem: Problem, law: Law, certificate: Certificate, optimality: Optimality | None) -> str:
    if isinstance(law, NoiseFunction):
        proof = majority_proof(problem, certificate, optimality)
        blocks = [majority_heading(problem, optimality), _values(law, optimality), proof]
    else:
        right, proof = right_labels(problem, law, optimality), plurality_proof(problem, law, certificate)
        blocks = [plurality_heading(problem, optimality), right, answers(problem, law), proof]
    return "\n\n".join(block for block in blocks if block)


def _values(gamma: NoiseFunction, optimality: Optimality | None) -> str:
    step = -(-gamma.half.size // _MOST_VALUES)
    lines = [
        "γ(l): the probability of returning the true majority at l ones, else a fair coin; γ(l) = γ(K − l)",
        f"{'l':>8}" + "".join(f"{ones:>8}" for ones in gamma.levels[::step].tolist()),
        f"{'γ(l)':>8}" + "".join(f"{value:8.4f}" for value in gamma.half[::step].tolist()),
    ]
    if optimality is not None and optimality.prior.has_closed_form:
        share = gamma.share_right(optimality.prior)
        accuracy = "" if share is None else f"accuracy {share:.4f}, "
        lines.append(f"  {accuracy}expected error {optimality.value:.4g}, under the prior")
    return "\n".join(lines)


def majority_heading(problem: Problem, optimality: Optimality | None, remark: str = "") -> str:
    private = problem.voters.each.is_private
    lines = [
        f"Private majority of {problem.voters.K} voters",
        *_who(problem.voters, remark),
        f"  the release is  {'(mε, δ)' if private else '(ε, δ) '} = {problem.target}-differentially private"
        + allowance(problem),
    ]
    if problem.voters.overlap is not None:
        lines.append(f"  one person's data reach at most {problem.voters.overlap} of the voters")
    elif problem.voters.per_voter is not None:
        lines.append("  one person's data may reach all of the voters (--overlap T: at most T)")
    if problem.voters.sampled is not None:
        lines.append(f"  {problem.voters.sampled}")
    if problem.voters.K % 2 == 0:
        lines.append("  K is even: a tie is answered by a fair coin")
    if optimality is not None:
        lines.append(f"  optimized for   {in_words(optimality.prior)}, {optimality.shape} shape")
        if optimality.objective != "linear":
            lines.append("  objective       the expected error of [D, Eq. 2], absolute value included, over draws")
    return "\n".join(lines)


def _who(voters: Voters, remark: str = "") -> list[str]:
    if voters.are_non_private:
        return ["  each voter is   not private"]
    if voters.per_voter is None:
        return [f"  each voter is   (ε, Δ)  = {voters.each}-differentially private{remark}"]
    verbs = {True: "voter is   ", False: "voters are "}
    shown = voters.groups[:_MOST_GROUPS]
    satisfy = [f"(ε, Δ)  = {each}-differentially private" if each.is_private else "not private" for _, each in shown]
    kinds = [f"{n:5d} {verbs[n == 1]} {what}" for (n, _), what in zip(shown, satisfy, strict=True)]
    more = len(voters.groups) - _MOST_GROUPS
    return [*kinds, f"  and so on, {more} more kinds"] if more > 0 else kinds


def allowance(problem: Problem) -> str:
    if not problem.voters.each.is_private:
        return ""
    return f", m = {problem.m:g}" + ("" if problem.voters.per_voter is None else " of the largest ε")


def majority_proof(problem: Problem, certificate: Certificate, optimality: Optimality | None) -> str:
    exponent = "(mε)" if problem.voters.each.is_private else "ε"
    lines = [
        "Certificate",
        f"  rows covered   {certificate.rows:,} (every multiset of corners)",
        f"  worst cost     {certificate.worst_cost!r}",
        f"  budget         {certificate.budget!r}  (e^{exponent} − 1 + 2δ; no real cost is above it)",
        f"  proved by      {certificate.method}",
    ]
    if optimality is not None:
        relative = optimality.gap / optimality.value if optimality.value > 0.0 else 0.0
        where = "" if optimality.held_out is None else " on the fitted draws"
        lines.append(
            f"  optimality     no private γ of this shape has an expected error below {optimality.bound_text}{where}: "
            f"gap {at_most(optimality.gap, 2)} (relative {at_most(relative, 2)})"
        )
        lines.append(
            "  claimed        by the maker: the table lacks the multipliers of the bound"
            if optimality.claimed
            else "  proved again   when the table is loaded, from its multipliers"
        )
        if optimality.held_out is not None:
            lines.append(f"  held out       expected error {optimality.held_out} that were not fitted")
        lines += _stopped_early(optimality)
    return "\n".join(lines)


def plurality_heading(problem: Problem, optimality: Optimality | None, remark: str = "") -> str:
    lines = [
        f"Private plurality of {problem.voters.K} voters, {classes_in_words(problem.classes)}",
        *_who(problem.voters, remark),
        f"  the release is  (ε, δ) = {problem.target}-differentially private",
        f"  one person's data reach at most {problem.voters.reached} of the voters",
    ]
    if problem.voters.sampled is not None:
        lines.append(f"  {problem.voters.sampled}")
    return "\n".join([*lines, *([] if optimality is None else [f"  optimized for   {optimality.prior}"])])


def right_labels(problem: Problem, law: Law, optimality: Optimality | None) -> str:
    if optimality is None:
        return ""
    source = "claimed by the maker" if optimality.claimed else "proved again when the table is loaded"
    if is_open(problem.classes):
        beside = f"{share_answered(law, optimality):.4g} of the questions have an answer"
    else:
        random = random_law(problem.voters.K, problem.classes).share_right(optimality.prior)
        beside = f"of random answers {random:.4g}"
    lines = [
        f"Right labels      {optimality.value:.10g} of them are expected; {beside}",
        f"  no private mechanism has more than {optimality.bound_text}: gap {at_most(optimality.gap, 2)}, {source}",
    ]
    return "\n".join([*lines, *_stopped_early(optimality)])


def share_answered(law: Law, optimality: Optimality | None) -> float | None:
    return None if optimality is None else law.share_answered(optimality.prior)


def answers(problem: Problem, law: Law) -> str:
    K, C = problem.voters.K, problem.classes
    if is_open(C):
        return _open_answers(problem, law)
    width, columns = len(str(K)) + 1, min(C, _MOST_COLUMNS)
    more = " …" if columns < C else ""
    lines = ["The votes for each class, and the probability that it is the answer"]
    for counts in shown_histograms(K, C):
        (row,) = law.probabilities([counts]).tolist()
        votes = "".join(f"{count:{width}d}" for count in counts[:columns])
        lines.append(f"  {votes}{more}  " + "".join(f"{share:8.4f}" for share in row[:columns]) + more)
    return "\n".join(lines)


def _open_answers(problem: Problem, law: Law) -> str:
    lines = ["The votes for each string, and the probability that it is the answer; that there is none"]
    for counts in shown_histograms(problem.voters.K, OPEN):
        (row,) = law.probabilities([counts]).tolist()
        votes, shares = counts[:_MOST_COLUMNS], row[: min(len(counts), _MOST_COLUMNS)]
        more = " …" if len(counts) > _MOST_COLUMNS else ""
        lines.append(f"  {' '.join(map(str, votes))}{more}:{''.join(f'{x:8.4f}' for x in shares)}{more}; {row[-1]:.4f}")
    return "\n".join(lines)


def plurality_proof(problem: Problem, law: Law, certificate: Certificate) -> str:
    covered = "neighboring histograms, up to the names of classes"
    if isinstance(law, OpenLaw):
        covered = "counts of the two strings that a vote moves between, and of the two largest others"
    if not problem.voters.are_non_private:
        covered = "multisets of voters who change, and histograms of the others"
    return "\n".join(
        [
            "Certificate",
            f"  rows covered   {certificate.rows:,} (all {covered})",
            f"  they differ by {certificate.worst_cost!r} at most",
            f"  the budget is  {certificate.budget!r}  (δ)",
            f"  proved by      {certificate.method}",
        ]
    )


def _stopped_early(optimality: Optimality) -> list[str]:
    if optimality.status == "optimal":
        return []
    return [f"  the solver     {optimality.status}; the proof and the bound above hold"]


def shown_histograms(K: int, classes: int) -> list[Histogram]:
    """Choose a few histograms, from unanimity to a tie, with the votes on as few classes as possible.

    >>> shown_histograms(4, 3)
    [(4, 0, 0), (3, 1, 0), (2, 2, 0), (2, 1, 1)]
    """
    if is_open(classes):  # two strings that share the votes, and one against many
        tops = dict.fromkeys(max(1, round(share * K)) for share in _SHARES)
        shapes = [(top, K - top) for top in tops if 2 * top >= K] + [(top, *(1,) * (K - top)) for top in tops]
        return list(dict.fromkeys(tuple(filter(None, shape)) for shape in shapes))
    even = -(-K // classes)
    found = []
    for top in dict.fromkeys(max(even, round(share * K)) for share in _SHARES):
        counts, left = list[int](), K
        for _ in range(classes):
            counts.append(min(top, left))
            left -= counts[-1]
        found.append(tuple(counts))
    base, rest = divmod(K, classes)
    found.append((base + 1,) * rest + (base,) * (classes - rest))
    return list(dict.fromkeys(found))


def plot_noise_functions(
    problem: Problem, named: Iterable[tuple[str, int, NoiseFunction]], path: Path | None = None
) -> Figure:
    """Draw noise functions, each with its label and the place of its style; save the figure if asked."""
    if path is not None:
        check_parent(path)
    figure = require("matplotlib.figure").Figure(figsize=(8.0, 5.0), layout="constrained")
    axes, levels = figure.add_subplot(), np.arange(problem.voters.K + 1)
    for label, place, gamma in named:
        axes.plot(levels, gamma.full, label=label, **style(place, width=1.6 if place else 2.6).line(levels.size))
    axes.set(xlabel="l, number of ones among the votes", ylabel="γ(l), probability of telling the true majority")
    allowance = f", m = {problem.m:g}" if problem.voters.each.is_private else ""
    axes.set_title(f"{problem.voters}\nreleased {problem.target}-private{allowance}", fontsize=9)
    axes.set_ylim(-0.03, 1.03)
    axes.grid(alpha=0.3)
    figure.legend(loc="outside lower center", frameon=False)
    if path is not None:
        with replacing(path) as temporary:
            figure.savefig(temporary, dpi=150)
    return figure
