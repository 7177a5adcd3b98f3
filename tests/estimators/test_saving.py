"""Files of estimators: they continue the budget, add nothing private, and are refused if damaged or hostile."""

import copy
import io
import json
import pickle
import stat
import tracemalloc
import zipfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
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
from sklearn.ensemble import BaggingClassifier, GradientBoostingClassifier, RandomForestClassifier
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import CountVectorizer
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
from tests.estimators.support import (
    NOT_TRAINED,
    TEXT_LABELS,
    TEXT_TEACHER,
    TEXTS,
    UNTEACHABLE,
    WORDS,
    X,
    make_models,
    make_pate,
    make_vote,
    y,
)

MAX_MEMORY = 150 * 2**20
TREE_TYPE = "sklearn.tree._tree.Tree"
NOISE = NoisyMaximum(GNMax(25.0), Voters(6, PrivacyParams("inf"), overlap=1), 3)
VALUES: tuple[Any, ...] = (None, True, -1, 0, 2.5, 10**30, "", "x", "[]", "numpy.ndarray", [], {}, [[]], {"a": [{}]})


class Foreign(DummyClassifier):  # type: ignore[misc]  # scikit-learn ships no types
    """A teacher of a type that skops does not know."""


def fit_vote(folder: Path, **settings: Any) -> PrivateVotingClassifier:
    defaults = {"ledger": folder / "ledger.sqlite", "aggregator": NOISE}
    return make_vote(DecisionTreeClassifier(max_depth=2), **(defaults | settings)).fit(X, y)


def fit_models(model: Any = None, inputs: Any = X) -> PrivateModelsVotingClassifier:
    return make_models(GaussianNB() if model is None else model, n_models=2).fit(inputs, y)


def save_models(folder: Path, model: Any) -> Path:
    """Save a vote of two models, of which the second is fitted already."""
    voting = fit_models()
    voting.teachers_[1] = model
    save(voting, folder / "models.skops")
    return folder / "models.skops"


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(("aggregator", "labels"), [(NOISE, y), ("best", y), ("best", WORDS)])
def test_a_loaded_vote_continues_with_the_budget(aggregator: Any, labels: Any, tmp_path: Path) -> None:
    vote = fit_vote(tmp_path, aggregator=aggregator).fit(X, labels)
    vote.predict(X[:20])
    save(vote, tmp_path / "vote.skops")
    vote.predict(X[:10])
    loaded = load(tmp_path / "vote.skops", ledger=tmp_path / "ledger.sqlite")
    assert loaded.queries_left_ == 20
    loaded.predict(X[:20])
    with pytest.raises(BudgetExceededError):
        vote.predict(X[:1])
    assert np.array_equal(compute_answers(loaded), compute_answers(vote))
    assert loaded.to_model_card() == vote.to_model_card()
    parameters = loaded.get_params(deep=False)
    assert (parameters["max_queries"], parameters["aggregator"], loaded.n_features_in_) == (50, aggregator, 4)
    assert np.array_equal(loaded.plan_.curve, vote.plan_.curve, equal_nan=True)
    assert loaded.fit(X, labels).queries_left_ == 0  # in the same ledger


@pytest.mark.parametrize("failure_probability", [None, 0.25])
def test_a_loaded_student_answers_as_before(failure_probability: float | None, tmp_path: Path) -> None:
    pate = make_pate(GaussianNB(), epsilon=9).fit(X, y, X[:90])
    spent = replace(pate.report_.spent, failure_probability=failure_probability)
    pate.report_ = replace(pate.report_, spent=spent)
    pate.ledger = "postgresql://budget@db.example/ward7"
    save(pate, tmp_path / "student.skops")
    loaded = load(tmp_path / "student.skops")
    assert np.array_equal(loaded.predict_proba(X), pate.predict_proba(X))
    assert loaded.to_model_card() == pate.to_model_card()
    is_estimate = "too small with probability up to 0.25" in loaded.to_model_card()
    assert is_estimate is (failure_probability is not None)
    assert loaded.report_ == pate.report_
    assert loaded.ledger is None
    assert load(tmp_path / "student.skops", ledger=tmp_path / "ledger").ledger == tmp_path / "ledger"
    loaded.acknowledge()
    with pytest.warns(RefitWarning, match="both budgets add up"):
        loaded.fit(X, y, X[:90])


