"""The one table in PostgreSQL, and how it came to be: migrations by number, the number kept in the table's comment.

A migration that was released is never changed; a new one is added at the end.
"""

from __future__ import annotations

import re

TABLE = "host_history"
COMMENT = "Hostler history, schema {}"
LOCK = 0x686F73746C6572  # of whoever migrates, in this database: "hostler"
MIGRATIONS: tuple[str, ...] = (
    f"""
    CREATE TABLE {TABLE} (
        installation text NOT NULL,
        term bigint NOT NULL,
        counter bigint NOT NULL,
        at timestamptz NOT NULL,
        key text NOT NULL,
        what text NOT NULL,
        capability text NOT NULL,
        old_state text NOT NULL,
        new_state text NOT NULL,
        reason text NOT NULL,
        sentence text NOT NULL,
        duration double precision,
        operation text NOT NULL,
        result text NOT NULL,
        PRIMARY KEY (installation, term, counter)
    );
    CREATE INDEX {TABLE}_key ON {TABLE} (installation, key, term, counter);
    CREATE INDEX {TABLE}_at ON {TABLE} (installation, at);
    CREATE INDEX {TABLE}_state ON {TABLE} (installation, key, term, counter) WHERE new_state <> '';
    """,
)
VERSION = len(MIGRATIONS)

# Not by to_regclass: inside a transaction it remembers that there was no table before another leader made it.
READ_COMMENT = f"""
    SELECT coalesce(obj_description(oid, 'pg_class'), '') FROM pg_class
    WHERE relname = '{TABLE}' AND relkind IN ('r', 'p') AND pg_table_is_visible(oid)
"""  # nosec B608 # only constants of this module are put in; values are parameters
COLUMNS = (
    "term, counter, at, key, what, capability, old_state, new_state, reason, sentence, duration, operation, result"
)
APPEND = f"""
    INSERT INTO {TABLE} (installation, {COLUMNS})
    SELECT $1, * FROM unnest(
        $2::bigint[], $3::bigint[], $4::timestamptz[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[],
        $10::text[], $11::text[], $12::double precision[], $13::text[], $14::text[]
    )
    ON CONFLICT DO NOTHING RETURNING term, counter
"""  # nosec B608 # only constants of this module are put in; values are parameters
THERE_ALREADY = f"""
    SELECT {COLUMNS} FROM {TABLE} JOIN unnest($2::bigint[], $3::bigint[]) AS asked (term, counter) USING (term, counter)
    WHERE installation = $1
"""  # nosec B608 # only constants of this module are put in; values are parameters
LAST_STATES = f"""
    SELECT DISTINCT ON (key) {COLUMNS} FROM {TABLE} WHERE installation = $1 AND new_state <> ''
    ORDER BY key, term DESC, counter DESC
"""  # nosec B608 # only constants of this module are put in; values are parameters
NEWEST = f"""
    SELECT {COLUMNS} FROM {TABLE} WHERE installation = $1 ORDER BY term DESC, counter DESC LIMIT 1
"""  # nosec B608 # only constants of this module are put in; values are parameters
STAYS = f"""
    SELECT at, key, old_state, duration FROM {TABLE}
    WHERE installation = $1 AND at >= $2 AND what = $3 AND duration IS NOT NULL AND old_state <> ''
    ORDER BY at DESC LIMIT $4
"""  # nosec B608 # only constants of this module are put in; values are parameters
FIND = f"""
    SELECT {COLUMNS} FROM {TABLE}
    WHERE installation = $1 AND at >= $2 AND (cardinality($3::text[]) = 0 OR key = ANY ($3))
        AND ($4 = '' OR capability = $4)
    ORDER BY term DESC, counter DESC LIMIT $5
"""  # nosec B608 # only constants of this module are put in; values are parameters
AFTER = f"""
    SELECT {COLUMNS} FROM {TABLE} WHERE installation = $1 AND at >= $2 AND (term, counter) > ($3, $4)
    ORDER BY term, counter LIMIT $5
"""  # nosec B608 # only constants of this module are put in; values are parameters
# The last state of each layer stays whatever its age: a new leader continues from there.
PRUNE = f"""
    DELETE FROM {TABLE} AS old WHERE installation = $1 AND at < $2 AND (new_state = '' OR EXISTS (
        SELECT 1 FROM {TABLE} AS later WHERE later.installation = $1 AND later.key = old.key AND later.new_state <> ''
            AND (later.term, later.counter) > (old.term, old.counter)
    ))
"""  # nosec B608 # only constants of this module are put in; values are parameters


def version_of(comment: str | None) -> int | None:
    """The schema that is there, by the table's comment: 0 without a table, None for a table that is not ours."""
    if comment is None:
        return 0
    found = re.fullmatch(COMMENT.format(r"(\d{1,9})"), comment)
    return int(found[1]) if found else None
