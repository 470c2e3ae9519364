# SPDX-License-Identifier: Apache-2.0
"""The texts of records in a table of their own, the reasons beside the other values, and names that are compared
exactly.

Nobody writes ``TEXTS`` before this revision is reached, so it is made anew while the old column is there.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

from shared_scheduler.records.record_shape import read_record
from shared_scheduler.records.store import as_current, reasons_text

revision = "3"
down_revision = "2"

RECORDS, NAMES, TEXTS = "shared_scheduler_records", "shared_scheduler_record_names", "shared_scheduler_record_texts"
EXACT = {"charset": "utf8mb4", "collation": "utf8mb4_bin"}
LENGTHS = {"kind": 32, "scheduler": 255, "project_id": 255, "result": 64}
#: Rows whose reasons are read at a time.
ROWS = 1_000


def upgrade() -> None:
    """Fill the new table and column, then drop the old column."""
    there = {column["name"] for column in sa.inspect(op.get_bind()).get_columns(RECORDS)}
    if "record" not in there:
        return
    long_text = sa.Text().with_variant(mysql.MEDIUMTEXT(**EXACT), "mysql", "mariadb")
    op.drop_table(TEXTS, if_exists=True)
    op.create_table(
        TEXTS,
        sa.Column("record_id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("record", long_text, nullable=False),
    )
    op.execute(f"INSERT INTO {TEXTS} (record_id, record) SELECT id, record FROM {RECORDS}")
    if "reasons" not in there:
        op.add_column(RECORDS, sa.Column("reasons", long_text, nullable=False, server_default=sa.text("('')")))
    _fill_reasons(op.get_bind())
    if op.get_bind().dialect.name in ("mysql", "mariadb"):
        op.alter_column(NAMES, "name", type_=mysql.VARCHAR(300, **EXACT), existing_nullable=False)
        for name, length in LENGTHS.items():
            op.alter_column(RECORDS, name, type_=mysql.VARCHAR(length, **EXACT), existing_nullable=False)
    op.drop_column(RECORDS, "record")


def _fill_reasons(bind: sa.Connection) -> None:
    newest = 0
    while rows := bind.execute(
        sa.text(f"SELECT record_id, record FROM {TEXTS} WHERE record_id > :newest ORDER BY record_id LIMIT {ROWS}"),
        {"newest": newest},
    ).all():
        for record_id, text in rows:
            record = read_record(text)  # none if a database that is not strict has cut it
            if record is not None and (reasons := reasons_text(as_current(record))):
                bind.execute(
                    sa.text(f"UPDATE {RECORDS} SET reasons = :reasons WHERE id = :id"),
                    {"reasons": reasons, "id": record_id},
                )
        newest = rows[-1][0]
