# SPDX-License-Identifier: Apache-2.0
"""An operator creates, distributes and rotates host keys with the documented commands."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from shared_scheduler.cmd import manage
from shared_scheduler.protocol.errors import KeyringError
from shared_scheduler.protocol.host_keys import HostKeys, Kind
from shared_scheduler.transport.key_options import configured_host_keys

HOST = "compute-1.example"


class Site:
    """The files of an operator, and programs that have read them."""

    def __init__(self, at: Path) -> None:
        self.master = at / "master.keys"
        self.hosts = at / "hosts"

    def run(self, *words: str) -> int:
        return manage.main(["keys", *words])

    def derive(self) -> int:
        return self.run("derive", str(self.master), "--host", HOST, "--to", str(self.hosts))

    def program(self, host: str = "") -> HostKeys:
        file = self.hosts / f"{host}.keys" if host else self.master
        options = SimpleNamespace(host_keys="require", host_keys_file=str(file))
        return HostKeys(*configured_host_keys(options, "group", host))

    def ids(self, capsys: pytest.CaptureFixture[str]) -> list[str]:
        capsys.readouterr()
        assert self.run("show", str(self.master), "--format", "json") == 0
        return [row["key"] for row in json.loads(capsys.readouterr().out)]


@pytest.fixture
def site(tmp_path: Path) -> Site:
    made = Site(tmp_path)
    assert made.run("new", str(made.master)) == 0
    assert made.derive() == 0
    return made


def understand(scheduler: HostKeys, agent: HostKeys) -> bool:
    to_agent, to_scheduler = scheduler.seal(Kind.TO_AGENT, b"x", HOST), agent.seal(Kind.AGENT, b"x")
    return agent.open(to_agent)[1] is not None and scheduler.open(to_scheduler)[1] is not None


def test_a_scheduler_and_the_computes_of_its_master_understand_each_other(site: Site) -> None:
    assert understand(site.program(), site.program(HOST))


def test_the_files_are_readable_for_their_owner_only(site: Site) -> None:
    assert [file.stat().st_mode & 0o777 for file in (site.master, site.hosts / f"{HOST}.keys")] == [0o600, 0o600]


@pytest.mark.parametrize("mode", [0o600, 0o640])
def test_a_rotation_as_root_keeps_who_may_read_the_file(site: Site, mode: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    site.master.chmod(mode)

    assert site.run("rotate", str(site.master), "add") == 0

    assert site.master.stat().st_mode & 0o777 == mode


def test_nothing_secret_is_printed(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    secret = site.master.read_text().split(":")[1].strip()
    site.derive()
    for step in ("add", "use", "remove"):
        site.run("rotate", str(site.master), step)
    site.run("show", str(site.master))

    printed = "".join(capsys.readouterr())

    assert secret not in printed
    assert all(len(word) < 64 or Path(word.rstrip(":;")).exists() for word in printed.split())


def test_a_rotation_does_not_interrupt_messages(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    schedulers, agents = [site.program()], [site.program(HOST)]
    (old,) = site.ids(capsys)

    for step, derives in (("add", True), ("use", False), ("remove", True)):
        assert site.run("rotate", str(site.master), step) == 0
        schedulers.append(site.program())
        assert all(understand(one, agents[-1]) for one in schedulers[-2:])
        if derives:
            assert site.derive() == 0
            agents.append(site.program(HOST))
            assert all(understand(schedulers[-1], one) for one in agents[-2:])

    assert old not in site.ids(capsys)
    assert not understand(schedulers[-1], agents[0])


def test_an_existing_master_is_never_overwritten(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    before = site.master.read_text()

    assert site.run("new", str(site.master)) == 2

    assert site.master.read_text() == before
    assert "exists" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("steps", "named"),
    [
        (["remove"], ""), (["use"], "use 'keys rotate FILE add' first"), (["add", "add"], "has not ended"),
        (["add", "remove"], "rotate FILE use"),
    ],
)  # fmt: skip
def test_steps_in_a_wrong_order_are_refused(
    site: Site, steps: list[str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    codes = [site.run("rotate", str(site.master), step) for step in steps]

    assert codes[-1] == (2 if named else 0)  # to remove with one key keeps it
    assert named in capsys.readouterr().err
    assert understand(site.program(), site.program(HOST))


@pytest.mark.parametrize("host", ["../compute", "a/b", ".hidden", ""])
def test_a_host_is_not_a_path(site: Site, host: str, capsys: pytest.CaptureFixture[str]) -> None:
    code = site.run("derive", str(site.master), f"--host={host}", "--to", str(site.hosts))

    assert code == 2
    assert "is not the name of a host" in capsys.readouterr().err


def test_the_keys_of_another_host_are_refused(site: Site) -> None:
    (site.hosts / "compute-2.keys").write_bytes((site.hosts / f"{HOST}.keys").read_bytes())
    (site.hosts / "compute-2.keys").chmod(0o600)

    with pytest.raises(KeyringError, match="but this is host 'compute-2'"):
        site.program("compute-2")


@pytest.mark.parametrize("mode", [0o604, 0o602, 0o620])
def test_a_file_that_others_may_access_is_refused(site: Site, mode: int) -> None:
    site.master.chmod(mode)

    with pytest.raises(KeyringError, match="any user of this machine may read or write it"):
        site.program()
