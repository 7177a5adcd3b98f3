"""Speed of ``darrm serve``, and its promises after kills: on both stores, on 127.0.0.1 only.

    python -m tests.load.serve --recompute

Writes OUTPUT/serve/FIGURE.json and the page OUTPUT/serve.md made from them.
"""

import hashlib
import os
import platform
import random
import subprocess
import sys
import tempfile
import threading
import time
from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any

import httpx

from darrm import PrivacyLedger, PrivacyParams
from darrm.aggregator import load_release
from darrm.commands.command_line import run
from darrm.ledger.chain import Cost, EntryRow, State
from darrm.ledger.ledger import StreamCursor
from darrm.ledger.sqlite import SQLiteStore
from darrm.ledger.transaction import Transaction
from darrm.loss.privacy_cost import PrivacyCost
from darrm.serve.client import ServeClient, ServerRefusedError
from darrm.serve.clients import Client
from darrm.serve.questions import End, Questions, VoteSchema
from darrm.serve.requests import Question
from darrm.votes import Votes
from experiments import pages
from experiments.pages import Row
from tests.load.processes import AS_INSTALLED, STORES, Load, Place, Server, measure_sync, open_place

NAME = "serve"
FIGURES = ("speed", "costs", "race", "long", "kills", "soak")
PORT = 8799


def main(arguments: Sequence[str] | None = None) -> int:
    parser = pages.make_command_line(
        NAME, __doc__, module="tests.load.serve", figures=FIGURES, quick="seconds, a hundredth, a few kills"
    )
    parser.add_argument("--folder", type=Path, help="where ledgers lie: on the disk that is meant")
    parser.add_argument("--minutes", type=float, default=15.0, help="of the soak (default 15)")
    parser.add_argument("--entries", type=int, default=10**7, help="of the long ledger (default 10⁷)")
    parser.add_argument("--kills", type=int, default=500, help="of each store (default 500)")
    options = parser.parse_args(arguments)
    folder = pages.prepare_folder(options, NAME)
    for figure in pages.select_figures(options, FIGURES):
        with tempfile.TemporaryDirectory(dir=options.folder) as name:
            Path(name).chmod(0o755)  # PostgreSQL runs as another user
            data = measure(figure, Path(name), options)
        machine = {"machine": f"{platform.machine()}, {os.cpu_count()} cores"}
        pages.write_json(folder / f"{figure}.json", machine | data)
    results = pages.read_results(folder, FIGURES)
    return pages.write_page(folder, page(results)) if len(results) == len(FIGURES) else 0


def measure(figure: str, folder: Path, options: Namespace) -> Row:
    quick = bool(options.quick)
    if figure == "race":
        return race(folder, 1000 if quick else 100_000)
    if figure == "long":
        return compare_ledgers(folder, 10**5 if quick else options.entries)
    if figure == "speed":
        stores = speed(folder, 2.0 if quick else 10.0)
    elif figure == "costs":
        stores = costs(folder)
    elif figure == "kills":
        stores = kills(folder, 10 if quick else options.kills)
    else:
        stores = soak(folder, 6.0 if quick else 60 * options.minutes)
    return {"stores": list(stores)}


CLIENTS, RUNS, SERIES = 32, 3, 3


