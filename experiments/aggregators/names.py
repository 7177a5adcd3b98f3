"""The names of mechanisms in the kept data and on the pages of the comparison."""

from darrm.plan import CalibratedMechanism, Mechanism

NAMES = {
    "no-noise": "no noise",
    "rdp-optimal": "Rényi",
    "optimal": "per query",
    "exponential": "exponential mechanism",
    "gnmax": "GNMax by label",
    "lnmax": "LNMax by label",
    "asymmetric": "shaped noise",
    "gnmax-paper": "GNMax, paper's σ",
    "gnmax-analytic": "GNMax, tight σ",
    "lnmax-counts": "LNMax",
    "double-subsampling": "double subsampling",
    "darrm-paper": "DaRRM of the paper",
    "randomized-response": "randomized response",
}
OPTIMA = ("rdp-optimal", "optimal")
RELEASED_FIRST = ("no-noise", *OPTIMA, "permute-and-flip", "exponential", "gnmax", "lnmax", "asymmetric")


def name_of(mechanism: CalibratedMechanism | type[Mechanism]) -> str:
    """Return the name in the data: that of a mechanism of your own is its own."""
    return NAMES.get(mechanism.slug, mechanism.name)
