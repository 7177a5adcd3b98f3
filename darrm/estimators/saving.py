"""Files of fitted estimators, by skops: no pickle, and no code that is not named.

A file holds the teachers, or the student, as skops writes them, and of our own types plain data only: the release as
the document of `darrm.pate.files`, which proves it again, and the path of the ledger, which goes on where it
stands. A ledger in memory cannot be saved, and neither can an estimator that would be without its budget.

Whatever is wrong with a file, reading it ends in one `TableError`, and what it unfolds to is bounded before it is read:
entries are stored as they are, and arrays that are compressed within them, or named many times, count as often as they
are unfolded.
"""

import json
from collections.abc import Mapping
from io import BytesIO
from os import PathLike
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile

import numpy as np
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from darrm.account.accountant import Spent
from darrm.account.bounds import Bound
from darrm.account.ledger_store import MEMORY
from darrm.account.store import is_url
from darrm.errors import TableError, checks
from darrm.estimators.base import Ensemble
from darrm.estimators.models import PrivateModelsVotingClassifier
from darrm.estimators.pate import PATEClassifier, PATEReport
from darrm.estimators.planning import BEST, charge_of_models, planned
from darrm.estimators.spending import LedgerHandle, opened
from darrm.estimators.texts import reader_of
from darrm.estimators.voting import PrivateVotingClassifier
from darrm.pate.files import document_of, release_of
from darrm.plan.option import Option
from darrm.privacy import PrivacyParams
from darrm.problem import Voters, Workload
from darrm.proof.stored import parse_document
from darrm.system.extras import Untyped, require
from darrm.system.files import check_regular, replacing, sync

MOST_BYTES = 2**40
SPACE, UNFOLDED = 2**26, 20  # a file may unfold to so many bytes, and so many times its own size
FORMAT = "darrm estimator"
VERSION = 1
_KINDS: dict[str, type[Ensemble]] = {
    kind.__name__: kind for kind in (PrivateVotingClassifier, PrivateModelsVotingClassifier, PATEClassifier)
}
# types that skops does not trust by itself; they hold numbers
_TRUSTED = (
    *("darrm.estimators.fixmatch.FixMatchClassifier", "darrm.ensemble.student.StudentRecipe"),
    "darrm.ensemble.student.Perturbation",
    *("sklearn.tree._tree.Tree", "sklearn.neighbors._kd_tree.KDTree", "sklearn.neighbors._ball_tree.BallTree"),
    *("scipy.sparse._csr.csr_array", "scipy.sparse._csc.csc_array"),
)
_INPUTS = ("classes_", "n_features_in_", "feature_names_in_", "_grouped", "_named", "_unseeded", "_held")


def save(estimator: Ensemble, path: str | PathLike[str]) -> None:
    """Write a fitted estimator to a new file, all of it or none; a `PATEClassifier`'s labels then leave its ledger.

    The teachers of a vote are private data, and so is their file; a file of a `PATEClassifier` holds nothing private.

    Parameters
    ----------
    estimator
        A fitted estimator of this package.
    path
        A file that does not exist yet.

    Raises
    ------
    ValueError
        If the estimator's budget is kept in memory, its aggregator has no file format, or the file exists.
    NotFittedError
        If it is not fitted.
    """
    if type(estimator).__name__ not in _KINDS or not isinstance(estimator, Ensemble):
        checks.fail("estimator", type(estimator).__name__, f"one of {', '.join(_KINDS)}")
    check_is_fitted(estimator, "student_" if isinstance(estimator, PATEClassifier) else None)
    target = Path(path)
    if target.exists():
        checks.fail("path", str(target), "a file that does not exist yet", "an estimator's file is never replaced")
    parameters = clone(estimator).get_params(deep=False)  # unfitted: a teacher of the caller's may have learned before
    if not isinstance(parameters.get("aggregator", BEST), str):
        parameters["aggregator"] = BEST
        if isinstance(estimator, PATEClassifier):
            advice = "fit with one of these to save the student, or save student_ alone"
            checks.fail("aggregator", estimator.aggregator, "'confident' or 'best' in a file", advice)
    if parameters["ledger"] is not None and not is_url(parameters["ledger"]):
        parameters["ledger"] = str(Path(parameters["ledger"]).absolute())
    state = _student_state(estimator) if isinstance(estimator, PATEClassifier) else _vote_state(estimator)
    document = {
        "format": FORMAT,
        "version": VERSION,
        "kind": type(estimator).__name__,
        "parameters": parameters,
        "inputs": {name: getattr(estimator, name) for name in _INPUTS if hasattr(estimator, name)},
        "state": state,
    }
    with replacing(target) as temporary:  # a file that is killed half-way is no file
        require("skops.io").dump(document, temporary)
    if isinstance(estimator, PATEClassifier):
        sync(target.absolute().parent)
        estimator.acknowledge()


