# SPDX-License-Identifier: Apache-2.0
"""The tables of the database of records, as the newest migration leaves them.

``RECORDS`` has a short row for each record with what a question may compare, so that even a question without an index
reads little; ``TEXTS`` has its whole JSON text, and ``NAMES`` a row for each of its names (``store.names_of``).
"""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.dialects import mysql

METADATA = sa.MetaData()
FAMILY = ("mysql", "mariadb")

#: MariaDB's TEXT ends at 65,535 bytes.
LONG_TEXT = sa.Text().with_variant(mysql.MEDIUMTEXT(charset="utf8mb4", collation="utf8mb4_bin"), *FAMILY)


def exact(length: int) -> sa.types.TypeEngine[str]:
    """A text of so many characters; MariaDB would take others for equal, such as those in the other case."""
    return sa.String(length).with_variant(mysql.VARCHAR(length, charset="utf8mb4", collation="utf8mb4_bin"), *FAMILY)


RECORDS = sa.Table(
    "shared_scheduler_records",
    METADATA,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("at", sa.Double, nullable=False, index=True),  # seconds since 1970
    sa.Column("kind", exact(32), nullable=False),
    sa.Column("scheduler", exact(255), nullable=False),
    sa.Column("project_id", exact(255), nullable=False, index=True),
    sa.Column("result", exact(64), nullable=False),
    sa.Column("reasons", LONG_TEXT, nullable=False),  # as JSON, or empty
)

TEXTS = sa.Table(
    "shared_scheduler_record_texts",
    METADATA,
    sa.Column("record_id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("record", LONG_TEXT, nullable=False),
)

NAMES = sa.Table(
    "shared_scheduler_record_names",
    METADATA,
    sa.Column("name", exact(300), primary_key=True),
    sa.Column("record_id", sa.Integer, primary_key=True, index=True),
)
