# ruff: noqa: SLF001 (private attributes of the estimators of this package)
"""Files of fitted estimators, by skops: no pickle, and no code of unnamed types.

A file holds the teachers, or the student, as skops writes them, and plain data: the release as the document of
`darrm.aggregator`, which proves it again, and the identity of the ledger. An estimator with a ledger in memory cannot
be saved, because the file would be without its budget.

**Untrusted files.** Paths and URLs in a file are ignored: the caller names the ledger, and caches, checkpoints and
public votes are dropped. The unpacked size is bounded before reading: arrays that are compressed, or referenced many
times, count as often as they are unpacked. The nodes of decision trees and the indices of sparse arrays are checked,
because compiled code uses them unchecked. Other compiled code, such as `SVC`, checks little: a file may crash the
process.
"""

import gc
import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from io import BytesIO
from os import PathLike
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, ModuleType
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile

import numpy as np
from scipy.sparse import issparse
from sklearn.base import clone
from sklearn.ensemble import GradientBoostingClassifier, GradientBoostingRegressor
from sklearn.tree import BaseDecisionTree
from sklearn.tree._tree import TREE_LEAF
from sklearn.utils.validation import check_is_fitted

from darrm.account.accountant import Spent
from darrm.account.bounds import Bound
from darrm.aggregator import make_document, read_release
from darrm.errors import LedgerError, TableError
from darrm.estimators.budget import BEST, LedgerHandle, cost_of_models, open_ledger, plan_release
from darrm.estimators.ensemble import Ensemble, find_vectorizer
from darrm.estimators.pate import PATEClassifier, PATEReport
from darrm.estimators.voting import PrivateModelsVotingClassifier, PrivateVotingClassifier
from darrm.ledger.sqlite import MEMORY, is_url
from darrm.privacy import PrivacyParams
from darrm.problem import Voters, Workload
from darrm.util import checks
from darrm.util.extras import Untyped, require
from darrm.util.files import check_regular, parse_document, replace_file, sync

MAX_BYTES = 2**40
UNPACKED_BYTES, UNPACKED_RATIO = 2**26, 20  # bounds of the unpacked size: bytes, and a multiple of the file size
FORMAT = "darrm estimator"
VERSION = 1
_KINDS: dict[str, type[Ensemble]] = {
    kind.__name__: kind for kind in (PrivateVotingClassifier, PrivateModelsVotingClassifier, PATEClassifier)
}
# types of numbers that skops does not trust by default
_TRUSTED = (
    *("darrm.estimators.fixmatch.FixMatchClassifier", "darrm.training.student.StudentRecipe"),
    "darrm.training.student.Perturbation",
    _TREE := "sklearn.tree._tree.Tree",  # its nodes are checked
    *("scipy.sparse._csr.csr_array", "scipy.sparse._csc.csc_array"),
)
_INPUTS = (
    *("classes_", "n_features_in_", "feature_names_in_"),
    *("_grouped", "_named", "_unseeded", "_held", "_overlap"),
)


def save(estimator: Ensemble, path: str | PathLike[str]) -> None:
    """Write a fitted estimator to a new file, atomically; the ledger then deletes the labels of a `PATEClassifier`.

    Only the owner can read the file. The teachers of a vote are private data; a `PATEClassifier` holds nothing private.
    `ValueError` if the ledger is in memory, the aggregator has no file format, or the file exists.
    """
    if type(estimator).__name__ not in _KINDS or not isinstance(estimator, Ensemble):
        checks.fail("estimator", type(estimator).__name__, f"one of {', '.join(_KINDS)}")
    is_student, target = isinstance(estimator, PATEClassifier), Path(path)
    check_is_fitted(estimator, "student_" if is_student else None)
    if target.exists():
        checks.fail("path", str(target), "a file that does not exist yet", "an estimator's file is never replaced")
    parameters = clone(estimator).get_params(deep=False)  # unfitted: the caller's teacher may be fitted
    if not isinstance(parameters.get("aggregator", BEST), str):
        if is_student:
            advice = "fit with one of these to save the student, or save student_ alone"
            checks.fail("aggregator", parameters["aggregator"], "'confident' or 'best' in a file", advice)
        parameters["aggregator"] = BEST
    parameters["ledger"] = None  # named by the caller of `load`
    document = {
        "format": FORMAT,
        "version": VERSION,
        "kind": type(estimator).__name__,
        "parameters": parameters,
        "inputs": {name: getattr(estimator, name) for name in _INPUTS if hasattr(estimator, name)},
        "state": _student_state(estimator) if is_student else _vote_state(estimator),
    }
    with replace_file(target, private=True) as temporary:  # atomic
        try:
            require("skops.io").dump(document, temporary)
        except (OSError, MemoryError):
            raise
        except Exception as error:  # teachers may be of any type
            advice = "remove generators, open files, locks and the like"
            raise ValueError(f"the estimator cannot be kept in a file ({checks.one_line(error)}): {advice}") from error
    if is_student:
        sync(target.absolute().parent)
        estimator.acknowledge()


