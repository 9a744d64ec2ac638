"""A large file is announced while it is read, a small one is not."""

from contextlib import contextmanager

import pytest

import provision
from provision.commands import verb as reading


@pytest.mark.parametrize(("padding", "said"), [(10, []), (200, ["reading {path} (0.2 MB)"])])
def test_large_files_are_announced(padding, said, tmp_path, monkeypatch):
    told, path, instance = [], tmp_path / "one.yaml", provision.read("parvagpu-s1")

    @contextmanager
    def progress(what):
        told.append(what)
        yield

    provision.write(instance, path)
    path.write_text(path.read_text() + ("#" * 999 + "\n") * padding)
    monkeypatch.setattr(reading, "progress", progress)
    assert reading.read_instance(str(path)) == instance
    assert told == [one.format(path=path) for one in said]
