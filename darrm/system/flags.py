"""The words that the command lines share: numbers, who votes, and how many votes within which budget.

Every number is read by the functions here and refused in one line that names its flag.
Voters that differ stand in a file: CSV with the columns name, epsilon and delta, one voter a line.
"""

import argparse
import csv
import math
import re
from pathlib import Path

from darrm.errors import checks
from darrm.privacy import PrivacyParams, decimal_text, exact_number
from darrm.problem import MOST_QUERIES, OPEN, Voters, Workload, classes_to_json, is_open
from darrm.sampling import Sampling
from darrm.system.files import check_regular
from darrm.system.votes_file import LONGEST_NAME, listed_names

_COLUMNS = ["name", "epsilon", "delta"]
_MOST_BYTES = 2**22
_WANTED = "the first line says name,epsilon,delta, and every other line is a voter, like clinic,0.1,1e-6"


def read_voters(path: Path) -> dict[str, PrivacyParams]:
    """Read what each voter satisfies, by its name.

    `ValueError` if a line is no voter, two have one name, or the file is not text; `OSError` if it cannot be read.
    """
    check_regular(path, _MOST_BYTES)
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            lines = list(csv.reader(file, strict=True))
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{path}: it is no CSV file of voters ({error}): {_WANTED}") from error
    if not lines or [name.strip().lower() for name in lines[0]] != _COLUMNS:
        raise ValueError(f"{path}: line 1 must be {','.join(_COLUMNS)}: {_WANTED}")
    voters: dict[str, PrivacyParams] = {}
    for number, fields in enumerate(lines[1:], 2):
        if len(fields) != len(_COLUMNS):
            raise ValueError(f"{path}: line {number} has {len(fields)} fields: {_WANTED}")
        name, epsilon, delta = (field.strip() for field in fields)
        if not name or name in voters:
            wrong = f"the name {name!r} stands there twice" if name else "a voter without a name"
            raise ValueError(f"{path}: line {number}: {wrong}: {_WANTED}")
        try:
            voters[name] = PrivacyParams(epsilon, delta)
        except ValueError as error:
            raise ValueError(f"{path}: line {number}: {error}") from error
    if not voters:
        raise ValueError(f"{path}: it holds no voter: {_WANTED}")
    return voters


_MOST_NUMBERS = 100  # of queries side by side: a line of a report each
DEFAULT_K, DEFAULT_EPSILON, DEFAULT_EACH_DELTA = "11", "0.1", "1e-5"


def integer(flag: str, text: str, least: int) -> int:
    """Read an integer of at least ``least`` and of a length that is meant; the most is checked where it is used.

    >>> integer("--K", "11", 1)
    11
    """
    try:
        number = int(checks.ascii_digits(text))
    except ValueError:  # no integer, or one of more digits than Python reads
        checks.fail(flag, text, f"an integer of at least {least}", "write it in digits alone, like 11")
    return number if number >= least else checks.fail(flag, number, f"an integer of at least {least}")


def integers(flag: str, text: str) -> list[int]:
    """Read numbers of queries, each once and in order.

    >>> integers("--queries", "50,20,50")
    [20, 50]
    """
    numbers = sorted({integer(flag, part, 1) for part in text.split(",")})
    if numbers[0] < 1 or numbers[-1] > MOST_QUERIES or len(numbers) > _MOST_NUMBERS:
        checks.fail(
            flag, text, f"up to {_MOST_NUMBERS} whole numbers of at least 1 and at most {MOST_QUERIES}, like 20,50"
        )
    return numbers


def add_classes(parser: argparse._ActionsContainer, what: str, default: str | None = None) -> None:
    """Add the flag of the classes, which `classes_of` reads."""
    parser.add_argument("--classes", metavar="C|A,B,…|FILE.csv|open", default=default, help=what)


def classes_of(text: str | None) -> int | tuple[str, ...] | None:
    """Read ``--classes``: how many classes there are, or what they are called; `OPEN` where nobody lists them.

    A word that ends in .csv is a file with one name a line.

    >>> classes_of("10"), classes_of("no, yes"), classes_of("open")
    (10, ('no', 'yes'), open)
    """
    if text is None:
        return None
    if is_open(text):
        return OPEN
    parts = [part.strip() for part in text.split(",")]
    if len(parts) == 1 and re.fullmatch("[0-9]{1,10}", parts[0]):
        return int(parts[0])
    if len(parts) == 1 and text.lower().endswith(".csv"):
        return listed_names(Path(text))
    if len(parts) < 2 or "" in parts or len(set(parts)) != len(parts):
        allowed = "their number, different labels, at least two, like no,yes, or open"
        checks.fail("--classes", text[:LONGEST_NAME], allowed)
    return tuple(parts)


