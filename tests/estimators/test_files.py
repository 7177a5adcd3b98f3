"""Files of estimators: the budget goes on, nothing private is added, and damaged or hostile files are refused."""

import copy
import io
import json
import pickle
import stat
import tracemalloc
import zipfile
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

pytest.importorskip("sklearn")
pytest.importorskip("skops")
import skops.io
from scipy.sparse import csr_array
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import (
    AdaBoostClassifier,
    BaggingClassifier,
    GradientBoostingClassifier,
    RandomForestClassifier,
)
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

from darrm import PrivacyParams, Voters
from darrm.errors import BudgetExceededError, LedgerError, TableError
from darrm.estimators import (
    PATEClassifier,
    PrivateModelsVotingClassifier,
    PrivateVotingClassifier,
    RefitWarning,
    load,
    save,
)
from darrm.ledger.ledger import PrivacyLedger
from darrm.pate import GNMax, NoisyMaximum
from tests.estimators.common import NOT_TRAINED, UNTEACHABLE, X, y
from tests.estimators.common import pate as with_teachers

MEMORY = 150 * 2**20
LONG = MEMORY // 8 + 2**20  # numbers
VALUES: tuple[Any, ...] = (None, True, -1, 0, 2.5, 10**30, "", "x", "[]", "numpy.ndarray", [], {}, [[]], {"a": [{}]})


class Foreign(DummyClassifier):  # type: ignore[misc]  # scikit-learn ships no types
    """A teacher of a type that skops does not know."""


def vote(tmp_path: Path, **settings: Any) -> PrivateVotingClassifier:
    given = {"epsilon": 3, "max_queries": 50, "random_state": 0, "ledger": tmp_path / "ledger.sqlite", **settings}
    return PrivateVotingClassifier(settings.pop("estimator", DecisionTreeClassifier()), 6, **given).fit(X, y)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("labels", [y, np.array(["a", "b", "b"])[y]])
def test_a_loaded_vote_goes_on_with_the_budget(labels: Any, tmp_path: Path) -> None:
    fitted = vote(tmp_path).fit(X, labels)
    fitted.predict(X[:20])
    save(fitted, tmp_path / "vote.skops")
    fitted.predict(X[:10])
    loaded = load(tmp_path / "vote.skops", ledger=tmp_path / "ledger.sqlite")
    assert loaded.queries_left_ == 20
    loaded.predict(X[:20])
    with pytest.raises(BudgetExceededError):
        fitted.predict(X[:1])
    assert np.array_equal(loaded._count_votes(loaded.teachers_, X), fitted._count_votes(fitted.teachers_, X))
    assert loaded.to_model_card() == fitted.to_model_card()
    assert (loaded.get_params(deep=False)["max_queries"], loaded.n_features_in_) == (50, 4)
    assert np.array_equal(loaded.plan_.curve, fitted.plan_.curve)


@pytest.mark.parametrize("failure_probability", [None, 0.25])
def test_a_loaded_student_answers_as_it_did(failure_probability: float | None, tmp_path: Path) -> None:
    pate = with_teachers(GaussianNB(), epsilon=9).fit(X, y, X[:90])
    spent = replace(pate.report_.spent, failure_probability=failure_probability)
    pate.report_ = replace(pate.report_, spent=spent)
    pate.ledger = "postgresql://budget@db.example/ward7"
    save(pate, tmp_path / "student.skops")
    loaded = load(tmp_path / "student.skops")
    assert np.array_equal(loaded.predict_proba(X), pate.predict_proba(X))
    assert loaded.to_model_card() == pate.to_model_card()
    estimated = "too small with probability up to 0.25" in loaded.to_model_card()
    assert estimated is (failure_probability is not None)
    assert loaded.report_ == pate.report_
    assert loaded.ledger is None  # a file names none
    assert load(tmp_path / "student.skops", ledger=tmp_path / "ledger").ledger == tmp_path / "ledger"
    loaded.acknowledge()
    with pytest.warns(RefitWarning, match="both budgets add up"):
        loaded.fit(X, y, X[:90])


