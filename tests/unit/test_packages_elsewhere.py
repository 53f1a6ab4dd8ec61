"""The Helm chart renders the manifests that are tested, and the conda recipe asks for what pyproject.toml asks for.

The chart holds itself to a few constructs of templates, which are rendered by this file; any other one fails. Where
Helm is installed, as its command or as its library in Python (helm-python-sdk, 240 MB, so no requirement of the
tests), it renders too, and has to give the same.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tomllib
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy" / "helm" / "tuiadvisor"
RECIPE = ROOT / "deploy" / "conda" / "recipe.yaml"
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
ALL = {**VALUES, "agents": {**VALUES["agents"], "enabled": True}}
CONDA_NAMES = {"prometheus-client": "prometheus_client"}  # where conda-forge calls it otherwise
TAG = re.compile(r"(?P<before>\s*)\{\{(?P<trim>-?)\s*(?P<body>[^{}]*?)\s*\}\}")


def looked_up(path: str, scope: dict[str, Any]) -> Any:
    value: Any = scope
    for name in path.removeprefix(".").split("."):
        value = value[name]  # a value that values.yaml lacks is a KeyError
    return value


def rendered(
    text: str, values: dict[str, Any], release: str = "tuiadvisor", namespace: str = "tuiadvisor"
) -> str:
    """if, else, end, and values with quote or toJson, as Helm renders them."""
    scope = {"Values": values, "Release": {"Name": release, "Namespace": namespace}}
    out, at, shown = [], 0, [True]
    for tag in TAG.finditer(text):
        before = text[at : tag.start()] + ("" if tag["trim"] else tag["before"])
        out.append(before if all(shown) else "")
        at = tag.end()
        words = tag["body"].split()
        match words:
            case ["if", path]:
                shown.append(bool(looked_up(path, scope)))
            case ["else"]:
                shown[-1] = not shown[-1]
            case ["end"]:
                shown.pop()
            case [path, *pipe] if path.startswith("."):
                if all(shown):
                    out.append(piped(looked_up(path, scope), pipe))
            case _:
                raise AssertionError(f"a construct that this test does not render: {tag['body']}")
    assert shown == [True]
    return "".join(out) + text[at:]


def piped(value: Any, pipe: list[str]) -> str:
    match pipe:
        case []:
            # Helm reads numbers of values.yaml as floats: from a million on it writes 1e+06.
            assert not isinstance(value, int) or isinstance(value, bool), "a number goes through int64"
            return str(value)
        case ["|", "int64", *further]:
            return piped(str(int(value)), further)
        case ["|", "quote"]:
            return json.dumps(str(value))
        case ["|", "toJson"]:
            return json.dumps(value)
    raise AssertionError(f"a filter that this test does not render: {pipe}")


def resources(values: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """By kind."""
    texts = [rendered(path.read_text(), values) for path in sorted((CHART / "templates").glob("*.yaml"))]
    return {one["kind"]: one for text in texts for one in yaml.safe_load_all(text) if one}


def manifest(name: str, kind: str) -> dict[str, Any]:
    text = (ROOT / "deploy" / "kubernetes" / name).read_text()
    (found,) = [one for one in yaml.safe_load_all(text) if one["kind"] == kind]
    found["metadata"].setdefault("namespace", "tuiadvisor")
    return dict(found)


def test_the_chart_with_its_own_values_gives_the_manifests() -> None:
    """What is tested of those is true of it."""
    assert resources(VALUES) == {"Pod": manifest("hub.yaml", "Pod")}
    assert resources(ALL) == {
        "Pod": manifest("hub.yaml", "Pod"),
        "DaemonSet": manifest("daemonset.yaml", "DaemonSet"),
    }


def test_values_are_taken_and_hold_to_the_schemas() -> None:
    validator = pytest.importorskip("kubernetes_validate")
    values = json.loads(json.dumps(ALL))
    values["image"] = "registry.example/tuiadvisor:0.1"
    values["hub"] |= {"claim": "recordings", "metricsSecret": "mine", "metricsPort": 9500}
    values["agents"] |= {"invitationSecret": "theirs", "waitSeconds": 60, "nodeSelector": {}}
    found = resources(values)
    for resource in found.values():
        validator.validate(resource, validator.latest_version(), strict=True)
    pod, agent = found["Pod"]["spec"], found["DaemonSet"]["spec"]["template"]["spec"]
    assert pod["volumes"][0] == {"name": "data", "persistentVolumeClaim": {"claimName": "recordings"}}
    assert pod["volumes"][1]["secret"]["secretName"] == "mine"
    assert "0.0.0.0:9500" in pod["containers"][0]["args"][0]
    assert agent["volumes"][0]["secret"]["secretName"] == "theirs"
    assert agent["containers"][0]["command"][-1] == "60"
    assert {pod["containers"][0]["image"], agent["containers"][0]["image"]} == {values["image"]}


def test_every_value_is_used_and_the_notes_render() -> None:
    text = "".join(path.read_text() for path in (CHART / "templates").iterdir())
    used = set(re.findall(r"\.Values\.([\w.]+)", text))
    known = {
        f"{name}.{inner}" if isinstance(value, dict) else name
        for name, value in VALUES.items()
        for inner in (value if isinstance(value, dict) else [""])
    }
    assert used == known
    notes = rendered((CHART / "templates" / "NOTES.txt").read_text(), VALUES, "watch", "ml")
    assert "kubectl -n ml exec watch-hub" in notes
    assert "{{" not in notes


def by_helm(values: dict[str, Any], folder: Path) -> dict[str, dict[str, Any]] | None:
    """What Helm itself renders; None where there is none."""
    if helm := shutil.which("helm"):
        (folder / "values.json").write_text(json.dumps(values))
        command = [helm, "template", "tuiadvisor", str(CHART), "--namespace", "tuiadvisor"]
        command += ["--values", str(folder / "values.json")]
        texts = [subprocess.run(command, capture_output=True, text=True, check=True).stdout]
    elif find_spec("helm_python"):
        with import_module("helm_python").Chart.load(str(CHART)) as chart:
            manifests = chart.render(values, name="tuiadvisor", namespace="tuiadvisor")
        texts = [text for name, text in manifests.items() if name.endswith(".yaml")]
    else:
        return None
    return {one["kind"]: one for text in texts for one in yaml.safe_load_all(text) if one}


def test_helm_gives_the_same(tmp_path: Path) -> None:
    found = by_helm({"agents": {"enabled": True}}, tmp_path)
    if found is None:
        pytest.skip("no Helm (pip install helm-python-sdk)")
    assert found == resources(ALL)
    long = {**ALL["agents"], "waitSeconds": 30 * 86400}
    assert by_helm({"agents": long}, tmp_path) == resources({**ALL, "agents": long})


def split(requirement: str) -> tuple[str, set[str]]:
    """(name, bounds) of both ways to write one."""
    found = re.fullmatch(r"([\w-]+)\s*((?:[<>=!~]=?[\w.]+,?)*)", requirement)
    assert found is not None, requirement
    return found[1], set(filter(None, found[2].split(",")))


def test_the_recipe_asks_for_what_pip_asks_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    recipe = yaml.safe_load(RECIPE.read_text())
    wanted = dict(map(split, project["project"]["dependencies"]))
    wanted = {CONDA_NAMES.get(name, name): bounds for name, bounds in wanted.items()}
    wanted["python"] = {project["project"]["requires-python"]}
    given = [one for one in recipe["requirements"]["run"] if one != "__linux"]
    assert dict(map(split, given)) == wanted
    (build,) = project["build-system"]["requires"]
    assert split(build) in [split(one) for one in recipe["requirements"]["host"] if "*" not in one]
    extras = dict(
        split(one) for extra in project["project"]["optional-dependencies"].values() for one in extra
    )
    for name, bounds in map(split, recipe["requirements"]["run_constraints"]):
        assert extras[name] == bounds


def project_hook() -> str:
    """File of the build's own hook."""
    document = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return str(document["tool"]["hatch"]["build"]["hooks"]["custom"]["path"])


def test_the_recipe_is_of_this_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    recipe = yaml.safe_load(RECIPE.read_text())
    assert recipe["package"]["name"] == project["name"]
    assert recipe["about"]["license"] == project["license"]
    points = [f"{name} = {target}" for name, target in project["scripts"].items()]
    assert recipe["build"]["python"]["entry_points"] == points
    # A package for every machine: what the build would compile where a compiler is does not belong into it.
    assert recipe["build"]["noarch"] == "python"
    hook = (ROOT / project_hook()).read_text()
    assert 'environ.get("TUIADVISOR_CORES", "")' in hook
    assert recipe["build"]["script"]["env"] == {"TUIADVISOR_CORES": "none"}
    assert (RECIPE.parent / recipe["source"]["path"] / recipe["about"]["license_file"]).is_file()
