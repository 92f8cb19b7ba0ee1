import dataclasses
import json
import typing
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.base.errors import Refused
from pipeline.data.ingest.sources.supported import configured_source
from pipeline.settings.parsing import may_be_secret, quoted
from pipeline.settings.registries import generation_of
from pipeline.settings.source import Source, sources_problems, topics_described
from pipeline.settings.storage import machine_folder
from pipeline.settings.tree import Settings, load
from pipeline.store.database.engine import open_store

CANARY = "hunter2-canary"


def test_without_a_file_everything_has_a_default(tmp_path: Path) -> None:
    """A newcomer needs no settings at all."""
    settings, paths = load(tmp_path, {})
    assert Settings() == settings
    assert str(tmp_path / "bronze") == str(paths.bronze)


def test_the_environment_overrides_the_file(tmp_path: Path) -> None:
    """A variable wins over the file, and text becomes the type of the setting."""
    (tmp_path / "turnout.toml").write_text('[ingest]\ntrigger_seconds = 9\n[spark.conf]\n"spark.x" = 3\n')
    settings, _ = load(tmp_path, {"TURNOUT_INGEST__TRIGGER_SECONDS": "1.5", "TURNOUT_HOME": "/x", "OTHER": "y"})
    assert settings.ingest.trigger_seconds == 1.5
    assert dict(settings.spark.conf) == {"spark.x": "3"}


def test_all_wrong_settings_are_told_at_once(tmp_path: Path) -> None:
    """Nobody corrects settings one by one: every problem is in one message, with what was expected."""
    (tmp_path / "turnout.toml").write_text(
        'environment = 5\nnonsense = 1\n[source]\nkind = "files"\n[ingest]\nbronze_files = "many"\n[demux]\nx = 1\n'
        "[maintenance]\nlog_megabytes = 1.5\n"
    )
    with pytest.raises(Refused) as refused:
        load(tmp_path, {"TURNOUT_DASHBOARD__PORT": "high"})
    text = str(refused.value)
    for part in (
        "7 wrong setting(s)",
        "environment: expected a text, got '5'",
        "nonsense: no such setting",
        "source.kind: expected one of delta, kafka, got 'files'",
        "ingest.bronze_files: expected a whole number, got 'many'",
        "demux.x: no such setting",
        "maintenance.log_megabytes: expected a whole number, got '1.5'",
        "dashboard.port: expected a whole number, got 'high'",
    ):
        assert part in text


def test_values_out_of_range_are_refused(tmp_path: Path) -> None:
    """A setting of the right type can still be impossible."""
    with pytest.raises(Refused, match=r"ingest.trigger_seconds: expected a value from 0.1 to 3600, got 0"):
        load(tmp_path, {"TURNOUT_INGEST__TRIGGER_SECONDS": "0"})


@pytest.mark.parametrize("topic", ["a,b", "a, b", "games-.*", "", ".", "..", "x" * 250])
@pytest.mark.proves("G4")
def test_a_topic_is_one_topic(tmp_path: Path, topic: str) -> None:
    """Law L1: Spark would read all topics of a text with commas, of which turnout knows one: the setting is refused."""
    environ = {"TURNOUT_SOURCE__KIND": "kafka", "TURNOUT_SOURCE__TOPIC": topic}
    with pytest.raises(Refused, match=r"source\.topic: expected the name of one topic.*a list is for source\.topics"):
        load(tmp_path, environ)


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (
            'topic = "a"\ntopics = ["b"]',
            "source.topic: expected one of topic, topics and topic_pattern, got topic and ",
        ),
        ('topics = ["a"]\ntopic_pattern = "b"', "got topics and topic_pattern"),
        (
            'topics = ["a", "b,c"]',
            "source.topics: expected names of topics, 1 to 249 letters, digits, '.', '_' and '-', ",
        ),
        ('topics = ["a", "a"]', "source.topics: expected each name once"),
        *(
            (f"topic_pattern = '{pattern}'", "source.topic_pattern: expected a regular expression")
            for pattern in ("a[", "(?i)a", "a&&b", "[a[b]]", "a++", r"\p{L}", "[^]a]", "a b", "x" * 501)
        ),
    ],
)
@pytest.mark.proves("G4")
def test_topics_are_one_list_or_one_pattern(tmp_path: Path, lines: str, words: str) -> None:
    """Law L1: what turnout and Spark would read in two ways is refused before anything is read."""
    (tmp_path / "turnout.toml").write_text(f'[source]\nkind = "kafka"\n{lines}\n')
    with pytest.raises(Refused) as refused:
        load(tmp_path, {})
    assert words in str(refused.value)