def test_no_ledger_of_a_file_is_used(tmp_path: Path, monkeypatch: Any) -> None:
    fitted = vote(tmp_path)
    save(fitted, tmp_path / "vote.skops")
    with pytest.raises(LedgerError, match=r"ledger\.sqlite': it pays for the answers, and paths in a file"):
        load(tmp_path / "vote.skops")
    PrivacyLedger.create(tmp_path / "other", PrivacyParams(3, "1e-5"))
    with pytest.raises(LedgerError, match="another ledger than the one that this estimator was fitted with"):
        load(tmp_path / "vote.skops", ledger=tmp_path / "other").predict(X[:1])
    fitted._spending.path = "postgresql://budget:secret@db.example/ward7"
    save(fitted, tmp_path / "database.skops")
    assert b"secret" not in (tmp_path / "database.skops").read_bytes()
    with pytest.raises(LedgerError, match="ledger 'in a database': it pays"):
        load(tmp_path / "database.skops")
    hostile = edited(tmp_path / "b", lambda document: document["state"]["ledger"].update(path="postgresql://x@evil/y"))
    monkeypatch.setattr("darrm.ledger.ledger.PrivacyLedger.__init__", lambda *_: pytest.fail("it was opened"))
    with pytest.raises(LedgerError, match="paths in a file are not used"):
        load(hostile)


def test_paths_of_a_file_are_forgotten(tmp_path: Path) -> None:
    cached = make_pipeline(StandardScaler(), GaussianNB(), memory=str(tmp_path / "cache"))
    pate = PATEClassifier(cached, cached, n_teachers=6, epsilon=9, random_state=0).fit(X, y, X[:90])
    pate.set_params(votes_look_like=f"votes:{tmp_path / 'public.npy'}")
    save(pate, tmp_path / "student.skops")
    loaded = load(tmp_path / "student.skops")
    assert (loaded.teacher.memory, loaded.student.memory, loaded.student_.memory) == (None, None, None)
    assert loaded.votes_look_like is None
    models = PrivateModelsVotingClassifier(cached, 2, epsilon_each=1).fit(X, y)
    save(models, tmp_path / "models.skops")
    assert [model.memory for model in load(tmp_path / "models.skops").teachers_] == [None, None]
    belief = pate.set_params(votes_look_like="dirichlet:0.01")
    save(belief, tmp_path / "belief.skops")
    assert load(tmp_path / "belief.skops").votes_look_like == "dirichlet:0.01"


def test_files_are_of_their_owner_alone(tmp_path: Path) -> None:
    modes = []
    dump = skops.io.dump

    def watched(document: Any, path: Path) -> None:
        dump(document, path)
        modes.append(stat.S_IMODE(path.stat().st_mode))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(skops.io, "dump", watched)
        save(vote(tmp_path), tmp_path / "vote.skops")
    assert [*modes, stat.S_IMODE((tmp_path / "vote.skops").stat().st_mode)] == [0o600, 0o600]


@pytest.mark.parametrize("form", ["pickle", "skops"])
def test_a_teacher_that_was_fitted_before_is_not_in_the_student_s_file(form: str, tmp_path: Path) -> None:
    secret = X + 0.123456
    teacher = KNeighborsClassifier(1, algorithm="brute").fit(secret, y)  # holds every row
    pate = PATEClassifier(teacher, teacher, n_teachers=6, epsilon=9, random_state=0).fit(secret, y, X[:90])
    if form == "skops":
        save(pate, tmp_path / "student.skops")
        kept = load(tmp_path / "student.skops")
    else:
        kept = pickle.loads(pickle.dumps(pate))  # noqa: S301 (written here)
    assert np.array_equal(kept.predict(X), pate.predict(X))
    assert not hasattr(kept.teacher, "n_features_in_")
    assert not hasattr(kept.student, "n_features_in_")
    assert hasattr(teacher, "n_features_in_")  # the caller's own is left alone


