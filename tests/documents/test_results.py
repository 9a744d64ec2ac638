"""The documents' tables say what the result files say, and every result file tells how it came about."""

import pages
import pytest
import results

FILES = sorted(results.FOLDER.glob("*.csv"))
TABLES = sorted(path.stem for path in pages.TABLES.glob("*.md"))


@pytest.fixture
def at(tmp_path, monkeypatch):
    """Folders of their own for pages, tables and result files."""
    for name in ("DOCS", "TABLES"):
        monkeypatch.setattr(pages, name, tmp_path)
    monkeypatch.setattr(results, "FOLDER", tmp_path)
    pages.result.cache_clear()
    yield tmp_path
    pages.result.cache_clear()


def test_pages_say_what_the_result_files_say():
    assert pages.differing() == []


def test_every_table_is_on_one_page():
    assert sorted(name for page in pages.DOCS.glob("*.md") for name in pages.tables(page)) == TABLES


def test_no_table_of_the_systems_is_typed():
    text = pages.BLOCK.sub("", (pages.DOCS / "systems.md").read_text())
    assert not [line for line in text.splitlines() if line.startswith("|")]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_result_file_tells_how_it_came_about(path):
    found = results.read(path)
    assert tuple(found.header) == results.HEADER and all(found.header.values())
    assert found.header["command"].startswith("python benchmarks/")
    assert (results.ROOT / found.header["command"].split()[1]).exists()
    assert found.rows and all(None not in row for row in found.rows)


def test_every_result_file_is_shown():
    texts = [(pages.TABLES / f"{name}.md").read_text() for name in TABLES]
    assert set().union(*map(pages.files_of, texts)) == {path.stem for path in FILES}


def test_a_table_is_made_anew_by_the_commands_of_its_files(at, monkeypatch):
    for name, command in (("b", "a.py --results x"), ("c", "a.py --results x"), ("a", "z.py --write 'y z'")):
        results.write(str(at), name, ("case", "rps"), [("one", 1)])
        text = (at / f"{name}.csv").read_text().splitlines()
        (at / f"{name}.csv").write_text("\n".join([f"# command: python {command}", *text[1:]]))
    (at / "both.md").write_text("| {b; one; rps} | {c; one; rps} | {a; one; rps} |\n")
    ran = []
    monkeypatch.setattr(pages.subprocess, "run", lambda words, **_: ran.append(words[1:]))
    pages.made_anew("both")
    assert ran == [["z.py", "--write", "y z"], ["a.py", "--results", "x"]]


def test_a_page_that_says_something_else_is_found(at):
    results.write(str(at), "speed", ("case", "seed", "rps"), [("a", 0, 12.5), ("a", 1, 1234.5)], seeds=(0, 1))
    (at / "fast.md").write_text("| {speed; a; 0; rps:.1f} | {speed; a; 1; rps:,.0f} | {speed; a; 1; seed} |\n"
                                "| {speed; a; 1; rps above speed; a; 0; rps:+.0%} | | |\n")
    page = at / "page.md"
    page.write_text("x\n<!-- table: fast -->\n| 12.6 | 1,234 | 1 |\n| +9776% | | |\n<!-- end -->\ny\n")
    assert page in pages.differing()
    page.write_text(pages.rewritten(page.read_text()))
    assert page.read_text() == "x\n<!-- table: fast -->\n| 12.5 | 1,234 | 1 |\n| +9776% | | |\n<!-- end -->\ny\n"
    assert page not in pages.differing()


def test_a_figure_that_no_file_has_is_named(at):
    results.write(str(at), "speed", ("case", "rps"), [("a", 1.0)])
    (at / "fast.md").write_text("{speed; b; rps}\n")
    with pytest.raises(pages.UnknownFigureError, match=r"speed.csv has 0 rows \['b'\]"):
        pages.filled("fast")