def test_a_list_is_the_same_in_any_order_and_another_with_another_name() -> None:
    """A generation of ingest belongs to a set of topics; an index of the store cannot hold a text of any length."""
    many = tuple(f"topic-{number}-{'x' * 200}" for number in range(200))
    named = [topics_described(Source(topics=topics)) for topics in (many, many[::-1], many[1:], ("a", "b"), ("b", "a"))]
    assert named[0] == named[1] != named[2]
    assert named[3] == named[4] == "kafka topics a,b at 127.0.0.1:9092"
    assert max(map(len, named)) < 700
    assert topics_described(Source(topics=("a",))) == topics_described(Source(topic="a"))


def test_all_problems_of_several_sources_are_one_message(tmp_path: Path) -> None:
    """A person corrects the file once: each problem has the name of its table."""
    (tmp_path / "turnout.toml").write_text("""
        [source]
        kind = "kafka"
        [sources.a]
        kind = "kafka"
        topics = ["x", "y"]
        [sources.b]
        kind = "kafka"
        topics = ["y", "x"]
        [sources.c]
        path = "relative"
        [sources.D]
        envelope = "none"
    """)
    with pytest.raises(Refused) as refused:
        load(tmp_path, {})
    for words in (
        "sources: expected either [source] or [sources.NAME], got both",
        "sources.b: expected another source than that of sources.a, got the same",
        "sources.c.path: expected an absolute path",
        "sources: expected names of 1 to 40 of a-z",
        "sources.D.routing: expected topic, key",
        "sources.D.framing: expected confluent, glue",
    ):
        assert words in str(refused.value)


def test_one_named_source_is_the_same_as_one_without_a_name(tmp_path: Path) -> None:
    """Law L1: an environment that names its one source keeps its generation and its checkpoint."""
    (tmp_path / "turnout.toml").write_text('[sources.a]\nkind = "kafka"\ntopic = "t"\n')
    settings, paths = load(tmp_path, {})
    assert configured_source(settings, paths).description == "kafka topic t at 127.0.0.1:9092"


def test_transactions_are_read_when_they_are_committed(tmp_path: Path) -> None:
    """Law L1: what a producer took back is no event, unless the settings ask for it."""
    file = tmp_path / "turnout.toml"
    file.write_text('[source]\nkind = "kafka"\n')
    assert load(tmp_path, {})[0].source.isolation_level == "read_committed"
    for name in ("isolation.level", "kafka.isolation.level"):
        file.write_text(f'[source]\nkind = "kafka"\nkafka_options = {{ "{name}" = "read_uncommitted" }}\n')
        assert load(tmp_path, {})[0].source.isolation_level == "read_uncommitted"
        file.write_text(f'[source]\nkind = "kafka"\nkafka_options = {{ "{name}" = "serializable" }}\n')
        with pytest.raises(Refused, match=r"isolation\.level to be read_committed or read_uncommitted, got 'serial"):
            load(tmp_path, {})


def test_a_file_that_is_no_toml_is_named(tmp_path: Path) -> None:
    """The message says which file to correct, and where."""
    (tmp_path / "turnout.toml").write_text("[ingest\n")
    with pytest.raises(Refused, match=r"turnout.toml is not valid TOML.*line 1"):
        load(tmp_path, {})


@pytest.mark.parametrize(("text", "expected"), [
    (f"[ingest]\nmax_rows = 1{'0' * 400}\n", "from 1 to 1e\\+07, got a number that is too large"),
    (f"[ingest]\ntrigger_seconds = 1{'0' * 400}\n", "expected a number, got 'a number that is too large'"),
    (f"[ingest]\nmax_rows = 1{'0' * 5000}\n", "is not valid TOML"),
    (f"[metrics]\nbind = 0x{'f' * 5000}\n", "metrics.bind: expected a text, got 'a number that is too large'"),
    (f"a = {'[' * 3000}{']' * 3000}\n", "nested too deep"),
])  # fmt: skip
def test_a_value_beyond_all_measure_is_one_sentence(text: str, expected: str, tmp_path: Path) -> None:
    """A value that Python cannot process is a wrong setting, not a traceback."""
    (tmp_path / "turnout.toml").write_text(text)
    with pytest.raises(Refused, match=expected):
        load(tmp_path, {})
    with pytest.raises(Refused, match="expected a list of texts"):
        load(tmp_path / "other", {"TURNOUT_ROLES__OPERATORS": "[" * 3000})