def number_of_classes(text: str) -> int:
    """Read ``--classes`` where it matters only how many there are, at least 2, or `OPEN`.

    >>> number_of_classes("no,yes,maybe"), number_of_classes("10"), number_of_classes("open")
    (3, 10, open)
    """
    classes = classes_of(text)
    if isinstance(classes, tuple):
        return len(classes)
    return OPEN if is_open(classes) else integer("--classes", text, 2)


def real(flag: str, text: str, least: float = 0.0) -> float:
    """Read a number of at least ``least``, infinity included.

    >>> real("--gap", "1e-9"), real("--time-limit", "inf")
    (1e-09, inf)
    """
    try:
        value = float(checks.ascii_digits(text))
    except ValueError:
        value = math.nan
    if not value >= least:
        advice = "write decimals with a point" if "," in text else ""
        checks.fail(flag, text, "a number" if least == -math.inf else f"a number of at least {least:g}", advice)
    return value


def privacy_pair(flag: str, text: str | None, example: str = "2,1e-5") -> PrivacyParams:
    """Read ``EPS,DELTA``, exactly as it is typed.

    >>> privacy_pair("--total", "2, 1e-5")
    PrivacyParams(epsilon=2, delta=0.00001)
    """
    if text is None:
        raise ValueError(f"{flag} is needed: {flag} EPS,DELTA, like {flag} {example}")
    parts = text.split(",")
    if len(parts) != 2:
        missing = "the delta is missing: say it after a comma"
        advice = missing if len(parts) == 1 else "decimals have a point, and no space follows the comma"
        checks.fail(flag, text, f"EPS,DELTA, like {example}", advice)
    return _pair(flag, parts[0].strip(), parts[1].strip())


def _pair(flags: str, epsilon: str, delta: str) -> PrivacyParams:
    try:
        return PrivacyParams(epsilon, delta)
    except ValueError as error:
        raise ValueError(f"{flags}: {error}") from error


def add_voters(parser: argparse.ArgumentParser) -> None:
    """Add the flags that say who votes."""
    group = parser.add_argument_group("who votes")
    group.add_argument(
        "--K", metavar="INT", help=f"number of voters (default {DEFAULT_K}, or as many as are told apart)"
    )
    group.add_argument(
        "--voters",
        default="private",
        metavar="{private,plain,FILE.csv}",
        help="private (default): each voter satisfies --epsilon and --each-delta; plain: nothing is known of them; "
        "FILE.csv: lines of name,epsilon,delta, a voter each (epsilon inf: nothing is known of it)",
    )
    group.add_argument(
        "--epsilon",
        metavar="REAL[,REAL...]",
        help=f"ε of each private voter (default {DEFAULT_EPSILON}), or one for each where they differ",
    )
    group.add_argument(
        "--each-delta", metavar="REAL[,REAL...]", help=f"Δ of each private voter (default {DEFAULT_EACH_DELTA})"
    )
    group.add_argument("--overlap", metavar="INT", help="how many voters one person's data can reach (default K)")
    group.add_argument(
        "--sampled",
        metavar="[fixed:]RATE",
        help="voters draw their examples anew for every query, such as prompted language models: the probability that "
        "one record is among them, by a coin of its own (fixed:RATE: a sample of fixed size); they are plain, and a "
        "person reaches --records-each of them",
    )
    group.add_argument("--records-each", metavar="INT", help="with --sampled: records of one person (default 1)")
    group.add_argument(
        "--models", action="store_true", help="each voter is a model, trained once, that answers all queries"
    )


