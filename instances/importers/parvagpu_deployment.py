"""Imports ParvaGPU's deployment maps, which become plans."""

from provision.instances.importers.importer import Imported, Importer, Source
from provision.instances.importers.parvagpu import import_deployment
from provision.instances.read import read
from provision.models.base.arguments import local, operand


class Deployment(Source):
    """A deployment map."""

    path: str = operand("CSV", "the file to read")
    instance: str = local(..., "I", "the instance that it deploys")

    def read(self) -> Imported:
        """Read the map."""
        return Imported(import_deployment(self.path, read(self.instance)))


IMPORTER = Importer("a deployment map, as a plan", Deployment)
