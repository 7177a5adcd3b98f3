"""The tables that come with the package: optimal noise functions for common settings, proven again at load.

`experiments/make_tables.py` writes one compressed JSON file a number of voters into ``darrm/tables``. A file holds what
cannot be recomputed quickly: γ, the checksum of γ and its problem, and the multipliers that prove its optimality.
`load_table` proves both again.
"""

import gzip
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import resources

from darrm.errors import TableError
from darrm.majority.noise_function import NoiseFunction
from darrm.priors import Prior, to_json
from darrm.privacy import PrivacyParams
from darrm.problem import Problem, Voters
from darrm.table.evidence import KINDS, VERSION
from darrm.table.optimality import SHAPES
from darrm.table.table import Table, certify
from darrm.util import checks
from darrm.util.files import Document, Json

_LIBRARY_FORMAT = "darrm table library"
_OPTIMALITY = ("value", "bound", "status", "multipliers")  # what an entry holds of it
_MOST_NEAR = 3  # how many settings a miss names
_SMALLEST_DELTA = 1e-9  # replaces δ = 0 in comparisons on a logarithmic scale


@dataclass(frozen=True)
class Setting:
    """A stored setting: K voters, allowance m, the guarantee of each, ``"free"`` or ``"monotone"``."""

    K: int
    m: int
    each: PrivacyParams
    shape: str

    @property
    def problem(self) -> Problem:
        """The problem, with the default δ = 1 − (1 − Δ)^m."""
        return Problem.from_allowance(Voters(self.K, self.each), self.m)

    def __str__(self) -> str:
        return f"K = {self.K}, m = {self.m}, each = {self.each}, shape = {self.shape!r}"


def available_sizes() -> tuple[int, ...]:
    """List the numbers of voters for which there are stored tables, in ascending order.

    >>> available_sizes()
    (3, 5, 7, 9, 11, 13, 15, 21, 31, 41, 51, 101, 201, 251, 301, 501, 1001)
    """
    names = (file.name for file in resources.files("darrm").joinpath("tables").iterdir())
    return tuple(sorted(int(name[1:].partition(".")[0]) for name in names if name.endswith(".json.gz")))


def available_tables(K: int | None = None) -> tuple[Setting, ...]:
    """List the settings of the stored tables, for one number of voters or for all of them.

    `TableError` if a file of the package is damaged.

    >>> str(available_tables(3)[0]), len(available_tables(3))
    ("K = 3, m = 1, each = (0.05, 0), shape = 'free'", 60)
    """
    sizes = available_sizes()
    chosen = sizes if K is None else tuple(size for size in sizes if size == K)
    return tuple(
        Setting(size, entry["m"], PrivacyParams(entry["epsilon"], entry["delta"]), entry["shape"])
        for size in chosen
        for entry in _read(size)["tables"]
    )


def load_table(problem: Problem, *, shape: str = "free") -> Table:
    """Load a stored table and prove it again; the prior of the stored ones is independent p_i ~ U[0.5, 1].

    Parameters
    ----------
    problem
        With δ = 1 − (1 − Δ)^m, the default of `Problem.from_allowance`, and any person reaching all voters.
    shape
        ``"free"`` or ``"monotone"``.

    Raises
    ------
    ValueError
        If the shape is unknown.
    TableError
        If there is no such table (``field`` is ``"library"`` and the message names near settings), or the stored one
        does not hold.

    Examples
    --------
    >>> from darrm import Problem, PrivacyParams, Voters
    >>> load_table(Problem.from_allowance(Voters(11, PrivacyParams(0.1)), 1)).gamma.half.round(3)
    array([0.091, 0.273, 0.455, 0.636, 0.818, 1.   ])
    >>> load_table(Problem.from_allowance(Voters(11, PrivacyParams(0.2)), 3))
    Traceback (most recent call last):
    ...
    darrm.errors.TableError: library: there is no stored table for K = 11, m = 3, each = (0.2, 0), shape = 'free'; near
    are each = (0.25, 0); each = (0.1, 0); each = (0.5, 0); optimize_table computes any other
    """
    checks.one_of(SHAPES, shape=shape)
    if not isinstance(problem, Problem):
        checks.fail("problem", problem, "a Problem", "Table.load reads a table from a file")
    voters = problem.voters
    if not voters.each.is_private or voters.overlap is not None or voters.per_voter is not None:
        raise TableError("library", "the stored tables are for private voters, all alike, and all within reach")
    if problem != Problem.from_allowance(voters, problem.exact_m):
        raise TableError("library", "the stored tables have the default delta, 1 - (1 - Δ)^m")
    if voters.K in available_sizes():
        data = _read(voters.K)
        # a stored proof speaks of votes alone: it is the same for voters that are models
        stored = replace(problem, voters=replace(voters, models=False))
        key = (problem.exact_m, voters.each.epsilon_text, voters.each.delta_text, shape)
        for entry in data["tables"]:
            if (entry["m"], entry["epsilon"], entry["delta"], entry["shape"]) == key:
                table = Table.from_json(_table_json(stored, entry, data))
                if stored == problem:
                    return table
                return certify(problem, table.gamma).with_optimality(table.optimality, table.provenance)
    raise TableError("library", _miss(voters.K, float(problem.exact_m), voters.each, shape))


