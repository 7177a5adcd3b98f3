"""The command ``darrm show``: identify a file and summarize it in ten lines."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from darrm.aggregator import CLAIMS, Released, read_release
from darrm.commands.command import command, run_command
from darrm.commands.options import Output, argument, output_options, text_value
from darrm.ledger.ledger import PrivacyLedger
from darrm.ledger.sqlite import check_kept, is_url, ledger_name
from darrm.privacy import PrivacyParams
from darrm.problem import describe_classes
from darrm.table.release import Release
from darrm.util import checks
from darrm.util.files import MOST_BYTES, Document, Json, read_json
from darrm.votes.parquet_file import is_parquet, rows_and_types
from darrm.votes.votes_file import LABEL, is_number, is_text_table, records

EXAMPLES = """\
examples:
  darrm show table.json
  darrm show ledger.sqlite
  darrm show votes.csv

A table is proved again before it is shown. Of votes only the size is shown:
their values are private. `darrm verify FILE` checks every claim of a file.
"""


_SQLITE_MAGIC = b"SQLite format 3\0"
_ZIP_MAGIC = b"PK\x03\x04"


@dataclass(frozen=True)
class Summary:
    file: str
    kind: str
    facts: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        lines = [f"{self.file}: {self.kind}"]
        return "\n".join([*lines, *(f"  {name:<12} {fact}" for name, fact in self.facts.items() if fact)])

    def to_json(self) -> Document:
        return {
            "format": "darrm show report",
            "version": 1,
            "file": self.file,
            "kind": self.kind,
            "facts": dict(self.facts),
        }


def summarize(file: Path | str) -> Summary:
    """Summarize a file; `ValueError` if it is damaged, or no file of this project."""
    if is_url(file):
        return _summarize_ledger(str(file))
    path = Path(file)
    if path.is_dir():
        raise ValueError(f"{str(path)!r} is a folder: name a file, or audit all of it with darrm verify")
    with path.open("rb") as handle:
        magic = handle.read(len(_SQLITE_MAGIC))
    if magic == _SQLITE_MAGIC:
        return _summarize_ledger(str(path))
    if path.suffix.lower() in {".npy", ".npz"} or is_parquet(path) or is_text_table(path):
        return _summarize_votes(path)
    if magic.startswith(_ZIP_MAGIC):
        facts = {"read it with": "darrm.estimators.load(FILE), or check it with darrm verify FILE"}
        return Summary(str(path), "a compressed archive, such as a saved estimator", facts)
    data = read_json(path, what="file", most_bytes=MOST_BYTES)
    return _summarize_json(str(path), data)


def _summarize_json(file: str, data: Json) -> Summary:
    format_name = data.get("format") if isinstance(data, dict) else None
    if not isinstance(format_name, str):
        checks.fail("file", file, "a file of darrm", "it is JSON without a format: was it written by another program?")
    if format_name.startswith("darrm-receipt"):
        return _summarize_receipt(file, data)
    if format_name.endswith((" report", " rows", " sweep", " advice")):
        article = "an" if format_name[0] in "aeiou" else "a"
        return Summary(file, f"{article} {format_name}, printed by a command with --format json", {})
    return _summarize_release(file, read_release(data), data.get(CLAIMS))


def _summarize_release(file: str, mechanism: Released, claims: Json) -> Summary:
    facts = {"voters": str(mechanism.voters), "classes": describe_classes(mechanism.classes)}
    if isinstance(mechanism, Release):
        table = mechanism.table
        title = "a table, proved again just now"
        facts["guarantee"] = f"{table.problem.target}-differentially private, per query"
        if table.accuracy is not None and table.optimality is not None:
            facts["accuracy"] = f"{table.accuracy:.4f} under {table.optimality.prior}"
        facts["digest"] = table.digest
    else:
        title = f"a mechanism, {mechanism.mechanism}"
        if isinstance(mechanism.guarantee, PrivacyParams):
            facts["guarantee"] = f"{mechanism.guarantee}-differentially private"
        facts["cost"] = f"darrm account --table {file} --queries Q --delta D"
    if isinstance(claims, dict):
        title = f"a plan: {title}"
        facts |= _describe_plan(claims)
    facts["use"] = f"darrm release VOTES --table {file} --ledger LEDGER --output LABELS"
    return Summary(file, title, facts)


def _describe_plan(claims: Document) -> dict[str, str]:
    workload = claims.get("workload")
    if not isinstance(workload, dict) or not isinstance(workload.get("total"), dict):
        return {}
    total = PrivacyParams.from_json(workload["total"])
    return {"planned for": f"{workload.get('queries')} queries within {total}; darrm verify checks this claim"}


def _summarize_ledger(file: str) -> Summary:
    ledger = PrivacyLedger(file)
    entries = ledger.entries()
    waiting = [str(entry.number) for entry in entries if not entry.delivered]
    facts = {
        "budget": str(ledger.guarantee),
        "spent": str(ledger.spent),
        "entries": f"{len(entries)}, for {sum(entry.count for entry in entries):,} queries",
        "last": f"{entries[-1].time}  {entries[-1].what}" if entries else "",
        "undelivered": f"entries {', '.join(waiting)}: darrm release recover ENTRY" if waiting else "",
        "more": f"darrm account {file}",
    }
    return Summary(file, "a ledger", facts)


def _summarize_receipt(file: str, data: Document) -> Summary:
    entry = data.get("entry")
    if not isinstance(entry, dict):
        checks.fail("file", file, "a receipt of darrm", "its entry is missing: get it again from the ledger")
    facts = {name: str(entry[name]) for name in ("time", "what", "count", "labels") if entry.get(name) is not None}
    facts["signed"] = "yes" if "signature" in data else "no"
    facts["check"] = f"darrm verify LEDGER {file}"
    return Summary(file, "a receipt of a ledger for released labels", facts)


def _summarize_votes(path: Path) -> Summary:
    rows, columns, are_labels = _measure_votes(path)
    if are_labels:
        return Summary(str(path), "labels", {"labels": f"{rows:,}", "check": f"darrm verify {path} LEDGER"})
    facts = {
        "rows": f"{rows:,}: queries",
        "columns": f"{columns:,}: voters (labels) or classes (counts)",
        "privacy": "votes are private data; their values are not shown",
        "use": f"darrm release {path} --table TABLE --ledger LEDGER --output LABELS",
    }
    return Summary(str(path), "votes", facts)


def _measure_votes(path: Path) -> tuple[int, int, bool]:
    """Return the numbers of rows and columns, and whether they are released labels."""
    if is_parquet(path):
        rows, types = rows_and_types(path)
        return rows, len(types), LABEL in types
    if is_text_table(path):
        lines = records(path, "\t" if ".tsv" in path.suffixes else ",")
        _, fields = next(lines, (0, list[str]()))
        # released labels are one column, or have their names in the first line
        are_labels = len(fields) == 1 or fields[-1:] == [LABEL]
        has_names = fields[-1:] == [LABEL] if are_labels else not any(map(is_number, fields))
        return sum(1 for _ in lines) + (not has_names), len(fields), are_labels
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise ValueError(f"{path}: it does not hold one array of numbers or text ({checks.one_line(error)})") from error
    if not isinstance(array, np.ndarray) or array.ndim not in {1, 2}:
        raise ValueError(f"{path}: it must hold one array, of labels (Q,) or of votes (Q, K)")
    return len(array), array.shape[-1], array.ndim == 1


@command(
    "show",
    about="Identify a table, plan, ledger, receipt, file of votes or JSON report, and summarize it in ten lines.",
    short="identify a table, plan, ledger, receipt or file of votes",
    examples=EXAMPLES,
)
@argument("file", type=text_value(ledger_name), metavar="FILE", about="a file, or the URL of a ledger in PostgreSQL")
@output_options()
def show(*, file: Path | str, output: Output) -> None:
    check_kept(file)
    with output.status_line() as line:
        line.show(f"reading {file}")
        summary = summarize(file)
    output.print(text=lambda: f"{summary}\n", document=summary.to_json)


def main(arguments: Sequence[str] | None = None) -> int:
    return run_command(show, arguments)


if __name__ == "__main__":
    sys.exit(main())
