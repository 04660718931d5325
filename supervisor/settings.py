"""The supervisor's settings: one typed field each, layered from flag to default."""

from __future__ import annotations

import dataclasses
import difflib
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, get_args

import platformdirs

from .domain import Prepare
from .units import parse_duration, parse_size

ENVIRONMENT_PREFIX: Final = "MODELSUP_"
CONFIG_VARIABLE: Final = "MODELSUP_CONFIG"

Parse = Callable[[object], Any]  # raises ValueError that says what was expected


class SettingsError(ValueError):
    """A setting that cannot be used: which field, from which source, and what was expected."""

    def __init__(self, name: str, source: str, problem: str) -> None:
        super().__init__(f"{name} ({source}): {problem}")
        self.field = name
        self.source = source
        self.problem = problem


@dataclass(frozen=True, slots=True)
class Field:
    """What is known of one setting beside its value."""

    name: str
    type: (
        str  # "text", "integer", "number", "boolean", "duration", "size", "path", "list", "choice"
    )
    help: str
    units: str  # of the parsed value: "seconds", "bytes" or ""
    choices: tuple[str, ...]
    parse: Parse
    make_default: Callable[[], Any]

    @property
    def default(self) -> Any:
        """The parsed value that stands where no source gives one."""
        return self.make_default()

    @property
    def flag(self) -> str:
        """The option of `modelsup start`."""
        return "--" + self.name.replace("_", "-")

    @property
    def env(self) -> str:
        """The environment variable."""
        return ENVIRONMENT_PREFIX + self.name.upper()


_WHOLE: Final = re.compile(r"\s*-?[0-9]{1,18}\s*", re.ASCII)


def _text(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"expected some text, got {value!r}")
    return value.strip()


def _boolean(value: object) -> bool:
    if isinstance(value, bool):
        return value
    words = {"true": True, "yes": True, "on": True, "1": True}
    words |= {"false": False, "no": False, "off": False, "0": False}
    known = words.get(value.strip().lower()) if isinstance(value, str) else None
    if known is None:
        raise ValueError(f"expected true or false, got {value!r}")
    return known


def _integer(low: int, high: int) -> Parse:
    def parse(value: object) -> int:
        is_number = isinstance(value, int | str) and _WHOLE.fullmatch(str(value))  # not True
        number = int(str(value)) if is_number else None
        if number is None or not low <= number <= high:
            raise ValueError(f"expected a whole number from {low} to {high}, got {value!r}")
        return number

    return parse


def _share(value: object) -> float:
    try:
        share = float(str(value))
    except ValueError:
        share = -1.0
    if not 0 <= share < 1:
        raise ValueError(f"expected a number from 0 to below 1, got {value!r}")
    return share


def _positive(parse_units: Parse) -> Parse:
    def parse(value: object) -> Any:
        number = parse_units(value)
        if number <= 0:
            raise ValueError(f"expected more than 0, got {value!r}")
        return number

    return parse


def _path(value: object) -> Path:
    if not isinstance(value, str) or not value or "\0" in value:
        raise ValueError(f"expected a path, got {value!r}")
    try:
        return Path(value).expanduser()
    except RuntimeError:
        raise ValueError(f"the home folder in {value!r} is not known; write it out") from None


def _optional(parse_value: Parse) -> Parse:
    """Let empty text mean that there is none, so that a source can undo the one below it."""

    def parse(value: object) -> Any:
        return None if value == "" else parse_value(value)

    return parse


def _names(value: object) -> tuple[str, ...]:
    items = value.split(",") if isinstance(value, str) else value
    if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
        raise ValueError(f"expected names separated by commas, got {value!r}")
    return tuple(dict.fromkeys(item.strip() for item in items if item.strip()))


def _choice(choices: tuple[str, ...]) -> Parse:
    def parse(value: object) -> str:
        if isinstance(value, str) and value.strip().lower() in choices:
            return value.strip().lower()
        raise ValueError(f"expected one of {', '.join(choices)}, got {value!r}")

    return parse


LOG_LEVELS: Final = ("debug", "info", "warning", "error")
LOG_FORMATS: Final = ("text", "json")
PREPARE: Final = get_args(Prepare)
CGROUPS: Final = ("auto", "off")


def _about(
    kind: str, parse: Parse, help_text: str, units: str = "", choices: tuple[str, ...] = ()
) -> dict[str, Any]:
    return {"type": kind, "help": help_text, "units": units, "choices": choices, "parse": parse}


def _time(help_text: str, *, zero: bool) -> dict[str, Any]:
    parse = parse_duration if zero else _positive(parse_duration)
    return _about("duration", parse, help_text, "seconds")


def _user_state() -> Path:
    return platformdirs.user_state_path("modelsup")


def _user_cache() -> Path:
    return platformdirs.user_cache_path("modelsup")


