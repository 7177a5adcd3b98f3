"""Report a plurality as text and as JSON, for `python -m darrm.optimize --classes C`."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass

from darrm.optimize.report import Report
from darrm.problem import is_open
from darrm.table.text import answers, plurality_heading, plurality_proof, right_labels, share_answered, shown_histograms
from darrm.util.files import Document


@dataclass(frozen=True, eq=False)
class PluralityReport(Report):
    """The report on a law on histograms."""

    def blocks(self, *, everything: bool, remark: str) -> Iterable[str]:  # noqa: ARG002 (the report is always complete)
        """Write the paragraphs: the accuracy, the answers, the proof."""
        problem, law, optimality = self.table.problem, self.table.law, self.table.optimality
        yield plurality_heading(problem, optimality, remark)
        yield right_labels(problem, law, optimality)
        yield answers(problem, law)
        yield plurality_proof(problem, law, self.table.certificate)

    def details(self) -> Document:
        """Write the accuracy and the answers to a few histograms."""
        problem = self.table.problem
        shown = shown_histograms(problem.voters.K, problem.classes)
        probabilities = [self.table.law.probabilities([counts])[0].tolist() for counts in shown]
        answered = (
            {}
            if not is_open(problem.classes)
            else {"share_answered": share_answered(self.table.law, self.table.optimality)}
        )
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
