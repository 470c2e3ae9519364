# SPDX-License-Identifier: Apache-2.0
"""An index of the projects: the only other value of which a question wants a few of all rows."""

import sqlalchemy as sa
from alembic import op

revision = "4"
down_revision = "3"

RECORDS, INDEX = "shared_scheduler_records", "ix_shared_scheduler_records_project_id"


def upgrade() -> None:
    """Make the index, unless a process has made it that was killed then."""
    if INDEX not in {index["name"] for index in sa.inspect(op.get_bind()).get_indexes(RECORDS)}:
        op.create_index(INDEX, RECORDS, ["project_id"])
