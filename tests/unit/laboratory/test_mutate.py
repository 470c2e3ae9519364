# SPDX-License-Identifier: Apache-2.0
"""The planted mistakes of `tools/lab mutate` fit the code as it is, and a trial tells whether tests notice one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tools.laboratory import ROOT
from tools.laboratory.errors import LabError
from tools.laboratory.mutate import command
from tools.laboratory.mutate.catalog import KINDS, Mistake, all_mistakes, chosen
from tools.laboratory.mutate.detection import NOTICED, Stage, runner, stages_of
from tools.laboratory.mutate.tree import copied
from tools.laboratory.report import ProgressLine

MISTAKES = all_mistakes()
#: the simulator is what notices mistakes, and options have no logic
WITHOUT = {"shared_scheduler/sim", "shared_scheduler/conf"}


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda one: one.name)
def test_every_mistake_applies_once_and_can_be_run(mistake: Mistake) -> None:
    text = (ROOT / mistake.file).read_text()
    assert text.count(mistake.old) == 1, f"{mistake.name}: correct its text, or replace it by another mistake"

    compile(mistake.planted_in(text), mistake.file, "exec")
    assert mistake.old != mistake.new
    assert mistake.says.endswith(".")
    for path in (*mistake.tests, *mistake.package_tests):
        assert (ROOT / path).exists(), path


def test_they_are_many_of_every_kind_in_every_package() -> None:
    assert len(MISTAKES) >= 100
    assert len({one.name for one in MISTAKES}) == len(MISTAKES)
    assert {one.kind for one in MISTAKES} == KINDS.keys()
    rooms = {str(path.parent.relative_to(ROOT)) for path in (ROOT / "shared_scheduler").glob("*/*.py")}
    planted = {"/".join(Path(one.file).parts[:2]) for one in MISTAKES}
    assert rooms - WITHOUT <= planted
    assert {"compute_agent", "compute_agent/service", "compute_agent/tap"} <= {one.package for one in MISTAKES}


def test_a_name_that_no_mistake_has_is_an_error() -> None:
    assert [one.name for one in chosen(["memo_*"])] == ["memo_does_not_tell_that_it_was_emptied"]
    with pytest.raises(LabError, match="no_such"):
        chosen(["no_such"])


def test_a_text_that_is_not_there_names_its_mistake() -> None:
    with pytest.raises(LabError, match=MISTAKES[0].name):
        MISTAKES[0].planted_in("something else")


@pytest.mark.long
def test_a_mistake_is_noticed_a_harmless_change_is_not_and_the_copy_is_as_before() -> None:
    [real] = chosen(["memo_*"])
    slots = '__slots__ = ("most", "was_emptied", "weight")'
    harmless = replace(real, name="harmless", old=slots, new='__slots__ = ("weight", "was_emptied", "most")')
    with copied() as tree, runner(tree, 1500.0) as running:
        noticed = running.try_one(real, ("tests",))
        missed = running.try_one(harmless, ("tests",))
        assert (tree.path / real.file).read_text() == (ROOT / real.file).read_text()
        with pytest.raises(LabError, match="no_such_test"):  # a stage that cannot run has noticed nothing
            running.noticed_by(Stage("tests", "pytest", ("-q", "no_such_test.py")))

    assert noticed.stage == "tests"
    assert noticed.by.startswith("tests/unit/protocol/test_memo.py::")
    assert not missed.noticed


@pytest.mark.long
def test_a_command_that_does_not_end_has_noticed_the_mistake() -> None:
    with copied() as tree, runner(tree, 1.0) as running:
        endless = running.noticed_by(Stage("tests", "http.server", ("0", "--bind", "127.0.0.1")))
    assert endless == "no end within 1 s"


def test_the_stages_begin_with_the_fast_ones() -> None:
    [pure], [edge] = chosen(["memo_*"]), chosen(["zone_of_the_last_aggregate"])
    assert [stage.name for stage in stages_of(pure)] == ["tests", "package", "scenarios", "simulator"]
    assert [stage.name for stage in stages_of(edge)] == ["tests"]
    assert [stage.name for stage in stages_of(pure, ("simulator",))] == ["simulator"]
    assert 0 not in NOTICED


def test_the_list_says_what_is_wrong_then() -> None:
    asked = command.parser().parse_args(["--list", "--only", "memo_*"])
    with ProgressLine() as progress:
        report = command.run(asked, progress)
    assert report.data[0]["says"] in report.text("text")