def test_a_loaded_student_of_texts_answers_as_before(tmp_path: Path) -> None:
    pate = make_pate(TEXT_TEACHER, n_teachers=15, epsilon=20).fit(TEXTS[:90], TEXT_LABELS[:90], TEXTS[90:])
    assert isinstance(pate.student_[0], CountVectorizer)
    save(pate, tmp_path / "student.skops")
    assert (load(tmp_path / "student.skops").predict_proba(TEXTS) == pate.predict_proba(TEXTS)).all()


def test_models_without_noise_are_saved_without_a_ledger(tmp_path: Path) -> None:
    models = fit_models()
    save(models, tmp_path / "models.skops")
    loaded = load(tmp_path / "models.skops")
    assert np.array_equal(loaded.predict(X), models.predict(X))
    assert loaded.privacy_spent_ == models.privacy_spent_


def edit_file(folder: Path, change: Callable[[Any], Any]) -> Path:
    """Save a vote, and change the document of its file."""
    folder.mkdir(exist_ok=True)
    save(fit_vote(folder), folder / "vote.skops")
    document = skops.io.load(folder / "vote.skops", trusted=[TREE_TYPE])
    change(document)
    skops.io.dump(document, folder / "edited.skops")
    return folder / "edited.skops"


def test_load_takes_the_ledger_from_the_caller_only(tmp_path: Path, monkeypatch: Any) -> None:
    vote = fit_vote(tmp_path)
    save(vote, tmp_path / "vote.skops")
    with pytest.raises(LedgerError, match=r"ledger\.sqlite': it pays for the answers"):
        load(tmp_path / "vote.skops")
    PrivacyLedger.create(tmp_path / "other", PrivacyParams(3, "1e-5"))
    with pytest.raises(LedgerError, match="another ledger than the one that this estimator was fitted with"):
        load(tmp_path / "vote.skops", ledger=tmp_path / "other").predict(X[:1])
    vote._spending.path = "postgresql://budget:secret@db.example/ward7"
    save(vote, tmp_path / "database.skops")
    assert b"secret" not in (tmp_path / "database.skops").read_bytes()
    with pytest.raises(LedgerError, match="ledger 'in a database': it pays"):
        load(tmp_path / "database.skops")
    edited = edit_file(
        tmp_path / "b", lambda document: document["state"]["ledger"].update(path="postgresql://x@evil/y")
    )
    monkeypatch.setattr("darrm.ledger.ledger.PrivacyLedger.__init__", lambda *_: pytest.fail("it was opened"))
    with pytest.raises(LedgerError, match="paths in a file are not used"):
        load(edited)


def test_load_drops_other_paths(tmp_path: Path) -> None:
    cached = make_pipeline(StandardScaler(), GaussianNB(), memory=str(tmp_path / "cache"))
    pate = make_pate(cached, cached, epsilon=9).fit(X, y, X[:90])
    for belief, loaded_belief in ((f"votes:{tmp_path / 'public.npy'}", None), ("dirichlet:0.01", "dirichlet:0.01")):
        path = tmp_path / f"{loaded_belief}.skops"
        save(pate.set_params(votes_look_like=belief), path)
        loaded = load(path)
        assert (loaded.teacher.memory, loaded.student.memory, loaded.student_.memory) == (None, None, None)
        assert loaded.votes_look_like == loaded_belief
    save(fit_models(cached), tmp_path / "models.skops")
    assert [model.memory for model in load(tmp_path / "models.skops").teachers_] == [None, None]


def test_a_file_is_readable_by_its_owner_only_at_any_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    modes, dump = [], skops.io.dump

    def dump_and_note_mode(document: Any, path: Path) -> None:
        dump(document, path)
        modes.append(stat.S_IMODE(path.stat().st_mode))

    monkeypatch.setattr(skops.io, "dump", dump_and_note_mode)
    save(fit_models(), tmp_path / "models.skops")
    assert [*modes, stat.S_IMODE((tmp_path / "models.skops").stat().st_mode)] == [0o600, 0o600]


def copy_by_file(pate: PATEClassifier, path: Path) -> PATEClassifier:
    save(pate, path)
    return load(path)


