# SPDX-License-Identifier: Apache-2.0
"""Finds options of a file that nothing has registered, because a misspelt option is read as if it were not there.

Options of a site's plug-ins are registered when these are loaded, so they are loaded before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path

import nova.conf
from oslo_config import cfg

CONF = nova.conf.CONF
DEFAULT = "DEFAULT"

#: section -> names of options
Options = Mapping[str, set[str]]


class NoKnownOptionError(cfg.Error):
    """None of the options of a file is known, so it changes nothing."""


def unknown_options(path: Path) -> list[str]:
    """A text for each option of a file that is not known, with its section, and with the one that may be meant.

    :raises NoKnownOptionError: when no option of the file is known
    :raises cfg.Error: when the file cannot be read
    """
    given, known = _options_of(path), _registered()
    unknown = {section: names - known.get(section, set()) for section, names in given.items()}
    found = [_text(section, name, known) for section, names in unknown.items() for name in sorted(names)]
    if found and unknown == given:
        raise NoKnownOptionError(f"{path}: {'; '.join(found)}")
    return [f"{path}: {text}" for text in found]


def _options_of(path: Path) -> dict[str, set[str]]:
    sections: dict[str, dict[str, list[str]]] = {}
    cfg.ConfigParser(str(path), sections).parse()
    found: dict[str, set[str]] = {}
    for section, options in sections.items():
        found.setdefault(_section(section), set()).update(name.replace("-", "_") for name in options)
    return found


def _registered() -> dict[str, set[str]]:
    """All names of the options, also those that are deprecated."""
    found: dict[str, set[str]] = {}
    for section, name in _names():
        found.setdefault(_section(section), set()).add(name.replace("-", "_"))
    return found


def _names() -> Iterator[tuple[str, str]]:
    for info, group in CONF._all_opt_infos():
        section, option = DEFAULT if group is None else group.name, info["opt"]
        yield section, option.dest
        yield from ((old.group or section, old.name or option.name) for old in option.deprecated_opts)


def _section(name: str) -> str:
    """As oslo.config compares them."""
    return DEFAULT if name.upper() == DEFAULT else name.lower()


def _text(section: str, name: str, known: Options) -> str:
    text = f"[{section}] {name} is not known, and has no effect"
    if section not in known:
        meant = [f"[{one}]" for one in get_close_matches(section, known, 1)]
        meant += [f"[{one}]" for one, names in known.items() if not meant and name in names][:1]
    else:
        meant = get_close_matches(name, known[section], 1)
        meant += [f"[{one}]" for one, names in known.items() if not meant and name in names][:1]
    return text + (f" (is {meant[0]} meant?)" if meant else "")