def speed(folder: Path, seconds: float) -> Iterator[Row]:
    """Yield for each store the series with the median number of answers, and the numbers of all series."""
    series = []
    for number in range(SERIES):
        (folder / str(number)).mkdir(mode=0o755)
        series.append([measure_series(folder / str(number), store, seconds) for store in STORES])
    for rows in zip(*series, strict=True):
        ordered = sorted(rows, key=lambda row: row["answers_a_second"])
        yield ordered[len(ordered) // 2] | {"series": [row["answers_a_second"] for row in rows]}


def measure_series(folder: Path, store: str, seconds: float) -> Row:
    with open_place(folder / store, store, 10**6) as place:
        server = place.serve(PORT)
        Load(PORT, place.token, "warm", CLIENTS).run(1.0)
        before, runs, loads = server.status()["processor_seconds"], [], []
        for number in range(RUNS):
            runs.append(Load(PORT, place.token, f"run{number}", CLIENTS).run(seconds))
            loads.append(os.getloadavg()[0])
        processor = server.status()["processor_seconds"] - before
        alone = Load(PORT, place.token, "alone", 1).run(seconds / 2)
        each = [run.answered / run.seconds for run in runs]
        return {
            "store": store,
            "clients": CLIENTS,
            "answers_a_second": median(each),
            "p50_milliseconds": median(run.milliseconds(0.5) for run in runs),
            "p99_milliseconds": median(run.milliseconds(0.99) for run in runs),
            "each": each,
            "alone_p50_milliseconds": alone.milliseconds(0.5),
            "processor_milliseconds": 1000 * processor / sum(run.answered for run in runs),
            "paid": place.paid(),
            "debits": place.debits(),
            "sync_milliseconds": measure_sync(folder),
            "loads": loads,
        }


FEW, MANY = 1, 256  # questions together
_TIMES = 15


def milliseconds(act: Callable[[int], object], clock: Callable[[], float] = time.thread_time) -> float:
    """Return the median time of an action, by default of the processor."""
    times = []
    for number in range(_TIMES):
        begin = clock()
        act(number)
        times.append(clock() - begin)
    return 1000 * median(times)


def costs(folder: Path) -> Iterator[Row]:
    """Time the steps of each store's server; pairs are of one question and of many."""
    for store in STORES:
        with open_place(folder / f"costs{store}", store, 10**6) as place:
            pairs: dict[str, list[float]] = {}
            for most in (FEW, MANY):
                for name, value in (
                    time_payments(place, most) | time_questions(place.folder / f"costs{most}", most)
                ).items():
                    pairs.setdefault(name, []).append(value)
            yield {"store": store, **pairs, "sync": measure_sync(folder), "load": os.getloadavg()[0]}


def time_payments(place: Place, most: int) -> dict[str, float]:
    aggregator, ledger = load_release(place.folder / "table.json"), PrivacyLedger(place.ledger)
    votes, cost = Votes.from_labels([[1, 1, 0]] * most), aggregator.privacy_cost(most)
    labels, stream, last = aggregator.release(votes), StreamCursor.of(f"costs{most}").stream, 0

    def debit(number: int) -> None:
        nonlocal last
        names = tuple(f"{most}-{number}-{index}" for index in range(most))
        last = ledger.debit(cost, labels=labels, cursor=StreamCursor(stream, last, names))

    return {
        "draw": milliseconds(lambda _: aggregator.release(votes)),
        "debit": milliseconds(debit, time.perf_counter),
        "debit_processor": milliseconds(lambda number: debit(number + _TIMES)),
    }


def time_questions(path: Path, most: int) -> dict[str, float]:
    asker = Client("load", "0" * 64, questions=10**9)
    file = Questions(path, VoteSchema(2**20, 2, "coin"))

    def commit(act: Callable[[str], object], number: int) -> None:
        with file.transaction():
            for index in range(most):
                act(f"{number}-{index}")

    def keep(name: str) -> None:
        with file.step():
            file.ask(Question(id=name, seconds=1e6), asker, 0)

    def vote(name: str) -> None:
        with file.step():
            file.vote("0-0", 1 + hash(name) % 2**20, 1)

    times = {
        "keep": milliseconds(lambda number: commit(keep, number)),
        "vote": milliseconds(lambda number: commit(vote, number)),
        "settle": milliseconds(lambda number: commit(lambda name: file.settle(End(name, "answered", 1)), number)),
    }
    file.close()
    return times


SERVERS, RACERS = 4, 16


def race(folder: Path, budget: int) -> Row:
    """Ask twice the budget, one question a request; count the answered, refused and paid ones."""
    requests = 2 * budget // SERVERS
    with open_place(folder / "race", "PostgreSQL", budget) as place:
        for number in range(SERVERS):
            place.serve(PORT + number, f"server{number}")
        begin = time.perf_counter()
        with ProcessPoolExecutor(SERVERS) as pool:
            loads = [
                pool.submit(Load(PORT + number, place.token, f"s{number}", RACERS).run, most=requests)
                for number in range(SERVERS)
            ]
            answers = [load.result() for load in loads]
        return {
            "budget": budget,
            "asked": requests * SERVERS,
            "together": 1,
            "servers": SERVERS,
            "answered": sum(answer.answered for answer in answers),
            "refused": sum(answer.refused for answer in answers),
            "paid": place.paid(),
            "debits": place.debits(),
            "seconds": time.perf_counter() - begin,
            "load": os.getloadavg()[0],
        }


SMALL = 100  # entries
QUERY = PrivacyCost("majority of 11", guarantee=PrivacyParams("1e-9", 0))
_DEBITS, _ROUNDS = 40, 3


def _chain(entry: EntryRow, cost: Cost, most: int) -> Iterator[tuple[int, str]]:
    """Yield number and entry hash of each entry from the second on, with the content of the first."""
    rest = f"{entry.time}\x1f{cost.checksum}\x1f1\x1f\x1f\x1f\x1f\x1f-s\x1f".encode()
    entry_hash = entry.entry_hash
    for number in range(2, most + 1):
        entry_hash = hashlib.sha256(b"%s\x1f%d\x1f%s" % (entry_hash.encode(), number, rest)).hexdigest()
        yield number, entry_hash


_WRITE = "INSERT INTO entries VALUES (?, ?, 1, 1, '', '', '', '', '-s', '', ?, '', '', NULL)"


def build(path: Path, entries: int) -> None:
    """Write a ledger of ``entries`` entries of one question: one debit by the ledger, the others chained to it."""
    PrivacyLedger.create(path, PrivacyParams(1)).debit(QUERY)
    with SQLiteStore(str(path), timeout=60.0).transaction(write=True) as database:
        transaction = Transaction(database)
        (cost,), first = transaction.cost_rows.values(), next(transaction.read_entries())
        rows = ((number, first.time, entry_hash) for number, entry_hash in _chain(first, cost, entries))
        database.connection.executemany(_WRITE, rows)
        (last,) = transaction.read_entries(entries)
        cost = cost._replace(total=entries)
        transaction.put_cost(cost)
        transaction.put_state(State(entries, "").add_checksum(last.entry_hash, [cost]))


def compare_ledgers(folder: Path, entries: int) -> Row:
    """Debit from both ledgers in turn; the ratio is the median of those of three rounds."""
    begin = time.perf_counter()
    paths = [folder / "small.sqlite", folder / "big.sqlite"]
    for path, most in zip(paths, (SMALL, entries), strict=True):
        build(path, most)
    build_seconds, begin = time.perf_counter() - begin, time.perf_counter()
    ledgers = [PrivacyLedger(path) for path in paths]
    open_seconds, rounds = time.perf_counter() - begin, []
    for _ in range(_ROUNDS):
        pair: tuple[list[float], list[float]] = ([], [])
        for _ in range(_DEBITS):
            for ledger, times in zip(ledgers, pair, strict=True):
                start = time.perf_counter()
                ledger.debit(QUERY)
                times.append(time.perf_counter() - start)
        rounds.append([1000 * median(times) for times in pair])
    return {
        "small": SMALL,
        "entries": entries,
        "gigabytes": paths[1].stat().st_size / 1e9,
        "built_seconds": build_seconds,
        "opened_seconds": open_seconds,
        "small_milliseconds": median(pair[0] for pair in rounds),
        "big_milliseconds": median(pair[1] for pair in rounds),
        "ratio": median(pair[1] / pair[0] for pair in rounds),
        "load": os.getloadavg()[0],
    }


ASKERS, SEED = 4, 20
_LONGEST_LIFE = 0.25  # seconds
_VICTIMS = {"SQLite": ("server", "client"), "PostgreSQL": ("server", "client", "PostgreSQL")}
Labels = list[tuple[str, int]]  # ids and labels


def kills(folder: Path, number: int) -> Iterator[Row]:
    """Kill ``number`` processes of each store, in turn, and check every id that was asked."""
    for store in STORES:
        yield kills_on(folder / f"kills{store}", store, number)


def kills_on(folder: Path, store: str, number: int, port: int = PORT) -> Row:
    with open_place(folder, store, 10**7) as place:
        begin = time.perf_counter()
        results, victims = _kill(place.serve(port), store, number)
        return {"store": store, "kills": number, "victims": victims, **_check_ids(place.serve(port), results)} | {
            "seconds": time.perf_counter() - begin,
            "load": os.getloadavg()[0],
        }


def _kill(server: Server, store: str, most: int) -> tuple[list[tuple[int, Labels]], dict[str, int]]:
    place, stop, dice = server.place, threading.Event(), random.Random(SEED)  # noqa: S311 (repeated)
    victims: list[str] = []
    with ThreadPoolExecutor(ASKERS) as pool:
        asking = [pool.submit(_ask, server, number, stop) for number in range(ASKERS)]
        try:
            for number in range(most):
                victims.append(_VICTIMS[store][number % len(_VICTIMS[store])])
                time.sleep(dice.uniform(0.02, _LONGEST_LIFE))
                if victims[-1] == "server":
                    server.kill()
                    server.start()
                elif victims[-1] == "client":
                    _kill_client(server, f"dead{number}", dice.uniform(0.02, _LONGEST_LIFE))
                elif place.postgres is not None:
                    place.postgres.stop()
                    place.postgres.start(AS_INSTALLED)
        finally:
            stop.set()
        results = [client.result() for client in asking]
    server.kill()
    return results, dict(Counter(victims))


def _ask(server: Server, number: int, stop: threading.Event) -> tuple[int, Labels]:
    """Ask question after question, each until it has its label, and old ones again; return all labels."""
    dice, asked, labels = random.Random(SEED + number), 0, list[tuple[str, int]]()  # noqa: S311 (repeated)
    with ServeClient(f"http://127.0.0.1:{server.port}", server.place.token, attempts=1, timeout=5.0) as client:
        while not stop.is_set():
            asked += 1
            rows = [{"id": f"a{number}-{each}", "votes": [1, 1, 0]} for each in {asked, dice.randint(1, asked)}]
            while not stop.is_set():
                try:
                    answers = client.ask(rows)
                    labels += [(one["id"], one["label"]) for one in answers if one["state"] == "answered"]
                    break
                except (httpx.TransportError, ServerRefusedError):
                    time.sleep(0.02)
    return asked, labels


def _kill_client(server: Server, name: str, seconds: float) -> None:
    words = f"from tests.load.processes import Load; Load({server.port}, '{server.place.token}', '{name}', 4).run(60)"
    with subprocess.Popen([sys.executable, "-c", words], stderr=subprocess.DEVNULL) as client:
        time.sleep(0.5 + seconds)
        client.kill()


def _check_ids(server: Server, results: Sequence[tuple[int, Labels]]) -> Row:
    place = server.place
    paid = Counter(name for entry in PrivacyLedger(place.ledger).entries() for name in entry.questions)
    labels: dict[str, set[int]] = {}
    for _, answers in results:
        for name, label in answers:
            labels.setdefault(name, set()).add(label)
    lost = 0
    with ServeClient(f"http://127.0.0.1:{server.port}", place.token) as client:
        for name in paid:
            row = client.read(name, wait=30)
            lost += row["state"] != "answered"
            labels.setdefault(name, set()).add(row.get("label", -1))
    return {
        "asked": sum(asked for asked, _ in results),
        "answers": sum(len(answers) for _, answers in results),
        "paid": len(paid),
        "paid_twice": sum(times > 1 for times in paid.values()),
        "two_labels": sum(len(each) > 1 for each in labels.values()),
        "unpaid": sum(name not in paid for name in labels),
        "lost": lost,
    }


PARTS = 12
_RATE = {"SQLite": 250.0, "PostgreSQL": 400.0}  # questions a second


def soak(folder: Path, seconds: float) -> Iterator[Row]:
    """Ask at a fixed rate, and note the memory a dozen times: first after a minute, or what there is."""
    for store in STORES:
        with open_place(folder / f"soak{store}", store, 10**7) as place:
            server, megabytes, answered = place.serve(PORT), [], 0
            times: list[float] = []
            for part in range(PARTS + 1):
                load = Load(PORT, place.token, f"part{part}", gap=1 / _RATE[store])
                answers = load.run(seconds / PARTS)
                megabytes.append(server.status()["megabytes"])
                answered, times = answered + answers.answered, times + answers.times
            yield {
                "store": store,
                "minutes": seconds * (PARTS + 1) / PARTS / 60,
                "rate": _RATE[store],
                "answered": answered,
                "p99_milliseconds": 1000 * sorted(times)[int(0.99 * len(times))],
                "begin_megabytes": megabytes[0],
                "end_megabytes": megabytes[-1],
                "megabytes": megabytes,
                "load": os.getloadavg()[0],
            }


FASTEST = {"SQLite": 500, "PostgreSQL": 1000}  # answers a second, the aim
SLOWEST = 50.0  # milliseconds of 99 of 100 answers, the aim


def page(data: dict[str, Any]) -> str:
    race, long, killed = data["race"], data["long"], data["kills"]["stores"]
    for row in data["speed"]["stores"]:
        row["together"], row["aim"] = row["paid"] / row["debits"], FASTEST[row["store"]]
        row["is_fast"] = row["answers_a_second"] >= row["aim"]
        row["is_prompt"] = row["p99_milliseconds"] < SLOWEST
    for row in killed:
        row["victims_words"] = ", ".join(f"{number} of {name}" for name, number in row["victims"].items())
    for row in data["soak"]["stores"]:
        row["got"] = row["answered"] / row["minutes"] / 60
        row["grown"] = row["end_megabytes"] / row["begin_megabytes"] - 1
    long["opened_milliseconds"] = 1000 * long["opened_seconds"]
    long["medians"] = long["big_milliseconds"] / long["small_milliseconds"]
    paid_all = race["paid"] == race["answered"] == race["budget"]
    faults = sum(row["two_labels"] + row["unpaid"] + row["paid_twice"] + row["lost"] for row in killed)
    holds = {
        "race": paid_all and race["refused"] == race["asked"] - race["budget"],
        "long": max(long["medians"], long["ratio"]) <= 1.2,
        "kills": faults == 0,
        "soak": max(row["grown"] for row in data["soak"]["stores"]) < 0.05,
    }
    facts: Row = {name: sum(row[name] for row in killed) for name in ("kills", "asked")}
    facts |= {"faults": faults, "grown": ", ".join(f"{row['grown']:+.1%}" for row in data["soak"]["stores"])}
    return pages.fill_template(NAME, {"found": facts, "holds": holds, "slowest": SLOWEST, "many": MANY}, data)


if __name__ == "__main__":
    sys.exit(run(main))
