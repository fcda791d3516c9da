#!/usr/bin/env python3
"""Validates JSON with the schemas of docs/schemas, by the package jsonschema.

schemas.py check FILE[=SCHEMA] ..   every file must be valid by the schema of its format, or by that
                                    named; "written": and must name it
schemas.py page PAGE                every key of every schema stands in the section of its format
schemas.py variants FILE ..         damaged variants of each file, one a line: the number of the
                                    file, 1 or 0 (valid by its schema or not), what was done, and
                                    the JSON, with tabs between; without COPSE_TEST_ALL=1 each sixth

Exit status 77: jsonschema is missing.
"""
import json
import os
import pathlib
import re
import sys

try:
    from jsonschema import Draft202012Validator
except ImportError:
    sys.exit(77)

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "docs" / "schemas"


def load(name):
    return json.loads((FOLDER / f"{name}.json").read_text())


def schema_name(document):
    """ "copse-schedule/1" has docs/schemas/schedule.json."""
    return document["format"].split("/")[0].removeprefix("copse-")


def check(arguments):
    for name in sorted(p.stem for p in FOLDER.glob("*.json")):
        Draft202012Validator.check_schema(load(name))
        assert load(name)["$id"] == f"urn:copse:schema:{name}:1", name
    failed = 0
    for argument in arguments:
        path, _, schema = argument.partition("=")
        document = json.loads(pathlib.Path(path).read_text())
        name = schema if schema not in ("", "written") else schema_name(document)
        if document.get("$schema", load(name)["$id"]) != load(name)["$id"]:
            print(f"{path}: $schema is {document['$schema']}, not that of {name}")
            failed = 1
        if schema == "written" and "$schema" not in document:
            print(f"{path}: no $schema")
            failed = 1
        listed = load(name).get("properties", document)
        for key in sorted(set(document) - set(listed)) if name.startswith("report-") else []:
            print(f"{path}: {name} lacks the key {key}")
            failed = 1
        for error in Draft202012Validator(load(name)).iter_errors(document):
            print(f"{path}: {name}: {error.json_path}: {error.message[:300]}")
            failed = 1
    return failed


def keys_of(schema):
    """Of all its objects; a key with the schema false may not be there."""
    if isinstance(schema, dict):
        properties = schema.get("properties")
        if isinstance(properties, dict):
            yield from (key for key, value in properties.items() if value is not False)
        for value in schema.values():
            yield from keys_of(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from keys_of(value)


def check_page(path):
    failed = 0
    sections = re.split(r"^## ", pathlib.Path(path).read_text(), flags=re.MULTILINE)
    for name in sorted(p.stem for p in FOLDER.glob("*.json")):
        heading = f"`copse-{name}/1`"
        if name.startswith("report-"):
            if f"schemas/{name}.json" not in sections[-1]:
                print(f"{path}: the last section has no link to {name}")
                failed = 1
            keys = pathlib.Path(path).with_name("json.md").read_text()
            for key in load(name)["properties"]:
                if f"`{key}`" not in keys:
                    print(f"json.md: no `{key}`, a key of {name}")
                    failed = 1
            continue
        section = next((s for s in sections if heading in s.split("\n")[0]), None)
        if section is None:
            print(f"{path}: no section {heading}")
            failed = 1
            continue
        for key in sorted(set(keys_of(load(name)))):
            if f"`{key}`" not in section:
                print(f"{path}: {heading} lacks `{key}`")
                failed = 1
    return failed


REPLACEMENTS = [None, True, -1, 0.5, "x", [], {}]


def places(value, path=()):
    """The paths of all objects and arrays; of an array's entries the first and the last."""
    yield path, value
    if isinstance(value, dict):
        for key, member in value.items():
            yield from places(member, path + (key,))
    elif isinstance(value, list) and value:
        for i in sorted({0, len(value) - 1}):
            yield from places(value[i], path + (i,))


def variants(document):
    """Yields what is wrong with the document; it is mended before the next. Long ones get fewer."""
    replacements = REPLACEMENTS if len(json.dumps(document)) < 1500 else [None, -1, "x"]
    for path, value in list(places(document)):
        where = "/".join(map(str, path))
        if isinstance(value, dict):
            value["unheard_of"] = 1
            yield f"{where}: an unknown key"
            del value["unheard_of"]
            for key in [k for k in value if len(k) > 3 and k[0] != "$"]:
                misspelt = key[:1] + key[2] + key[1] + key[3:]
                if misspelt != key:
                    value[misspelt] = value.pop(key)
                    yield f"{where}/{key}: misspelt"
                    value[key] = value.pop(misspelt)
        if not path:
            continue
        holder = document
        for step in path[:-1]:
            holder = holder[step]
        for new in replacements:
            holder[path[-1]] = new
            yield f"{where}: {json.dumps(new)}"
            holder[path[-1]] = value
        if isinstance(holder, dict):
            del holder[path[-1]]
            yield f"{where}: left out"
            holder[path[-1]] = value


def print_variants(paths):
    one_in = 1 if os.environ.get("COPSE_TEST_ALL", "0") not in ("", "0") else 6
    for number, path in enumerate(paths):
        document = json.loads(pathlib.Path(path).read_text())
        validator = Draft202012Validator(load(schema_name(document)))
        for at, what in enumerate(variants(document)):
            if at % one_in == 0:
                print(number, int(validator.is_valid(document)), what, json.dumps(document), sep="\t")


if __name__ == "__main__":
    if sys.argv[1] == "check":
        sys.exit(check(sys.argv[2:]))
    if sys.argv[1] == "page":
        sys.exit(check_page(sys.argv[2]))
    print_variants(sys.argv[2:])
