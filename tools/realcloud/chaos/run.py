# SPDX-License-Identifier: Apache-2.0
"""The whole run: users at work while things break, then peace, and then everything has to be true."""

import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

from .. import audit
from ..cloud import Cloud
from ..errors import CloudError
from ..tables import wait_followed, wait_idle
from . import life, reasons
from .disorder import Disorder
from .ground import Ground, prepare
from .servers import User
from .story import Story
from .witness import Witness

USERS = 4
SETTLE_S = 90
"""How long the picture may take to become true after the last deed; claims of killed schedulers are looked for."""
COMMAND_TIMEOUT_S = 300


@dataclass(frozen=True)
class Report:
    """What a run came to."""

    seed: int
    minutes: float
    deeds: dict[str, dict[str, int]]
    blows: dict[str, int]
    failures: dict[str, int]
    wrong: list[str]
    """Everything that is not as it has to be, a sentence each."""
    lives: list[str]
    """What was done to those that it names, and what was logged of them."""


def run(cloud: Cloud, seed: int, minutes: float, say: Callable[[str], None], users: int = USERS) -> Report:
    """Bring up the cloud, do it, look. What is wrong is in the report; a `CloudError` is a run that could not go on."""
    ground = prepare(cloud)
    story, witness = Story(), Witness(cloud)
    say(f"{users} users for {minutes:g} minutes, seed {seed}")
    began_at = time.monotonic()
    live(ground, story, witness, seed, minutes, users)
    lasted_min = round((time.monotonic() - began_at) / 60, 1)
    say("peace; now everything has to be true")
    wrong = [*judge(cloud), *reasons.lies(story, witness.memory), *leave(cloud)]
    failures = reasons.why_counts(story.failed())
    lives = life.lives(cloud, story, wrong)
    return Report(seed, lasted_min, story.counts(), story.blow_counts(), failures, wrong, lives)


def live(ground: Ground, story: Story, witness: Witness, seed: int, minutes: float, users: int) -> None:
    """Users, disorder and witness at the same time; raises what ended one of them."""
    disorder = Disorder(ground.cloud, story, seed)
    until = time.monotonic() + minutes * 60
    broken: list[BaseException] = []

    def guarded(body: Callable[[], None]) -> Callable[[], None]:
        def guard() -> None:
            try:
                body()
            except BaseException as error:
                broken.append(error)

        return guard

    def use(user: User) -> None:
        while time.monotonic() < until and not broken:
            user.step()

    people = [User(number, ground, story, disorder, seed) for number in range(1, users + 1)]
    looking = threading.Thread(target=guarded(witness.run))
    striking = threading.Thread(target=guarded(disorder.run))
    using = [threading.Thread(target=guarded(lambda user=user: use(user))) for user in people]
    for thread in (looking, striking, *using):
        thread.start()
    for thread in using:
        thread.join()
    disorder.stop()
    striking.join()
    witness.stop()
    looking.join()
    if broken:
        raise broken[0]


def judge(cloud: Cloud) -> list[str]:
    """What Placement holds by Nova's records, and the operator's own comparison of all pictures."""
    wait_followed(cloud)
    return [*settled(lambda: audit.wrong_allocations(cloud)), *compared(cloud)]


def settled(look: Callable[[], list[str]], timeout_s: float = SETTLE_S) -> list[str]:
    """The last of several looks: what is about to be cleaned up may be so."""
    deadline = time.monotonic() + timeout_s
    while (found := look()) and time.monotonic() < deadline:
        time.sleep(1)
    return found


def compared(cloud: Cloud) -> list[str]:
    """The lines of `shared-scheduler-manage compare`, if it found anything."""
    command = [
        str(cloud.layout.nova / "bin" / "shared-scheduler-manage"), "compare",
        "--config-file", str(cloud.layout.nova_conf()), "--wait", str(SETTLE_S),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S, check=False)
    return [] if done.returncode == 0 else [f"compare: {line}" for line in (done.stdout + done.stderr).splitlines()]


def leave(cloud: Cloud) -> list[str]:
    """Delete everything: then nothing may be left, in Placement or in any table."""
    try:
        cloud.reset()
        wait_idle(cloud)
    except CloudError as error:
        return [f"after everything was deleted: {error}", *audit.wrong_allocations(cloud)]
    return compared(cloud)


def as_dict(report: Report) -> dict[str, object]:
    return asdict(report)
