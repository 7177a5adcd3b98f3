"""The claims of a table's file: that it is whole, private, as good as it says, and about whom.

Privacy is decided twice: by `darrm.verify.exact` or `darrm.verify.plurality`, which share nothing with the prover, and
by the prover, when the table is loaded. The claim of optimality is attacked: whatever noise function this release finds
and proves is a witness against a bound above its error.
"""

import hashlib
import json
import math
from codecs import BOM_UTF8
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any

from darrm.errors import DarrmError
from darrm.laws import priors
from darrm.mechanisms.noisy_maximum import FORMAT, NoisyMaximum
from darrm.pate import tested
from darrm.pate.files import CLAIMS, without_claims
from darrm.pate.tested import TestedRun
from darrm.privacy import PrivacyParams
from darrm.proof.evidence import CORNERS, MOVES, OPEN_ROWS
from darrm.proof.table import Table
from darrm.system.files import Json, parse_json
from darrm.verify.drawn import follows, rate_of
from darrm.verify.exact import Enclosure
from darrm.verify.majority import ExactMajority
from darrm.verify.mechanism import ExactMechanism, judge_mechanism
from darrm.verify.members import judge_reach, judge_sampling
from darrm.verify.plan import judge_plan
from darrm.verify.plurality import ExactPlurality
from darrm.verify.tested import ExactRun, judge_run
from darrm.verify.verdicts import ABOUT_TABLE, CLAIMED, CONSISTENT, FALSE, NOTE, PROVED, Verdict, judged

Exact = ExactMajority | ExactPlurality
Answering = Table | NoisyMaximum | TestedRun  # what answers, as a file holds it
_BY_FORMAT: dict[object, type[Exact]] = {
    CORNERS.format: ExactMajority,
    MOVES.format: ExactPlurality,
    OPEN_ROWS.format: ExactPlurality,
}

_FIGURES = 1e-9  # relative: machines agree on a figure of the certificate to so much
# figures, which may be off by a rounding: each has a line of its own
_JUDGED_APART = {f"/certificate/{name}" for name in ("worst_cost", "budget", "rows", "method", "scale")} | {
    "/optimality/value",
    "/optimality/bound",
}
_ROUNDED_PRIOR = 1e-5  # relative, of an expected error: the first version of a file rounded its prior to six digits
# what a load of a malformed file may raise; a file is either a table or not
_UNREADABLE = (DarrmError, ValueError, TypeError, KeyError, AttributeError, ArithmeticError, RecursionError)


def exact_of(table: Table) -> Exact:
    """Return what computes the claims of a table anew: the one place that tells majorities from pluralities."""
    return _BY_FORMAT[table.evidence.format](table)


def costs_of(answering: Answering) -> Exact | ExactMechanism | ExactRun:
    """Return what computes anew what one answer costs."""
    if isinstance(answering, Table):
        return exact_of(answering)
    return ExactRun(answering) if isinstance(answering, TestedRun) else ExactMechanism(answering)


def judge_release(content: bytes) -> tuple[Answering | None, list[Verdict]]:
    """Judge every claim of a file that is released from, a table or a mechanism, and of the plan that it came from.

    `ValueError` if the file holds no JSON object at all.
    """
    data = parsed(content)
    answering: Answering | None
    if data.get("format") == FORMAT:
        answering, verdicts = judge_mechanism(without_claims(data))
    elif data.get("format") == tested.FORMAT:
        answering, verdicts = judge_run(without_claims(data))
    else:
        answering, verdicts = judge_table(content)
    if CLAIMS in data and answering is not None:
        verdicts += judge_plan(data[CLAIMS], costs_of(answering))
    return answering, verdicts


def judge_table(content: bytes) -> tuple[Table | None, list[Verdict]]:
    """Judge every claim of a table's file; the table is None if it cannot be used.

    `ValueError` if the file holds no JSON object at all.
    """
    data = without_claims(parsed(content))
    named = data.get("format")
    kind = _BY_FORMAT.get(named, ExactMajority) if isinstance(named, str) else ExactMajority
    sound = judge_checksum(data, kind.numbers)
    if sound.verdict == FALSE:
        return None, [sound]
    try:
        table: Table = kind.read(data)
    except _UNREADABLE as error:
        claim = "it is a table that proves what it says"
        return None, [sound, Verdict(ABOUT_TABLE, claim, FALSE, str(error) or repr(error))]
    exact = exact_of(table)
    claims = [*judge_privacy(data["certificate"], exact), *judge_name(data, exact), *judge_optimality(exact)]
    claims += judge_premises(table)
    if content.startswith(BOM_UTF8):
        claims.append(Verdict(ABOUT_TABLE, "the file has a byte order mark", CONSISTENT, "another program wrote it"))
    return table, [sound, judge_form(data, table, kind.version), *claims]


