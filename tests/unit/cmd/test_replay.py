# SPDX-License-Identifier: Apache-2.0
"""``replay`` reads a file of records or a request, and its exit code tells whether choices differ."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from shared_scheduler.answers.schema import schemas
from shared_scheduler.cmd import replay
from shared_scheduler.decision.decision_settings import DecisionSettings
from shared_scheduler.records.replay_sum import (
    CONFIG_FILE,
    DIFFERENCES_MAX,
    OTHER_REASONS,
    REASONS_MAX,
    RECORDED,
    ReplaySum,
)
from shared_scheduler.records.reweigh import CANNOT, DIFFERS, SAME, Replayed
from shared_scheduler.table.host_table import HostTable
from tests.support import forked_commands
from tests.unit.decision.small_clouds import add_host
from tests.unit.records.test_reweigh import recorded


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A file with one record: much RAM was preferred to much disk; and the configuration of the schedulers."""
    (tmp_path / "records.jsonl").write_text(decided_with(disk_weight_multiplier=0.1))
    (tmp_path / "nova.conf").write_text(
        "[DEFAULT]\ntransport_url = fake:/\n[filter_scheduler]\ndisk_weight_multiplier = 0.1\n"
    )
    (tmp_path / "disk.conf").write_text("[filter_scheduler]\ndisk_weight_multiplier = 9\n")
    return tmp_path


def decided_with(**multipliers: float) -> str:
    """The record of a request for which one host has much RAM, and the other one much disk."""
    table = HostTable()
    add_host(table, "much-ram", **{"cn.free_ram_mb": 16000, "cn.free_disk_gb": 10})
    add_host(table, "much-disk", **{"cn.free_ram_mb": 8000, "cn.free_disk_gb": 100})
    return json.dumps(recorded(table, DecisionSettings(**multipliers))) + "\n"


