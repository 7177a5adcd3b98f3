"""The claims of a file of labels: that they were paid for, with this table, and are what was paid for."""

from collections.abc import Iterator
from typing import Any

from numpy.typing import NDArray

from darrm.proof.plurality_table import PluralityTable
from darrm.system.votes_file import labels_digest
from darrm.verify.any_table import Table
from darrm.verify.ledger import LedgerCopy
from darrm.verify.verdicts import CLAIMED, PROVED, Verdict, judged

_LABELS = "labels"


def judge_labels(
    labels: NDArray[Any], table: Table | None, ledger: LedgerCopy | None, classes: tuple[str, ...] | None
) -> Iterator[Verdict]:
    """Judge every claim of released labels; ``classes`` names them where they have names."""
    number = table.problem.classes if isinstance(table, PluralityTable) else 2
    names = sorted(set(map(str, labels.tolist())))
    allowed = f"of the classes {', '.join(classes)}" if classes else f"of {number} classes"
    inside = set(names) <= set(classes) if classes else len(names) <= number
    shown = f"the labels are {', '.join(map(repr, names[: number + 1]))}{', …' if len(names) > number + 1 else ''}"
    yield judged(_LABELS, f"all {labels.size} labels are {allowed}", shown, holds=inside)
    if ledger is None:
        yield Verdict(_LABELS, "they were paid for", CLAIMED, "--ledger says whether")
        return
    digest = labels_digest(labels)
    paid = [entry for entry in ledger.entries if entry.labels == digest]
    bare = [entry.count for entry in ledger.entries if not entry.labels]
    if not paid and bare:
        totals = sorted({*bare, sum(bare)})
        reason = f"{labels.size} labels; entries without a digest of theirs count {', '.join(map(str, totals))}"
        yield judged(_LABELS, "as many were paid for as there are", reason, holds=labels.size in totals)
        return
    found = f"their SHA-256 {digest} is that of {len(paid)} of {len(ledger.entries)} entries"
    yield judged(_LABELS, "they are the labels of a debit", found, holds=bool(paid), how=PROVED)
    if not paid:
        return
    counts = ", ".join(str(entry.count) for entry in paid)
    fits = any(entry.count == labels.size for entry in paid)
    yield judged(
        _LABELS, "as many were paid for as there are", f"{labels.size} labels, {counts} paid", holds=fits, how=PROVED
    )
    if table is not None:
        same = any(entry.table == table.digest for entry in paid)
        reason = f"the debit holds {', '.join(sorted({entry.table or 'no digest' for entry in paid}))}"
        yield judged(_LABELS, "they were drawn with this table", reason, holds=same)