def voters_of(options: argparse.Namespace) -> Voters:
    """Read who votes; `ValueError` if a flag is malformed, out of range, or contradicts another."""
    K = None if options.K is None else integer("--K", options.K, 1)
    if options.sampled is not None:
        return _sampled_voters(options, int(DEFAULT_K) if K is None else K)
    if options.records_each is not None:
        raise ValueError("--records-each is about voters that draw their examples anew: say --sampled RATE")
    overlap = None if options.overlap is None else integer("--overlap", options.overlap, 1)
    if options.voters != "private":
        for flag in ("epsilon", "each_delta"):
            if getattr(options, flag) is not None:
                name = f"--{flag.replace('_', '-')}"
                why = f"leave it out with --voters {options.voters}"
                raise ValueError(f"{name} is about private voters that are alike: {why}")
        if options.voters == "plain":
            return Voters(int(DEFAULT_K) if K is None else K, PrivacyParams("inf"), overlap, options.models)
        if not options.voters.lower().endswith(".csv"):
            checks.fail("--voters", options.voters, "'private', 'plain', or a file that ends in .csv")
        own = list(read_voters(Path(options.voters)).values())
    else:
        own = _each_of(options, K)
    if K is not None and len(own) != K and (len(own) > 1 or options.voters != "private"):
        checks.fail("--K", K, f"{len(own)}, the number of voters told apart", "leave it out")
    if len(own) > 1 or options.voters != "private":
        return Voters.of(own, overlap, models=options.models)
    return Voters(int(DEFAULT_K) if K is None else K, own[0], overlap, options.models)


def _sampled_voters(options: argparse.Namespace, K: int) -> Voters:
    records = 1 if options.records_each is None else integer("--records-each", options.records_each, 1)
    said = options.voters not in {"private", "plain"} or options.models
    if said or options.epsilon is not None or options.each_delta is not None:
        raise ValueError("--sampled is about voters that are plain: leave out --epsilon, --each-delta and --models")
    reached = min(records, K)
    if options.overlap is not None and integer("--overlap", options.overlap, 1) != reached:
        checks.fail("--overlap", options.overlap, f"{reached} with --sampled", "a person reaches --records-each voters")
    scheme, colon, rate = options.sampled.rpartition(":")
    if scheme != "fixed" and colon:
        checks.fail("--sampled", options.sampled, "a probability like 0.004, or fixed:0.004")
    try:
        sampling = Sampling(exact_number("the sampling rate", rate.strip()), scheme or "poisson", records)
    except ValueError as error:
        raise ValueError(f"--sampled and --records-each: {error}") from error
    return Voters(K, PrivacyParams("inf"), reached, sampled=sampling)


