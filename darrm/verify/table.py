"""The claims of a table's file: that it is whole, private, as good as it says, and about whom.

Privacy is decided twice: by `darrm.verify.exact`, which shares nothing with the prover, and by the prover, when the
table is loaded. The claim of optimality is attacked: whatever noise function this release finds and proves is a witness
against a bound above its error.
"""

from collections.abc import Iterator, Mapping
from fractions import Fraction
from itertools import chain
from typing import Any

from darrm.errors import DarrmError
from darrm.laws import priors
from darrm.mechanisms import noisy_maximum
from darrm.optimize.optimizer import optimize_gamma
from darrm.privacy import PrivacyParams
from darrm.proof import plurality_table
from darrm.proof.optimality import Optimality
from darrm.proof.plurality_table import PluralityTable
from darrm.proof.table import VERSION, GammaTable
from darrm.verify.any_table import (
    ABOUT,
    UNREADABLE,
    Table,
    judge_checksum,
    judge_figure,
    judge_form,
    judge_premises,
    parsed,
)
from darrm.verify.exact import ReleaseNumbers, budget, expected_error, worst_costs
from darrm.verify.plurality import judge_plurality
from darrm.verify.verdicts import CLAIMED, CONSISTENT, FALSE, PROVED, Verdict, judged
from lp_models.options import SolveOptions

_ERROR = Fraction(1, 10**12)  # of a stated expected error
_SEARCH_SECONDS = 10.0  # for a noise function that is better than the file says one can be
_NOT_IN_THE_FILE = "the file does not hold what it takes to compute it: an own prior, or draws"


def judge_table(content: bytes) -> tuple[Table | None, list[Verdict]]:
    """Judge every claim of a table's file; the table is None if it cannot be used.

    `ValueError` if the file holds no JSON object at all, or a mechanism.
    """
    data = parsed(content)
    if data.get("format") == noisy_maximum.FORMAT:
        raise ValueError(
            "it is a mechanism, which holds no proof to judge: what its labels cost is computed when they are charged, "
            "and python -m darrm.account --ledger says what was"
        )
    plurality = data.get("format") == plurality_table.FORMAT
    sound = judge_checksum(data, "weights" if plurality else "gamma")
    if sound.verdict == FALSE:
        return None, [sound]
    try:
        table: Table = (PluralityTable if plurality else GammaTable).from_json(data)
    except UNREADABLE as error:
        return None, [sound, Verdict(ABOUT, "it is a table that proves what it says", FALSE, str(error) or repr(error))]
    if isinstance(table, PluralityTable):
        form, claims = judge_form(data, table, plurality_table.VERSION), judge_plurality(data["certificate"], table)
    else:
        form = judge_form(data, table, VERSION)
        claims = chain(_judge_privacy(data["certificate"], table), _judge_optimality(table))
    return table, [sound, form, *claims, *judge_premises(table)]


def release_numbers(table: GammaTable) -> ReleaseNumbers:
    """Return the plain numbers of a table, for the exact checker."""
    voters = table.problem.voters
    differ = voters.own is not None
    own = tuple((n, _numbers(kind)) for n, kind in voters.kinds) if differ else None
    half = tuple(Fraction(float(value)) for value in table.gamma.half)
    return ReleaseNumbers(voters.K, _numbers(voters.each), voters.reached, half, own)


def _numbers(each: PrivacyParams) -> tuple[Fraction, Fraction] | None:
    return (each.exact_epsilon, each.exact_delta) if each.is_private else None


def _judge_privacy(written: Mapping[str, Any], table: GammaTable) -> Iterator[Verdict]:
    target, certificate = table.problem.target, table.certificate
    stored = dict.fromkeys(vars(certificate)) | dict(written)  # a figure that is missing is no number
    allowed = budget(target.exact_epsilon, target.exact_delta)
    found = worst_costs(release_numbers(table), [target.exact_epsilon])
    claim = f"one label is {target}-differentially private"
    largest, allowed_here = certificate.worst_cost, certificate.budget
    proved = f"the largest cost is at most {largest!r}, the budget {allowed_here!r}, by {certificate.method}"
    if found is None:
        reason = f"too large for the checker that shares nothing with the prover; proved again by the prover: {proved}"
        yield Verdict(ABOUT, claim, PROVED, reason)
    elif found[0].lower > allowed.upper:
        reason = f"a cost of {float(found[0].lower)!r} is attained, above the budget {float(allowed.upper)!r}"
        yield Verdict(ABOUT, claim, FALSE, reason)
    else:
        exact = f"exact rational arithmetic over {found[0].family} finds {float(found[0].upper)!r}"
        close = "" if found[0].upper <= allowed.lower else ", too close to the budget for its 128 bits"
        yield Verdict(ABOUT, claim, PROVED, f"{exact}{close}; the prover agrees: {proved}")
    true = None if found is None else found[0]
    yield judge_figure("the cost of no pair of neighbors exceeds", stored["worst_cost"], largest, true)
    yield judge_figure("the budget is no less than", stored["budget"], allowed_here, allowed)
    rows = f"this release counts {certificate.rows:,}, by {certificate.method}"
    same = (stored["rows"], stored["method"]) == (certificate.rows, certificate.method)
    yield judged(
        ABOUT, f"the proof covers {stored['rows']!r} rows, by {stored['method']!r}", rows, holds=same, how=PROVED
    )
    scale = stored["scale"]
    honest = isinstance(scale, float | int) and not isinstance(scale, bool) and 0 < scale <= 1
    scaled = "how far a proposal was shrunk is not in the file" if honest else "a factor lies in (0, 1]"
    yield judged(ABOUT, f"γ was scaled by {scale!r}", scaled, holds=honest, how=CLAIMED)


