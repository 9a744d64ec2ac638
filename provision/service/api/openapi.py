"""The OpenAPI description of the HTTP interface, made from the operations and the pydantic models."""

import inspect
import re
from collections.abc import Iterable
from functools import cache
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

from provision import Instance, Plan, __version__
from provision.service.api import instances, jobs  # noqa: F401 - they state the operations
from provision.service.api.operation import OPERATIONS, Operation, Service, operation
from provision.service.messages import Problem

REFERENCE = "#/components/schemas/{model}"
Keys = dict[tuple[int, str], Any]


@operation("GET", "/api/v1/openapi.json")
def get_description(service: Service) -> dict[str, Any]:
    """This description."""
    return description()


@cache
def description() -> dict[str, Any]:
    """The description, in version 3.1 of OpenAPI."""
    schemas, components = _schemas(OPERATIONS)
    paths: dict[str, Any] = {}
    for index, one in enumerate(OPERATIONS):
        parts = {use: schemas.get((index, use)) for use in ("body", "answer")}
        paths.setdefault(one.path, {})[one.method.lower()] = _operation(one, **parts)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "provision", "version": __version__,
            "description": "How few GPUs, partitioned how, for DNN inference under SLOs: plans with proofs.",
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}, {}],
    }


def _schemas(operations: Iterable[Operation]) -> tuple[Keys, dict[str, Any]]:
    """The pair (schemas by number and use of the operation, the named schemas to which these refer)."""
    types: list[tuple[Any, Any, Any]] = []
    for index, one in enumerate(operations):
        if one.body is not None:
            types.append(((index, "body"), "validation", TypeAdapter(one.body)))
        if one.answer is not None:
            types.append(((index, "answer"), "serialization", TypeAdapter(one.answer)))
    named = [((kind.__name__, "named"), "validation", TypeAdapter(kind)) for kind in (Problem, Instance, Plan)]
    adapters = [(key, mode, adapter) for key, mode, adapter in (*types, *named)]
    found, definitions = TypeAdapter.json_schemas(
        adapters, ref_template=REFERENCE, schema_generator=GenerateJsonSchema
    )
    components = dict(definitions.get("$defs", {}))
    for kind in (Problem, Instance, Plan):
        schema = found[((kind.__name__, "named"), "validation")]
        if "$ref" not in schema:
            components[kind.__name__] = schema
    return {key: schema for (key, _), schema in found.items() if isinstance(key[0], int)}, components


def _operation(operation: Operation, body: Any, answer: Any) -> dict[str, Any]:
    summary = inspect.cleandoc(operation.handler.__doc__ or "").removesuffix(".")
    success: dict[str, Any] = {"description": summary}
    if operation.media:
        success["content"] = {operation.media: {"schema": answer or {"type": "string"}}}
    made: dict[str, Any] = {
        "operationId": operation.name,
        "summary": summary,
        "responses": {str(operation.status): success}
        | {str(status): _problem(status) for status in (401, *operation.problems)},
    }
    if parameters := [*_path_parameters(operation.path), *_query_parameters(operation)]:
        made["parameters"] = parameters
    if body is not None:
        made["requestBody"] = {
            "required": True,
            "content": {kind: {"schema": body} for kind in ("application/json", "application/yaml")},
        }
    return made


def _path_parameters(path: str) -> list[dict[str, Any]]:
    names = re.findall(r"\{(\w+)\}", path)
    return [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names]


def _query_parameters(operation: Operation) -> list[dict[str, Any]]:
    schemas = {name: TypeAdapter(kind).json_schema() for name, kind in operation.query.items()}
    return [{"name": name, "in": "query", "description": schema.pop("description"), "schema": schema}
            for name, schema in schemas.items()]


def _problem(status: int) -> dict[str, Any]:
    reference = {"$ref": REFERENCE.format(model="Problem")}
    return {"description": f"Problem {status}", "content": {"application/problem+json": {"schema": reference}}}
