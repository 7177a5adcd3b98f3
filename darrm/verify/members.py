"""A member of a consortium finds its own row: with which (ε, Δ) a table counts each named voter, and whether it may.

A table holds what voters satisfy and no names. What is proved for it holds for voters that are as many and as private,
the weakest beside the weakest (`darrm.problem.Voters.cover`): so the members of a file are put beside its voters, both
from the largest ε and Δ down. Where that leaves somebody out, each from the weakest on gets the most private voter that
still covers it, so that who is left out is whoever nothing is left for. Whether a member keeps its promise, no file
shows.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping

from darrm.privacy import PrivacyParams, decimal_text
from darrm.problem import Voters
from darrm.sampling import Sampling
from darrm.verify.verdicts import ABOUT_VOTERS, CLAIMED, PROVED, Verdict, judged


def judge_members(members: Mapping[str, PrivacyParams], voters: Voters) -> Iterator[Verdict]:
    """Judge for every named member whether the voters of a table are no more private than it promises to be.

    >>> from darrm.problem import Voters
    >>> members = {"north": PrivacyParams("0.1"), "city": PrivacyParams("inf")}
    >>> for verdict in judge_members(members, Voters.of([PrivacyParams("0.2"), PrivacyParams("0.5")])):
    ...     print(verdict.claim, "|", verdict.verdict)
    'north' is counted as (0.2, 0)-private | consistent
    'city' is counted as (0.5, 0)-private | false
    """
    promised = Voters.of(list(members.values()))
    if promised.K != voters.K:
        reason = f"the table is about {voters.K} voters, and {promised.K} are named"
        for name in members:
            yield judged(ABOUT_VOTERS, f"{name!r} is counted", reason, holds=False)
        return
    beside = defaultdict(list)
    for own, counted in _pairs(promised, voters):
        beside[own].append(counted)
    for name, own in members.items():
        counted = beside[own].pop(0)
        holds = _covers(counted, own)
        reason = f"the file names it as {_in_words(own)}, {'no less' if holds else 'which is less'} than is counted on"
        yield judged(ABOUT_VOTERS, f"{name!r} is counted as {_in_words(counted)}", reason, holds=holds)


def judge_reach(voters: Voters, about: str) -> Verdict:
    """Judge how many voters one person's data reach, which no file can show."""
    if voters.reached == voters.K:
        return Verdict(about, "one person's data reach every voter", PROVED, "true of any voters")
    claim = f"one person's data reach at most {voters.reached} of the {voters.K} voters"
    return Verdict(about, claim, CLAIMED, "how the data were dealt out is not in the files")


def judge_sampling(sampling: Sampling | None, about: str) -> Iterator[Verdict]:
    """Judge how people come into a question, which no file can show."""
    if sampling is not None:
        reason = "votes do not show who was drawn, or whether examples were used again or prompts chosen by others'"
        yield Verdict(about, f"{drawn_in_words(sampling)}, whoever else is", CLAIMED, reason)


def drawn_in_words(sampling: Sampling) -> str:
    """Say how people come into a question.

    >>> drawn_in_words(Sampling("0.004")), drawn_in_words(Sampling("0.5", "fixed", 2))
    ('each record is drawn with probability 0.004 anew for each question', \
'a fixed number of records is drawn anew for each question, each with probability 0.5, at most 2 of one person')
    """
    rate = decimal_text(sampling.record_rate)
    records = f", at most {sampling.records} of one person" if sampling.records > 1 else ""
    if sampling.scheme == "poisson":
        return f"each record is drawn with probability {rate} anew for each question{records}"
    return f"a fixed number of records is drawn anew for each question, each with probability {rate}{records}"


def _pairs(promised: Voters, voters: Voters) -> Iterator[tuple[PrivacyParams, PrivacyParams]]:
    left, without = list(_in_order(voters)), []
    if voters.cover(Voters(promised.K, promised.each, voters.overlap, own=promised.own)):
        yield from zip(_in_order(promised), left, strict=True)
        return
    for own in _in_order(promised):
        fitting = [place for place, counted in enumerate(left) if _covers(counted, own)]
        if fitting:
            yield own, left.pop(fitting[-1])
        else:
            without.append(own)
    yield from zip(without, left, strict=True)


def _covers(counted: PrivacyParams, own: PrivacyParams) -> bool:
    return Voters(1, counted).cover(Voters(1, own))


def _in_order(voters: Voters) -> tuple[PrivacyParams, ...]:
    return voters.own or (voters.each,) * voters.K


def _in_words(each: PrivacyParams) -> str:
    return f"{each}-private" if each.is_private else "promising nothing"
