"""Common mistakes at the shell and in Python: each gets one sentence that names the value, what is allowed, what to do.

This is the one place for refusals of commands. Input whose meaning is clear works, however it is written.
"""
# the arguments are of wrong types on purpose
# mypy: disable-error-code="arg-type, list-item, index, attr-defined, type-arg, no-any-return, call-arg"

import shlex
import shutil
import sqlite3
import sys
from collections.abc import Callable, Iterator
from decimal import Decimal
from fractions import Fraction
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import darrm
import darrm.__main__ as front
from darrm import (
    NoiseFunction,
    PrivacyAccountant,
    PrivacyLedger,
    PrivacyParams,
    Problem,
    Release,
    Table,
    Voters,
    Votes,
    Workload,
    certify,
    load_table,
    optimize_table,
    priors,
    release_debited,
)
from darrm.aggregator import load_release
from darrm.errors import DarrmError
from darrm.loss import compose_optimal, compose_simple
from darrm.loss.privacy_cost import PrivacyCost
from darrm.optimize import SolveOptions
from darrm.pate import ConfidentGNMax, GNMax, LNMax, analyze, sanitize
from darrm.plan import plan
from darrm.random_dp import Gaussian, Laplace, SensitivitySampler, sample_size, sample_then_respond
from tests.doors import refused

LABELS = np.array([[1, 1, 0, 1, 0], [0, 0, 0, 1, 0], [1, 1, 1, 1, 1], [0, 1, 0, 0, 1]])  # 4 queries, 5 voters
ROWS = "\n".join(",".join(map(str, row)) for row in LABELS) + "\n"
WORDS = np.where(LABELS == 1, "yes", "no")
EACH, EACH_PURE = PrivacyParams("0.2", "1e-5"), PrivacyParams("0.2")
PRIVATE, TEACHERS = Voters(5, EACH), Voters(5, PrivacyParams("inf"), overlap=1)
PROBLEM = Problem.from_allowance(PRIVATE, 2)
INTO = "release votes.csv --table table.json --output out.csv --ledger"
RELEASE = "--table table.json --ledger new.sqlite --create-budget 8,1e-2 --output out.csv"
LARGE = PrivacyCost("mine", PrivacyParams(60), count=2)
EVEN = Problem.from_allowance(Voters(12, EACH_PURE), 3)
VOTES = Votes.from_labels(LABELS)
HALF = NoiseFunction(5, [0.5, 0.5, 1.0])
MAX_CHARACTERS = 400  # of a sentence: a few lines of a terminal


@pytest.fixture(scope="module")
def aggregator() -> Release:
    return Release(optimize_table(PROBLEM))


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory, aggregator: Release) -> Path:
    folder = tmp_path_factory.mktemp("files")
    aggregator.table.save(folder / "table.json")
    seven = Problem.from_allowance(Voters(7, EACH), 7)
    certify(seven, NoiseFunction(7, np.ones(4))).save(folder / "seven.json")
    stored = (folder / "table.json").read_text()
    texts = {
        "votes.csv": ROWS,
        "header.csv": "north,south,east,west,center\n" + ROWS,
        "pandas.csv": ",0,1,2,3,4\n" + "".join(f"{row},{line}\n" for row, line in enumerate(ROWS.split())),
        "comment.csv": "# my votes\n" + ROWS,
        "semicolons.csv": ROWS.replace(",", ";"),
        "tabs.csv": ROWS.replace(",", "\t"),
        "spaces.csv": ROWS.replace(",", " "),
        "empty.csv": "",
        "blank.csv": ROWS + "\n",
        "ragged.csv": ROWS + "1,0,1\n",
        "hole.csv": ROWS.replace("0,0,0,1,0", "0,,0,1,0"),
        "words.csv": ROWS.replace("1", "yes").replace("0", "no"),
        "signs.csv": ROWS.replace("0", "-1"),
        "shares.csv": ROWS.replace("1", "0.9"),
        "transposed.csv": "\n".join(",".join(map(str, row)) for row in LABELS.T) + "\n",
        "from_one.csv": ROWS.replace("1", "2").replace("0", "1"),
        "windows.csv": "\ufeff" + ROWS.replace("\n", "\r\n"),
        "spaced.csv": ROWS.replace(",", ", "),
        "votes.txt": ROWS,
        "one_voter.csv": "no no\nno\n",
        "taken.csv": "1\n0\n",
        "cut.json": stored[:200],
        "edited.json": stored.replace('"checksum": "', '"checksum": "0'),
        "foreign.json": '{"a": 1}',
        "text.sqlite": ROWS * 100,
    }
    for name, text in texts.items():
        (folder / name).write_bytes(text.encode())
    (folder / "utf16.csv").write_bytes(ROWS.encode("utf-16"))
    (folder / "latin.csv").write_bytes("für,gegen\n".encode("latin-1"))
    (folder / "votes.xlsx").write_bytes(b"PK\x03\x04")
    shutil.copy(folder / "votes.csv", folder / "renamed.npy")
    (folder / "a_folder").mkdir()
    for name, array in {
        "votes": LABELS,
        "one_query": LABELS[0],
        "booleans": LABELS == 1,
        "floats": LABELS.astype(float),
        "digits": LABELS.astype(str),
        "gaps": np.where(LABELS == 1, np.nan, 0.0),
        "counts": np.array([[3, 2], [4, 1], [0, 5]]),
    }.items():
        np.save(folder / f"{name}.npy", array)
    ledger = PrivacyLedger.create(folder / "ledger.sqlite", PrivacyParams(8, "1e-2"))
    ledger.debit(aggregator.privacy_cost(4))
    PrivacyLedger.create(folder / "small.sqlite", PrivacyParams("0.1", "1e-9"))
    other = PrivacyLedger.create(folder / "other.sqlite", PrivacyParams(8, "1e-2"))
    other.debit(PrivacyCost("another mechanism", guarantee=PrivacyParams("0.1")))
    connection = sqlite3.connect(folder / "foreign.sqlite")
    connection.execute("CREATE TABLE notes (text)")
    connection.close()
    return folder


