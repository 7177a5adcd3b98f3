"""Bodies and queries of the endpoints, validated by pydantic, and their OpenAPI description.

Messages name the field and what it must be, never its value: a value may be a vote.
"""

import re
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Annotated, Generic, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator
from starlette.responses import Response

from darrm.ledger.ledger import LONGEST_ID, check_id
from darrm.serve.clients import Client
from darrm.util import checks
from darrm.util.files import Json

LONGEST_TEXT = 2000
LONGEST_WAIT = 366 * 86400.0
LONGEST_POLL = 60.0
MOST_AT_ONCE = 1000  # questions of one request
Sent = TypeVar("Sent")
_MODE: Literal["validation"] = "validation"


class _Body(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)


class Question(_Body):
    """A question with the votes or the counts of all voters, or open to voters until a deadline."""

    id: str = Field(max_length=LONGEST_ID)
    text: str = Field(default="", max_length=LONGEST_TEXT)
    seconds: float | None = Field(default=None, gt=0, le=LONGEST_WAIT, description="until the deadline for votes")
    votes: list[object] | None = Field(default=None, description="the vote of each voter, null for none")
    counts: list[object] | None = Field(default=None, description="the number of voters for each class")

    @model_validator(mode="after")
    def _check(self) -> Self:
        check_id("id", self.id)
        if self.id in {".", ".."}:  # HTTP clients remove them from addresses
            checks.fail("id", self.id, "neither . nor ..")
        if sum(value is not None for value in (self.seconds, self.votes, self.counts)) != 1:
            checks.fail("a question", self.id, "with one of seconds (until its deadline), votes and counts")
        return self


class Vote(_Body):
    """The vote of a voter: a class, or with open classes a text."""

    vote: object


class Wait(BaseModel):
    """How long to wait for the end of a question."""

    wait: float = Field(default=0.0, ge=0, le=LONGEST_POLL, allow_inf_nan=False, description="seconds")


class Filter(BaseModel):
    """Which questions to list."""

    open: Literal["0", "1"] | None = Field(default=None, description="1: only open ones, 0: only the others")


Questions = Annotated[list[Question], Field(min_length=1, max_length=MOST_AT_ONCE)]
NOTHING: TypeAdapter[object] = TypeAdapter(object)


@dataclass(frozen=True)
class Endpoint(Generic[Sent]):
    """An endpoint for known clients: its handler gets the client, the validated input, and the id in the path."""

    method: str
    path: str
    handler: Callable[[Client, Sent, str], Awaitable[Response]]
    sent: TypeAdapter[Sent]

    @property
    def summary(self) -> str:
        return " ".join((self.handler.__doc__ or "").split())

    @property
    def has_body(self) -> bool:
        return self.method != "GET"

    def validate(self, value: Json) -> Sent:
        try:
            return self.sent.validate_python(value)
        except ValidationError as error:
            raise ValueError(_describe_error(error)) from None


def _describe_error(error: ValidationError) -> str:
    first_error = error.errors(include_url=False, include_context=False, include_input=False)[0]
    if first_error["type"] == "extra_forbidden":  # its name may be a vote
        return "the body has a field that the endpoint does not know: see /docs"
    name = ".".join(map(str, first_error["loc"])) or "the body"
    if first_error["type"] == "value_error":
        return first_error["msg"].removeprefix("Value error, ")
    message = re.sub(r"^\w+ should", "must", first_error["msg"])
    return f"{name} {message}" if message.startswith("must") else f"{name}: {message}"


def openapi(endpoints: Iterable[Endpoint[Json]], public: dict[str, str]) -> dict[str, Json]:
    endpoint_list = [*endpoints]
    inputs = [(number, _MODE, endpoint.sent) for number, endpoint in enumerate(endpoint_list)]
    schemas, definitions = TypeAdapter.json_schemas(inputs, ref_template="#/components/schemas/{model}")
    paths: dict[str, Json] = {path: {"get": _describe_operation(summary)} for path, summary in public.items()}
    for number, endpoint in enumerate(endpoint_list):
        operation = _describe_operation(endpoint.summary) | {"security": [{"token": []}]}
        operation["responses"]["4XX"] = {"description": "an object with error, a message"}
        schema = schemas[number, _MODE]
        parameters = [{"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}]
        parameters = parameters if "{id}" in endpoint.path else []
        if endpoint.has_body:
            operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
        elif "$ref" in schema:
            fields = definitions["$defs"].pop(schema["$ref"].rpartition("/")[2])["properties"]
            parameters += [{"name": name, "in": "query", "schema": field} for name, field in fields.items()]
        if parameters:
            operation["parameters"] = parameters
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = operation
    security = {"token": {"type": "http", "scheme": "bearer"}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "darrm serve", "version": "1"},
        "paths": paths,
        "components": {"securitySchemes": security, "schemas": definitions["$defs"]},
    }


def _describe_operation(summary: str) -> dict[str, Json]:
    return {"summary": summary, "responses": {"200": {"description": "as the summary says"}}}