@dataclass(frozen=True, slots=True)
class Settings:
    """Every setting of the supervisor, parsed: durations in seconds, sizes in bytes."""

    host: str = field(default="127.0.0.1", metadata=_about("text", _text, "Address to listen on."))
    port: int = field(
        default=8501,
        metadata=_about("integer", _integer(0, 65535), "Port to listen on; 0 takes any free one."),
    )
    grpc_port: int | None = field(
        default=8500,
        metadata=_about(
            "integer",
            _optional(_integer(0, 65535)),
            "Port for gRPC, with the extra grpc; 0 takes any free one, empty is no gRPC.",
        ),
    )
    models_dir: Path | None = field(
        default=None,
        metadata=_about(
            "path", _optional(_path), "Folder whose models are in the catalogue from the start."
        ),
    )
    state_dir: Path = field(
        default_factory=_user_state,
        metadata=_about("path", _path, "Folder for what must outlive the supervisor."),
    )
    preload: tuple[str, ...] = field(
        default=(),
        metadata=_about("list", _names, "Runtimes whose forkserver starts with the supervisor."),
    )
    autoload: bool = field(
        default=True,
        metadata=_about("boolean", _boolean, "Load a known model when a prediction asks for it."),
    )
    load_timeout: float = field(
        default=600.0, metadata=_time("Longest time from fork to ready.", zero=False)
    )
    request_timeout: float = field(
        default=300.0, metadata=_time("Longest time for one prediction.", zero=False)
    )
    drain_timeout: float = field(
        default=30.0,
        metadata=_time("Longest wait for running predictions before a worker stops.", zero=True),
    )
    term_timeout: float = field(
        default=10.0, metadata=_time("Time between SIGTERM and SIGKILL.", zero=True)
    )
    kill_timeout: float = field(
        default=5.0,
        metadata=_time("Time after SIGKILL until a worker counts as stuck.", zero=True),
    )
    memory_back_timeout: float = field(
        default=5.0,
        metadata=_time(
            "Time for a dead worker's memory to be back until it counts as leaked.", zero=True
        ),
    )
    lease_ttl: float = field(
        default=600.0, metadata=_time("Life of a client's lease since its last use.", zero=False)
    )
    idle_ttl: float = field(
        default=0.0,
        metadata=_time("Unload a model that nobody used for so long; 0 keeps it.", zero=True),
    )
    max_body_size: int = field(
        default=256 * 2**20,
        metadata=_about("size", _positive(parse_size), "Largest request body.", "bytes"),
    )
    max_batch_size: int = field(
        default=64,
        metadata=_about(
            "integer", _integer(1, 65536), "Most rows that a worker puts into one call."
        ),
    )
    max_queue: int = field(
        default=1000,
        metadata=_about(
            "integer",
            _integer(0, 10**6),
            "Most requests that wait for one model; further ones are refused.",
        ),
    )
    memory_reserve: float = field(
        default=0.05,
        metadata=_about(
            "number", _share, "Share of the host's and of each GPU's memory that stays unused."
        ),
    )
    gpu_context_memory: int = field(
        default=450 * 10**6,
        metadata=_about(
            "size",
            parse_size,
            "What a process takes of a GPU beside its cap, until that was measured there.",
            "bytes",
        ),
    )
    minimum_residence: float = field(
        default=5.0,
        metadata=_time("Time that a model stays before another may take its room.", zero=True),
    )
    queue_timeout: float = field(
        default=30.0, metadata=_time("Longest wait of a load for room.", zero=True)
    )
    max_requests: int = field(
        default=0,
        metadata=_about(
            "integer",
            _integer(0, 10**9),
            "Replace a worker that has served so many requests; 0 keeps it.",
        ),
    )
    recycle_above: int = field(
        default=0,
        metadata=_about(
            "size",
            parse_size,
            "Replace a worker whose own host memory has grown past this; 0 keeps it.",
            "bytes",
        ),
    )
    prepare: Prepare = field(
        default="auto",
        metadata=_about(
            "choice",
            _choice(PREPARE),
            "Make a form of each model that loads faster: after its first load (auto), as soon as "
            "it is known (now), or never, and use none (off).",
            choices=PREPARE,
        ),
    )
    prepare_timeout: float = field(
        default=900.0, metadata=_time("Longest time for preparing a model.", zero=False)
    )
    cache_dir: Path = field(
        default_factory=_user_cache, metadata=_about("path", _path, "Folder for prepared models.")
    )
    cache_size: int = field(
        default=20 * 10**9,
        metadata=_about(
            "size",
            _positive(parse_size),
            "Most that prepared models may take; those used longest ago go first.",
            "bytes",
        ),
    )
    keep_ram: int | None = field(
        default=None,
        metadata=_about(
            "size",
            _optional(parse_size),
            "Most that weights of models that are not loaded may take of the host's memory; "
            "a quarter of its budget if not set.",
            "bytes",
        ),
    )
    cgroups: str = field(
        default="auto",
        metadata=_about(
            "choice",
            _choice(CGROUPS),
            "Hold workers to --ram by cgroups where that is possible (auto), or watch them (off).",
            choices=CGROUPS,
        ),
    )
    forkserver_ttl: float = field(
        default=0.0,
        metadata=_time("End a forkserver that had no worker for so long; 0 keeps it.", zero=True),
    )
    threads: int | None = field(
        default=None,
        metadata=_about(
            "integer",
            _optional(_integer(1, 4096)),
            "Threads of a worker within one operation; unset leaves it to the runtime.",
        ),
    )
    log_level: str = field(
        default="info",
        metadata=_about(
            "choice", _choice(LOG_LEVELS), "Least severity that is logged.", choices=LOG_LEVELS
        ),
    )
    log_format: str = field(
        default="text",
        metadata=_about(
            "choice", _choice(LOG_FORMATS), "Form of the log lines.", choices=LOG_FORMATS
        ),
    )
    log_lines: int = field(
        default=2000,
        metadata=_about("integer", _integer(1, 1_000_000), "Lines of output kept for each model."),
    )
    sources: dict[str, str] = field(default_factory=dict, compare=False)
    """Where each value came from: "flag", "environment NAME", "file PATH" or "default"."""


