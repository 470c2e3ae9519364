# SPDX-License-Identifier: Apache-2.0
"""The databases that every new cloud begins with are made once, whoever else wants them at the same moment."""

from __future__ import annotations

from pathlib import Path

from tests.unit.laboratory.template_programs import WHY, Machine


def test_two_clouds_that_start_at_once_share_one_template(tmp_path: Path) -> None:
    machine = Machine(tmp_path)

    # when two processes start on a machine without a template
    starting = {name: machine.new_cloud(name) for name in ("one", "two")}
    said = {name: process.communicate()[0] for name, process in starting.items()}

    # then one of them makes it, and both have their databases
    assert [process.returncode for process in starting.values()] == [0, 0], said
    assert machine.installs() == 1
    assert len(machine.templates()) == 1
    assert machine.has_databases("one") and machine.has_databases("two")


def test_a_build_that_fails_is_tried_once_more(tmp_path: Path) -> None:
    machine = Machine(tmp_path, install_fails=1)

    process = machine.new_cloud("one")
    said, _ = process.communicate()

    assert process.returncode == 0, said
    assert machine.installs() == 2
    assert WHY in said
    assert machine.has_databases("one")


def test_a_second_failure_is_reported_and_leaves_no_template(tmp_path: Path) -> None:
    machine = Machine(tmp_path, install_fails=9)

    process = machine.new_cloud("one")
    said, _ = process.communicate()

    assert process.returncode == 1
    assert machine.installs() == 2
    # the reason is above a page of advice
    assert WHY in said and "at https://mariadb.org/jira" in said
    assert machine.templates() == []
    assert not machine.has_databases("one")
