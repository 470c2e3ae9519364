# SPDX-License-Identifier: Apache-2.0
"""Computes Placement's answer from the mirror: traits, aggregates, tree, and room for each class.

A request has one or several forms (Nova asks a second time with VCPU if pinned CPUs were requested as PCPU).  A host
passes if it passes one of them.  A host is *simple* for a class if no other provider of its tree and no sharing
provider has that class: then the root provider is the only candidate, and the columns are exact.  Otherwise the
columns screen: a host passes if any provider might have room for the class, and Placement is asked for its candidates
when the host is tried.

========================  =============================================================================
code                      the host was rejected because
========================  =============================================================================
``root_traits``           the root provider lacks a required trait or has a forbidden one
``traits``                the same, of the provider that gives the resources
``aggregates``            the root is in none of the aggregates of one ``member_of``, or in a forbidden one
``in_tree``               the request names another tree
``no_room:<class>``       too little of the class, or the amount breaks min_unit, max_unit or step_size;
                          for a numbered group: no provider of the tree has as much
``group_traits``          no provider that has a numbered group's classes has its traits
``placement``             none of several forms fits
========================  =============================================================================
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain

import numpy as np

from shared_scheduler.decision.context import DecisionContext
from shared_scheduler.decision.masks import mask_of_slots
from shared_scheduler.decision.request import NumberedGroup, PlacementForm
from shared_scheduler.model.providers import Provider
from shared_scheduler.model.resources import fits, used_of
from shared_scheduler.model.services import DISABLED_TRAIT
from shared_scheduler.protocol.messages import Leaf
from shared_scheduler.table.columns import BoolArray
from shared_scheduler.table.host_table import HostTable
from shared_scheduler.table.host_view import HostView
from shared_scheduler.table.row import Row

ROOT_TRAITS = "root_traits"
TRAITS = "traits"
AGGREGATES = "aggregates"
IN_TREE = "in_tree"
NO_ROOM = "no_room:"
GROUP_TRAITS = "group_traits"
ANY_FORM = "placement"
#: key of the masks of trees whose providers together have all of some traits
TREE_TRAITS = "tree_traits"


def is_placement_reason(code: str) -> bool:
    """Whether a reason comes from the mirror of Placement, which Placement may correct."""
    codes = (ROOT_TRAITS, TRAITS, AGGREGATES, IN_TREE, GROUP_TRAITS, ANY_FORM)
    return code in codes or code.startswith(NO_ROOM)


def forms_on(context: DecisionContext, slot: int) -> tuple[PlacementForm, ...] | None:
    """The forms that fit the root provider of a host; None if only Placement can judge the host."""
    request, row = context.request, context.table.row(slot)
    if row is None:
        return ()
    if not request.root_only or any(not row.other_provider_classes.isdisjoint(f.resources) for f in request.forms):
        return None
    if len(request.forms) == 1:
        return request.forms if _fits_one(context, request.forms[0], row) else ()
    return tuple(form for form in request.forms if _fits_one(context, form, row))


def _fits_one(context: DecisionContext, form: PlacementForm, row: Row) -> bool:
    """Whether a host that is simple for the form passes it now, with own claims counted."""
    root = row.providers.get(row.node)
    if root is None:
        return False
    return (
        form.root_required | form.required <= root.traits
        and root.traits.isdisjoint(form.root_forbidden | form.forbidden)
        and all(any_of & root.traits for any_of in form.required_any)
        and all(any_of & root.aggregates for any_of in form.member_of)
        and root.aggregates.isdisjoint(form.forbidden_aggregates)
        and (form.in_tree is None or form.in_tree in row.providers)
        and all(
            fits(root.inventories.get(rc), used_of(row.used, row.node, rc), amount) is None
            for rc, amount in form.resources.items()
        )
    )


def form_masks(context: DecisionContext, form: PlacementForm) -> Iterator[tuple[str, BoolArray | None]]:
    """The steps of one form: (code, mask of the slots that pass; None: all)."""
    yield from _property_masks(context, form, form.root_forbidden, form.in_tree)
    for resource_class, amount in form.resources.items():
        yield NO_ROOM + resource_class, _room(context, resource_class, amount)
    if form.numbered:
        for resource_class, amount in form.most_numbered().items():
            yield NO_ROOM + resource_class, _room(context, resource_class, amount, exact=False)
        yield from _group_masks(context, form)


def selects_by_placement(context: DecisionContext) -> BoolArray | None:
    """The hosts with the lasting properties that one of the forms asks for; None: all.

    Amounts and the trait of disabled hosts do not last, and the tree in a query is the target of one move."""
    found: BoolArray | None = None
    for form in context.request.forms:
        lasting = _property_masks(context, form, form.root_forbidden - {DISABLED_TRAIT}, None)
        masks = chain(lasting, _group_masks(context, form))
        passing = [mask for _, mask in masks if mask is not None]
        if not passing:
            return None
        of_form = np.logical_and.reduce(passing) if len(passing) > 1 else passing[0]
        found = of_form if found is None else found | of_form
    return found


def _property_masks(
    context: DecisionContext, form: PlacementForm, root_forbidden: frozenset[str], in_tree: str | None
) -> Iterator[tuple[str, BoolArray | None]]:
    if form.root_required or root_forbidden:
        yield ROOT_TRAITS, _traits(context, form.root_required, root_forbidden)
    if form.member_of or form.forbidden_aggregates:
        yield AGGREGATES, _aggregates(context, form)
    if in_tree is not None:
        yield IN_TREE, _in_tree(context, in_tree)
    if form.resources and (form.required or form.forbidden or form.required_any):
        yield TRAITS, _giver_traits(context, form)


def _group_masks(context: DecisionContext, form: PlacementForm) -> Iterator[tuple[str, BoolArray | None]]:
    for group in form.numbered:
        if group.required or group.forbidden:
            yield GROUP_TRAITS, _some_provider(context, group)


def _traits(
    context: DecisionContext,
    required: frozenset[str],
    forbidden: frozenset[str],
    required_any: tuple[frozenset[str], ...] = (),
) -> BoolArray:
    def compute() -> BoolArray:
        traits, high = context.columns.traits, context.high
        passes = traits.having_all(required, high)
        if forbidden:
            passes &= ~traits.having_any(forbidden, high)
        for any_of in required_any:
            passes &= traits.having_any(any_of, high)
        return passes

    key = (ROOT_TRAITS, required, forbidden, required_any)
    return context.masks.columns(context.table, key, compute)


def _some_provider(context: DecisionContext, group: NumberedGroup) -> BoolArray:
    """Trees in which one provider, own or sharing, has the classes and the traits of the group.

    Placement decides which provider has room.  It is asked for each host, so hosts without such a provider fail."""
    table, classes = context.table, frozenset(group.resources)

    def may_give(provider: Provider) -> bool:
        return (
            classes <= provider.inventories.keys()
            and group.required <= provider.traits
            and provider.traits.isdisjoint(group.forbidden)
        )

    key = (GROUP_TRAITS, classes, group.required, group.forbidden)
    return context.masks.rows(table, key, lambda: lambda row: any(map(may_give, _givers(table, row))))


def _givers(table: HostTable, row: Row) -> Iterator[Provider]:
    """Providers of a host's tree, then the sharing providers of the host."""
    yield from row.providers.values()
    yield from table.sharing_with(row.node)


