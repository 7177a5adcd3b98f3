"""What `python -m darrm.optimize --classes C` shows of a plurality: as text and as JSON."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass

from darrm.laws.open_law import OpenLaw
from darrm.laws.partitions import Histogram
from darrm.laws.plurality_law import random_law
from darrm.optimize.report import Report, stopped_early
from darrm.problem import OPEN, classes_in_words, is_open
from darrm.proof.table import Table
from darrm.system.files import Document

_SHARES = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.0)  # of the class with the most votes, in what is shown
_MOST_COLUMNS = 6  # of classes


@dataclass(frozen=True, eq=False)
class PluralityReport(Report):
    """The report on a law on histograms."""

    def blocks(self, *, everything: bool) -> Iterable[str]:  # noqa: ARG002 (nothing is left out)
        """Write the paragraphs, the share of right labels before the answers."""
        return _heading(self.table), _right_labels(self.table), _answers(self.table), _proof(self.table)

    def details(self) -> Document:
        """Write the share of right labels and what is answered for a few histograms."""
        problem = self.table.problem
        shown = shown_histograms(problem.voters.K, problem.classes)
        probabilities = [self.table.law.probabilities([counts])[0].tolist() for counts in shown]
        answered = {} if not is_open(problem.classes) else {"share_answered": _share_answered(self.table)}
        return {
            "format": "darrm plurality report",
            "version": 1,
            "problem": problem.to_json(),
            "share_right": self.table.share_right,
            **answered,
            "histograms": [
                {"votes": list(counts), "probabilities": row} for counts, row in zip(shown, probabilities, strict=True)
            ],
            "certificate": asdict(self.table.certificate),
        }


def _heading(table: Table) -> str:
    problem, optimality = table.problem, table.optimality
    lines = [
        f"Private plurality of {problem.voters.K} voters, {classes_in_words(problem.classes)}",
        f"  the release is  (ε, δ) = {problem.target}-differentially private",
        f"  one person's data reach at most {problem.voters.reached} of the voters",
    ]
    if problem.voters.sampled is not None:
        lines.append(f"  {problem.voters.sampled}")
    return "\n".join([*lines, *([] if optimality is None else [f"  optimized for   {optimality.prior}"])])


def _right_labels(table: Table) -> str:
    problem, optimality = table.problem, table.optimality
    if optimality is None:
        return ""
    source = "claimed by the maker" if optimality.claimed else "proved again by whoever loads the table"
    if is_open(problem.classes):
        beside = f"{_share_answered(table):.4g} of the questions have an answer"
    else:
        random = random_law(problem.voters.K, problem.classes).share_right(optimality.prior)
        beside = f"of random answers {random:.4g}"
    lines = [
        f"Right labels      {optimality.value:.10g} of them are expected; {beside}",
        f"  no private mechanism has more than {optimality.bound:.10g}: gap {optimality.gap:.1e}, {source}",
    ]
    return "\n".join([*lines, *stopped_early(optimality)])


def _share_answered(table: Table) -> float | None:
    return None if table.optimality is None else table.law.share_answered(table.optimality.prior)


def _answers(table: Table) -> str:
    K, C = table.problem.voters.K, table.problem.classes
    if is_open(C):
        return _open_answers(table)
    width, columns = len(str(K)) + 1, min(C, _MOST_COLUMNS)
    more = " …" if columns < C else ""
    lines = ["The votes for each class, and the probability that it is the answer"]
    for counts in shown_histograms(K, C):
        (row,) = table.plurality.probabilities([counts]).tolist()
        votes = "".join(f"{count:{width}d}" for count in counts[:columns])
        lines.append(f"  {votes}{more}  " + "".join(f"{share:8.4f}" for share in row[:columns]) + more)
    return "\n".join(lines)


def _open_answers(table: Table) -> str:
    lines = ["The votes for each string, and the probability that it is the answer; that there is none"]
    for counts in shown_histograms(table.problem.voters.K, OPEN):
        (row,) = table.law.probabilities([counts]).tolist()
        votes, shares = counts[:_MOST_COLUMNS], row[: min(len(counts), _MOST_COLUMNS)]
        more = " …" if len(counts) > _MOST_COLUMNS else ""
        lines.append(f"  {' '.join(map(str, votes))}{more}:{''.join(f'{x:8.4f}' for x in shares)}{more}; {row[-1]:.4f}")
    return "\n".join(lines)


def _proof(table: Table) -> str:
    certificate = table.certificate
    covered = "neighboring histograms, up to the names of classes"
    if isinstance(table.law, OpenLaw):
        covered = "counts of the two strings that a vote moves between, and of the two largest others"
    if not table.problem.voters.are_plain:
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


def shown_histograms(K: int, classes: int) -> list[Histogram]:
    """Choose a few histograms, from unanimity to a tie, in each of which the largest classes leave least to the others.

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