def test_models_without_noise_are_saved_without_a_ledger(tmp_path: Path) -> None:
    free = PrivateModelsVotingClassifier(GaussianNB(), 5, epsilon_each=1).fit(X, y)
    save(free, tmp_path / "models.skops")
    loaded = load(tmp_path / "models.skops")
    assert np.array_equal(loaded.predict(X), free.predict(X))
    assert loaded.privacy_spent_ == free.privacy_spent_


def test_what_cannot_be_saved_says_why(tmp_path: Path) -> None:
    models = PrivateModelsVotingClassifier(GaussianNB(), 2, epsilon_each=1).fit(X, y)
    models.teachers_[0].lines = (line for line in "ab")
    with pytest.raises(ValueError, match=r"cannot be kept in a file .*generator.*: remove generators"):
        save(models, tmp_path / "vote.skops")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ValueError, match="without its ledger could spend the budget again"):
        save(vote(tmp_path, ledger=None), tmp_path / "vote.skops")
    with pytest.raises(ValueError, match="NoisyMaximum"):
        save(vote(tmp_path, aggregator=GNMax(25.0)), tmp_path / "vote.skops")
    assert not (tmp_path / "vote.skops").exists()
    with pytest.raises(ValueError, match="estimator must be one of"):
        save(LogisticRegression(), tmp_path / "vote.skops")
    untaught = PATEClassifier(GaussianNB(), UNTEACHABLE, n_teachers=6, epsilon=9)
    with pytest.raises(ValueError, match=NOT_TRAINED):
        untaught.fit(X, y, X[:90])
    with pytest.raises(NotFittedError):  # its labels wait, or are in answers_
        save(untaught, tmp_path / "vote.skops")
    (tmp_path / "taken").touch()
    with pytest.raises(ValueError, match="never replaced"):
        save(PrivateModelsVotingClassifier(GaussianNB(), 5, epsilon_each=1).fit(X, y), tmp_path / "taken")


def test_unknown_types_are_named_and_refused(tmp_path: Path) -> None:
    models = PrivateModelsVotingClassifier(Foreign(), 2, epsilon_each=1).fit(X, y)
    save(models, tmp_path / "models.skops")
    with pytest.raises(ValueError, match=r"Foreign.*trusted="):
        load(tmp_path / "models.skops")
    name = f"{Foreign.__module__}.Foreign"
    assert type(load(tmp_path / "models.skops", trusted=[name]).teachers_[0]).__name__ == "Foreign"


def edited(tmp_path: Path, change: Any) -> Path:
    tmp_path.mkdir(exist_ok=True)
    fitted = vote(tmp_path)
    save(fitted, tmp_path / "vote.skops")
    document = skops.io.load(tmp_path / "vote.skops", trusted=["sklearn.tree._tree.Tree"])
    change(document)
    skops.io.dump(document, tmp_path / "edited.skops")
    return tmp_path / "edited.skops"


@pytest.mark.parametrize(
    "change",
    [
        lambda document: document.update(format="pickle"),
        lambda document: document.update(kind="Pipeline"),
        lambda document: document.pop("state"),
        lambda document: document["inputs"].update(predict=None),
        lambda document: document["state"].update(release=None),  # no noise, where noise is needed
        lambda document: document["state"]["workload"].update(queries=5000),  # more answers than fit into the budget
        lambda document: document["state"].update(release=document["state"]["release"].replace('"K": 6', '"K": 7')),
    ],
)
def test_an_edited_file_is_refused(change: Any, tmp_path: Path) -> None:
    with pytest.raises(TableError):
        load(edited(tmp_path, change), ledger=tmp_path / "ledger.sqlite")


def test_an_aggregator_of_ones_own_comes_back(tmp_path: Path) -> None:
    own = NoisyMaximum(GNMax(25.0), Voters(6, PrivacyParams("inf"), overlap=1), 3)
    fitted = vote(tmp_path, aggregator=own)
    fitted.predict(X[:20])
    save(fitted, tmp_path / "vote.skops")
    loaded = load(tmp_path / "vote.skops", ledger=tmp_path / "ledger.sqlite")
    assert loaded.get_params()["aggregator"] == own
    assert loaded.fit(X, y).queries_left_ == 30


