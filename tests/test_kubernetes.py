"""The manifests in deploy/kubernetes: what Kubernetes and KEDA accept, and what Ratchet reads of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest

from ratchet import config
from ratchet.config import Config
from ratchet.core.api import Metrics
from ratchet.engine.sealed_vault import KEY_VARIABLE
from ratchet.interfaces.cli import serve, worker
from ratchet.interfaces.cli.serve import PORT

yaml = pytest.importorskip("yaml", reason="needs PyYAML, which schemathesis brings")

FOLDER = Path(__file__).parents[1] / "deploy" / "kubernetes"
Manifest = dict[str, Any]


def manifests() -> list[Manifest]:
    files = yaml.safe_load((FOLDER / "kustomization.yaml").read_text("utf-8"))["resources"]
    return [one for name in files for one in yaml.safe_load_all((FOLDER / name).read_text("utf-8"))]


def of(kind: str, name: str = "") -> Manifest:
    (found,) = [one for one in manifests() if one["kind"] == kind and name in one["metadata"]["name"]]
    return found


def job() -> Manifest:
    """The job that KEDA makes of the ScaledJob."""
    scaled = of("ScaledJob")
    return {
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": scaled["metadata"], "spec": scaled["spec"]["jobTargetRef"],
    }  # fmt: skip


def templates() -> dict[str, Manifest]:
    return {"serve": of("Deployment")["spec"]["template"], "worker": job()["spec"]["template"]}


# --- what others accept -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["1.29", "1.32", "latest"])
def test_kubernetes_accepts_every_manifest(version: str) -> None:
    validate = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is not here: scripts/engines")
    version = validate.latest_version() if version == "latest" else version
    checked = [one for one in [*manifests(), job()] if "keda.sh" not in one["apiVersion"]]
    for one in checked:
        validate.validate(one, version, strict=True)
    assert len(checked) > 10


class _Strict(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    pass


class SecretKey(_Strict):
    parameter: str
    name: str
    key: str


class Authentication(_Strict):
    secretTargetRef: list[SecretKey]  # noqa: N815 — KEDA's name


class Rollout(_Strict):
    strategy: Literal["gradual", "immediate"]


class Scaling(_Strict):
    strategy: Literal["default", "custom", "accurate", "eager"]


class Named(_Strict):
    name: str


class Trigger(_Strict):
    type: str
    metadata: dict[str, str]  # a number here is refused
    authenticationRef: Named  # noqa: N815 — KEDA's name


class Scaled(_Strict):
    """The fields of KEDA's ScaledJob that we use."""

    pollingInterval: int  # noqa: N815 — KEDA's names
    maxReplicaCount: int  # noqa: N815
    successfulJobsHistoryLimit: int  # noqa: N815
    failedJobsHistoryLimit: int  # noqa: N815
    rollout: Rollout
    scalingStrategy: Scaling  # noqa: N815
    triggers: list[Trigger]
    jobTargetRef: dict[str, Any]  # noqa: N815


def test_the_scaled_job_has_the_fields_that_keda_knows() -> None:
    given = msgspec.convert(of("TriggerAuthentication")["spec"], Authentication)
    scaled = msgspec.convert(of("ScaledJob")["spec"], Scaled)
    (trigger,) = scaled.triggers
    assert (
        trigger.type == "metrics-api"
        and trigger.authenticationRef.name == of("TriggerAuthentication")["metadata"]["name"]
    )
    assert set(trigger.metadata) == {"url", "valueLocation", "targetValue", "authMode"}
    assert [one.parameter for one in given.secretTargetRef] == ["token"]


# --- what Ratchet reads -------------------------------------------------------------------------------------------


def test_the_metric_that_starts_workers_is_in_the_api() -> None:
    (trigger,) = of("ScaledJob")["spec"]["triggers"]
    assert trigger["metadata"]["valueLocation"] == "claimable" and "claimable" in Metrics.__struct_fields__
    service = of("Service")["metadata"]["name"], of("Namespace")["metadata"]["name"]
    assert trigger["metadata"]["url"] == f"http://{'.'.join(service)}.svc:{PORT}/api/metrics"


