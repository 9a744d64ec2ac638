"""An importer of another package: lines such as ``a 1.5``, a model and its ms per request, as data of kind crowd."""

from pathlib import Path

from toy_crowd import Crowd

from provision.instances.importers.importer import Imported, Importer, Source
from provision.models.base.arguments import local, operand


class Lines(Source):
    """The file, and the GPU type on which the models were measured."""

    path: str = operand("TXT", "the file to read")
    gpu: str = local("t4", "TYPE", "measured on")

    def read(self):
        """Read the lines."""
        lines = Path(self.path).read_text().splitlines()
        models = dict(line.split() for line in lines)
        data = Crowd(version=1, name=Path(self.path).stem, gpu=self.gpu, kind="crowd", models=models)
        return Imported(data, (f"{len(models)} models",))


IMPORTER = Importer("a model and its ms per request a line", Lines)
