# SPDX-License-Identifier: Apache-2.0
"""The files with which distributions and deployers install the programs can be read by what reads them."""

from __future__ import annotations

import configparser
import re
import runpy
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(part) for part in command], cwd=ROOT, capture_output=True, text=True, check=False)


def scripts() -> list[str]:
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    lines = setup["options.entry_points"]["console_scripts"].strip().splitlines()
    return sorted(line.split(" ")[0] for line in lines)


def test_systemd_makes_the_user_and_the_directory_of_the_agent(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()

    users = run("systemd-sysusers", f"--root={tmp_path}", ROOT / "etc/sysusers.d/shared-scheduler.conf")
    made = run("systemd-tmpfiles", f"--root={tmp_path}", "--create", ROOT / "etc/tmpfiles.d/shared-scheduler.conf")

    assert (users.returncode, made.returncode) == (0, 0), users.stderr + made.stderr
    assert "nova:" in (tmp_path / "etc/passwd").read_text()
    home, state = tmp_path / "var/lib/nova", tmp_path / "var/lib/nova/compute-agent"
    assert state.stat().st_mode & 0o777 == 0o750
    # the scheduler makes the directory of its records itself
    assert home.stat().st_uid == state.stat().st_uid != 0


def test_systemd_leaves_the_directory_of_nova_as_a_package_has_made_it(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "var/lib/nova").mkdir(mode=0o711, parents=True)

    run("systemd-sysusers", f"--root={tmp_path}", ROOT / "etc/sysusers.d/shared-scheduler.conf")
    run("systemd-tmpfiles", f"--root={tmp_path}", "--create", ROOT / "etc/tmpfiles.d/shared-scheduler.conf")

    assert (tmp_path / "var/lib/nova").stat().st_mode & 0o777 == 0o711


@pytest.mark.parametrize("unit", sorted((ROOT / "etc/systemd").glob("*.service")), ids=lambda path: path.name)
def test_systemd_accepts_the_unit(unit: Path, tmp_path: Path) -> None:
    # the commands are not in /usr/bin here
    text = re.sub(r"(?m)^(ExecStart=)/usr/bin/\S+", r"\g<1>/bin/true", unit.read_text())
    (tmp_path / unit.name).write_text(text)

    done = run("systemd-analyze", "verify", "--man=no", tmp_path / unit.name)

    assert (done.returncode, [line for line in done.stderr.splitlines() if unit.name in line]) == (0, [])


def test_each_unit_starts_a_command_of_the_package() -> None:
    started = {
        name for unit in (ROOT / "etc/systemd").glob("*.service")
        for name in re.findall(r"(?m)^ExecStart=/usr/bin/(\S+)", unit.read_text())
    }  # fmt: skip

    assert started and started <= set(scripts())


def test_each_command_has_a_man_page() -> None:
    pages = {name: page for page, name, *_ in runpy.run_path(str(ROOT / "doc/source/conf.py"))["man_pages"]}

    assert sorted(pages) == scripts()
    assert [page for page in pages.values() if not (ROOT / f"doc/source/{page}.rst").is_file()] == []


def test_the_release_notes_are_well_formed_and_name_a_release() -> None:
    notes = [yaml.safe_load(path.read_text()) for path in (ROOT / "releasenotes/notes").glob("*.yaml")]

    done = run(Path(sys.executable).parent / "reno", "lint")

    assert done.returncode == 0, done.stdout + done.stderr
    assert any("first release" in note.get("prelude", "") for note in notes)


@pytest.mark.parametrize("script", ["devstack/plugin.sh", "devstack/settings"])
def test_the_scripts_of_devstack_are_bash(script: str) -> None:
    assert run("bash", "-n", script).stderr == ""


def test_zuul_and_pre_commit_run_what_exists() -> None:
    tox = configparser.ConfigParser()
    tox.read(ROOT / "tox.ini")
    environments = {name.removeprefix("testenv:") for name in tox.sections()} | {"py311"}
    zuul = yaml.safe_load((ROOT / ".zuul.yaml").read_text())
    jobs = {one["job"]["name"]: one["job"] for one in zuul if "job" in one}
    [project] = [one["project"] for one in zuul if "project" in one]
    run_by = {job if isinstance(job, str) else next(iter(job)) for job in project["check"]["jobs"]}

    assert {env for job in jobs.values() for env in job["vars"]["tox_envlist"].split(",")} <= environments
    assert {name for name in run_by if not name.startswith("openstack-tox-")} == set(jobs)
    assert yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]


def test_pre_commit_runs_commands_that_are_installed() -> None:
    repos = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    entries = [hook["entry"].split() for repo in repos if repo["repo"] == "local" for hook in repo["hooks"]]

    assert {command for command, *_ in entries} == {"ruff", "mypy"}
    for command, *arguments in entries:
        assert run(Path(sys.executable).parent / command, *arguments, "--help").returncode == 0


def test_the_image_is_made_of_what_exists() -> None:
    text, setup = (ROOT / "Containerfile").read_text(), configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    given = dict(re.findall(r"(?m)^ARG (\w+)=(\S+)", text))
    builds = re.findall(r"--build-arg EXTRA=(\S+) --build-arg COMMAND=(\S+)", text)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())

    assert all((ROOT / copied).exists() for copied in re.findall(r"(?m)^COPY (?!--from)(\S+)", text))
    assert given["VERSION"] == project["tool"]["setuptools_scm"]["fallback_version"]
    for extra, command in [*builds, (given["EXTRA"], given["COMMAND"])]:
        assert extra in setup["options.extras_require"] and command in scripts()


def test_the_plugin_of_devstack_names_options_and_commands_that_exist() -> None:
    text = (ROOT / "devstack/plugin.sh").read_text()
    samples = "".join(path.read_text() for path in (ROOT / "etc").glob("*/*.conf.sample"))
    set_by_it = re.findall(r"iniset \S+ (shared_scheduler|compute_agent) (\w+)", text)

    assert {*re.findall(r"command -v ([\w-]+)", text)} == {"shared-scheduler", "compute-agent"} <= set(scripts())
    assert len(set_by_it) == 2
    for group, option in set_by_it:
        assert re.search(rf"(?m)^\[{group}\]$", samples) and re.search(rf"(?m)^#?{option} = ", samples)
