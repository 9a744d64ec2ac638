"""What the documents say is so: links lead somewhere, Python runs, commands parse, instances are instances."""

import json
import re
import shlex
import sys
from pathlib import Path

import jsonschema
import pytest
import yaml

import provision
from provision.cli import parser
from provision.commands import VERBS

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
sys.path.insert(0, str(DOCS / "reference"))
import write_pages  # noqa: E402

PAGES = [*sorted(DOCS.glob("*.md")), *(ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "SECURITY"))]
GENERATED = {DOCS / f"reference/{name}.md" for name in ("commands", "files", "python")}
NOTEBOOKS = {f"{path.relative_to(ROOT)}" for path in (ROOT / "examples").glob("*.ipynb")}
LINK = re.compile(r"\]\(([^)#\s]*)(#[^)\s]*)?\)")
BLOCK = re.compile(r"(<!-- not run: .+ -->\n)?```(\w+)\n(.*?)```", re.DOTALL)
MOST_README_LINES, MOST_WORDS = 120, 30_000


def _blocks(language, word=""):
    """The blocks of a language in all pages, with a word in them, that are not marked as not run."""
    return [
        pytest.param(text, id=f"{page.stem}-{at}")
        for page in PAGES for at, (skipped, found, text) in enumerate(BLOCK.findall(page.read_text()))
        if found == language and word in text and not skipped
    ]


def _commands(page):
    """The command lines of a page: indented lines, up to what they are said to do."""
    for line in re.findall(r"^    (provision .+)$", page.read_text(), re.MULTILINE):
        yield from re.split(r"\s{2,}|\s#", line)[0].split(";")


def _anchor(heading):
    return re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower())


def _anchors(text):
    return {_anchor(heading) for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE)}


def test_the_navigation_has_every_page():
    def pages(part):
        return [part] if isinstance(part, str) else [page for one in part for page in pages(_inside(one))]

    def _inside(entry):
        return next(iter(entry.values())) if isinstance(entry, dict) else entry

    named = pages(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"])
    assert {*named} == {f"{one.relative_to(DOCS)}" for one in (*DOCS.glob("*.md"), *GENERATED)} | NOTEBOOKS
    assert len(set(named)) == len(named)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_lead_somewhere(page):
    for target, anchor in LINK.findall(page.read_text()):
        aim = (page.parent / target).resolve() if target else page
        assert aim.exists(), f"{page.name}: {target}"
        if anchor:
            assert anchor[1:] in _anchors(aim.read_text()), f"{page.name}: {target}{anchor}"


@pytest.mark.parametrize("text", _blocks("python"))
def test_python_runs(text, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    exec(compile(text, "document", "exec"), {})
    assert capsys.readouterr().out


def test_commands_parse():
    commands = [command for page in PAGES for command in _commands(page)]
    for command in commands:
        _, verb, *rest = shlex.split(command)
        assert parser(verb).parse_args([verb, *rest]).verb == verb
    assert len(commands) > len(VERBS)


@pytest.mark.parametrize("text", _blocks("yaml", "workloads:\n"))
def test_instances_are_instances(text):
    schema = json.loads((ROOT / "instances/schemas/instance.schema.json").read_text())
    jsonschema.validate(yaml.safe_load(text), schema)


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text().splitlines()) <= MOST_README_LINES


def test_all_pages_are_read_in_an_afternoon():
    """Words with a letter or a digit, tables and code included, the generated reference apart."""
    texts = [page.read_text() for page in (*PAGES, ROOT / "CHANGELOG.md")]
    assert sum(bool(re.search(r"\w", word)) for text in texts for word in text.split()) <= MOST_WORDS


def test_every_public_name_is_described():
    assert [name for name in provision.__all__ if not (getattr(provision, name).__doc__ or "").strip()] == []


@pytest.mark.parametrize("name", write_pages.PAGES)
def test_pages_of_reference_are_what_the_program_says(name):
    """Written anew by `python docs/reference/write_pages.py`."""
    assert (DOCS / f"reference/{name}.md").read_text() == write_pages.PAGES[name]()


def test_the_reference_has_every_verb_field_and_name():
    commands, files, names = (make() for make in write_pages.PAGES.values())
    assert {f"### {verb}\n" for verb in VERBS} <= {f"{line}\n" for line in commands.splitlines()}
    assert "#### import csv" in commands and "--complete" in commands
    assert [name for name in provision.__all__ if f"::: provision.{name}\n" not in names] == []
    for kind in ("instance", "plan", "performance"):
        schema = json.loads((ROOT / f"instances/schemas/{kind}.schema.json").read_text())
        for one in (schema, *schema["$defs"].values()):
            assert all(f"| `{field}` |" in files for field in one.get("properties", {}))
    assert {anchor[1:] for _, anchor in LINK.findall(files)} <= _anchors(files)
