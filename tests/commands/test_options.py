"""The shared options: one kind of voters, exact numbers, pairs as one word or two, files that are not overwritten."""

from fractions import Fraction
from pathlib import Path
from typing import Any

import click
import pytest

from darrm import PrivacyParams, Problem, Voters, certify
from darrm.commands.command import Group, command, run_command
from darrm.commands.options import Output, VoterOptions, argument, option, output_options, total_option, voters_options
from darrm.commands.values import integer, real
from darrm.majority import baselines
from darrm.priors import parse
from darrm.privacy import exact_number
from darrm.show.__main__ import show
from darrm.verify.gamma import budget
from tests.doors import one_error
from tests.verify.support import gamma_of, worst_of

SEEN: dict[str, Any] = {}


@command("asked", about="A command with voters.", first=("--K", "--total"))
@voters_options()
@total_option(required=False)
@output_options(output="write it")
def asked(*, who: VoterOptions, total: PrivacyParams | None, output: Output) -> None:
    SEEN.update(voters=who.voters(), total=total, output=output)


def read(words: str) -> Any:
    SEEN.clear()
    assert run_command(asked, words.split()) == 0
    return SEEN["voters"]


@pytest.mark.parametrize(
    ("words", "voters"),
    [
        ("--K 7 --epsilon 0.1 --each-delta 1e-5", Voters(7, PrivacyParams("0.1", "1e-5"))),
        ("--n-voters 7 --non-private --models", Voters(7, PrivacyParams("inf"), models=True)),
        ("--epsilon 0.1,0.5 --each-delta 0", Voters.of([PrivacyParams("0.1"), PrivacyParams("0.5")])),
        ("--epsilon inf,0.1 --each-delta 0", Voters.of([PrivacyParams("inf"), PrivacyParams("0.1")])),
        ("--K 9 --sampled 0.004", Voters.non_private(9, 1, sampled="0.004")),
    ],
)
def test_who_votes(words: str, voters: Voters) -> None:
    assert read(words) == voters


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("--K 7", "Write --epsilon and --each-delta of each, or --non-private"),
        ("--K 7 --epsilon 0.1", "--each-delta is missing"),
        ("--K 7 --each-delta 0", "Write --epsilon"),
        ("--epsilon 0.1 --non-private", "--non-private and --epsilon contradict each other"),
        ("--sampled 0.1 --non-private", "contradict each other"),
        ("--sampled 0.1 --models", "--sampled and --models contradict each other"),
        ("--non-private --records-each 2", "--records-each needs --sampled RATE"),
        ("--sampled tenth:0.1", "a probability like 0.004, or fixed:0.004"),
        ("--K 7 --sampled 0.1 --overlap 2", "--overlap must be 1 with --sampled"),
        ("--voters plain", "voters that are not private are --non-private"),
        ("--K 3 --epsilon 0.1,0.5 --each-delta 0", "K = 3 where voters differ"),
    ],
)
def test_nothing_is_promised_by_default_and_one_kind_is_named(
    words: str, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(asked, words.split()) == 2
    one_error(line, capsys)


@pytest.mark.parametrize(
    "words", ["--total 2,1e-5", "--total 2 1e-5", "--total 2, 1e-5", "--budget 2 1e-5", "--total=2,1e-5"]
)
def test_a_pair_is_one_word_or_two_and_exact(words: str) -> None:
    read(f"--K 3 --non-private {words}")
    assert SEEN["total"] == PrivacyParams("2", "1e-5")
    assert read(f"--K 3 {words} --non-private").K == 3


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("--total 2 x", "--total must be EPS,DELTA"),
        ("--total 2 1e-5 1e-5", "Unexpected argument '1e-5'"),
        ("--total 2,1e-5 1e-5", "Unexpected argument '1e-5'"),
    ],
)
def test_words_that_are_no_pair_are_refused(words: str, line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(asked, ["--K", "3", "--non-private", *words.split()]) == 2
    one_error(line, capsys)


def test_the_output_is_checked_before_the_work(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old = tmp_path / "old.json"
    old.write_text("mine")
    words = ["--K", "3", "--non-private", "-o", str(old)]
    SEEN.clear()
    assert run_command(asked, words) == 2
    one_error("--force overwrites it", capsys)
    assert not SEEN
    assert run_command(asked, [*words, "--force", "--json", "-q"]) == 0
    assert SEEN["output"] == Output(path=old, force=True, format="json", quiet=True)


def test_the_help_fits_80_columns_and_begins_with_what_matters(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(asked, ["--help"]) == 0
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= 80
    assert text.index("Main options:\n  --K INT") < text.index("--total EPS,DELTA") < text.index("Who votes:")
    assert "--teachers" not in text  # a spelling that works, and one too many to read
    assert text.count("--K ") == 1


@command("first", about="The first.", short="the first of two")
@argument("words", nargs=-1, about="any words")
def first(*, words: tuple[str, ...]) -> int:
    click.echo(" ".join(words))
    return len(words)


@command("second", about="The second.")
@option("--needed", required=True, metavar="INT", help="a number")
def second(*, needed: str) -> None:
    click.echo(needed)


@pytest.mark.parametrize(
    ("words", "status", "out"), [("first a b", 2, "a b\n"), ("a b c", 3, "a b c\n"), ("second --needed 4", 0, "4\n")]
)
def test_a_group_runs_what_is_named_or_its_default(
    words: str, status: int, out: str, capsys: pytest.CaptureFixture[str]
) -> None:
    group = Group("group", default_command="first")
    group.add_command(first)
    group.add_command(second)
    assert run_command(group, words.split()) == status
    assert capsys.readouterr().out == out


def test_a_group_without_a_default_suggests(capsys: pytest.CaptureFixture[str]) -> None:
    group = Group("group", help="Two commands.")
    group.add_command(first)
    group.add_command(second)
    assert run_command(group, []) == 0
    listed = capsys.readouterr().out
    assert listed.index("  first   the first of two") < listed.index("  second  The second.")
    assert run_command(group, ["secnd"]) == 2
    one_error("There is no command 'secnd' (did you mean second?)", capsys)
    assert run_command(group, ["second"]) == 2
    one_error("--needed INT is required: a number. See `darrm group second --help`.", capsys)
    assert run_command(group, ["second", "--neded", "3"]) == 2
    one_error("There is no option --neded (did you mean --needed?). See `darrm group second --help`.", capsys)
    assert run_command(group, ["second", "--needed"]) == 2
    one_error("requires an argument. See `darrm group second --help`.", capsys)


@pytest.mark.parametrize("words", [["\0"], ["--output", "a\0b"]])
def test_a_word_with_a_nul_character_is_no_crash(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(show, words) == 2
    one_error("A word of the command holds a NUL character. See `darrm show --help`.", capsys)


# numbers are read as they are typed


@pytest.mark.parametrize("text", ["１２", "1_0", "０.１", "٣", "1e1_0"])
def test_other_digits_are_no_digits(text: str) -> None:
    for parsed in (
        lambda: integer("--K", text, 1),
        lambda: real("--gap", text),
        lambda: exact_number("epsilon", text),
        lambda: PrivacyParams(text),
        lambda: PrivacyParams(1, text),
        lambda: parse(f"point:{text}"),
    ):
        with pytest.raises(ValueError, match="must be"):
            parsed()


@pytest.mark.parametrize("delta", [1e-5, 0.1, 1e-3, 1e-9])
@pytest.mark.parametrize("m", [1, 2, 3])
def test_the_papers_delta_in_floats_is_a_target(delta: float, m: int) -> None:
    """δ = 1 − (1 − Δ)^m and m·ε, also a rounding out of range: proved is the target as it is."""
    voters = Voters(3, PrivacyParams(0.1, delta))
    target = PrivacyParams(m * 0.1, 1 - (1 - delta) ** m)
    table = certify(Problem(voters, target), baselines.double_subsampling(Problem.from_allowance(voters, m)))
    worst = worst_of(gamma_of(table.problem, table.gamma), target.exact_epsilon)
    assert worst.upper <= budget(target.exact_epsilon, target.exact_delta).lower
    with pytest.raises(ValueError, match="a majority cannot fail less often than one voter"):
        Problem(voters, PrivacyParams(Fraction(1, 10), voters.each.exact_delta / 2))
