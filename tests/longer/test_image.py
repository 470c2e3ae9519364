# SPDX-License-Identifier: Apache-2.0
"""The images that ``Containerfile`` makes, built by buildah on bases made here, because no registry of images is asked.

The base in the place of python:slim is Debian with an environment of Python; that in the place of kolla's has Nova in
``/var/lib/kolla/venv``.  The containers share the network of the machine, as those of kolla do.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.functional import cloud_state
from tools.laboratory.cloud import services
from tools.laboratory.cloud.cloud import Cloud

ROOT = Path(__file__).resolve().parents[2]
PYTHON_IMAGE = "docker.io/library/python:3.13-slim-bookworm"
KOLLA = "/var/lib/kolla/venv/bin/python"
PACKAGES = ("ca-certificates", "python3-venv")
BUILD_TIMEOUT_S = 1200
STOP_TIMEOUT_S = 120
NOVA_USER = 42436
HOSTS = {"c1", "c2", "c3"}
pytestmark = pytest.mark.timeout(3600)


@dataclass(frozen=True)
class Buildah:
    """buildah with a storage of its own below ``directory``."""

    directory: Path

    def command(self, *arguments: str) -> list[str]:
        storage = ("--root", str(self.directory / "storage"), "--runroot", str(self.directory / "run"))
        return ["buildah", *storage, "--storage-driver", "vfs", *arguments]

    def do(self, *arguments: str) -> str:
        """What it prints, the last line alone."""
        return run(*self.command(*arguments)).strip().rpartition("\n")[2]

    def build(self, tag: str, containerfile: Path, **arguments: str) -> str:
        """Build from a checkout, with the certificates that this machine trusts."""
        given = [part for name, value in arguments.items() for part in ("--build-arg", f"{name}={value}")]
        trusted = ("-v", "/etc/ssl/certs:/etc/ssl/certs:ro")
        self.do("bud", "--isolation", "chroot", *trusted, *given, "-t", tag, "-f", str(containerfile), str(ROOT))
        return tag

    def run(self, image: str, user: str, shared: Path, *command: str) -> list[str]:
        """The command that runs one in a new container of the image; ``shared`` is seen at its own path."""
        container = self.do("from", image)
        where = ("--isolation", "chroot", "--user", user, "-v", f"{shared}:{shared}")
        return self.command("run", *where, container, "--", *command)


def run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_TIMEOUT_S, check=False)
    assert done.returncode == 0, f"{command}: {done.stdout[-4000:]}{done.stderr[-4000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def buildah(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Buildah]:
    run("apt-get", "update", "-q")
    run("apt-get", "install", "-q", "-y", "--no-install-recommends", "buildah", "debootstrap")
    directory = tmp_path_factory.mktemp("images")
    yield Buildah(directory)
    shutil.rmtree(directory)


@pytest.fixture(scope="module")
def python_image(buildah: Buildah) -> str:
    """Debian with Python first in the path, under the name that Containerfile asks for."""
    tree = buildah.directory / "debian"
    run("debootstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}", "bookworm", str(tree))
    run("chroot", str(tree), "python3", "-m", "venv", "/opt/python")
    container = buildah.do("from", "scratch")
    buildah.do("add", "-q", container, str(tree), "/")
    buildah.do("config", "--env", "PATH=/opt/python/bin:/usr/sbin:/usr/bin:/sbin:/bin", container)
    buildah.do("commit", "-q", "--rm", container, PYTHON_IMAGE)
    shutil.rmtree(tree)
    return PYTHON_IMAGE


@pytest.fixture(scope="module")
def version() -> str:
    return run(sys.executable, "-m", "setuptools_scm").splitlines()[-1]


@pytest.fixture(scope="module")
def scheduler_image(buildah: Buildah, python_image: str, version: str) -> str:
    return buildah.build("shared-scheduler", ROOT / "Containerfile", VERSION=version)


@pytest.fixture(scope="module")
def agent_image(buildah: Buildah, python_image: str, version: str) -> str:
    """On an image with Nova, as kolla makes it."""
    kolla = buildah.directory / "Containerfile.kolla"
    kolla.write_text(
        f"FROM {python_image}\n"
        f"RUN useradd --uid {NOVA_USER} nova && python -m venv {Path(KOLLA).parents[1]}\n"
        f"RUN {KOLLA} -m pip install -q nova==34.0.0\n"
        "USER nova\n"
    )
    base = buildah.build("localhost/kolla", kolla)
    return buildah.build(
        "compute-agent", ROOT / "Containerfile",
        BASE=base, PYTHON=KOLLA, NOVA_USER="nova", EXTRA="agent", COMMAND="compute-agent", VERSION=version,
    )  # fmt: skip


@pytest.mark.parametrize("image", ["scheduler_image", "agent_image"])
def test_an_image_runs_the_program_of_its_version_as_nova(
    buildah: Buildah, request: pytest.FixtureRequest, version: str, image: str, tmp_path: Path
) -> None:
    name = request.getfixturevalue(image)

    said = run(*buildah.run(name, str(NOVA_USER), tmp_path, "/usr/local/bin/run-service", "--version"))
    assert version in said.split()
    writable = ("test", "-w", "/run/shared-scheduler", "-a", "-w", "/var/lib/nova")
    run(*buildah.run(name, str(NOVA_USER), tmp_path, *writable))


def test_the_configured_user_is_novas(buildah: Buildah, scheduler_image: str, agent_image: str) -> None:
    asked = "{{.OCIv1.Config.User}} {{.OCIv1.Config.StopSignal}}"
    inspect = ("inspect", "--type", "image", "--format", asked)
    assert buildah.do(*inspect, scheduler_image) == f"{NOVA_USER} SIGTERM"
    assert buildah.do(*inspect, agent_image) == "nova SIGTERM"


def test_a_scheduler_and_an_agent_in_containers_place_servers(
    cloud: Cloud, buildah: Buildah, scheduler_image: str, agent_image: str
) -> None:
    cloud_state.begin(cloud)
    cloud.stop("sched1", "agent-c1")

    with (
        in_container(cloud, buildah, scheduler_image, "sched1") as scheduler,
        in_container(cloud, buildah, agent_image, "agent-c1") as agent,
    ):
        cloud_state.wait_fresh(cloud, HOSTS)
        cloud.wait_active(cloud.boot(3, parallel=3))
        cloud_state.assert_consistent(cloud)
        assert scheduler.poll() is None and agent.poll() is None
    assert scheduler.returncode == 0 and agent.returncode == 0, "SIGTERM is the orderly end"
    cloud.start("sched1", "agent-c1")


@contextmanager
def in_container(cloud: Cloud, buildah: Buildah, image: str, service: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a service of the cloud from an image, with the files and the user of the cloud; end it by SIGTERM.

    An engine sends the signal to the program, but buildah, as long as it runs one, kills it.
    """
    argv = services.plan(cloud.layout, cloud.settings)[service].argv[1:]
    command = buildah.run(image, "0", cloud.layout.data, "/usr/local/bin/run-service", *argv)
    with open(cloud.log_path(service), "ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        yield process
    finally:
        os.kill(program_of(process.pid), signal.SIGTERM)
        process.wait(STOP_TIMEOUT_S)


def program_of(pid: int) -> int:
    """The program in the container that this process runs: its first descendant that is Python."""
    while "python" not in os.readlink(f"/proc/{pid}/exe"):
        pid = next(int(child) for task in Path(f"/proc/{pid}/task").iterdir() for child in children_of(task))
    return pid


def children_of(task: Path) -> list[str]:
    return (task / "children").read_text().split()
