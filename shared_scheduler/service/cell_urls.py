# SPDX-License-Identifier: Apache-2.0
"""Cell URLs may be templates, filled from the URL in the local nova.conf.

``{scheme}://{username}:{password}@{hostname}:{port}/nova_cell1?{query}`` and, for a transport URL with several
brokers, ``{username1}``, ``{hostname2}`` and so on: the substitutions of
nova/objects/cell_mapping.py, ``CellMapping._format_url``.
"""

from __future__ import annotations

from urllib.parse import SplitResult, urlsplit


class UrlTemplateError(ValueError):
    """A template that cannot be filled; says what is missing where."""


def fill_url(url: str, default: str | None, option: str) -> str:
    """``url`` with its fields filled from ``default``, the value of ``option``.

    Raises ``UrlTemplateError`` if there are fields and no default, or fields that the default lacks.
    """
    if "{" not in url:
        return url
    if not default:
        raise UrlTemplateError(f"{url!r} is a template, and {option} is not set to fill it from")
    try:
        return url.format(**_fields(default))
    except (KeyError, ValueError, IndexError) as error:
        raise UrlTemplateError(f"{url!r} cannot be filled from {option}: {error!r}") from error


def _fields(default: str) -> dict[str, object]:
    parts = urlsplit(default)
    fields: dict[str, object] = {
        "scheme": parts.scheme,
        "query": parts.query,
        "fragment": parts.fragment,
        "path": parts.path.lstrip("/"),
    }
    if "," not in parts.netloc:
        return fields | _place(parts)
    for index, one in enumerate(parts.netloc.split(","), start=1):
        place = _place(urlsplit(f"//{one}"))
        fields |= {f"{name}{index}": value for name, value in place.items()}
        fields |= place if index == 1 else {}
    return fields


def _place(parts: SplitResult) -> dict[str, object]:
    return {
        "username": parts.username,
        "password": parts.password,
        "hostname": parts.hostname,
        "port": parts.port,
    }
