# SPDX-License-Identifier: Apache-2.0
"""Placement with a write path of its own for new consumers: deployed in the place of ``placement.wsgi.api``.

Everything is Placement's own code, in Placement's own process, with its configuration and its database.  Only
``PUT /allocations/{consumer_uuid}`` and ``POST /allocations`` come here first:

1. A request that writes allocations of new consumers only (``consumer_generation`` is null, microversion 1.28 and
   later) is carried out here, in one transaction of five statements.  The first one locks the providers, in the order
   of their uuids (``SELECT ... FOR UPDATE``).  Because the snapshot of the transaction begins after that, the capacity
   check sees each allocation of every writer that had these providers before.
2. Every other request, and each one in doubt (an unknown provider, a consumer that exists, a database error), is rolled
   back and given to Placement's own handler.  One that has waited for a lock in vain is answered with a conflict.
3. Placement's own handler repeats a write that lost a race for a provider *inside* its transaction, where it checks
   capacity against an old snapshot: that is why racing writers over-commit a provider.  Here, and for
   ``POST /reshaper``, it tries once, and the repetition is outside of the transaction.

So no two writers can over-commit a provider: a writer of (1) sees what was committed before it has the lock, and
increments the generation before it gives the lock back; a writer of (3) fails if the generation is not the one from
before its snapshot.

=================  =================================================================================
module             purpose
=================  =================================================================================
wsgi               the ``application`` that uwsgi or Apache loads
assembly           Placement's application with our routes in it, and the header that announces them
handler            routes: the write path first, then Placement's own handler
write_request      what a request asks for, if it writes new consumers only
capacity           pure: whether amounts fit into inventories, in Placement's order of checks
transaction        the transaction of the write path
statements         its SQL, over Placement's tables
cached_ids         ids of rows that do not change
kept_connections   connections that are kept between transactions
lock_waits         how long this Placement waits for the lock of a row
conflicts          answers with status 409
database_errors    what an error of the database says about the transaction that it ended
conflict_retry     repeats Placement's own handler after a lost race for a provider
known_schema       the database schemas that the write path knows
=================  =================================================================================
"""
