# SPDX-License-Identifier: Apache-2.0
"""The tables of the database of records, as the newest migration leaves them.

A record is a row with the columns that a question may compare, and its whole JSON text.  ``NAMES`` has one row for each
name of a record (``store.names_of``).
"""

from __future__ import annotations

import sqlalchemy as sa

METADATA = sa.MetaData()

#: MariaDB's TEXT ends at 65,535 bytes.
LONG_TEXT = sa.Text().with_variant(sa.Text(16_777_215), "mysql", "mariadb")

RECORDS = sa.Table(
    "shared_scheduler_records",
    METADATA,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("at", sa.Double, nullable=False, index=True),  # seconds since 1970
    sa.Column("kind", sa.String(32), nullable=False),
    sa.Column("scheduler", sa.String(255), nullable=False),
    sa.Column("project_id", sa.String(255), nullable=False),
    sa.Column("result", sa.String(64), nullable=False),
    sa.Column("record", LONG_TEXT, nullable=False),
)

NAMES = sa.Table(
    "shared_scheduler_record_names",
    METADATA,
    sa.Column("name", sa.String(300), primary_key=True),
    sa.Column("record_id", sa.Integer, primary_key=True, index=True),
)