def load(path: str | PathLike[str], *, trusted: tuple[str, ...] | list[str] = ()) -> Untyped:
    """Read a fitted estimator; its budget goes on where its ledger stands.

    Parameters
    ----------
    path
        A file that `save` wrote.
    trusted
        Names of types, beyond scikit-learn's, that the file may make: teachers of other libraries. Whoever names one
        trusts the code of that type.

    Raises
    ------
    ValueError
        If the file would make other types; the message names them. If it is no regular file.
    OSError
        If it cannot be read.
    TableError
        If it is no estimator of this package, or a damaged one.
    """
    skops, source, known = require("skops.io"), Path(path), [*_TRUSTED, *trusted]
    check_regular(source, MOST_BYTES)
    with source.open("rb"):  # who may not read it is told so
        pass
    try:
        _check_size(source)
        unknown = [name for name in skops.get_untrusted_types(file=source) if name not in known]
        estimator = None if unknown else _read(skops.load(source, trusted=known))
    except TableError:
        raise
    except Exception as error:  # damaged files reach every line of skops, zipfile, numpy and scikit-learn
        cause = " ".join(f"{type(error).__name__}: {error}".split())
        raise TableError("file", f"it is no estimator, or damaged ({cause})") from error
    if unknown:
        advice = f"if you trust their code, say trusted={unknown}"
        checks.fail("the file's types", unknown, "scikit-learn's, or trusted", advice)
    return estimator


def _check_size(path: Path) -> None:
    """Raise `TableError` for a file that unfolds to far more than it holds."""
    named: list[Any] = []
    with ZipFile(path) as archive:
        entries = {entry.filename: entry for entry in archive.infolist()}
        if any(entry.compress_type != ZIP_STORED for entry in entries.values()):
            raise TableError("file", "it is compressed, and no estimator is: it may unfold to more than memory holds")
        json.loads(archive.read("schema.json"), object_hook=lambda node: named.append(node.get("file")))
        sizes = {name: entry.file_size for name, entry in entries.items()}
        named = [name for name in named if name is not None]
        for name in set(named):
            if name.endswith(".npz"):  # a sparse matrix
                with ZipFile(BytesIO(archive.read(name))) as parts:
                    held = parts.infolist()
                if any(part.compress_type not in {ZIP_STORED, ZIP_DEFLATED} for part in held):
                    raise TableError("file", f"{name!r} is compressed in an unusual format")
                sizes[name] = sum(part.file_size for part in held)
    unfolded = sum(sizes[name] for name in named)
    if unfolded > SPACE + UNFOLDED * path.stat().st_size:
        raise TableError(
            "file", f"{path.stat().st_size:,} bytes would unfold to {unfolded:,}: it is no estimator's file"
        )


def _read(document: Untyped) -> Ensemble:
    if document["format"] != FORMAT or document["version"] != VERSION:
        raise TableError("format", f"it is no {FORMAT!r} of version {VERSION}")
    estimator = _KINDS[document["kind"]](**document["parameters"])
    for name, value in document["inputs"].items():
        if name not in _INPUTS:
            raise TableError("inputs", f"{name!r} is unknown")
        setattr(estimator, name, value)
    _typed(vars(estimator), classes_=np.ndarray, _grouped=bool, _named=bool, _unseeded=bool)
    if reader_of(getattr(estimator, estimator.teacher_parameter)) is None:  # texts have no columns
        _typed(vars(estimator), n_features_in_=int)
    (_read_student if isinstance(estimator, PATEClassifier) else _read_vote)(estimator, document["state"])
    return estimator


def _typed(fields: Mapping[str, Any], **kinds: type) -> None:
    for name, kind in kinds.items():
        if not isinstance(fields.get(name), kind):
            raise TableError(name, f"it must be of type {kind.__name__}, and is of {type(fields.get(name)).__name__}")


