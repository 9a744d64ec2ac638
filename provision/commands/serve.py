"""``provision serve``: run the HTTP service with its page until Ctrl-C."""

import argparse
import os

from provision.instances.files.files import read_text
from provision.models.base.errors import InputError

TOKEN = "PROVISION_TOKEN"


def add_serve(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument("--host", default="127.0.0.1", metavar="H", help="address (default: 127.0.0.1, this machine)")
    parser.add_argument("--port", type=int, default=8765, metavar="N", help="(default: 8765)")
    parser.add_argument(
        "--db", default="sqlite:///provision.db", metavar="URL",
        help="sqlite:///FILE (default: provision.db here) or postgresql://USER@HOST/NAME",
    )
    parser.add_argument("--token-file", metavar="F", help=f"the token that clients must present (or set {TOKEN})")
    parser.add_argument("--name", action="append", default=[], metavar="H", help="a further host name to answer to")
    parser.add_argument("--tls-cert", metavar="F", help="certificate, for HTTPS")
    parser.add_argument("--tls-key", metavar="F", help="its key")
    parser.add_argument("--workers", type=int, default=1, metavar="N", help="jobs that run at once (default: 1)")
    parser.add_argument("--queue", type=int, default=1000, metavar="N", help="jobs that may wait (default: 1000)")
    parser.add_argument("--body-mib", type=int, default=16, metavar="N", help="largest request (default: 16)")
    parser.add_argument("--bodies-mib", type=int, default=64, metavar="N", help="all requests at work (default: 64)")
    parser.add_argument("--workloads", type=int, default=20_000, metavar="N", help="of an instance (default: 20000)")
    parser.add_argument("--job-s", type=float, default=3600.0, metavar="S", help="seconds of a job (default: 3600)")
    parser.add_argument("--memory-gib", type=float, default=16.0, metavar="G", help="of a worker (default: 16)")
    parser.add_argument("--keep-days", type=float, metavar="D", help="delete ended jobs that are older (default: keep)")
    parser.add_argument("--allow-apply", action="store_true", help="let clients put plans on this machine's GPUs")
    parser.add_argument("--journal", metavar="F", help="show the decisions in this journal of provision watch")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    try:
        from provision.service.server import serve
    except ModuleNotFoundError as error:
        raise InputError(f"serve: {error.name} is not installed; pip install 'provision[serve]'") from None
    from provision.service.watch.settings import Settings

    given = vars(options)
    names = set(Settings.__dataclass_fields__) & given.keys()
    settings = Settings(token=_token(options), names=tuple(options.name), **{name: given[name] for name in names})
    serve(settings)
    return 0


def _token(options: argparse.Namespace) -> str | None:
    """The token in the file or in the environment; None if there is neither. Jobs do not inherit it."""
    token = os.environ.pop(TOKEN, None) or None
    return read_text(options.token_file).strip() if options.token_file else token
