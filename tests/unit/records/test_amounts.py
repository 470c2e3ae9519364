# SPDX-License-Identifier: Apache-2.0
"""Amounts are told with a unit that a reader knows."""

from __future__ import annotations

import pytest

from shared_scheduler.records.amounts import amount, counts_first, short_of, span


@pytest.mark.parametrize(("resource_class", "value", "text"), [
    ("MEMORY_MB", 512, "512 MB"), ("MEMORY_MB", 20_480, "20 GiB"), ("MEMORY_MB", 1_536, "1.5 GiB"),
    ("DISK_GB", 100, "100 GB"), ("VCPU", 3, "3 VCPU"), ("CUSTOM_GPU", 1, "1 CUSTOM_GPU"), ("", 2, "2"),
    ("MEMORY_MB", 1_048_064, "1,024 GiB"), ("MEMORY_MB", 1_572_864, "1.5 TiB"), ("MEMORY_MB", 2**31, "2,048 TiB"),
    ("DISK_GB", 1_234_567, "1,234,567 GB"), ("VCPU", 1_000_000, "1,000,000 VCPU"), ("VCPU", 0.25, "0.25 VCPU"),
    ("MEMORY_MB", 204_850, "200 GiB"),
])  # fmt: skip
def test_an_amount_has_its_unit(resource_class: str, value: float, text: str) -> None:
    assert amount(resource_class, value) == text


def test_a_span_of_one_amount_is_told_once() -> None:
    assert (span("VCPU", 2, 2), span("MEMORY_MB", 512, 20_480)) == ("2 VCPU", "512 MB to 20 GiB")


def test_the_hosts_that_lack_something_are_counted() -> None:
    assert short_of("no_room:MEMORY_MB", 301, 512, 20_480) == "301 hosts are short of MEMORY_MB by 512 MB to 20 GiB"
    assert short_of("no_room:VCPU", 1, 2, 2) == "1 host is short of VCPU by 2 VCPU"


@pytest.mark.parametrize(("text", "shown"), [
    ("0 of 3 hosts pass; rejected: traits: 3", "0 of 3 hosts pass; rejected: 3 traits"),
    ("0 of 3 hosts pass; rejected: no_room:VCPU: 2, tried: 1; more: 5",
     "0 of 3 hosts pass; rejected: 2 no_room:VCPU, 1 tried; more: 5"),
    ("rejected: 3 traits", "rejected: 3 traits"), ("no address: 5", "no address: 5"), ("", ""),
])  # fmt: skip
def test_rejected_hosts_are_counted_in_one_form(text: str, shown: str) -> None:
    assert counts_first(text) == shown
