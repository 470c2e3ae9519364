# SPDX-License-Identifier: Apache-2.0
"""Decides a recorded request again with other settings, on the state that its record holds.

A record holds the best few hosts with the share of each weigher in their weights, and why the others were rejected.
A share is the multiplier times a score from 0 to 1, which depends on the hosts that passed but not on the multipliers.
So new multipliers give new weights of these hosts exactly.  The hosts that passed and are not recorded weighed at most
as much as the last recorded one; this bounds what they weigh now: the maximum of a linear function of scores under one
linear constraint, which is the relaxation of the knapsack problem (Dantzig, 1957).

=======================================================  =============================================================
situation                                                verdict
=======================================================  =============================================================
no host was found, or only one passed                    same
another host weighs more, by more than ``near_tie``      differs
no recorded host weighs more, and none of the others     same
can
another host weighs more, by at most ``near_tie``        cannot tell: the choice follows from the slices
one of the other hosts may weigh more                    cannot tell
a filter is added, or one is removed that rejected some  cannot tell: those hosts are not recorded
another setting differs                                  cannot tell
=======================================================  =============================================================
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shared_scheduler.decision.decision_settings import settings_of
from shared_scheduler.decision.weighers import NATIVE_WEIGHERS
from shared_scheduler.records.errors import CannotReplayError
from shared_scheduler.records.record_file import DAMAGED
from shared_scheduler.records.store import PLACED, Record
from shared_scheduler.records.told_reasons import weighed_in

#: the verdicts
SAME, DIFFERS, CANNOT = "same", "differs", "cannot"
#: the setting of each multiplier -> the name of its weigher, and the sign with which it is used
WEIGHERS = {kind().option: (name, kind().sign) for name, kind in NATIVE_WEIGHERS.items()}
FILTERS, NEAR_TIE = "enabled_filters", "near_tie"
#: weights that differ by less are equal; doubles are rounded
ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Replayed:
    """One request that was decided again.  ``was`` and ``now`` are the hosts of its servers; ``why``: one sentence."""

    request_id: str
    at: float
    verdict: str
    was: tuple[str, ...] = ()
    now: tuple[str, ...] = ()
    why: str = ""


def reweighed(record: Record, other: Mapping[str, Any]) -> Replayed:
    """The verdict on a record of a decision.  ``other``: the settings, as ``decision_settings.plain_settings``."""
    name, at, was = str(record.get("request_id", "")), float(record["at"]), tuple[str, ...]()
    try:
        was = chosen_hosts(record)
        now = tuple(_again(counts, host, other) for counts, host in _last_decisions(record, was))
    except CannotReplayError as error:
        return Replayed(name, at, CANNOT, was, (), str(error))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        return Replayed(name, at, CANNOT, was, (), f"the record is damaged: {error!r}")
    changed = [(one, two[0], two[1]) for one, two in zip(was, now, strict=False) if one != two[0]]
    hosts = tuple(host for host, _ in now)
    if not changed:
        return Replayed(name, at, SAME, was, hosts or was)
    return Replayed(name, at, DIFFERS, was, hosts, changed[0][2])


def chosen_hosts(record: Record) -> tuple[str, ...]:
    """The hosts that a record says were chosen; empty if none was found."""
    return tuple(hosts[0] for hosts in record.get("answer", ()) if hosts)


def _last_decisions(record: Record, was: Sequence[str]) -> Iterator[tuple[Mapping[str, Any], str]]:
    """The last decision of each server, with its host; the last one of all if no host was found.

    :raises CannotReplayError: when the record is of an older release, or not complete
    """
    decisions = record.get("decisions", ())
    if DAMAGED in record:
        raise CannotReplayError("the line is not a record")
    if not decisions:
        raise CannotReplayError("the record holds no decision")
    if any("settings" not in one for one in decisions):
        raise CannotReplayError("the record is from a release that did not keep the settings")
    if record.get("result", PLACED) != PLACED:
        yield decisions[-1], ""
        return
    of_index = {one["index"]: one for one in decisions}
    for index, host in enumerate(was):
        if index not in of_index:
            raise CannotReplayError(f"the record does not hold the decision of server {index + 1}")
        yield of_index[index], host


def _again(counts: Mapping[str, Any], host: str, other: Mapping[str, Any]) -> tuple[str, str]:
    """The host with the other settings, and why it differs.

    :raises CannotReplayError: when it cannot be told
    """
    before, after = settings_of(counts["settings"]), settings_of(other)
    differ = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    _check_filters(counts, before, after)
    unknown = sorted(differ - WEIGHERS.keys() - {FILTERS})
    if unknown:
        raise CannotReplayError(f"{', '.join(unknown)} differ, and the facts about the hosts are not recorded")
    if not host or counts["survivors"] < 2 or not differ - {FILTERS}:
        return host, ""
    by_aggregate = sorted(differ & set(counts["multipliers_of_aggregates"]))
    if by_aggregate:
        raise CannotReplayError(f"aggregates set {', '.join(by_aggregate)} for some hosts, which is not recorded")
    return _heaviest(counts, host, before, after)


def _check_filters(counts: Mapping[str, Any], before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
    """:raises CannotReplayError: when other filters may reject other hosts"""
    added = sorted(set(after[FILTERS]) - set(before[FILTERS]))
    if added:
        raise CannotReplayError(f"{', '.join(added)} would be asked, and the facts about the hosts are not recorded")
    removed = sorted((set(before[FILTERS]) - set(after[FILTERS])) & counts["reasons"].keys())
    if removed:
        raise CannotReplayError(f"{', '.join(removed)} rejected hosts, whose weights are not recorded")


def _heaviest(
    counts: Mapping[str, Any], host: str, before: Mapping[str, Any], after: Mapping[str, Any]
) -> tuple[str, str]:
    best, known = counts["best"], weighed_in(counts)
    pairs = dict(_multipliers(known, before, after))
    weights = {one["host"]: sum(one["shares"].get(name, 0.0) / old * new for name, (old, new) in pairs.items())
               for one in known}  # fmt: skip
    if host not in weights:
        raise CannotReplayError(f"{host} was chosen, but is not among the {len(best)} recorded hosts")
    first = max(weights, key=lambda name: weights[name])
    behind = weights[first] - weights[host]
    near_tie = float(after[NEAR_TIE] or 0.0)
    if behind > near_tie + ROUNDING:
        now = first if not _others_reach(counts, pairs, weights[first]) else "another host"
        return now, f"{first} weighs {weights[first]:.4g} and {host} {weights[host]:.4g}"
    if behind > ROUNDING and first != best[0]["host"]:
        raise CannotReplayError(f"{first} weighs more than {host}, by no more than near_tie")
    if _others_reach(counts, pairs, weights[host]):
        raise CannotReplayError(f"{counts['survivors'] - len(best)} hosts that are not recorded may weigh more")
    return host, ""


def _multipliers(
    best: Sequence[Mapping[str, Any]], before: Mapping[str, Any], after: Mapping[str, Any]
) -> Iterator[tuple[str, tuple[float, float]]]:
    """(weigher, multipliers before and after) of the weighers that distinguish hosts.

    :raises CannotReplayError: when the scores of a weigher are not recorded
    """
    shown = {name for one in best for name in one["shares"]}
    foreign = shown - {name for name, _ in WEIGHERS.values()}
    if foreign:
        raise CannotReplayError(f"the multipliers of {', '.join(sorted(foreign))} are not recorded")
    for option, (name, sign) in WEIGHERS.items():
        old, new = sign * float(before[option]), sign * float(after[option])
        if name in shown:
            yield name, (old, new)
        elif not old and new:
            raise CannotReplayError(f"{name} had no effect, so its scores are not recorded")


def _others_reach(counts: Mapping[str, Any], pairs: Mapping[str, tuple[float, float]], weight: float) -> bool:
    """Whether a host that passed and is not recorded may weigh as much now."""
    best = counts["best"]
    if counts["survivors"] <= len(best):
        return False
    return most_weight(list(pairs.values()), float(best[-1]["weight"])) >= weight - ROUNDING


def most_weight(pairs: Sequence[tuple[float, float]], at_most: float) -> float:
    """The greatest sum of ``new * score`` with scores from 0 to 1 and the sum of ``old * score`` at most ``at_most``.

    ``pairs`` are (old, new); minus infinity if no scores meet the bound.
    """
    room = at_most - sum(min(old, 0.0) for old, _ in pairs) + ROUNDING
    if room < 0:
        return float("-inf")
    total = sum(new for old, new in pairs if old < 0 or (old == 0 and new > 0))
    # each of these raises the new weight by ``gain`` if it takes ``cost`` of the room
    offers = [(abs(new), abs(old)) for old, new in pairs if old * new > 0]
    for gain, cost in sorted(offers, key=lambda one: -one[0] / one[1]):
        part = min(1.0, room / cost)
        total += part * gain
        room -= part * cost
    return total
