"""Recomputed goldens are equal to the stored ones, and the comparison finds each difference."""

import itertools
import json
from typing import Any

import pytest

from tests.goldens.__main__ import differences, main, read, tolerance_of
from tests.goldens.cases import KINDS

QUICK = {"tables": 12, "costs": 16, "labels": 60, "ledgers": 4, "verdicts": 6, "commands": 2, "plans": 1}


@pytest.mark.parametrize("kind", KINDS)
def test_a_sample_is_as_it_was(kind: str) -> None:
    sample = json.loads(json.dumps(dict(itertools.islice(KINDS[kind](), QUICK[kind]))))
    assert len(sample) == QUICK[kind]
    before = {name: read(kind).get(name) for name in sample}
    assert list(differences(before, sample, tolerance_of(kind))) == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_everything_is_as_it_was(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    status = main([kind])
    assert (status, capsys.readouterr().out) == (0, f"{kind}.json: {len(read(kind))} cases, 0 differences\n")


ONE = {"epsilon": 2.0, "bounds": {"pld": 1.0}, "certificate": {"scale": 0.5}, "labels": "0110", "fit": 3, "gap": 2e-14}


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({}, []),
        ({"epsilon": 2.0 + 1e-10}, []),
        ({"epsilon": 2.0 + 1e-8}, ["one: epsilon: was 2.0, is 2.00000001"]),
        ({"gap": 3e-14}, []),
        ({"gap": 1e-9}, ["one: gap: was 2e-14, is 1e-09"]),
        ({"epsilon": "2.0"}, ["one: epsilon: was 2.0, is '2.0'"]),
        ({"certificate": {"scale": 0.5 + 1e-13}}, []),
        ({"certificate": {"scale": 0.5 + 1e-11}}, ["one: certificate/scale: was 0.5, is 0.50000000001"]),
        ({"fit": 4}, ["one: fit: was 3, is 4"]),
        ({"bounds": {"pld": 1.0, "rdp": 2.0}}, ["one: bounds/rdp: was '(nothing)', is 2.0"]),
        ({"bounds": {}}, ["one: bounds/pld: was 1.0, is '(nothing)'", "one: bounds: was '(nothing)', is {}"]),
        ({"labels": "0111"}, ["one: labels: was '0110', is '0111'"]),
        ({"fit": True}, ["one: fit: was 3, is True"]),
        ({"epsilon": float("nan")}, ["one: epsilon: was 2.0, is nan"]),
    ],
)
def test_each_difference_is_named(change: dict[str, Any], found: list[str]) -> None:
    assert list(differences({"one": ONE}, {"one": {**ONE, **change}})) == found


def test_a_case_that_is_gone_or_new_is_a_difference() -> None:
    assert len(list(differences({"one": ONE}, {}))) == 6
    assert list(differences({}, {"two": {"fit": 1}})) == ["two: fit: was '(nothing)', is 1"]


def test_an_unknown_kind_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["nothing"])
    assert "there is no kind nothing: choose from" in capsys.readouterr().err