def _giver_traits(context: DecisionContext, form: PlacementForm) -> BoolArray:
    """Trees with the required traits.

    If the root gives all resources, the root must have the traits; otherwise any provider of the tree, and Placement
    decides."""
    passes = _traits(context, form.required, form.forbidden, form.required_any)
    for resource_class in form.resources:
        rooms = context.columns.rooms.get(resource_class)
        if rooms is not None and rooms.other_provider_rows:
            passes = passes | rooms.other_providers.array[: context.high] & _tree_traits(context, form.required)
    return passes


def _tree_traits(context: DecisionContext, required: frozenset[str]) -> BoolArray:
    table = context.table

    def has_all(row: Row) -> bool:
        return required <= frozenset().union(*(provider.traits for provider in _givers(table, row)))

    return context.masks.rows(table, (TREE_TRAITS, required), lambda: has_all)[: context.high]


def _aggregates(context: DecisionContext, form: PlacementForm) -> BoolArray:
    def compute() -> BoolArray:
        aggregates, high = context.columns.aggregates, context.high
        passes: BoolArray = np.ones(high, dtype=np.bool_)
        for any_of in form.member_of:
            passes &= aggregates.having_any(any_of, high)
        if form.forbidden_aggregates:
            passes &= ~aggregates.having_any(form.forbidden_aggregates, high)
        return passes

    key = (AGGREGATES, form.member_of, form.forbidden_aggregates)
    exact = context.masks.columns(context.table, key, compute)
    for resource_class in form.resources:
        rooms = context.columns.rooms.get(resource_class)
        if rooms is not None and rooms.other_provider_rows:
            exact = exact | rooms.other_providers.array[: context.high]
    return exact


def _in_tree(context: DecisionContext, provider: str) -> BoolArray:
    slot = context.table.slot_of(provider)
    if slot is not None:
        return mask_of_slots(context.high, (slot,))
    return context.masks.rows(context.table, (IN_TREE, provider), lambda: lambda row: provider in row.providers)


def _room(context: DecisionContext, resource_class: str, amount: int, exact: bool = True) -> BoolArray:
    """Hosts with room for an amount.  ``exact``: the unit limits of the root apply; otherwise only its capacity."""
    rooms, high = context.columns.rooms.get(resource_class), context.high
    if rooms is None:
        return mask_of_slots(high, ())
    passes: BoolArray = rooms.room.array[:high] >= amount
    if exact and rooms.odd_rows:
        passes &= rooms.min_unit.array[:high] <= amount
        passes &= amount % rooms.step_size.array[:high] == 0
    if rooms.other_provider_rows:
        passes |= rooms.other_providers.array[:high] & (rooms.other_provider_room.array[:high] >= amount)
    return passes


