"""``provision serve``: run the HTTP service with its page until Ctrl-C."""

import os

from provision.commands.verb import Verb
from provision.instances.files.files import read_text
from provision.models.base.arguments import local
from provision.models.base.errors import InputError
from provision.service.settings import TOKEN, Settings


class Serve(Settings, Verb):
    token_file: str | None = local(None, "F", f"the token that clients must present (or set {TOKEN})")

    def run(self) -> int:
        try:
            from provision.service.app import serve
        except ModuleNotFoundError as error:
            raise InputError(f"serve: {error.name} is not installed; pip install 'gpu-provision[serve]'") from None
        token = os.environ.pop(TOKEN, None) or None  # jobs do not inherit it
        serve(self.model_copy(update={"token": read_text(self.token_file).strip() if self.token_file else token}))
        return 0
