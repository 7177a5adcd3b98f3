"""The workloads of the comparison of aggregators, and the names of its mechanisms."""

from itertools import product

from darrm.plan import CalibratedMechanism, Mechanism
from darrm.priors import Dirichlet
from darrm.privacy import PrivacyParams
from darrm.problem import Voters, Workload

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
NON_PRIVATE, PRIVATE = PrivacyParams("inf"), PrivacyParams("0.1", "1e-5")
TOTALS = (("0.5", "1e-6"), ("1", "1e-5"), ("2", "1e-5"), ("8", "1e-5"))
# (K, overlap, queries, total) of private voters
PRIVATE_SETTINGS = (
    (11, None, 1, ("0.3", "3e-5")),
    (11, None, 100, ("4", "1e-2")),
    (11, 2, 1, ("0.3", "3e-5")),
    (11, 2, 100, ("4", "1e-2")),
    (101, None, 1, ("1", "1e-4")),
    (101, None, 100, ("8", "1e-2")),
    (101, 2, 100, ("2", "1e-2")),
)
VOTE_QUERIES = (1, 100, 1000)
VOTE_TOTALS = (("1", "1e-5"), ("4", "1e-5"))
PLURALITY_TOTAL = ("2", "1e-5")
PLURALITY_CLASSES, PLURALITY_VOTERS, PLURALITY_QUERIES = (3, 10, 150), (50, 250, 1000, 5000), (1, 100, 1000, 10_000)


def name_mechanism(mechanism: CalibratedMechanism | type[Mechanism]) -> str:
    """Return the name of a mechanism in the data: from `NAMES`, else its own."""
    return NAMES.get(mechanism.slug, mechanism.name)


def make_workload(K: int, queries: int, total: tuple[str, str], classes: int = 2) -> Workload:
    """Make a workload of non-private voters with overlap 1."""
    return Workload(Voters(K, NON_PRIVATE, overlap=1), queries, PrivacyParams(*total), classes)


def list_plain_workloads(*, quick: bool) -> list[Workload]:
    """List workloads of non-private voters: K × Q × budget."""
    voters, queries = ((11, 101), (1, 100)) if quick else ((11, 101, 251, 1001), (1, 100, 1000))
    return [make_workload(*setting) for setting in product(voters, queries, TOTALS[1:2] if quick else TOTALS)]


def list_private_workloads(*, quick: bool) -> list[Workload]:
    settings = PRIVATE_SETTINGS[:2] if quick else PRIVATE_SETTINGS
    return [
        Workload(Voters(K, PRIVATE, overlap=overlap), Q, PrivacyParams(*total)) for K, overlap, Q, total in settings
    ]


def list_vote_workloads(K: int, *, quick: bool) -> list[Workload]:
    """List the workloads for recorded votes of two classes."""
    queries, totals = (VOTE_QUERIES[:2], VOTE_TOTALS[:1]) if quick else (VOTE_QUERIES, VOTE_TOTALS)
    return [make_workload(K, *setting) for setting in product(queries, totals)]


def list_plurality_workloads(*, quick: bool) -> list[tuple[Workload, Dirichlet]]:
    """List workloads of more classes, C × K × Q, each with its prior.

    The prior is uniform on histograms. For one number of queries, a second prior has clearer pluralities.
    """
    settings = [*product(PLURALITY_CLASSES, PLURALITY_VOTERS, PLURALITY_QUERIES, (1.0,))]
    settings += product(PLURALITY_CLASSES, PLURALITY_VOTERS, (1000,), (0.5,))
    return [
        (make_workload(K, Q, PLURALITY_TOTAL, C), Dirichlet(concentration))
        for C, K, Q, concentration in ([(3, 50, 100, 1.0)] if quick else settings)
    ]


def list_plurality_vote_workloads(K: int, classes: int, *, quick: bool) -> list[Workload]:
    """List the workloads for recorded votes of more classes."""
    queries = VOTE_QUERIES[1:2] if quick else VOTE_QUERIES
    return [make_workload(K, Q, PLURALITY_TOTAL, classes) for Q in queries]