def missing_room(context: DecisionContext, code: str, slots: Sequence[int]) -> tuple[int, int] | None:
    """The least and the most that hosts rejected with ``no_room:<class>`` miss; None if that is not why, or unknown."""
    resource_class = code.removeprefix(NO_ROOM)
    rooms = context.columns.rooms.get(resource_class)
    if not code.startswith(NO_ROOM) or rooms is None or len(context.request.forms) != 1:
        return None
    amount = _amount(context.request.forms[0], resource_class)
    missing = amount - np.maximum(rooms.room.array.take(slots), rooms.other_provider_room.array.take(slots))
    missing = missing[(missing > 0) & (missing <= amount)]  # the units may be wrong, or there is no inventory
    return (int(missing.min()), int(missing.max())) if len(missing) else None


def _amount(form: PlacementForm, resource_class: str) -> int:
    return form.resources.get(resource_class) or form.most_numbered().get(resource_class, 0)


class PlacementStage:
    """One step of a request with a single form, so that rejected hosts are counted for each step."""

    def __init__(self, code: str, form: PlacementForm, mask: BoolArray | None) -> None:
        self.code = code
        self._form = form
        self._mask = mask

    def mask(self, context: DecisionContext) -> BoolArray | None:
        """The mask that was computed together with the other steps of the form."""
        return self._mask

    def detail(self, context: DecisionContext, view: HostView) -> Mapping[str, Leaf]:
        """The numbers or names that were compared."""
        return form_detail(self._form, self.code, view)


class AnyFormStage:
    """The stage of a request with several forms: a host passes if it passes one of them."""

    code = ANY_FORM

    def mask(self, context: DecisionContext) -> BoolArray | None:
        """The masks of the forms, combined with *or*."""
        joined: BoolArray = np.zeros(context.high, dtype=np.bool_)
        for form in context.request.forms:
            passes: BoolArray = np.ones(context.high, dtype=np.bool_)
            for _, mask in form_masks(context, form):
                if mask is not None:
                    passes &= mask
            joined |= passes
        return joined

    def detail(self, context: DecisionContext, view: HostView) -> Mapping[str, Leaf]:
        """For each form the first step that the host fails."""
        found: list[Leaf] = []
        for form in context.request.forms:
            for code, mask in form_masks(context, form):
                if mask is not None and not mask[view.slot]:
                    found.append({"code": code, **form_detail(form, code, view)})
                    break
        return {"forms": found}


def placement_stages(context: DecisionContext) -> list[PlacementStage | AnyFormStage]:
    """The stages for the forms of a request; none if it has no form."""
    forms = context.request.forms
    if len(forms) > 1:
        return [AnyFormStage()]
    return [PlacementStage(code, form, mask) for form in forms for code, mask in form_masks(context, form)]


def form_detail(form: PlacementForm, code: str, view: HostView) -> dict[str, Leaf]:
    """The values of a host that fails ``code``, and the requested values."""
    root = view.root
    if code.startswith(NO_ROOM):
        return _room_detail(form, code.removeprefix(NO_ROOM), view)
    if code == AGGREGATES:
        return {
            "aggregates": list(sorted(root.aggregates)),
            "member_of": [list(sorted(any_of)) for any_of in form.member_of],
            "forbidden": list(sorted(form.forbidden_aggregates)),
        }
    if code == IN_TREE:
        return {"in_tree": form.in_tree}
    if code == GROUP_TRAITS:
        return {"groups": [_group_detail(group) for group in form.numbered]}
    if code == ROOT_TRAITS:
        return _traits_detail(form.root_required, (), form.root_forbidden, view)
    return _traits_detail(form.required, form.required_any if code == TRAITS else (), form.forbidden, view)


def _traits_detail(
    required: frozenset[str], required_any: Iterable[frozenset[str]], forbidden: frozenset[str], view: HostView
) -> dict[str, Leaf]:
    """What is wrong with the traits of the root provider: a set of ``required_any`` is met by any one of its traits."""
    traits = view.root.traits
    had = forbidden & traits
    reason = "" if view.service is None or DISABLED_TRAIT not in had else view.service.disabled_reason
    return {
        "missing": list(sorted(required - traits)),
        "none_of": [list(sorted(any_of)) for any_of in required_any if not any_of & traits],
        "forbidden": list(sorted(had)),
        **({"disabled_reason": reason} if reason else {}),
    }


def _group_detail(group: NumberedGroup) -> dict[str, Leaf]:
    return {
        "classes": list(sorted(group.resources)),
        "required": list(sorted(group.required)),
        "forbidden": list(sorted(group.forbidden)),
    }


def _room_detail(form: PlacementForm, resource_class: str, view: HostView) -> dict[str, Leaf]:
    amount = _amount(form, resource_class)
    inventory = view.root.inventories.get(resource_class)
    used = used_of(view.used, view.node, resource_class)
    shortage = fits(inventory, used, amount)
    detail = shortage.detail() if shortage else {"asked": amount, "used": used}
    return {**detail, "provider": view.node, "resource_class": resource_class}