def parsed(content: bytes) -> dict[str, Json]:
    """Read the JSON object of a table's file; `ValueError` if it holds none."""
    try:
        data = parse_json(content.decode("utf-8-sig"))
    except ValueError as error:
        raise ValueError(
            f"the table's file holds no JSON: {error}; wanted is what --output of optimize or plan wrote"
        ) from error
    if not isinstance(data, dict):
        raise ValueError("the table's file holds no JSON object")  # noqa: TRY004 (a bad file, not a bad type)
    return data


def judge_checksum(data: Mapping[str, Json], numbers_of: str) -> Verdict:
    """Judge the checksum of the problem and of the field that holds the numbers."""
    numbers = {name: data.get(name) for name in ("problem", numbers_of)}
    text = json.dumps(numbers, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    digest = hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()
    what = "γ" if numbers_of == "gamma" else numbers_of
    reason = f"the SHA-256 of problem and {what} is {digest}; it finds damage, and a forger could write it anew"
    return judged(ABOUT_TABLE, "its numbers are as they were saved", reason, holds=data.get("checksum") == digest)


def judge_form(data: dict[str, Json], table: Table, version: object) -> Verdict:
    """Judge that a file holds what this release would write, and nothing else."""
    claim = "the file says nothing else than a table says"
    written = json.loads(json.dumps(table.to_json()))
    differing = [path for path in differences(_spelled_anew(data, version), written, "") if path not in _JUDGED_APART]
    reason = (
        f"not as this release would write it: {', '.join(differing[:5])}" if differing else "written again, it is equal"
    )
    return judged(ABOUT_TABLE, claim, reason, holds=not differing)


def _spelled_anew(data: dict[str, Json], version: object) -> dict[str, Json]:
    """Spell a file as this release does: earlier ones wrote ``common``, 1.0, priors as text, and no multipliers."""
    data, optimality = {**data, "version": version}, data.get("optimality")
    if optimality is None:
        return data
    prior = priors.to_json(priors.from_json(optimality["prior"]), data["problem"]["K"])
    return {**data, "optimality": {"multipliers": None, **optimality, "prior": prior}}


def judge_name(data: Mapping[str, Json], exact: Exact) -> Iterator[Verdict]:
    """Judge the expected error of a file of the first version under the prior that its text names, with six digits."""
    claim, optimality = data.get("optimality"), exact.table.optimality
    if not claim or optimality is None or data["version"] != 1 or not isinstance(claim["prior"], str):
        return
    try:
        prior = priors.parse(claim["prior"])
    except (ValueError, OSError):  # the name of a user's own prior, of which nothing is known
        return
    if optimality.held_out is not None or not prior.has_closed_form or priors.is_built_in(optimality.prior):
        return
    true = exact.table.gamma.expected_error(prior)
    near = abs(optimality.value - true) <= _ROUNDED_PRIOR * true + float(exact.tolerance)
    said = f"{exact.merit} {optimality.value!r} is that of the prior {claim['prior']!r}, whose text has six digits"
    yield judged(ABOUT_TABLE, f"the {said}", f"with these digits it is {true!r}", holds=near)


def differences(first: Any, second: Any, path: str) -> Iterator[str]:  # noqa: ANN401 (whatever JSON holds)
    """Yield the places at which two JSON values differ."""
    if isinstance(first, dict) and isinstance(second, dict):
        for name in sorted(first.keys() | second.keys()):
            if name in first and name in second:
                yield from differences(first[name], second[name], f"{path}/{name}")
            else:
                yield f"{path}/{name}"
    elif type(first) is not type(second) or first != second:
        yield path


def judge_privacy(written: Mapping[str, object], exact: Exact) -> Iterator[Verdict]:
    """Judge that one label is as private as its target, and the figures of the certificate as they are written."""
    certain, certificate = exact.table.problem.for_certain.target, exact.table.certificate
    stored = dict.fromkeys(vars(certificate)) | dict(written)  # a figure that is missing is no number
    worst, allowed = exact.worst(certain.exact_epsilon), exact.budget(certain)
    largest, budget = certificate.worst_cost, certificate.budget
    proved = f"the largest cost is at most {largest!r}, the budget {budget!r}, by {certificate.method}"
    yield _judge_target(exact, certain, worst, allowed, proved)
    yield judge_figure("the cost of no pair of neighbors exceeds", stored["worst_cost"], largest, worst)
    yield judge_figure("the budget is no less than", stored["budget"], budget, allowed)
    rows = f"this release counts {certificate.rows:,}, by {certificate.method}"
    same = (stored["rows"], stored["method"]) == (certificate.rows, certificate.method)
    claim = f"the proof covers {stored['rows']!r} rows, by {stored['method']!r}"
    yield judged(ABOUT_TABLE, claim, rows, holds=same, how=PROVED)
    scale = stored["scale"]
    honest = isinstance(scale, float | int) and not isinstance(scale, bool) and 0 < scale <= 1
    scaled = "how far a proposal was shrunk is not in the file" if honest else "a factor lies in (0, 1]"
    yield judged(ABOUT_TABLE, f"the proposal was scaled by {scale!r}", scaled, holds=honest, how=CLAIMED)


def _judge_target(
    exact: Exact, certain: PrivacyParams, worst: Enclosure | None, allowed: Enclosure, proved: str
) -> Verdict:
    problem = exact.table.problem
    target, sampling = problem.target, problem.voters.sampled
    claim = f"one label is {target}-differentially private"
    if sampling is not None:
        claim += f" for neighbors that {sampling.neighbors}, drawn with probability {float(rate_of(sampling)):g}"
        if not follows(certain, target, sampling):
            return Verdict(
                ABOUT_TABLE, claim, FALSE, f"that does not follow from {certain} for a person who takes part"
            )
        if exact.laws() is not None:
            found, allowed = exact.deltas([target.exact_epsilon]), Enclosure(target.exact_delta, target.exact_delta)
            worst = None if found is None else found[0]
    if worst is None:
        reason = f"too large for the checker that shares nothing with the prover; proved again by the prover: {proved}"
        return Verdict(ABOUT_TABLE, claim, PROVED, reason)
    if worst.lower > allowed.upper:
        reason = f"a cost of {float(worst.lower)!r} is attained, above the budget {float(allowed.upper)!r}"
        return Verdict(ABOUT_TABLE, claim, FALSE, reason)
    close = "" if worst.upper <= allowed.lower else ", too close to the budget for its 128 bits"
    reason = f"exact rational arithmetic over {worst.family} finds {float(worst.upper)!r}{close}"
    return Verdict(ABOUT_TABLE, claim, PROVED, f"{reason}; the prover agrees: {proved}")


def judge_optimality(exact: Exact) -> Iterator[Verdict]:
    """Judge how good the law is said to be, and that none is better."""
    optimality = exact.table.optimality
    if optimality is None:
        return
    value, margin = exact.value(), float(exact.tolerance)
    claim = f"the {exact.merit} is {optimality.value!r} {exact.believed}"
    if value is None:
        yield Verdict(ABOUT_TABLE, claim, CLAIMED, exact.not_in_the_file)
    else:
        near = abs(Fraction(optimality.value) - value) <= exact.tolerance
        yield judged(ABOUT_TABLE, claim, f"exact rational arithmetic gives {float(value)!r}", holds=near, how=PROVED)
    yield from exact.notes()
    yield Verdict(ABOUT_TABLE, f"the solver stopped with {optimality.status!r}", CLAIMED, NOTE)
    beyond = exact.sign * (optimality.value - optimality.bound)
    kept = "the multipliers in the file" if optimality.multipliers else "what any mechanism can tell of one string"
    verdict, reason = PROVED, f"recomputed from {kept}"
    if beyond > 0.0 or (value is not None and exact.sign * (float(value) - optimality.bound) > margin):
        verdict, reason = FALSE, "the law in the file is private and better"
    elif optimality.claimed:
        verdict, reason = exact.search()
    yield Verdict(ABOUT_TABLE, exact.bound_claim, verdict, reason)


def judge_figure(claim: str, stored: object, ours: float, true: Enclosure | None) -> Verdict:
    """Judge a figure of the certificate: it must be what its method gives, and on the safe side of the truth."""
    claim = f"{claim} {stored!r}"
    if not isinstance(stored, float | int) or isinstance(stored, bool) or not math.isfinite(stored):
        return Verdict(ABOUT_TABLE, claim, FALSE, "this is no number")
    figure = f"this release finds {ours!r}"
    near = abs(stored - ours) <= _FIGURES * max(abs(ours), 1e-300)
    if true is None or not near:
        return judged(ABOUT_TABLE, claim, figure, holds=near)
    safe = stored <= true.upper if "budget" in claim else stored >= true.lower
    return judged(ABOUT_TABLE, claim, f"{figure}, the truth is {float(true.lower)!r}", holds=safe, how=PROVED)


def judge_premises(table: Table) -> Iterator[Verdict]:
    """Judge what a table is about and no file can show."""
    voters = table.problem.voters
    if not voters.are_plain:
        reason = "the privacy of the voters is not in the files; without it nothing above holds"
        for n, each in voters.private_kinds:
            whose = f"each of the {n} voters" if voters.own is None else f"{n} of the {voters.K} voters"
            verb = "is" if voters.own is None or n == 1 else "are"
            yield Verdict(ABOUT_TABLE, f"{whose} {verb} {each}-differentially private", CLAIMED, reason)
    yield judge_reach(voters, ABOUT_TABLE)
    yield from judge_sampling(voters.sampled, ABOUT_TABLE)
    words = "are models, trained once" if voters.models else "draw fresh randomness for every question"
    if not voters.are_plain:
        yield Verdict(ABOUT_TABLE, f"the voters {words}", CLAIMED, "nothing in votes or files shows it")
    for name, text in sorted(table.provenance.items()):
        yield Verdict(ABOUT_TABLE, f"{name}: {text}", CLAIMED, NOTE)
