"""Fuzz command lines, tables, vote files, npy headers and ledgers, and, if installed, Parquet files and checkpoints.

Sizes are small or beyond every limit, because valid large sizes (thousands of voters) take long.
"""

import io
import json
import os
import shutil
import sqlite3
import warnings
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from random import Random
from typing import Any

import click
import numpy as np

import darrm.__main__ as front
from darrm import NoiseFunction, PrivacyLedger, PrivacyParams, Problem, Voters, Votes, certify
from darrm.aggregator import load_release
from darrm.errors import DarrmError
from darrm.noisy_max.noisy_maximum import NoisyMaximum
from darrm.optimize.plurality import optimize_plurality
from darrm.pate import GNMax
from darrm.table.release import Release
from darrm.votes import vote_batches
from darrm.votes.parquet_file import infer_schema
from darrm.votes.vote_arrays import VoteFormat
from tests.fuzz.harness import Case, Target

DIGITS = "9" * 5000
INTEGERS = ["", DIGITS, *"1 2 3 5 9 0 -1 2.5 1e3 1_0 ٣ nan 1000000001 2147483648 99999999999999999999".split()]  # noqa: SIM905
REALS = ["", DIGITS, f"1/{DIGITS}", "1e999999999", "0.000029E999700001", "1e-999999999", "1e308", "1e300", "1e-300"]
REALS += "0.1 0.5 1 2 40 1e-5 1e-2 0 -1 inf -inf nan 1e-320 1/3 ten 1_0.5".split()  # noqa: SIM905
FILES = "table.json plurality.json release.json votes.npy votes.csv counts.npy ledger.sqlite scores.npy none.json"
FILES += " votes.parquet pipe folder /dev/zero /dev/null"
WORDS = [*FILES.split(), "\udc80", "\x00", "x" * 5000, "uniform:1e999999999,1"]
WORDS += "no,yes a,a 2000000000 common uniform:0.6,1 two-sided:0.7,1 point:nan -- - out.json".split()  # noqa: SIM905
OUTPUTS = ("out.json", "out.npy", "out.csv", "out.parquet", "folder", "none/out.json")
COMMANDS = {
    "optimize": "--K 3 --m 2",
    "plan": "--K 3 --non-private --overlap 1 --queries 1 --total 1,1e-5",
    "release": "votes.npy --table table.json --ledger out.sqlite --create-budget 8,1e-2 --output out.npy",
    "account": "--table table.json --queries 2 --delta 1e-2",
    "pate": "counts.npy --threshold 20 --sigma1 9 --sigma2 4 --delta 1e-5 --layout counts --no-table-2",
}
PLURALITY = "--K 3 --non-private --overlap 1 --target 0.5,1e-5 --classes 3"
JSON_VALUES: tuple[Callable[[Random], Any], ...] = (
    lambda rng: rng.choice([None, True, {}, [], "", "x", "\ud800", -1, 0, 1, 2.5, 1e308, -0.0, 10**400, {"a": [{}]}]),
    lambda rng: rng.choice([*INTEGERS, *REALS]),
    lambda rng: [rng.random() for _ in range(rng.randrange(5))],
)
HEADERS = ("(((((", "-" * 5000 + "1", "{{}:1}", "{'descr': '<i8'}", "{}", "None", "[1]", "'" * 7, "\x00", "1" * 5000)
DESCRIPTIONS = ("<i8", "|b1", "|V1", "<U1", "<U9", "|O", "<f8", ">f2", "<c16", "<M8[s]", "<U999999999", "|i1", "x", "")
SHAPES = ("(4, 3)", "(True, 11)", "(3,)", "()", "(0, 3)", "(-1, 3)", "(4, 3, 1)", f"({10**23}, 3)", "(2**62, 4)",
          "(4294967296, 4294967296)", "4", "(1.5, 2)", "('a', 2)", f"({'9' * 5000}, 1)")  # fmt: skip


CLASSES: tuple[Any, ...] = (2, 3, ("no", "yes"), ("0", "1"), "open")
TORCH = find_spec("torch") is not None
SERVE = find_spec("starlette") is not None and find_spec("uvicorn") is not None
PYARROW = find_spec("pyarrow") is not None


