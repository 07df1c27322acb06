#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Usage: job_files.py SOURCE_DIR [CIFAR10_TRAIN]. Checks the job files of examples/jobs: every field of kubernetes-mpijob.yaml
exists, with its type, in the MPI operator's interface v2beta1 or in Kubernetes' of pods, and those that must be there are; what
belongs together agrees; bash reads the scripts; and cifar10_train has the options. Skipped without PyYAML."""

import copy
import os
import pathlib
import re
import subprocess
import sys

try:
    import yaml
except ImportError:
    # Debian's python3-yaml is for its own Python.
    if sys.executable != "/usr/bin/python3" and os.access("/usr/bin/python3", os.X_OK):
        os.execv("/usr/bin/python3", ["/usr/bin/python3", *sys.argv])
    print("there is no PyYAML")
    sys.exit(77)


class Quantity:
    """As in 500m, 8 or 2Gi."""


class Count:
    """An integer that is not negative."""


# The fields that the file may use. A name with "!" must be there; a set lists all values; [x] is a list with at least one x;
# {"*": x} has any names.
RESOURCES = {name: {"cpu": Quantity, "memory": Quantity} for name in ("requests", "limits")}
VOLUME = {
    "name!": str,
    "emptyDir": {"medium": {"", "Memory"}, "sizeLimit": Quantity},
    "persistentVolumeClaim": {"claimName!": str, "readOnly": bool},
}
CONTAINER = {
    "name!": str,
    "image": str,
    "command": [str],
    "args": [str],
    "env": [{"name!": str, "value": str}],
    "resources": RESOURCES,
    "readinessProbe": {"tcpSocket": {"port!": Count}, "periodSeconds": Count, "initialDelaySeconds": Count},
    "volumeMounts": [{"name!": str, "mountPath!": str, "readOnly": bool}],
    "securityContext": {"runAsUser": Count},
}
POD = {"containers!": [CONTAINER], "volumes": [VOLUME], "terminationGracePeriodSeconds": Count, "nodeSelector": {"*": str}}
REPLICAS = {
    "replicas": Count,
    "restartPolicy": {"Always", "OnFailure", "Never", "ExitCode"},
    "template!": {"metadata": {"labels": {"*": str}, "annotations": {"*": str}}, "spec!": POD},
}
MPIJOB = {
    "apiVersion!": {"kubeflow.org/v2beta1"},
    "kind!": {"MPIJob"},
    "metadata!": {"name!": str, "namespace": str, "labels": {"*": str}, "annotations": {"*": str}},
    "spec!": {
        "slotsPerWorker": Count,
        "runLauncherAsWorker": bool,
        "sshAuthMountPath": str,
        "launcherCreationPolicy": {"AtStartup", "WaitForWorkersReady"},
        "mpiImplementation": {"OpenMPI", "Intel", "MPICH"},
        "runPolicy": {
            "cleanPodPolicy": {"None", "Running", "All"},
            "ttlSecondsAfterFinished": Count,
            "activeDeadlineSeconds": Count,
            "backoffLimit": Count,
            "suspend": bool,
        },
        "mpiReplicaSpecs!": {"Launcher!": REPLICAS, "Worker!": REPLICAS},
    },
}


def mistakes(value, schema, place="the file"):
    """A list of what is wrong with a value."""
    if isinstance(schema, dict):
        if not isinstance(value, dict):
            return [f"{place} is not an object: {value!r}"]
        if "*" in schema:
            return [each for name in value for each in mistakes(value[name], schema["*"], f"{place}.{name}")]
        fields = {name.rstrip("!"): inner for name, inner in schema.items()}
        found = [f"{place} lacks {name[:-1]}" for name in schema if name.endswith("!") and name[:-1] not in value]
        for name, inner in value.items():
            found += mistakes(inner, fields[name], f"{place}.{name}") if name in fields else [f"{place} has no field {name}"]
        return found
    if isinstance(schema, list):
        if not isinstance(value, list) or not value:
            return [f"{place} is not a list, or it is empty: {value!r}"]
        return [each for i, item in enumerate(value) for each in mistakes(item, schema[0], f"{place}[{i}]")]
    if isinstance(schema, set):
        right = isinstance(value, str) and value in schema
    elif schema is Quantity:
        right = not isinstance(value, bool) and re.fullmatch(r"[0-9.]+(m|k|M|G|T|Ki|Mi|Gi|Ti)?", str(value))
    elif schema is Count:
        right = type(value) is int and value >= 0
    else:
        right = type(value) is schema
    return [] if right else [f"{place} cannot be {value!r}"]


def disagreements(job):
    """What is allowed field by field, but cannot work."""
    spec = job["spec"]
    launcher, worker = (spec["mpiReplicaSpecs"][name] for name in ("Launcher", "Worker"))
    found = []
    for name, replicas in (("Launcher", launcher), ("Worker", worker)):
        pod = replicas["template"]["spec"]
        volumes = {volume["name"] for volume in pod["volumes"]}
        mounts = {mount["name"] for container in pod["containers"] for mount in container["volumeMounts"]}
        if volumes != mounts:
            found.append(f"{name}: the volumes {sorted(volumes)} are mounted as {sorted(mounts)}")
    container = launcher["template"]["spec"]["containers"][0]
    script = container["args"][0]
    processes = int(re.search(r"mpirun -n (\d+)", script)[1])
    replicas = int(re.search(r"--num-replicas (\d+)", script)[1])
    threads = int(re.search(r"--threads-per-device (\d+)", script)[1])
    slots = worker["replicas"] * spec["slotsPerWorker"]
    if processes != slots or replicas % processes != 0:
        found.append(f"{processes} processes for {replicas} replicas on {slots} slots")
    processors = worker["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"]
    if int(processors) != spec["slotsPerWorker"] * threads:
        found.append(f"a worker has {processors} processors for {spec['slotsPerWorker']} processes of {threads} threads")
    mounted = {mount["mountPath"]: mount["name"] for mount in worker["template"]["spec"]["containers"][0]["volumeMounts"]}
    shared = [volume for volume in worker["template"]["spec"]["volumes"] if volume["name"] == mounted.get("/dev/shm")]
    if not shared or shared[0].get("emptyDir", {}).get("medium") != "Memory":
        found.append("a worker's /dev/shm is not memory")
    if bash_rejects(script):
        found.append("bash does not read the launcher's script")
    return found


def bash_rejects(script):
    return subprocess.run(["bash", "-n"], input=script, text=True).returncode != 0


def places(value, path=()):
    """The paths of all fields."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield (*path, name)
            yield from places(inner, (*path, name))
    if isinstance(value, list):
        for i, inner in enumerate(value):
            yield from places(inner, (*path, i))


