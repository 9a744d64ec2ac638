"""The store, on SQLite and on a real PostgreSQL: nothing twice, nothing lost, old things go."""

import json

import pytest

from provision import InputError
from provision.service.store import Lease, Store, metadata


@pytest.fixture(params=["sqlite", "postgresql"])
def store(request, tmp_path):
    """An empty store of each kind."""
    if request.param == "sqlite":
        found = Store(f"sqlite:///{tmp_path}/store.db")
    else:
        found = Store(request.getfixturevalue("postgresql").url)
    with found.engine.begin() as connection:  # other tests keep things in the same database
        for table in reversed(metadata.sorted_tables):
            connection.execute(table.delete())
    yield found
    found.close()


def test_the_same_content_is_kept_once(store):
    first = store.keep("plan", "one", {"b": 1.5, "a": [float("inf")]})
    assert store.keep("plan", "one", {"a": [float("inf")], "b": 1.5}) == first
    assert len(store.documents("plan")) == 1
    assert store.document(first) == {"a": [None], "b": 1.5}
    assert store.document(first, "instance") is None


def test_a_job_moves_only_from_where_it_is(store):
    digest = store.keep("instance", "one\N{SNOWMAN}", {"text": "\x00 \N{SNOWMAN}"})
    store.add_job("a" * 16, "solve", "one", {"seed": 1}, {"instance": digest})
    assert store.move("a" * 16, "running", of=["queued"], begin=True)
    assert not store.move("a" * 16, "cancelled", of=["queued"])
    made = store.keep("result", "a" * 16, {"objective": 3})
    assert store.move("a" * 16, "done", of=["running"], made={"result": made})
    row = store.job("a" * 16)
    assert (row.status, row.begun) == ("done", 1) and row.ended_s >= row.started_s >= row.created_s
    assert [json.loads(event.content)["status"] for event in store.events("a" * 16)] == ["queued", "running", "done"]
    assert store.used(["a" * 16], "result") == {"a" * 16: made}
    assert store.unfinished() == []


def test_lists_go_on_where_they_stopped(store):
    digest = store.keep("instance", "one", {})
    for number in range(5):
        store.add_job(f"{number:016}", "solve", "one" if number % 2 else "two", {}, {"instance": digest})
    ids = [row.id for row in store.jobs(10)]
    assert [row.id for row in store.jobs(2)] == ids[:2]
    assert [row.id for row in store.jobs(10, before=ids[1])] == ids[2:]


def test_old_jobs_go_with_what_only_they_use(store):
    shared, only = store.keep("instance", "shared", {"a": 1}), store.keep("instance", "only", {"a": 2})
    for id, digest in (("old", only), ("both", shared)):
        store.add_job(id, "solve", "x", {}, {"instance": digest})
    store.move("old", "cancelled", of=["queued"])
    assert store.collect(3600) == (0, 0)
    assert store.collect(-1) == (1, 1)
    assert store.document(shared) and not store.document(only)
    assert store.events("old") == [] and store.events("both")


def test_reopened_store_has_everything(tmp_path):
    url = f"sqlite:///{tmp_path}/store.db"
    digest = Store(url).keep("plan", "one", {"a": 1})
    again = Store(url)
    assert again.document(digest) == {"a": 1}
    with again.engine.connect() as connection:
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2  # FULL


def test_its_files_are_the_owners_alone(tmp_path):
    store = Store(f"sqlite:///{tmp_path}/store.db")
    Lease(store.engine).close()
    files = list(tmp_path.iterdir())
    assert len(files) >= 3 and all(path.stat().st_mode & 0o077 == 0 for path in files)


def test_a_newer_or_damaged_store_is_refused_in_a_line(tmp_path):
    url = f"sqlite:///{tmp_path}/store.db"
    store = Store(url)
    for number in range(200):
        store.keep("plan", "one", {"number": number, "text": "x" * 200})
    with store.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(InputError, match="was written by a newer version"):
        Store(url)
    with store.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '0001'")
    store.close()
    content = bytearray((tmp_path / "store.db").read_bytes())
    content[8192:] = bytes(byte ^ 0xFF for byte in content[8192:])
    (tmp_path / "store.db").write_bytes(content)
    with pytest.raises(InputError, match="the database cannot be used"):
        Store(url)


@pytest.mark.parametrize(
    "url", ["nonsense", "mysql://x/y", "sqlite://", "sqlite:///file:a?uri=true", "sqlite:////nowhere/at/all.db",
            "postgresql://x@127.0.0.1:1/y"]
)
def test_a_store_that_cannot_be_opened_is_refused_in_a_line(url):
    with pytest.raises(InputError, match="--db"):
        Store(url)
