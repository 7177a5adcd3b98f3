"""The ensembles whose runs are counted, and by which settings of Confident-GNMax."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from darrm.pate.confident import ConfidentGNMax
from darrm.votes import Votes
from experiments.aggregators.votes import ten_classes
from experiments.pate.settings import STUDIES, VoteSize, pate_like_votes
from experiments.teachers import Machine

AGREEING = VoteSize(2_000, 5_000, 10, (20.0, 1.2))
QUICK_AGREEING = VoteSize(200, 500, 10, (20.0, 1.2))


@dataclass(frozen=True)
class Setting:
    """So many queries, in the order in which they lie, to Confident-GNMax."""

    queries: int
    threshold: int
    sigma_threshold: float
    sigma_answer: float

    @property
    def aggregator(self) -> ConfidentGNMax:
        """What answers."""
        return ConfidentGNMax(self.threshold, self.sigma_threshold, self.sigma_answer)


@dataclass(frozen=True)
class Ensemble:
    """Voters, δ of their runs, and these.

    ``votes`` reads or makes the votes on a machine, of fewer voters or less trained ones if asked to be quick.
    """

    title: str
    votes: Callable[[Machine, bool], Votes]
    settings: tuple[Setting, ...]
    delta: float = 1e-5


def _ridge(_: Machine, quick: bool) -> Votes:
    return ten_classes("digits" if quick else "mnist", 50 if quick else 250).votes


def _convolutional(machine: Machine, quick: bool) -> Votes:
    # they need torch
    from experiments.pate.ensembles import obtain  # noqa: PLC0415

    return obtain(STUDIES["digits" if quick else "mnist"], machine, quick=quick).votes


def _agreeing(_: Machine, quick: bool) -> Votes:
    return Votes.of_counts(pate_like_votes(QUICK_AGREEING if quick else AGREEING))


def _glyph(machine: Machine, quick: bool) -> Votes:
    # they need freetype's outlines
    from experiments.pate.glyph import obtain_glyph  # noqa: PLC0415

    return obtain_glyph(STUDIES["glyph"], machine, quick=quick).votes


ENSEMBLES = {
    "ridge": Ensemble("linear teachers, MNIST", _ridge, (Setting(400, 200, 150.0, 40.0),)),
    "convolutional": Ensemble(
        "convolutional teachers, MNIST",
        _convolutional,
        (Setting(640, 200, 150.0, 40.0), Setting(2_000, 200, 150.0, 40.0), Setting(2_000, 240, 100.0, 25.0)),
    ),
    "agreeing": Ensemble(
        "simulated teachers that agree",
        _agreeing,
        (
            Setting(2_000, 3_500, 1_500.0, 200.0),
            Setting(2_000, 3_500, 800.0, 100.0),
            Setting(2_000, 3_000, 1_000.0, 60.0),
        ),
    ),
    "glyph": Ensemble("discriminants, a stand-in for Glyph", _glyph, (Setting(12_000, 1_000, 500.0, 100.0),), 1e-8),
}


def scaled(setting: Setting, votes: Votes, voters: int) -> Setting:
    """Scale a setting for so many voters to votes of fewer, and to as many queries as they have.

    >>> scaled(Setting(640, 200, 150.0, 40.0), Votes.of_counts([[30, 20]] * 9), 250)
    Setting(queries=9, threshold=40, sigma_threshold=30.0, sigma_answer=8.0)
    """
    part = votes.voters / voters
    noise = (float(np.round(sigma * part, 3)) for sigma in (setting.sigma_threshold, setting.sigma_answer))
    return Setting(min(setting.queries, votes.queries), round(setting.threshold * part), *noise)
