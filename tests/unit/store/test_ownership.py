"""The control store's tables where processes log in as different roles, on a real PostgreSQL."""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from sqlalchemy import Connection, Engine, create_engine, select, text, update
from sqlalchemy.exc import ProgrammingError

from pipeline.base.errors import Refused
from pipeline.health.facts.fleet import read_fleet
from pipeline.health.facts.placing import placing
from pipeline.settings.tree import Store, load
from pipeline.store.database import migrate
from pipeline.store.database.engine import STORE_AWAY, open_store, refused_write, writing
from pipeline.store.database.tables import drivers, groups
from pipeline.store.games import register_group
from pipeline.store.processes.drivers import heartbeat, start_driver
from pipeline.store.processes.leases import leased
from pipeline.store.processes.runs import begin_run
from pipeline.store.writers import lock
from tests.postgres import Postgres

PASSWORD = "a-password"


@dataclass
class Roles:
    """A database's schema for one store, and the roles that log in to it."""

    postgres: Postgres
    schema: str
    folder: Path
    opened: list[Engine]

    def add(self, role: str, *groups: str) -> str:
        """Make a role that may log in, as a member of other roles."""
        name = f"{self.schema}_{role}"
        self.postgres.run(
            f"CREATE ROLE {name} LOGIN PASSWORD '{PASSWORD}'", *(f"GRANT {it} TO {name}" for it in groups)
        )
        return name

    def url(self, role: str) -> str:
        place = f"{role}:{PASSWORD}@127.0.0.1:{self.postgres.port}/postgres"
        return f"postgresql+psycopg://{place}?options=-csearch_path%3D{self.schema}"

    def open(self, role: str) -> Engine:
        self.opened.append(open_store(*load(self.folder, {"TURNOUT_STORE__URL": self.url(role)})))
        return self.opened[-1]

    def owners(self) -> set[str]:
        """Return who owns the tables."""
        engine = create_engine(self.postgres.url())
        with engine.connect() as connection:
            found = connection.scalars(
                text("SELECT tableowner FROM pg_tables WHERE schemaname = :it"), {"it": self.schema}
            ).all()
        engine.dispose()
        return set(found)


@pytest.fixture
def roles(postgres: Postgres, tmp_path: Path) -> Iterator[Roles]:
    """A schema and no roles; whatever roles a test makes are gone after it, as they are the whole server's."""
    made = Roles(postgres, postgres.new_name("owned"), tmp_path, [])
    postgres.run(f"CREATE SCHEMA {made.schema}")
    yield made
    for each in made.opened:
        each.dispose()
    postgres.run(
        f"DROP SCHEMA {made.schema} CASCADE",
        "DO $$ DECLARE it text; BEGIN FOR it IN SELECT rolname FROM pg_roles "
        f"WHERE rolname LIKE '{made.schema}%' OR rolname IN ('turnout_owner', 'turnout_user') "
        "LOOP EXECUTE format('DROP OWNED BY %1$I; DROP ROLE %1$I', it); END LOOP; END $$",
    )


@pytest.fixture
def grouped(roles: Roles) -> Roles:
    """The roles as docs/deploy/lakebase.md has them: the owner has the schema, the users have nothing yet."""
    roles.postgres.run(
        "CREATE ROLE turnout_owner", "CREATE ROLE turnout_user", f"ALTER SCHEMA {roles.schema} OWNER TO turnout_owner"
    )
    return roles


def use(store: Engine, name: str) -> None:
    """Do what drivers and pages do with a store."""
    register_group(store, name, placing())
    with leased(store, Store(), "group", name) as lease:
        assert lease is not None
        start_driver(store, "group", name, None)
        heartbeat(store, "group", name, "running", 1)
    begin_run(store, name)  # its id comes from a sequence, which has rights of its own
    with writing(store) as connection:
        lock(connection)
    with store.connect() as connection:
        assert refused_write(connection) is None
        assert name in connection.scalars(select(groups.c.name)).all()


