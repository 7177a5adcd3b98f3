"""Publishing a data-dependent ε: sanitise it by smooth sensitivity [P, Section B.6].

The published figure is

    ε = noisy answers' cost + checks' cost + GNSS's own cost + conversion at λ and δ,

where the first part is f + SS_β·N(0, σ_SS²) for the data-dependent Rényi cost f at the order λ (plus the checks' cost
where that was accounted from the data), and the others do not depend on the votes. Order, β and σ_SS must be fixed
without looking at the private votes: from `gnss.rules_of_thumb`, or on votes that are public or simulated.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from darrm.losses.charges import Charge
from darrm.pate.analysis import Analysis
from darrm.pate.gnss import GnssParameters, noisy_value
from darrm.pate.smooth_cost import converted, public_costs, smooth_cost
from darrm.privacy import PrivacyParams


@dataclass(frozen=True)
class Sanitized:
    """A privacy cost that may be published.

    Attributes
    ----------
    epsilon, delta
        The figure: an estimate of the run's ε, its own publication included.
    order, conversion
        λ and the name of the conversion.
    noisy_cost
        The sanitised part of the Rényi cost at λ, clipped to what is possible whatever the votes.
    public_cost
        The parts of the Rényi cost that do not depend on the votes: checks and GNSS.
    understated_with
        Probability that the figure is too small: ½ unless a safety was added.
    """

    epsilon: float
    delta: float
    order: float
    conversion: str
    noisy_cost: float
    public_cost: float
    understated_with: float

    def charge(self) -> Charge:
        """Describe the whole run, its publication included, by the sanitised figure."""
        return Charge("PATE run, sanitised cost", guarantee=PrivacyParams(self.epsilon, self.delta))

    def __str__(self) -> str:
        return (
            f"epsilon = {self.epsilon:.4f} at delta = {self.delta:g} (sanitised, may be published; order "
            f"{self.order:g}, {self.conversion} conversion; too small with probability {self.understated_with:.3g})"
        )


def sanitize(analysis: Analysis, parameters: GnssParameters, *, rng: np.random.Generator | None = None) -> Sanitized:
    """Give the figure that may be published for a run that is over.

    Parameters
    ----------
    analysis
        From `analyze`, with ``answered=`` the released pattern of answers where the aggregator has a check.
    parameters
        Order, β, σ_SS and safety, fixed without looking at the votes.
    rng
        None draws from the operating system. A generator is for experiments only: no privacy is claimed.

    Raises
    ------
    ValueError
        If the analysis holds expectations instead of answers, or for `LNMax`.
    ConditionError
        If a condition of [P, Section B.2] fails: then no sanitised figure exists at this order.

    Notes
    -----
    Each call is a new release and costs its own share: publish one figure for a run, not the best of several.
    """
    if analysis.answered is None:
        raise ValueError("sanitize needs the answers that were given: analyze(..., answered=labels >= 0)")
    order = parameters.order
    smooth = smooth_cost(analysis, order, parameters.smoothness)
    weights = analysis.answered.astype(np.float64)
    sensitivity = smooth.sensitivity(weights, parameters.smoothness)
    noisy = noisy_value(smooth.value(weights), sensitivity, parameters, rng=rng)
    checks_cost, ceiling = public_costs(analysis, order, float(weights.sum()))
    noisy = min(max(noisy, 0.0), ceiling)
    public = checks_cost + parameters.cost
    epsilon = converted(order, noisy + public, analysis.delta, analysis.conversion)
    understated = 0.5 * math.erfc(parameters.safety / math.sqrt(2.0))
    return Sanitized(epsilon, analysis.delta, order, analysis.conversion, noisy, public, understated)
