"""A profile stands for the options in a file, so that a query names no secret."""

from __future__ import annotations

from pathlib import Path

import pytest

from orbitmq.errors import ConfigError
from orbitmq.spark.profiles import PROFILES_ENV, profiles_file
from orbitmq.spark.sink.options import write_options
from orbitmq.spark.source.options import read_options

PROFILES = """
[prod]
nameServer = "ns1:9876"
accessKey = "reader"
secretKey = "hush"
brokerWaitMs = 500
useTls = true
[odd]
nameserver = ["ns1:9876"]
[slip]
secretkeys = "hush"
"""


@pytest.fixture(autouse=True)
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "profiles.toml"
    path.write_text(PROFILES)
    monkeypatch.setenv(PROFILES_ENV, str(path))
    return path


def test_a_profile_stands_for_its_options() -> None:
    for options in (
        read_options({"profile": "prod", "topic": "T"}, streaming=True),
        write_options({"profile": "prod", "topic": "T"}),
    ):
        assert options.name_servers == ("ns1:9876",)
        assert options.broker_wait_ms == 500
        assert options.access.access_key == "reader"
        assert options.access.tls is not None


def test_what_is_given_comes_first() -> None:
    options = read_options(
        {"profile": "prod", "topic": "T", "nameserver": "other:1"}, streaming=True
    )
    assert options.name_servers == ("other:1",)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("test", "profile='test' .*profiles.toml has the tables odd, prod, slip"),
        ("odd", "nameserver in .*profiles.toml is a text, a number, true or false"),
        ("slip", r"secretkeys='\*\*\*' .*did you mean secretKey"),
    ],
)
def test_a_profile_that_is_not_there_or_not_right(name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        read_options({"profile": name, "topic": "T"}, streaming=True)
    assert "hush" not in str(caught.value)


def test_a_file_that_is_not_there_or_not_toml(file: Path) -> None:
    file.write_text("[prod")
    with pytest.raises(ConfigError, match="is not TOML"):
        read_options({"profile": "prod", "topic": "T"}, streaming=True)
    file.unlink()
    with pytest.raises(ConfigError, match=r"profiles are kept in .*profiles\.toml: No such file"):
        read_options({"profile": "prod", "topic": "T"}, streaming=True)


def test_where_profiles_are_by_default(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(PROFILES_ENV)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert profiles_file() == tmp_path / ".orbitmq" / "profiles.toml"
