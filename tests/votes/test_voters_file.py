"""Voters that differ, on the command line: a file, lists, and what is refused in one line."""

import re
from pathlib import Path

import pytest

from darrm.commands.command_line import run
from darrm.commands.values import read_voters
from darrm.optimize.__main__ import main
from darrm.optimize.report import fit_and_report
from darrm.privacy import PrivacyParams
from darrm.problem import Voters
from darrm.table.table import Table
from tests.doors import refused

HEAD = "name,epsilon,delta\n"


def optimize(*arguments: str) -> None:
    assert run(lambda: main([*arguments, "--quiet"])) == 0


def test_a_file_and_lists_describe_the_same_voters(tmp_path: Path) -> None:
    file, tables = tmp_path / "voters.CSV", (tmp_path / "a.json", tmp_path / "b.json")
    file.write_text('\ufeffName, epsilon ,delta\r\nnorth,0.1,1e-6\r\n"south, upper",0.5,0\r\neast, 0.1,1e-6\r\n')
    lists = ("--epsilon", "0.1,0.1,0.5", "--each-delta", "1e-6,1e-6,0")
    for table, flags in zip(tables, (("--voters", str(file)), lists), strict=True):
        optimize(*flags, "--target", "0.4,1e-5", "--output", str(table))
    assert tables[0].read_bytes() == tables[1].read_bytes()
    voters = [PrivacyParams("0.1", "1e-6"), PrivacyParams("0.1", "1e-6"), PrivacyParams("0.5")]
    assert Table.load(tables[0]).problem.voters == Voters.of(voters)
    assert sorted(map(str, read_voters(file).values())) == sorted(map(str, voters))


def test_a_list_of_equal_voters_is_their_number_and_one_delta_is_for_all(tmp_path: Path) -> None:
    tables = (tmp_path / "a.json", tmp_path / "b.json")
    for table, flags in zip(tables, (("--epsilon", "0.2,0.2,0.2"), ("--epsilon", "0.2", "--K", "3")), strict=True):
        optimize(*flags, "--each-delta", "0", "--m", "2", "--output", str(table))
    assert tables[0].read_bytes() == tables[1].read_bytes()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "line 1 must be name,epsilon,delta"),
        ("name,epsilon\na,1\n", "line 1 must be name,epsilon,delta"),
        (HEAD, "it holds no voter"),
        (HEAD + "a,1\n", "line 2 has 2 fields"),
        (HEAD + "a,1,0\n\nb,2,0\n", "line 3 has 0 fields"),
        (HEAD + "a,1,0\na,2,0\n", "line 3: the name 'a' stands there twice"),
        (HEAD + " ,1,0\n", "line 2: a voter without a name"),
        (HEAD + "a,x,0\n", "line 2: epsilon must be a finite number"),
        (HEAD + "a,1,2\n", "line 2: delta must be in [0, 1)"),
        (HEAD + "a,0,0\nb,1,0\n", "no information"),
        (HEAD + 'a,"1,0\n', "it is no CSV file of voters"),
        ("\udcff", "it is no CSV file of voters"),
    ],
)
def test_a_file_that_holds_no_voters_is_refused(
    content: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "voters.csv"
    file.write_bytes(content.encode("utf-8", "surrogateescape"))
    refused(main, ["--voters", str(file)], message, capsys)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--voters hospitals", "a file that ends in .csv"),
        ("--voters absent.csv", "No such file"),
        ("--epsilon 0.1,0.2 --K 3", "one number, or K = 3 where voters differ"),
        ("--epsilon 0.1,0.2,0.3 --each-delta 0,0", "one Δ, or 3"),
        ("--epsilon 0.1,,0.3", "epsilon must be a finite number"),
        ("--epsilon inf,inf", "must be finite for private voters"),
        ("--epsilon 0.1,inf --m 1", "a mix with non-private voters needs --target"),
        ("--non-private --epsilon 0.1,0.2", "--non-private and --epsilon contradict each other"),
        ("--epsilon 0.1,0.2 --m 1 --shape free", "'monotone' where voters differ"),
        ("--epsilon 0.1,0.2 --m 1 --solver reference", "'production' where voters differ"),
    ],
)
def test_flags_that_contradict_each_other_are_refused(
    arguments: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    refused(main, arguments, message, capsys)


@pytest.mark.slow
def test_too_many_kinds_of_voters_are_rounded_up_with_a_note(capsys: pytest.CaptureFixture[str]) -> None:
    epsilons = ",".join(f"0.{n}" for n in range(10, 25))
    assert run(lambda: main(["--epsilon", epsilons, "--target", "1,1e-4", "--format", "json"])) == 0
    note = capsys.readouterr().err
    assert "15 kinds of voters have more rows than are looked at, so ε and Δ were rounded up" in note
    pattern = r"costs at most (\S+) of the expected error: (\S+) was found, .* monotone .* is below (\S+)\n"
    (figures,) = re.findall(pattern, note)
    cost, error, bound = map(float, figures)
    assert 0.0 < bound < error < 1.3 * bound
    assert cost == pytest.approx(error - bound, abs=2e-4)


def test_voters_that_are_rounded_to_no_privacy_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    voters = [PrivacyParams(f"0.{100 + n % 20}") for n in range(200)] + [PrivacyParams("inf")] * 200
    assert fit_and_report(Voters.of(voters, 100), quiet=False).are_non_private
    assert "ε and Δ were rounded up, 200 voters to no privacy: 400 voters (inf, 0)" in capsys.readouterr().err


@pytest.mark.slow
def test_the_cost_of_rounding_is_noted_for_monotone_functions_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """More than about 120 kinds are rounded to one, and a free γ may err less than any monotone one."""
    file = tmp_path / "many.csv"
    file.write_text(HEAD + "".join(f"v{n},{0.5 + n / 10_000:.4f},0\n" for n in range(131)))
    assert run(lambda: main(["--voters", str(file), "--target", "2,0", "--prior", "common", "--format", "json"])) == 0
    note = capsys.readouterr().err
    assert "were rounded up" in note
    assert "rounding costs" not in note
