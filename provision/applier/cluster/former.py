"""The state of a cluster before a run. It is kept in the state directory, so that an interrupted run can be undone."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from provision.applier.cluster.api import Cluster, Object, authored
from provision.applier.cluster.partitioning import labels_of
from provision.applier.cluster.wanted import Labels, Wanted
from provision.instances.files.files import FilePath, read_text, write_text
from provision.models.base.errors import InputError

FILE = "cluster.json"


@dataclass
class Former:
    """The state of a cluster before a run. Its fields are those of the file.

    Parameters
    ----------
    namespace
        The namespace of objects that name none.
    applied
        The objects that the run applies, in order.
    former
        For each of these, the object as it was before; None if there was none.
    labels
        The former values of the labels that the run sets.
    outcome
        How the run ended; None as long as it goes on.
    """

    namespace: str
    applied: list[Object]
    former: list[Object | None]
    labels: Labels
    outcome: str | None = None

    def write(self, state: FilePath) -> None:
        """Write this record to the state directory, in place of the record of an earlier run."""
        write_text(Path(state) / FILE, json.dumps(asdict(self), indent=1) + "\n", force=True)


def looked_up(cluster: Cluster, wanted: Wanted) -> Former:
    """The present state of everything on the cluster that a plan would change."""
    standing = [cluster.get(one) for one in wanted.every]
    objects = [None if found is None else authored(found) for found in standing]
    labels = {}
    for name, ours in wanted.labels.items():
        now = labels_of(cluster, name)
        labels[name] = {key: now.get(key) for key in ours}
    return Former(cluster.namespace, wanted.every, objects, labels)


def read_former(state: FilePath) -> Former:
    """Read the record of the last run on a cluster from the state directory. Raises InputError if there was no such
    run.
    """
    path = Path(state) / FILE
    if not path.exists():
        raise InputError(f"{path}: no run on a cluster is recorded there, so there is nothing to go back to")
    return Former(**json.loads(read_text(path)))