@pytest.mark.parametrize("make_copy", [copy_by_file, lambda pate, _: pickle.loads(pickle.dumps(pate))])  # noqa: S301
def test_a_copy_of_a_student_drops_what_the_teacher_learned_before(make_copy: Any, tmp_path: Path) -> None:
    secret = X + 0.123456
    teacher = KNeighborsClassifier(1, algorithm="brute").fit(secret, y)  # it holds every row
    pate = make_pate(teacher, teacher, epsilon=9).fit(secret, y, X[:90])
    twin = make_copy(pate, tmp_path / "student.skops")
    assert np.array_equal(twin.predict(X), pate.predict(X))
    assert not hasattr(twin.teacher, "n_features_in_")
    assert not hasattr(twin.student, "n_features_in_")
    assert hasattr(teacher, "n_features_in_")  # the object of the caller is unchanged


def test_save_refuses_what_a_file_cannot_hold(tmp_path: Path) -> None:
    with_generator = fit_models()
    with_generator.teachers_[0].lines = (line for line in "ab")
    untaught = make_pate(GaussianNB(), UNTEACHABLE, epsilon=9)
    with pytest.raises(ValueError, match=NOT_TRAINED):
        untaught.fit(X, y, X[:90])
    (tmp_path / "existing").touch()
    path = tmp_path / "file.skops"
    cases: list[tuple[Any, Path, str]] = [
        (with_generator, path, r"cannot be kept in a file .*generator.*: remove generators"),
        (fit_vote(tmp_path, ledger=None), path, "without its ledger could spend the budget again"),
        (fit_vote(tmp_path, aggregator=GNMax(25.0)), path, "NoisyMaximum"),
        (make_pate(aggregator=GNMax(25.0)).fit(X, y, X[:40]), path, "'confident' or 'best' in a file"),
        (LogisticRegression(), path, "estimator must be one of"),
        (untaught, path, "not fitted yet"),  # its labels are in answers_
        (fit_models(), tmp_path / "existing", "never replaced"),
    ]
    for estimator, target, message in cases:
        with pytest.raises((ValueError, NotFittedError), match=message):
            save(estimator, target)
        assert not path.exists()


@pytest.fixture(scope="module", params=["vote", pytest.param("student", marks=pytest.mark.slow), "sparse models"])
def content(request: Any, tmp_path_factory: Any) -> bytes:
    folder = tmp_path_factory.mktemp("files")
    estimator: Any
    if request.param == "vote":
        estimator = fit_vote(folder)
    elif request.param == "student":
        estimator = make_pate(DecisionTreeClassifier(), DecisionTreeClassifier(), epsilon=9).fit(X, y, X[::2])
    else:
        estimator = fit_models(KNeighborsClassifier(1), csr_array(X))
    save(estimator, folder / "file.skops")
    return bytes((folder / "file.skops").read_bytes())


def damage_bytes(content: bytes, rng: Random) -> bytes:
    """Flip, delete, blank or repeat some bytes, or change the list of entries, which no checksum covers."""
    raw = bytearray(content)
    start, length = rng.randrange(len(raw)), rng.choice([1, 2, 8, 100, 5000, len(raw)])
    part = slice(start, start + length)
    kind = rng.choice(["flip", "delete", "blank", "repeat", "list"])
    if kind == "flip":
        raw[start] ^= 1 << rng.randrange(8)
    elif kind == "list":
        raw[-rng.randrange(1, min(len(raw), 400))] = rng.randrange(256)
    else:
        raw[part] = {"delete": b"", "blank": bytes(len(raw[part])), "repeat": 2 * raw[part]}[kind]
    return bytes(raw)


