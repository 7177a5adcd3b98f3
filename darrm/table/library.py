"""The tables that come with the package: optimal noise functions for common settings, proven again at load.

`experiments/make_tables.py` writes ``darrm/tables``: a compressed JSON file per number of voters, and one with whole
tables for settings of [D] outside the grid.
"""

import gzip
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import resources

from darrm.errors import TableError
from darrm.majority.noise_function import NoiseFunction
from darrm.priors import Independent, Prior, check_prior, from_json, to_json
from darrm.privacy import PrivacyParams
from darrm.problem import Problem, Voters
from darrm.table.evidence import KINDS, VERSION
from darrm.table.optimality import SHAPES
from darrm.table.table import Table, certify
from darrm.util import checks
from darrm.util.files import Document, Json

_LIBRARY_FORMAT = "darrm table library"
PRIOR = Independent(0.5, 1.0)
PAPER_FILE = "papers.json.gz"
_OPTIMALITY_FIELDS = ("value", "bound", "status", "multipliers")  # fields of `Optimality` in an entry
_MAX_NEAR_SETTINGS = 3  # settings that the error message names
_SMALLEST_DELTA = 1e-9  # replaces δ = 0 in comparisons on a logarithmic scale


@dataclass(frozen=True)
class Setting:
    """A stored setting."""

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
    """List the numbers of voters of the stored tables.

    >>> available_sizes()
    (3, 5, 7, 9, 11, 13, 15, 21, 31, 41, 51, 101, 201, 251, 301, 501, 1001)
    """
    names = (file.name for file in resources.files("darrm").joinpath("tables").iterdir())
    return tuple(sorted(int(name[1:].partition(".")[0]) for name in names if name.startswith("K")))


def available_tables(K: int | None = None) -> tuple[Setting, ...]:
    """List the settings of the stored tables, for one K or for all; `TableError` if a file of the package is damaged.

    >>> print(available_tables(3)[0])
    K = 3, m = 1, each = (0.05, 0), shape = 'free'
    """
    sizes = available_sizes()
    requested_sizes = sizes if K is None else tuple(size for size in sizes if size == K)
    return tuple(
        Setting(size, entry["m"], PrivacyParams(entry["epsilon"], entry["delta"]), entry["shape"])
        for size in requested_sizes
        for entry in _read_library(f"K{size}.json.gz")["tables"]
    )


@dataclass(frozen=True)
class PaperSetting:
    """A setting of [D] outside the grid of `available_tables`."""

    problem: Problem
    prior: Prior
    shape: str


def paper_settings() -> tuple[PaperSetting, ...]:
    """List the settings of [D] outside the grid: the budgets of Tables 1 to 10, Figure 6, and Figure 9's T_P."""
    return tuple(setting for setting, _ in _read_paper_entries())


def _read_paper_entries() -> list[tuple[PaperSetting, dict[str, Json]]]:
    return [
        (PaperSetting(Problem.from_json(entry["problem"]), from_json(optimality["prior"]), optimality["shape"]), entry)
        for entry in _read_library(PAPER_FILE)["tables"]
        for optimality in (entry["optimality"],)
    ]


def load_table(problem: Problem, *, shape: str = "free", prior: Prior | str = PRIOR) -> Table:
    """Load a stored table and prove it again.

    ``problem`` is one of `available_tables`, with the default δ of `Problem.from_allowance` and full overlap, or one of
    `paper_settings`. ``shape`` is ``"free"`` or ``"monotone"``; ``prior`` is another one than U[0.5, 1] only for a few
    `paper_settings`. `TableError` with the ``field`` ``"library"``, near settings and how to compute the table if it is
    not stored, or with another ``field`` if the stored one does not hold.

    >>> from darrm import Problem, PrivacyParams, Voters
    >>> load_table(Problem.from_allowance(Voters(11, PrivacyParams(0.1)), 1)).gamma.half.round(3)
    array([0.091, 0.273, 0.455, 0.636, 0.818, 1.   ])
    """
    checks.one_of(SHAPES, shape=shape)
    checked_prior = check_prior(prior)
    if not isinstance(problem, Problem):
        checks.fail("problem", problem, "a Problem", "Table.load reads a table from a file")
    # a stored proof speaks of votes alone: it is the same for voters that are models
    stored_problem = replace(problem, voters=replace(problem.voters, models=False))
    data = _find_stored(stored_problem, shape, checked_prior)
    if data is None:
        raise TableError("library", _explain_miss(problem, shape, checked_prior))
    table = Table.from_json(data)
    if stored_problem == problem:
        return table
    return certify(problem, table.gamma).with_optimality(table.optimality, table.provenance)


