"""The claims of an estimator's file: what it releases with, within which budget, and which ledger pays.

The file is a zip of plain data and arrays, as skops writes it. Nothing in it is loaded: of ``schema.json``, a tree of
nodes that each say what they are, the numbers and texts are read.
"""

import json
from collections.abc import Iterator, Mapping
from io import BytesIO
from zipfile import BadZipFile, ZipFile

from darrm.system.files import Json
from darrm.verify.ledger import LedgerCopy
from darrm.verify.plan import judge_workload
from darrm.verify.table import costs_of, judge_release
from darrm.verify.verdicts import ABOUT_ESTIMATOR, CLAIMED, CONSISTENT, FALSE, UNKNOWN, Verdict, judged

_FORMAT = "darrm estimator"
_MOST_BYTES = 2**28  # of the tree
_WHOLE = "it is an estimator's file"


def judge_estimator(content: bytes, ledgers: Mapping[str, LedgerCopy]) -> Iterator[Verdict]:
    """Judge every claim of a saved estimator."""
    try:
        document = _document(content)
        state, kind = document["state"], document["kind"]
    except (BadZipFile, KeyError, ValueError, TypeError, AttributeError, NotImplementedError, RecursionError) as error:
        yield Verdict(ABOUT_ESTIMATOR, _WHOLE, FALSE, f"{type(error).__name__}: {error}")
        return
    yield Verdict(ABOUT_ESTIMATOR, _WHOLE, CONSISTENT, f"a {kind}; its teachers or student are not judged")
    if "workload" not in state:
        spent = state.get("spent", {})
        claim = f"its labels cost ({spent.get('epsilon')!r}, {spent.get('delta')!r}) by {spent.get('bound')!r}"
        yield Verdict(ABOUT_ESTIMATOR, claim, CLAIMED, "a student's labels left their ledger: nothing here shows it")
        return
    if state["release"] is not None:
        answering, verdicts = judge_release(state["release"].encode())
        yield from verdicts
        if answering is not None:
            yield from judge_workload(state["workload"], costs_of(answering))
    identity = (state["ledger"] or {}).get("identity", "")
    here = [path for path, ledger in ledgers.items() if identity and ledger.identity == identity]
    claim = f"its answers are paid for by the ledger {identity}"
    if here:
        yield judged(ABOUT_ESTIMATOR, claim, f"that is {here[0]}", holds=True)
    else:
        yield Verdict(ABOUT_ESTIMATOR, claim, UNKNOWN, "that ledger is not among the files: it would decide")


def _document(content: bytes) -> dict[str, Json]:
    """Read the plain data of a file; an error of reading where there is none."""
    with ZipFile(BytesIO(content)) as archive:
        if archive.getinfo("schema.json").file_size > _MOST_BYTES:
            raise ValueError("its description is too large")
        document = _plain(json.loads(archive.read("schema.json")))
    if document["format"] != _FORMAT:
        raise ValueError(f"it is no {_FORMAT!r}")
    return dict(document)


def _plain(node: Json) -> Json:
    """Read a node of a tree: dictionaries, lists, texts and numbers; None for all else."""
    content = node.get("content")
    match node.get("__class__"):
        case "dict":
            return {name: _plain(value) for name, value in content.items()}
        case "list" | "tuple":
            return [_plain(value) for value in content]
        case "str" | "int" | "float" | "bool":
            return json.loads(content) if isinstance(content, str) else content
    return None