def compress(K: int, prior: Prior, provenance: dict[str, str], tables: Sequence[tuple[Setting, Table]]) -> bytes:
    """Write tables of one size as the bytes of a library file; equal tables give equal bytes."""
    content = {
        "format": _LIBRARY_FORMAT,
        "version": VERSION,
        "K": K,
        "prior": to_json(prior, K),
        "provenance": provenance,
        "tables": [_entry(setting, table) for setting, table in tables],
    }
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    return gzip.compress(text.encode(), compresslevel=9, mtime=0)


def _entry(setting: Setting, table: Table) -> Document:
    data = table.to_json()
    if data["optimality"] is None:
        raise TableError("optimality", "a library table needs it")
    return {
        "m": setting.m,
        "epsilon": setting.each.epsilon_text,
        "delta": setting.each.delta_text,
        "shape": setting.shape,
        "gamma": data["gamma"],
        "checksum": data["checksum"],
        "scale": data["certificate"]["scale"],
        **{name: data["optimality"][name] for name in _OPTIMALITY},
    }


def _table_json(problem: Problem, entry: dict[str, Json], library: dict[str, Json]) -> Document:
    return {
        "format": KINDS[NoiseFunction].format,
        "version": VERSION,
        "problem": problem.to_json(),
        "gamma": entry["gamma"],
        "checksum": entry["checksum"],
        "certificate": {"scale": entry["scale"]},
        "optimality": {
            "prior": library["prior"],
            "objective": "linear",
            "shape": entry["shape"],
            **{name: entry[name] for name in _OPTIMALITY},
        },
        "provenance": library["provenance"],
    }


def _read(K: int) -> dict[str, Json]:
    name = f"K{K}.json.gz"
    try:
        packed = resources.files("darrm").joinpath("tables", name).read_bytes()
        data: dict[str, Json] = json.loads(gzip.decompress(packed))
    except (OSError, EOFError, ValueError) as error:
        raise TableError(
            "library", f"the file {name!r} of the package is damaged ({error}): install it again"
        ) from error
    if data.get("format") != _LIBRARY_FORMAT or data.get("version") != VERSION:
        raise TableError("library", f"the file {name!r} of the package has an unknown format: install it again")
    return data


def _miss(K: int, m: float, each: PrivacyParams, shape: str) -> str:
    nearest_first = sorted(available_sizes(), key=lambda candidate: abs(math.log(candidate / K)))
    of_shape = ([each for each in available_tables(size) if each.shape == shape] for size in nearest_first)
    settings = next(filter(None, of_shape))

    def distance(setting: Setting) -> float:
        deltas = math.log(max(setting.each.delta, _SMALLEST_DELTA) / max(each.delta, _SMALLEST_DELTA))
        # a step of K or m would change the problem more than a step of ε or Δ: prefer equal m
        return (
            10.0 * abs(math.log(setting.m / m)) + abs(math.log(setting.each.epsilon / each.epsilon)) + 0.2 * abs(deltas)
        )

    nearest = sorted(settings, key=distance)[:_MOST_NEAR]
    asked = f"K = {K}, m = {m:g}, each = {each}, shape = {shape!r}"
    return (
        f"there is no stored table for {asked}; near are "
        + "; ".join(_difference(setting, K, m) for setting in nearest)
        + "; optimize_table computes any other"
    )


def _difference(setting: Setting, K: int, m: float) -> str:
    parts = [f"K = {setting.K}"] if setting.K != K else []
    parts += [f"m = {setting.m}"] if setting.m != m else []
    return ", ".join([*parts, f"each = {setting.each}"])