def test_a_folder_in_the_place_of_the_file_is_one_sentence(tmp_path: Path) -> None:
    """A file of settings that cannot be read is not taken for one without settings."""
    (tmp_path / "turnout.toml").mkdir()
    with pytest.raises(Refused, match="cannot be read: Is a directory"):
        load(tmp_path, {})


def leaves(cls: type, prefix: str = "") -> Iterator[tuple[str, str, typing.Any]]:
    """Yield section, name and type of every setting."""
    for name, kind in typing.get_type_hints(cls).items():
        if dataclasses.is_dataclass(kind) and isinstance(kind, type):
            yield from leaves(kind, f"{prefix}{name}.")
        else:
            yield prefix.rstrip("."), name, kind


@pytest.mark.parametrize("value", [CANARY, [CANARY], {"inner": {"deep": CANARY}}], ids=["text", "list", "table"])
@pytest.mark.parametrize(("section", "name", "kind"), list(leaves(Settings)))
@pytest.mark.proves("G177")
def test_no_secret_is_in_a_refusal(section: str, name: str, kind: typing.Any, value: object, tmp_path: Path) -> None:
    """A password in the wrong place must not reach a terminal or a log; a plain word in a plain setting may."""
    written = json.dumps(value) if not isinstance(value, dict) else '{ inner = { deep = "hunter2-canary" } }'
    (tmp_path / "turnout.toml").write_text(f"{f'[{section}]' if section else ''}\n{name} = {written}\n")
    try:
        load(tmp_path, {})
    except Refused as refused:
        shown = CANARY in str(refused)
        assert not shown or (value == CANARY and not may_be_secret(name, kind, value))


@pytest.mark.parametrize(
    ("section", "name"), [(section, name) for section, name, kind in leaves(Settings) if kind is str]
)
@pytest.mark.proves("G177")
def test_no_password_of_an_address_is_in_a_refusal(section: str, name: str, tmp_path: Path) -> None:
    """An address with a password, in whatever setting, is refused or taken without a word of it."""
    written = f"s3://user:{CANARY}@bucket/x"
    (tmp_path / "turnout.toml").write_text(f"{f'[{section}]' if section else ''}\n{name} = {json.dumps(written)}\n")
    said = ""
    try:
        load(tmp_path, {})
    except Refused as refused:
        said = str(refused)
    assert CANARY not in said


@pytest.mark.parametrize(
    ("text", "is_shown"),
    [
        ("s3://bucket_/prod", True),
        ("abfss://container@account.blob.core.windows.net/prod", True),
        ("/srv/a@b/c?d", True),
        (f"s3://user:{CANARY}@bucket/x", False),
        (f"s3:/user:{CANARY}@bucket/x", False),
        (f"abfss://user:{CANARY}@account.dfs.core.windows.net/x", False),
        (f"https://{CANARY}@host/x", False),
        (f"https://account.blob.core.windows.net/c?sig={CANARY}", False),
        (f" s3://user:{CANARY}@bucket/x", False),
        (f"user:{CANARY}@bucket", False),
        (f"//user:{CANARY}@bucket/x", False),
        (f"//bucket/x?token={CANARY}", False),
        (f"abfss://container@account.dfs.core.windows.net/x;sig={CANARY}", False),
        (f"bucket/x;SIG={CANARY}", False),
    ],
)
def test_an_address_is_shown_without_a_sign_of_a_secret_alone(text: str, is_shown: bool) -> None:
    """A wrong text is quoted if it has neither a user, a password nor a query, and a path as it is."""
    assert quoted(text) == (repr(text) if is_shown else "a text (not shown)")


@pytest.mark.parametrize("url", [f"s3://user:{CANARY}@bucket/x", f"s3://bucket/x?sig={CANARY}"])
def test_no_password_of_an_environments_address_is_in_a_refusal(url: str) -> None:
    """`--env-dir` with a password in its URL is refused without it; a landing table's path is, too."""
    with pytest.raises(Refused, match="cannot be an environment") as refused:
        machine_folder(url)
    assert CANARY not in str(refused.value)
    assert sources_problems(Source(path=url), {}) == [
        "source.path: expected a URL such as s3://bucket/landing, got a text (not shown)"
    ]