def test_tables_belong_to_the_owner_and_every_role_can_use_them(grouped: Roles) -> None:
    """Controller, driver and app log in as three roles: one group role owns every table, and all three can work."""
    controller = grouped.open(grouped.add("controller", "turnout_owner"))
    driver, app = (grouped.open(grouped.add(each, "turnout_user")) for each in ("driver", "app"))
    assert grouped.owners() == {"turnout_owner"}
    for name, store in {"a": controller, "b": driver, "c": app}.items():
        use(store, name)


def test_a_role_that_may_only_read_does_not_know_whether_the_store_takes_writes(grouped: Roles) -> None:
    """Its own lack of a right is no refusal of the store's, and no error: all are silent, and why is not known."""
    store = grouped.open(grouped.add("controller", "turnout_owner"))
    for name in ("a", "b"):
        register_group(store, name, placing())
        start_driver(store, "group", name, None)
        heartbeat(store, "group", name, "running", 1)
    with writing(store) as connection:
        connection.execute(update(drivers).values(heartbeat_at=drivers.c.heartbeat_at - 40))
    reader = grouped.add("reader")
    grouped.postgres.run(
        f"GRANT USAGE ON SCHEMA {grouped.schema} TO {reader}",
        f"GRANT SELECT ON ALL TABLES IN SCHEMA {grouped.schema} TO {reader}",
    )
    engine = create_engine(grouped.url(reader))
    grouped.opened.append(engine)
    judged = read_fleet(engine).judgement
    assert judged.silence is not None
    assert judged.silence.refusal is None
    assert [each.kind for each in judged.problems][:1] == ["store"]


@pytest.mark.parametrize("statement", ["DROP TABLE games", "UPDATE alembic_version SET version_num = 'r9999'"])
def test_a_user_of_the_tables_cannot_change_what_they_are(grouped: Roles, statement: str) -> None:
    """An app that was broken into changes rows at most: no table, and not the version that others go by."""
    grouped.open(grouped.add("controller", "turnout_owner"))
    app = grouped.open(grouped.add("app", "turnout_user"))
    with pytest.raises(ProgrammingError, match=r"must be owner|permission denied"), app.begin() as connection:
        connection.execute(text(statement))


def test_an_app_that_starts_first_makes_no_tables_of_its_own(grouped: Roles) -> None:
    """An app has the right to create, and its tables could be altered by no job: it refuses, and says who starts."""
    app = grouped.add("app", "turnout_user")
    grouped.postgres.run(f"GRANT CREATE, USAGE ON SCHEMA {grouped.schema} TO {app}")
    said = (
        rf"has no tables yet\. Role turnout_owner migrates it, and role {app} is not a member\. Start the controller "
        rf"first, .*: GRANT turnout_owner TO {app}\."
    )
    with pytest.raises(Refused, match=said):
        grouped.open(app)
    assert grouped.owners() == set()


