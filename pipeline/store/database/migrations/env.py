"""How Alembic runs our migrations: in the transaction that `pipeline/store/database/migrate.py` hands over."""

from alembic import context

from pipeline.store.database.checked_table import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
context.run_migrations()
