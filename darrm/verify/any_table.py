"""What an auditor asks of the file of any table: is it whole, does it say nothing else, what can no file show."""

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

from darrm.errors import DarrmError
from darrm.proof.plurality_table import PluralityTable
from darrm.proof.table import GammaTable
from darrm.system.json_text import parse_json
from darrm.verify.exact import Enclosure
from darrm.verify.verdicts import CLAIMED, FALSE, PROVED, Verdict, judged

Table = GammaTable | PluralityTable

ABOUT = "table"
_FIGURES = 1e-9  # relative: machines agree on a figure of the certificate to so much
_JUDGED_APART = ("/certificate/", "/optimality/value", "/optimality/bound")  # figures, which may be off by a rounding
# what a load of a malformed file may raise; a file is either a table or not
UNREADABLE = (DarrmError, ValueError, TypeError, KeyError, AttributeError, ArithmeticError, RecursionError)


def parsed(content: bytes) -> dict[str, Any]:
    """Read the JSON object of a table's file; `ValueError` if it holds none."""
    try:
        data = parse_json(content.decode("utf-8"))
    except ValueError as error:
        raise ValueError(
            f"the table's file holds no JSON: {error}; wanted is what --output of optimize or plan wrote"
        ) from error
    if not isinstance(data, dict):
        raise ValueError("the table's file holds no JSON object")  # noqa: TRY004 (a bad file, not a bad type)
    return data


def judge_checksum(data: Mapping[str, Any], numbers_of: str) -> Verdict:
    """Judge the checksum of the problem and of the field that holds the numbers."""
    numbers = {name: data.get(name) for name in ("problem", numbers_of)}
    text = json.dumps(numbers, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    digest = hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()
    what = "γ" if numbers_of == "gamma" else numbers_of
    reason = f"the SHA-256 of problem and {what} is {digest}; it finds damage, and a forger could write it anew"
    return judged(ABOUT, "its numbers are as they were saved", reason, holds=data.get("checksum") == digest)


def judge_form(data: dict[str, Any], table: Table, version: int) -> Verdict:
    """Judge that a file holds what this release would write, and nothing else."""
    claim = "the file says nothing else than a table says"
    if data["version"] != version:
        known = set(table.to_json())
        strange = sorted(set(data) - known)
        return judged(
            ABOUT, claim, f"fields of version {data['version']}, and {strange or 'no'} others", holds=not strange
        )
    written = json.loads(json.dumps(table.to_json()))
    differing = [path for path in differences(data, written, "") if not path.startswith(_JUDGED_APART)]
    reason = (
        f"not as this release would write it: {', '.join(differing[:5])}" if differing else "written again, it is equal"
    )
    return judged(ABOUT, claim, reason, holds=not differing)


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


def judge_figure(claim: str, stored: object, ours: float, true: Enclosure | None) -> Verdict:
    """Judge a figure of the certificate: it must be what its method gives, and on the safe side of the truth."""
    claim = f"{claim} {stored!r}"
    if not isinstance(stored, float | int) or isinstance(stored, bool) or not math.isfinite(stored):
        return Verdict(ABOUT, claim, FALSE, "this is no number")
    figure = f"this release finds {ours!r}"
    near = abs(stored - ours) <= _FIGURES * max(abs(ours), 1e-300)
    if true is None or not near:
        return judged(ABOUT, claim, figure, holds=near)
    safe = stored <= true.upper if "budget" in claim else stored >= true.lower
    return judged(ABOUT, claim, f"{figure}, the truth is {float(true.lower)!r}", holds=safe, how=PROVED)


def judge_premises(table: Table) -> Iterator[Verdict]:
    """Judge what a table is about and no file can show."""
    voters = table.problem.voters
    if not voters.are_plain:
        reason = "the privacy of the voters is not in the files; without it nothing above holds"
        for n, each in voters.private_kinds:
            whose = f"each of the {n} voters" if voters.own is None else f"{n} of the {voters.K} voters"
            verb = "is" if voters.own is None or n == 1 else "are"
            yield Verdict(ABOUT, f"{whose} {verb} {each}-differentially private", CLAIMED, reason)
    reach = "every voter" if voters.reached == voters.K else f"at most {voters.reached} of the {voters.K} voters"
    safe = voters.reached == voters.K
    reason = "true of any voters" if safe else "how the data were dealt out is not in the files"
    yield Verdict(ABOUT, f"one person's data reach {reach}", PROVED if safe else CLAIMED, reason)
    words = "are models, trained once" if voters.models else "draw fresh randomness for every question"
    if not voters.are_plain:
        yield Verdict(ABOUT, f"the voters {words}", CLAIMED, "nothing in votes or files shows it")
    for name, text in sorted(table.provenance.items()):
        yield Verdict(ABOUT, f"{name}: {text}", CLAIMED, "a note of whoever made the table")