def test_another_member_migrates_what_the_first_made(
    grouped: Roles, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A controller with a new principal upgrades the store; an app of the new version refuses until it has."""
    grouped.open(grouped.add("controller", "turnout_owner"))
    app = grouped.add("app", "turnout_user")
    shutil.copytree(Path(migrate.__file__).with_name("migrations"), tmp_path / "m")
    (tmp_path / "m" / "versions" / "next.py").write_text(NEXT.format(base=migrate.NEWEST))
    monkeypatch.setattr(migrate, "NEWEST", "r9000")
    monkeypatch.setattr(migrate, "_FOLDER", tmp_path / "m")
    with pytest.raises(
        Refused, match=rf"has an older version's tables\. Role turnout_owner migrates it, and role {app}"
    ):
        grouped.open(app)
    grouped.open(grouped.add("successor", "turnout_owner"))
    assert grouped.owners() == {"turnout_owner"}
    with grouped.open(app).begin() as connection:
        connection.execute(text("INSERT INTO added VALUES (1)"))


def test_roles_that_come_after_the_tables_get_their_rights(grouped: Roles) -> None:
    """An administrator who makes `turnout_user` last needs no statement for each table: the next owner shares them."""
    grouped.postgres.run("DROP ROLE turnout_user")
    controller = grouped.add("controller", "turnout_owner")
    grouped.open(controller)
    grouped.postgres.run("CREATE ROLE turnout_user")
    driver = grouped.add("driver", "turnout_user")
    with pytest.raises(Refused, match=rf"Role {driver} may use no schema of database postgres"):
        grouped.open(driver)
    grouped.open(controller)
    use(grouped.open(driver), "a")


def test_a_role_without_rights_reads_which_it_lacks(grouped: Roles) -> None:
    """A principal that was forgotten reads the statement that helps, and no traceback."""
    grouped.open(grouped.add("controller", "turnout_owner"))
    driver = grouped.add("driver")
    grouped.postgres.run(f"GRANT USAGE ON SCHEMA {grouped.schema} TO {driver}")
    said = rf"Role {driver} may not use .* to role turnout_owner: permission denied .*: GRANT turnout_user TO {driver}"
    with pytest.raises(Refused, match=said):
        grouped.open(driver)


def test_a_role_that_may_not_create_reads_so(
    roles: Roles, monkeypatch: pytest.MonkeyPatch, real_upgrade: Callable[[Connection], None]
) -> None:
    """Without the group roles the first process creates; a role without the right reads the statement that helps."""
    monkeypatch.setattr(migrate, "_upgrade", real_upgrade)
    app = roles.add("app")
    with pytest.raises(Refused, match=rf"Role {app} may use no schema .*: GRANT USAGE ON SCHEMA public TO {app}"):
        roles.open(app)
    roles.postgres.run(f"GRANT USAGE ON SCHEMA {roles.schema} TO {app}")
    said = rf"role {app} may not create them .*: GRANT CREATE, USAGE ON SCHEMA {roles.schema} TO {app}\."
    with pytest.raises(Refused, match=said):
        roles.open(app)
    roles.postgres.run(f"GRANT CREATE ON SCHEMA {roles.schema} TO {app}")
    use(roles.open(app), "a")
    assert roles.owners() == {app}


def test_a_store_that_has_an_owner_keeps_it(roles: Roles, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A store of before the group roles is migrated as the role that owns it: two owners of one store help nobody."""
    first = roles.add("first")
    roles.postgres.run(f"ALTER SCHEMA {roles.schema} OWNER TO {first}")
    roles.open(first)
    roles.postgres.run("CREATE ROLE turnout_owner", "CREATE ROLE turnout_user")
    second = roles.add("second", first, "turnout_owner")
    shutil.copytree(Path(migrate.__file__).with_name("migrations"), tmp_path / "m")
    (tmp_path / "m" / "versions" / "next.py").write_text(NEXT.format(base=migrate.NEWEST))
    monkeypatch.setattr(migrate, "NEWEST", "r9000")
    monkeypatch.setattr(migrate, "_FOLDER", tmp_path / "m")
    roles.open(second)
    assert roles.owners() == {first}


NEXT = """
import sqlalchemy as sa
from alembic import op
revision, down_revision, branch_labels, depends_on = "r9000", "{base}", None, None
def upgrade():
    op.create_table("added", sa.Column("x", sa.Integer))
"""


def test_a_primary_that_only_reads_is_a_store_that_is_away(grouped: Roles) -> None:
    """Law: a server that was demoted in a fail-over answers and writes nothing, which is an outage and no other error.

    The connection is let go, so that the next call comes to the server that took its place.
    """
    store = grouped.open(grouped.add("driver", "turnout_owner"))
    start_driver(store, "group", "a", None)
    with store.connect() as connection:
        connection.execute(text("SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY"))
        connection.commit()
    with pytest.raises(STORE_AWAY, match="read-only transaction"):
        heartbeat(store, "group", "a", "running", 1)
    heartbeat(store, "group", "a", "running", 1)