@pytest.mark.parametrize("name", ["SPARK__CONF", "SOURCE__KAFKA_OPTIONS", "ACCESS__IDENTITIES", "ROLES__OPERATORS"])
def test_a_text_where_many_belong_is_not_shown(name: str, tmp_path: Path) -> None:
    """Somebody who writes a whole table into one variable writes its secrets there, too."""
    with pytest.raises(Refused, match=r"got a text \(not shown\)") as refused:
        load(tmp_path, {f"TURNOUT_{name}": f"secret.key={CANARY}"})
    assert CANARY not in str(refused.value)


@pytest.mark.parametrize(
    "text",
    [
        f"[store]\nurl = {CANARY}\n",
        f'[store]\nurl = "{CANARY}\n',
        f'[store]\nurl = "a"{CANARY}\n',
        f'store = "{CANARY}"\n',
        f'[source]\nkafka_options = ["{CANARY}"]\n',
        f'[source]\nkafka_options = {{ "sasl.jaas.config" = [ "{CANARY}" ] }}\n',
    ],
)
@pytest.mark.proves("G177")
def test_no_line_of_the_file_is_in_a_refusal(text: str, tmp_path: Path) -> None:
    """Whoever mistypes a line with a password sees where it is, not what it is."""
    (tmp_path / "turnout.toml").write_text(text)
    with pytest.raises(Refused) as refused:
        load(tmp_path, {})
    assert CANARY not in str(refused.value)


@pytest.mark.parametrize("url", [
    f"postgresql+psycopg://u:{CANARY}@host:port/db", f"postgresql//u:{CANARY}@host",
    f"postgresql+psycopg://u:p@{CANARY}@127.0.0.1:1/db", f"postgresql+psycopg://u:p@{CANARY}/p@127.0.0.1:1/db",
])  # fmt: skip
def test_a_store_url_that_is_none_is_one_sentence_without_its_password(url: str, tmp_path: Path) -> None:
    """A bad port is a wrong setting, not a traceback."""
    settings, paths = load(tmp_path, {"TURNOUT_STORE__URL": url})
    with pytest.raises(Refused, match=r"store\.url") as refused:
        open_store(settings, paths)
    assert CANARY not in str(refused.value)


@pytest.mark.parametrize("folder", ["a%41b", "100%25", "a\\b", "%c3%a9/env"])
def test_a_path_that_readers_of_tables_take_for_another_is_refused(folder: str, tmp_path: Path) -> None:
    """Refused at the start: later each table would be no such file, or an error of delta-rs. Other signs may stand."""
    with pytest.raises(Refused, match=r"cannot be an environment: .* in a path. Name another folder"):
        load(tmp_path / folder, {})
    for allowed in ("100%", "50 % é", "%zz", "a+b&c#d"):
        assert load(tmp_path / allowed, {})[1].root == tmp_path / allowed


@pytest.mark.parametrize("name", ["TURNOUT_ENVIRONMENT", "TURNOUT_ENV_DIR", "TURNOUT_STORE__URL", "TURNOUT_\udcff"])
def test_a_variable_that_is_no_utf_8_is_refused_by_its_name(name: str, tmp_path: Path) -> None:
    """A value that no table, message or database accepts is refused at the start; it may be a secret."""
    with pytest.raises(Refused, match="expected UTF-8 text, got other bytes") as refused:
        load(tmp_path, {name: f"{CANARY}\udcff", "HOME": "\udcff"})
    assert name.encode("ascii", "backslashreplace").decode() in str(refused.value)
    assert CANARY not in str(refused.value)
    str(refused.value).encode()


def test_a_store_in_no_folder_is_said_by_its_reason(tmp_path: Path) -> None:
    """What is missing is said, and no draft of ours that nobody has asked for."""
    settings, paths = load(tmp_path, {"TURNOUT_STORE__URL": f"sqlite:///{tmp_path}/nowhere/a.db"})
    with pytest.raises(Refused, match=r"cannot be opened: No such file or directory\. Check the setting store\.url"):
        open_store(settings, paths)