@pytest.fixture(scope="module", params=["vote", pytest.param("student", marks=pytest.mark.slow), "sparse models"])
def content(request: Any, tmp_path_factory: Any) -> bytes:
    folder = tmp_path_factory.mktemp("files")
    made: Any
    if request.param == "vote":
        tree = DecisionTreeClassifier(max_depth=2)
        made = PrivateVotingClassifier(tree, 3, max_queries=20, ledger=folder / "l").fit(X, y)
    elif request.param == "student":
        made = PATEClassifier(
            DecisionTreeClassifier(), DecisionTreeClassifier(), n_teachers=3, epsilon=300, max_answers=9
        )
        made.set_params(aggregator="best").fit(X, y, X[::5])
    else:
        made = PrivateModelsVotingClassifier(KNeighborsClassifier(1), 2, epsilon_each=1).fit(csr_array(X), y)
    save(made, folder / "file.skops")
    return bytes((folder / "file.skops").read_bytes())


def torn(content: bytes, rng: Random) -> bytes:
    """Damage bytes: some flipped, cut off, left out, repeated, or others in their place."""
    raw = bytearray(content)
    start, length = rng.randrange(len(raw)), rng.choice([1, 1, 2, 8, 100, 5000])
    part = slice(start, start + length)
    kind = rng.randrange(6)
    if kind == 0:
        for _ in range(length):
            raw[rng.randrange(len(raw))] ^= 1 << rng.randrange(8)
    elif kind == 1:
        del raw[start:]
    elif kind == 2:
        del raw[part]
    elif kind == 3:
        raw[part] = bytes(len(raw[part]))
    elif kind == 4:
        raw[start:start] = raw[part]
    else:  # the list of entries at the end, which a checksum does not cover
        raw[-rng.randrange(1, min(len(raw), 400))] = rng.randrange(256)
    return bytes(raw)


