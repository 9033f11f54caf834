"""The examples for clusters hold what KubeRay's types (ray.io/v1), Ray's command and Stepline's own
take."""

import re
import shlex
import subprocess
from pathlib import Path

import pytest

from stepline.cli import main

ROOT = Path(__file__).resolve().parents[2]
CLUSTER = ROOT / "examples" / "cluster"
COUNT = {"type": "integer", "minimum": 0}
TEXT, SWITCH = {"type": "string"}, {"type": "boolean"}
NAME = {"type": "string", "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"}
QUANTITY = {"type": "string", "pattern": "^[0-9]+(\\.[0-9]+)?(m|Ki|Mi|Gi|Ti)?$"}


def closed(required, **optional):
    """A schema of an object that has no other fields. required: its fields that must be there."""
    properties = {**required, **optional}
    shape = {"type": "object", "required": list(required), "properties": properties}
    return {**shape, "additionalProperties": False}


def many(schema, least=1):
    return {"type": "array", "items": schema, "minItems": least}


NAMED = closed({"name": NAME})
STRINGS = {"type": "object", "additionalProperties": TEXT}  # numbers of a start parameter, too
AMOUNTS = closed({"cpu": QUANTITY, "memory": QUANTITY})
CONTAINER = closed(
    {"name": NAME, "image": TEXT, "resources": closed({"requests": AMOUNTS, "limits": AMOUNTS})},
    env=many(closed({"name": TEXT, "value": TEXT})),
    envFrom=many(closed({"secretRef": NAMED})),
    volumeMounts=many(closed({"name": NAME, "mountPath": {"type": "string", "pattern": "^/"}})),
)
TOLERATION = {"operator": {"enum": ["Exists", "Equal"]}, "effect": {"enum": ["NoSchedule"]}}
POD = closed(
    {"containers": many(CONTAINER)},
    terminationGracePeriodSeconds=COUNT,
    tolerations=many(closed({"key": {}, **TOLERATION})),
    volumes=many(closed({"name": NAME, "emptyDir": closed({"sizeLimit": QUANTITY})})),
)
GROUP = {"rayStartParams": STRINGS, "template": closed({"spec": POD})}
WORKERS = {"groupName": NAME, "minReplicas": COUNT, "maxReplicas": COUNT, **GROUP}
MODES = {"enum": ["Conservative", "Default", "Aggressive"]}
RAY_CLUSTER = closed(
    {"rayVersion": TEXT, "headGroupSpec": closed(GROUP)},
    enableInTreeAutoscaling=SWITCH,
    autoscalerOptions=closed({}, upscalingMode=MODES, idleTimeoutSeconds=COUNT),
    workerGroupSpecs=many(closed(WORKERS, replicas=COUNT)),
)
SPEC = closed(
    {"entrypoint": TEXT, "rayClusterSpec": RAY_CLUSTER},
    backoffLimit=COUNT,
    shutdownAfterJobFinishes=SWITCH,
    ttlSecondsAfterFinished=COUNT,
    submitterConfig=closed({}, backoffLimit=COUNT),
)
KIND = {"apiVersion": {"const": "ray.io/v1"}, "kind": {"const": "RayJob"}}
RAY_JOB = closed({**KIND, "metadata": NAMED, "spec": SPEC})


def checked_command(words):
    """The settings of a `stepline curate` line, which must parse."""
    assert words[:2] == ["stepline", "curate"]
    curate = main.commands["curate"]
    inner = curate.commands["run"].make_context("run", list(words[2:]))
    return inner.params


def test_the_manifest_is_a_ray_job_of_known_fields_alone():
    yaml = pytest.importorskip("yaml")
    jsonschema = pytest.importorskip("jsonschema")
    job = yaml.safe_load((CLUSTER / "kuberay_job.yaml").read_text())
    jsonschema.Draft202012Validator.check_schema(RAY_JOB)
    jsonschema.validate(job, RAY_JOB)
    cluster = job["spec"]["rayClusterSpec"]
    assert f"ray=={cluster['rayVersion']}\n" in (ROOT / "constraints.txt").read_text()
    (group,) = cluster["workerGroupSpecs"]
    (worker,) = group["template"]["spec"]["containers"]
    options = checked_command(shlex.split(job["spec"]["entrypoint"]))
    assert options["engine"] == "ray"
    assert options["workers"] == group["maxReplicas"] * int(worker["resources"]["requests"]["cpu"])
    mounts = {mount["name"]: mount["mountPath"] for mount in worker["volumeMounts"]}
    assert {volume["name"] for volume in group["template"]["spec"]["volumes"]} == mounts.keys()
    assert {entry["value"] for entry in worker["env"]} == set(mounts.values())
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**job, "spec": {**job["spec"], "shutdownAfterJobEnds": True}}, RAY_JOB)


def test_the_submission_is_a_command_of_ray_and_one_of_stepline():
    pytest.importorskip("ray", reason="needs Ray: pip install -c constraints.txt 'stepline[ray]'")
    from ray.dashboard.modules.job.cli import submit

    script = CLUSTER / "ray_job_submit.sh"
    subprocess.run(["sh", "-n", str(script)], check=True)
    text = script.read_text().replace("\\\n", " ")
    line = re.search(r"^exec (ray job submit .*)$", text, re.MULTILINE)[1]
    words = [word.replace("$workers", "400") for word in shlex.split(line)]
    options = submit.make_context("submit", words[3:]).params
    assert options["no_wait"]
    assert checked_command(list(options["entrypoint"]))["workers"] == 400