def _default_maker(about: dataclasses.Field[Any]) -> Callable[[], Any]:
    if about.default_factory is not dataclasses.MISSING:
        return about.default_factory
    return lambda: about.default


FIELDS: Final[tuple[Field, ...]] = tuple(
    Field(name=f.name, make_default=_default_maker(f), **f.metadata)
    for f in dataclasses.fields(Settings)
    if f.metadata
)


@dataclass(frozen=True, slots=True)
class _Layer:
    """The raw values of one source. Relative paths in them start from `base`."""

    values: Mapping[str, object]
    base: Path
    describe: Callable[[Field], str]


def load_settings(
    flags: Mapping[str, str | None], environ: Mapping[str, str], config_path: Path | None
) -> Settings:
    """Return the settings: flag > `MODELSUP_*` > file > default.

    `flags` is keyed by field name, None where a flag was not given. The file is `config_path`,
    else the one that MODELSUP_CONFIG names, else config.toml in the user's configuration folder
    if there is one. Relative paths start from the working folder, in a file from its folder.
    Raises SettingsError.
    """
    cwd = Path.cwd()
    variables = {f.name: environ[f.env] for f in FIELDS if f.env in environ}
    layers = [
        _Layer({k: v for k, v in flags.items() if v is not None}, cwd, lambda _: "flag"),
        _Layer(variables, cwd, lambda f: f"environment {f.env}"),
    ]
    path = _config_file(environ, config_path)
    if path is not None:
        layers.append(_Layer(_read_file(path), path.parent, lambda _: f"file {path}"))
    found = {f.name: _pick(f, layers) for f in FIELDS}
    values = {name: value for name, (value, _) in found.items()}
    return Settings(**values, sources={name: source for name, (_, source) in found.items()})


def _pick(about: Field, layers: list[_Layer]) -> tuple[Any, str]:
    for layer in layers:
        if about.name not in layer.values:
            continue
        source = layer.describe(about)
        try:
            value = about.parse(layer.values[about.name])
        except ValueError as error:
            raise SettingsError(about.name, source, str(error)) from error
        return (layer.base / value if isinstance(value, Path) else value), source
    return about.default, "default"


def _config_file(environ: Mapping[str, str], config_path: Path | None) -> Path | None:
    named = environ.get(CONFIG_VARIABLE)
    if config_path is None and named:
        config_path = Path(named)
    if config_path is not None:
        return config_path.expanduser().absolute()
    usual = platformdirs.user_config_path("modelsup") / "config.toml"
    return usual if usual.is_file() else None


def _read_file(path: Path) -> dict[str, object]:
    source = f"file {path}"
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError("config", source, f"cannot be read: {error.strerror}") from error
    except ValueError as error:  # not UTF-8, or not TOML
        raise SettingsError("config", source, f"is not valid TOML: {error}") from error
    values: dict[str, object] = {}
    for key, value in data.items():
        name = _known(key, source)
        if name in values:
            raise SettingsError(name, source, "is set twice, with - and with _; keep one")
        values[name] = value
    return values


def _known(key: str, source: str) -> str:
    name = key.replace("-", "_")
    names = [f.name for f in FIELDS]
    if name in names:
        return name
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.0)[0]
    raise SettingsError(key, source, f"is not a setting; the closest one is {close}")
