"""The words that the command lines share: numbers, and who votes on what; refused in one line that names the flag."""

from __future__ import annotations

import argparse
import math

from darrm import checks
from darrm.privacy import PrivacyParams
from darrm.problem import Voters, Workload
from darrm.system.command_line import CommandLine

DEFAULT_EPSILON, DEFAULT_EACH_DELTA = "0.1", "1e-5"


def integer(flag: str, text: str, least: int) -> int:
    """Read an integer; its range is checked where it is used.

    Examples
    --------
    >>> integer("--K", "11", 1)
    11
    """
    try:
        return int(text)
    except ValueError:
        return checks.fail(flag, text, f"an integer of at least {least}")


def real(flag: str, text: str) -> float:
    """Read a number of at least 0, infinity included.

    Examples
    --------
    >>> real("--gap", "1e-9"), real("--time-limit", "inf")
    (1e-09, inf)
    """
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not value >= 0.0:
        checks.fail(flag, text, "a number of at least 0")
    return value


def privacy_pair(flag: str, text: str | None, example: str = "2,1e-5") -> PrivacyParams:
    """Read ``EPS,DELTA``, exactly as it is typed.

    Examples
    --------
    >>> privacy_pair("--total", "2, 1e-5")
    PrivacyParams(epsilon=2, delta=0.00001)
    """
    parts = [] if text is None else text.split(",")
    if len(parts) != 2:
        checks.fail(flag, text, f"EPS,DELTA, like {example}")
    return PrivacyParams(parts[0].strip(), parts[1].strip())


def add_workload(parser: CommandLine) -> None:
    """Add the flags, and that of the prior under which releases are judged."""
    group = parser.add_argument_group("what is to be released")
    group.add_argument("--K", default="11", metavar="INT", help="number of voters (default 11)")
    group.add_argument(
        "--voters",
        default="private",
        choices=("private", "plain"),
        help="private (default): each voter satisfies --epsilon and --each-delta; plain: nothing is known of them",
    )
    group.add_argument("--epsilon", metavar="REAL", help=f"ε of each private voter (default {DEFAULT_EPSILON})")
    group.add_argument("--each-delta", metavar="REAL", help=f"Δ of each private voter (default {DEFAULT_EACH_DELTA})")
    group.add_argument("--overlap", metavar="INT", help="how many voters one person's data can reach (default K)")
    group.add_argument(
        "--models", action="store_true", help="each voter is a model, trained once, that answers all queries"
    )
    group.add_argument("--queries", default="1", metavar="INT", help="how many votes are released (default 1)")
    group.add_argument("--total", metavar="EPS,DELTA", help="the budget of all answers together, like 2,1e-5")
    parser.add_argument(
        "--prior",
        default="common",
        metavar="PRIOR",
        help="what is publicly believed about the voters: common (one p for all, the default), uniform, "
        "uniform:LOW,HIGH or point:P",
    )


def workload_of(options: argparse.Namespace) -> Workload:
    """Read the flags.

    Raises
    ------
    ValueError
        If a flag is missing, malformed or out of range, or contradicts ``--voters plain``.
    """
    if options.voters == "plain":
        for flag in ("epsilon", "each_delta"):
            if getattr(options, flag) is not None:
                raise ValueError(
                    f"--{flag.replace('_', '-')} is about private voters: leave it out with --voters plain"
                )
        each = PrivacyParams("inf")
    else:
        epsilon = DEFAULT_EPSILON if options.epsilon is None else options.epsilon
        each_delta = DEFAULT_EACH_DELTA if options.each_delta is None else options.each_delta
        each = PrivacyParams(epsilon, each_delta)
        if not each.is_private:
            raise ValueError("--epsilon must be finite for private voters: say --voters plain")
    voters = integer("--K", options.K, 1)
    overlap = None if options.overlap is None else integer("--overlap", options.overlap, 1)
    queries = integer("--queries", options.queries, 1)
    return Workload(Voters(voters, each, overlap, options.models), queries, privacy_pair("--total", options.total))


def flags_of(workload: Workload) -> str:
    """Write a workload as the flags that ask for it.

    Examples
    --------
    >>> flags_of(Workload(Voters(250, PrivacyParams("inf"), overlap=1), 1000, PrivacyParams("2", "1e-5")))
    '--K 250 --voters plain --overlap 1 --queries 1000 --total 2,0.00001'
    """
    voters, each = workload.voters, workload.voters.each
    kind = f"--epsilon {each.epsilon_text} --each-delta {each.delta_text}" if each.is_private else "--voters plain"
    overlap = "" if voters.overlap is None else f" --overlap {voters.overlap}"
    models = " --models" if voters.models else ""
    total = f"{workload.total.epsilon_text},{workload.total.delta_text}"
    return f"--K {voters.K} {kind}{overlap}{models} --queries {workload.queries} --total {total}"
