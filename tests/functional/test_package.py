# SPDX-License-Identifier: Apache-2.0
"""What a packager builds from this repository, and what an operator gets from it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from email import message_from_bytes
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = (
    "shared-scheduler", "shared-scheduler-manage", "shared-scheduler-status", "shared-scheduler-stock", "compute-agent",
    "compute-agent-status",
)  # fmt: skip
TIMEOUT_S = 300


def run(*command: str | Path, cwd: Path | None = None) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


def version_of(tree: Path) -> str:
    return run(sys.executable, "-m", "setuptools_scm", cwd=tree).splitlines()[-1]


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clone without tags, as continuous integration makes one."""
    path = tmp_path_factory.mktemp("clone") / "shared-scheduler"
    run("git", "clone", "-q", "--no-tags", "--depth", "1", f"file://{ROOT}", path)
    return path


@pytest.fixture(scope="module")
def built(clone: Path) -> Path:
    """The directory with the sdist, and the wheel that was built from it."""
    run(sys.executable, "-m", "build", "-o", clone.parent / "dist", clone)
    return clone.parent / "dist"


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    [path] = built.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def sdist(built: Path) -> Path:
    [path] = built.glob("*.tar.gz")
    return path


@pytest.fixture(scope="module")
def bin_of_a_new_venv(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The wheel alone in a new environment; what it requires is taken from the environment of the tests."""
    venv = tmp_path_factory.mktemp("installed")
    run(sys.executable, "-m", "venv", "--without-pip", venv)
    run(sys.executable, "-m", "pip", "--python", venv / "bin" / "python", "install", "-q", "--no-deps", wheel)
    [packages] = venv.glob("lib/python*/site-packages")
    # not a .pth of their site-packages: that of an editable installation would win over the wheel
    (packages / "sitecustomize.py").write_text(f"import sys\nsys.path.append({str(packages_of_the_tests())!r})\n")
    yield venv / "bin"
    shutil.rmtree(venv)


def packages_of_the_tests() -> Path:
    return Path(pytest.__file__).resolve().parents[1]


def test_a_clone_without_a_tag_is_a_development_version_of_the_release(clone: Path) -> None:
    assert re.match(r"1\.0\.0\.dev\d+\+g[0-9a-f]+$", version_of(clone))


def test_a_tag_is_the_version(clone: Path, tmp_path: Path) -> None:
    tagged = tmp_path / "tagged"
    run("git", "clone", "-q", f"file://{clone}", tagged)
    run("git", "-c", "user.name=a", "-c", "user.email=a@b", "tag", "1.0.0", cwd=tagged)

    assert version_of(tagged) == "1.0.0"


def test_a_tree_without_git_can_be_built(clone: Path, tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    shutil.copytree(clone, archive, ignore=shutil.ignore_patterns(".git"))

    assert version_of(archive) == "1.0.0.dev0"


@pytest.mark.parametrize("tags, version", [((), "1.0.0.dev0"), (("1.0.0",), "1.0.0")], ids=["untagged", "tagged"])
def test_an_archive_that_git_or_a_forge_makes_of_a_commit(
    tags: tuple[str, ...], version: str, clone: Path, tmp_path: Path
) -> None:
    tagged, archive = tmp_path / "tagged", tmp_path / "archive"
    run("git", "clone", "-q", f"file://{clone}", tagged)
    for tag in tags:
        run("git", "tag", tag, cwd=tagged)
    archive.mkdir()
    run("git", "archive", "-o", tmp_path / "archive.tar", "HEAD", cwd=tagged)
    run("tar", "-xf", tmp_path / "archive.tar", "-C", archive)

    assert version_of(archive) == version


def test_the_sdist_has_every_file_of_the_repository(clone: Path, sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        there = {name.partition("/")[2] for name in archive.getnames()}

    assert set(run("git", "ls-files", cwd=clone).splitlines()) - there == set()


def test_both_would_be_accepted_by_an_index(built: Path) -> None:
    assert run(sys.executable, "-m", "twine", "check", "--strict", *built.iterdir()).count("PASSED") == 2


def test_the_wheel_names_its_author_and_its_license(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        [metadata] = [name for name in names if name.endswith(".dist-info/METADATA")]
        said = message_from_bytes(archive.read(metadata))

    assert said["Author"] and said.get_all("Project-URL") and said["License"] == "Apache-2.0"
    assert "Development Status :: 5 - Production/Stable" in said.get_all("Classifier", [])
    assert any(name.endswith("/LICENSE") for name in names)


@pytest.mark.parametrize(
    "path",
    [
        "etc/shared-scheduler/shared-scheduler.conf.sample",
        "etc/compute-agent/compute-agent.conf.sample",
        "share/shared-scheduler/systemd/shared-scheduler.service",
        "share/shared-scheduler/sysusers.d/shared-scheduler.conf",
        "share/shared-scheduler/tmpfiles.d/shared-scheduler.conf",
        "share/shared-scheduler/prometheus/shared-scheduler.rules.yml",
        "share/shared-scheduler/grafana/shared-scheduler.json",
    ],
)
def test_the_wheel_installs(path: str, bin_of_a_new_venv: Path) -> None:
    assert (bin_of_a_new_venv.parent / path).is_file()


def test_the_wheel_installs_the_pages_for_operators(bin_of_a_new_venv: Path, clone: Path) -> None:
    pages = {path.name for path in (clone / "doc" / "source" / "admin").glob("*.rst")}

    installed = bin_of_a_new_venv.parent / "share" / "doc" / "shared-scheduler"
    assert {path.name for path in (installed / "admin").iterdir()} == pages
    assert {"README.rst", "CONTRIBUTING.rst", "SECURITY.rst"} <= {path.name for path in installed.iterdir()}


@pytest.mark.parametrize("command", COMMANDS)
def test_each_installed_command_prints_its_arguments(command: str, bin_of_a_new_venv: Path) -> None:
    helped = run(bin_of_a_new_venv / command, "--help", cwd=bin_of_a_new_venv)

    assert helped.startswith(f"usage: {command} ")


@pytest.mark.parametrize("command", ["shared-scheduler", "compute-agent"])
def test_an_installed_service_prints_its_release(command: str, bin_of_a_new_venv: Path, wheel: Path) -> None:
    told = run(bin_of_a_new_venv / command, "--version", cwd=bin_of_a_new_venv)

    assert wheel.name.split("-")[1] in told
