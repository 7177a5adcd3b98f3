"""Write the data that the explorer page cannot compute: ``docs/explorer/data.js``.

    python -m experiments explorer_data              # all sizes: some minutes on one core

The data are the packaged noise functions of each K that has one for every m; loading proves each again. For each of
their problems, there are four proved numbers of the baselines: the scales of subsampling and double subsampling, the
paper's constant of randomized response, and the largest private constant. A page that is opened as a file cannot fetch
files, so the data are a script that assigns one constant. Floats are exact: little-endian bytes in base64.
"""

import base64
import gzip
import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from darrm.majority import baselines
from darrm.majority.noise_function import NoiseFunction
from darrm.problem import Problem
from darrm.table.library import PRIOR, Setting, available_tables, load_table
from darrm.table.optimality import SHAPES
from darrm.table.table import certify
from darrm.util.files import write_text
from experiments.make_tables import DELTAS, EPSILONS, SIZES
from experiments.pages import CommandLine, Row

OUTPUT = Path(__file__).parent.parent / "docs" / "explorer" / "data.js"
_HEADER = '"use strict";\n// written by python -m experiments explorer_data\n'
_ASSIGNMENT = "const DATA = "


def prove_rivals(problem: Problem) -> tuple[float, float, float, float]:
    """Return proved numbers: the scales of γ_Sub and γ_DSub, the paper's constant γ, and the largest one.

    >>> from darrm import PrivacyParams, Voters
    >>> teachers = Problem.from_allowance(Voters(11, PrivacyParams("0.1", "1e-5")), 3)
    >>> [round(number, 4) for number in prove_rivals(teachers)]
    [1.0, 1.0, 0.2975, 0.872]
    """
    largest = NoiseFunction(problem.voters.K, np.ones(problem.voters.num_upper_levels))
    return (
        certify(problem, baselines.subsampling(problem)).certificate.scale,
        certify(problem, baselines.double_subsampling(problem)).certificate.scale,
        float(certify(problem, baselines.randomized_response(problem)).gamma.half[0]),
        float(certify(problem, largest).gamma.half[0]),
    )


def collect_numbers(settings: Sequence[Setting]) -> tuple[list[float], list[float]]:
    """List γ at floor(K/2) + 1 … K of each table, and the baselines' numbers of each problem."""
    gamma = [load_table(setting.problem, shape=setting.shape).gamma.half for setting in settings]
    rivals = [prove_rivals(setting.problem) for setting in settings if setting.shape == SHAPES[0]]
    return np.concatenate(gamma).tolist(), np.concatenate(rivals).tolist()


def write_script(numbers: dict[int, tuple[list[float], list[float]]]) -> str:
    def pack(values: list[float]) -> str:
        return base64.b64encode(np.array(values, dtype="<f8").tobytes()).decode()

    data = {
        "prior": PRIOR.text,
        "epsilons": EPSILONS,
        "deltas": DELTAS,
        "shapes": SHAPES,
        "gamma": {str(K): pack(gamma) for K, (gamma, _) in numbers.items()},
        "rivals": {str(K): pack(rivals) for K, (_, rivals) in numbers.items()},
    }
    return f"{_HEADER}{_ASSIGNMENT}{json.dumps(data, indent=1)};\n"


def read_script(path: Path) -> Row:
    data = json.loads(path.read_text(encoding="utf-8").partition(_ASSIGNMENT)[2].removesuffix(";\n"))
    for name in ("gamma", "rivals"):
        data[name] = {int(K): np.frombuffer(base64.b64decode(text), dtype="<f8") for K, text in data[name].items()}
    return dict(data)


def bundle(page: Path, folder: Path, solver: Path) -> None:
    """Copy the page; if npm fetched its solver, pack it as a script, the only format that local pages can load."""
    shutil.copytree(page, folder, dirs_exist_ok=True)
    if not solver.is_dir():
        return
    packed = base64.b64encode(gzip.compress((solver / "build" / "highs.wasm").read_bytes(), mtime=0)).decode()
    loader, license_text = ((solver / name).read_text(encoding="utf-8") for name in ("build/highs.js", "LICENSE"))
    write_text(folder / "solver.js", f'/* {license_text}*/\n{loader}\nconst SOLVER_PACKED = "{packed}";\n')
    index = (page / "index.html").read_text(encoding="utf-8")
    tag = '<meta name="solver" content="solver.js">'
    write_text(folder / "index.html", index.replace("</head>", f"{tag}\n</head>"))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = CommandLine("experiments explorer_data", __doc__)
    parser.add_argument("--output", type=Path, default=OUTPUT, metavar="FILE", help="where to (default the page's own)")
    options = parser.parse_args(arguments)
    numbers = {}
    for K in SIZES:
        numbers[K] = collect_numbers(available_tables(K))
        print(f"K = {K:3d}: {len(numbers[K][0]):6,d} values of γ", flush=True)
    write_text(options.output, write_script(numbers))
    return 0
