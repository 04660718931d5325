"""Settings: which source wins, what is refused, and how the refusal reads."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from modelsup.supervisor.settings import FIELDS, Settings, SettingsError, load_settings


@pytest.fixture(autouse=True)
def user_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give every test user folders of its own."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def config(tmp_path: Path) -> Path:
    folder = tmp_path / "etc"
    folder.mkdir()
    return folder / "modelsup.toml"


def test_the_defaults(tmp_path: Path) -> None:
    settings = load_settings({}, {}, None)
    assert settings.host == "127.0.0.1"
    assert settings.port == 8501
    assert settings.models_dir is None
    assert settings.state_dir == tmp_path / "state" / "modelsup"
    assert settings.preload == ()
    assert settings.autoload is True
    assert settings.drain_timeout == 30.0
    assert settings.max_body_size == 268_435_456
    assert settings.threads is None
    assert set(settings.sources.values()) == {"default"}
    assert settings == Settings()


def test_each_source_beats_the_next(config: Path) -> None:
    config.write_text("port = 3\nlog-level = 'debug'\nlease_ttl = '20m'\nthreads = 4\n")
    flags = {"port": "1", "host": None}
    environ = {"MODELSUP_PORT": "2", "MODELSUP_LEASE_TTL": "90s"}
    settings = load_settings(flags, environ, config)
    assert (settings.port, settings.sources["port"]) == (1, "flag")
    assert settings.lease_ttl == 90.0
    assert settings.sources["lease_ttl"] == "environment MODELSUP_LEASE_TTL"
    assert (settings.log_level, settings.threads) == ("debug", 4)
    assert settings.sources["log_level"] == f"file {config}"
    assert settings.sources["host"] == "default"


def test_every_setting_can_come_from_the_environment(tmp_path: Path) -> None:
    texts = {
        "host": "0.0.0.0",
        "port": "0",
        "grpc_port": "0",
        "models_dir": "~/models",
        "state_dir": "here",
        "preload": "tensorflow, echo,echo",
        "autoload": "off",
        "load_timeout": "1m",
        "request_timeout": "2s",
        "drain_timeout": "0",
        "term_timeout": "100ms",
        "kill_timeout": "1",
        "memory_back_timeout": "1.5s",
        "lease_ttl": "1h",
        "idle_ttl": "1d",
        "max_body_size": "1GB",
        "max_batch_size": "8",
        "max_queue": "50",
        "memory_reserve": "0.1",
        "gpu_context_memory": "300MB",
        "minimum_residence": "2s",
        "prepare": "now",
        "prepare_timeout": "5m",
        "cache_dir": "/cache",
        "cache_size": "2GB",
        "queue_timeout": "0",
        "max_requests": "1000",
        "recycle_above": "2GB",
        "keep_ram": "3GB",
        "cgroups": "off",
        "forkserver_ttl": "5m",
        "threads": "2",
        "log_level": "WARNING",
        "log_format": "json",
        "log_lines": "10",
    }
    assert texts.keys() == {f.name for f in FIELDS}
    settings = load_settings({}, {f.env: texts[f.name] for f in FIELDS}, None)
    assert settings == Settings(
        host="0.0.0.0",
        port=0,
        grpc_port=0,
        models_dir=tmp_path / "home" / "models",
        state_dir=tmp_path / "here",
        preload=("tensorflow", "echo"),
        autoload=False,
        load_timeout=60.0,
        request_timeout=2.0,
        drain_timeout=0.0,
        term_timeout=0.1,
        kill_timeout=1.0,
        memory_back_timeout=1.5,
        lease_ttl=3600.0,
        idle_ttl=86400.0,
        max_body_size=10**9,
        max_batch_size=8,
        max_queue=50,
        memory_reserve=0.1,
        gpu_context_memory=300 * 10**6,
        minimum_residence=2.0,
        prepare="now",
        prepare_timeout=300.0,
        cache_dir=Path("/cache"),
        cache_size=2 * 10**9,
        queue_timeout=0.0,
        max_requests=1000,
        recycle_above=2 * 10**9,
        keep_ram=3 * 10**9,
        cgroups="off",
        forkserver_ttl=300.0,
        threads=2,
        log_level="warning",
        log_format="json",
        log_lines=10,
    )


def test_the_fields_describe_the_settings_completely() -> None:
    names = [f.name for f in dataclasses.fields(Settings) if f.name != "sources"]
    assert [f.name for f in FIELDS] == names
    for about in FIELDS:
        assert about.help.endswith(".")
        assert about.flag == f"--{about.name.replace('_', '-')}"
        assert about.env == f"MODELSUP_{about.name.upper()}"
        assert about.default == getattr(Settings(), about.name)
        assert bool(about.choices) == (about.type == "choice")
        assert about.units == {"duration": "seconds", "size": "bytes"}.get(about.type, "")


def test_native_toml_values(config: Path) -> None:
    config.write_text("autoload = false\npreload = ['tensorflow']\ndrain-timeout = 2.5\n")
    settings = load_settings({}, {}, config)
    assert (settings.autoload, settings.preload) == (False, ("tensorflow",))
    assert settings.drain_timeout == 2.5


def test_a_relative_path_in_a_file_starts_from_that_file(config: Path) -> None:
    config.write_text("models-dir = 'models'\nstate-dir = '/var/lib/modelsup'\n")
    settings = load_settings({}, {}, config)
    assert settings.models_dir == config.parent / "models"
    assert settings.state_dir == Path("/var/lib/modelsup")


def test_empty_text_undoes_a_lower_source(config: Path) -> None:
    config.write_text("threads = 4\nmodels-dir = 'models'\npreload = ['echo']\n")
    flags = {"threads": "", "models_dir": "", "preload": ""}
    settings = load_settings(flags, {}, config)
    assert (settings.threads, settings.models_dir, settings.preload) == (None, None, ())


def test_the_file_is_found_in_the_order_promised(tmp_path: Path, config: Path) -> None:
    user = tmp_path / "config" / "modelsup" / "config.toml"
    user.parent.mkdir(parents=True)
    user.write_text("port = 1")
    named = tmp_path / "named.toml"
    named.write_text("port = 2")
    config.write_text("port = 3")
    assert load_settings({}, {}, None).port == 1
    assert load_settings({}, {"MODELSUP_CONFIG": ""}, None).port == 1
    assert load_settings({}, {"MODELSUP_CONFIG": "named.toml"}, None).port == 2
    assert load_settings({}, {"MODELSUP_CONFIG": str(named)}, config).port == 3


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("port", "tcp://10.0.0.1:8501", "expected a whole number from 0 to 65535"),
        ("port", "65536", "expected a whole number from 0 to 65535"),
        ("threads", "0", "expected a whole number from 1 to 4096"),
        ("load_timeout", "0", "expected more than 0"),
        ("drain_timeout", "-1s", "expected a duration such as"),
        ("max_body_size", "big", "expected a size such as"),
        ("max_body_size", "0", "expected more than 0"),
        ("autoload", "maybe", "expected true or false"),
        ("log_level", "loud", "expected one of debug, info, warning, error"),
        ("state_dir", "", "expected a path"),
        ("state_dir", "~nobody-of-this-name/x", "the home folder"),
        ("host", " ", "expected some text"),
    ],
)
def test_a_bad_value_names_field_source_and_expectation(
    name: str, text: str, expected: str
) -> None:
    with pytest.raises(SettingsError) as caught:
        load_settings({}, {f"MODELSUP_{name.upper()}": text}, None)
    assert caught.value.field == name
    assert caught.value.source == f"environment MODELSUP_{name.upper()}"
    assert expected in caught.value.problem
    assert str(caught.value).startswith(f"{name} (environment MODELSUP_{name.upper()}): ")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("prot = 1", "prot (file {}): is not a setting; the closest one is port"),
        ("drain-time = 1", "is not a setting; the closest one is drain_timeout"),
        ("[server]\nport = 1", "is not a setting"),
        ("log-level = 'info'\nlog_level = 'info'", "is set twice"),
        ("port = true", "expected a whole number"),
        ("port = 8501.0", "expected a whole number"),
        ("autoload = 1", "expected true or false"),
        ("preload = [1]", "expected names separated by commas"),
        ("load-timeout = 2024-01-01", "expected a duration"),
        ("port = ", "is not valid TOML"),
    ],
)
def test_a_bad_file_is_refused(config: Path, line: str, expected: str) -> None:
    config.write_text(line)
    with pytest.raises(SettingsError) as caught:
        load_settings({}, {}, config)
    assert expected.format(config) in str(caught.value)


def test_a_file_that_is_not_text_is_refused(config: Path) -> None:
    config.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SettingsError, match="is not valid TOML"):
        load_settings({}, {}, config)


def test_a_named_file_must_exist(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="cannot be read: No such file"):
        load_settings({}, {}, tmp_path / "absent.toml")
    with pytest.raises(SettingsError, match="cannot be read: Is a directory"):
        load_settings({}, {"MODELSUP_CONFIG": str(tmp_path)}, None)
