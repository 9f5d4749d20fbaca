"""The files of deploy/ and .github/: held to the command itself, and each to its own tool where that is installed."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from server_process import running, until

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "helm" / "tidemill"
WITH_ALL = [
    *("--set", "usersSecret=users,tlsSecret=tls,state.storageClass=fast,program=app.py"),
    *("--set", "serviceMonitor.enabled=true,serviceMonitor.tokenSecret=token"),
    *("--set", "options={--memory,2GiB}"),
    *("--set-file", f"files.app\\.py={DEPLOY / 'app' / 'bank.py'}"),
]

pytestmark = pytest.mark.skipif(not DEPLOY.is_dir(), reason="deploy/ is not in the package")


def tool(name):
    """The path of a tool; skips the test where it is not installed."""
    found = shutil.which(name, path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]))
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def passes(*command, **how):
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=120, **how)
    said = done.stdout + done.stderr
    assert done.returncode == 0, f"{command}\n{said}"
    return said


def read(path):
    return yaml.safe_load(path.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def rendered():
    """Returns what the chart makes, by kind: with everything on, and for a cluster that may do all."""
    helm = tool("helm")

    def render(*values):
        command = [helm, "template", "bank", CHART, "--kube-version", "1.30.0", *values]
        return {made["kind"]: made for made in yaml.safe_load_all(passes(*command)) if made}

    return render(*WITH_ALL), render("--set", "insecure=true")


# The command's own word on options and ports.


@pytest.fixture(scope="module")
def described():
    return passes(sys.executable, "-m", "tidemill", "serve", "--help", env={**os.environ, "COLUMNS": "200"})


def instructions(name):
    """The arguments of an instruction of the Dockerfile, each time that it occurs."""
    text = (DEPLOY / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    return re.findall(rf"^{name} (.*)$", text, re.MULTILINE)


def of_image():
    (command,) = instructions("CMD")
    return json.loads(command)


def of_compose():
    return read(DEPLOY / "compose.yaml")["services"]["tidemill"]["command"]


def of_unit(*options):
    unit = (DEPLOY / "tidemill@.service").read_text(encoding="utf-8")
    (line,) = re.findall(r"^ExecStart=\S+/tidemill (.*)$", unit, re.MULTILINE)
    (further,) = re.findall(r'^#   Environment="OPTIONS=(.*)"$', unit, re.MULTILINE)
    return line.replace("$OPTIONS", further if options else "").replace("%i", "bank").replace("%d", "/run").split()


def of_chart(made):
    (container,) = made["StatefulSet"]["spec"]["template"]["spec"]["containers"]
    return container["args"]


def check_command(arguments, tmp_path):
    """The command takes these arguments: what it then refuses is the program, which is not there."""
    arguments = [str(tmp_path / "absent.py") if one.endswith(".py") else one for one in arguments]
    done = subprocess.run([sys.executable, "-m", "tidemill", *arguments], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1, done.stderr
    assert "absent.py" in done.stderr


@pytest.mark.parametrize("command", [of_image, of_compose, of_unit, lambda: of_unit("with options")])
def test_the_command_takes_its_arguments(command, tmp_path):
    check_command(command(), tmp_path)


def test_the_command_takes_the_arguments_of_the_chart(rendered, tmp_path):
    for made in rendered:
        check_command(of_chart(made), tmp_path)


def test_ports_are_those_of_the_command(described, rendered):
    http = re.search(r"--port <N>\s.*?\[default: (\d+)\]", described, re.DOTALL)[1]
    postgres = re.search(r"--postgres-port <N>\s.*?\[default: (\d+)\]", described, re.DOTALL)[1]
    assert instructions("EXPOSE") == [f"{http} {postgres}"]
    assert f'else "{http}"' in (DEPLOY / "health.py").read_text()
    compose = read(DEPLOY / "compose.yaml")["services"]
    assert compose["tidemill"]["ports"] == [f"127.0.0.1:{port}:{port}" for port in (http, postgres)]
    (scraped,) = read(DEPLOY / "prometheus.yml")["scrape_configs"]
    assert scraped["static_configs"] == [{"targets": [f"tidemill:{http}"]}]
    for made in rendered:
        (container,) = made["StatefulSet"]["spec"]["template"]["spec"]["containers"]
        assert [str(port["containerPort"]) for port in container["ports"]] == [http, postgres]
        assert [str(port["port"]) for port in made["Service"]["spec"]["ports"]] == [http, postgres]


# The server that they begin, and the paths that they ask for.


def probes(made):
    (container,) = made["StatefulSet"]["spec"]["template"]["spec"]["containers"]
    return [container[probe]["httpGet"] for probe in ("livenessProbe", "readinessProbe")]


def test_a_server_answers_what_it_is_asked(tmp_path):
    (scraped,) = read(DEPLOY / "prometheus.yml")["scrape_configs"]
    template = (CHART / "templates" / "statefulset.yaml").read_text()
    paths = re.findall(r"path: (/\w+), port: http", template)
    assert len(paths) == 2
    program = (DEPLOY / "app" / "bank.py").read_text()
    with running(tmp_path, "--state", "state", program=program) as server:
        health = [sys.executable, DEPLOY / "health.py", str(server.http[1])]
        passes(*health)
        for path in [*paths, scraped["metrics_path"]]:
            assert server.ask("GET", path)[0] == 200, path
        assert server.call("deposit", {"account": "ada", "amount": 10})[0] == 200
        assert server.call("transfer", {"src": "ada", "dst": "ada", "amount": 20})[0] == 409
        server.check_end()
        done = subprocess.run([*map(str, health)], capture_output=True, text=True, timeout=60)
        assert done.returncode == 1
        assert "/healthz" in done.stderr


def test_health_of_a_server_that_encrypts(tmp_path):
    trustme = pytest.importorskip("trustme")
    issued = trustme.CA().issue_cert("bank.example")
    issued.private_key_pem.write_to_path(str(tmp_path / "tls.key"))
    issued.cert_chain_pems[0].write_to_path(str(tmp_path / "tls.crt"))
    command = [
        sys.executable,
        "-m",
        "tidemill",
        "serve",
        str(DEPLOY / "app" / "bank.py"),
        "--port",
        "0",
        "--no-postgres",
    ]
    said = tmp_path / "said"
    with said.open("wb") as file:
        server = subprocess.Popen(
            [*command, "--tls-cert", "tls.crt", "--tls-key", "tls.key"], cwd=tmp_path, stderr=file
        )
    try:
        until(lambda: server.poll() is not None or re.search(r"https://127\.0\.0\.1:\d+", said.read_text()), 60)
        (port,) = re.findall(r"https://127\.0\.0\.1:(\d+)", said.read_text())
        passes(sys.executable, DEPLOY / "health.py", port)
    finally:
        server.kill()
        server.wait()


def test_metrics_have_the_form_of_prometheus(tmp_path):
    promtool = tool("promtool")
    with running(tmp_path, program=(DEPLOY / "app" / "bank.py").read_text()) as server:
        server.call("deposit", {"account": "ada", "amount": 10})
        metrics = server.ask("GET", "/metrics")[1]
    done = subprocess.run([promtool, "check", "metrics"], input=metrics, capture_output=True, timeout=60)
    # 3 stands for advice on names and types of metrics, 1 for metrics that cannot be read.
    assert done.returncode in (0, 3), done.stderr.decode()


# Each file by its own tool.


def test_the_image_is_made_as_hadolint_wants_it():
    passes(tool("hadolint"), "--failure-threshold", "style", DEPLOY / "Dockerfile")


def test_the_image_has_no_root_and_all_that_it_copies():
    (user,) = instructions("USER")
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", user)
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    for copied in instructions("COPY"):
        source = copied.split()[0].replace("${WHEEL}", "target/wheels/*.whl")
        assert f"!{source}" in ignored
        assert "*" in source or (ROOT / source).is_file()


def test_prometheus_takes_its_configuration():
    passes(tool("promtool"), "check", "config", DEPLOY / "prometheus.yml")


def test_compose_takes_its_file():
    composed = yaml.safe_load(passes(tool("docker-compose"), "--file", DEPLOY / "compose.yaml", "config"))
    assert set(composed["services"]) == {"tidemill", "prometheus"}


def test_compose_has_the_form_of_its_schema():
    passes(tool("check-jsonschema"), "--builtin-schema", "vendor.compose-spec", DEPLOY / "compose.yaml")


def test_compose_opens_no_port_to_others_and_mounts_what_there_is():
    for service in read(DEPLOY / "compose.yaml")["services"].values():
        assert all(port.startswith("127.0.0.1:") for port in service["ports"])
        for mounted in service["volumes"]:
            if mounted.startswith("./"):
                assert (DEPLOY / mounted.split(":")[0]).exists()


def test_systemd_takes_the_unit(tmp_path):
    analyze = tool("systemd-analyze")
    unit = (DEPLOY / "tidemill@.service").read_text(encoding="utf-8")
    made = tmp_path / "tidemill@bank.service"
    # The program that it starts must be there.
    made.write_text(unit.replace("/opt/tidemill/bin/tidemill", sys.executable), encoding="utf-8")
    said = passes(analyze, "verify", "--man=no", made)
    assert made.name not in said, said


def test_helm_takes_the_chart():
    helm = tool("helm")
    for values in (WITH_ALL, ["--set", "insecure=true"]):
        passes(helm, "lint", "--strict", CHART, "--kube-version", "1.30.0", *values)


def test_the_chart_is_refused_open():
    helm = tool("helm")
    command = [helm, "template", "bank", str(CHART), "--kube-version", "1.30.0", "--set", "usersSecret=users"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode != 0
    assert "set usersSecret and tlsSecret, or insecure=true" in done.stderr


def test_the_chart_mounts_what_it_names(rendered):
    for made, scheme in zip(rendered, ("HTTPS", "HTTP"), strict=True):
        pod = made["StatefulSet"]["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        claims = [claim["metadata"]["name"] for claim in made["StatefulSet"]["spec"]["volumeClaimTemplates"]]
        volumes = {volume["name"] for volume in pod["volumes"]} | set(claims)
        assert {mount["name"] for mount in container["volumeMounts"]} == volumes
        folders = [mount["mountPath"] for mount in container["volumeMounts"]]
        for path in [one for one in container["args"] if one.startswith("/") and not one.startswith("/app/")]:
            assert any(path.startswith(f"{folder}/") for folder in folders), path
        assert [probe["scheme"] for probe in probes(made)] == [scheme, scheme]
        assert pod["securityContext"]["runAsUser"] == int(instructions("USER")[0].split(":")[0])
        selector = made["StatefulSet"]["spec"]["selector"]["matchLabels"]
        assert made["Service"]["spec"]["selector"] == selector
        assert selector.items() <= made["StatefulSet"]["spec"]["template"]["metadata"]["labels"].items()
    assert rendered[0]["ConfigMap"]["data"] == {"app.py": (DEPLOY / "app" / "bank.py").read_text()}
    assert "ServiceMonitor" in rendered[0]
    assert "ServiceMonitor" not in rendered[1]


def test_versions_are_those_of_the_package():
    version = re.search(r'^version = "(.*)"$', (ROOT / "Cargo.toml").read_text(), re.MULTILINE)[1]
    chart = read(CHART / "Chart.yaml")
    assert (chart["version"], chart["appVersion"]) == (version, version)


# The files that the host of the repository reads.

GITHUB = ROOT / ".github"
WORKFLOWS = sorted(GITHUB.glob("workflows/*.yml"))


@pytest.mark.parametrize(
    ("schema", "files"),
    [
        ("github-workflows", "workflows/*.yml"),
        ("dependabot", "dependabot.yml"),
        ("github-issue-forms", "ISSUE_TEMPLATE/[!c]*.yml"),
        ("github-issue-config", "ISSUE_TEMPLATE/config.yml"),
    ],
)
def test_files_have_the_form_of_their_schema(schema, files):
    found = sorted(GITHUB.glob(files))
    assert found
    passes(tool("check-jsonschema"), "--builtin-schema", f"vendor.{schema}", *found)


def test_actionlint_takes_the_workflows():
    passes(tool("actionlint"), *WORKFLOWS)


def steps():
    for path in WORKFLOWS:
        for name, job in read(path)["jobs"].items():
            for step in job["steps"]:
                yield path.name, name, job, step


def test_workflows_make_what_there_is():
    targets = set(re.findall(r"^([a-z][\w-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = []
    for _, _, job, step in steps():
        suites = [include.get("suite") for include in job.get("strategy", {}).get("matrix", {}).get("include", [])]
        for target in re.findall(r"\bmake (\S+)", step.get("run", "").replace("${{ matrix.suite }}", "SUITES")):
            named += suites if target == "SUITES" else [target]
        for script in re.findall(r"\bpython3 (?:/source/)?(tools/\S+)", step.get("run", "")):
            assert (ROOT / script).is_file(), script
    assert {"test", "wheel", "site", "fuzz", "soak"} <= set(named)
    assert set(named) <= targets


def test_only_the_jobs_that_publish_may_do_so():
    for path in WORKFLOWS:
        workflow = read(path)
        assert workflow["permissions"] == {"contents": "read"}
        for name, job in workflow["jobs"].items():
            assert "timeout-minutes" in job
            if "permissions" in job:
                assert "environment" in job, f"{path.name}, {name}: no one would have to agree"
                assert job["if"].startswith(
                    ("startsWith(github.ref, 'refs/tags/v')", "github.ref == 'refs/heads/main'")
                )


def test_dependabot_looks_where_there_is_something():
    for update in read(GITHUB / "dependabot.yml")["updates"]:
        folder = ROOT / update["directory"].strip("/")
        looked_for = {
            "cargo": "Cargo.toml",
            "pip": "*requirements*.txt",
            "docker": "Dockerfile",
            "github-actions": ".github/workflows/*.yml",
        }
        assert [*folder.glob(looked_for[update["package-ecosystem"]])], update


def test_hooks_before_a_commit_run_what_there_is():
    (own,) = read(ROOT / ".pre-commit-config.yaml")["repos"]
    for hook in own["hooks"]:
        program, *arguments = hook["entry"].split()
        assert program == "cargo" or program.startswith(".venv/bin/")
        for argument in arguments:
            assert not argument.startswith("tools/") or (ROOT / argument).is_file()
