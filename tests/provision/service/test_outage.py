"""A store that is locked or away costs nobody a job, and one server at a time works on it: SQLite and PostgreSQL."""

import sqlite3
from contextlib import contextmanager

import pytest
from served import Client, answer, ended, served, until

from provision import InputError
from provision.service import jobs, store
from provision.service.app import application
from provision.service.settings import Settings
from provision.service.store import Lease, Store

JOB = {"verb": "solve", "instance": "parvagpu-s1", "method": "greedy", "time_limit_s": 5}


@contextmanager
def locked(path):
    """Another program writes to the SQLite file."""
    other = sqlite3.connect(path, timeout=60, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        other.close()


@contextmanager
def stopped(postgresql):
    """The PostgreSQL server is away."""
    postgresql.stop()
    try:
        yield
    finally:
        postgresql.start()


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_no_job_is_lost_while_the_store_is_away(tmp_path, request, monkeypatch, kind):
    monkeypatch.setattr(store, "BUSY_MS", 50)
    monkeypatch.setattr(jobs, "AGAIN_S", 0.05)
    if kind == "sqlite":
        url, away = f"sqlite:///{tmp_path}/store.db", lambda: locked(tmp_path / "store.db")
    else:
        postgresql = request.getfixturevalue("postgresql")
        url, away = postgresql.url, lambda: stopped(postgresql)
    with served(tmp_path, db=url) as address:
        client = Client(address)
        first = client.submit(JOB)  # it cannot end before its process has started
        with away():
            until(lambda: client.call("GET", "/healthz")["status"] == "waits for the store")
            assert answer(address, "POST", "/api/v1/jobs", JOB)[0] == 503
        job = ended(client, first)
        assert job["status"] == "done" and job["restarts"] == 0 and job["result"]["plan"]["gpus"]
        assert job["incumbents"]
        assert ended(client, until(lambda: submitted(address)))["status"] == "done"
        until(lambda: client.call("GET", "/healthz")["status"] == "ok")


def submitted(address):
    """The id of a job; None if the server does not take it on yet."""
    status, headers, _ = answer(address, "POST", "/api/v1/jobs", JOB)
    return headers["Location"].rpartition("/")[2] if status == 201 else None


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_one_server_at_a_time(tmp_path, request, kind):
    url = f"sqlite:///{tmp_path}/store.db" if kind == "sqlite" else request.getfixturevalue("postgresql").url
    with served(tmp_path, db=url) as address:
        with pytest.raises(InputError, match="another server works on this store"):
            application(Settings(db=url))
        assert Client(address).call("GET", "/healthz")["status"] == "ok"
    lease = Lease(Store(url).engine)
    assert lease.holds()
    lease.close()


def test_a_lease_that_was_lost_is_taken_again_or_not(postgresql):
    first, second = Store(postgresql.url).engine, Store(postgresql.url).engine
    lease = Lease(first)
    for other_came in (False, True):
        postgresql.stop()
        with pytest.raises(jobs.AWAY):
            lease.holds()
        postgresql.start()
        second.dispose()
        other = Lease(second) if other_came else None
        assert lease.holds() is not other_came
    other.close()
    lease.close()