@pytest.mark.parametrize("name", ["serve", "worker"])
def test_the_command_of_each_pod_is_one_of_ours_and_its_variables_are_known(name: str) -> None:
    (container,) = templates()[name]["spec"]["containers"]
    program, command, *words = container["command"]
    (known,) = [one for one in (*serve.COMMANDS, *worker.COMMANDS) if one.name == name]
    assert (program, command) == ("ratchet", name)
    known.make_context(name, words)
    given = {one["name"]: "postgresql://db/ratchet" for one in container["env"]}
    assert config.load(FOLDER, environ=given).config.store == given.get("RATCHET_STORE", "")


def test_variables_of_the_service_do_not_reach_the_settings() -> None:
    """Kubernetes would set RATCHET_PORT and others for a Service of this name."""
    assert all(one["spec"]["enableServiceLinks"] is False for one in templates().values())


def loaded(folder: Path) -> Config:
    (folder / "ratchet.toml").write_text(of("ConfigMap")["data"]["ratchet.toml"])
    return config.load(folder, environ={}).config


def test_the_server_answers_to_the_names_that_keda_and_the_workers_use(tmp_path: Path) -> None:
    (container,) = templates()["worker"]["spec"]["containers"]
    (trigger,) = of("ScaledJob")["spec"]["triggers"]
    urls = [container["command"][container["command"].index("--server") + 1], trigger["metadata"]["url"]]
    assert {url.split("/")[2].split(":")[0] for url in urls} <= set(loaded(tmp_path).server.hosts)


def test_a_worker_has_time_to_finish_its_step_before_it_is_killed(tmp_path: Path) -> None:
    # The pool waits 30 s longer than its workers.
    assert templates()["worker"]["spec"]["terminationGracePeriodSeconds"] >= loaded(tmp_path).worker.stop_s + 30


def test_running_jobs_are_never_deleted_or_started_twice_by_kubernetes() -> None:
    spec = job()["spec"]
    assert of("ScaledJob")["spec"]["rollout"]["strategy"] == "gradual"
    assert (spec["backoffLimit"], spec["parallelism"], spec["completions"]) == (0, 1, 1)
    assert spec["template"]["spec"]["restartPolicy"] == "Never" and "activeDeadlineSeconds" not in spec


# --- safety -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["serve", "worker"])
def test_pods_are_as_restricted_as_kubernetes_can_make_them(name: str) -> None:
    pod = templates()[name]["spec"]
    (container,) = pod["containers"]
    assert (
        pod["securityContext"]["runAsNonRoot"] and pod["securityContext"]["seccompProfile"]["type"] == "RuntimeDefault"
    )
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]},
    }  # fmt: skip
    assert pod["automountServiceAccountToken"] is False
    assert set(container["resources"]) == {"requests", "limits"} and "memory" in container["resources"]["limits"]
    mounted = {one["name"]: one for one in container["volumeMounts"]}
    assert mounted.keys() == {one["name"] for one in pod["volumes"]}
    assert {one["mountPath"] for one in mounted.values() if not one.get("readOnly")} == {"/home/ratchet", "/tmp"}


def test_credentials_come_from_secrets_and_workers_have_none_of_the_database() -> None:
    values = [
        one["value"] for pod in templates().values() for one in pod["spec"]["containers"][0]["env"] if "value" in one
    ]
    assert set(values) == {"/home/ratchet"}
    (container,) = templates()["worker"]["spec"]["containers"]
    assert {one["name"] for one in container["env"]} == {"HOME", "RATCHET_TOKEN", KEY_VARIABLE}


def test_policies_and_budgets_select_the_pods_they_are_for() -> None:
    labels = {name: one["metadata"]["labels"] for name, one in templates().items()}
    for kind in ("NetworkPolicy", "PodDisruptionBudget"):
        for name, short in (("serve", "server"), ("worker", "worker")):
            spec = of(kind, short)["spec"]
            selector = spec["podSelector"] if kind == "NetworkPolicy" else spec["selector"]
            assert selector["matchLabels"] == labels[name]
    assert of("Service")["spec"]["selector"] == labels["serve"]
    assert of("NetworkPolicy", "default")["spec"] == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    assert of("PodDisruptionBudget", "worker")["spec"]["minAvailable"] >= of("ScaledJob")["spec"]["maxReplicaCount"]