def _find_stored(problem: Problem, shape: str, prior: Prior) -> Document | None:
    voters = problem.voters
    if _is_on_the_grid(problem) and prior == PRIOR and voters.K in available_sizes():
        data = _read_library(f"K{voters.K}.json.gz")
        key = (problem.exact_m, voters.each.epsilon_text, voters.each.delta_text, shape)
        for entry in data["tables"]:
            if (entry["m"], entry["epsilon"], entry["delta"], entry["shape"]) == key:
                return {
                    "format": KINDS[NoiseFunction].format,
                    "version": VERSION,
                    "problem": problem.to_json(),
                    **{name: entry[name] for name in ("gamma", "checksum")},
                    "certificate": {"scale": entry["scale"]},
                    "optimality": {
                        "prior": data["prior"],
                        "objective": "linear",
                        **{name: entry[name] for name in ("shape", *_OPTIMALITY_FIELDS)},
                    },
                    "provenance": data["provenance"],
                }
    setting = PaperSetting(problem, prior, shape)
    return next((entry for paper_setting, entry in _read_paper_entries() if paper_setting == setting), None)


def _is_on_the_grid(problem: Problem) -> bool:
    voters = problem.voters
    is_uniform = (
        voters.each.is_private and voters.overlap is None and voters.per_voter is None and voters.sampled is None
    )
    return is_uniform and problem == Problem.from_allowance(voters, problem.exact_m)


def compress(K: int, prior: Prior, provenance: dict[str, str], tables: Sequence[tuple[Setting, Table]]) -> bytes:
    """Write tables of one size as a library file; equal tables give equal bytes."""
    content = {
        "format": _LIBRARY_FORMAT,
        "version": VERSION,
        "K": K,
        "prior": to_json(prior, K),
        "provenance": provenance,
        "tables": [_build_entry(setting, table) for setting, table in tables],
    }
    return _pack(content)


def compress_whole(tables: Sequence[Table]) -> bytes:
    """Write the file of `paper_settings`."""
    content = {"format": _LIBRARY_FORMAT, "version": VERSION, "tables": [table.to_json() for table in tables]}
    return _pack(content)


def _pack(content: Document) -> bytes:
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    return gzip.compress(text.encode(), compresslevel=9, mtime=0)


def _build_entry(setting: Setting, table: Table) -> Document:
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
        **{name: data["optimality"][name] for name in _OPTIMALITY_FIELDS},
    }


def _read_library(name: str) -> dict[str, Json]:
    try:
        compressed = resources.files("darrm").joinpath("tables", name).read_bytes()
        data: dict[str, Json] = json.loads(gzip.decompress(compressed))
    except (OSError, EOFError, ValueError) as error:
        reason = f"the file {name!r} of the package is damaged ({error}): install it again"
        raise TableError("library", reason) from error
    if data.get("format") != _LIBRARY_FORMAT or data.get("version") != VERSION:
        raise TableError("library", f"the file {name!r} of the package has an unknown format: install it again")
    return data


def _explain_miss(problem: Problem, shape: str, prior: Prior) -> str:
    advice = f"optimize_table(problem, shape={shape!r}, prior={prior.text!r}) computes it"
    if prior != PRIOR:
        return f"there is no stored table for the prior {prior.text} and this problem; {advice}"
    if not _is_on_the_grid(problem):
        scope = "private voters, all alike, and all within reach, with the default delta 1 - (1 - Δ)^m"
        return f"the stored tables are for {scope}, and for paper_settings(); {advice}"
    K, m, each = problem.voters.K, float(problem.exact_m), problem.voters.each
    _, nearest_first = zip(*sorted((abs(math.log(size / K)), size) for size in available_sizes()), strict=True)
    settings_by_size = ([each for each in available_tables(size) if each.shape == shape] for size in nearest_first)
    settings = next(filter(None, settings_by_size))

    def compute_distance(setting: Setting) -> float:
        deltas = math.log(max(setting.each.delta, _SMALLEST_DELTA) / max(each.delta, _SMALLEST_DELTA))
        epsilons = math.log(setting.each.epsilon / each.epsilon)
        # a step of K or m would change the problem more than a step of ε or Δ: prefer equal m
        return 10.0 * abs(math.log(setting.m / m)) + abs(epsilons) + 0.2 * abs(deltas)

    nearest = sorted(settings, key=compute_distance)[:_MAX_NEAR_SETTINGS]
    request = f"K = {K}, m = {m:g}, each = {each}, shape = {shape!r}"
    neighbors = "; ".join(
        ", ".join(
            [f"K = {setting.K}"] * (setting.K != K)
            + [f"m = {setting.m}"] * (setting.m != m)
            + [f"each = {setting.each}"]
        )
        for setting in nearest
    )
    command = f"darrm optimize --K {K} --m {m:g} --epsilon {each.epsilon_text} --each-delta {each.delta_text}"
    advice = f"optimize_table computes it, or {command} --shape {shape} --output FILE"
    return f"there is no stored table for {request}; near are {neighbors}; {advice}"
