"""
An auditor's day
================

| **For whom:** another person released the labels, and you decide whether their privacy
  claim holds.
| **At the end:** every claim of a table, a ledger and labels judged, four forgeries
  found, and an attack that failed.
| **How long:** ten minutes of reading, half a minute of computing.
| **It needs:** ``python -m pip install -e '.[plot]'`` in a checkout.

You get three files: the *table* (the noise function with its claim), the *ledger*
(payments and budget) and the *labels*. You do not have to trust the maker, nor
the program that proved the table: the audit decides privacy in exact arithmetic, by
code that shares nothing with the prover.
"""

# %%
# The maker's work
# ----------------
# On another computer, some weeks ago.

import hashlib
import json
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from darrm import (
    PrivacyLedger,
    PrivacyParams,
    Problem,
    Release,
    Voters,
    Votes,
    optimize_table,
    release_debited,
)
from darrm.verify.attack import attack
from darrm.verify.audit import audit
from darrm.verify.verdicts import FALSE, VERDICTS

folder = Path(tempfile.mkdtemp())
table = optimize_table(
    Problem.from_allowance(Voters(11, PrivacyParams("0.1", "1e-5")), m=3)
)
table.save(folder / "table.json")
votes = Votes.from_labels(
    np.random.default_rng(0).integers(2, size=(40, 11)), classes=2
)
ledger = PrivacyLedger.create(folder / "ledger.sqlite", PrivacyParams(8, "1e-2"))
labels = release_debited(
    Release(table), votes, ledger=ledger, output=folder / "labels.csv"
)

# %%
# The audit
# ---------
# One command, and a page to read and sign. Status 0: nothing is false; 1: something is;
# 2: it could not be read.


def verify(*arguments):
    """Run ``python -m darrm.verify``; return its status and its output."""
    command = [sys.executable, "-m", "darrm.verify", *arguments]
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout


status, printed = verify(
    "table.json", "ledger.sqlite", "labels.csv", "--report", "report.html"
)
for line in printed.splitlines():
    print(line[:84] + ("…" if len(line) > 84 else ""))
print("status", status)

# %%
# *Proved independently* was proved by this program alone, with every rounding bounded.
# *Consistent* agrees with all else that was given; a careful forger could have written
# it. *Assumed* claims cannot be shown by a file: that the voters are as private as
# stated, that they draw fresh randomness, that the ledger was not truncated (a later
# ledger digest or receipt checks that). Those are the questions to ask the maker.

# %%
# Four forgeries
# --------------
# Copies of the files, each changed in one place.


def copied(name):
    """A fresh copy of the three files."""
    place = folder / name
    place.mkdir()
    for file in ("table.json", "ledger.sqlite", "labels.csv"):
        shutil.copy(folder / file, place)
    return place


def rewritten(place, change):
    """Change the table's JSON."""
    data = json.loads((place / "table.json").read_text())
    change(data)
    (place / "table.json").write_text(json.dumps(data))


def judged(place):
    """All verdicts on the files of a folder."""
    return audit([place / "table.json", place / "ledger.sqlite", place / "labels.csv"])


def louder(data):
    """Tell more truth than was proved."""
    data["gamma"][0] = 1.0
    data["gamma"][1] = 1.0


def louder_and_sealed(data):
    """The same, with a correct checksum."""
    louder(data)
    text = json.dumps(
        {"problem": data["problem"], "gamma": data["gamma"]},
        sort_keys=True,
        separators=(",", ":"),
    )
    data["checksum"] = hashlib.sha256(text.encode()).hexdigest()


rewritten(copied("γ changed"), louder)
rewritten(copied("γ and checksum"), louder_and_sealed)
lines = (copied("labels changed") / "labels.csv").read_text().splitlines()
lines[0] = str(1 - int(lines[0]))
(folder / "labels changed" / "labels.csv").write_text("\n".join(lines) + "\n")
with sqlite3.connect(copied("ledger changed") / "ledger.sqlite") as connection:
    connection.execute("UPDATE entries SET count = 1")
connection.close()
audits = {"as released": judged(folder)}
audits |= {
    name: judged(folder / name)
    for name in ("γ changed", "γ and checksum", "labels changed", "ledger changed")
}
for name, found in audits.items():
    wrong = [verdict for verdict in found.verdicts if verdict.verdict == FALSE]
    print(f"{name}: {len(wrong)} false")
    for verdict in wrong[:2]:
        print("   ", str(verdict)[22:].replace(f"{folder}/", "")[:78] + "…")

# %%

fig, axis = plt.subplots(figsize=(7.5, 3.4), layout="constrained")
left = np.zeros(len(audits))
colors = ("#0072b2", "#56b4e9", "#bbbbbb", "#cc79a7", "#d55e00")
for word, color in zip(VERDICTS, colors, strict=True):
    counts = np.array([found.counts[word] for found in audits.values()])
    bars = axis.barh(
        list(audits), counts, left=left, color=color, edgecolor="white", label=word
    )
    axis.bar_label(
        bars,
        labels=[str(count) if count else "" for count in counts],
        label_type="center",
        color="white" if word == VERDICTS[0] else "black",
    )
    left += counts
axis.invert_yaxis()
axis.set_xlim(0, 1.03 * left.max())
axis.set_xlabel("claims")
axis.set_title("Verdicts on the files and four forged copies")
fig.legend(loc="outside lower center", ncols=5)
plt.show()

# %%
# A forger who recomputes the checksum is found, too, because privacy is proved again
# from the numbers.

# %%
# An attack
# ---------
# From outside: on two neighboring sets of votes labels are drawn through the release
# itself, and counted. Whatever ε the counts refute, with a confidence of 0.999999,
# cannot be the true one.

refutation = attack(Release(table), 200_000)
print(
    f"refuted ε {refutation.epsilon:.4f}, true worst case {refutation.worst:.4f}, ",
    end="",
)
print(f"claimed {refutation.bounds[0].claimed}")
print("the claim is", "refuted" if refutation.refuted else "not refuted")
shutil.rmtree(folder)

# %%
# An attack that refutes nothing proves nothing: it bounds the loss from below. The
# proof bounds it from above, and the two are close.

# %%
# What next
# ---------
# ``report.html`` is the page to sign. Publish the SHA-256 of the table with the labels:
# a checksum finds damage, and a published one finds forgery. :doc:`The sharp edges
# </sharp-edges>` lists the limits of audits.
