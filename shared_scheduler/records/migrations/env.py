# SPDX-License-Identifier: Apache-2.0
"""Runs the migrations on the connection that ``migrate`` passes; alembic loads this file by its name."""

from alembic import context

from shared_scheduler.records.migrations import REVISION_TABLE

context.configure(connection=context.config.attributes["connection"], version_table=REVISION_TABLE)
with context.begin_transaction():
    context.run_migrations()