def unzip(content: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def zip_entries(entries: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression, compresslevel=1) as archive:
        for name, part in entries.items():
            archive.writestr(name, part)
    return buffer.getvalue()


def list_nodes(value: Any) -> list[Any]:
    """List every object and list of a document."""
    inner = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
    return [value, *(node for part in inner for node in list_nodes(part))] if isinstance(value, dict | list) else []


def damage_entries(content: bytes, rng: Random) -> bytes:
    """Damage the content under valid checksums, as an attacker would."""
    entries = unzip(content)
    name, depth = rng.choice(list(entries)), 10 ** rng.randrange(1, 6)
    schema = json.loads(entries["schema.json"])
    for _ in range(rng.randrange(1, 4)):
        node = rng.choice([part for part in list_nodes(schema) if part])
        place = rng.choice(list(node)) if isinstance(node, dict) else rng.randrange(len(node))
        node[place] = copy.deepcopy(rng.choice([*VALUES, rng.choice(list_nodes(schema))]))
        if rng.random() < 0.5:
            del node[place]
    changes = {"schema.json": json.dumps(schema).encode()}
    nested = {"schema.json": b"[" * depth + b"]" * depth}
    damaged = {name: damage_bytes(entries[name], rng)}
    if rng.random() < 0.2:
        del entries[name]
    return zip_entries(entries | rng.choice([changes, changes, nested, damaged, {}]))


def compute_answers(estimator: Any) -> Any:
    """Return the answers of the models without noise."""
    if isinstance(estimator, PATEClassifier):
        return estimator.predict_proba(X)
    inputs = csr_array(X) if isinstance(estimator, PrivateModelsVotingClassifier) else X
    return estimator._count_votes(estimator.teachers_, inputs)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("files", [25, pytest.param(3000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("damage", [damage_bytes, damage_entries])
@pytest.mark.filterwarnings("ignore")
def test_load_refuses_damaged_files_in_one_line(files: int, damage: Any, content: bytes, tmp_path: Path) -> None:
    path, messages = tmp_path / "damaged.skops", []
    path.write_bytes(content)
    answers = compute_answers(load(path, ledger=tmp_path / "ledger"))
    for seed in range(files):
        path.write_bytes(damage(content, Random(seed)))  # noqa: S311 (damage)
        try:
            loaded = load(path, ledger=tmp_path / "ledger")
        except (TableError, ValueError) as error:
            messages.append(str(error))
        else:
            assert damage is damage_entries or np.array_equal(compute_answers(loaded), answers), seed
    assert all(len(message.splitlines()) == 1 for message in messages)
    assert len(messages) > files / 3


def write_array(count: int) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.zeros(count))
    return buffer.getvalue()


def make_bomb(kind: str, content: bytes) -> bytes:
    """Return a small file that unpacks to more than `MAX_MEMORY`."""
    entries, long_array = unzip(content), write_array(MAX_MEMORY // 8 + 2**20)
    first = next(name for name in entries if name.endswith(".npy"))
    node = {"__class__": "ndarray", "__module__": "numpy", "__loader__": "NdArrayNode", "type": "numpy", "file": first}
    protocol = json.loads(entries["schema.json"])["protocol"]
    if kind == "compressed":
        return zip_entries({**entries, first: long_array}, zipfile.ZIP_DEFLATED)
    if kind == "a false length":
        return zip_entries({**entries, first: write_array(1).replace(b"(1,), }" + b" " * 10, b"(99999999999,), }")})
    if kind == "one array many times":
        nodes = [{**node, "__id__": number} for number in range(2000)]
        schema: Any = {"__class__": "list", "__module__": "builtins", "__loader__": "ListNode", "content": nodes}
        return zip_entries(
            {first: write_array(2**16), "schema.json": json.dumps(schema | {"protocol": protocol}).encode()}
        )
    schema = {**node, "__loader__": "SparseMatrixNode", "__module__": "scipy.sparse._csr", "file": "x.npz"}
    schema |= {"__class__": "csr_array", "type": "scipy", "__id__": 1, "protocol": protocol}
    matrix = zip_entries({"data.npy": long_array}, zipfile.ZIP_DEFLATED)
    return zip_entries({"x.npz": matrix, "schema.json": json.dumps(schema).encode()})


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("content", ["vote"], indirect=True)
@pytest.mark.parametrize("kind", ["compressed", "one array many times", "a sparse matrix", "a false length"])
def test_load_refuses_a_small_file_that_unpacks_to_much_memory(kind: str, content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "bomb.skops"
    path.write_bytes(make_bomb(kind, content))
    assert path.stat().st_size < 2**21
    tracemalloc.start()
    try:
        with pytest.raises(TableError):
            load(path, ledger=tmp_path / "ledger")
        # for a false length numpy reserves memory and touches none of it
        assert kind == "a false length" or tracemalloc.get_traced_memory()[1] < MAX_MEMORY
    finally:
        tracemalloc.stop()


def fit_tree(field: str = "", node: int = 0, value: int = 0) -> DecisionTreeClassifier:
    """Fit a tree, and change a number of one node."""
    tree = DecisionTreeClassifier(max_depth=3, random_state=0).fit(X, y)
    state = tree.tree_.__getstate__()
    state["nodes"] = state["nodes"].copy()
    if field:
        state["nodes"][field][node] = value
    tree.tree_.__setstate__(state)
    return tree


def wrap_model(wrapper: str, tree: Any) -> Any:
    """Put a tree into a model that holds trees."""
    if wrapper == "alone":
        return tree
    if wrapper == "pipeline":
        return make_pipeline(StandardScaler().fit(X), tree)
    forest = (RandomForestClassifier if wrapper == "forest" else BaggingClassifier)(n_estimators=3).fit(X, y)
    forest.estimators_[1] = tree
    return forest


def edit_node_count(folder: Path) -> Path:
    """Save a tree whose file gives no nodes."""
    path = save_models(folder, fit_tree())
    entries = unzip(path.read_bytes())
    schema = json.loads(entries["schema.json"])
    for part in list_nodes(schema):
        if isinstance(part, dict) and isinstance(part.get("node_count"), dict):
            part["node_count"]["content"] = "0"
    path.write_bytes(zip_entries({**entries, "schema.json": json.dumps(schema).encode()}))
    return path


def fit_wide_tree() -> Any:
    tree = DecisionTreeClassifier(max_depth=3).fit(np.hstack([X] * 50), y)
    tree.n_features_in_ = 4
    return tree


def fit_linear_with_wrong_columns() -> Any:
    linear = SGDClassifier().fit(X, y)
    linear.coef_ = csr_array(linear.coef_)
    linear.coef_.indices[-1] = 10**6
    return linear


def replace_release(document: Any, old: str, new: str) -> None:
    document["state"]["release"] = document["state"]["release"].replace(old, new)


BOOSTED = GradientBoostingClassifier(n_estimators=2).fit(X, y)
WRAPPERS = ("alone", "pipeline", "forest", "bagging")
WRONG_MODELS: list[tuple[Any, str]] = [
    (Foreign().fit(X, y), r"Foreign.*trusted="),
    (KNeighborsClassifier().fit(X, y), "KDTree"),
    (BOOSTED, r"reads its trees unchecked: .* trusted=\['sklearn.tree"),
    (fit_linear_with_wrong_columns(), "damaged"),
    (fit_wide_tree(), "out of bounds"),
    *((wrap_model(wrapper, fit_tree("left_child", 0, 0)), "out of bounds") for wrapper in WRAPPERS),  # cycles
    *((fit_tree("right_child", node, value), "out of bounds") for node, value in ((0, 10**8), (2, 1), (0, -1))),
    *((fit_tree("left_child", 0, value), "out of bounds") for value in (10**8, -7)),
    *((fit_tree("feature", node, value), "out of bounds") for node, value in ((0, -3), (2, 4))),
]
EDITS: list[tuple[Callable[[Any], Any], str]] = [
    (lambda document: document.update(format="pickle"), "of version 1"),
    (lambda document: document.update(version=2), "of version 1"),
    (lambda document: document.update(kind="Pipeline"), "damaged .*Pipeline"),
    (lambda document: document.pop("state"), "damaged .*state"),
    (lambda document: document["inputs"].update(predict=None), "'predict' is unknown"),
    (lambda document: document["state"].update(release=None), "without noise these answers are not within the budget"),
    (lambda document: document["state"]["workload"].update(queries=5000), "do not fit"),
    (lambda document: replace_release(document, '"K": 6', '"K": 7'), "charged for other voters"),
    (lambda document: document["state"]["teachers"].pop(), "they are not 6 teachers"),
]


@pytest.mark.parametrize(
    ("write", "message"),
    [
        *((partial(save_models, model=model), message) for model, message in WRONG_MODELS),
        *((partial(edit_file, change=change), message) for change, message in EDITS),
        (edit_node_count, "damaged|out of bounds"),
    ],
)
def test_load_refuses_hostile_files(write: Callable[[Path], Path], message: str, tmp_path: Path) -> None:
    path = write(tmp_path)
    with pytest.raises((TableError, ValueError), match=message):
        load(path, ledger=tmp_path / "ledger.sqlite")


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_load_takes_whole_trees(wrapper: str, tmp_path: Path) -> None:
    model = wrap_model(wrapper, fit_tree())
    assert np.array_equal(load(save_models(tmp_path, model)).teachers_[1].predict(X), model.predict(X))


@pytest.mark.parametrize(
    ("model", "name"), [(BOOSTED, TREE_TYPE), (Foreign().fit(X, y), f"{Foreign.__module__}.Foreign")]
)
def test_load_takes_types_that_the_caller_trusts(model: Any, name: str, tmp_path: Path) -> None:
    loaded = load(save_models(tmp_path, model), trusted=[name])
    assert np.array_equal(loaded.teachers_[1].predict(X), model.predict(X))