def _judge_optimality(table: GammaTable) -> Iterator[Verdict]:
    optimality, gamma = table.optimality, table.gamma
    if optimality is None:
        return
    exact = _exact_error(table)
    claim = f"the expected error is {optimality.value!r} for {priors.in_words(optimality.prior)}"
    if exact is None:
        yield Verdict(ABOUT, claim, CLAIMED, _NOT_IN_THE_FILE)
    else:
        near = abs(Fraction(optimality.value) - exact) <= _ERROR
        yield judged(ABOUT, claim, f"exact rational arithmetic gives {float(exact)!r}", holds=near, how=PROVED)
    if optimality.held_out is not None:
        claim = f"on draws that were not fitted it is {optimality.held_out}"
        yield Verdict(ABOUT, claim, CLAIMED, "the draws are not in the file")
    free = optimality.shape == "free"
    reason = "it never falls on the way from the tie to unanimity" if gamma.is_monotone else "it falls somewhere"
    holds = free or (optimality.shape == "monotone" and gamma.is_monotone)
    yield judged(ABOUT, f"γ is of the shape {optimality.shape!r}", reason, holds=holds, how=PROVED)
    claim = f"the objective was {optimality.objective!r}, and the solver stopped with {optimality.status!r}"
    yield Verdict(ABOUT, claim, CLAIMED, "a note of whoever made the table")
    claim = f"no private γ of the {optimality.shape} shape has an expected error below {optimality.bound!r}"
    verdict, reason = _bound_verdict(table, computable=exact is not None)
    yield Verdict(ABOUT, claim, verdict, reason)


def _exact_error(table: GammaTable) -> Fraction | None:
    """Compute the expected error exactly; None if the file does not say all that it takes."""
    optimality, numbers = table.optimality, release_numbers(table)
    if optimality is None or optimality.held_out is not None:
        return None
    match optimality.prior:
        case priors.CommonP():
            return expected_error(numbers.K, numbers.half, None)
        case priors.Point(p=p):
            return expected_error(numbers.K, numbers.half, Fraction(p))
        case priors.Independent(low=low, high=high) if low >= 0.5:
            return expected_error(numbers.K, numbers.half, (Fraction(low) + Fraction(high)) / 2)
    return None


def _bound_verdict(table: GammaTable, *, computable: bool) -> tuple[str, str]:
    """Judge that nothing better exists: by the file's own multipliers, or by looking for something better."""
    optimality = table.optimality
    if optimality is None or optimality.bound > optimality.value:
        return FALSE, "the γ in the file is private and better"
    if _is_proved(optimality):
        return PROVED, "recomputed from the multipliers in the file"
    return _search(table, optimality) if computable else (CLAIMED, _NOT_IN_THE_FILE)


def _search(table: GammaTable, optimality: Optimality) -> tuple[str, str]:
    """Look for a γ that is better than one can be."""
    options = SolveOptions(time_limit=_SEARCH_SECONDS)
    try:
        found = optimize_gamma(table.problem, prior=optimality.prior, shape=optimality.shape, options=options)
    except (DarrmError, ValueError) as error:
        return CLAIMED, f"this release found nothing to compare it with: {error}"
    ours = found.gamma.expected_error(optimality.prior)
    if ours < optimality.bound - float(_ERROR):
        return FALSE, f"this release found a γ with {ours!r}, and proved it private"
    if found.optimality is not None and _is_proved(found.optimality) and found.optimality.bound >= optimality.bound:
        return PROVED, f"this release proves the bound {found.optimality.bound!r}"
    return CONSISTENT, f"the best γ that this release finds has {ours!r}"


def _is_proved(optimality: Optimality) -> bool:
    """Whether its bound was recomputed from the file when the table was loaded."""
    return not getattr(optimality, "claimed", True)