def prepare(folder: Path) -> None:
    """Write the files that the cases mutate, and import the commands."""
    rng = np.random.default_rng(0)
    table = certify(Problem.from_allowance(Voters(3, PrivacyParams("0.2", "1e-5")), "1.5"), NoiseFunction(3, [0.5, 1]))
    table.save(folder / "table.json")
    voters = Voters(4, PrivacyParams("inf"), overlap=1)
    optimize_plurality(Problem(voters, PrivacyParams("0.5", "1e-5"), 3)).save(folder / "plurality.json")
    NoisyMaximum(GNMax(40.0), voters, 3).save(folder / "release.json")
    labels = rng.integers(0, 2, (4, 3))
    np.save(folder / "votes.npy", labels)
    np.savetxt(folder / "votes.csv", labels, fmt="%d", delimiter=",")
    np.save(folder / "counts.npy", rng.multinomial(32, [0.5, 0.3, 0.2], 6))
    np.save(folder / "scores.npy", rng.dirichlet([1, 1, 1], 6))
    PrivacyLedger.create(folder / "ledger.sqlite", PrivacyParams(2, "1e-3")).debit(Release(table).privacy_cost(4))
    if PYARROW:
        _write_parquet(folder, labels)
    if TORCH:
        _make_teachers().save(folder / "teachers.safetensors")
    (folder / "folder").mkdir()
    os.mkfifo(folder / "pipe")
    for command in COMMANDS:
        import_module(f"darrm.{command}.__main__")


def make_command_line(commands: tuple[str, ...], rng: Random) -> tuple[str, Case]:
    """Make a command with known flags and with valid or invalid values."""
    command = rng.choice(commands)
    words = (PLURALITY if command == "optimize" and rng.random() < 0.5 else COMMANDS[command]).split()
    params = _list_parameters(getattr(import_module(f"darrm.{command}.__main__"), command))
    params = [param for param in params if param.name not in {"help", "cluster"}]  # --cluster waits for a network
    for _ in range(rng.randrange(1, 4)):
        param = rng.choice(params)
        flag = rng.choice(param.opts) if isinstance(param, click.Option) else None
        takes_value, value = not getattr(param, "is_flag", False), _draw_value(param, rng)
        if flag in words and takes_value:
            words[words.index(flag) + 1 : words.index(flag) + 2] = [value]
        else:
            words += ([flag] if flag else []) + ([value] if takes_value else [])
    if rng.random() < 0.2:
        words[rng.randrange(len(words))] = rng.choice([*WORDS, *REALS])
    if rng.random() < 0.1:
        del words[rng.randrange(len(words))]
    return f"{command} {words}", lambda: _call([command, *words])


def make_table(rng: Random) -> tuple[str, Case]:
    """Make a file of a table or release with some values or bytes replaced."""
    text = Path(rng.choice(["table.json", "plurality.json", "release.json"])).read_text(encoding="utf-8")
    if rng.random() < 0.5:
        data = json.loads(text)
        for _ in range(rng.randrange(1, 3)):
            _replace_somewhere(data, rng)
        raw = json.dumps(data, allow_nan=True).encode()
    else:
        raw = _mutate(text.encode(), rng)
    return f"{raw[:2000]!r}", lambda: _load("out.json", raw, load_release)


def make_vote_file(rng: Random) -> tuple[str, Case]:
    name = rng.choice(["votes.npy", "votes.csv", "counts.npy"])
    return _read_votes(rng, Path(name).suffix, _mutate(Path(name).read_bytes(), rng))


def make_npy_header(rng: Random) -> tuple[str, Case]:
    """Make an .npy file whose header contradicts its data."""
    header = rng.choice(HEADERS)
    if rng.random() < 0.8:
        order = rng.choice(["True", "False", "2", "None"])
        header = f"{{'descr': {rng.choice(DESCRIPTIONS)!r}, 'fortran_order': {order}, 'shape': {rng.choice(SHAPES)}, }}"
    if rng.random() < 0.2:
        header = _mutate(header.encode("latin1"), rng).decode("latin1")
    version = rng.choice([(1, 0), (1, 0), (2, 0), (3, 0), (9, 9)])
    text = header.encode("latin1") + b"\n"
    length = len(text) if rng.random() < 0.9 else rng.randrange(2**16)
    size = length.to_bytes(2 if version == (1, 0) else 4, "little")
    raw = b"\x93NUMPY" + bytes(version) + size + text + rng.randbytes(rng.choice([0, 7, 96, 96, 12]))
    return _read_votes(rng, ".npy", raw)


