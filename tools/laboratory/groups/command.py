# SPDX-License-Identifier: Apache-2.0
"""`tools/lab groups`: members of server groups that are requested, or moved, at the same moment."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from tools.laboratory.cloud.cloud import add_cloud, passing_cloud
from tools.laboratory.groups.contest import OPERATIONS, Plan, contest, load, results, table
from tools.laboratory.groups.pairs import POLICIES, Batch
from tools.laboratory.manual import Manual
from tools.laboratory.report import ProgressLine, Report, add_format, rows_report, save

MANUAL = Manual(
    does="Requests both members of many server groups at the same moment, by way of several schedulers, in a real "
    "cloud of uneven hosts with Nova's late check off, and counts the pairs that violate their policy, the failures "
    "and the reschedules. The same with members that move at the same moment.",
    needs="The same as `tools/lab cloud`.",
    lasts="One to two minutes to start the cloud, then about a minute for a batch of 25 pairs.",
    examples=(
        ("tools/lab groups --pairs 5 --stock 5", "one batch of five pairs of each policy, with either scheduler"),
        ("tools/lab groups --pairs 250 --policy affinity --save FILE", "one policy, saved after each batch"),
        ("tools/lab groups --operation evacuation --pairs 20", "members that are evacuated at the same moment"),
        ("tools/lab groups --show FILE --format rst", "the table of a saved run"),
    ),
    wrong="with our schedulers, a violation, a failure or a reschedule",
)


def parser() -> argparse.ArgumentParser:
    """The options."""
    top = MANUAL.parser("tools/lab groups")
    add_cloud(top)
    top.add_argument("--policy", dest="policies", action="append", choices=POLICIES,
                     help="policy of the groups; may be given several times (default: all)")  # fmt: skip
    top.add_argument("--operation", dest="operations", action="append", choices=OPERATIONS,
                     help="of both members at once; may be given several times (default: build)")  # fmt: skip
    top.add_argument("--pairs", type=int, default=25, help="pairs of each policy with our schedulers (default 25)")
    top.add_argument("--stock", type=int, default=0, help="pairs of each policy with nova-scheduler (default 0)")
    top.add_argument("--batch", type=int, default=25, help="pairs that are requested together (default 25)")
    top.add_argument("--schedulers", type=int, default=4, help="scheduler processes (default 4)")
    top.add_argument("--save", type=Path, metavar="FILE", help="write all figures to FILE, after each batch")
    top.add_argument("--show", type=Path, metavar="FILE", help="only print the figures of a saved run")
    add_format(top)
    return top


def run(asked: argparse.Namespace, progress: ProgressLine) -> Report:
    """Play the requested batches, or load those of a saved run."""
    if asked.show:
        return report_of(load(asked.show))
    plan = Plan(asked.policies or list(POLICIES), asked.operations or [OPERATIONS[0]], asked.pairs, asked.stock,
                asked.batch, asked.schedulers)  # fmt: skip
    progress.expect(len(list(plan.cases())) * (asked.pairs + asked.stock), "pairs")

    def keep(played: Sequence[Batch]) -> None:
        progress.step(played[-1].pairs)
        progress.say(str(played[-1]))
        save(asked.save, results(plan, played))

    with passing_cloud(asked, progress.say) as cloud:
        return report_of(contest(cloud, plan, keep))


def report_of(played: Sequence[Batch]) -> Report:
    """The table, the batches as data, and whether one of ours is wrong."""
    wrong = [batch for batch in played if batch.scheduler == "shared" and batch.is_wrong]
    rows = table(played)
    return Report(rows, [*rows_report(rows).parts, *(f"wrong: {batch}" for batch in wrong)], bool(wrong))
