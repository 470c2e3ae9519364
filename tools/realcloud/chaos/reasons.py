# SPDX-License-Identifier: Apache-2.0
"""Did a failure tell the truth? Judged by what the witness saw, never by what a scheduler said of itself.

A request that ended with "No valid host" lied if some host that it could have taken was open all the time and had
room for it all the time, even beside everything else that was under way and may have taken a place for a moment. One
that was not answered lied unless a scheduler was killed meanwhile.
"""

from collections import Counter
from collections.abc import Iterable

from .story import Deed, Story
from .witness import Memory

NO_HOST = "No valid host"
NO_ANSWER = ("MessagingTimeout", "Timed out waiting for a reply")
AFTERMATH_S = 60.0
"""A killed scheduler's claims are held by the nodes until they have looked in Placement."""


def lies(story: Story, seen: Memory) -> list[str]:
    """One sentence for each failure whose reason was not so."""
    return [f"user {deed.user}, {deed.name} of {deed.server}: {why}: {deed.why[:300]}"
            for deed in story.failed() if (why := lie(deed, story, seen))]  # fmt: skip


def lie(deed: Deed, story: Story, seen: Memory) -> str:
    """What is wrong with the reason; empty if it was true."""
    if any(text in deed.why for text in NO_ANSWER):
        return "" if struck(story, deed, 0.0) else "nobody answered, and no scheduler was killed"
    if NO_HOST not in deed.why:
        return "a reason that no request may have here"
    if deed.wish is None:
        return "it needs no host"
    ended_at = deed.ended_at or deed.began_at
    others_mb = sum(other.wish.memory_mb * other.wish.count for other in story.beside(deed) if other.wish)
    if struck(story, deed, AFTERMATH_S):
        others_mb += max(seen.memory_mb.values())
    wanted_mb = deed.wish.memory_mb * deed.wish.count + others_mb
    room = seen.had_room(deed.wish.hosts, deed.began_at, ended_at, wanted_mb)
    return f"{', '.join(room)} had room for {wanted_mb} MB all the time" if room else ""


def struck(story: Story, deed: Deed, before_s: float) -> bool:
    """Whether a scheduler was down at some moment of the deed, or so long before it."""
    ended_at = deed.ended_at or deed.began_at
    return any(
        blow.name == "scheduler killed" and blow.began_at <= ended_at and blow.ended_at + before_s >= deed.began_at
        for blow in story.blows
    )


def why_counts(deeds: Iterable[Deed]) -> dict[str, int]:
    """Failures by deed and the first words of their reason."""
    return dict(sorted(Counter(f"{deed.name}: {_short(deed.why)}" for deed in deeds).items()))


def _short(why: str) -> str:
    if NO_HOST in why:
        return "no valid host"
    return "no answer" if any(text in why for text in NO_ANSWER) else why[:120]
