# SPDX-License-Identifier: Apache-2.0
"""The options are documented and bounded, and the samples in the tree equal the generator's output."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from oslo_config import cfg

import compute_agent.conf
from shared_scheduler.conf import opts
from shared_scheduler.core.scheduler_settings import SchedulerSettings

ROOT = Path(__file__).resolve().parents[3]
#: those of both programs
ALL = (*opts.ALL, *(option for _, options in compute_agent.conf.list_opts() for option in options))
#: ``name`` (30 s)
NAMED_DEFAULT = re.compile(r"``(?:\[\w+\]\s)?(\w+)``\s\(([\d.]+)(?:\s\w+)?\)")
#: ``name`` or ``[group] name``
OPTION = re.compile(r"``(?:\[\w+\] )?(\w+)``")


@pytest.fixture
def conf() -> cfg.ConfigOpts:
    made = cfg.ConfigOpts()
    opts.register(made)
    made([], default_config_files=[])
    return made


@pytest.mark.parametrize("option", ALL, ids=lambda option: option.name)
def test_every_option_has_a_help_text(option: cfg.Opt) -> None:
    assert option.help is not None
    assert option.help.rstrip().endswith(".")
    assert len(option.help) > 40


@pytest.mark.parametrize("option", ALL, ids=lambda option: option.name)
def test_every_number_has_bounds_and_a_default_within(option: cfg.Opt) -> None:
    if isinstance(option, (cfg.IntOpt, cfg.FloatOpt)):
        assert option.type.min is not None
        assert option.type.max is not None
        assert option.type.min <= option.type.max
        if option.default is not None:  # not set: an option of Nova counts
            assert option.type.min <= option.default <= option.type.max


def test_an_agent_keeps_a_claim_for_longer_than_a_scheduler_may_take_to_write_it() -> None:
    [option] = [option for option in ALL if option.name == "claim_check_after_s"]

    assert option.type.min > SchedulerSettings().written_within_s


def test_the_page_on_tuning_names_the_mutable_options_of_its_table() -> None:
    page = (ROOT / "doc" / "source" / "admin" / "tuning.rst").read_text()
    table, _, rest = page.partition("\nSIGHUP applies")
    told = rest.partition("others")[0]
    mutable = {option.name for option in ALL if option.mutable}

    assert set(OPTION.findall(told)) == mutable & set(OPTION.findall(table))


def test_secrets_are_never_logged() -> None:
    assert {option.name for option in opts.ALL if option.secret} == {"records_connection"}


def test_a_value_out_of_bounds_is_refused(conf: cfg.ConfigOpts, tmp_path: Path) -> None:
    file = tmp_path / "nova.conf"
    file.write_text("[shared_scheduler]\nworkers = 0\n")
    conf([], default_config_files=[str(file)])

    with pytest.raises((cfg.Error, ValueError), match="workers"):
        conf.shared_scheduler.workers  # noqa: B018


def test_registering_twice_is_fine(conf: cfg.ConfigOpts) -> None:
    opts.register(conf)

    assert conf.shared_scheduler.workers == 1


def test_the_defaults_that_pages_name_are_those_of_the_options() -> None:
    defaults = {option.name: option.default for option in ALL}
    pages = [ROOT / "README.rst", *(ROOT / "doc" / "source").rglob("*.rst")]
    named = {(page.name, *found) for page in pages for found in NAMED_DEFAULT.findall(page.read_text())}

    assert len(named) > 3
    assert [(page, name) for page, name, told in named if float(told) != defaults[name]] == []


@pytest.mark.parametrize("service", ["shared-scheduler", "compute-agent"])
def test_the_sample_equals_the_output_of_the_generator(service: str, tmp_path: Path) -> None:
    made = tmp_path / "sample"
    command = [
        str(Path(sys.executable).with_name("oslo-config-generator")),
        "--config-file",
        f"etc/{service}/config-generator.conf",
        "--output-file",
        str(made),
    ]

    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)

    kept = ROOT / "etc" / service / f"{service}.conf.sample"
    assert kept.read_text() == made.read_text(), "run: tox -e genconfig"


@pytest.fixture(params=["shared-scheduler", "compute-agent"])
def all_options(request: pytest.FixtureRequest) -> str:
    """The generated sample of a program, with all of its options set to their defaults."""
    sample = (ROOT / "etc" / request.param / f"{request.param}.conf.sample").read_text()
    return re.sub(r"^#(\w+ = )", r"\1", sample, flags=re.MULTILINE)


def found_by_the_validator(text: str, tmp_path: Path) -> str:
    """What oslo-config-validator finds wrong, as kolla runs it; empty if nothing is."""
    file = tmp_path / "nova.conf"
    file.write_text(text)
    namespaces = ("--namespace", "shared_scheduler", "--namespace", "compute_agent")
    command = [sys.executable, "-m", "oslo_config.validator", "--input-file", str(file), *namespaces]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert (ended.returncode != 0) == bool(ended.stderr), ended
    return ended.stderr


def test_a_validator_accepts_all_options(all_options: str, tmp_path: Path) -> None:
    assert len(re.findall(r"^\w+ = ", all_options, flags=re.MULTILINE)) >= 10
    assert found_by_the_validator(all_options, tmp_path) == ""


def test_a_validator_names_a_misspelled_option(all_options: str, tmp_path: Path) -> None:
    misspelled = all_options.replace("\nsigning = ", "\nsinging = ")

    assert "singing is not part of the sample config" in found_by_the_validator(misspelled, tmp_path)