def _vote_state(vote: Untyped) -> dict[str, Untyped]:
    option, release, handle = vote.plan_, None, vote._spending  # noqa: SLF001 (one package)
    ledger = None if handle.path is None else handle.__getstate__()
    if vote._release is not None:  # noqa: SLF001
        if ledger is None:
            advice = "fit with ledger='FILE': a copy without its budget could spend it again"
            checks.fail("ledger", None, "a file, to save the estimator", advice)
        release = json.dumps(document_of(vote._release))  # noqa: SLF001
    return {
        "teachers": vote.teachers_,
        "workload": option.workload.to_json(),
        "name": option.name,
        "settings": {name: float(value) for name, value in option.settings.items()},
        "truth": option.truth,
        "release": release,
        "own": not isinstance(getattr(vote, "aggregator", BEST), str),
        "ledger": ledger,
    }


def _read_vote(vote: Untyped, state: dict[str, Untyped]) -> None:
    given = state["workload"]
    workload = Workload(
        Voters.from_json(given), given["queries"], PrivacyParams.from_json(given["total"]), given.get("classes", 2)
    )
    _typed(state, teachers=list, name=str, truth=np.ndarray, settings=dict, own=bool)
    vote.teachers_ = state["teachers"]
    can = [hasattr(teacher, "predict") for teacher in vote.teachers_]
    if can != [True] * workload.voters.K or vote.classes_.shape != (workload.classes,):
        raise TableError("teachers", f"they are not {workload.voters.K} teachers of {workload.classes} classes")
    if state["release"] is None:
        vote.plan_, vote._release, vote._spending = planned(workload, BEST), None, _handle(state, workload)  # noqa: SLF001
        if vote.plan_.aggregator is not None:
            raise TableError("release", "it is missing: without noise these answers are not within the budget")
        return
    aggregator = release_of(parse_document(state["release"]))
    option = planned(workload, aggregator)  # `PlanError` if it costs more than the budget
    vote.plan_ = Option(
        name=state["name"],
        workload=workload,
        truth=state["truth"],
        spent=option.spent,
        settings=state["settings"],
        aggregator=aggregator,
        instructions=option.instructions,
    )
    if state["own"]:
        vote.aggregator = aggregator
    vote._release = aggregator  # noqa: SLF001
    vote._spending = _handle(state, workload)  # noqa: SLF001


def _handle(state: dict[str, Any], workload: Workload) -> LedgerHandle:
    """Lead to the ledger that pays; models that answer for nothing may have one in memory, with what they cost."""
    if state["ledger"] is not None:
        _typed(state["ledger"], path=str, seen=int, identity=str, owner=str)
        return LedgerHandle.of_state(state["ledger"])
    charge = charge_of_models(workload.voters)
    handle = opened(None, workload.total, charge, anew=False)
    handle.ledger.debit(charge)
    return handle


def _student_state(pate: PATEClassifier) -> dict[str, Any]:
    report, spent = pate.report_, pate.report_.spent
    return {
        "student": pate.student_,
        "codes": pate._codes,  # noqa: SLF001
        "answers": pate.answers_,
        "report": {
            "teachers": report.teachers,
            "inputs": report.inputs,
            "answered": report.answered,
            "by_class": [list(pair) for pair in report.by_class],
            "mechanism": report.mechanism,
            "head": report.head,
        },
        "spent": {
            "epsilon": spent.epsilon,
            "delta": spent.delta,
            "bound": spent.bound,
            "explanation": spent.explanation,
            "queries": spent.queries,
            "understated": spent.understated,
        },
        "bounds": [[bound.name, bound.epsilon, bound.explanation] for bound in spent.bounds],
    }


def _read_student(pate: Untyped, state: dict[str, Untyped]) -> None:
    """Read what `_student_state` wrote; what the labels cost is what the file says."""
    _typed(state, answers=np.ndarray, codes=bool)
    if not hasattr(state["student"], "predict"):
        raise TableError("student", "it cannot predict")
    pate.student_, pate._codes, pate.answers_ = state["student"], state["codes"], state["answers"]  # noqa: SLF001
    spent = Spent(**state["spent"], bounds=tuple(Bound(*each) for each in state["bounds"]))
    report = {**state["report"], "by_class": tuple(map(tuple, state["report"]["by_class"]))}
    pate.report_ = PATEReport(**report, spent=spent)
    if pate.ledger is None:  # its budget was of another process: one more fit is a second one
        pate._spending = LedgerHandle.of_state(  # noqa: SLF001 (one package)
            {"path": MEMORY, "seen": int(spent.queries), "identity": "", "owner": ""}
        )