def test_a_push_gateway_with_a_password_is_refused_without_it(tmp_path: Path) -> None:
    """The address stands in logs, so no password belongs into it."""
    with pytest.raises(Refused, match=r"metrics\.push_gateway: expected an address without a user") as refused:
        load(tmp_path, {"TURNOUT_METRICS__PUSH_GATEWAY": f"http://u:{CANARY}@gateway:9091"})
    assert CANARY not in str(refused.value)


@pytest.mark.parametrize("hours", ["22", "22-25", "6-6", "a-b", "-1-3", "22-6-8", "\u0662-6"])
def test_hours_that_are_none_are_refused(tmp_path: Path, hours: str) -> None:
    """The hours of maintenance are two different hours of a day; a text misread as all day would run by day."""
    with pytest.raises(Refused, match=r"maintenance\.hours: expected two hours such as '22-6'"):
        load(tmp_path, {"TURNOUT_MAINTENANCE__HOURS": hours})
    assert load(tmp_path, {"TURNOUT_MAINTENANCE__HOURS": "22-6"})[0].maintenance.hours == "22-6"


REGISTRY = """
[registries.main]
url = "https://registry.example.com:8081"
user = "turnout"

[registries.glue-eu]
kind = "glue"
generation = 2
region = "eu-central-1"
"""


def test_registries_have_names_and_generations(tmp_path: Path) -> None:
    """Each registry is a table of its own name; a variable gives its secret, which no text of settings shows."""
    (tmp_path / "turnout.toml").write_text(REGISTRY)
    settings, _ = load(tmp_path, {"TURNOUT_REGISTRIES__MAIN__PASSWORD": "hush"})
    assert settings.registries["main"].password == "hush"
    assert "hush" not in repr(settings)
    assert [generation_of(settings.registries, name) for name in settings.registries] == ["main", "glue-eu.2"]


def test_all_problems_of_registries_are_told_at_once(tmp_path: Path) -> None:
    """What another kind would need, half a credential, a relative path and a secret in an address: one message."""
    (tmp_path / "turnout.toml").write_text(
        'registries.Main = {region = "eu", url = "https://user:hush@host", password = "hush", ca = "ca.pem"}\n'
        'registries.b = {kind = "folder", token = 7}\n'
        'registries.c = {kind = "glue", generation = 0}\n'
        'registries.d = "hush"\n'
        'registries.e = {user = "u", token = "hush", key = "/k", url = "https://host"}\n'
    )
    with pytest.raises(Refused) as types:
        load(tmp_path, {})
    assert str(types.value).splitlines()[1:] == [
        "  - registries.b.token: expected a text, got a number (not shown)",
        "  - registries.d: expected a table of settings, got a text (not shown)",
    ]
    text = (tmp_path / "turnout.toml").read_text()
    (tmp_path / "turnout.toml").write_text(text.replace(", token = 7", "").replace('registries.d = "hush"\n', ""))
    with pytest.raises(Refused) as values:
        load(tmp_path, {})
    assert str(values.value).splitlines()[1:] == [
        "  - registries.c.generation: expected a value from 1 to 1000, got 0",
        "  - registries.'Main': expected a name of 1 to 40 of a-z, 0-9, '_' and '-', with no sign first",
        "  - registries.Main.region: expected none with the kind 'confluent'",
        "  - registries.Main.url: expected an address such as https://host:8081, without user and password (not shown)",
        "  - registries.Main.password: expected a user with the password, got none",
        "  - registries.Main.ca: expected an absolute path (not shown)",
        "  - registries.b.folder: expected one with the kind 'folder', got none",
        "  - registries.e.token: expected either a token or a user, got both",
        "  - registries.e.key: expected a certificate with the key, got none",
    ]
    assert "hush" not in str(types.value) + str(values.value)


@pytest.mark.parametrize("table", ["source", "sources.own"])
def test_the_landing_table_of_the_environment_has_one_name(tmp_path: Path, table: str) -> None:
    """By its path it would be another source, whose rows had all landed before under other names."""
    (tmp_path / "elsewhere").symlink_to(tmp_path)
    for path in (tmp_path / "landing", tmp_path / "elsewhere" / "landing"):
        (tmp_path / "turnout.toml").write_text(f'[{table}]\npath = "{path}"\n')
        with pytest.raises(Refused, match=rf"{table}.path: expected none"):
            load(tmp_path)
    (tmp_path / "turnout.toml").write_text(f'[{table}]\npath = "{tmp_path}/other"\n')
    assert load(tmp_path)