def load(
    path: str | PathLike[str], *, ledger: str | PathLike[str] | None = None, trusted: tuple[str, ...] | list[str] = ()
) -> Untyped:
    """Read a fitted estimator from a file of `save`; a vote continues with the ledger of the fit, which you name.

    ``trusted`` are names of types of other libraries that the file may create. Naming one trusts its code; named trees
    are not checked. `ValueError`, with their names, for other types; `LedgerError` if answers cost budget and no ledger
    is named; `TableError` if the file is damaged, or no estimator of this package.
    """
    skops, source, trusted_types = require("skops.io"), Path(path), [*_TRUSTED, *trusted]
    check_regular(source, MAX_BYTES)
    with source.open("rb"):  # an `OSError` if it is unreadable
        pass
    try:
        _check_size(source)
        unknown = [name for name in skops.get_untrusted_types(file=source) if name not in trusted_types]
        if not unknown:
            document = skops.load(source, trusted=trusted_types)
            _check_indices(document, trees=_TREE not in trusted)
            return _build_estimator(document, ledger)
    except (TableError, LedgerError):
        raise
    except Exception as error:  # damaged files reach every line of skops, zipfile, numpy and scikit-learn
        cause = " ".join(f"{type(error).__name__}: {error}".split())
        raise TableError("file", f"it is no estimator, or damaged ({cause})") from error
    return checks.fail(
        "the file's types", unknown, "scikit-learn's, or trusted", f"if you trust their code, pass trusted={unknown}"
    )


def _check_size(path: Path) -> None:
    file_names: list[str | None] = []  # one for each reference to a file in the archive
    with ZipFile(path) as archive:
        entries = {entry.filename: entry for entry in archive.infolist()}
        if any(entry.compress_type != ZIP_STORED for entry in entries.values()):
            raise TableError("file", "it is compressed, unlike estimators: it may unpack to more than the memory")
        json.loads(archive.read("schema.json"), object_hook=lambda node: file_names.append(node.get("file")))
        files = [name for name in file_names if name is not None]
        sizes = {name: entry.file_size for name, entry in entries.items()}
        for name in set(files):
            if name.endswith(".npz"):  # a sparse matrix
                with ZipFile(BytesIO(archive.read(name))) as parts:
                    arrays = parts.infolist()
                if any(array.compress_type not in {ZIP_STORED, ZIP_DEFLATED} for array in arrays):
                    raise TableError("file", f"{name!r} is compressed in an unusual format")
                sizes[name] = sum(array.file_size for array in arrays)
    unfolded = sum(sizes[name] for name in files)
    if unfolded > UNPACKED_BYTES + UNPACKED_RATIO * path.stat().st_size:
        raise TableError("file", f"{path.stat().st_size:,} bytes would unpack to {unfolded:,}: it is no estimator")


def _check_indices(document: Untyped, *, trees: bool) -> None:
    queue, visited = [document], {id(document): document}
    while queue:
        item = queue.pop()
        if issparse(item) and hasattr(item, "check_format"):
            item.check_format(full_check=True)
        if trees and isinstance(item, BaseDecisionTree) and hasattr(item, "tree_") and not _is_within_bounds(item):
            raise TableError("tree", "its nodes are out of bounds: the file is damaged, or made to crash its reader")
        if trees and isinstance(item, GradientBoostingClassifier | GradientBoostingRegressor):
            advice = f"if you trust the maker of the file, pass trusted=[{_TREE!r}]"
            raise TableError("teachers", f"gradient boosting reads its trees unchecked: {advice}")
        elements = item.ravel().tolist() if isinstance(item, np.ndarray) and item.dtype.hasobject else []
        for part in (*elements, *gc.get_referents(item)):  # referents of any type
            if not isinstance(part, type | ModuleType | FunctionType | BuiltinFunctionType) and id(part) not in visited:
                visited[id(part)] = part
                queue.append(part)


def _is_within_bounds(model: Untyped) -> bool:
    tree, features = model.tree_, model.n_features_in_
    if tree.node_count < 1 or tree.n_features != features:
        return False
    nodes = np.flatnonzero(tree.children_left != TREE_LEAF)
    columns, children = tree.feature[nodes], np.stack([tree.children_left, tree.children_right])[:, nodes]
    is_descendant = (children > nodes) & (children < tree.node_count)  # so that there is no cycle
    return bool(np.all((columns >= 0) & (columns < features)) and np.all(is_descendant))


def _clear_paths(model: Untyped) -> None:
    if hasattr(model, "get_params"):
        names = [name for name in model.get_params() if name.rpartition("__")[2] in {"memory", "checkpoint"}]
        model.set_params(**dict.fromkeys(names))


