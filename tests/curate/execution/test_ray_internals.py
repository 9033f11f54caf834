"""What the Ray engine changes inside Ray is there, or is named."""

import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from stepline.curate.execution.ray import (
    CHANGED_PARTS,
    TESTED_RELEASE,
    check_internals,
    notices_in_log,
    without_watchers,
)
from stepline.errors import ModelError

ray = pytest.importorskip("ray", reason="needs Ray: pip install 'stepline[ray]'")
ROOT = Path(__file__).resolve().parents[3]


def test_the_installed_ray_has_every_part_that_is_changed():
    check_internals(ray.__version__)


@pytest.mark.parametrize("part", CHANGED_PARTS)
def test_a_release_without_a_part_is_refused_by_its_name(part, monkeypatch):
    monkeypatch.delattr(part)
    with pytest.raises(
        ModelError, match=rf"^Ray 9.9.0 has no {part}; pip install 'ray==2\.60\.\*'$"
    ):
        check_internals("9.9.0")


def test_the_extra_takes_the_release_that_was_tested_and_no_other():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    for extra in ("ray", "dev"):
        (text,) = (text for text in extras[extra] if text.startswith("ray"))
        specifier = Requirement(text).specifier
        assert specifier.contains(f"{TESTED_RELEASE}.0")
        assert not specifier.contains("2.59.9")
        assert not specifier.contains("2.61.0")


def test_all_parts_are_as_before_once_they_are_not_needed():
    from ray._private import node, services, worker

    before = (worker.print_to_stdstream, services.start_api_server, node.Node.start_monitor)
    with notices_in_log(), without_watchers():
        assert services.start_api_server() == (None, None)
        assert worker.print_to_stdstream is not before[0]
    after = (worker.print_to_stdstream, services.start_api_server, node.Node.start_monitor)
    assert after == before


def test_a_notice_of_a_lost_process_goes_to_the_log(caplog, capsys):
    from ray._private import worker

    with notices_in_log(), caplog.at_level("INFO"):
        worker.print_to_stdstream({"lines": ["a worker", "died"]}, ignore_prefix=False)
    assert "Ray: a worker died" in caplog.text
    assert capsys.readouterr().out == ""
