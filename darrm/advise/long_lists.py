"""From how many listed classes on noise on those that were said alone is right more often than noise on all of them.

Noise on a class that nobody said can only make a label wrong, and a list may hold a thousand such classes. An open
answer (`darrm.losses.vanishing`) has none there, and pays for it by a threshold. The votes are those of the prior, the
same for both, and classes without votes are added to the list: what is compared is how often the answer is one of those
with the most votes.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from darrm.errors import PlanError
from darrm.mechanisms.noisy_law import winning_probabilities
from darrm.plan.families import named
from darrm.plan.family import calibrate
from darrm.plan.option import Option
from darrm.plan.share_right import Measure, histograms
from darrm.probability import Array
from darrm.probability.bisection import last_allowed
from darrm.problem import OPEN, Workload
from darrm.system.command_line import rounded_up

LONG = 100  # classes: of fewer, what nobody said is little
LONGEST = 10**6  # classes
DRAWS = 512  # of histograms
LEAST = 0.01  # of the labels: where less is right nothing is worth a sentence


def where_open_wins(workload: Workload, measure: Measure, options: Sequence[Option]) -> tuple[str, ...]:
    """Compare the best noise on all classes with open answers, in a sentence; nothing for short lists."""
    mechanisms = (getattr(option.aggregator, "mechanism", None) for option in options)
    noise = next((law for one in mechanisms if (law := getattr(one, "law", None)) is not None), None)  # on every count
    if workload.classes < LONG or noise is None or not workload.voters.are_plain or workload.missing:
        return ()
    try:
        rival = calibrate(replace(workload, classes=OPEN), named("shaped noise")).law
    except (PlanError, ValueError):  # no delta for a threshold, or too many voters
        return ()
    counts = histograms(measure.prior, workload.voters.K, workload.classes, DRAWS)[0][:DRAWS]

    def mean(law: Array) -> float:
        return float(np.mean(np.sum(law * (counts == counts[:, :1]), axis=1)))

    def right(classes: float) -> float:
        return mean(winning_probabilities(noise, counts, others=round(classes) - workload.classes))

    if rival is None or (best := mean(rival(counts))) < LEAST:
        return ()
    wins = f"noise on the classes that were said alone (--classes open) is right in {best:.1%} of the cases"
    if best >= (here := right(workload.classes)):
        return (f"Of these votes {wins}, noise on all classes in {here:.1%}.",)
    if best < (longest := right(LONGEST)):
        return (f"Of these votes {wins}, noise on all classes in {here:.1%}; of a million, in {longest:.1%}.",)
    last = last_allowed(
        lambda classes: right(classes) > best, float(workload.classes), float(LONGEST), tolerance=0.05, geometric=True
    )
    about = rounded_up(last, 2)
    return (f"Of these votes {wins}, noise on all classes in {here:.1%}; of about {about:,} and more in fewer.",)
