# SPDX-License-Identifier: Apache-2.0
"""The table of decisions, which releases before alembic made themselves."""

import sqlalchemy as sa
from alembic import op

revision = "1"
down_revision = None

TABLE = "shared_scheduler_decisions"


def upgrade() -> None:
    """Create the table, unless an earlier release did."""
    if sa.inspect(op.get_bind()).has_table(TABLE):
        return
    op.create_table(
        TABLE,
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("at", sa.Float, nullable=False, index=True),
        sa.Column("scheduler", sa.String(255), nullable=False),
        sa.Column("request_id", sa.String(255), nullable=False, index=True),
        sa.Column("project_id", sa.String(255), nullable=False),
        sa.Column("outcome", sa.String(64), nullable=False),
        sa.Column("hosts", sa.Text, nullable=False),
        sa.Column("record", sa.Text().with_variant(sa.Text(16_777_215), "mysql", "mariadb"), nullable=False),
    )
