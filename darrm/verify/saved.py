"""The claims of an estimator's file: what it releases with, within which budget, what it cost, and which ledger pays.

The file is a zip of plain data and arrays, as skops writes it. Nothing in it is loaded: of ``schema.json``, a tree of
nodes that each say what they are, the numbers and texts are read.
"""

import json
import math
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from io import BytesIO
from zipfile import BadZipFile, ZipFile

from darrm.system.files import Json
from darrm.verify.chain import read_head
from darrm.verify.figures import STUDENT, Told, judge_told
from darrm.verify.ledger import LedgerCopy
from darrm.verify.plan import judge_workload
from darrm.verify.table import Answering, costs_of, judge_release
from darrm.verify.verdicts import ABOUT_ESTIMATOR, CONSISTENT, FALSE, UNKNOWN, Verdict, judged

_FORMAT = "darrm estimator"
_MOST_BYTES = 2**28  # of the tree
_WHOLE = "it is an estimator's file"
# what a load of a damaged file may raise
_UNREADABLE = (
    *(BadZipFile, zlib.error, EOFError, RuntimeError),  # RuntimeError: encrypted, of another compression, or too deep
    *(KeyError, ValueError, TypeError, AttributeError, ArithmeticError),
)


@dataclass(frozen=True, eq=False)
class Saved:
    """What a saved estimator says, and what answers in it."""

    kind: str
    parameters: Mapping[str, Json]
    state: Mapping[str, Json]
    answering: Answering | None = None
    verdicts: Sequence[Verdict] = ()  # of what answers
    told: Told = field(default_factory=lambda: Told("", {}))

    @property
    def ledger(self) -> Mapping[str, Json]:
        """What it says of the ledger that pays."""
        return self.state.get("ledger") or {}


def read_estimator(content: bytes) -> Saved | Verdict:
    """Read a saved estimator, or say that it is none."""
    try:
        document = _document(content)
        saved = Saved(document["kind"], document["parameters"], document["state"])
        saved = replace(saved, told=_told(saved))
        if saved.state.get("release") is None:
            return saved
        answering, verdicts = judge_release(saved.state["release"].encode())
        return replace(saved, answering=answering, verdicts=verdicts)
    except _UNREADABLE as error:
        return Verdict(ABOUT_ESTIMATOR, _WHOLE, FALSE, f"{type(error).__name__}: {error}")


def judge_estimator(saved: Saved, ledgers: Mapping[str, LedgerCopy]) -> Iterator[Verdict]:
    """Judge every claim of a saved estimator."""
    try:
        yield from list(_judge_saved(saved, ledgers))
    except _UNREADABLE as error:
        yield Verdict(ABOUT_ESTIMATOR, _WHOLE, FALSE, f"{type(error).__name__}: {error}")


def _judge_saved(saved: Saved, ledgers: Mapping[str, LedgerCopy]) -> Iterator[Verdict]:
    state, told = saved.state, saved.parameters
    yield Verdict(ABOUT_ESTIMATOR, _WHOLE, CONSISTENT, f"a {saved.kind}; its teachers or student are not judged")
    if saved.kind == STUDENT:  # whatever else stands in it
        yield from judge_told(saved.told, ledgers, {})
        return
    yield from saved.verdicts
    if saved.answering is not None:
        yield from judge_workload(state["workload"], costs_of(saved.answering))
    yield _judge_parameters(told, state["workload"])
    identity = saved.ledger.get("identity", "")
    here = [path for path, ledger in ledgers.items() if identity and ledger.identity == identity]
    claim = f"its answers are paid for by the ledger {identity}"
    if here:
        queries, seen = ledgers[here[0]].spent.queries, saved.ledger.get("seen", 0)
        reason = f"that is {here[0]}, which has {queries} queries of the {seen} that it saw"
        yield judged(ABOUT_ESTIMATOR, claim, reason, holds=queries >= seen)
    else:
        yield Verdict(ABOUT_ESTIMATOR, claim, UNKNOWN, "that ledger is not among the files: it would decide")


def _judge_parameters(told: Mapping[str, Json], workload: Mapping[str, Json]) -> Verdict:
    asked = (told.get("epsilon"), told.get("delta"), told.get("max_queries"))
    claim = "it was made for ({!r}, {!r}) and {!r} queries".format(*asked)
    planned = (float(workload["total"]["epsilon"]), float(workload["total"]["delta"]), workload["queries"])
    reason = "it was planned for ({!r}, {!r}) and {!r}".format(*planned)
    if asked != planned:
        return Verdict(ABOUT_ESTIMATOR, claim, UNKNOWN, f"{reason}: the log of whoever made it would decide")
    return Verdict(ABOUT_ESTIMATOR, claim, CONSISTENT, reason)


def _told(saved: Saved) -> Told:
    state = saved.state
    if saved.kind != STUDENT:
        work = state["workload"]
        total = float(work["total"]["epsilon"]), float(work["total"]["delta"])
        facts = {"guarantee": total, "queries": work["queries"], "voters": work["K"], "mechanism": state["name"]}
        facts = facts if state.get("release") is not None else {"voters": work["K"]}  # models of noise of their own
        return Told(saved.kind, facts, identity=saved.ledger.get("identity", ""))
    report, spent = state["report"], state["spent"]
    stated = [float(epsilon) for epsilon in (spent["epsilon"], *(bound[1] for bound in state["bounds"]))]
    lowest = min(stated), float(spent["delta"])
    if any(map(math.isnan, (*stated, *lowest))) or sum(count for _, count in report["by_class"]) != report["answered"]:
        raise ValueError("a cost is no number, or its labels of each class are not as many as all")
    facts = {"guarantee": lowest, "spent": lowest, "mechanism": report["mechanism"], "voters": report["teachers"]}
    facts |= {"labels": report["answered"], "inputs": report["inputs"]}
    heads = [read_head(report["head"], "the head in a saved student")] if report["head"] else []
    return Told(saved.kind, facts, heads, heads[0].identity if heads else "")


def _document(content: bytes) -> dict[str, Json]:
    with ZipFile(BytesIO(content)) as archive:
        if archive.getinfo("schema.json").file_size > _MOST_BYTES:
            raise ValueError("its description is too large")
        document = _plain(json.loads(archive.read("schema.json")))
    if document["format"] != _FORMAT:
        raise ValueError(f"it is no {_FORMAT!r}")
    return dict(document)


def _plain(node: Json) -> Json:
    content = node.get("content")
    match node.get("__class__"):
        case "dict":
            return {name: _plain(value) for name, value in content.items()}
        case "list" | "tuple":
            return [_plain(value) for value in content]
        case "str" | "int" | "float" | "bool":
            return json.loads(content) if isinstance(content, str) else content
    return None