def make_parquet_file(rng: Random) -> tuple[str, Case]:
    """Make a Parquet file with some bytes replaced, in half of the cases in its footer."""
    raw = Path(rng.choice(["votes.parquet", "words.parquet"])).read_bytes()
    footer = len(raw) - 8 - int.from_bytes(raw[-8:-4], "little") if rng.random() < 0.5 else 0
    raw = raw[:footer] + _mutate(raw[footer:], rng)
    voters, classes = rng.choice([2, 3, 4]), CLASSES[rng.randrange(len(CLASSES))]
    keep, kind = rng.choice([(), ("key",)]), rng.choice(["auto", "labels", "counts"])

    def read(path: Path) -> object:
        schema = infer_schema(path, VoteFormat(voters, classes, kind), keep=keep)
        return sum(votes.queries for votes, _ in vote_batches(path, schema))

    description = f"{raw[:200]!r} … {raw[-200:]!r} voters={voters} classes={classes} keep={keep} layout={kind}"
    return description, lambda: _load("out.parquet", raw, read)


def make_ledger(rng: Random) -> tuple[str, Case]:

    def read() -> object:
        opened = PrivacyLedger("out.sqlite")
        return opened.budget, opened.entries()

    shutil.copy("ledger.sqlite", "out.sqlite")
    if rng.random() < 0.5:
        Path("out.sqlite").write_bytes(_mutate(Path("ledger.sqlite").read_bytes(), rng))
        return "bytes", lambda: _check_refusal(read)
    with sqlite3.connect("out.sqlite") as store:
        tables = [name for (name,) in store.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        name = rng.choice(tables)
        column = rng.choice([row[1] for row in store.execute(f"PRAGMA table_info({name})")])
        value = rng.choice([None, -1, 2**62, 1.5, b"x", *REALS, *INTEGERS])
        try:
            store.execute(f"UPDATE {name} SET {column} = ?", (value,))  # noqa: S608 (names from the schema)
        except sqlite3.Error:
            value = "refused by its own checks"
    store.close()
    return f"{name}.{column} = {repr(value)[:200]}", lambda: _check_refusal(read)


def make_checkpoint(rng: Random) -> tuple[str, Case]:
    """Make a checkpoint with some bytes replaced; loading it must fail or return the same teachers."""
    raw = Path("teachers.safetensors").read_bytes()
    header = 8 + int.from_bytes(raw[:8], "little") if rng.random() < 0.5 else len(raw)
    raw = _mutate(raw[:header], rng) + raw[header:]
    return f"{raw[:500]!r} … ({len(raw)} bytes)", lambda: _load("out.safetensors", raw, _check_same_teachers)


def make_server_request(rng: Random) -> tuple[str, Case]:
    from tests.fuzz.server import make_request

    return make_request(rng, JSON_VALUES, _mutate)


TARGETS = (
    Target("command-lines", partial(make_command_line, ("optimize", "release", "release", "account", "pate"))),
    Target("searches", partial(make_command_line, ("plan",)), seconds=60.0),  # a plan tries many tables
    Target("tables", make_table),
    Target("vote-files", make_vote_file),
    Target("npy-headers", make_npy_header),
    Target("ledgers", make_ledger),
    *([Target("parquet-files", make_parquet_file)] if PYARROW else []),
    *([Target("checkpoints", make_checkpoint)] if TORCH else []),
    *([Target("server", make_server_request)] if SERVE else []),
)


def _list_parameters(command: click.Command) -> list[click.Parameter]:
    jobs = command.commands.values() if isinstance(command, click.Group) else ()
    return command.params + [param for job in jobs for param in _list_parameters(job)]


def _draw_value(param: click.Parameter, rng: Random) -> str:
    """Draw a value for an option, mostly of its type."""
    pools = {"INT": INTEGERS, "C": INTEGERS, "REAL": REALS, "SECONDS": REALS, "RELATIVE": REALS}
    if rng.random() < 0.1:
        pool: list[str] = [*WORDS, *REALS, *INTEGERS]
    elif isinstance(param.type, click.Choice):
        pool = list(param.type.choices)
    elif isinstance(param.type, click.Path):
        pool = list(OUTPUTS) if param.name in {"output", "plot", "ledger"} else FILES.split()
    elif param.metavar in {"EPS,DELTA", "Q,Q,…"}:
        return ",".join(rng.choice([*REALS, *INTEGERS]) for _ in range(2))
    else:
        pool = pools.get(str(param.metavar), WORDS)
    return rng.choice(pool)


def _call(words: list[str]) -> None:
    for path in Path().glob("out*"):
        if path.suffix != ".sqlite" or words[0] == "release":
            path.unlink()
    out, errors_text = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(errors_text):
        try:
            status: Any = front.main(words)
        except SystemExit as exit_request:  # --help and --version
            status = exit_request.code
    errors = [line for line in errors_text.getvalue().splitlines() if not line.startswith("warning: ")]
    if status not in {0, 2} or len(errors) != (status == 2) or "out of memory" in errors_text.getvalue():
        raise AssertionError(f"status {status!r} with {len(errors)} lines: {errors_text.getvalue()[:2000]}")
    if errors and (not errors[0].startswith("error: ") or len(errors[0]) > 2000):
        raise AssertionError(f"no line for a person: {errors[0][:2000]}")


def _write_parquet(folder: Path, labels: np.ndarray) -> None:
    arrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    columns = {f"v{k}": labels[:, k] for k in range(labels.shape[1])}
    words = {name: arrow.array([("no", "yes")[vote] for vote in column]) for name, column in columns.items()}
    parquet.write_table(
        arrow.table({"key": np.arange(len(labels)), **columns}), folder / "votes.parquet", row_group_size=3
    )
    parquet.write_table(arrow.table({**words, "key": words["v0"].dictionary_encode()}), folder / "words.parquet")


def _build() -> Any:
    return import_module("darrm.training.network").convolutional_network(side=8)


def _make_teachers() -> Any:
    """Make two untrained teachers."""
    rng, ensemble = np.random.default_rng(0), import_module("darrm.training.teachers").TeacherEnsemble
    shapes = {name: (2, *value.shape) for name, value in _build().state_dict().items()}
    recipe = import_module("darrm.training.recipes").PlainSGD(0.2, 8, 8)
    return ensemble({name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}, _build, recipe)


def _check_same_teachers(path: Path) -> None:
    """Load teachers and check that they equal the saved ones to the last bit."""
    saved, loaded = _make_teachers(), type(_make_teachers()).load(path, _build)
    saved_bytes, loaded_bytes = (
        {name: value.tobytes() for name, value in ensemble.parameters.items()} for ensemble in (saved, loaded)
    )
    if (loaded.recipe, loaded_bytes) != (saved.recipe, saved_bytes):
        raise AssertionError("other teachers")


def _load(name: str, raw: bytes, load: Callable[[Path], object]) -> None:
    Path(name).write_bytes(raw)
    _check_refusal(lambda: load(Path(name)))


def _check_refusal(call: Callable[[], object]) -> None:
    """Call a function; check that it returns, or raises a documented error with a short message."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            call()
        except (ValueError, OSError, DarrmError) as error:
            if len(str(error)) > 2000 or type(error) in {UnicodeEncodeError, UnicodeDecodeError}:
                raise AssertionError("no line for a person") from error


def _read_votes(rng: Random, suffix: str, raw: bytes) -> tuple[str, Case]:
    voters = rng.choice([None, 3, 32])
    classes = rng.choice([None, 2, 3, ("0", "1"), ("no", "yes"), 2**31, "open", "open", range(300)])
    kind = rng.choice(["auto", "labels", "counts"])

    def read(path: Path) -> object:
        return Votes.read(path, voters=voters, classes=classes, layout=kind)

    description = f"{suffix} {raw[:500]!r} voters={voters} classes={classes} layout={kind}"
    return description, lambda: _load(f"out{suffix}", raw, read)


def _replace_somewhere(data: Any, rng: Random) -> None:
    """Replace, drop or add a value at a random place of a JSON document."""
    while True:
        keys = list(data) if isinstance(data, dict) else list(range(len(data)))
        key = rng.choice(keys)
        if isinstance(data[key], dict | list) and data[key] and rng.random() < 0.8:
            data = data[key]
            continue
        if rng.random() < 0.2:
            del data[key]
        else:
            data[key] = rng.choice(JSON_VALUES)(rng)
        return


def _mutate(raw: bytes, rng: Random) -> bytes:
    """Flip, drop, repeat or replace bytes at one to four places."""
    mutated = bytearray(raw)
    for _ in range(rng.choice([1, 1, 2, 4])):
        start = rng.randrange(len(mutated) + 1)
        stop = min(len(mutated), start + rng.choice([0, 1, 1, 2, 8, 64]))
        pieces = (
            b"",
            rng.randbytes(stop - start),
            bytes(mutated[start:stop]) * rng.choice([2, 3, 500]),
            rng.choice(REALS).encode(),
            b"[" * rng.choice([1, 50, 5000]),
            rng.choice([b"\xff\xfe", b"\xef\xbb\xbf", b"\r\n", b'"', b"#", b",", b"\x00"]),
        )
        mutated[start:stop] = rng.choice(pieces)
    return bytes(mutated[: rng.randrange(len(mutated) + 1)] if rng.random() < 0.1 else mutated)
