"""The limits of bodies, queries and headers."""

import math
from typing import Any

import pytest
from pydantic import TypeAdapter

pytest.importorskip("starlette", reason="needs the extra serve")
from darrm.serve import app, requests

YEAR = 366 * 86400.0
QUESTIONS: TypeAdapter[Any] = TypeAdapter(requests.Questions)


@pytest.mark.parametrize(
    ("allowed", "refused"),
    [
        ({"seconds": YEAR}, {"seconds": YEAR + 1}),
        ({"seconds": 1e-9}, {"seconds": 0.0}),
        ({"seconds": 60}, {"seconds": "60"}),
        ({"counts": []}, {"seconds": math.nan}),
        ({"votes": [1], "text": "x" * 2000}, {"votes": [1], "text": "x" * 2001}),
        ({"votes": [1], "id": "x" * 100}, {"votes": [1], "id": "x" * 101}),
        ({"votes": [1]}, {"votes": [1], "more": 1}),
        ({"counts": [1]}, {"counts": [1], "votes": [1]}),
        ({"seconds": 1.0}, {"counts": [1], "seconds": 1.0}),
        ({"votes": []}, {}),
    ],
)
def test_a_question_has_limits(allowed: dict[str, Any], refused: dict[str, Any]) -> None:
    requests.Question(**{"id": "q", **allowed})
    with pytest.raises(ValueError, match="Question"):
        requests.Question(**{"id": "q", **refused})


@pytest.mark.parametrize(("wait", "is_allowed"), [(0, True), (60, True), (60.5, False), (-0.1, False), ("inf", False)])
def test_a_wait_has_limits(wait: Any, is_allowed: bool) -> None:
    if is_allowed:
        assert requests.Wait(wait=wait).wait == wait
    else:
        with pytest.raises(ValueError, match="wait"):
            requests.Wait(wait=wait)
    assert requests.Wait().wait == 0.0


@pytest.mark.parametrize(("count", "is_allowed"), [(0, False), (1, True), (1000, True), (1001, False)])
def test_a_request_has_one_to_a_thousand_questions(count: int, is_allowed: bool) -> None:
    questions = [{"id": "q", "votes": [1]}] * count
    if is_allowed:
        assert len(QUESTIONS.validate_python(questions)) == count
    else:
        with pytest.raises(ValueError, match=r"at (least 1 item|most 1000 items)"):
            QUESTIONS.validate_python(questions)


@pytest.mark.parametrize(("length", "is_refused"), [(2**14, False), (2**14 + 1, True)])
def test_a_head_is_as_long_as_its_address_and_headers_together(length: int, is_refused: bool) -> None:
    scope = {"raw_path": b"/ask", "query_string": b"a=1", "headers": [(b"host", b"a"), (b"x", b"y" * (length - 13))]}
    refusal = app._refuse_head(scope)
    assert (refusal is not None) == is_refused
    assert refusal is None or refusal.status_code == 431
