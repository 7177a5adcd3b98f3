"""Files of estimators that were damaged, or made to harm: one clear error, and no more memory than they are worth."""

import copy
import io
import json
import tracemalloc
import zipfile
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

pytest.importorskip("sklearn")
pytest.importorskip("skops")
from scipy.sparse import csr_array
from sklearn.datasets import load_iris
from sklearn.ensemble import (
    AdaBoostClassifier,
    BaggingClassifier,
    GradientBoostingClassifier,
    RandomForestClassifier,
)
from sklearn.linear_model import SGDClassifier
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

from darrm.errors import TableError
from darrm.estimators import PATEClassifier, PrivateModelsVotingClassifier, PrivateVotingClassifier, load, save

X, y = load_iris(return_X_y=True)
MEMORY = 150 * 2**20
LONG = MEMORY // 8 + 2**20  # numbers
VALUES: tuple[Any, ...] = (None, True, -1, 0, 2.5, 10**30, "", "x", "[]", "numpy.ndarray", [], {}, [[]], {"a": [{}]})


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


def edited(content: bytes, rng: Random) -> bytes:
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


@pytest.mark.slow
def test_a_file_that_is_half_written_is_no_file(tmp_path: Path, monkeypatch: Any) -> None:
    import skops.io

    models = PrivateModelsVotingClassifier(KNeighborsClassifier(1), 2, epsilon_each=1).fit(X, y)

    def dies(_: Any, path: Path) -> None:
        Path(path).write_bytes(b"PK")
        raise KeyboardInterrupt

    monkeypatch.setattr(skops.io, "dump", dies)
    with pytest.raises(KeyboardInterrupt):
        save(models, tmp_path / "file.skops")
    assert list(tmp_path.iterdir()) == []
    monkeypatch.undo()
    save(models, tmp_path / "file.skops")


def answers(loaded: Any) -> Any:
    """Return what its models say, without noise."""
    if isinstance(loaded, PATEClassifier):
        return loaded.predict_proba(X)
    inputs = csr_array(X) if isinstance(loaded, PrivateModelsVotingClassifier) else X
    return loaded._counts(loaded.teachers_, inputs)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("files", [25, pytest.param(3000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("damage", [torn, edited])
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
            assert damage is edited or np.array_equal(answers(loaded), whole), seed
    assert all(len(message.splitlines()) == 1 for message in messages)
    assert len(messages) > files / 3


def peak(path: Path) -> int:
    """Return how much memory a refusal takes."""
    tracemalloc.start()
    try:
        with pytest.raises(TableError):
            load(path, ledger=path.with_name("ledger"))
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


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
@pytest.mark.parametrize("name", ["compressed", "one array many times", "a sparse matrix"])
def test_a_small_file_takes_little_memory(name: str, content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "bomb.skops"
    path.write_bytes(bomb(name, content))
    assert path.stat().st_size < 2**21
    assert peak(path) < MEMORY


@pytest.mark.parametrize("content", ["vote"], indirect=True)
def test_an_array_of_a_length_that_is_not_there_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "bomb.skops"  # numpy asks for memory, and touches none of it
    path.write_bytes(bomb("a length that is not there", content))
    with pytest.raises(TableError, match="damaged"):
        load(path, ledger=tmp_path / "ledger")


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
    ("field", "node", "value"),
    [
        ("left_child", 0, 10**8),  # out of memory
        ("right_child", 0, 10**8),
        ("left_child", 0, 0),  # without end
        ("right_child", 2, 1),
        ("left_child", 0, -7),
        ("right_child", 0, -1),
        ("feature", 0, 10**6),
        ("feature", 0, -3),
        ("feature", 2, 4),
    ],
)
@pytest.mark.parametrize("wrap", ["tree", "pipeline", "forest", "bagging"])
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