def entries_of(content: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def zipped(entries: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression, compresslevel=1) as archive:
        for name, part in entries.items():
            archive.writestr(name, part)
    return buffer.getvalue()


def nodes_of(value: Any) -> list[Any]:
    """List every object and list of a document."""
    inner = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
    return [value, *(node for part in inner for node in nodes_of(part))] if isinstance(value, dict | list) else []


def rewritten(content: bytes, rng: Random) -> bytes:
    """Damage what the file says, with checksums that hold: as another program, or an attacker, would."""
    entries = entries_of(content)
    kind, name = rng.randrange(5), rng.choice(list(entries))
    if kind == 0:
        del entries[name]
    elif kind == 1:
        entries[name] = torn(entries[name], rng)
    elif kind == 2:
        depth = 10 ** rng.randrange(1, 6)
        entries["schema.json"] = b"[" * depth + b"]" * depth
    else:
        schema = json.loads(entries["schema.json"])
        for _ in range(rng.randrange(1, 4)):
            node = rng.choice([part for part in nodes_of(schema) if part])
            place = rng.choice(list(node)) if isinstance(node, dict) else rng.randrange(len(node))
            if rng.random() < 0.5:
                del node[place]
            else:
                node[place] = copy.deepcopy(rng.choice([*VALUES, rng.choice(nodes_of(schema))]))
        entries["schema.json"] = json.dumps(schema).encode()
    return zipped(entries)


def answers(loaded: Any) -> Any:
    """Return what its models say, without noise."""
    if isinstance(loaded, PATEClassifier):
        return loaded.predict_proba(X)
    inputs = csr_array(X) if isinstance(loaded, PrivateModelsVotingClassifier) else X
    return loaded._count_votes(loaded.teachers_, inputs)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("files", [25, pytest.param(3000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("damage", [torn, rewritten])
@pytest.mark.filterwarnings("ignore")
def test_a_damaged_file_ends_in_one_error(files: int, damage: Any, content: bytes, tmp_path: Path) -> None:
    path, messages = tmp_path / "damaged.skops", []
    path.write_bytes(content)
    ledger = tmp_path / "ledger"  # of another identity: nothing is asked of it
    whole = answers(load(path, ledger=ledger))
    for seed in range(files):
        path.write_bytes(damage(content, Random(seed)))  # noqa: S311 (damage)
        try:
            loaded = load(path, ledger=ledger)
        except (TableError, ValueError) as error:
            messages.append(str(error))
        else:
            assert damage is rewritten or np.array_equal(answers(loaded), whole), seed
    assert all(len(message.splitlines()) == 1 for message in messages)
    assert len(messages) > files / 3


def array(count: int) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.zeros(count))
    return buffer.getvalue()


def bomb(name: str, content: bytes) -> bytes:
    """Return a small file that would unfold to more memory than that."""
    entries = entries_of(content)
    first = next(name for name in entries if name.endswith(".npy"))
    node = {"__class__": "ndarray", "__module__": "numpy", "__loader__": "NdArrayNode", "type": "numpy", "file": first}
    many = {
        "__class__": "list",
        "__module__": "builtins",
        "__loader__": "ListNode",
        "content": [{**node, "__id__": number} for number in range(2000)],
        "protocol": json.loads(entries["schema.json"])["protocol"],
    }
    matrix = {**node, "__loader__": "SparseMatrixNode", "__module__": "scipy.sparse._csr", "file": "x.npz", "__id__": 1}
    matrix |= {"__class__": "csr_array", "type": "scipy", "protocol": many["protocol"]}
    if name == "compressed":
        return zipped({**entries, first: array(LONG)}, zipfile.ZIP_DEFLATED)
    if name == "one array many times":
        return zipped({first: array(2**16), "schema.json": json.dumps(many).encode()})
    if name == "a sparse matrix":
        inner = zipped({"data.npy": array(LONG)}, zipfile.ZIP_DEFLATED)
        return zipped({"x.npz": inner, "schema.json": json.dumps(matrix).encode()})
    return zipped({**entries, first: array(1).replace(b"(1,), }" + b" " * 10, b"(99999999999,), }")})


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("content", ["vote"], indirect=True)
@pytest.mark.parametrize("name", ["compressed", "one array many times", "a sparse matrix", "a false length"])
def test_a_small_file_takes_little_memory(name: str, content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "bomb.skops"
    path.write_bytes(bomb(name, content))
    assert path.stat().st_size < 2**21
    tracemalloc.start()
    try:
        with pytest.raises(TableError):
            load(path, ledger=tmp_path / "ledger")
        # of a false length numpy asks for memory, and touches none of it
        assert name == "a false length" or tracemalloc.get_traced_memory()[1] < MEMORY
    finally:
        tracemalloc.stop()


def tree_with(field: str, node: int, value: int) -> Any:
    """Return a fitted tree of which one number of one node is another."""
    tree = DecisionTreeClassifier(max_depth=3, random_state=0).fit(X, y)
    state = tree.tree_.__getstate__()
    state["nodes"] = state["nodes"].copy()
    state["nodes"][field][node] = value
    tree.tree_.__setstate__(state)
    return tree


def with_models(*models: Any) -> Any:
    voting = PrivateModelsVotingClassifier(DecisionTreeClassifier(), len(models), epsilon_each=1, classes=3).fit(X, y)
    voting.teachers_ = list(models)
    return voting


@pytest.mark.parametrize(
    ("wrap", "field", "node", "value"),
    [
        ("tree", "left_child", 0, 10**8),  # out of memory
        ("tree", "right_child", 0, 10**8),
        ("tree", "left_child", 0, 0),  # without end
        ("tree", "right_child", 2, 1),
        ("tree", "left_child", 0, -7),
        ("tree", "right_child", 0, -1),
        ("tree", "feature", 0, 10**6),
        ("tree", "feature", 0, -3),
        ("tree", "feature", 2, 4),
        *((wrap, "left_child", 0, 0) for wrap in ("pipeline", "forest", "bagging")),
    ],
)
def test_trees_that_lead_out_of_their_nodes_are_refused(
    wrap: str, field: str, node: int, value: int, tmp_path: Path
) -> None:
    tree: Any = tree_with(field, node, value)
    if wrap == "pipeline":
        tree = make_pipeline(StandardScaler(), tree)
        tree[0].fit(X)
    elif wrap in {"forest", "bagging"}:
        made = (RandomForestClassifier if wrap == "forest" else BaggingClassifier)(n_estimators=3).fit(X, y)
        made.estimators_[1] = tree
        tree = made
    models = with_models(DecisionTreeClassifier().fit(X, y), tree)
    save(models, tmp_path / "models.skops")
    with pytest.raises(TableError, match="its nodes are out of bounds"):
        load(tmp_path / "models.skops")


@pytest.mark.parametrize("count", [0, 1, -1, 10**9])
def test_a_number_of_nodes_that_a_tree_does_not_have_is_refused(count: int, tmp_path: Path) -> None:
    tree = DecisionTreeClassifier(max_depth=3).fit(X, y)
    save(with_models(tree), tmp_path / "whole.skops")
    entries = entries_of((tmp_path / "whole.skops").read_bytes())
    text, said = entries["schema.json"].decode(), tree.tree_.node_count
    schema = json.loads(text)
    for part in nodes_of(schema):
        if isinstance(part, dict) and isinstance(part.get("node_count"), dict):
            part["node_count"]["content"] = str(count)
    entries["schema.json"] = json.dumps(schema).encode()
    (tmp_path / "edited.skops").write_bytes(zipped(entries))
    if count > said:  # scikit-learn takes the number that there is
        assert np.array_equal(answers(load(tmp_path / "edited.skops")), answers(load(tmp_path / "whole.skops")))
    else:
        with pytest.raises(TableError):
            load(tmp_path / "edited.skops")


def test_trees_of_more_columns_than_the_model_takes_are_refused(tmp_path: Path) -> None:
    tree = DecisionTreeClassifier(max_depth=3).fit(np.hstack([X] * 50), y)
    tree.n_features_in_ = 4
    save(with_models(tree), tmp_path / "models.skops")
    with pytest.raises(TableError, match="its nodes are out of bounds"):
        load(tmp_path / "models.skops")


def test_trees_that_are_read_unchecked_are_loaded_on_trust_only(tmp_path: Path) -> None:
    boosted = GradientBoostingClassifier(n_estimators=2).fit(X, y)
    save(with_models(boosted), tmp_path / "models.skops")
    with pytest.raises(TableError, match=r"gradient boosting reads its trees unchecked: .* trusted=\['sklearn.tree"):
        load(tmp_path / "models.skops")
    loaded = load(tmp_path / "models.skops", trusted=["sklearn.tree._tree.Tree"])
    assert np.array_equal(loaded.teachers_[0].predict(X), boosted.predict(X))
    save(with_models(KNeighborsClassifier().fit(X, y)), tmp_path / "neighbors.skops")
    with pytest.raises(ValueError, match="KDTree"):
        load(tmp_path / "neighbors.skops")


def test_sparse_arrays_of_columns_that_are_not_there_are_refused(tmp_path: Path) -> None:
    linear = SGDClassifier().fit(X, y)
    linear.coef_ = csr_array(linear.coef_)
    linear.coef_.indices[-1] = 10**6
    save(with_models(linear), tmp_path / "models.skops")
    with pytest.raises(TableError, match="damaged"):
        load(tmp_path / "models.skops")


@pytest.mark.parametrize("forest", [RandomForestClassifier(5), BaggingClassifier(), AdaBoostClassifier(n_estimators=3)])
def test_forests_come_back_whole(forest: Any, tmp_path: Path) -> None:
    forest.fit(X, y)
    save(with_models(forest), tmp_path / "models.skops")
    assert np.array_equal(load(tmp_path / "models.skops").teachers_[0].predict(X), forest.predict(X))