def run(place: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own, because it reads Nova's configuration for the whole process."""
    return forked_commands.run(Path(sys.executable), *of(place), *arguments)


def run_program(place: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The same as operators start it."""
    command = [sys.executable, "-m", "shared_scheduler.cmd.manage", *of(place)]
    return subprocess.run([*command, *arguments], capture_output=True, text=True, check=False, timeout=1500)


def of(place: Path) -> tuple[str, ...]:
    return "replay", "--config-file", str(place / "nova.conf")


def test_a_file_is_decided_again_with_its_own_and_with_another_configuration(place: Path) -> None:
    file = str(place / "records.jsonl")

    same = run_program(place, file)
    other = run(place, file, "--config", str(place / "disk.conf"), "--format", "json")

    assert (same.returncode, same.stderr) == (0, "")
    assert same.stdout.startswith("1 request on the recorded state: 1 same, 0 differ, 0 cannot be decided again")
    assert other.returncode == 1
    answer = json.loads(other.stdout)
    Draft202012Validator(schemas()["replay"]).validate(answer)
    [difference] = answer["differences"]
    assert (difference["was"], difference["now"]) == (["much-ram"], ["much-disk"])


#: of the line that no scheduler answers
ABOUT_SOCKETS = "[shared_scheduler] admin_socket_dir"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("req-unknown", "--records", "{}/records.jsonl"), "neither a file nor the name of a recorded request"),
        (("{}/nothing.jsonl", "--records", "{}/records.jsonl"), "/nothing.jsonl: there is no file of this name"),
        (("{}/records.jsonl", "--config", "{}/nothing.conf"), "nothing.conf"),
        (("{}/records.jsonl", "--state", "current", "--socket-dir", "{}"), "no scheduler of this machine answers"),
    ],
)
def test_what_cannot_be_done_ends_with_one_clear_line(place: Path, arguments: tuple[str, ...], text: str) -> None:
    done = run(place, *(argument.format(place) for argument in arguments))

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("replay: ") and "[shared_scheduler]" not in done.stderr.replace(ABOUT_SOCKETS, "")
    assert text in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(("text", "told"), [
    ("[filter_scheduler]\ndisk_wieght_multiplier = 9\nram_weight_multiplier = 1\n",
     "[filter_scheduler] disk_wieght_multiplier is not known, and has no effect (is disk_weight_multiplier meant?)"),
    ("[fliter_scheduler]\ndisk_weight_multiplier = 9\n[filter_scheduler]\nram_weight_multiplier = 1\n",
     "[fliter_scheduler] disk_weight_multiplier is not known, and has no effect (is [filter_scheduler] meant?)"),
    ("[DEFAULT]\ndebug = false\ndisk_weight_multiplier = 9\n",
     "[DEFAULT] disk_weight_multiplier is not known, and has no effect (is [filter_scheduler] meant?)"),
])  # fmt: skip
def test_a_misspelt_option_is_named_with_its_section(place: Path, text: str, told: str) -> None:
    (place / "misspelt.conf").write_text(text)

    done = run(place, str(place / "records.jsonl"), "--config", str(place / "misspelt.conf"))

    assert done.returncode == 0, "it changes nothing"
    assert done.stderr == f"replay: warning: {place}/misspelt.conf: {told}\n"
    assert done.stdout.startswith("1 request on the recorded state: 1 same")


@pytest.mark.parametrize("state", ["recorded", "current"])
def test_a_file_without_any_known_option_compares_nothing(place: Path, state: str) -> None:
    (place / "misspelt.conf").write_text("[filter_scheduler]\ndisk_wieght_multiplier = 9\n[moon]\nphase = 1\n")
    (place / "run").mkdir()

    done = run(place, str(place / "records.jsonl"), "--config", str(place / "misspelt.conf"), "--state", state,
               "--socket-dir", str(place / "run"))  # fmt: skip

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"replay: {place}/misspelt.conf: [filter_scheduler] disk_wieght_multiplier is not known, and has no effect (is "
        "disk_weight_multiplier meant?); [moon] phase is not known, and has no effect\n"
    )


@pytest.mark.parametrize("text", [
    "", "[DEFAULT]\nlogdir = /tmp\nlog-config = /etc/logging.conf\n",  # old names of log_dir and log_config_append
    "[default]\nstate-path = /tmp\n[FILTER_SCHEDULER]\nram_weight_multiplier = 1\n",
])  # fmt: skip
def test_options_in_other_spellings_of_oslo_config_are_known(place: Path, text: str) -> None:
    (place / "other.conf").write_text(text)

    done = run(place, str(place / "records.jsonl"), "--config", str(place / "other.conf"))

    assert "not known" not in done.stderr, done.stderr


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home directory in which Nova finds its files: much disk is preferred."""
    (tmp_path / ".nova" / "nova.conf.d").mkdir(parents=True)
    (tmp_path / ".nova" / "nova.conf").write_text(
        "[DEFAULT]\ntransport_url = fake:/\n[filter_scheduler]\ndisk_weight_multiplier = 9\n"
    )
    (tmp_path / "ram.conf").write_text("[filter_scheduler]\nram_weight_multiplier = 3\n")
    return tmp_path


def at_home(home: Path, *command: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "HOME": str(home)}
    return subprocess.run([sys.executable, *command], env=environment, capture_output=True, text=True, check=False)


def test_the_options_of_config_replace_those_of_the_files_that_nova_finds(home: Path) -> None:
    # given a record of schedulers that prefer disk, and options that prefer RAM a little
    (home / "records.jsonl").write_text(decided_with(disk_weight_multiplier=9.0))

    command = ["-m", "shared_scheduler.cmd.manage", "replay", str(home / "records.jsonl")]
    done = at_home(home, *command, "--config", str(home / "ram.conf"))

    assert done.stdout.startswith("1 request on the recorded state: 1 same, 0 differ"), done
    assert done.returncode == 0


READ_AT_HOME = """
import sys
from pathlib import Path
from shared_scheduler.novalib import threading_backend
threading_backend.choose_threads()
from shared_scheduler.nova import source_readers
config = Path(sys.argv[1])
for again, replaced_by in ((False, None), (True, None), (True, config), (True, None)):
    source_readers.configure([], again, replaced_by)
    options = source_readers.CONF.filter_scheduler
    print(options.disk_weight_multiplier, options.cpu_weight_multiplier, options.ram_weight_multiplier)
"""


def test_a_command_finds_what_nova_scheduler_finds_and_only_config_replaces_it(home: Path) -> None:
    (home / ".nova" / "nova-scheduler.conf").write_text("[filter_scheduler]\ncpu_weight_multiplier = 5\n")
    (home / ".nova" / "nova.conf.d" / "all.conf").write_text(
        "[filter_scheduler]\nram_weight_multiplier = 2\ndisk_weight_multiplier = 8\n"
    )

    done = at_home(home, "-c", READ_AT_HOME, str(home / "ram.conf"))

    found, replaced = "8.0 5.0 2.0", "8.0 5.0 3.0"
    assert (done.stdout.splitlines(), done.returncode) == ([found, found, replaced, found], 0), done.stderr


READ_TWICE = """
import sys
from pathlib import Path
from shared_scheduler.novalib import threading_backend
threading_backend.choose_threads()
from shared_scheduler.nova import source_readers
plain, other = map(Path, sys.argv[1:])
for files, again in (([plain], False), ([plain], True), ([plain, other], True)):
    source_readers.configure(files, again)
    print(source_readers.CONF.filter_scheduler.disk_weight_multiplier)
"""


def test_one_process_reads_one_configuration_after_the_other(place: Path) -> None:
    files = [str(place / "nova.conf"), str(place / "disk.conf")]

    done = subprocess.run([sys.executable, "-c", READ_TWICE, *files], capture_output=True, text=True, check=False)

    assert (done.stdout.split(), done.returncode) == (["0.1", "0.1", "9.0"], 0), done.stderr


def verdict(kind: str, number: int = 0) -> Replayed:
    return Replayed(f"req-{number}", 1000.0, kind, ("c1",), ("c2",), f"reason {number}")


@pytest.mark.parametrize(
    ("verdicts", "result"),
    [((SAME, CANNOT, DIFFERS), DIFFERS), ((SAME, CANNOT), CANNOT), ((SAME,), SAME), ((), CANNOT)],
)
def test_one_difference_counts_more_than_unknown_results(verdicts: tuple[str, ...], result: str) -> None:
    found = ReplaySum("recorded")
    for each in verdicts:
        found.add(verdict(each))

    assert found.result == result


def test_the_answer_is_bounded() -> None:
    found = ReplaySum("recorded")
    for number in range(DIFFERENCES_MAX + 200):
        found.add(verdict(DIFFERS, number))
        found.add(verdict(CANNOT, number))

    answer: dict[str, Any] = found.as_dict(1.0)

    assert (len(answer["differences"]), answer["differ"]) == (DIFFERENCES_MAX, DIFFERENCES_MAX + 200)
    assert len(answer["cannot_reasons"]) == REASONS_MAX + 1
    assert answer["cannot_reasons"][OTHER_REASONS] == DIFFERENCES_MAX + 200 - REASONS_MAX
    assert replay.lines(answer)[-1].startswith("1 cannot be decided again")
    assert "more differ" in "\n".join(replay.lines(answer))


@pytest.mark.parametrize(("record", "same", "told"), [
    ({"result": "no_candidates", "answer": []}, 1, ["same result as recorded: no_candidates"]),
    ({"result": "placed", "answer": [["c1", "c2"], ["c3"]]}, 1, ["same result as recorded: placed on c1, c3"]),
    ({"result": "placed", "answer": [["c1"]]}, 0, []),
])  # fmt: skip
def test_the_recorded_result_of_one_request_is_named(record: dict[str, Any], same: int, told: list[str]) -> None:
    answer = {"same": same, "compared_with": RECORDED}
    assert list(replay.same_result(answer, [record])) == told
    assert list(replay.same_result({**answer, "same": 2 * same}, [record, record])) == [], "of one only"


def test_two_configurations_are_compared_with_one_another_and_not_with_the_record() -> None:
    """The host of the record is full now: without a host there is no result as recorded."""
    found = ReplaySum("current", CONFIG_FILE)
    found.add(Replayed("req-1", 1000.0, SAME, (), ()))
    answer = found.as_dict(1.0)

    told = [*replay.lines(answer), *replay.same_result(answer, [{"result": "placed", "answer": [["c1"]]}])]

    Draft202012Validator(schemas()["replay"]).validate(answer)
    assert (answer["compared_with"], answer["choice"]) == (CONFIG_FILE, [])
    assert told[1:] == [
        "the choices with --config are compared with those of --config-file alone, not with the recorded ones",
        "same choice with and without --config: no host",
    ]


def test_the_hosts_that_two_configurations_choose_are_those_of_now() -> None:
    found = ReplaySum("current", CONFIG_FILE)
    found.add(Replayed("req-1", 1000.0, SAME, ("c3", "c4"), ("c3", "c4")))

    [told] = replay.same_result(found.as_dict(1.0), [{"result": "placed", "answer": [["c1"], ["c2"]]}])

    assert told == "same choice with and without --config: c3, c4"


def test_a_choice_of_one_configuration_is_compared_with_the_record() -> None:
    found = ReplaySum("current")
    found.add(Replayed("req-1", 1000.0, SAME, ("c1",), ("c1",)))
    answer = found.as_dict(1.0)

    assert (answer["compared_with"], answer["choice"]) == (RECORDED, ["c1"])
    [told] = replay.same_result(answer, [{"result": "placed", "answer": [["c1"]]}])
    assert told == "same result as recorded: placed on c1"
