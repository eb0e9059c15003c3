"""Shell completion: commands and options of the index, kinds, contexts, and kubectl's form of the answer."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner

from shared.cli.completion.cobra import complete
from shared.cli.main import main
from tests.builders import ROOT
from tests.unit.cli.test_cli_imports import CLIENTS, SERVERS, completing, imported


def offered(words: str) -> list[str]:
    *before, incomplete = words.split(" ")
    items = ShellComplete(main, {}, "ttl-after-finished", "").get_completions(before, incomplete)
    return [str(one.value) for one in items]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("expl", ["explain"]),
        ("archive l", ["lifecycle", "ls"]),
        ("plan --by n", ["namespace"]),
        ("plan --foreca", ["--forecast"]),
        ("plan --names --so", ["--sort"]),
        ("plan -k trainj", ["trainjobs"]),
        ("plan -k jobs,pipelineru", ["jobs,pipelineruns"]),
        ("plan -k al", ["all"]),
        ("explain trainj", ["trainjobs"]),
        ("explain configm", ["configmaps"]),
        ("kinds trainj", ["trainjobs"]),
        ("kinds manif", ["manifests"]),
        ("kinds show trainj", ["trainjobs"]),
        ("completion z", ["zsh"]),
        ("nothing x", []),
        ("explain job a b", []),
    ],
)
def test_completion_offers_commands_options_choices_and_kinds(words: str, expected: list[str]) -> None:
    assert offered(words) == expected


def test_completion_offers_the_contexts_of_the_kubeconfig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config").write_text(
        json.dumps({"contexts": [{"name": "prod"}, {"name": "test"}, {"name": "prod-eu"}]})
    )
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path}/absent{os.pathsep}{tmp_path}/config")
    assert offered("plan --context pr") == ["prod", "prod-eu"]
    assert offered(f"plan --kubeconfig {tmp_path}/absent --context pr") == []


@pytest.mark.parametrize("words", ["explain jobs ", "explain jobs/x", "plan -n "])
def test_completion_without_a_cluster_is_silent(words: str, tmp_path: Path) -> None:
    environment = {**os.environ, **completing(f"ttl-after-finished {words}"), "KUBECONFIG": f"{tmp_path}/absent"}
    code = "import sys; sys.argv[0] = 'ttl-after-finished'; from shared.cli.main import main; main()"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, timeout=60, check=False)
    assert (done.stdout.strip(), done.stderr) == (b"", b"")


@pytest.mark.parametrize(
    "words", ["explain --na", "explain trainj", "plan -k po", "timers ls --purpose e", "kinds pipeline", "plan --by k"]
)
def test_completion_of_a_value_or_an_option_imports_no_command(words: str) -> None:
    packages = imported(**completing(f"ttl-after-finished {words}"))
    assert packages & {"pydantic", "yaml", "rich", "uvloop", *CLIENTS, *SERVERS} == set()


def test_kubectl_gets_candidates_with_descriptions_and_a_directive() -> None:
    assert complete(["explain", "trainj"]) == "trainjobs\n:4"
    assert complete(["expl"]).startswith("explain\tShow the decision about an object")
    assert complete(["explain", "-f", ""]) == ":0"
    assert complete([]).count("\n") > 10


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_the_script_of_a_shell(shell: str) -> None:
    done = CliRunner().invoke(main, ["completion", shell], prog_name="ttl-after-finished")
    assert done.exit_code == 0
    assert f"_TTL_AFTER_FINISHED_COMPLETE={shell}_complete" in done.stdout


def test_script_completes_in_bash(tmp_path: Path) -> None:
    program = tmp_path / "ttl-after-finished"
    program.write_text(
        f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {str(ROOT)!r})\nfrom shared.cli.main import main\nmain()\n"
    )
    program.chmod(0o755)
    script = """
    eval "$(ttl-after-finished completion bash)"
    COMP_WORDS=(ttl-after-finished explain trainj) COMP_CWORD=2
    _ttl_after_finished_completion ttl-after-finished
    echo "${COMPREPLY[@]}"
    """
    environment = {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    command = ["bash", "-c", script]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=True)
    assert (done.stdout, done.stderr) == ("trainjobs\n", "")
