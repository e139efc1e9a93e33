import json

import pytest
from click.testing import CliRunner

from cli.main import foreshock
from training.scenario_files import SHIPPED, scenario_names


def scenarios(*arguments):
    return CliRunner().invoke(foreshock, ["scenarios", *arguments])


def test_list_has_a_line_for_every_scenario():
    lines = scenarios("list").stdout.splitlines()[1:]
    assert [line.split()[0] for line in lines] == list(scenario_names())
    surge = next(line for line in lines if line.split()[0] == "surge")
    assert "10:00" in surge
    assert "one surprise x3 impulse" in surge


def test_list_as_json_is_for_a_program():
    rows = json.loads(scenarios("list", "--json").stdout)
    assert [row["name"] for row in rows] == list(scenario_names())
    assert {row["traffic"] for row in rows} == {"trace", "generated", "servegen"}


@pytest.mark.parametrize("name", scenario_names())
def test_show_prints_the_file_and_its_settings(name):
    assert scenarios("show", name).stdout == (SHIPPED / f"{name}.yaml").read_text()
    settings = json.loads(scenarios("show", name, "--json").stdout)
    assert settings["fleet"]["promotion_seconds"] == 4.0


def test_show_of_an_unknown_scenario_lists_those_there_are():
    result = scenarios("show", "rush")
    assert result.exit_code != 0
    assert "known: code2, conv8" in str(result.exception)


def test_schema_is_json_without_infinities():
    assert "traffic" in json.loads(scenarios("schema").stdout, parse_constant=pytest.fail)["properties"]
