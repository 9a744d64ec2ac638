"""Adds the notebooks of ``examples/`` to the pages of the site; a plugin runs and shows them."""

from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.plugins import event_priority
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
NOTEBOOKS = tuple(path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "examples").glob("*.ipynb")))
BEFORE_PLUGINS = 100


@event_priority(BEFORE_PLUGINS)
def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the notebooks to the files of the folder."""
    for name in NOTEBOOKS:
        files.append(File(name, str(ROOT), config.site_dir, config.use_directory_urls))
    return files