def main():
    root = pathlib.Path(sys.argv[1])
    folder = root / "examples" / "jobs"
    text = (folder / "kubernetes-mpijob.yaml").read_text()
    job = yaml.safe_load(text)
    problems = mistakes(job, MPIJOB) or disagreements(job)

    # The test of the test: each field, renamed or of another type, is a mistake.
    fields = list(places(job))
    for path in fields:
        for change in ("name", "type"):
            other = copy.deepcopy(job)
            inner = other
            for step in path[:-1]:
                inner = inner[step]
            if change == "name":
                inner[path[-1] + "s"] = inner.pop(path[-1])
            else:
                inner[path[-1]] = 1.5j
            if not mistakes(other, MPIJOB):
                problems.append(f"another {change} of {path} is not noticed")

    batch = (folder / "slurm.sbatch").read_text()
    if bash_rejects(batch):
        problems.append("bash does not read slurm.sbatch")
    commands = re.findall(r"^#SBATCH (--[a-z-]+)", batch, re.M)
    first = next(i for i, line in enumerate(batch.splitlines()) if line and not line.startswith("#"))
    late = [line for line in batch.splitlines()[first:] if line.startswith("#SBATCH")]
    if len(commands) < 6 or late:
        problems.append(f"sbatch does not read its options {late} of {commands}")

    if len(sys.argv) > 2:
        known = subprocess.run([sys.argv[2], "--help"], capture_output=True, text=True, check=True).stdout
        # mpirun kills the rest that long after a lost process; the others need their deadline, and a second, for their files.
        deadline = re.search(r"--deadline (\d+)", text) or re.search(r"--deadline [A-Z]+[ :]*[=[](\d+)", known)
        patience = re.search(r"odls_base_sigkill_timeout (\d+)", text)
        if not deadline or not patience or int(patience[1]) <= int(deadline[1]):
            problems.append("kubernetes-mpijob.yaml: mpirun kills processes before their deadline")
        for name, script in (("kubernetes-mpijob.yaml", text), ("slurm.sbatch", batch)):
            # From the first option of cifar10_train to the end of its line of arguments.
            arguments = re.search(r"--num-replicas(?:.*\\\n)*.*", script)[0]
            options = re.findall(r"(?<![\w-])--[a-z-]+", arguments) + ["--resume"]
            problems += [f"{name}: cifar10_train has no option {option}" for option in options if f"{option} " not in known]
            if len(options) < 5:
                problems.append(f"{name} has only the options {options}")
    print(f"{len(fields)} fields checked, {len(problems)} errors")
    if problems:
        sys.exit("\n".join(problems))


if __name__ == "__main__":
    main()
