"""What `python -m darrm.optimize --classes C` shows of a plurality: as text and as JSON."""

from dataclasses import asdict, dataclass
from pathlib import Path

from darrm.errors import checks
from darrm.laws.partitions import Histogram
from darrm.laws.plurality_law import uniform_law
from darrm.optimize.report import optimality_of
from darrm.proof.table import Table
from darrm.system.files import Document

_SHARES = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.0)  # of the class with the most votes, in what is shown
_MOST_COLUMNS = 6  # of classes


@dataclass(frozen=True, eq=False)
class PluralityReport:
    """The report on a law on histograms."""

    table: Table

    def text(self, output: Path | None, *, everything: bool = False) -> str:  # noqa: ARG002 (nothing is left out)
        """Write it for a person, the share of right labels first."""
        problem, certificate, optimality = self.table.problem, self.table.certificate, self.table.optimality
        K, C = problem.voters.K, problem.classes
        lines = [
            f"Private plurality of {K} voters, {C} classes",
            f"  the release is  (ε, δ) = {problem.target}-differentially private",
            f"  one person's data reach at most {problem.voters.reached} of the voters",
        ]
        if optimality is not None:
            coin = uniform_law(K, C).share_right(optimality.prior)
            source = "claimed by the maker" if optimality.claimed else "proved again by whoever loads the table"
            lines += [
                f"  optimized for   {optimality.prior}",
                "",
                f"Right labels      {optimality.value:.10g} of them are expected; of random answers {coin:.4g}",
                f"  no private mechanism has more than {optimality.bound:.10g}: gap {optimality.gap:.1e}, {source}",
            ]
            if optimality.status != "optimal":
                lines.append(f"  the solver     {optimality.status}; the proof and the bound above hold all the same")
        width = len(str(K)) + 1
        shown = min(C, _MOST_COLUMNS)
        more = " …" if shown < C else ""
        lines += ["", "The votes for each class, and the probability that it is the answer"]
        for counts in shown_histograms(K, C):
            (row,) = self.table.plurality.probabilities([counts]).tolist()
            votes = "".join(f"{count:{width}d}" for count in counts[:shown])
            lines.append(f"  {votes}{more}  " + "".join(f"{each:8.4f}" for each in row[:shown]) + more)
        lines += [
            "",
            "Certificate",
            f"  pairs covered  {certificate.rows:,} (all neighboring histograms, up to the names of classes)",
            f"  they differ by {certificate.worst_cost!r} at most",
            f"  the budget is  {certificate.budget!r}  (δ)",
            f"  proved by      {certificate.method}",
            "",
            "Not saved: --output FILE.json keeps the table with its proof."
            if output is None
            else f"Table written to {output}",
        ]
        return "\n".join(lines) + "\n"

    def document(self, output: Path | None) -> Document:
        """Write the same as plain data; `darrm/schemas/plurality_report.json` describes it."""
        problem, optimality = self.table.problem, self.table.optimality
        shown = shown_histograms(problem.voters.K, problem.classes)
        probabilities = self.table.plurality.probabilities(shown).tolist()
        return {
            "format": "darrm plurality report",
            "version": 1,
            "problem": problem.to_json(),
            "share_right": self.table.share_right,
            "optimality": None if optimality is None else optimality_of(optimality, problem),
            "histograms": [
                {"votes": list(counts), "probabilities": row} for counts, row in zip(shown, probabilities, strict=True)
            ],
            "certificate": asdict(self.table.certificate),
            "provenance": dict(self.table.provenance),
            "output": None if output is None else str(output),
        }

    def plot(self, path: Path) -> None:
        """Refuse: the command knows no picture of it."""
        checks.fail("--plot", str(path), "left out", "there is no picture of a law on histograms")


def shown_histograms(K: int, classes: int) -> list[Histogram]:
    """Choose a few histograms, from unanimity to a tie, in each of which the largest classes leave least to the others.

    >>> shown_histograms(4, 3)
    [(4, 0, 0), (3, 1, 0), (2, 2, 0), (2, 1, 1)]
    """
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
