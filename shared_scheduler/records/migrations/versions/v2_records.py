# SPDX-License-Identifier: Apache-2.0
"""Records of more kinds than decisions, found by any of their names.

Rows of the old table are moved.  They are found by their request only, because the old table had no other name.

A process may be killed between two statements, and not every database takes back what it has created.  Nobody writes
the new tables before this revision is reached, so they are made anew while the old one is there.
"""

import sqlalchemy as sa
from alembic import op

revision = "2"
down_revision = "1"

OLD, RECORDS, NAMES = "shared_scheduler_decisions", "shared_scheduler_records", "shared_scheduler_record_names"


def upgrade() -> None:
    """Create the tables, move the rows, and drop the old table."""
    if not sa.inspect(op.get_bind()).has_table(OLD):
        return
    for half_done in (NAMES, RECORDS):
        op.drop_table(half_done, if_exists=True)
    op.create_table(
        RECORDS,
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("at", sa.Double, nullable=False, index=True),
        sa.Column("kind", sa.String(32), nullable=False),
        sa.Column("scheduler", sa.String(255), nullable=False),
        sa.Column("project_id", sa.String(255), nullable=False),
        sa.Column("result", sa.String(64), nullable=False),
        sa.Column("record", sa.Text().with_variant(sa.Text(16_777_215), "mysql", "mariadb"), nullable=False),
    )
    op.create_table(
        NAMES,
        sa.Column("name", sa.String(300), primary_key=True),
        sa.Column("record_id", sa.Integer, primary_key=True, index=True),
    )
    op.execute(
        f"INSERT INTO {RECORDS} (id, at, kind, scheduler, project_id, result, record) "
        f"SELECT id, at, 'decision', scheduler, project_id, outcome, record FROM {OLD}"
    )
    op.execute(f"INSERT INTO {NAMES} (name, record_id) SELECT request_id, id FROM {OLD}")
    op.drop_table(OLD)
