# SPDX-License-Identifier: Apache-2.0
"""What a request asks of spreading: parsed and checked here only.

Two texts may stand in the extra specs of a flavor, in scheduler hints and in the properties of an image::

    shared_scheduler:spread = key=rack,max_skew=1,mode=hard
    shared_scheduler:label = web

The first one has one or several *constraints*, with ``;`` between them, as Kubernetes' ``topologySpreadConstraints``:

=============  ============================  ========================================================================
field          in Kubernetes                 meaning
=============  ============================  ========================================================================
``key``        ``topologyKey``               a key in the metadata of host aggregates; hosts with one value of it are
                                             one *domain*
``max_skew``   ``maxSkew``                   a whole number from 1; the default is 1
``mode``       ``whenUnsatisfiable``         ``hard`` (``DoNotSchedule``, the default) or ``soft`` (``ScheduleAnyway``)
=============  ============================  ========================================================================

Servers are counted that are in the same server group as the server of the request.  If it is in none, servers of the
same project with the same label are counted (``labelSelector``).  A label is handled as a server group without a
policy, whose uuid follows from the project and the label.  A server is in one group, so a label has no effect on a
server in a server group.

``spread_keys`` lists the keys that may be used; if it is empty, spreading is disabled and the texts are ignored.

The constraints of all sources apply together.  As in Nova, the flavor is the operator's, and an image must not change
what it says: if both have constraints over one key, these must be equal, as for ``hw:cpu_thread_policy`` (Nova's
``FlavorImageConflict``).  Hints only add constraints.  A server has one label, so labels must be equal in all sources.

Nova gives a scheduler only the properties of an image that it knows itself, so the edge reads these from Nova's
databases (``sync/image_reads.py``), if ``spread_image_properties`` says so.  As for Nova's own properties, the name may
have ``_`` for ``:``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from uuid import UUID, uuid5

from shared_scheduler.decision.decision_settings import SpreadImages
from shared_scheduler.decision.errors import DecisionError, ImageUnreadError
from shared_scheduler.decision.request import LABEL_POLICY, Group, Request, SpreadConstraint, SpreadMode

SPREAD = "shared_scheduler:spread"
LABEL = "shared_scheduler:label"

#: how a property of an image may be named
FORMS = {name: (name, name.replace(":", "_")) for name in (SPREAD, LABEL)}
IMAGE_PROPERTIES = tuple(chain(*FORMS.values()))

#: constraints of one request, after equal ones are merged
CONSTRAINTS_MAX = 4
#: the longest text of one source; four constraints with the longest keys fit
TEXT_MAX_CHARS = 2048
#: Nova cuts a property of an image after 255 bytes, and before a character that begins there.
IMAGE_TEXT_MAX_BYTES = 251
#: more servers than Placement can count on one provider cannot differ
MAX_SKEW_MAX = 1_000_000
#: as a label's value in Kubernetes
LABEL_FORM = re.compile(r"[A-Za-z0-9._-]{1,63}")
#: makes the uuids of labels; a random constant
LABELS = UUID("5b2f3a4e-0f5d-4c50-9c39-6f6d2a1f6b7e")


#: the places of a request
FLAVOR, IMAGE, HINTS = "flavor", "image", "scheduler hints"
#: the fields of a constraint
KEY, MAX_SKEW, MODE = FIELDS = ("key", "max_skew", "mode")
MODES = tuple(mode.value for mode in SpreadMode)


@dataclass(frozen=True, slots=True)
class TextPlace:
    """One place of a request that may have the texts, as an error names it."""

    name: str
    texts: Mapping[str, tuple[str, ...]]


def with_spreading(request: Request, keys: tuple[str, ...], images: SpreadImages = SpreadImages.IGNORED) -> Request:
    """The request with its constraints and, if it is in no server group, with its label as a group.

    ``keys``: the keys that the operator allows.

    :raises ImageUnreadError: when the properties of the image are required and could not be read
    :raises DecisionError: when a text is malformed, names another key, or has nothing to count
    """
    if not keys or request.is_rebuild:
        return request
    if request.image_unread and images == SpreadImages.REQUIRED:
        raise ImageUnreadError(f"whether the image has {SPREAD} or {LABEL} could not be read: {request.image_unread}")
    sources = _sources(request)
    constraints, label = constraints_of(sources, keys), label_of(sources)
    group = request.group
    if group is None and label:
        group = Group(label_uuid(request.project_id, label), LABEL_POLICY)
    if constraints and (group is None or not group.uuid):
        raise DecisionError(
            f"{SPREAD} counts the members of a server group, or servers with the same {LABEL}: "
            f"put the server into a server group, or give it {LABEL}{_unread(request)}"
        )
    return replace(request, group=group, spread=constraints, label=label if _is_label(group) else "")


def constraints_of(sources: Iterable[TextPlace], keys: tuple[str, ...]) -> tuple[SpreadConstraint, ...]:
    """The constraints of all sources, without duplicates; ``source`` names where each one is.

    :raises DecisionError: when one is malformed or names a key that is not in ``keys``, if there are too many, or when
        those of the flavor and the image differ
    """
    given = {source.name: _constraints_in(source, keys) for source in sources}
    _check_agreement(given.get(FLAVOR, ()), given.get(IMAGE, ()))
    found: dict[SpreadConstraint, list[str]] = {}
    for name, constraints in given.items():
        for one in constraints:
            found.setdefault(one, []).append(name)
    if len(found) > CONSTRAINTS_MAX:
        raise DecisionError(f"{SPREAD} has {len(found)} constraints, but at most {CONSTRAINTS_MAX} are allowed")
    return tuple(replace(one, source=" and ".join(names)) for one, names in found.items())


def label_of(sources: Iterable[TextPlace]) -> str:
    """The label of the server; empty if it has none.

    :raises DecisionError: when a label is malformed or two sources differ
    """
    given = [source.texts.get(LABEL, ()) for source in sources]
    found = set(chain(*given))
    for label in found:
        if not LABEL_FORM.fullmatch(label):
            raise DecisionError(
                f"{LABEL} {_quoted(label)}: 1 to 63 letters, digits, '.', '_' and '-' of ASCII are allowed"
            )
    if len(found) > 1 or any(len(texts) > 1 for texts in given):
        raise DecisionError(f"{LABEL} has several values ({', '.join(sorted(found))}): a server has one label")
    return next(iter(found), "")


def label_uuid(project_id: str, label: str) -> str:
    """The uuid of the group of all servers of a project with a label."""
    return str(uuid5(LABELS, f"{project_id}/{label}"))


def _sources(request: Request) -> tuple[TextPlace, ...]:
    extra_specs, hints, names = request.flavor.extra_specs, request.hints, (SPREAD, LABEL)
    return (
        TextPlace(FLAVOR, {name: (extra_specs[name],) for name in names if name in extra_specs}),
        TextPlace(IMAGE, _texts_of_image(request.image_spread) if request.image_spread else {}),
        TextPlace(HINTS, {name: hints[name] for name in names if name in hints}),
    )


def _texts_of_image(properties: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    for name in IMAGE_PROPERTIES:
        size = len(properties.get(name, "").encode(errors="surrogatepass"))
        if size > IMAGE_TEXT_MAX_BYTES:
            raise DecisionError(
                f"{name} of the image has {size} bytes or more, because Nova cuts it: at most {IMAGE_TEXT_MAX_BYTES} "
                "are allowed; write several constraints shorter, or into the flavor or the scheduler hints"
            )
    return {name: texts for name, forms in FORMS.items() if (texts := _texts_of(forms, properties))}


def _texts_of(forms: Iterable[str], properties: Mapping[str, str]) -> tuple[str, ...]:
    """The text of a property under its names."""
    there = {form: properties[form] for form in forms if form in properties}
    if len(set(there.values())) > 1:
        raise DecisionError(f"the image has {' and '.join(there)} with different texts: remove one of them")
    return tuple(there.values())[:1]


def _constraints_in(source: TextPlace, keys: tuple[str, ...]) -> tuple[SpreadConstraint, ...]:
    where = f"{SPREAD} of the {source.name}"
    parsed = chain.from_iterable(_parsed(where, text, keys) for text in source.texts.get(SPREAD, ()))
    return tuple(dict.fromkeys(parsed))


def _check_agreement(flavor: Iterable[SpreadConstraint], image: Iterable[SpreadConstraint]) -> None:
    """An image must not change what the flavor says of a key."""
    for key in sorted({one.key for one in flavor} & {one.key for one in image}):
        of_flavor, of_image = ({one for one in every if one.key == key} for every in (flavor, image))
        if of_flavor != of_image:
            raise DecisionError(
                f"{SPREAD} of the image has {_written(of_image)}, but the flavor has {_written(of_flavor)}: an image "
                "must not change what the flavor says of a key; remove it from one of them"
            )


def _written(constraints: Iterable[SpreadConstraint]) -> str:
    return ";".join(sorted(f"key={one.key},max_skew={one.max_skew},mode={one.mode}" for one in constraints))


def _unread(request: Request) -> str:
    return f" (the image could not be read: {request.image_unread})" if request.image_unread else ""


def _is_label(group: Group | None) -> bool:
    return group is not None and group.policy == LABEL_POLICY


def _parsed(where: str, text: str, keys: tuple[str, ...]) -> Iterator[SpreadConstraint]:
    if len(text) > TEXT_MAX_CHARS:
        raise DecisionError(f"{where} has {len(text)} characters, but at most {TEXT_MAX_CHARS} are allowed")
    for part in text.split(";"):
        yield _constraint(where, _fields(where, part), keys)


def _fields(where: str, part: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for word in part.split(","):
        name, equals, value = (piece.strip() for piece in word.partition("="))
        if not equals or not value or name not in FIELDS:
            names = ", ".join(f"{field}=..." for field in FIELDS)
            raise DecisionError(f"{where}: {_quoted(word)} is not understood; use {names}, for example key=rack")
        if name in found:
            raise DecisionError(f"{where}: {name} is given twice in one constraint")
        found[name] = value
    return found


def _constraint(where: str, fields: Mapping[str, str], keys: tuple[str, ...]) -> SpreadConstraint:
    key = fields.get(KEY, "")
    if key not in keys:
        raise DecisionError(f"{where}: key {_quoted(key)} is not allowed; use one of {', '.join(keys)}")
    mode = fields.get(MODE, SpreadMode.HARD.value)
    if mode not in MODES:
        raise DecisionError(f"{where}: mode {_quoted(mode)} is unknown; use {' or '.join(MODES)}")
    return SpreadConstraint(key, _max_skew(where, fields.get(MAX_SKEW, "1")), SpreadMode(mode))


def _max_skew(where: str, text: str) -> int:
    number = int(text) if text.isascii() and text.isdigit() and len(text) <= len(str(MAX_SKEW_MAX)) else 0
    if not 1 <= number <= MAX_SKEW_MAX:
        raise DecisionError(f"{where}: max_skew {_quoted(text)} is not a whole number from 1 to {MAX_SKEW_MAX}")
    return number


def _quoted(text: str) -> str:
    """The start of a text of a user, for a message."""
    return repr(text[:64])
