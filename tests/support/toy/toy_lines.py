"""An importer of another package: lines such as ``a 1.5``, a model and its ms per request, as data of kind crowd."""

from pathlib import Path

from toy_crowd import Crowd

from provision.instances.importers.importer import Imported, Importer


def _add_arguments(parser):
    parser.add_argument("--gpu", default="t4")


def _read(options):
    lines = Path(options.path).read_text().splitlines()
    models = dict(line.split() for line in lines)
    data = Crowd(version=1, name=Path(options.path).stem, gpu=options.gpu, kind="crowd", models=models)
    return Imported(data, (f"{len(models)} models",))


IMPORTER = Importer("a model and its ms per request a line", "TXT", _read, _add_arguments)
