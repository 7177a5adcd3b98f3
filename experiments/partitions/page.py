"""The page about releases of Parquet files, written from the numbers of a run and nothing else."""

from experiments.pages import Claim, Row, claims_table, filled

MANY_ROWS = 10**8


def page(data: Row) -> str:
    """Fill the page from the machine, how much was released, and what every release took."""
    rows, votes = data["rows"], data["rows"] * data["voters"] / 1e6
    measured = [
        row
        | {
            "workers": row["workers"] or "none",
            "rows_a_second": rows / seconds_of(row),
            "votes_a_second": votes / seconds_of(row),
            "votes_a_processor_second": votes / row["processor_seconds"],
            "busy": row["processor_seconds"] / seconds_of(row),
            "minutes_for_many": MANY_ROWS * seconds_of(row) / rows / 60.0,
        }
        for row in data["measured"]
    ]
    return filled("partitions", {"claims": claims_table(decide(data)), "measured": measured}, data)


def decide(data: Row) -> list[Claim]:
    """Decide what the page says."""
    one, two = ([seconds_of(row) for row in data["measured"] if row["workers"] == workers] for workers in (1, 2))
    speeds = [alone / both for alone, both in zip(one, two, strict=True)]
    whole = data["rows"] * data["voters"] / 1e6
    most = max(row["peak_megabytes"] for row in data["measured"])
    return [
        Claim(
            "two workers are at least 1.6 times as fast as one",
            ", ".join(f"{speed:.2f} times" for speed in speeds),
            min(speeds) >= 1.6,
        ),
        Claim(
            "no process takes 512 MB of memory",
            f"at most {most:.1f} MB; the votes would take {whole:,.1f} MB at a byte each",
            most < 512,
        ),
    ]


def seconds_of(row: Row) -> float:
    """Return the seconds of both passes of a release."""
    return float(row["survey_seconds"] + row["draw_seconds"])