@pytest.fixture
def folder(files: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(files)
    return files


def check_sentence(text: str, parts: str) -> None:
    """Check that a message is one sentence in plain words that contains all parts."""
    assert [part for part in parts.split(" … ") if part not in text] == []
    assert "\n" not in text
    assert len(text) <= MAX_CHARACTERS
    jargon = ("Traceback", "[Errno", "object has no attribute", "NoneType' object")
    assert [word for word in jargon if word in text] == []


# a command line, and what the message must contain: the value, what is allowed, or what to do
SHELL = {
    # commands and flags
    "optimise --K 5": "'optimise' … did you mean optimize?",
    "train --K 5": "'train' … Choose from optimize, plan, release",
    "optimize --k 5 --m 2": "--k … did you mean --K? … --help",
    "optimize --K 5 --ouput t.json": "--ouput … did you mean --output?",
    "optimize --K 5 -m 2": "-m … did you mean --m?",
    "optimize --K 5 --eps 0.1": "--eps … did you mean --epsilon?",
    "optimize \u2014K 5": "\u2014K … did you mean --K?",
    "pate votes.npy --delta 1e-5 --sigma 40": "--sigma … did you mean --sigma1 or --sigma2 or --sigma-ss?",
    "release votes.csv --seed 1 " + RELEASE: "no option --seed … --help",
    "optimize 5 2": "'5' … follows its option",
    "optimize --K": "'--K' requires an argument",
    "optimize --voters public": "--voters … .csv … 'public'",
    "optimize --K 5 --shape monoton": "--shape … 'monoton' is not one of 'free', 'monotone'",
    # numbers
    "optimize --K=11.0": "--K … '11.0' … an integer of at least 1 … digits",
    "optimize --K ten": "--K … 'ten' … an integer",
    "optimize --K -5": "--K … -5 … at least 1",
    "optimize --K 5 --m 6": "m must be in [1, K] = [1, 5] … '6'",
    "optimize --K 5 --m 0.5": "m must be in [1, K] = [1, 5] … '0.5' … at least as one voter",
    "optimize --K 5 --m 2,5 --output t.json": "--output is about one allowance --m … leave it out",
    "optimize --K 5 --m 2 --delta 0,5": "delta must be … '0,5' … with a point",
    "optimize --K 5 --epsilon 0": "epsilon must be positive … carry no information",
    "optimize --K 5 --epsilon -0.1": "--epsilon … '-0.1' … at least 0",
    "optimize --K 5 --epsilon nan": "--epsilon … 'nan' … a finite number, like 0.1",
    "optimize --K 5 --epsilon inf": "--epsilon must be finite … --non-private",
    "optimize --K 5 --epsilon 0,1": "--epsilon … '0,1' … with a point",
    "optimize --K 5 --each-delta 2": "--each-delta … in [0, 1) … '2'",
    "optimize --K 5 --overlap 6": "overlap … at most K = 5 … 6",
    "optimize --K 5 --time-limit soon": "--time-limit … 'soon' … a number of at least 0",
    "plan --K 5 --non-private --total 2,1e-5 --queries 1e3": "--queries … '1e3' … digits",
    "plan --K 5 --non-private --total 2,1e-5 --queries 0": "--queries … 0 … at least 1",
    # budgets
    "plan --K 5 --non-private": "--total EPS,DELTA is required",
    "plan --K 5 --non-private --total 2": "--total … '2' … EPS,DELTA, like 2,1e-5",
    "plan --K 5 --non-private --total 2,1e-5 1e-5": "Unexpected argument '1e-5'",
    "plan --K 5 --non-private --total 0,5,1e-5": "--total … decimals have a point",
    "plan --K 5 --non-private --total 1e-5,2": "--total … delta must be in [0, 1) … swapped?",
    "plan --K 5 --non-private --total 0,1e-5": "epsilon of the total … (0, 700] … 0.0",
    "plan --K 5 --non-private --total inf,1e-5": "--total … 'inf' … a finite number",
    "optimize --K 5 --target 0.5,1e-9": "target.delta … at least each.delta … 1e-09",
    "optimize --K 5 --m 2 --target 0.5,1e-5": "--m and --target … give one of them",
    "optimize --K 5 --non-private --m 2": "--non-private needs --target EPS,DELTA",
    "optimize --K 5 --non-private --epsilon 1": "--non-private and --epsilon … give one of them",
    "optimize --K 5 --classes 3 --non-private": "--target EPS,DELTA … private voters",
    "optimize --K 5 --classes 1": "--classes … 1 … at least 2",
    # priors
    "optimize --K 5 --prior uniforn": "prior … 'uniforn' … uniform:LOW,HIGH … for example",
    "optimize --K 5 --prior uniform:1,0.5": "low must be at most high = 0.5 … 1.0",
    "optimize --K 5 --prior point:0.5": "p must be different from 0.5",
    "optimize --K 5 --prior uniform:0.2,1 --objective surrogate": "symmetric about 1/2 … 'uniform:0.2,1'",
    # files of votes
    f"release nosuch.csv {RELEASE}": "'nosuch.csv' … No such file … check its name",
    f"release a_folder {RELEASE}": "votes … a folder with .parquet files … 'a_folder'",
    f"release votes.txt {RELEASE}": "ends in .csv … 'votes.txt'",
    f"release votes.xlsx {RELEASE}": "'votes.xlsx' … pandas.read_excel('votes.xlsx').to_csv('votes.csv', index=False)",
    f"release renamed.npy {RELEASE}": "'renamed.npy' … numpy.save",
    f"release empty.csv {RELEASE}": "'empty.csv' … at least one line",
    f"release pandas.csv {RELEASE}": "line 1, field 1: the vote is missing",
    f"release comment.csv {RELEASE}": "line 2 has 5 fields, the lines before it 1",
    f"release tabs.csv {RELEASE}": "line 1, field 1 … is no number",
    f"release spaces.csv {RELEASE}": "line 1, field 1 … is no number",
    f"release ragged.csv {RELEASE}": "line 5 has 3 fields … 5",
    f"release hole.csv {RELEASE}": "line 2, field 2 … the vote is missing … leave other queries out",
    f"release utf16.csv {RELEASE}": "line 1 … save it as UTF-8",
    f"release latin.csv {RELEASE} --classes für,gegen": "line 1 … save it as UTF-8",
    f"release words.csv {RELEASE}": "line 1, field 1 … 'yes' is no number … --classes A,B",
    f"release words.csv {RELEASE} --classes Yes,No": "line 1, field 1 … 'yes' … 'Yes', 'No'",
    f"release words.csv {RELEASE} --classes yes": "--classes … 'yes' … like no,yes",
    f"release votes.csv {RELEASE} --classes 3": "--classes … '3' … table.json is for 2 classes",
    f"release signs.csv {RELEASE}": "line 1, field 3: '-1' is none of the classes '0', '1' … --classes=A,B",
    f"release from_one.csv {RELEASE}": "line 1, field 1: '2' is none of the classes '0', '1' … --classes=A,B",
    f"release shares.csv {RELEASE}": "line 1, field 1: '0.9' is none of … a probability is no vote",
    f"release transposed.csv {RELEASE}": "K = 5 voters … 4 columns … turn the votes round",
    f"release one_query.npy {RELEASE}": "'one_query.npy' … (5,) … reshape a single row",
    f"release digits.npy {RELEASE}": "votes must be 0 or 1 … '1' from voter 0 … --classes=A,B",
    f"release gaps.npy {RELEASE}": "nan from voter 0 … it is missing … leave the query out",
    f"release votes.csv votes.npy {RELEASE}": "Unexpected argument 'votes.npy'",
    # tables
    "release votes.csv --ledger ledger.sqlite --output out.csv": "--table … required",
    "release votes.csv --table none.json --ledger ledger.sqlite --output out.csv": "'none.json' … check its name",
    "release table.json --table votes.csv --ledger ledger.sqlite --output out.csv": "'votes.csv' … no table … wrote",
    "release votes.csv --table seven.json --ledger ledger.sqlite --output out.csv": "K = 7 voters … 5 columns",
    "release votes.csv --table cut.json --ledger ledger.sqlite --output out.csv": "'cut.json' … no table … wrote",
    "release votes.csv --table edited.json --ledger ledger.sqlite --output out.csv": "changed … optimize again",
    "release votes.csv --table foreign.json --ledger ledger.sqlite --output out.csv": "format … optimize or plan",
    "verify nosuch.json": "'nosuch.json': No such file or directory",
    "verify votes.csv": "'votes.csv' … one line is one answer",
    "verify --table table.json": "No such option … --table",
    "verify table.json votes.csv": "'votes.csv' … one line is one answer",
    # ledgers
    "release votes.csv --table table.json --output out.csv": "--ledger … required",
    f"{INTO} none.sqlite": "none.sqlite … --create-budget",
    f"{INTO} text.sqlite": "text.sqlite … check the name",
    f"{INTO} foreign.sqlite": "no ledger … --create-budget",
    f"{INTO} a_folder": "it is a folder … --create-budget",
    f"{INTO} other.sqlite": "one kind … another ledger",
    f"{INTO} small.sqlite": "0 still fit … nothing was debited",
    f"{INTO} ledger.sqlite --create-budget 8,1e-2": "it exists already … these very votes … open it as it is",
    f"{INTO} no/l.sqlite --create-budget 8,1e-2": "no/l.sqlite … check its folder",
    f"{INTO} new.sqlite --create-budget 8": "--create-budget … EPS,DELTA, like 2,1e-5",
    "release recover 1 --ledger ledger.sqlite --output out.csv": "the entry … none is … 1",
    "account": "--ledger … --table with --queries and --delta",
    "account --table table.json --queries 20": "--queries and --delta … like --queries",
    "account --table table.json --queries 20 --delta 0": "--delta … in (0, 1) … '0'",
    "account --ledger ledger.sqlite --table table.json": "either --ledger … or --table",
    "account ledger.sqlite --ledger ledger.sqlite": "named twice … 'ledger.sqlite' … once",
    "ledger create new.sqlite": "--budget",
    "ledger create ledger.sqlite --budget 3,1e-3": "it exists already … open it as it is",
    "ledger create :memory: --budget 3,1e-3": "forgets all debits",
    "ledger creat new.sqlite --budget 3,1e-3": "'creat' … did you mean create?",
    # outputs
    "release votes.csv --table table.json --ledger ledger.sqlite": "--output FILE is required … .npy, .csv or .parquet",
    "release votes.csv --table table.json --ledger ledger.sqlite --output taken.csv": "exists already … again costs",
    "release votes.csv --table table.json --ledger ledger.sqlite --output out.txt": ".csv or .parquet … 'out.txt'",
    "optimize --K 5 --output no/t.json": "'no' … does not exist … create it first",
    "optimize --K 5 --output gamma.csv": "--output … 'gamma.csv' … JSON, like table.json",
    "optimize --K 5 --output a_folder": "'a_folder' is a folder … name a file",
    "optimize --K 5 --plot gamma": "--plot … 'gamma' … .png",
    "optimize --K 5 --plot gamma.xyz": "--plot … 'gamma.xyz' … .png",
    # PATE
    "pate votes.npy --delta 1e-5": "--sigma2 (GNMax) … --gamma (LNMax)",
    "pate votes.npy --sigma2 4": "--delta REAL is required",
    "pate votes.npy --delta 1e-5 --sigma2 4 --threshold 3": "options --sigma2, --threshold … --threshold and --sigma1",
    "pate votes.npy --delta 1e-5 --sigma2 4 --queries 100": "--queries … 100 … number of rows, 4",
    "pate votes.npy --delta 1e-5 --sigma2 4 --layout counts": "the sum of row 1 … for labels",
}


@pytest.mark.parametrize("line", SHELL)
def test_a_mistake_at_the_shell_is_one_sentence_and_writes_nothing(
    line: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if "--plot" in line:
        pytest.importorskip("matplotlib")
    sizes = {path: path.stat().st_size for path in folder.iterdir()}
    check_sentence(refused(front.main, shlex.split(line), "", capsys)[:-1], SHELL[line])
    assert {path: path.stat().st_size for path in folder.iterdir()} == sizes


WELL_MEANT = ["header.csv", "semicolons.csv", "blank.csv", "votes.npy", "booleans.npy", "floats.npy", "windows.csv"]
WELL_MEANT += ["spaced.csv", "signs.csv --classes -1,1", "words.csv --classes no,yes", "words.csv --classes 'no, yes'"]
WELL_MEANT += ["from_one.csv --classes 1,2", "digits.npy --classes 0,1", "counts.npy --layout counts", "counts.npy"]


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize("votes", WELL_MEANT)
def test_clear_input_at_the_shell_works(
    votes: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name, *flags = shlex.split(votes)
    options = f"--table table.json --ledger {tmp_path}/l.sqlite --create-budget '8, 1e-2 ' --output {tmp_path}/out.csv"
    assert front.main(["release", name, *flags, *shlex.split(options)]) == 0
    note = "note: line 1 of header.csv names the voters and is no query: 'north', 'south', 'east', 'west', …\n"
    assert capsys.readouterr().err == (note if name == "header.csv" else "")
    lines = [line for line in (folder / name).read_bytes().splitlines() if line]
    expected = len(np.load(folder / name)) if name.endswith(".npy") else len(lines) - (name == "header.csv")
    assert len((tmp_path / "out.csv").read_text().split()) == expected


@pytest.mark.parametrize("module", ["matplotlib", "cvxpy"])
def test_a_missing_extra_says_how_to_install_it(
    module: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == module]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)
    flags, extra = ("--plot gamma.png", "plot") if module == "matplotlib" else ("--solver reference", "reference")
    message = refused(front.main, f"optimize --K 5 {flags}", module, capsys)
    check_sentence(message[:-1], f"pip install 'darrm[{extra}]'")
    assert not (folder / "gamma.png").exists()


def test_training_without_torch_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("darrm.training")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ModuleNotFoundError) as caught:
        import_module("darrm.training").train_teachers  # noqa: B018 (the access is the test)
    assert "pip install 'darrm[ensemble]'" in caught.value.__notes__[0]


@pytest.mark.usefixtures("folder")
def test_a_folder_that_may_not_be_written_to_is_refused_before_the_work(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("os.access", lambda path, _: Path(path) != Path("a_folder"))  # root may write anywhere
    monkeypatch.setattr("darrm.optimize.__main__.optimize_table", lambda *_, **__: pytest.fail("it started"))
    message = refused(front.main, "optimize --K 5 --output a_folder/table.json", "'a_folder/table.json'", capsys)
    check_sentence(message[:-1], "cannot be written to")


@pytest.mark.filterwarnings("default")
@pytest.mark.usefixtures("folder")
def test_a_swapped_pair_is_one_warning_for_all_pairs_that_follow_from_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert front.main(shlex.split("optimize --K 5 --m 2 --epsilon 1e-5 --each-delta 0.1 --quiet")) == 0
    warnings = capsys.readouterr().err
    assert warnings.count("\n") == 1
    check_sentence(warnings[:-1], "epsilon = 0.00001 … delta = 0.1 … swapped?")


class Missing:
    """Compares like pandas' NA: the result is itself, which is neither true nor false."""

    def __eq__(self, other: object) -> Any:
        return self

    def __hash__(self) -> int:
        return 0

    def __bool__(self) -> bool:
        raise TypeError("boolean value of NA is ambiguous")

    def __repr__(self) -> str:
        return "<NA>"


class Frame:
    """Becomes an array of objects, like a DataFrame."""

    def __init__(self, rows: Any) -> None:
        self.values = np.array(rows, dtype=object)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return self.values


class Model:
    def predict(self, x: Any) -> Any:
        return x


# what the cases of a release share; a fixture fills it, because it takes a solve
SETUP = SimpleNamespace(aggregator=None, ledger=None)


@pytest.fixture
def setup(folder: Path, aggregator: Release) -> Iterator[SimpleNamespace]:
    SETUP.aggregator, SETUP.ledger = aggregator, PrivacyLedger.create(":memory:", PrivacyParams(100, "1e-2"))
    SETUP.folder = folder
    yield SETUP
    SETUP.aggregator = SETUP.ledger = None


def release(**changes: Any) -> Any:
    arguments = {"aggregator": SETUP.aggregator, "votes": VOTES, "ledger": SETUP.ledger, **changes}
    return release_debited(arguments.pop("aggregator"), arguments.pop("votes"), **arguments)


def load_training(name: str) -> Any:
    pytest.importorskip("torch")
    return getattr(import_module("darrm.training"), name)


def train(**changes: Any) -> Any:
    partition, recipe = load_training("Partition").random(6, 2, seed=0), load_training("PlainSGD")(0.1, 1, 2)
    arguments = {"x": np.zeros((6, 2)), "y": np.array([0, 1] * 3), "partition": partition, "recipe": recipe}
    return load_training("train_teachers")(**(arguments | changes))


Case = tuple[Callable[[], Any], str]
PYTHON: dict[str, Case] = {
    # pairs
    "delta -1e-5": (lambda: PrivacyParams(0.1, -1e-5), "delta must be in [0, 1) … -1e-05"),
    "delta of 5%": (lambda: PrivacyParams(0.1, "5%"), "delta … '5%' … like 0.1 or 1e-5"),
    "epsilon -1": (lambda: PrivacyParams(-1), "epsilon must be a finite number of at least 0 … -1"),
    "epsilon inf": (lambda: PrivacyParams(float("inf"), 1e-5), "epsilon … inf … finite"),
    "epsilon 0,1": (lambda: PrivacyParams("0,1"), "epsilon … '0,1' … with a point"),
    "a tuple for epsilon": (lambda: PrivacyParams((0.1, 1e-5)), "epsilon … (0.1, 1e-05) … takes two"),
    "a pair for epsilon": (lambda: PrivacyParams(EACH), "epsilon … PrivacyParams … give one number"),
    "an array for epsilon": (lambda: PrivacyParams(np.array([0.1])), "epsilon … array([0.1]) … give one number"),
    # voters
    "K of 0": (lambda: Voters(0, EACH), "K must be an integer of at least 1 … got 0"),
    "K of 11.0": (lambda: Voters(11.0, EACH), "K … 11.0 … an integer … number of voters"),
    "too large a K": (lambda: Voters(10**9, EACH), "K must be an integer of at most 1000000"),
    "K as text": (lambda: Voters("11", EACH), "K … '11' … an integer"),
    "K swapped with each": (lambda: Voters(EACH, 11), "K … PrivacyParams … say Voters(K, each)"),
    "a list of voters": (lambda: Voters([1, 2, 3], EACH), "K … [1, 2, 3] … number of voters"),
    "each as a float": (lambda: Voters(11, 0.1), "each … got 0.1 … say (0.1, 1e-5)"),
    "each of three numbers": (lambda: Voters(11, (0.1, 0, 1)), "each … (0.1, 0, 1) … say (0.1, 1e-5)"),
    "each of inf as text": (lambda: Voters(11, "inf"), "each … 'inf' … Voters.non_private(11)"),
    "each left out": (lambda: Voters(200), "each … (epsilon, delta) … Voters.non_private(200)"),
    "overlap as a share": (lambda: Voters(11, EACH, 0.5), "overlap … 0.5 … an integer … how many voters"),
    "models as text": (lambda: Voters(11, EACH, models="yes"), "models … 'yes' … True or False"),
    # problems and workloads
    "m as text": (lambda: Problem.from_allowance(PRIVATE, "two"), "m must be a finite number … 'two'"),
    "m of a list": (lambda: Problem.from_allowance(PRIVATE, [1, 3]), "m must … [1, 3] … give one number"),
    "m of non-private voters": (lambda: Problem.from_allowance(TEACHERS, 2), "no allowance m … state the target"),
    "K for voters": (lambda: Problem.from_allowance(5, 2), "voters … got 5 … say Voters(K, each)"),
    "a float for the target": (lambda: Problem(PRIVATE, 0.4), "target … 0.4 … say (0.1, 1e-5)"),
    "target and voters swapped": (lambda: Problem(EACH, PRIVATE), "voters … say Voters(K, each)"),
    "a target without delta": (lambda: Problem(PRIVATE, (0.4, 0)), "target.delta … at least each.delta = 1e-05 … 0.0"),
    "a target too large": (lambda: Problem(PRIVATE, PrivacyParams(10, "1e-4")), "m must be in … m = target"),
    "no target at all": (lambda: Problem(TEACHERS, PrivacyParams("inf")), "epsilon … inf … finite"),
    "total and queries swapped": (lambda: Workload(PRIVATE, EACH, 100), "total … 100 … say (0.1, 1e-5)"),
    "words for the total": (lambda: Workload(PRIVATE, 100, "2, 1e-5"), "total … '2, 1e-5' … say (0.1, 1e-5)"),
    "K for a workload's voters": (lambda: Workload(11, 3, EACH), "voters must be … got 11 … say Voters"),
    "too many queries": (lambda: Workload(PRIVATE, 10**20, EACH), "queries must be an integer of at most"),
    "queries of 1e3": (lambda: Workload(PRIVATE, 1e3, EACH), "queries … 1000.0 … an integer"),
    "votes for queries": (lambda: Workload(PRIVATE, VOTES, EACH), "queries … how many votes"),
    "names for classes": (lambda: Workload(PRIVATE, 9, EACH, ("a", "b")), "classes … ('a', 'b') … how many"),
    # optimize, plan
    "voters to optimize": (lambda: optimize_table(PRIVATE), "problem … Voters(K=5 … Problem(voters, target)"),
    "a prior's class": (lambda: optimize_table(PROBLEM, prior=priors.Dirichlet), "prior … Dirichlet … say Dirichlet()"),
    "a number for a prior": (lambda: plan(Workload(TEACHERS, 3, EACH), prior=0.8), "prior … 0.8 … say Dirichlet()"),
    "an unknown prior": (lambda: priors.parse("beta:2,3"), "prior … 'beta:2,3' … uniform:LOW,HIGH"),
    "a prior to parse": (lambda: priors.parse(priors.Point(0.8)), "text … Point(p=0.8) … needs no parsing"),
    "a prior in per cent": (lambda: priors.Point(80), "p must be in [0, 1] … 80"),
    "a prior of text": (lambda: priors.Independent("0.5", 1), "low … '0.5' … in [0, 1]"),
    "a name for gamma": (lambda: HALF.expected_error("commom"), "prior must be … 'commom'"),
    "a seed to estimate": (lambda: HALF.estimate_error(priors.Dirichlet(), rng=0), "rng must be a generator … got 0"),
    "a seed to optimize": (lambda: optimize_table(PROBLEM, rng=0), "rng must be a generator … got 0"),
    "an unknown shape": (lambda: optimize_table(PROBLEM, shape="monoton"), "shape … 'monoton' … free, monotone"),
    "a dictionary of options": (lambda: optimize_table(PROBLEM, options={"gap": 1}), "options … say SolveOptions"),
    "a time limit as text": (lambda: SolveOptions(time_limit="10"), "time_limit … '10' … a number of at least 0"),
    "a problem to plan": (lambda: plan(PROBLEM), "workload … Workload(voters, queries, total)"),
    # gamma and tables
    "a list for gamma": (lambda: certify(PROBLEM, [0.5, 0.6, 1]), "gamma … [0.5, 0.6, 1] … say NoiseFunction"),
    "a workload to certify": (lambda: certify(Workload(PRIVATE, 2, EACH), HALF), "problem must be a Problem"),
    "a type for gamma": (lambda: certify(PROBLEM, float), "gamma must be a NoiseFunction"),
    "all of gamma": (lambda: NoiseFunction(5, np.ones(6)), "half … (3,) … got (6,) … from_full"),
    "gamma above 1": (lambda: NoiseFunction(5, [0.5, 1.2, 1]), "γ(4) … 1.2 … in [0, 1]"),
    "gamma as text": (lambda: NoiseFunction.from_full("abc"), "full … 'abc' … K + 1 numbers"),
    "gamma of other voters": (lambda: certify(PROBLEM, NoiseFunction(7, np.ones(4))), "gamma.K … K = 5 … got 7"),
    "a file for a problem": (lambda: load_table("t.json"), "problem … 't.json' … Table.load"),
    "a table that is not stored": (lambda: load_table(EVEN), "no stored table for K = 12 … near are … optimize_table"),
    "a table for a path": (lambda: Table.load(PROBLEM), "path … Problem … the name of a file"),
    "votes for a table": (lambda: Table.load(SETUP.folder / "votes.csv"), "votes.csv … no table … wrote"),
    "a ledger for a release": (lambda: load_release(SETUP.folder / "ledger.sqlite"), "ledger.sqlite … no table"),
    "a folder for a table": (lambda: Table.load(SETUP.folder), "is a folder … name a file"),
    "gamma for a table": (lambda: Release(NoiseFunction(5, np.ones(3))), "table … NoiseFunction … certify("),
    "a path for a table": (lambda: Release("table.json"), "table … 'table.json' … Table.load"),
    # votes
    "one query": (lambda: Votes.from_labels(LABELS[0]), "votes … got (5,) … reshape one query to (1, 5)"),
    "labels of -1 and 1": (lambda: Votes.from_labels(2 * LABELS - 1), "0 or 1 … -1 from voter 2 to query 0 … classes="),
    "labels from 1 on": (lambda: Votes.from_labels(LABELS + 1, 2), "0 or 1 … got 2 from voter 0 … classes="),
    "labels as words": (lambda: Votes.from_labels(WORDS), "0 or 1 … 'yes' … name the classes"),
    "labels as digits": (lambda: Votes.from_labels(LABELS.astype(str)), "0 or 1 … '1' … name the classes"),
    "words with other capitals": (lambda: Votes.from_labels(WORDS, ("No", "Yes")), "'No' or 'Yes' … 'yes'"),
    "probabilities": (lambda: Votes.from_labels(LABELS * 0.9), "0 or 1 … 0.9 … compare it with 0.5"),
    "a vote of None": (lambda: Votes.from_labels([[1, None, 0]]), "None from voter 1 … missing … leave the query out"),
    "a vote of nan": (lambda: Votes.from_labels([[1, np.nan, 0]]), "nan from voter 1 … leave the query out"),
    "a frame with NA": (lambda: Votes.from_labels(Frame([[1, Missing(), 0]])), "<NA> from voter 1 … missing"),
    "words with nan": (
        lambda: Votes.from_labels(Frame([["yes", np.nan]]), ("no", "yes")),
        "nan from voter 1 … missing",
    ),
    "a frame with names": (lambda: Votes.from_labels(Frame([["Ann", 1, 0], ["Bob", 0, 1]])), "'Ann' from voter 0"),
    "ragged labels": (lambda: Votes.from_labels([[1, 0], [1]]), "rows of different lengths … rectangular"),
    "no labels": (lambda: Votes.from_labels([]), "of shape (queries, voters) … got (0,)"),
    "a file for labels": (lambda: Votes.from_labels("votes.csv"), "votes … got str … Votes.read"),
    "votes for labels": (lambda: Votes.from_labels(VOTES), "votes … got Votes … (queries, voters)"),
    "teachers for votes": (lambda: Votes.from_labels([Model()] * 5), "models … model.predict(x) … column_stack"),
    "counts for labels": (lambda: Votes.from_labels([[240, 10]]), "0 or 1 … 240 … Votes.from_counts"),
    "one class": (lambda: Votes.from_labels(LABELS, 1), "classes … got 1 … at least 2"),
    "one word for classes": (lambda: Votes.from_labels(WORDS, "yes"), "classes … 'yes' … at least two"),
    "a set of classes": (lambda: Votes.from_labels(WORDS, {"no", "yes"}), "classes … in order … write a tuple"),
    "the same class twice": (lambda: Votes.from_labels(WORDS, ("no", "no")), "classes … different labels"),
    "labels for counts": (lambda: Votes.from_counts(LABELS), "the sum of row 1 … K = 3 … Votes.from_labels"),
    "names for voters": (lambda: Votes.from_counts([[3, 2]], ("a", "b")), "voters … ('a', 'b') … classes="),
    "shares for counts": (lambda: Votes.from_counts([[0.6, 0.4]]), "vote counts … 0.6 … whole numbers"),
    "counts as text": (lambda: Votes.from_counts([["3", "2"]]), "vote counts … whole numbers … <U1"),
    "an array for a path": (lambda: Votes.read(LABELS), "path … ndarray … the name of a file"),
    "an open file for a path": (lambda: Votes.read(sys.stdin), "path … the name of a file"),
    "the wrong K": (lambda: Votes.read("votes.csv", voters=7), "K = 7 … 5 columns … --missing coin … the 5 voters"),
    "a misspelled format": (lambda: Votes.read("votes.csv", layout="label"), "'label' … auto, counts, labels"),
    # release
    "transposed votes": (lambda: SETUP.aggregator.release(LABELS.T), "K = 5 voters … 4 columns … votes.T"),
    "votes of other voters": (lambda: SETUP.aggregator.release(LABELS[:, :3]), "K = 5 voters … 3 columns"),
    "more classes": (lambda: SETUP.aggregator.release(Votes.from_labels(LABELS, 3)), "two classes … 3 classes … GNMax"),
    "a seed": (lambda: SETUP.aggregator.release(LABELS, rng=0), "rng … got 0 … np.random.default_rng(seed)"),
    "a seed for GNMax": (lambda: GNMax(4.0).release(VOTES, rng=0), "rng must be a generator … got 0"),
    "an array for GNMax": (lambda: GNMax(4.0).release(LABELS), "votes … got ndarray … Votes.from_labels"),
    "no ledger": (lambda: release(ledger=None), "ledger … got None … PrivacyLedger.create"),
    "a path for a ledger": (lambda: release(ledger="l.sqlite"), "ledger … 'l.sqlite' … PrivacyLedger(path)"),
    "a table for an aggregator": (lambda: release(aggregator=SETUP.aggregator.table), "Table … Release(table)"),
    "an aggregator's class": (lambda: release(aggregator=Release), "aggregator … Release(table)"),
    "votes for an aggregator": (lambda: release(aggregator=VOTES), "got Votes … first, then the votes"),
    "labels onto an old file": (lambda: release(output="taken.csv"), "taken.csv … exists already … another file"),
    "labels onto a text file": (lambda: release(output="labels.txt"), "in .npy, .csv or .parquet … labels.txt"),
    "a number for an output": (lambda: release(output=1), "output … int … the name of a file"),
    "a number for a note": (lambda: release(note=1), "note … got 1 … text on one line"),
    # ledgers and accounts
    "a float for a budget": (lambda: PrivacyLedger.create("b.sqlite", 8.0), "budget … 8.0 … say (0.1, 1e-5)"),
    "one number in a budget": (lambda: PrivacyLedger.create("b.sqlite", (8,)), "budget … (8,) … say (0.1, 1e-5)"),
    "no budget": (lambda: PrivacyLedger.create("b.sqlite", PrivacyParams(0)), "budget … 0.0 … admits nothing"),
    "budget before path": (lambda: PrivacyLedger.create(EACH, EACH), "path … PrivacyParams … the name of a file"),
    "an unknown kind": (lambda: PrivacyLedger.create("b", EACH, composition="many"), "composition … 'many' … adaptive"),
    "a ledger that is not there": (lambda: PrivacyLedger("b.sqlite"), "no such file … PrivacyLedger.create"),
    "a table for a ledger": (lambda: PrivacyLedger("table.json"), "no ledger at all … check the name"),
    "a pair for a cost": (lambda: SETUP.ledger.debit(EACH), "cost … PrivacyParams … .privacy_cost(queries)"),
    "an aggregator for a cost": (lambda: SETUP.ledger.queries_that_fit(SETUP.aggregator), "cost … Release"),
    "more than the budget": (
        lambda: SETUP.ledger.debit(LARGE),
        "not admit 2 queries of mine … 1 still fits … nothing was",
    ),
    "queries as text": (lambda: SETUP.aggregator.privacy_cost("2"), "count … '2' … an integer"),
    "a float for a guarantee": (lambda: PrivacyCost("mine", 0.1), "guarantee … 0.1 … say (0.1, 1e-5)"),
    "a charge without a cost": (lambda: PrivacyCost("mine"), "at least one of guarantee, renyi and profile"),
    "a ledger for voters": (lambda: PrivacyAccountant(SETUP.ledger), "voters … costs="),
    "one cost for many": (lambda: PrivacyAccountant(costs=SETUP.aggregator.privacy_cost()), "costs … costs=["),
    "a float to compose": (lambda: compose_simple(0.1, 10), "params … 0.1 … say (0.1, 1e-5)"),
    "k and pair swapped": (lambda: compose_optimal(10, EACH, 1e-5), "params … 10 … a pair"),
    # PATE
    "no-noise": (lambda: GNMax(0), "sigma … got 0 … positive"),
    "noise as text": (lambda: LNMax("0.1"), "gamma … '0.1' … positive finite number"),
    "noise by another name": (lambda: GNMax(4, "gaussian"), "noise … 'gaussian' … continuous, discrete"),
    "too high a threshold": (lambda: ConfidentGNMax(300, 1, 4).release(VOTES), "threshold … 300 … number of voters, 5"),
    "an array to analyze": (lambda: analyze(LABELS, GNMax(4), delta=1e-5), "votes … ndarray … Votes.from_labels"),
    "DaRRM to analyze": (
        lambda: analyze(VOTES, SETUP.aggregator, 1e-5),
        "a GNMax, an LNMax … do not depend on the votes",
    ),
    "a delta of 0": (lambda: analyze(VOTES, GNMax(4), delta=0), "delta … in (0, 1) … got 0"),
    "votes to sanitize": (lambda: sanitize(VOTES, None), "analysis … analyze(votes, aggregator"),
    # training and sampling
    "a number for a partition": (lambda: train(partition=3), "partition … got 3 … Partition.random(len(x), K"),
    "a rate for a recipe": (lambda: train(recipe=0.05), "recipe … 0.05 … a PrivateSGD or a PlainSGD"),
    "labels of words to train": (lambda: train(y=np.array(["a", "b"] * 3)), "y … classes 0, 1 … dtype <U1"),
    "too few labels": (lambda: train(y=np.zeros(5, dtype=int)), "y … 5 classes … each of 6 records"),
    "no noise to account for": (lambda: load_training("compute_privacy")(0.05, 1e-5), "recipe … 0.05 … a PrivateSGD"),
    "a float to calibrate": (
        lambda: load_training("calibrate_sampling")(0.1, noise=9.0, epochs=5),
        "target … say (0.1, 1e-5)",
    ),
    "a float for Laplace": (lambda: Laplace(0.5), "privacy … 0.5 … say (0.1, 1e-5)"),
    "three numbers for Gaussian": (lambda: Gaussian((0.5, 1e-5, 1)), "target … (0.5, 1e-05, 1) … say (0.1, 1e-5)"),
    "a function for a sampler": (
        lambda: sample_then_respond(LABELS[0], Laplace(EACH_PURE), np.mean, gamma=0.05),
        "sampler … SensitivitySampler(function, sampler, norm)",
    ),
    "the mechanism before the data": (
        lambda: sample_then_respond(Laplace(EACH_PURE), LABELS[0], np.mean, gamma=0.05),
        "mechanism … got ndarray … the data come first",
    ),
    "data for a sampler": (lambda: SensitivitySampler(np.mean, LABELS, "l1"), "sampler must be callable … ndarray of"),
    "a gamma in per cent": (lambda: sample_size(gamma=5, m=100), "gamma … in (0, 1) … got 5"),
    "too many kinds of voters": (
        lambda: optimize_table(Problem(Voters.of([PrivacyParams(f"0.{n}") for n in range(10, 30)]), EACH, 5)),
        "multisets of private voters … at most … take fewer",
    ),
}


@pytest.mark.parametrize("name", PYTHON)
@pytest.mark.usefixtures("setup")
def test_a_mistake_in_python_is_one_sentence_and_costs_nothing(name: str, folder: Path) -> None:
    call, parts = PYTHON[name]
    paths = sorted(folder.iterdir())
    with pytest.raises((ValueError, DarrmError)) as caught:
        call()
    check_sentence(str(caught.value), parts)
    assert SETUP.ledger.entries() == ()
    assert sorted(folder.iterdir()) == paths


def ones(labels: Any, classes: Any = None) -> list[int]:
    return Votes.from_labels(labels, classes).ones.tolist()


CLEAR: dict[str, Case] = {
    "numpy's scalars": (lambda: PrivacyParams(np.float32(0.1), np.float64(1e-5)), "epsilon=0.1, delta=0.00001"),
    "fractions and decimals": (lambda: PrivacyParams(Fraction(1, 10), Decimal("1e-5")), "epsilon=0.1, delta=0.00001"),
    "text with spaces": (lambda: PrivacyParams(" 0.1", "1e-5 "), "epsilon=0.1, delta=0.00001"),
    "a pair for each": (lambda: Voters(11, ("0.1", 1e-5)).each, "epsilon=0.1, delta=0.00001"),
    "a pair for the target": (lambda: Problem(PRIVATE, ("0.4", "1e-4")).m, "2.0"),
    "a list for the total": (lambda: Workload(PRIVATE, 100, [2, 1e-5]).total, "epsilon=2, delta=0.00001"),
    "a pair for a budget": (lambda: PrivacyLedger.create(":memory:", (8, "1e-5")).budget, "epsilon=8, delta=0.00001"),
    "a pair for a guarantee": (lambda: PrivacyCost("mine", (0.1, 0)).guarantee, "epsilon=0.1"),
    "a pair to compose": (lambda: compose_simple((0.1, 1e-5), 3), "epsilon=0.3, delta=0.00003"),
    "a pair for Laplace": (lambda: Laplace((0.5, 0)).privacy, "epsilon=0.5, delta=0"),
    "a prior by name": (lambda: optimize_table(PROBLEM, prior="uniform").optimality, "Independent(low=0.0"),
    "a prior by name for gamma": (lambda: HALF.expected_error("common") == HALF.expected_error("dirichlet"), "True"),
    "a prior by name to plan": (lambda: plan(Workload(TEACHERS, 3, (2, 1e-5)), prior="dirichlet").prior, "Dirichlet("),
    "numpy's K": (lambda: Voters(np.int64(11), EACH, np.int8(1)), "K=11 … overlap=1"),
    "m of a fraction": (lambda: Problem.from_allowance(PRIVATE, "5/2").m, "2.5"),
    "an even K": (lambda: Problem.from_allowance(Voters(4, EACH), 2).voters.first_majority, "3"),
    "lists of labels": (lambda: Votes.from_labels(LABELS.tolist()), "4 queries to 5 voters"),
    "Booleans": (lambda: ones(LABELS == 1), "[3, 1, 5, 2]"),
    "floats": (lambda: ones(LABELS.astype(float)), "[3, 1, 5, 2]"),
    "whole counts as floats": (lambda: Votes.from_counts([[3.0, 2.0]]), "1 queries to 5 voters"),
    "a frame": (lambda: ones(Frame(LABELS)), "[3, 1, 5, 2]"),
    "a frame of words": (lambda: ones(Frame(WORDS), ["no", "yes"]), "[3, 1, 5, 2]"),
    "named signs": (lambda: ones(2 * LABELS - 1, (-1, 1)), "[3, 1, 5, 2]"),
    "an array of classes": (lambda: Votes.from_labels(LABELS, np.unique(LABELS)), "classes 0, 1"),
    "a path as text": (lambda: Votes.read("votes.csv", voters=5), "4 queries to 5 voters"),
    "a class of two words": (lambda: Votes.read("one_voter.csv", classes=("no", "no no")), "2 queries to 1 v"),
    "a list to release": (lambda: len(SETUP.aggregator.release(LABELS.tolist())), "4"),
    "a frame to release": (lambda: len(release(votes=Frame(LABELS))), "4"),
    "a generator to try": (lambda: len(SETUP.aggregator.release(LABELS, rng=np.random.default_rng(0))), "4"),
}


@pytest.mark.parametrize("name", CLEAR)
@pytest.mark.usefixtures("setup")
def test_clear_input_in_python_works(name: str) -> None:
    call, parts = CLEAR[name]
    text = repr(call())
    assert [part for part in parts.split(" … ") if part not in text] == []


def test_a_data_frame_is_read_like_the_class_frame() -> None:
    pandas = pytest.importorskip("pandas")
    assert Votes.from_labels(pandas.DataFrame(LABELS)).ones.tolist() == [3, 1, 5, 2]
    missing = pandas.DataFrame([[1, None, 0]])
    for frame in (missing, missing.astype("Int64"), missing.astype("Int64").astype(object)):
        with pytest.raises(ValueError, match="from voter 1 to query 0: it is missing"):
            Votes.from_labels(frame)


def test_a_misspelled_name_lets_python_guess() -> None:
    with pytest.raises(AttributeError) as caught:
        _ = darrm.optimise_gamma
    assert caught.value.name == "optimise_gamma"
    assert "optimize_table" in dir(caught.value.obj)  # the interpreter suggests names from here


def test_a_second_release_is_paid_for_again_and_needs_another_file(setup: SimpleNamespace, tmp_path: Path) -> None:
    release(output=tmp_path / "labels.csv")
    with pytest.raises(ValueError, match="exists already"):
        release(output=tmp_path / "labels.csv")
    release(output=tmp_path / "more.csv")
    assert [entry.count for entry in setup.ledger.entries()] == [4, 4]