def _each_of(options: argparse.Namespace, K: int | None) -> list[PrivacyParams]:
    epsilons = (DEFAULT_EPSILON if options.epsilon is None else options.epsilon).split(",")
    deltas = (DEFAULT_EACH_DELTA if options.each_delta is None else options.each_delta).split(",")
    most = max(len(epsilons), len(deltas))
    if not {len(epsilons), len(deltas)} <= {1, most}:
        checks.fail("--each-delta", options.each_delta, f"one Δ, or {len(epsilons)}, as many as --epsilon says")
    if most > 1 and K is not None and most != K:
        flag, text = ("--epsilon", options.epsilon) if len(epsilons) > 1 else ("--each-delta", options.each_delta)
        checks.fail(flag, text, f"one number, or K = {K} where voters differ", "write decimals with a point")
    pairs = zip(epsilons * (most // len(epsilons)), deltas * (most // len(deltas)), strict=True)
    plain = PrivacyParams("inf")  # nothing is known of it, whatever Δ the others have
    private = [
        plain if text.strip() == "inf" else _pair("--epsilon and --each-delta", text, delta) for text, delta in pairs
    ]
    if private == [plain] * most:
        raise ValueError("--epsilon must be finite for private voters: say --voters plain")
    return private


def add_prior(parser: argparse.ArgumentParser, default: str = "common") -> None:
    """Add the flag of what is publicly believed about the voters; `darrm.laws.priors.parse` reads it."""
    parser.add_argument(
        "--prior",
        metavar="PRIOR",
        help="what is publicly believed about the voters: dirichlet:A (A < 1: they agree more; 1: every histogram of "
        "votes equally likely), spread (the mean of A = 1, 1/C and 1/(10C): divided, mixed, agreeing), "
        "like:FILE (led:LEADER,OTHERS, one class leads, fitted to public votes) or votes:FILE "
        "(public votes themselves); for two classes also common (dirichlet:1, one p for all), "
        "uniform (independent on [0.5, 1]), uniform:LOW,HIGH, two-sided:LOW,HIGH (independent on [1-HIGH, 1-LOW] or "
        f"[LOW, HIGH]) or point:P (default {default})",
    )
    parser.add_argument(
        "--votes-look-like",
        metavar="FILE|PRIOR",
        help="as --prior, FILE holding public votes, and ask for runs that a private test lets leave where votes are "
        "like these: cheap where voters agree; unlike these, nothing leaves and the budget is spent",
    )


def prior_of(options: argparse.Namespace) -> str | None:
    """Return the text of the prior that was typed, if any, with either flag."""
    like: str | None = options.votes_look_like
    if like is None:
        prior: str | None = options.prior
        return prior
    if options.prior is not None:
        raise ValueError("--votes-look-like says what is believed, too: leave --prior out")
    if Path(like).suffix and ":" not in like and not Path(like).exists():
        checks.fail("--votes-look-like", like, "a file of public votes that is there, or a prior like dirichlet:0.01")
    return f"votes:{like}" if Path(like).exists() else like


def add_workload(parser: argparse.ArgumentParser) -> None:
    """Add the flags of many votes within one budget."""
    add_voters(parser)
    group = parser.add_argument_group("what is released")
    group.add_argument("--queries", default="1", metavar="INT", help="how many votes are released (default 1)")
    add_classes(group, "the answers a voter chooses from, or how many (default 2)", "2")
    group.add_argument(
        "--missing",
        default="0",
        metavar="INT",
        help="how many votes are usually missing: fair coins, of more classes dice, stand for them (release --missing "
        "coin), and a label is right about the votes that are there (default 0)",
    )
    group.add_argument("--total", metavar="EPS,DELTA", help="the budget of all answers together, like 2,1e-5")
    group.add_argument(
        "--time-limit",
        default="inf",
        metavar="SECONDS",
        help="stop the search, as Ctrl-C does, with the best so far (default inf); its report comes on top",
    )


def workload_of(options: argparse.Namespace) -> Workload:
    """Read the flags of `add_workload`; `ValueError` if one is missing, malformed or out of range."""
    voters, queries = voters_of(options), integer("--queries", options.queries, 1)
    classes = number_of_classes(options.classes)
    missing = integer("--missing", options.missing, 0)
    if missing >= voters.K:
        checks.fail("--missing", missing, f"below K = {voters.K}", "without a vote nothing is right")
    return Workload(voters, queries, privacy_pair("--total", options.total), classes, missing)


def flags_of(workload: Workload) -> str:
    """Write a workload as the flags that ask for it.

    >>> flags_of(Workload(Voters(250, PrivacyParams("inf"), overlap=1), 1000, PrivacyParams("2", "1e-5")))
    '--K 250 --voters plain --overlap 1 --queries 1000 --total 2,0.00001'
    """
    voters, each, total = workload.voters, workload.voters.each, workload.total
    kind = "--voters plain" if voters.are_plain else f"--epsilon {each.epsilon_text} --each-delta {each.delta_text}"
    if voters.own is not None:
        epsilons, deltas = ([getattr(own, name) for own in voters.own] for name in ("epsilon_text", "delta_text"))
        kind = f"--epsilon {','.join(epsilons)} --each-delta {','.join(deltas if len(set(deltas)) > 1 else deltas[:1])}"
    overlap = "" if voters.overlap is None else f" --overlap {voters.overlap}"
    if voters.sampled is not None:
        kind, overlap = _flags_of_sampled(voters.sampled), ""
    who = f"--K {voters.K} {kind}{overlap}{' --models' if voters.models else ''}"
    classes = "" if workload.has_noise_function else f" --classes {classes_to_json(workload.classes)}"
    missing = f" --missing {workload.missing}" if workload.missing else ""
    return f"{who}{classes} --queries {workload.queries}{missing} --total {total.epsilon_text},{total.delta_text}"


def _flags_of_sampled(sampling: Sampling) -> str:
    scheme = "" if sampling.scheme == "poisson" else f"{sampling.scheme}:"
    records = "" if sampling.records == 1 else f" --records-each {sampling.records}"
    return f"--sampled {scheme}{decimal_text(sampling.record_rate)}{records}"