def _build_estimator(document: Untyped, ledger: str | PathLike[str] | None) -> Ensemble:
    if document["format"] != FORMAT or document["version"] != VERSION:
        raise TableError("format", f"it is no {FORMAT!r} of version {VERSION}")
    estimator = _KINDS[document["kind"]](**document["parameters"])
    estimator.set_params(ledger=ledger)
    if str(getattr(estimator, "votes_look_like", "")).startswith("votes:"):
        estimator.set_params(votes_look_like=None)
    _clear_paths(estimator)
    for name, value in document["inputs"].items():
        if name not in _INPUTS:
            raise TableError("inputs", f"{name!r} is unknown")
        setattr(estimator, name, value)
    kinds: dict[str, type] = {"classes_": np.ndarray, "_grouped": bool, "_named": bool, "_unseeded": bool}
    if find_vectorizer(getattr(estimator, estimator.teacher_parameter)) is None:  # texts have no columns
        kinds["n_features_in_"] = int
    if getattr(estimator, "_overlap", None) is not None:
        kinds["_overlap"] = int
    _check_types(vars(estimator), **kinds)
    read_state = _read_student if isinstance(estimator, PATEClassifier) else _read_vote
    for model in read_state(estimator, document["state"]):
        _clear_paths(model)
    return estimator


def _check_types(fields: Mapping[str, object], **kinds: type) -> None:
    for name, kind in kinds.items():
        if not isinstance(fields.get(name), kind):
            raise TableError(name, f"it must be of type {kind.__name__}, and is of {type(fields.get(name)).__name__}")


def _vote_state(vote: Untyped) -> dict[str, Untyped]:
    plan, release, handle, ledger = vote.plan_, None, vote._spending, None
    if not handle.is_in_memory:
        path = "" if is_url(handle.path) else str(Path(handle.path).absolute())
        ledger = handle.__getstate__() | {"path": path}
    if plan.aggregator is not None:
        if ledger is None:
            advice = "fit with ledger='FILE': a copy without its ledger could spend the budget again"
            checks.fail("ledger", None, "a file, to save the estimator", advice)
        release = json.dumps(make_document(plan.aggregator))
    return {
        "teachers": vote.teachers_,
        "workload": plan.workload.to_json(),
        "name": plan.name,
        "settings": {name: float(value) for name, value in plan.settings.items()},
        "curve": plan.curve,
        "release": release,
        "own": not isinstance(getattr(vote, "aggregator", BEST), str),
        "ledger": ledger,
    }


def _read_vote(vote: Untyped, state: dict[str, Untyped]) -> list[Untyped]:
    data = state["workload"]
    total = PrivacyParams.from_json(data["total"])
    workload = Workload(Voters.from_json(data), data["queries"], total, data.get("classes", 2))
    _check_types(state, teachers=list, name=str, curve=np.ndarray, settings=dict, own=bool)
    vote.teachers_ = state["teachers"]
    can_predict = [hasattr(teacher, "predict") for teacher in vote.teachers_]
    if can_predict != [True] * workload.voters.K or vote.classes_.shape != (workload.classes,):
        raise TableError("teachers", f"they are not {workload.voters.K} teachers of {workload.classes} classes")
    release = state["release"]
    aggregator = BEST if release is None else read_release(parse_document(release))
    vote.plan_ = plan_release(workload, aggregator)  # `PlanError` if it costs more than the budget
    if release is None and vote.plan_.aggregator is not None:
        raise TableError("release", "it is missing: without noise these answers are not within the budget")
    if release is not None:
        vote.plan_ = replace(vote.plan_, name=state["name"], curve=state["curve"], settings=state["settings"])
        if state["own"]:
            vote.aggregator = aggregator
    vote._spending = _read_handle(vote, state["ledger"])
    return list(vote.teachers_)


def _read_handle(vote: Untyped, stored: Untyped) -> LedgerHandle:
    if stored is not None:
        _check_types(stored, path=str, seen=int, identity=str, owner=str)
        if vote.ledger is not None:
            return LedgerHandle(**{**stored, "path": str(vote.ledger)})
        if vote.plan_.aggregator is not None:
            advice = "it pays for the answers, and paths in a file are not used: call load(FILE, ledger=LEDGER)"
            raise LedgerError(stored["path"][:200] or "in a database", advice)
    cost = cost_of_models(vote.plan_.workload.voters)
    handle = open_ledger(None, vote.plan_.workload.total, cost)
    handle.ledger.debit(cost)
    return handle


def _student_state(pate: Untyped) -> dict[str, Untyped]:
    budget = [pate.report_.budget.epsilon_text, pate.report_.budget.delta_text]
    report = asdict(pate.report_) | {"budget": budget}
    return {"student": pate.student_, "codes": pate._predicts_codes, "answers": pate.answers_, "report": report}


def _read_student(pate: Untyped, state: dict[str, Untyped]) -> list[Untyped]:
    _check_types(state, answers=np.ndarray, codes=bool)
    if not hasattr(state["student"], "predict"):
        raise TableError("student", "it cannot predict")
    pate.student_, pate._predicts_codes, pate.answers_ = state["student"], state["codes"], state["answers"]
    report, spent = dict(state["report"]), dict(state["report"]["spent"])
    spent["bounds"] = tuple(Bound(**bound) for bound in spent["bounds"])
    report |= {"spent": Spent(**spent), "budget": PrivacyParams(*report["budget"])}
    pate.report_ = PATEReport(**report)
    if pate.ledger is None:  # another process had the budget, so another fit has a second one
        pate._spending = LedgerHandle(MEMORY, "", seen=int(pate.report_.spent.queries))
    return [pate.student_]
