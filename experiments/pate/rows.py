"""The rows of a study: the labels that an aggregator releases, how many are right, and what they cost."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from darrm.pate.analysis import Analysis
from darrm.pate.confident import ConfidentGNMax
from darrm.pate.vote_scale import PublicationParameters
from darrm.util import checks
from darrm.util.progress import StatusLine
from darrm.votes import ABSTAIN
from experiments.kept import array_digest, kept
from experiments.pages import Row
from experiments.pate.accounting import (
    account,
    costs,
    published_as_in_paper,
    published_beforehand,
    published_by_logarithm,
    published_on_vote_scale,
)
from experiments.pate.recorded import Recorded
from experiments.pate.search import search
from experiments.pate.settings import Study, TwoRounds, VoteSize, Way

Labels = NDArray[np.int64]
Scoring = Callable[[Labels], NDArray[np.float64]]  # labels of a first round to (Q, C) scores of the whole pool
LABEL_SEED = 2018


@dataclass(frozen=True, eq=False)
class Run:
    """A study on its way: what was recorded, and where results are kept."""

    study: Study
    recorded: Recorded
    folder: Path
    line: StatusLine

    def kept(self, stage: str, facts: Sequence[object], compute: Callable[[], Any]) -> Any:  # noqa: ANN401 (plain data)
        """Compute a stage that depends on the votes and on ``facts``, or read it."""
        return kept(self.folder, f"{stage}-{self.study.name}", [self.recorded.digest, *facts], compute)


def released(run: Run, way: Way) -> Labels:
    """Draw the labels of a way, exactly, from the seed of the experiment: (Q,), `ABSTAIN` where there is none."""

    def draw() -> list[int]:
        run.line.show(f"labels by {way.name}")
        rng = np.random.default_rng([LABEL_SEED, way.queries])
        return [int(label) for label in way.aggregator.release(run.recorded.votes[: way.queries], rng=rng)]

    return np.array(run.kept("labels", [repr(way.aggregator), way.queries, LABEL_SEED], draw), dtype=np.int64)


def analysis_of(run: Run, way: Way, labels: Labels) -> Analysis:
    """Analyze a way whose labels were released."""
    answered = labels != ABSTAIN if isinstance(way.aggregator, ConfidentGNMax) else None
    return account(run.recorded.votes[: way.queries], way.aggregator, run.study.delta, answered)


def row_of(run: Run, way: Way) -> tuple[Row, Labels]:
    """Describe a way: answers, how many are right, what they cost, and what publishing that costs."""
    labels = released(run, way)

    def counted() -> Row:
        run.line.show(f"accounting for {way.name}, {way.queries} queries")
        analysis = analysis_of(run, way, labels)
        return {
            "costs": costs([analysis]),
            "in_paper": published_as_in_paper([analysis]),
            "ours": published_on_vote_scale([analysis]),
        }

    facts = [repr(way.aggregator), array_digest(labels), run.study.delta]
    row: Row = {"name": way.name, "aggregator": repr(way.aggregator), "queries": way.queries}
    row |= measured(run, labels, labels != ABSTAIN) | run.kept("costs", facts, counted)
    return row | _printed(way), labels


def searched_row(run: Run, base: Way, size: VoteSize) -> tuple[Row, Labels]:
    """Describe a way whose parameters were searched on public votes, to match what another one answers."""
    aggregator, delta = base.aggregator, run.study.delta
    if not isinstance(aggregator, ConfidentGNMax):
        checks.fail("base", base.name, "a way with a check")

    def found() -> Row:
        run.line.show("parameters on public votes")
        best = search(aggregator, size, delta)
        chosen, published = best.aggregator, best.parameters
        return {
            "aggregator": [chosen.threshold, chosen.sigma_threshold, chosen.sigma_answer],
            "publication": [published.order, published.deviation],
            "expected": best.epsilon,
            "expected_of_base": best.base_epsilon,
        }

    chosen = run.kept("search", [repr(aggregator), repr(size), delta], found)
    way = Way("Confident-GNMax, searched", ConfidentGNMax(*chosen["aggregator"]), base.queries)
    row, labels = row_of(run, way)
    for of, drawn in ((way, labels), (base, released(run, base))):
        facts = [repr(of.aggregator), array_digest(drawn), chosen["publication"]]
        published = PublicationParameters(*chosen["publication"])
        compute = partial(_beforehand, run, of, drawn, published)
        row["beforehand" if of is way else "base_beforehand"] = run.kept("beforehand", facts, compute)
    drawn = released(run, base)
    facts = [repr(base.aggregator), array_digest(drawn), "logarithm"]
    row["base_by_logarithm"] = run.kept(
        "beforehand", facts, lambda: published_by_logarithm(analysis_of(run, base, drawn))
    )
    return row | {"search": chosen}, labels


def _beforehand(run: Run, way: Way, labels: Labels, parameters: PublicationParameters) -> Row:
    return published_beforehand(analysis_of(run, way, labels), parameters)


def by_label_row(run: Run, way: Way) -> tuple[Row, Labels]:
    """Describe a way that is charged without a look at the votes: its ε is public as it is."""
    labels = released(run, way)
    epsilon = way.aggregator.guarantee.repeated(way.queries).best(run.study.delta).epsilon
    row = {"name": way.name, "aggregator": repr(way.aggregator), "queries": way.queries, "epsilon": epsilon}
    return row | measured(run, labels, labels != ABSTAIN), labels


def two_rounds_row(run: Run, rounds: TwoRounds, student: Scoring, settings: object) -> tuple[Row, Labels]:
    """Describe both rounds together: the second asks where the teachers disagree with the first round's student.

    ``student`` trains that student on the first round's labels and scores the pool; ``settings`` say how.
    """
    first = released(run, rounds.first)
    second = slice(rounds.first.queries, rounds.first.queries + rounds.queries)
    facts = [repr(rounds), array_digest(first), settings]

    def asked() -> Row:
        run.line.show("round one's student")
        scores = student(first)[second]
        rng = np.random.default_rng([LABEL_SEED, rounds.queries, 2])
        votes = run.recorded.votes[second]
        answer = rounds.second.with_scores(scores).answer(votes, rng=rng)
        run.line.show("accounting for two rounds")
        analyses = [
            analysis_of(run, rounds.first, first),
            account(votes, rounds.second, run.study.delta, answer.answered, scores),
        ]
        return {
            "labels": [int(label) for label in answer.labels],
            "answered": [bool(one) for one in answer.answered],
            "costs": costs(analyses),
            "in_paper": published_as_in_paper(analyses),
            "ours": published_on_vote_scale(analyses),
        }

    found = run.kept("two-rounds", facts, asked)
    labels = np.concatenate([first, np.array(found.pop("labels"), dtype=np.int64)])
    answered = np.concatenate([first != ABSTAIN, np.array(found.pop("answered"), dtype=bool)])
    row: Row = {"name": rounds.name, "aggregator": f"{rounds.first.aggregator!r}; {rounds.second!r}"}
    row |= {"queries": len(labels), **measured(run, labels, answered), **found}
    row["reinforced"] = int(np.sum((labels != ABSTAIN) & ~answered))
    return row | _printed(rounds), labels


def measured(run: Run, labels: Labels, answered: NDArray[np.bool_]) -> Row:
    """Measure labels against the true classes: of the answers, and of the plurality over all the queries."""
    truth = run.recorded.pool_y[: len(labels)]
    plurality = run.recorded.votes.counts[: len(labels)].argmax(axis=1)
    rarer = {} if run.study.classes > 2 else {"ones": [float(np.mean(one[answered] == 1)) for one in (labels, truth)]}
    return rarer | {
        "answered": int(answered.sum()),
        "label_accuracy": float(np.mean(labels[answered] == truth[answered])) if answered.any() else None,
        "plurality_accuracy": float(np.mean(plurality == truth)),
    }


def _printed(way: Way | TwoRounds) -> Row:
    """Return what [P] prints for a row, or None."""
    return {"paper": None if way.printed is None else asdict(way.printed)}
